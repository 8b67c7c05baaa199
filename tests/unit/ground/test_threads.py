"""Threads over chunks: the order and the bits stay, the number of torch's threads too, errors come through."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from embasis.errors import InputDataError
from embasis.functional.em import em_statistics, sum_em_statistics
from embasis.functional.sites import unit_rows
from embasis.threads import LARGE_WORK, map_in_threads


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_chunks_come_in_order_and_are_computed_with_one_thread_each(threads: None, count: int) -> None:
    torch.set_num_threads(count)
    seen = list(map_in_threads(lambda chunk: (chunk, torch.get_num_threads()), range(50), LARGE_WORK))
    assert seen == [(number, 1) for number in range(50)]
    assert torch.get_num_threads() == count


def test_little_work_stays_in_the_thread_that_asks(threads: None) -> None:
    torch.set_num_threads(2)
    assert list(map_in_threads(lambda _: torch.get_num_threads(), range(3), LARGE_WORK - 1)) == [2, 2, 2]


def test_the_error_of_a_chunk_is_raised_and_the_number_of_threads_stays(threads: None) -> None:
    def refuse(chunk: int) -> int:
        raise InputDataError(f"chunk {chunk}")

    torch.set_num_threads(2)
    with pytest.raises(InputDataError, match=r"^chunk 0$"):
        list(map_in_threads(refuse, range(9), LARGE_WORK))
    assert torch.get_num_threads() == 2


def test_sums_of_em_have_the_same_bits_with_any_number_of_threads(threads: None) -> None:
    draw = torch.Generator().manual_seed(0)
    mu, x = unit_rows(torch.randn(32, 64, generator=draw)), unit_rows(torch.randn(20_000, 64, generator=draw))
    chunks, weights = x.split(512), torch.rand(20_000, generator=draw).split(512)
    torch.set_num_threads(1)
    parts = [em_statistics(chunk, mu, 9.0, weight) for chunk, weight in zip(chunks, weights, strict=True)]
    expected = parts[0]
    for part in parts[1:]:
        expected = expected + part
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        stats = sum_em_statistics(chunks, mu, 9.0, weights)
        assert torch.equal(stats.total, expected.total)
        assert torch.equal(stats.mass, expected.mass)
        assert torch.equal(stats.objective, expected.objective)
