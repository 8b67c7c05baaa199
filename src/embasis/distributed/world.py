"""Who this process is among those that work on one run, and what it exchanges with the others.

| symbol | meaning |
| --- | --- |
| rank, size | number of this process, from 0 on; how many there are |
| part | a piece of work with a number; `part mod size` is the rank that computes it |
| columns | the tensors that a part has become |
| header | dtype, order and shape of each column, so that the receiver knows how to cut the bytes |

Alone, nothing is exchanged and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from embasis.distributed.peers import Peers

T = TypeVar("T")
DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool,
)  # fmt: skip
"""What can be sent; a header has the place in this list."""
MOST_COLUMNS, MOST_DIMENSIONS = 8, 6
COLUMN_HEADER = 3 + MOST_DIMENSIONS
"""Numbers of a column in a header: dtype, whether it lies turned in memory, dimensions, sizes."""


class ColumnForm(NamedTuple):
    """What a receiver must know of a column."""

    dtype: torch.dtype
    is_turned: bool
    """Whether its columns, not its rows, lie one behind the other: products of such a matrix round otherwise."""
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Of all its numbers."""
        return self.dtype.itemsize * torch.Size(self.shape).numel()


Form = list[ColumnForm]


class Link(Protocol):
    """How tensors get to the other processes."""

    def add_up(self, value: Tensor) -> Tensor:
        """The sum over all processes."""

    def largest(self, value: Tensor) -> Tensor:
        """The largest value over all processes, entry by entry."""

    def collect(self, value: Tensor) -> list[Tensor]:
        """The value of each process, by rank; all have one shape."""

    def collect_first(self, value: Tensor) -> list[Tensor]:
        """The same for the first process; nothing for the others."""


@dataclass(frozen=True, eq=False)
class World:
    """The processes of one run, seen from one of them."""

    rank: int = 0
    size: int = 1
    link: Link | None = None
    """None for a process alone."""
    peers: Peers | None = None
    """What watches the others; None for a process alone."""

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes the run folder and talks."""
        return self.rank == 0

    def owns(self, part: int) -> bool:
        """Whether this process computes that part."""
        return part % self.size == self.rank

    def add_up(self, value: Tensor) -> Tensor:
        """The sum of `value` over all processes: exact for whole numbers, rounded in some order for others."""
        return value if self.link is None else self.link.add_up(value)

    def largest(self, value: Tensor) -> Tensor:
        """The largest of `value` over all processes, entry by entry."""
        return value if self.link is None else self.link.largest(value)

    def fill(self, values: Tensor) -> Tensor:
        """float64 values of all parts, of which each process has set its own and left the others 0: all of them.

        Bits are added, so that every value arrives as it is, NaN too."""
        if self.link is None:
            return values
        return self.link.add_up(values.contiguous().view(torch.int64)).view(values.dtype)

    def agree(self, code: int) -> int:
        """The largest of the processes' codes: all of them know of a signal that one has got."""
        return code if self.link is None else int(self.link.largest(torch.tensor([code])))

    def collect(self, columns: Sequence[Tensor] | None) -> list[list[Tensor] | None]:
        """What each process has sent, by rank; None from one that had nothing."""
        if self.link is None:
            return [None if columns is None else list(columns)]
        forms = [unpack_header(header) for header in self.link.collect(pack_header(columns))]
        payload = pack_payload(columns, forms)
        payloads = self.link.collect(payload) if len(payload) else [payload] * self.size
        return [None if form is None else cut(data, form) for data, form in zip(payloads, forms, strict=True)]

    def hand_in(
        self, own: Iterator[T], pack: Callable[[T], Sequence[Tensor]], unpack: Callable[[list[Tensor]], T]
    ) -> Iterator[T]:
        """What all processes have, for the first one: the next of each by rank, and again until nobody has more.

        The others get nothing, and are done when all are. So what each has of parts that are dealt out in turn comes
        in the order of the parts."""
        if self.link is None:
            yield from own
            return
        while True:
            item = next(own, None)
            columns = None if item is None else pack(item)
            forms = [unpack_header(header) for header in self.link.collect(pack_header(columns))]
            if all(form is None for form in forms):
                return
            payloads = self.link.collect_first(pack_payload(columns, forms))
            for data, form in zip(payloads, forms, strict=False):  # nothing came to the others
                if form is not None:
                    yield unpack(cut(data, form))

    def in_order(
        self,
        own: Iterator[T],
        count: int,
        pack: Callable[[T], Sequence[Tensor]],
        unpack: Callable[[list[Tensor]], T],
    ) -> Iterator[T]:
        """All `count` parts one after the other, of which `own` are those of this process."""
        if self.link is None:
            yield from own
            return
        for first in range(0, count, self.size):
            mine = pack(next(own)) if first + self.rank < count else None
            yield from (unpack(columns) for columns in self.collect(mine) if columns is not None)

    def collect_texts(self, text: str) -> list[str]:
        """A text of each process, by rank."""
        if self.link is None:
            return [text]
        data = torch.frombuffer(bytearray(text.encode() + b" "), dtype=torch.uint8)  # an empty one has no bytes
        return [columns[0].numpy().tobytes()[:-1].decode() for columns in self.collect([data]) if columns is not None]


def iterate_alone(items: Iterator[T]) -> Iterator[T]:
    """The items, each of which this process computes alone; whoever takes them goes on with the others."""
    while True:
        with work_alone():
            found = list(islice(items, 1))
        if not found:
            return
        yield found[0]


def pack_payload(columns: Sequence[Tensor] | None, forms: Sequence[Form | None]) -> Tensor:
    """The bytes of the columns one behind the other, and zeros up to the longest that any process sends."""
    payload = torch.zeros(max(sum(column.bytes for column in form or ()) for form in forms), dtype=torch.uint8)
    start = 0
    for column in columns or ():
        lying = column.detach().T if is_turned(column) else column.detach()
        data = lying.cpu().contiguous().view(-1).view(torch.uint8)
        payload[start : start + len(data)] = data
        start += len(data)
    return payload


def is_turned(column: Tensor) -> bool:
    """Whether a matrix lies in memory as its transpose does."""
    return column.ndim == 2 and not column.is_contiguous() and column.T.is_contiguous()


def pack_header(columns: Sequence[Tensor] | None) -> Tensor:
    """How many columns there are (−1 = nothing is sent), then the form of each."""
    header = torch.zeros(1 + MOST_COLUMNS * COLUMN_HEADER, dtype=torch.int64)
    header[0] = -1 if columns is None else len(columns)
    for number, column in enumerate(columns or ()):
        form = torch.tensor([DTYPES.index(column.dtype), is_turned(column), column.ndim, *column.shape])
        start = 1 + number * COLUMN_HEADER
        header[start : start + len(form)] = form
    return header


def unpack_header(header: Tensor) -> Form | None:
    """The form of each column; None where nothing is sent."""
    count, *rest = header.tolist()
    if count < 0:
        return None
    forms = []
    for number in range(count):
        kind, turned, dimensions, *sizes = rest[number * COLUMN_HEADER : (number + 1) * COLUMN_HEADER]
        forms.append(ColumnForm(DTYPES[kind], bool(turned), tuple(sizes[:dimensions])))
    return forms


def cut(payload: Tensor, forms: Form) -> list[Tensor]:
    """The columns whose bytes lie one behind the other, each lying in memory as it did where it came from."""
    columns, start = [], 0
    for form in forms:
        # A copy of its own: bytes of another column before it may leave it at a place where no number may begin.
        numbers = payload[start : start + form.bytes].clone().view(form.dtype)
        columns.append(numbers.view(form.shape[::-1]).T if form.is_turned else numbers.view(form.shape))
        start += form.bytes
    return columns


ALONE = World()
_current: ContextVar[World] = ContextVar("world", default=ALONE)


def current_world() -> World:
    """The processes that this one works with now; by default it is alone."""
    return _current.get()


@contextmanager
def enter_world(world: World) -> Iterator[World]:
    """What is computed meanwhile is shared with the others of this world."""
    token = _current.set(world)
    try:
        yield world
    finally:
        _current.reset(token)


@contextmanager
def work_alone() -> Iterator[None]:
    """What is computed meanwhile is computed by this process alone, and nobody else takes part."""
    with enter_world(ALONE):
        yield
