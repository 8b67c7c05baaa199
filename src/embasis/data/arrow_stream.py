"""The batches of an Arrow stream (`.arrow`), found by our own walk over its headers and then decoded by pyarrow.

| in the file | what happens |
| --- | --- |
| a schema, then batches of rows, then the end mark | batches: where each lies, how many rows it has |
| a dictionary, a compressed batch, any other kind of message | refused: a few bytes could stand for gigabytes |
| a header or batch that reaches over the end of the file, no end mark | refused: rows may be missing |
| a number that does not fit the file, more than MOST_MESSAGES messages | refused before anything is skipped by it |
| values that point outside their batch, text that is not UTF-8 | refused by pyarrow's full check of each batch |

A batch is read into memory by itself. Nothing is mapped: a file that is cut while it is mapped would end the process.
A header is a flatbuffer: a table names, in a list of 16-bit numbers, where each of its fields lies; 0 = not there.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from embasis.data.column_kinds import load_arrow
from embasis.errors import InputDataError, shorten
from embasis.resources import require_memory

CONTINUATION, END = b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\0\0\0\0"
PREFIX = 8
"""Bytes before a header: a mark, and how long the header is."""
LARGEST_HEADER = 2**24
"""Bytes; the schema of a data set has the names of its classes in it."""
LARGEST_BATCH = 4 * 2**30
MOST_MESSAGES = 10**6
SCHEMA, DICTIONARY, BATCH = 1, 2, 3
SAVE_AGAIN = "save the data set again"
_ARROW_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class BadArrow(Exception):  # noqa: N818 — a reason, like BadTar
    """Why a stream cannot be read."""


class BatchPlace(NamedTuple):
    """Where the message of a batch lies in its file, and how many rows it says it has."""

    offset: int
    size: int
    rows: int


class ReadBatch(NamedTuple):
    """A batch of rows, and what leads from an address in memory to the place in the file."""

    rows: Any
    first: int
    last: int
    """The addresses of its message in memory."""
    offset: int
    """Where the message begins in the file."""

    def find_place(self, buffer: Any) -> int:
        """Where the bytes of a column lie in the file."""
        inside = self.first <= buffer.address and buffer.address + buffer.size <= self.last
        if not inside:
            raise BadArrow("a column is not stored as it is")
        return int(self.offset + buffer.address - self.first)


@dataclass(frozen=True, eq=False)
class ArrowFile:
    """An Arrow stream whose headers have been read."""

    path: str
    head: bytes
    """The message of its schema."""
    schema: Any
    batches: tuple[BatchPlace, ...]

    @property
    def rows(self) -> int:
        """Those of all batches."""
        return sum(batch.rows for batch in self.batches)

    def iter_batches(self) -> Iterator[ReadBatch]:
        """The batches one by one, each fully checked."""
        with _open_file(self.path) as (handle, length):
            for place in self.batches:
                if place.offset + place.size > length:
                    raise BadArrow("was changed while it was read")
                yield _decode_batch(self.head, place, handle)


@contextmanager
def refuse_bad_arrow(path: str) -> Iterator[None]:
    """What is wrong with a stream becomes an InputDataError that names its file."""
    pa = load_arrow()
    try:
        yield
    except (BadArrow, pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's word on the file, not pyarrow's on what is in it
        text = " ".join(shorten(str(error)).split())
        raise InputDataError(f"{path}: not a readable Arrow file: {text}; {SAVE_AGAIN}") from error


@contextmanager
def _open_file(path: str) -> Iterator[tuple[int, int]]:
    """A regular file that is no link, and its size."""
    handle = os.open(path, _ARROW_FLAGS)
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            raise BadArrow("not a regular file")
        yield handle, state.st_size
    finally:
        os.close(handle)


def open_arrow(path: str) -> ArrowFile:
    """The schema of a stream, and where its batches are; BadArrow, or what pyarrow raises, where it cannot be read."""
    pa = load_arrow()
    with _open_file(path) as (handle, length):
        head, batches = _walk(handle, length)
    return ArrowFile(path, head, pa.ipc.open_stream(pa.py_buffer(head + END)).schema, tuple(batches))


def _walk(handle: int, length: int) -> tuple[bytes, list[BatchPlace]]:
    """The message of the schema, and the places of all batches."""
    at, head, batches = 0, b"", list[BatchPlace]()
    for _ in range(MOST_MESSAGES):
        prefix = os.pread(handle, PREFIX, at)
        if at == 0 and prefix[:4] != CONTINUATION:
            raise BadArrow("it is no Arrow stream")
        if len(prefix) < PREFIX or prefix[:4] != CONTINUATION:
            raise BadArrow(f"is cut off or damaged at byte {at:,}, rows may be missing")
        size = int.from_bytes(prefix[4:], "little", signed=True)
        if size == 0:
            if not head:
                raise BadArrow("has no schema")
            return head, batches
        if not 0 < size <= LARGEST_HEADER or at + PREFIX + size > length:
            raise BadArrow(f"is cut off or damaged at byte {at:,}: a header of {size:,} bytes")
        header = MessageHeader.read(os.pread(handle, size, at + PREFIX))
        whole = PREFIX + size + header.body
        if not 0 <= header.body <= min(LARGEST_BATCH, length) or at + whole > length:
            raise BadArrow(f"is cut off or damaged at byte {at:,}: a batch of {header.body:,} bytes")
        if header.kind == SCHEMA and not head:
            head = os.pread(handle, PREFIX + size, at)
        elif header.kind == BATCH and head:
            batches.append(BatchPlace(at, whole, _count_rows(header)))
        else:
            raise BadArrow(_why_not_read(header.kind))
        at += whole
    raise BadArrow(f"has more than {MOST_MESSAGES:,} parts")


def _why_not_read(kind: int) -> str:
    return "has dictionaries, which are not read" if kind == DICTIONARY else "its parts are not in the usual order"


def _count_rows(header: MessageHeader) -> int:
    if header.packed:
        raise BadArrow("is compressed; write it without compression")
    if header.rows < 0:
        raise BadArrow("a batch has a negative number of rows")
    return header.rows


def _decode_batch(head: bytes, place: BatchPlace, handle: int) -> ReadBatch:
    """One batch, read between the schema and an end mark of its own."""
    pa = load_arrow()
    require_memory(2 * place.size, "a batch of an Arrow file", "save it with fewer rows a batch (writer_batch_size)")
    data = bytearray(len(head) + place.size + len(END))
    data[: len(head)], data[-len(END) :] = head, END
    with memoryview(data)[len(head) : len(head) + place.size] as target:
        got = 0
        while got < place.size and (count := os.preadv(handle, [target[got:]], place.offset + got)):
            got += count
    if got < place.size:
        raise BadArrow("was changed while it was read")
    buffer = pa.py_buffer(data)
    options = pa.ipc.IpcReadOptions(use_threads=False)
    rows = pa.ipc.open_stream(buffer, options=options).read_next_batch()
    rows.validate(full=True)
    if rows.num_rows != place.rows:
        raise BadArrow(f"a batch has {rows.num_rows:,} rows and says {place.rows:,}")
    first = buffer.address + len(head)
    return ReadBatch(rows, first, first + place.size, place.offset)


class MessageHeader(NamedTuple):
    """What the header of a message says: its kind, the bytes that follow, and of a batch its rows."""

    kind: int
    body: int
    rows: int = 0
    packed: bool = False

    @classmethod
    def read(cls, data: bytes) -> MessageHeader:
        """The fields that matter of a flatbuffer; BadArrow where it leads out of itself."""
        root = FlatTable(data, _flat_number(data, "<I", 0))
        kind, body = root.number(1, "<B"), root.number(3, "<q")
        inner = root.table(2)
        if kind != BATCH or inner is None:
            return cls(kind, body)
        return cls(kind, body, inner.number(0, "<q"), inner.table(3) is not None)


class FlatTable(NamedTuple):
    """A table of a flatbuffer: its bytes, and where it lies in them."""

    data: bytes
    at: int

    def place(self, field: int) -> int:
        """Where a field lies; 0 where it is not there."""
        fields = self.at - _flat_number(self.data, "<i", self.at)
        if 4 + 2 * field >= _flat_number(self.data, "<H", fields):
            return 0
        offset = _flat_number(self.data, "<H", fields + 4 + 2 * field)
        return self.at + offset if offset else 0

    def number(self, field: int, form: str) -> int:
        """A field that is a number; 0 where it is not there."""
        place = self.place(field)
        return _flat_number(self.data, form, place) if place else 0

    def table(self, field: int) -> FlatTable | None:
        """A field that is a table of its own."""
        place = self.place(field)
        return FlatTable(self.data, place + _flat_number(self.data, "<I", place)) if place else None


def _flat_number(data: bytes, form: str, at: int) -> int:
    if not 0 <= at <= len(data) - struct.calcsize(form):
        raise BadArrow("a header leads out of itself")
    return int(struct.unpack_from(form, data, at)[0])
