"""From basis to label distribution: the identity of the variance, the evidence of the network, draws."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from embasis.functional.em import responsibilities
from embasis.functional.losses import class_balance, mean_variance
from embasis.functional.moments import (
    component_probabilities,
    draw_labels,
    inverse_temperature_for_entropy,
    label_moments,
    literal_moments,
    scalar_uncertainty,
)
from embasis.functional.sites import unit_rows
from embasis.randomness import uniforms

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 7)
KINDS = ("gini", "between")


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rows_of(seed: int, n: int, c: int, certainty: float) -> torch.Tensor:
    """Rows of probabilities: flat for certainty 0, exact zeros and ones for 1e4."""
    return (certainty * draw(seed, n, c)).softmax(1)


def close(fast, slow, atol=1e-5, rtol=1e-5):
    np.testing.assert_allclose(reference.wide(fast), reference.wide(slow), atol=atol, rtol=rtol)


# component probabilities


@given(seed=seeds, k=sizes, c=sizes, d=sizes, sigma=st.sampled_from([0.0, 0.3, 2.0]))
def test_component_probabilities_by_draws_equal_their_slow_twin(seed, k, c, d, sigma):
    mu, weight, bias, noise = draw(seed, k, d), draw(seed + 1, c, d), draw(seed + 2, c), draw(seed + 3, 5, d)
    close(
        component_probabilities(mu, weight, bias, sigma, noise),
        reference.component_probabilities(mu, weight, bias, sigma, noise),
    )


@given(seed=seeds, k=sizes, c=sizes, d=sizes)
def test_for_sigma_zero_the_closed_form_and_the_draws_are_both_exact(seed, k, c, d):
    mu, weight, bias = draw(seed, k, d), draw(seed + 1, c, d), draw(seed + 2, c)
    exact = reference.component_probabilities(mu, weight, bias)
    close(component_probabilities(mu, weight, bias), exact)
    close(component_probabilities(mu, weight, bias, 0.0, draw(seed + 3, 4, d)), exact)
    close(component_probabilities(mu, weight, bias, 1e-6), exact)


@given(seed=seeds, k=sizes, d=sizes, sigma=st.floats(0.01, 5))
def test_for_two_classes_the_closed_form_is_mackays_probit_approximation(seed, k, d, sigma):
    mu, weight, bias = draw(seed, k, d), draw(seed + 1, 2, d), draw(seed + 2, 2)
    close(component_probabilities(mu, weight, bias, sigma)[:, 0], reference.probit_pair(mu, weight, bias, sigma))


def errors_of_closed_form(classes: int, sigma: float, size: float) -> tuple[float, float]:
    """Largest error against 8000 draws, of the closed form and of leaving sigma out; mean over four heads."""
    closed, flat = [], []
    for seed in range(4):
        mu, weight = 1.5 * unit_rows(draw(seed, 20, 8)), size * draw(seed + 10, classes, 8)
        bias, noise = 0.3 * draw(seed + 20, classes), draw(seed + 30, 8000, 8)
        drawn = component_probabilities(mu, weight, bias, sigma, noise)
        closed.append((component_probabilities(mu, weight, bias, sigma) - drawn).abs().max().item())
        flat.append((component_probabilities(mu, weight, bias) - drawn).abs().max().item())
    return sum(closed) / 4, sum(flat) / 4


@pytest.mark.parametrize(
    ("classes", "sigma", "size", "tolerance"),
    # Measured 0.002, 0.011, 0.012, 0.007, 0.046, 0.063; the draws themselves are off by up to 0.01.
    [
        (2, 0.3, 0.5, 0.01),
        (2, 0.3, 2.0, 0.025),
        (2, 1.0, 2.0, 0.025),
        (3, 0.3, 0.5, 0.015),
        (3, 1.0, 0.5, 0.08),
        (5, 1.0, 0.5, 0.09),
    ],
)
def test_for_few_classes_the_closed_form_agrees_with_draws(classes, sigma, size, tolerance):
    closed, flat = errors_of_closed_form(classes, sigma, size)
    assert closed < tolerance
    assert closed < flat, "no better than leaving sigma out"


def test_for_thirty_classes_the_closed_form_is_worse_than_leaving_sigma_out():
    # Pinned as the limit of the closed form: with many classes take draws, or sigma = 0.
    closed, flat = errors_of_closed_form(30, 1.0, 0.5)
    assert closed > flat


@given(seed=seeds, c=sizes, shift=st.floats(-5, 5))
def test_a_shift_of_all_scores_changes_no_probability(seed, c, shift):
    mu, weight, bias = draw(seed, 4, 3), draw(seed + 1, c, 3), draw(seed + 2, c)
    shifted = component_probabilities(mu, weight + draw(seed + 3, 3), bias + shift, 0.7)
    torch.testing.assert_close(shifted, component_probabilities(mu, weight, bias, 0.7), atol=1e-5, rtol=1e-4)


def test_a_wide_component_is_less_sure():
    mu, weight, bias = draw(0, 5, 4), draw(1, 3, 4), torch.zeros(3)
    tops = [component_probabilities(mu, weight, bias, sigma).amax(1) for sigma in (0.0, 0.5, 2.0, 10.0)]
    assert all((wider < narrower).all() for narrower, wider in itertools.pairwise(tops))


# label moments


@given(seed=seeds, n=sizes, k=sizes, c=sizes, certainty=st.floats(0, 4), with_q=st.booleans())
def test_moments_equal_the_explicit_joint_distribution(seed, n, k, c, certainty, with_q):
    z, p = rows_of(seed, n, k, certainty), rows_of(seed + 1, k, c, certainty)
    q = rows_of(seed + 2, n, c, certainty) if with_q else None
    for fast, slow in zip(label_moments(z, p, q), reference.label_moments(z, p, q), strict=True):
        close(fast, slow)


certainties = st.sampled_from([0.0, 1.0, 10.0, 100.0, 1e4])


@given(
    seed=seeds, n=sizes, k=sizes, c=sizes, sure=st.tuples(certainties, certainties, certainties), with_q=st.booleans()
)
def test_between_and_within_make_up_the_variance_of_a_label(seed, n, k, c, sure, with_q):
    # Also for exact zeros and ones, and where the basis and the network are sure of different classes.
    z, p = rows_of(seed, n, k, sure[0]), rows_of(seed + 1, k, c, sure[1])
    mean, between, within = label_moments(z, p, rows_of(seed + 2, n, c, sure[2]) if with_q else None)
    torch.testing.assert_close(between + within, mean * (1 - mean), atol=1e-6, rtol=0)
    torch.testing.assert_close(mean.sum(1), torch.ones(n), atol=1e-5, rtol=0)
    for part in (mean, between, within):
        assert (part >= 0).all()
        assert (part <= 1 + 1e-6).all()


@given(seed=seeds, n=sizes, k=sizes, c=sizes, certainty=st.floats(0, 10))
def test_a_network_that_knows_nothing_changes_nothing(seed, n, k, c, certainty):
    z, p = rows_of(seed, n, k, certainty), rows_of(seed + 1, k, c, certainty)
    for with_q, without in zip(label_moments(z, p, torch.full((n, c), 1 / c)), label_moments(z, p), strict=True):
        torch.testing.assert_close(with_q, without, atol=1e-5, rtol=0)


def test_two_sure_and_opposed_sources_leave_the_label_undecided():
    p, q = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    mean, between, within = label_moments(torch.ones(1, 1), p, q)
    torch.testing.assert_close(mean, torch.full((1, 2), 0.5))
    torch.testing.assert_close(between + within, torch.full((1, 2), 0.25))


def test_one_component_has_no_disagreement_and_sure_components_no_inner_doubt():
    _, between, within = label_moments(torch.ones(3, 1), torch.tensor([[0.2, 0.8]]))
    assert between.abs().max() < 1e-6
    assert within.min() > 0.1
    _, between, within = label_moments(torch.tensor([[0.5, 0.5]]), torch.eye(2))
    torch.testing.assert_close(between, torch.full((1, 2), 0.25))
    assert within.abs().max() == 0


def test_a_single_class_is_certain():
    mean, between, within = label_moments(rows_of(0, 4, 3, 1.0), torch.ones(3, 1), torch.ones(4, 1))
    torch.testing.assert_close(mean, torch.ones(4, 1))
    assert between.abs().max() < 1e-6
    assert within.abs().max() < 1e-6


@given(seed=seeds, n=sizes, with_q=st.booleans())
def test_permuting_components_changes_no_moment_and_permuting_classes_permutes_them(seed, n, with_q):
    z, p, q = rows_of(seed, n, 5, 2.0), rows_of(seed + 1, 5, 4, 2.0), rows_of(seed + 2, n, 4, 2.0) if with_q else None
    generator = torch.Generator().manual_seed(seed)
    bases, classes = torch.randperm(5, generator=generator), torch.randperm(4, generator=generator)
    whole = label_moments(z, p, q)
    for part, other in zip(whole, label_moments(z[:, bases], p[bases], q), strict=True):
        torch.testing.assert_close(part, other, atol=1e-5, rtol=0)
    for part, other in zip(whole, label_moments(z, p[:, classes], None if q is None else q[:, classes]), strict=True):
        torch.testing.assert_close(part[:, classes], other, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds, n=sizes, k=sizes, c=sizes)
def test_the_one_number_equals_its_slow_twin(kind, seed, n, k, c):
    moments = label_moments(rows_of(seed, n, k, 2.0), rows_of(seed + 1, k, c, 2.0))
    close(scalar_uncertainty(*moments, kind), reference.scalar_uncertainty(*moments, kind), atol=1e-6)


def test_a_site_between_two_components_is_more_uncertain_than_one_on_a_component():
    mu = torch.eye(2)
    z = responsibilities(unit_rows(torch.tensor([[1.0, 0.0], [1.0, 1.0]])), mu, 10.0)
    moments = label_moments(z, component_probabilities(mu, 5 * torch.eye(2), torch.zeros(2)))
    for kind in KINDS:
        sure, torn = scalar_uncertainty(*moments, kind).tolist()
        assert torn > sure, kind


# the paper read literally


@pytest.mark.parametrize("softmax", [False, True])
@given(seed=seeds, n=sizes, k=sizes, c=sizes, d=sizes)
def test_literal_moments_equal_their_slow_twin(softmax, seed, n, k, c, d):
    z, mu, weight, bias = rows_of(seed, n, k, 2.0), draw(seed + 1, k, d), draw(seed + 2, c, d), draw(seed + 3, c)
    noise = draw(seed + 4, 6, d)
    fast = literal_moments(z, mu, weight, bias, noise, softmax)
    slow = reference.literal_moments(z, mu, weight, bias, noise, softmax)
    close(fast[0], slow[0], atol=1e-4)
    close(fast[1], slow[1], atol=1e-4, rtol=1e-4)


@given(seed=seeds, n=st.integers(2, 8), k=sizes, c=sizes, d=sizes)
def test_the_literal_variance_is_one_for_all_sites_so_it_ranks_nothing(seed, n, k, c, d):
    # Hazard P2, and the reason why this reading is not the default.
    z, mu, weight, bias = rows_of(seed, n, k, 3.0), draw(seed + 1, k, d), draw(seed + 2, c, d), draw(seed + 3, c)
    _, variance = literal_moments(z, mu, weight, bias, draw(seed + 4, 20, d), softmax=False)
    torch.testing.assert_close(variance, variance[:1].expand_as(variance), atol=1e-4, rtol=1e-4)


def test_the_literal_variance_is_the_diagonal_of_w_wt_in_the_limit_of_draws():
    weight = draw(2, 3, 4)
    _, variance = literal_moments(
        rows_of(0, 5, 2, 2.0), draw(1, 2, 4), weight, torch.zeros(3), draw(3, 40_000, 4), softmax=False
    )
    # The relative error of a variance from m draws is sqrt(2/m) = 0.007.
    torch.testing.assert_close(variance, (weight @ weight.T).diagonal().expand(5, 3), atol=0, rtol=0.03)


def test_through_the_softmax_the_literal_variance_differs_from_site_to_site():
    mu = 3 * torch.eye(2)
    _, variance = literal_moments(
        torch.tensor([[1.0, 0.0], [0.5, 0.5]]), mu, 2 * torch.eye(2), torch.zeros(2), draw(0, 500, 2)
    )
    assert variance[1].sum() > 2 * variance[0].sum()


# draws


@given(seed=seeds, n=sizes, c=sizes, temperature=st.sampled_from([0.3, 1.0, 3.0]), certainty=st.floats(0, 5))
def test_drawn_labels_equal_their_slow_twin(seed, n, c, temperature, certainty):
    mean, uniform = rows_of(seed, n, c, certainty), uniforms(torch.arange(n), seed, "hard labels", 1)
    assert draw_labels(mean, uniform, temperature).tolist() == reference.draw_labels(mean, uniform, temperature)


def test_draws_follow_the_distribution():
    mean = torch.tensor([[0.1, 0.6, 0.3]]).repeat(20_000, 1)
    uniform = uniforms(torch.arange(20_000), 0, "hard labels", 1)
    share = draw_labels(mean, uniform).bincount(minlength=3) / 20_000
    torch.testing.assert_close(share, mean[0], atol=4.5 * 0.5 / 141, rtol=0)
    squared = mean[0].square() / mean[0].square().sum()
    share = draw_labels(mean, uniform, 0.5).bincount(minlength=3) / 20_000
    torch.testing.assert_close(share, squared, atol=4.5 * 0.5 / 141, rtol=0)


@given(
    u=st.floats(0, 1, exclude_max=True), temperature=st.sampled_from([0.01, 1.0, 10.0, 100.0]), zero=st.integers(0, 2)
)
def test_a_class_of_probability_zero_is_never_drawn(u, temperature, zero):
    mean = torch.full((1, 3), 0.5)
    mean[0, zero] = 0
    assert draw_labels(mean, torch.tensor([u], dtype=torch.float64), temperature).item() != zero


def test_a_cold_draw_is_the_mode():
    mean = rows_of(0, 200, 4, 1.0)
    labels = draw_labels(mean, uniforms(torch.arange(200), 0, "hard labels"), 1e-4)
    assert (labels == mean.argmax(1)).float().mean() > 0.99


@given(seed=seeds, round_number=st.integers(1, 9))
def test_a_drawn_label_is_a_function_of_seed_round_and_id(seed, round_number):
    # Hazard P5: whatever rows stand beside it, in whatever order.
    mean, ids = rows_of(seed, 12, 4, 1.0), torch.arange(100, 112)
    whole = draw_labels(mean, uniforms(ids, seed, "hard labels", round_number))
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    again = draw_labels(mean[order], uniforms(ids[order], seed, "hard labels", round_number))
    assert torch.equal(again, whole[order])
    alone = draw_labels(mean[3:4], uniforms(ids[3:4], seed, "hard labels", round_number))
    assert alone.item() == whole[3].item()


def test_another_round_draws_other_labels():
    mean, ids = torch.full((100, 4), 0.25), torch.arange(100)
    rounds = [draw_labels(mean, uniforms(ids, 0, "hard labels", number)) for number in (1, 2)]
    assert 0.1 < (rounds[0] == rounds[1]).float().mean() < 0.45


# the head's variance term


def trained_head(balanced: float) -> tuple[torch.Tensor, float]:
    """Mean predictions after descent on the variance alone, or with the balance term; components overlap."""
    centres = torch.eye(3).repeat_interleave(40, 0) @ draw(0, 3, 6)
    x = unit_rows(centres + 0.3 * draw(1, 120, 6))
    mu = unit_rows(torch.stack([x[40 * c : 40 * c + 40].mean(0) for c in range(3)]))
    z = responsibilities(x, mu, 0.5)
    weight, bias = (0.5 * draw(2, 3, 6)).requires_grad_(), torch.zeros(3, requires_grad=True)
    optimiser = torch.optim.Adam([weight, bias], lr=0.1)
    for _ in range(200):
        mean, between, within = label_moments(z, component_probabilities(mu, weight, bias))
        loss = mean_variance(between, within) + balanced * class_balance(mean, torch.full((3,), 1 / 3))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return mean.detach(), mean_variance(between, within).item()


def test_variance_alone_teaches_the_head_one_class_for_everything():
    mean, variance = trained_head(0.0)
    assert variance < 0.01
    assert len(mean.argmax(1).unique()) == 1
    assert mean.mean(0).max() > 0.99


def test_the_balance_term_keeps_all_classes_alive():
    mean, _ = trained_head(1.0)
    assert mean.argmax(1).bincount(minlength=3).tolist() == [40, 40, 40]
    torch.testing.assert_close(mean.mean(0), torch.full((3,), 1 / 3), atol=0.1, rtol=0)


# half precision


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@given(seed=seeds, with_q=st.booleans())
def test_moments_of_half_precision_inputs_are_computed_in_float32(dtype, seed, with_q):
    z, p, q = rows_of(seed, 5, 3, 2.0).to(dtype), rows_of(seed + 1, 3, 4, 2.0).to(dtype), rows_of(seed + 2, 5, 4, 2.0)
    q = q.to(dtype) if with_q else None
    half = label_moments(z, p, q)
    single = label_moments(z.float(), p.float(), None if q is None else q.float())
    assert all(part.dtype == torch.float32 for part in half)
    assert all(torch.equal(a, b) for a, b in zip(half, single, strict=True))
    mu, weight, bias = draw(seed, 3, 4).to(dtype), draw(seed + 1, 2, 4).to(dtype), draw(seed + 2, 2).to(dtype)
    assert component_probabilities(mu, weight, bias, 0.5).dtype == torch.float32


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_tempering_finds_the_power_of_its_slow_twin(seed: int, share: float) -> None:
    scores = 8 * torch.randn(12, 4, generator=torch.Generator().manual_seed(seed))
    asked = share * math.log(4)
    assert inverse_temperature_for_entropy(scores, asked) == pytest.approx(
        reference.inverse_temperature_for_entropy(scores, asked), rel=5e-3
    )
    weight = torch.rand(12, generator=torch.Generator().manual_seed(seed + 9))
    assert inverse_temperature_for_entropy(scores, asked, weight=weight) == pytest.approx(
        reference.inverse_temperature_for_entropy(scores, asked, weight), rel=5e-3
    )


def test_tempering_never_sharpens() -> None:
    scores = 0.1 * torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    assert inverse_temperature_for_entropy(scores, entropy=0.01) == 1.0


def test_tempering_of_scores_that_cannot_be_softened_enough_stays_finite() -> None:
    assert inverse_temperature_for_entropy(1e30 * torch.eye(3), entropy=math.log(3) + 1) == pytest.approx(
        1e-4, rel=1e-2
    )
