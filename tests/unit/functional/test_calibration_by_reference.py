"""Recalibration by reference labels: the inverse temperature that makes probabilities hold, what it leaves alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from embasis.functional.calibration import (
    HIGHEST,
    LOWEST,
    apply_inverse_temperature,
    confirmed_changes,
    confirmed_shares,
    fit_inverse_temperature,
    least_confidence,
    nearest_labels,
)

seeds = st.integers(0, 2**32 - 1)


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(seed=seeds, n=st.integers(0, 8), m=st.integers(1, 8), d=st.integers(1, 4))
def test_the_nearest_label_equals_its_slow_twin(seed: int, n: int, m: int, d: int) -> None:
    x, bank = normal(seed, n, d), normal(seed + 1, m, d)
    label = torch.arange(m) % 3
    assert nearest_labels(x, bank, label).tolist() == reference.nearest_labels(x, bank, label)


@given(seed=seeds, n=st.integers(0, 30), classes=st.integers(1, 5))
def test_the_confirmed_shares_equal_their_slow_twin(seed: int, n: int, classes: int) -> None:
    label, other = torch.randint(classes, (2, n), generator=torch.Generator().manual_seed(seed))
    found = confirmed_shares(label, other, classes)
    assert found.tolist() == pytest.approx(reference.confirmed_shares(label, other, classes))


@given(seed=seeds, n=st.integers(0, 30), classes=st.integers(1, 4))
def test_confirmed_changes_equal_their_slow_twin(seed: int, n: int, classes: int) -> None:
    before, after, other = torch.randint(classes, (3, n), generator=torch.Generator().manual_seed(seed))
    assert confirmed_changes(before, after, other) == reference.confirmed_changes(before, after, other)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 4.0])
def test_the_power_is_the_one_of_its_slow_twin(seed: int, sharpness: float) -> None:
    mean = (sharpness * normal(seed, 40, 4)).softmax(1)
    known = torch.randint(4, (40,), generator=torch.Generator().manual_seed(seed))
    known[:25] = mean[:25].argmax(1)
    assert fit_inverse_temperature(mean, known) == pytest.approx(
        reference.fit_inverse_temperature(mean, known), rel=5e-3
    )


def test_labels_that_are_too_sure_become_as_sure_as_they_are_right() -> None:
    scores = normal(0, 20_000, 5)
    true = torch.multinomial(scores.softmax(1), 1, generator=torch.Generator().manual_seed(1)).squeeze(1)
    mean = (3.0 * scores).softmax(1)
    power = fit_inverse_temperature(mean, true)
    assert power == pytest.approx(1 / 3, abs=0.01)
    new = apply_inverse_temperature(mean, torch.zeros_like(mean), mean - mean.square(), power)[0]
    confidence, label = new.max(1)
    assert float(confidence.mean()) == pytest.approx(float((label == true).double().mean()), abs=0.01)


def test_reference_labels_that_always_agree_or_never_keep_it_within_bounds() -> None:
    assert fit_inverse_temperature(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([1, 0])) == LOWEST
    flat = torch.tensor([[0.501, 0.499]]).expand(10_000, 2)
    assert fit_inverse_temperature(flat, torch.zeros(10_000, dtype=torch.int64)) == HIGHEST


@pytest.mark.parametrize("rows", [20, 200, 2000])
def test_a_few_rows_on_which_all_agree_do_not_say_that_nothing_is_ever_wrong(rows: int) -> None:
    mean = torch.tensor([[0.9, 0.1]]).expand(rows, 2)
    power = fit_inverse_temperature(mean, torch.zeros(rows, dtype=torch.int64))
    new = float(mean[0, 0] ** power / (mean[0] ** power).sum())
    assert new == pytest.approx((rows + 0.5) / (rows + 1), abs=1e-4)


@given(seed=seeds, n=st.integers(1, 6), c=st.integers(1, 5), power=st.sampled_from([0.05, 0.5, 1.0, 3.0]))
def test_powered_equals_its_slow_twin_and_keeps_the_identity_and_the_label(
    seed: int, n: int, c: int, power: float
) -> None:
    mean = normal(seed, n, c).softmax(1)
    between = 0.4 * (mean - mean.square())
    within = mean - mean.square() - between
    found = apply_inverse_temperature(mean, between, within, power)
    for one, other in zip(found, reference.apply_inverse_temperature(mean, between, within, power), strict=True):
        torch.testing.assert_close(one.double(), torch.from_numpy(other), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found[1] + found[2], found[0] - found[0].square(), atol=1e-6, rtol=0)
    assert torch.equal(found[0].argmax(1), mean.argmax(1))


def test_a_power_of_one_changes_nothing() -> None:
    mean = normal(0, 5, 3).softmax(1)
    between = 0.3 * (mean - mean.square())
    within = mean - mean.square() - between
    for one, other in zip(apply_inverse_temperature(mean, between, within, 1.0), (mean, between, within), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


values = st.lists(st.tuples(st.sampled_from([0.2, 0.5, 0.9, 0.95, 0.99, 1.0]), st.integers(0, 3)), max_size=8)


@given(pairs=values, precision=st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_least_confidence_equals_its_slow_twin(pairs: list[tuple[float, int]], precision: float) -> None:
    confidence = torch.tensor([value for value, _ in pairs], dtype=torch.float64)
    count = torch.tensor([n for _, n in pairs], dtype=torch.int64)
    found, expected = (f(confidence, count, precision) for f in (least_confidence, reference.least_confidence))
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found[:2] == expected[:2]
        assert found[2] == pytest.approx(expected[2], abs=1e-9)
