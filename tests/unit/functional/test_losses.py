"""Losses of retraining and the regularisers of the methods we compare with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from embasis.functional.losses import (
    average,
    class_balance,
    entropy_regulariser,
    entropy_smoothed,
    inverse_variance,
    kld_regulariser,
    l2_regulariser,
    l2_smoothed,
    mean_variance,
    one_hot,
    prediction_entropy,
    simplex_projection,
    weighted_cross_entropy,
)

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 6)
scales = st.sampled_from([0.0, 1.0, 10.0, 1e3])


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def close(fast, slow, atol=1e-5, rtol=1e-5):
    np.testing.assert_allclose(reference.wide(fast), reference.wide(slow), atol=atol, rtol=rtol)


# cross-entropy


@given(label=st.lists(st.integers(-1, 3), max_size=8), smoothing=st.floats(0, 0.9))
def test_one_hot_rows_equal_their_slow_twin_and_sum_to_one(label, smoothing):
    rows = one_hot(torch.tensor(label, dtype=torch.int64), 4, smoothing)
    close(rows, reference.one_hot(label, 4, smoothing))
    torch.testing.assert_close(rows.sum(1), torch.ones(len(label)), atol=1e-6, rtol=0)


@given(seed=seeds, n=sizes, c=sizes, scale=scales)
def test_weighted_cross_entropy_equals_its_slow_twin(seed, n, c, scale):
    logits, target, weight = scale * draw(seed, n, c), draw(seed + 1, n, c).softmax(1), draw(seed + 2, n).abs()
    close(weighted_cross_entropy(logits, target, weight), reference.weighted_cross_entropy(logits, target, weight))


@given(seed=seeds, n=sizes, c=sizes, factor=st.sampled_from([1e-6, 0.5, 3.0, 1e6]))
def test_only_the_ratios_of_weights_matter(seed, n, c, factor):
    logits, target, weight = draw(seed, n, c), draw(seed + 1, n, c).softmax(1), draw(seed + 2, n).abs() + 0.01
    torch.testing.assert_close(
        weighted_cross_entropy(logits, target, factor * weight),
        weighted_cross_entropy(logits, target, weight),
        rtol=1e-4,
        atol=1e-6,
    )


def test_without_weight_the_loss_and_its_gradient_are_zero():
    logits = draw(0, 4, 3).requires_grad_()
    loss = weighted_cross_entropy(logits, one_hot(torch.full((4,), -1), 3), torch.zeros(4))
    assert loss.item() == 0
    loss.backward()
    assert logits.grad.abs().max() == 0


def test_a_site_of_weight_zero_is_left_out_whatever_its_label():
    logits, weight = draw(0, 3, 3), torch.tensor([1.0, 0.0, 2.0])
    first = weighted_cross_entropy(logits, one_hot(torch.tensor([0, -1, 2]), 3), weight)
    other = weighted_cross_entropy(logits, one_hot(torch.tensor([0, 1, 2]), 3), weight)
    assert torch.equal(first, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@given(seed=seeds, scale=st.sampled_from([1.0, 100.0, 1e4]))
def test_half_precision_logits_have_finite_losses_and_gradients(dtype, seed, scale):
    logits = (scale * draw(seed, 5, 4)).to(dtype).requires_grad_()
    loss = weighted_cross_entropy(logits, one_hot(torch.arange(5) % 4, 4), torch.ones(5))
    for term in (kld_regulariser, entropy_regulariser, l2_regulariser):
        loss = loss + term(logits).mean()
    assert torch.isfinite(loss)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(gradient).all()


# weights


@given(variance=st.lists(st.floats(0, 1), min_size=1, max_size=12), floor=st.floats(0.001, 1), ratio=st.floats(1, 100))
def test_inverse_variance_equals_its_slow_twin(variance, floor, ratio):
    variance = torch.tensor(variance)
    close(inverse_variance(variance, floor, ratio), reference.inverse_variance(variance, floor, ratio), rtol=1e-4)


@given(
    variance=st.lists(st.sampled_from([0.0, 0.25, 1e-45]) | st.floats(0, 1e30), min_size=1, max_size=12),
    floor=st.sampled_from([0.0, 1e-6, 0.05]),
    ratio=st.floats(1, 1e4),
)
def test_weights_are_bounded_however_small_the_variance(variance, floor, ratio):
    # Hazard P1: 1/Var is infinite at Var = 0.
    weight = inverse_variance(torch.tensor(variance), floor, ratio)
    assert torch.isfinite(weight).all()
    assert (weight >= 1 / ratio * (1 - 1e-6)).all()
    assert (weight <= ratio * (1 + 1e-6)).all()


@given(value=st.floats(0, 1), count=st.integers(1, 20))
def test_equal_variances_have_weight_one(value, count):
    torch.testing.assert_close(inverse_variance(torch.full((count,), value)), torch.ones(count), atol=1e-5, rtol=0)


def test_a_surer_site_never_weighs_less():
    weight = inverse_variance(torch.linspace(0, 0.9, 20))
    assert (weight[:-1] >= weight[1:]).all()
    assert weight[0] > weight[-1]


# regularisers


@given(seed=seeds, n=sizes, c=sizes, scale=scales)
def test_regularisers_equal_their_slow_twins(seed, n, c, scale):
    logits = scale * draw(seed, n, c)
    for fast, slow in (
        (kld_regulariser, reference.kld_regulariser),
        (entropy_regulariser, reference.entropy_regulariser),
        (l2_regulariser, reference.l2_regulariser),
        (prediction_entropy, reference.prediction_entropy),
    ):
        close(fast(logits), slow(logits), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("term", [kld_regulariser, entropy_regulariser, l2_regulariser])
@given(seed=seeds, c=st.integers(2, 6))
def test_every_regulariser_is_least_for_the_uniform_distribution(term, seed, c):
    assert (term(torch.zeros(1, c)) <= term(draw(seed, 8, c)) + 1e-6).all()
    logits = torch.zeros(1, c, requires_grad=True)
    (gradient,) = torch.autograd.grad(term(logits).sum(), logits)
    assert gradient.abs().max() < 1e-6


# smoothed labels: the solution of a small optimisation over the simplex


@given(seed=seeds, n=sizes, c=sizes, alpha=st.floats(0.05, 5))
def test_smoothed_labels_equal_their_slow_twins(seed, n, c, alpha):
    p, ceiling = draw(seed, n, c).softmax(1), draw(seed + 1, c).exp()
    close(entropy_smoothed(p, ceiling, alpha), reference.entropy_smoothed(p, ceiling, alpha), atol=1e-4)
    close(l2_smoothed(p, ceiling, alpha), reference.l2_smoothed(p, ceiling, alpha), atol=1e-4)


@pytest.mark.parametrize(
    ("smoothed", "cost"),
    [(entropy_smoothed, reference.entropy_smoothed_cost), (l2_smoothed, reference.l2_smoothed_cost)],
)
@given(seed=seeds, c=st.integers(2, 5), alpha=st.floats(0.1, 5))
def test_no_other_point_of_the_simplex_costs_less_than_the_smoothed_label(smoothed, cost, seed, c, alpha):
    p, ceiling = draw(seed, 1, c).softmax(1), draw(seed + 1, c).exp()
    best = reference.wide(smoothed(p, ceiling, alpha))[0]
    p, ceiling = reference.wide(p)[0], reference.wide(ceiling)
    lowest = cost(best, p, ceiling, alpha)
    random = np.random.default_rng(seed)
    corners = [*np.eye(c), np.full(c, 1 / c), *random.dirichlet(np.ones(c), 30)]
    for other in corners:
        for step in (1.0, 0.1, 0.001):
            assert lowest <= cost((1 - step) * best + step * other, p, ceiling, alpha) + 1e-6


@given(seed=seeds, c=st.integers(1, 5), alpha=st.sampled_from([1e-6, 0.1, 1e6]))
def test_smoothed_labels_are_distributions_also_of_certain_predictions(seed, c, alpha):
    p = (1e4 * draw(seed, 4, c)).softmax(1)
    for smoothed in (entropy_smoothed, l2_smoothed):
        rows = smoothed(p, torch.full((c,), 0.5), alpha)
        assert (rows >= 0).all()
        torch.testing.assert_close(rows.sum(1), torch.ones(4), atol=1e-5, rtol=0)


# projection


@given(seed=seeds, n=sizes, c=sizes, scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_simplex_projection_equals_the_best_of_all_supports(seed, n, c, scale):
    v = scale * draw(seed, n, c)
    close(simplex_projection(v), reference.simplex_projection(v), atol=1e-5)


@given(seed=seeds, c=sizes, shift=st.sampled_from([0.0, -1e9, 1e4, 1e9, 1e30]), spread=st.sampled_from([0.0, 1.0, 1e9]))
def test_a_projected_row_is_a_distribution_at_any_size(seed, c, shift, spread):
    rows = simplex_projection(spread * draw(seed, 4, c) + shift)
    assert (rows >= 0).all()
    torch.testing.assert_close(rows.sum(1), torch.ones(4), atol=1e-5, rtol=0)


@given(seed=seeds, c=sizes)
def test_a_distribution_is_its_own_projection(seed, c):
    rows = draw(seed, 3, c).softmax(1)
    torch.testing.assert_close(simplex_projection(rows), rows, atol=1e-6, rtol=0)


# the head's terms


@given(seed=seeds, n=sizes, c=sizes)
def test_the_heads_terms_equal_their_slow_twins(seed, n, c):
    mean, prior = draw(seed, n, c).softmax(1), draw(seed + 1, c).softmax(0)
    between, within = 0.3 * mean * (1 - mean), 0.7 * mean * (1 - mean)
    close(mean_variance(between, within), reference.mean_variance(between, within))
    close(class_balance(mean, prior), reference.class_balance(mean, prior))
    weight = draw(seed + 2, n).abs() + 0.1
    close(average(mean, weight), reference.average(mean, weight))
    close(mean_variance(between, within, weight), reference.mean_variance(between, within, weight))
    close(class_balance(mean, prior, weight), reference.class_balance(mean, prior, weight))


@given(seed=seeds, c=st.integers(2, 6))
def test_balance_is_zero_at_the_prior_and_positive_elsewhere(seed, c):
    prior = draw(seed, c).softmax(0)
    assert abs(float(class_balance(prior.expand(5, c), prior))) < 1e-6
    assert float(class_balance(prior.flip(0).expand(5, c), prior)) >= -1e-6
    assert float(class_balance(one_hot(torch.zeros(5, dtype=torch.int64), c), prior)) > 0


def test_balance_is_finite_when_a_class_is_never_predicted_or_never_expected():
    mean = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    loss = class_balance(mean, torch.tensor([0.5, 0.5]))
    assert 5 < loss.item() < 50
    (gradient,) = torch.autograd.grad(loss, mean)
    assert torch.isfinite(gradient).all()
    assert class_balance(torch.tensor([[1.0, 0.0]]), torch.tensor([1.0, 0.0])).item() == 0
