"""Class shares of a side without labels: a maximum, found from what is known, and Bayes' rule with it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from embasis.functional.moments import estimate_priors, swap_priors, training_priors

seeds = st.integers(0, 2**32 - 1)


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) + 0.05


@given(seed=seeds, n=st.integers(1, 12), c=st.integers(2, 5), strength=st.sampled_from([0.5, 1.0, 3.0]))
def test_no_other_shares_explain_the_sites_better(seed: int, n: int, c: int, strength: float) -> None:
    likelihood, known, weight = drawn(seed, n, c), drawn(seed + 1, c), drawn(seed + 2, n)
    known = known / known.sum()
    found = estimate_priors(likelihood, known, strength, weight)
    assert float(found.sum()) == pytest.approx(1)
    best = reference.share_objective(found.tolist(), likelihood, known, strength, weight)
    for number in range(20):
        other = found * (0.1 * drawn(seed + 3 + number, c).double() - 0.05).exp()
        other = other / other.sum()
        assert reference.share_objective(other.tolist(), likelihood, known, strength, weight) <= best + 1e-6


def test_the_shares_of_a_side_are_found_from_shares_that_are_wrong() -> None:
    draw, true = torch.Generator().manual_seed(0), torch.tensor([0.7, 0.2, 0.1])
    label = torch.multinomial(true, 20_000, replacement=True, generator=draw)
    place = 2.0 * label + torch.randn(20_000, generator=draw)
    likelihood = (-0.5 * (place.unsqueeze(1) - 2.0 * torch.arange(3)) ** 2).exp()
    known = torch.tensor([0.1, 0.3, 0.6])
    assert estimate_priors(likelihood, known, 0.0).tolist() == pytest.approx(true.tolist(), abs=0.02)
    half = estimate_priors(likelihood, known, 1.0)
    assert torch.equal((half > known) == (true > known), torch.ones(3, dtype=torch.bool))
    assert estimate_priors(likelihood, known, 1e6).tolist() == pytest.approx(known.tolist(), abs=1e-4)


def test_a_site_with_a_weight_counts_as_often() -> None:
    likelihood, known = drawn(0, 4, 3), torch.full((3,), 1 / 3)
    often = likelihood.repeat_interleave(torch.tensor([1, 4, 2, 1]), 0)
    one = estimate_priors(likelihood, known, 0.1, torch.tensor([1.0, 4.0, 2.0, 1.0]))
    torch.testing.assert_close(one, estimate_priors(often, known, 0.1))


@given(seed=seeds, n=st.integers(1, 6), c=st.integers(1, 5), power=st.sampled_from([0.0, 0.3, 1.0]))
def test_exchanged_evidence_equals_its_slow_twin(seed: int, n: int, c: int, power: float) -> None:
    probability, trained, here = drawn(seed, n, c).softmax(1), drawn(seed + 1, c), drawn(seed + 2, c)
    found = swap_priors(probability.log(), trained, here, power)
    torch.testing.assert_close(
        found, torch.from_numpy(reference.swap_priors(probability, trained, here, power)).float(), atol=1e-5, rtol=1e-4
    )


def test_shares_that_are_the_same_change_nothing() -> None:
    probability, here = drawn(0, 5, 3).softmax(1), torch.tensor([0.2, 0.3, 0.5])
    torch.testing.assert_close(swap_priors(probability.log(), here, here, 1.0), probability)


@given(seed=seeds, c=st.integers(1, 6), weight=st.sampled_from([0.0, 0.25, 1.0, 3.0]), empty=st.booleans())
def test_taught_shares_equal_their_slow_twin(seed: int, c: int, weight: float, empty: bool) -> None:
    known = drawn(seed, c).double()
    known = known / known.sum()
    taught = torch.zeros(c, dtype=torch.int64) if empty else (100 * drawn(seed + 1, c)).long()
    found = training_priors(known, taught, weight)
    assert float(found.sum()) == pytest.approx(1)
    assert found.tolist() == pytest.approx(reference.training_priors(known, taught, weight))
    assert torch.equal(training_priors(known, None, weight), known)
    if weight == 0 or not int(taught.sum()):
        torch.testing.assert_close(found, known)
