"""Calls that are remembered: the same arguments, whatever memory they lie in, and no others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from embasis.functional import remembered
from embasis.functional.neighbours import find_nearest_kept
from embasis.functional.remembered import forget_calls, remember_calls, remember_memory


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    forget_calls()
    yield
    forget_calls()


def counted() -> tuple[list[int], object]:
    calls: list[int] = []

    @remember_calls
    def add(x: torch.Tensor, number: int) -> torch.Tensor:
        calls.append(number)
        return x + number

    return calls, add


def test_equal_arguments_are_computed_once_and_others_are_not_confused() -> None:
    calls, add = counted()
    x = torch.arange(6.0).view(2, 3)
    assert callable(add)
    first = add(x, 1)
    assert add(x.clone(), 1) is first
    assert torch.equal(add(x, 2), x + 2)
    assert torch.equal(add(x.double(), 1), x.double() + 1)
    assert torch.equal(add(x.view(3, 2), 1), x.view(3, 2) + 1)
    changed = x.clone()
    changed[1, 2] += 1
    assert torch.equal(add(changed, 1), changed + 1)
    assert calls == [1, 2, 1, 1, 1]


def test_an_argument_that_is_written_into_afterwards_is_another_one() -> None:
    calls, add = counted()
    x = torch.ones(4)
    assert callable(add)
    add(x, 1)
    x[3] = 5.0
    assert torch.equal(add(x, 1), torch.tensor([2.0, 2, 2, 6]))
    assert calls == [1, 1]


def test_what_is_not_a_number_is_never_the_same() -> None:
    calls, add = counted()
    assert callable(add)
    for _ in range(2):
        add(torch.tensor([float("nan")]), 1)
    assert calls == [1, 1]


def test_large_calls_are_not_kept_and_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "BYTES", 100)
    calls, add = counted()
    assert callable(add)
    for size in (26, 26):  # 104 bytes each
        add(torch.ones(size), size)
    for number in (1, 2, 3, 3, 1):  # 40 bytes each: two of them stay
        add(torch.full((10,), float(number)), number)
    assert calls == [26, 26, 1, 2, 3, 1]


def test_forgotten_calls_are_computed_again() -> None:
    calls, add = counted()
    assert callable(add)
    add(torch.ones(2), 1)
    forget_calls()
    add(torch.ones(2), 1)
    assert calls == [1, 1]


def test_the_nearest_sites_of_the_same_rows_are_not_sought_twice() -> None:
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    assert find_nearest_kept(x, x, 3) is find_nearest_kept(x.clone(), x.clone(), 3)


def counted_by_memory() -> tuple[list[int], object]:
    calls: list[int] = []

    @remember_memory
    def add(x: torch.Tensor, number: int) -> torch.Tensor:
        calls.append(number)
        return x + number

    return calls, add


def test_the_same_memory_is_computed_once_and_a_copy_or_another_view_is_not_confused_with_it() -> None:
    calls, add = counted_by_memory()
    x = torch.arange(6.0)
    assert callable(add)
    first = add(x, 1)
    assert add(x, 1) is first
    assert add(x[:], 1) is first
    assert torch.equal(add(x[:3], 1), x[:3] + 1)
    assert torch.equal(add(x.view(2, 3), 1), x.view(2, 3) + 1)
    assert torch.equal(add(x, 2), x + 2)
    assert torch.equal(add(x.clone(), 1), first)
    assert calls == [1, 1, 1, 2, 1]


def test_memory_that_was_written_into_is_computed_again() -> None:
    calls, add = counted_by_memory()
    x = torch.ones(4)
    assert callable(add)
    add(x[:2], 1)
    x[1] = 5.0
    assert add(x[:2], 1).tolist() == [2, 6]
    assert calls == [1, 1]


def test_memory_that_was_given_back_is_not_taken_for_what_comes_to_lie_there() -> None:
    calls, add = counted_by_memory()
    assert callable(add)
    for number in range(50):
        assert float(add(torch.full((1000,), float(number)), 1)[0]) == number + 1
    assert len(calls) == 50


def test_rows_with_a_gradient_are_never_remembered() -> None:
    calls, add = counted_by_memory()
    x = torch.ones(2, requires_grad=True)
    assert callable(add)
    for _ in range(2):
        add(x, 1).sum().backward()
    assert calls == [1, 1]


def test_the_oldest_results_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "BYTES", 100)
    calls, add = counted_by_memory()
    rows = [torch.full((10,), float(number)) for number in range(3)]  # 40 bytes each: two of them stay
    assert callable(add)
    for number in (0, 1, 1, 2, 2, 0):
        add(rows[number], number)
    add(torch.ones(26), 3)
    assert calls == [0, 1, 2, 0, 3]


def test_a_function_whose_calls_never_come_again_stops_keeping_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "BYTES", 100)
    calls, add = counted_by_memory()
    rows = [torch.full((10,), float(number)) for number in range(4)]  # 40 bytes each: three are too many
    assert callable(add)
    for _ in range(2):
        for number, row in enumerate(rows):
            add(row, number)
    add(rows[3], 3)
    assert calls == [0, 1, 2, 3, 0, 1, 2, 3, 3]
    forget_calls()
    add(rows[3], 3)
    add(rows[3], 3)
    assert calls[9:] == [3]
