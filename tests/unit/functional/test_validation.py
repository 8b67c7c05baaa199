"""Scores of a model on a side without labels: what they must prefer, and when they are the plain ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from embasis.functional import validation
from embasis.functional.calibration import fit_inverse_temperature, reliability_bins
from embasis.functional.validation import (
    accuracy_of,
    effective_weights,
    embedded_risk,
    importance,
    neighbourhood_density,
    side_loss,
)

seeds = st.integers(0, 2**32 - 1)


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def positive(seed: int, n: int) -> torch.Tensor:
    return torch.rand(n, generator=torch.Generator().manual_seed(seed)) + 0.1


@given(seed=seeds, n=st.integers(0, 12), c=st.integers(2, 5), sharp=st.sampled_from([0.1, 2.0, 20.0]))
def test_density_equals_its_slow_twin(seed: int, n: int, c: int, sharp: float) -> None:
    mean = (sharp * normal(seed, n, c)).softmax(1)
    assert neighbourhood_density(mean) == pytest.approx(reference.neighbourhood_density(mean), rel=1e-4, abs=1e-6)


def test_density_is_the_same_whatever_is_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    mean = normal(0, 50, 4).softmax(1)
    whole = neighbourhood_density(mean)
    monkeypatch.setattr(validation, "HELD_SIMILARITIES", 350)
    assert neighbourhood_density(mean) == pytest.approx(whole, rel=1e-6)


def test_density_prefers_tight_groups_to_the_same_labels_scattered() -> None:
    centres = 6.0 * torch.eye(3).repeat_interleave(40, 0)
    tight, loose = ((centres + spread * normal(1, 120, 3)).softmax(1) for spread in (0.1, 3.0))
    assert neighbourhood_density(tight) > neighbourhood_density(loose) + 0.1
    assert neighbourhood_density(tight) == pytest.approx(math.log(39), abs=0.05)


def test_density_alone_does_not_see_a_collapse() -> None:
    """Why it is not the guard's score: all sites in one group have the most neighbours there can be."""
    one = torch.tensor([[0.98, 0.01, 0.01]]).repeat(30, 1)
    assert neighbourhood_density(one) == pytest.approx(math.log(29), rel=1e-6)


@given(seed=seeds, n=st.integers(1, 10), d=st.integers(1, 4), penalty=st.sampled_from([0.0, 0.1]))
def test_the_loss_of_sides_and_the_weights_equal_their_slow_twins(seed: int, n: int, d: int, penalty: float) -> None:
    x, weight, bias = normal(seed, n, d), normal(seed + 1, d), normal(seed + 2, 1)[0]
    side = (normal(seed + 3, n) > 0).float()
    found = float(side_loss(x, side, weight, bias, penalty))
    assert found == pytest.approx(reference.side_loss(x, side, weight, bias, penalty), rel=1e-4)
    logit = x @ weight + bias
    assert np.allclose(importance(logit, 3, 7), reference.importance(logit, 3, 7), rtol=1e-4)


def test_importance_turns_one_distribution_into_another() -> None:
    """Gaussians at 0 and 1: the log ratio of their densities is x − 1/2; weighted means are those of the other one."""
    x = normal(0, 200_000)
    weight = importance(x - 0.5 + math.log(4), 1, 4)
    assert float(weight.mean()) == pytest.approx(1, abs=0.02)
    assert float((weight * x).mean()) == pytest.approx(1, abs=0.03)


@given(seed=seeds, n=st.integers(1, 10), shared=st.booleans())
def test_the_embedded_risk_equals_its_slow_twin(seed: int, n: int, shared: bool) -> None:
    loss, weight = (normal(seed, n) > 0).double(), positive(seed + 1, n).double()
    share = positive(seed + 2, n) if shared else None
    assert embedded_risk(loss, weight, share) == pytest.approx(reference.embedded_risk(loss, weight, share), abs=1e-6)


def test_with_equal_weights_the_embedded_risk_is_the_plain_one() -> None:
    loss = (normal(3, 50) > 0.5).double()
    assert embedded_risk(loss, torch.ones(50)) == pytest.approx(float(loss.mean()))


def test_the_control_variate_takes_away_variance_and_changes_no_mean() -> None:
    plain, pulled = [], []
    for seed in range(400):
        x = normal(seed, 200)
        weight, loss = (0.8 * x - 0.32).exp(), (x > -0.5).double()
        plain.append(float((weight.double() * loss).mean()))
        pulled.append(embedded_risk(loss, weight))
    truth = 0.5 * (1 + math.erf((0.5 + 0.8) / math.sqrt(2)))  # under the other side x is 0.8 larger
    assert np.mean(pulled) == pytest.approx(truth, abs=0.01)
    assert np.std(pulled) < 0.6 * np.std(plain)


@given(seed=seeds, n=st.integers(1, 12))
def test_effective_weights_bins_and_accuracy_equal_their_slow_twins(seed: int, n: int) -> None:
    weight, confidence = positive(seed, n), positive(seed + 1, n).clamp_max(1)
    right = normal(seed + 2, n) > 0
    assert np.allclose(effective_weights(weight), reference.effective_weights(weight))
    bins = reliability_bins(confidence, right, weight=weight)
    assert np.allclose(bins, reference.reliability_bins(confidence, right, weight=weight))
    label, truth = (torch.randint(3, (n,), generator=torch.Generator().manual_seed(seed + i)) for i in (3, 4))
    for share in (None, weight):
        assert accuracy_of(label, truth, share) == pytest.approx(reference.accuracy_of(label, truth, share))


def test_equal_weights_count_as_many_as_they_are_and_one_large_one_counts_as_one() -> None:
    assert float(effective_weights(torch.full((7,), 0.3)).sum()) == pytest.approx(7)
    assert float(effective_weights(torch.tensor([1e6, 1.0, 1.0])).sum()) == pytest.approx(1, abs=1e-4)


def test_bins_of_equal_weights_are_the_plain_ones() -> None:
    confidence, right = positive(0, 30).clamp_max(1), normal(1, 30) > 0
    assert torch.equal(reliability_bins(confidence, right, weight=torch.ones(30)), reliability_bins(confidence, right))


@pytest.mark.parametrize("seed", range(4))
def test_a_weight_of_two_is_a_site_that_is_there_twice(seed: int) -> None:
    mean, weight = (2 * normal(seed, 30, 4)).softmax(1), torch.ones(30)
    label = torch.randint(4, (30,), generator=torch.Generator().manual_seed(seed))
    label[:18], weight[:10] = mean[:18].argmax(1), 2.0
    twice = fit_inverse_temperature(torch.cat([mean, mean[:10]]), torch.cat([label, label[:10]]))
    assert fit_inverse_temperature(mean, label, weight) == pytest.approx(twice, rel=1e-6)
    assert fit_inverse_temperature(mean, label, torch.ones(30)) == pytest.approx(
        fit_inverse_temperature(mean, label), rel=1e-9
    )


def test_thirty_sites_of_little_weight_say_less_than_thirty_whole_answers() -> None:
    mean, label = torch.tensor([[0.7, 0.3]]).expand(30, 2), torch.zeros(30, dtype=torch.int64)
    assert fit_inverse_temperature(mean, label, torch.full((30,), 0.1)) < fit_inverse_temperature(mean, label)
