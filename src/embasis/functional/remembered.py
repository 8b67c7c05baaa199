"""What was computed of the same tensors a moment ago is not computed again (decisions 0052 and 0053).

With a linear network features never change, so each round asks for the same class means, the same sharpness and the
same nearest rows. A call is the same if all of its arguments are, and nobody has to say which features stay:

| decorator | two tensors are the same if | for |
| --- | --- | --- |
| `remember_calls` | they have one type and shape and every value; known memory is not read | few large calls |
| `remember_memory` | they are the same memory, and nothing was written into it since | many calls on chunks of rows |

Nothing can be out of date: whoever writes into a tensor raises its version, and memory that is known here is not given
to another tensor.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from functools import wraps
from threading import Lock
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Parameter

CALLS = 32
"""Calls of each function that are remembered by value: a side of 16,384 rows is labelled in so many."""
RESULTS = 512
"""Calls of each function that are remembered by memory."""
BYTES = 1 << 25
"""Of all arguments, or of all results by memory, that are remembered of a function: the oldest calls make room, and a
larger call is not kept. Where so much was kept for nothing, a function remembers nothing more until the run ends."""

Result = TypeVar("Result")
Calls = deque[tuple[tuple[Any, ...], tuple[Any, ...], Any, int]]
"""Arguments, their marks, result and bytes of each call, the newest first."""


class KnownResults(OrderedDict[Hashable, tuple[Any, int]]):
    """By marks of the arguments: result and bytes of each call, the oldest first; and the bytes of all of them."""

    total = unused = 0
    """`unused`: bytes that were kept since a call was known last"""

    def find(self, marks: Hashable) -> tuple[Any, int] | None:
        """A call that is known."""
        known = self.get(marks)
        if known is not None:
            self.unused = 0
        return known

    def keep(self, marks: Hashable, result: Any) -> None:
        """Remember one more call; the oldest make room."""
        parts = result if isinstance(result, tuple) else (result,)
        size = sum(part.nbytes for part in parts if isinstance(part, Tensor))
        if size > BYTES or self.unused > BYTES:
            return
        with changing:
            self.total += size - self.pop(marks, (None, 0))[1]
            self[marks] = (result, size)
            self.unused += size
            if self.unused > BYTES:
                super().clear()
                self.total = 0
            while self.total > BYTES or len(self) > RESULTS:
                self.total -= self.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Let go of all calls."""
        with changing:
            super().clear()
            self.total = self.unused = 0


remembered_calls: list[Calls | KnownResults] = []
"""Those of every function that remembers."""
changing = Lock()
"""Two runs in two threads remember in one place."""


def remember_calls(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function, which looks through its last calls first. Its results are shared: nobody may write into them."""
    past: Calls = deque(maxlen=CALLS)
    remembered_calls.append(past)

    @wraps(function)
    def remembering(*arguments: Any, **named: Any) -> Result:
        if named or any(map(is_symbol, arguments)):
            return function(*arguments, **named)
        marks = tuple(map(mark_of, arguments))
        for known, known_marks, result, _ in tuple(past):
            if are_same(known, arguments, known_marks, marks):
                same: Result = result
                return same
        result = function(*arguments)
        size = sum(value.nbytes for value in arguments if isinstance(value, Tensor))
        if size <= BYTES:
            past.appendleft((copy_arguments(arguments), marks, result, size))
            while sum(each for *_, each in past) > BYTES:
                past.pop()
        return result

    return remembering


def remember_memory(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function, which knows its last calls by the memory of their tensors: nothing is read or copied to find out.

    Other arguments must be hashable. Its results are shared: nobody may write into them."""
    past = KnownResults()
    remembered_calls.append(past)

    @wraps(function)
    def remembering(*arguments: Any) -> Result:
        marks = (None,) if any(map(is_symbol, arguments)) else tuple(map(mark_of, arguments))
        if None in marks:
            return function(*arguments)
        if (known := past.find(marks)) is not None:
            same: Result = known[0]
            return same
        result = function(*arguments)
        past.keep(marks, result)
        return result

    return remembering


def forget_calls() -> None:
    """Let go of all calls: at the end of a run nobody asks for them again."""
    for past in remembered_calls:
        past.clear()


def is_symbol(value: Any) -> bool:
    """Whether a tensor stands for any other one, as while a model is exported: it has neither values nor a place."""
    return isinstance(value, Tensor) and type(value) not in (Tensor, Parameter)


def mark_of(value: Any) -> Any:
    """What tells an argument from others: of a tensor where it lies, how, and how often that was written into; of
    others the value. None: a tensor that cannot be told from another, or has a gradient to go through."""
    if not isinstance(value, Tensor):
        return type(value), value
    if value.requires_grad or value.is_inference():
        return None
    place = StorageWeakRef(value.untyped_storage())
    return place, value.storage_offset(), tuple(value.shape), value.stride(), value.dtype, value._version


def copy_arguments(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with memory of their own: nobody can change them, and no larger block stays alive for them."""
    return tuple(value.detach().clone() if isinstance(value, Tensor) else value for value in arguments)


def are_same(
    known: tuple[Any, ...], given: tuple[Any, ...], known_marks: tuple[Any, ...], marks: tuple[Any, ...]
) -> bool:
    """Whether two calls have equal arguments."""
    if len(known) != len(given):
        return False
    pairs = zip(known, given, known_marks, marks, strict=True)
    return all((mark is not None and mark == old) or is_same_argument(a, b) for a, b, old, mark in pairs)


def is_same_argument(known: Any, given: Any) -> bool:
    """Whether two arguments are equal; tensors to the bit, but for the sign of zero."""
    if not isinstance(known, Tensor) or not isinstance(given, Tensor):
        return type(known) is type(given) and bool(known == given)
    if known.dtype != given.dtype or known.shape != given.shape or known.device != given.device:
        return False
    first = (0,) * known.ndim
    if known.numel() and not bool(known[first] == given[first]):
        return False
    return torch.equal(known, given)
