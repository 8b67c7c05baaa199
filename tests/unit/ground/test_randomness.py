"""Randomness is a function of (seed, purpose, round, epoch, sample id) and of nothing else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from embasis.randomness import derive, generator, permutation, seeded, uniforms

seeds = st.integers(-(2**40), 2**40)
ids = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=30, unique=True)


@given(ids=ids, seed=seeds, round_number=st.integers(0, 50))
def test_uniforms_equal_splitmix64_in_plain_integers(ids, seed, round_number):
    offset = derive(seed, "hard labels", round_number)
    fast = uniforms(torch.tensor(ids), seed, "hard labels", round_number)
    assert fast.tolist() == [reference.uniform(one, offset) for one in ids]


@given(ids=ids, seed=seeds, data=st.data())
def test_a_draw_depends_on_its_own_id_alone(ids, seed, data):
    order = data.draw(st.permutations(range(len(ids))))
    column = torch.tensor(ids)
    whole = uniforms(column, seed, "ties", 2)
    assert torch.equal(uniforms(column[list(order)], seed, "ties", 2), whole[list(order)])
    half = len(ids) // 2
    assert torch.equal(
        torch.cat([uniforms(column[:half], seed, "ties", 2), uniforms(column[half:], seed, "ties", 2)]), whole
    )


@given(seed=seeds, round_number=st.integers(0, 50))
def test_another_seed_purpose_round_or_epoch_is_another_draw(seed, round_number):
    column = torch.arange(50)
    first = uniforms(column, seed, "ties", round_number)
    others = [
        uniforms(column, seed + 1, "ties", round_number),
        uniforms(column, seed, "hard labels", round_number),
        uniforms(column, seed, "ties", round_number + 1),
        uniforms(column, seed, "ties", round_number, 0),
    ]
    assert all((first != other).all() for other in others)


def test_uniforms_of_consecutive_ids_are_uniform_and_unrelated():
    values = uniforms(torch.arange(100_000), 0, "ties", 1)
    assert values.min() >= 0
    assert values.max() < 1
    # 4.5 standard deviations of a mean, and of a correlation, of 100 000 fair draws.
    assert float(values.mean()) == pytest.approx(0.5, abs=4.5 * 0.2887 / 316)
    assert abs(float(torch.corrcoef(torch.stack([values[1:], values[:-1]]))[0, 1])) < 4.5 / 316
    counts = torch.histc(values, 100, 0, 1)
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 170  # χ² with 99 degrees of freedom: P < 1e-5
    other = uniforms(torch.arange(100_000), 0, "ties", 2)
    assert abs(float(torch.corrcoef(torch.stack([values, other]))[0, 1])) < 4.5 / 316


def test_no_ids_give_no_draws():
    assert uniforms(torch.zeros(0, dtype=torch.int64), 0, "ties").shape == (0,)


def test_seeds_do_not_run_into_each_other():
    keys = [(seed, purpose, *rest) for seed in (1, 11) for purpose in ("a", "a1") for rest in ((), (1,), (1, 1), (11,))]
    derived = {derive(*key) for key in keys}
    assert len(derived) == len(keys)
    assert all(0 <= value < 2**63 for value in derived)


def test_a_derived_seed_never_changes_between_releases():
    # Changing these changes every result: it belongs under *Changed results*.
    assert derive(0, "hard labels", 1) == 9195258352918461508
    assert uniforms(torch.tensor([0, 1]), 0, "hard labels", 1).tolist() == [0.2372361810062995, 0.6741784245381558]


@given(seed=seeds, count=st.integers(0, 40))
def test_a_permutation_holds_each_number_once_and_repeats_for_its_key(seed, count):
    order = permutation(count, seed, "batches", 1, 2)
    assert sorted(order.tolist()) == list(range(count))
    assert torch.equal(order, permutation(count, seed, "batches", 1, 2))


def test_another_epoch_is_another_order():
    assert not torch.equal(permutation(50, 0, "batches", 1, 2), permutation(50, 0, "batches", 1, 3))


def test_a_generator_starts_afresh_each_time():
    first = torch.rand(5, generator=generator(3, "noise", 1))
    assert torch.equal(first, torch.rand(5, generator=generator(3, "noise", 1)))
    assert not torch.equal(first, torch.rand(5, generator=generator(3, "noise", 2)))


def test_seeded_gives_torchs_own_generator_back_as_it_was_also_after_an_error():
    before = torch.get_rng_state()
    with seeded(5, "initial weights"):
        inside = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    with seeded(5, "initial weights"):
        assert torch.equal(torch.rand(3), inside)
    with pytest.raises(KeyError), seeded(5, "initial weights"):
        raise KeyError(torch.rand(1))
    assert torch.equal(torch.get_rng_state(), before)


def test_seeded_is_torchs_manual_seed_without_its_cost() -> None:
    torch.manual_seed(derive(5, "initial weights", 2))
    expected = torch.rand(4)
    with seeded(5, "initial weights", 2):
        assert torch.equal(torch.rand(4), expected)
