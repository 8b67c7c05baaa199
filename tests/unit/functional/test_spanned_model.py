"""The linear classifier in the span of its rows: the value, gradient and minimum that it has in all features."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embasis.functional import spanned_model
from embasis.functional.linear_model import LinearClassifierLoss
from embasis.functional.minimise import minimise_smooth
from embasis.functional.spanned_model import SpannedClassifierLoss, multiply_blocks, spans_less

Losses = tuple[SpannedClassifierLoss, LinearClassifierLoss, torch.Tensor, torch.Tensor]


def both_losses(seed: int, n: int = 30, d: int = 50, c: int = 4) -> Losses:
    """The same loss in both coordinates, and weights that are not in the span of the rows."""
    draw = np.random.default_rng(seed)
    x, weight = draw.normal(size=(n, d)).astype(np.float32), draw.random(n).astype(np.float32)
    target = np.ascontiguousarray(draw.dirichlet(np.ones(c), n).astype(np.float32).T)
    blocks = [torch.from_numpy(part) for part in (x[: n // 3], x[n // 3 :])]
    start, bias = (torch.from_numpy(draw.normal(size=size).astype(np.float32)) for size in ((c, d), (c,)))
    losses = (
        kind(blocks, target, weight / weight.sum(), 0.02) for kind in (SpannedClassifierLoss, LinearClassifierLoss)
    )
    return *losses, start, bias


@pytest.mark.parametrize("seed", range(3))
def test_value_gradient_and_scalar_products_are_those_in_all_features(seed: int) -> None:
    spanned, plain, weight, bias = both_losses(seed)
    place, x = spanned.place(weight, bias), plain.place(weight, bias)
    (value, gradient), (expected, slope) = spanned.begin(place), plain.begin(x)
    assert value == pytest.approx(expected, rel=1e-5)
    matrix, offset = spanned.weights(gradient)
    np.testing.assert_allclose(torch.cat([matrix.flatten(), offset]).numpy(), slope, atol=1e-5)
    assert spanned.multiply(gradient, place) == pytest.approx(float(slope @ x), rel=1e-4, abs=1e-5)
    assert spanned.multiply(place, gradient) == pytest.approx(float(slope @ x), rel=1e-4, abs=1e-5)
    assert spanned.multiply(gradient, gradient) == pytest.approx(float(slope @ slope), rel=1e-4)
    assert spanned.first_length(gradient) == pytest.approx(plain.first_length(slope), rel=1e-5)


@pytest.mark.parametrize("length", [0.0, 0.3, 2.0])
def test_along_a_line_slopes_and_gradients_are_those_in_all_features(length: float) -> None:
    spanned, plain, weight, bias = both_losses(5)
    _, gradient = spanned.begin(spanned.place(weight, bias))
    _, slope = plain.begin(plain.place(weight, bias))
    assert spanned.aim(-gradient)(length)[1] == pytest.approx(plain.aim(-slope)(length)[1], rel=1e-4)
    (value, there), (expected, far) = spanned.move(length), plain.move(length)
    assert value == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(spanned.weights(there)[0].flatten().numpy(), far[: weight.numel()], atol=1e-5)


@pytest.mark.parametrize("factor", [0.5, 0.99, 1.01, 3.0])
def test_a_gradient_is_flat_where_no_entry_in_the_features_is_above_the_tolerance(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spanned_model, "SEEN_COLUMNS", 5)
    spanned, plain, weight, bias = both_losses(2)
    _, gradient = spanned.begin(spanned.place(weight, bias))
    _, slope = plain.begin(plain.place(weight, bias))
    tolerance = factor * float(np.abs(slope).max())
    assert spanned.is_flat(gradient, tolerance) is plain.is_flat(slope, tolerance) is (factor > 1)
    assert spanned.is_flat(gradient * np.nan, 1e9)


def test_the_minimum_is_that_in_all_features() -> None:
    spanned, plain, weight, bias = both_losses(9)
    found, _ = minimise_smooth(spanned, spanned.place(weight, bias), 300, 1e-6)
    expected, _ = minimise_smooth(plain, plain.place(weight, bias), 300, 1e-6)
    for one, other in zip(spanned.weights(found), plain.weights(expected), strict=True):
        torch.testing.assert_close(one - one.mean(0), other - other.mean(0), atol=2e-3, rtol=1e-2)


def test_rows_span_less_only_where_they_are_few_beside_many_features_and_classes() -> None:
    labelled, others = torch.zeros(500, 1920), torch.zeros(170, 1920)
    assert spans_less([labelled, others], 10)
    assert not spans_less([labelled, others], 2)
    assert not spans_less([labelled[:, :400], others[:, :400]], 10)
    assert not spans_less([labelled[:20, :255]], 10)


def test_products_of_two_blocks_are_those_of_the_rows_joined() -> None:
    blocks = [torch.randn(n, 6, generator=torch.Generator().manual_seed(n)) for n in (4, 7)]
    whole = torch.cat(blocks)
    torch.testing.assert_close(multiply_blocks(blocks), whole @ whole.T)
    torch.testing.assert_close(multiply_blocks(blocks[:1]), blocks[0] @ blocks[0].T)
