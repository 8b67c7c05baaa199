"""Linear classifiers with gradients written out: values of their slow twins, gradients of their own values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from embasis.functional.linear_model import BasisHeadLoss, LinearClassifierLoss, softmax_of
from embasis.functional.minimise import PlainObjective, Vector, minimise_smooth

seeds = st.integers(0, 2**31)


def rows_task(seed: int, n: int, d: int, c: int) -> tuple[LinearClassifierLoss, Callable[[Vector], float], Vector]:
    """A loss on two blocks of rows, its slow twin, and a place."""
    draw = np.random.default_rng(seed)
    x, weight = draw.normal(size=(n, d)).astype(np.float32), draw.random(n).astype(np.float32)
    target = draw.dirichlet(np.ones(c), n).astype(np.float32)
    blocks = [torch.from_numpy(part) for part in (x[: n // 2], x[n // 2 :])]
    loss = LinearClassifierLoss(blocks, np.ascontiguousarray(target.T), weight, 0.3)
    place = draw.normal(size=c * (d + 1))

    def twin(at: Vector) -> float:
        matrix, bias = at[: c * d].reshape(c, d), at[c * d :]
        return float(reference.linear_classifier_loss(x, target, weight, 0.3, matrix, bias))

    return loss, twin, place


def numeric_gradient(function: Callable[[Vector], float], place: Vector) -> Vector:
    steps = 1e-4 * np.eye(len(place))
    return np.array([(function(place + step) - function(place - step)) / 2e-4 for step in steps])


@given(seed=seeds, n=st.integers(2, 7), d=st.integers(1, 4), c=st.integers(2, 4))
def test_the_loss_of_rows_equals_its_slow_twin_and_so_does_its_gradient(seed: int, n: int, d: int, c: int) -> None:
    loss, twin, place = rows_task(seed, n, d, c)
    value, gradient = loss.begin(place)
    assert value == pytest.approx(twin(place), rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(gradient, numeric_gradient(twin, place), atol=2e-4)


@given(seed=seeds, length=st.floats(0.0, 3.0))
def test_the_slope_along_a_line_is_the_gradient_at_its_place(seed: int, length: float) -> None:
    loss, twin, place = rows_task(seed, 6, 3, 3)
    direction = np.random.default_rng(seed + 1).normal(size=len(place))
    loss.begin(place)
    slope = loss.aim(direction)(length)[1]
    value, gradient = loss.move(length)
    assert slope == pytest.approx(float(gradient @ direction), rel=1e-3, abs=1e-4)
    assert value == pytest.approx(twin(place + length * direction), rel=1e-3, abs=1e-4)


def test_the_minimum_of_rows_is_that_of_torch() -> None:
    loss, _, place = rows_task(3, 60, 5, 3)
    found, _ = minimise_smooth(loss, np.zeros_like(place), 100, 1e-6)
    x, target = torch.cat(list(loss.blocks)), torch.from_numpy(loss.target.T.copy())
    weight = torch.from_numpy(loss.weight)
    flat = torch.zeros(len(place), requires_grad=True)
    optimiser = torch.optim.LBFGS([flat], max_iter=200, tolerance_grad=1e-7, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        logs = (x @ flat[:15].view(3, 5).T + flat[15:]).log_softmax(1)
        value = -(weight * (target * logs).sum(1)).sum() + 0.15 * flat[:15].square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(found[:15], flat.detach().numpy()[:15], atol=1e-4)


@given(seed=seeds, n=st.integers(1, 8), k=st.integers(1, 4), c=st.integers(2, 4))
def test_the_loss_of_a_basis_equals_its_slow_twin_and_so_does_its_gradient(seed: int, n: int, k: int, c: int) -> None:
    draw = np.random.default_rng(seed)
    z, mu = draw.dirichlet(np.ones(k), n).astype(np.float32), draw.normal(size=(k, 3)).astype(np.float32)
    y, weight = draw.integers(0, c, n), draw.random(n).astype(np.float32)
    loss, place = BasisHeadLoss(z, y, weight, mu, 0.2), draw.normal(size=c * 4)

    def twin(at: Vector) -> float:
        return float(reference.basis_head_loss(z, y, weight, mu, 0.2, at[: c * 3].reshape(c, 3), at[c * 3 :]))

    value, gradient = loss(place)
    assert value == pytest.approx(twin(place), rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(gradient, numeric_gradient(twin, place), atol=2e-4)
    found, (first, _) = minimise_smooth(PlainObjective(loss), np.zeros(c * 4), 100, 1e-7)
    assert twin(found) <= first + 1e-6


@given(seed=seeds, n=st.integers(1, 5), c=st.integers(1, 4), scale=st.sampled_from([1.0, 1e4]))
def test_softmax_class_by_class_equals_its_slow_twin(seed: int, n: int, c: int, scale: float) -> None:
    scores = (scale * np.random.default_rng(seed).normal(size=(c, n))).astype(np.float32)
    chance, logs = softmax_of(scores)
    np.testing.assert_allclose(chance.T, reference.softmax_rows(scores.T.astype(float)), atol=1e-6)
    np.testing.assert_allclose(logs, np.logaddexp.reduce(scores.astype(float), 0), rtol=1e-5, atol=1e-5)
