"""EM on the features: the fast pass is the slow one, it climbs where it should, and nothing degenerate breaks it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from embasis.functional import em
from embasis.functional.em import (
    ClassPrior,
    domain_weights,
    effective_components,
    em_statistics,
    kernel_scores,
    m_step,
    mean_perplexity,
    responsibilities,
    sharpness_for_perplexity,
)
from embasis.functional.losses import class_balance, mean_variance
from embasis.functional.moments import component_probabilities, label_moments
from embasis.functional.sites import unit_rows
from embasis.types import EMStats

KERNELS = ("dot", "gaussian")
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 12)
sharpnesses = st.floats(-2, 6).map(lambda power: 10**power)


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def close(fast, slow, atol=1e-5, rtol=1e-5):
    np.testing.assert_allclose(reference.wide(fast), reference.wide(slow), atol=atol, rtol=rtol)


# fast equals slow


@pytest.mark.parametrize("kernel", KERNELS)
@given(seed=seeds, n=sizes, k=sizes, d=sizes, sharpness=st.floats(0.01, 30))
def test_scores_and_responsibilities_equal_their_slow_twins(kernel, seed, n, k, d, sharpness):
    x, mu = unit_rows(draw(seed, n, d)), draw(seed + 1, k, d)
    # float32 scores of size `sharpness` · |mu|² carry errors of that size × 1e-7.
    close(kernel_scores(x, mu, sharpness, kernel), reference.kernel_scores(x, mu, sharpness, kernel), atol=1e-4)
    z = responsibilities(x, mu, sharpness, kernel)
    close(z, reference.responsibilities(x, mu, sharpness, kernel), atol=1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("weighted", [False, True])
@given(seed=seeds, n=sizes, k=sizes, d=sizes, sharpness=st.floats(0.01, 30))
def test_one_pass_statistics_equal_the_slow_sums(kernel, weighted, seed, n, k, d, sharpness):
    x, mu = unit_rows(draw(seed, n, d)), draw(seed + 1, k, d)
    weight = draw(seed + 2, n).abs() if weighted else None
    stats = em_statistics(x, mu, sharpness, weight, kernel)
    mass, total, objective = reference.em_statistics(x, mu, sharpness, weight, kernel)
    close(stats.mass, mass, atol=2e-4)
    close(stats.total, total, atol=2e-4)
    close(stats.objective, objective, atol=1e-3)


@pytest.mark.parametrize("kernel", KERNELS)
@given(seed=seeds, n=sizes, k=sizes, d=sizes, c=sizes)
def test_statistics_with_what_is_said_of_the_sites_equal_the_slow_sums(kernel, seed, n, k, d, c):
    x, mu = unit_rows(draw(seed, n, d)), draw(seed + 1, k, d)
    log_prior, component_class = draw(seed + 2, n, c).log_softmax(1), torch.arange(k) % c
    stats = em_statistics(x, mu, 3.0, kernel=kernel, prior=ClassPrior(log_prior, component_class))
    mass, total, objective = reference.em_statistics(x, mu, 3.0, None, kernel, log_prior, component_class)
    close(stats.mass, mass, atol=2e-4)
    close(stats.total, total, atol=2e-4)
    close(stats.objective, objective, atol=1e-3)


def test_a_site_whose_class_is_certain_belongs_to_the_components_of_that_class_alone():
    x, mu = unit_rows(draw(0, 30, 4)), unit_rows(draw(1, 6, 4))
    component_class, label = torch.arange(6) // 2, torch.arange(30) % 3
    log_prior = torch.nn.functional.one_hot(label, 3).float().clamp_min(1e-12).log()
    for c in range(3):
        mine = label == c
        mass = em_statistics(x[mine], mu, 2.0, prior=ClassPrior(log_prior[mine], component_class)).mass
        assert float(mass[component_class != c].sum()) < 1e-6
        close(mass[component_class == c].sum(), 10.0, atol=1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_word_that_likes_all_classes_alike_changes_nothing_but_the_objective(kernel):
    x, mu = unit_rows(draw(0, 50, 4)), draw(1, 6, 4)
    plain = em_statistics(x, mu, 3.0, kernel=kernel)
    prior = ClassPrior(torch.full((50, 3), -1.5), torch.arange(6) % 3)
    even = em_statistics(x, mu, 3.0, kernel=kernel, prior=prior)
    close(even.mass, plain.mass, atol=1e-5)
    close(even.total, plain.total, atol=1e-5)
    assert float(even.objective) == pytest.approx(float(plain.objective) - 75, abs=1e-3)


@pytest.mark.parametrize("sphere", [False, True])
@given(seed=seeds, k=sizes, d=sizes, empty=st.integers(0, 3))
def test_m_step_equals_its_slow_twin_and_keeps_empty_components(sphere, seed, k, d, empty):
    mass, mu = draw(seed, k).abs() + 0.1, draw(seed + 1, k, d)
    mass[:empty] = 0
    total = draw(seed + 2, k, d) * (mass > 0).unsqueeze(1)
    new, alive = m_step(EMStats(mass, total, torch.zeros((), dtype=torch.float64)), mu, sphere)
    slow, slow_alive = reference.m_step(mass, total, mu, sphere)
    close(new, slow)
    assert alive.tolist() == slow_alive.tolist()
    assert torch.equal(new[:empty], mu[:empty])


def test_on_the_sphere_a_component_whose_rows_cancel_keeps_its_direction_and_is_counted():
    x, mu = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    new, alive = m_step(em_statistics(x, mu, 5.0), mu, sphere=True)
    assert torch.equal(new, mu)
    assert alive.tolist() == [0]


@given(mass=st.lists(st.floats(0, 1e6), min_size=1, max_size=9).filter(lambda m: sum(m) > 1e-3))
def test_effective_components_is_the_exponential_of_the_entropy(mass):
    assert effective_components(torch.tensor(mass)) == pytest.approx(
        reference.effective_components(torch.tensor(mass)), rel=1e-6
    )


def test_equal_masses_count_all_components_and_one_mass_counts_one():
    assert effective_components(torch.full((7,), 3.0)) == pytest.approx(7)
    assert effective_components(torch.tensor([0.0, 5.0, 0.0])) == pytest.approx(1)


@given(seed=seeds, n=sizes, k=sizes, sharpness=sharpnesses)
def test_mean_perplexity_equals_its_slow_twin_and_lies_between_one_and_k(seed, n, k, sharpness):
    z = responsibilities(unit_rows(draw(seed, n, 3)), unit_rows(draw(seed + 1, k, 3)), sharpness)
    value = mean_perplexity(z).item()
    assert value == pytest.approx(reference.mean_perplexity(z), rel=1e-5)
    assert 1 - 1e-5 <= value <= k + 1e-4


@given(seed=seeds, k=st.integers(2, 8), share=st.floats(0.1, 0.9))
def test_the_sharpness_found_spreads_sites_over_the_asked_number_of_components(seed, k, share):
    cosines = unit_rows(draw(seed, 20, 4)) @ unit_rows(draw(seed + 1, k, 4)).T
    asked = 1 + share * (k - 1)
    sharpness = sharpness_for_perplexity(cosines, asked)
    assert reference.mean_perplexity((sharpness * cosines).softmax(1)) == pytest.approx(asked, rel=1e-2)


def test_identical_components_never_separate_so_the_bound_is_returned():
    assert sharpness_for_perplexity(torch.ones(5, 3), 2.0) == pytest.approx(1e4, rel=1e-3)
    assert sharpness_for_perplexity(torch.eye(3), 3.0 + 1e-3) == pytest.approx(1e-2, rel=1e-3)


# it climbs where theory says so


@pytest.mark.parametrize("start", range(20))
def test_gaussian_em_never_lowers_the_likelihood(start):
    x, mu = draw(start, 40, 3), draw(start + 1000, 5, 3)
    sharpness, weight = 0.3 * 1.5**start % 7 + 0.2, draw(start + 2000, 40).abs()
    values = []
    for _ in range(15):
        stats = em_statistics(x, mu, sharpness, weight, "gaussian")
        values.append(float(stats.objective))
        mu, _ = m_step(stats, mu)
    # 40 logs in float32 of values near 10: rounding of 1e-6 each.
    assert all(after >= before - 1e-4 for before, after in itertools.pairwise(values)), values


@pytest.mark.parametrize("start", range(10))
def test_gaussian_em_that_hears_more_than_features_never_lowers_its_likelihood_either(start):
    x, mu = draw(start, 40, 3), draw(start + 1000, 6, 3)
    log_prior, component_class, values = draw(start + 2000, 40, 3).log_softmax(1), torch.arange(6) % 3, []
    for _ in range(15):
        stats = em_statistics(x, mu, 1.5, kernel="gaussian", prior=ClassPrior(log_prior, component_class))
        values.append(float(stats.objective))
        mu, _ = m_step(stats, mu)
    assert all(after >= before - 1e-4 for before, after in itertools.pairwise(values)), values


def test_the_gaussian_objective_is_the_log_likelihood_up_to_a_constant():
    x = draw(0, 30, 4)
    first, second = draw(1, 5, 4), draw(2, 5, 4)
    objective = [float(em_statistics(x, mu, 2.0, kernel="gaussian").objective) for mu in (first, second)]
    likelihood = [reference.gaussian_log_likelihood(x, mu, 2.0) for mu in (first, second)]
    assert objective[1] - objective[0] == pytest.approx(likelihood[1] - likelihood[0], abs=1e-3)


@pytest.mark.parametrize("start", range(20))
def test_spherical_dot_em_never_lowers_its_objective_on_unit_rows(start):
    x, mu = unit_rows(draw(start, 40, 4)), unit_rows(draw(start + 1000, 5, 4))
    sharpness, weight = float(2 ** (start % 8)), draw(start + 2000, 40).abs()
    values = []
    for _ in range(15):
        stats = em_statistics(x, mu, sharpness, weight)
        values.append(float(stats.objective))
        mu, _ = m_step(stats, mu, sphere=True)
        assert torch.allclose(mu.norm(dim=1), torch.ones(5), atol=1e-6)
    assert all(after >= before - 1e-6 * 40 * sharpness for before, after in itertools.pairwise(values))


def test_dot_em_with_free_means_loses_likelihood_for_this_start():
    # Why "dot" goes with the sphere. Start 209 of 300 loses 0.05 nats in its fifth step.
    generator = torch.Generator().manual_seed(209)
    x, mu = torch.randn(30, 2, generator=generator), torch.randn(3, 2, generator=generator)
    values = []
    for _ in range(8):
        values.append(reference.gaussian_log_likelihood(x, mu, 1.0))
        mu, _ = m_step(em_statistics(x, mu, 1.0, kernel="dot"), mu)
    assert min(after - before for before, after in itertools.pairwise(values)) < -0.03, values


# symmetries


@pytest.mark.parametrize("kernel", KERNELS)
@given(seed=seeds, n=sizes, k=sizes, sharpness=st.floats(0.01, 100))
def test_permuting_bases_permutes_z(kernel, seed, n, k, sharpness):
    x, mu = unit_rows(draw(seed, n, 5)), draw(seed + 1, k, 5)
    order = torch.randperm(k, generator=torch.Generator().manual_seed(seed))
    z, permuted = responsibilities(x, mu, sharpness, kernel), responsibilities(x, mu[order], sharpness, kernel)
    torch.testing.assert_close(permuted, z[:, order], atol=1e-4, rtol=1e-4)
    first, second = em_statistics(x, mu, sharpness), em_statistics(x, mu[order], sharpness)
    torch.testing.assert_close(second.total, first.total[order], atol=1e-3, rtol=1e-4)


@given(seed=seeds, k=sizes, norm=st.floats(0.1, 3), sharpness=st.floats(0.01, 30))
def test_both_kernels_agree_when_all_means_have_one_norm(seed, k, norm, sharpness):
    x, mu = draw(seed, 6, 5), norm * unit_rows(draw(seed + 1, k, 5))
    torch.testing.assert_close(
        responsibilities(x, mu, sharpness, "dot"),
        responsibilities(x, mu, sharpness, "gaussian"),
        atol=1e-4,
        rtol=1e-3,
    )


def test_the_kernels_differ_when_norms_differ():
    x, mu = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    assert responsibilities(x, mu, 1.0, "dot")[0].argmax() == 1
    assert responsibilities(x, mu, 1.0, "gaussian")[0].argmax() == 0


# sums


@pytest.mark.parametrize("kernel", KERNELS)
@given(seed=seeds, cuts=st.lists(st.integers(0, 50), max_size=4), weighted=st.booleans())
def test_statistics_of_shards_add_up_to_those_of_the_whole(kernel, seed, cuts, weighted):
    x, mu = unit_rows(draw(seed, 50, 4)), draw(seed + 1, 6, 4)
    weight = draw(seed + 2, 50).abs() if weighted else None
    whole = em_statistics(x, mu, 7.0, weight, kernel)
    edges = [0, *sorted(cuts), 50]
    parts = [
        em_statistics(x[a:b], mu, 7.0, None if weight is None else weight[a:b], kernel)
        for a, b in itertools.pairwise(edges)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    torch.testing.assert_close(total.mass, whole.mass, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(total.total, whole.total, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(total.objective, whole.objective, atol=1e-4, rtol=1e-6)


@given(seed=seeds, chunk=st.integers(1, 60))
def test_the_chunk_size_changes_nothing_beyond_rounding(seed, chunk):
    x, mu, weight = unit_rows(draw(seed, 50, 4)), draw(seed + 1, 6, 4), draw(seed + 2, 50).abs()
    whole = em_statistics(x, mu, 7.0, weight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(em, "EM_CHUNK", chunk)
        pieces = em_statistics(x, mu, 7.0, weight)
    torch.testing.assert_close(pieces.mass, whole.mass, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(pieces.total, whole.total, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(pieces.objective, whole.objective, atol=1e-4, rtol=1e-6)


def test_no_rows_give_empty_sums_and_leave_the_basis_alone():
    mu = draw(0, 3, 4)
    stats = em_statistics(torch.zeros(0, 4), mu, 5.0)
    assert stats.mass.tolist() == [0, 0, 0]
    assert float(stats.objective) == 0
    new, alive = m_step(stats, mu, sphere=True)
    assert torch.equal(new, mu)
    assert alive.tolist() == [0, 0, 0]


@given(seed=seeds, n=sizes, k=sizes)
def test_mass_adds_up_to_the_weight_and_total_to_the_weighted_rows(seed, n, k):
    x, mu, weight = unit_rows(draw(seed, n, 3)), draw(seed + 1, k, 3), draw(seed + 2, n).abs()
    stats = em_statistics(x, mu, 4.0, weight)
    torch.testing.assert_close(stats.mass.sum(), weight.sum(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(stats.total.sum(0), weight @ x, atol=1e-5, rtol=1e-4)


def test_a_row_of_weight_two_counts_as_two_rows_and_weight_zero_as_none():
    x, mu = unit_rows(draw(0, 3, 4)), draw(1, 2, 4)
    weighted = em_statistics(x, mu, 3.0, torch.tensor([2.0, 0.0, 1.0]))
    repeated = em_statistics(x[[0, 0, 2]], mu, 3.0)
    torch.testing.assert_close(weighted.total, repeated.total)
    torch.testing.assert_close(weighted.mass, repeated.mass)


@given(flags=st.lists(st.booleans(), min_size=1, max_size=40))
def test_domain_weights_equal_their_slow_twin_and_give_equal_mass(flags):
    labelled = torch.tensor(flags)
    weight = domain_weights(labelled)
    close(weight, reference.domain_weights(flags))
    assert float(weight.sum()) == pytest.approx(len(flags), rel=1e-5)
    if 0 < sum(flags) < len(flags):
        assert float(weight[labelled].sum()) == pytest.approx(float(weight[~labelled].sum()), rel=1e-5)
    else:
        assert torch.equal(weight, torch.ones(len(flags)))


def test_equal_mass_keeps_the_larger_domain_from_owning_the_basis():
    small, large = torch.tensor([[1.0, 0.0]]).repeat(5, 1), torch.tensor([[0.0, 1.0]]).repeat(95, 1)
    x, flags = torch.cat([small, large]), torch.arange(100) < 5
    start = torch.tensor([[0.6, 0.8]])
    weighted, _ = m_step(em_statistics(x, start, 1.0, domain_weights(flags)), start)
    torch.testing.assert_close(weighted, torch.tensor([[0.5, 0.5]]))
    plain, _ = m_step(em_statistics(x, start, 1.0), start)
    torch.testing.assert_close(plain, torch.tensor([[0.05, 0.95]]))


# degenerate inputs


@st.composite
def degenerate_rows(draw_from, dtypes=(torch.float32, torch.float16, torch.bfloat16)):
    """Features with duplicates, zero rows, constant columns, few distinct points, any scale the dtype can hold."""
    dtype = draw_from(st.sampled_from(dtypes))
    distinct, n, d = draw_from(st.integers(1, 4)), draw_from(st.integers(1, 10)), draw_from(st.integers(1, 5))
    # Entries are 0 or not tiny, so that `× 1e-30` keeps them clear of float32's smallest numbers.
    entry = st.sampled_from([0.0, 0.0, 1.0, -1.0]) | st.floats(0.01, 3) | st.floats(-3, -0.01)
    points = draw_from(st.lists(st.lists(entry, min_size=d, max_size=d), min_size=distinct, max_size=distinct))
    chosen = draw_from(st.lists(st.integers(0, distinct - 1), min_size=n, max_size=n))
    scale = draw_from(st.sampled_from([1.0] if dtype == torch.float16 else [1e-30, 1.0, 1e30]))
    return (torch.tensor(points)[chosen] * scale).to(dtype)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sphere", [False, True])
@given(raw=degenerate_rows(), k=st.integers(1, 12), seed=seeds, sharpness=sharpnesses, duplicate=st.booleans())
def test_em_stays_finite_on_degenerate_rows(kernel, sphere, raw, k, seed, sharpness, duplicate):
    # K beyond the number of rows or of distinct points, equal bases, zero rows, λ to 1e6, features × 1e±30.
    x, mu = unit_rows(raw), unit_rows(draw(seed, k, raw.shape[1]))
    mu = mu[:1].repeat(k, 1) if duplicate else mu
    for _ in range(4):
        stats = em_statistics(x, mu, sharpness, kernel=kernel)
        mu, alive = m_step(stats, mu, sphere)
        z = responsibilities(x, mu, sharpness, kernel)
        assert torch.isfinite(mu).all()
        assert torch.isfinite(stats.objective)
        assert 1 - 1e-9 <= effective_components(stats.mass) <= k + 1e-6
        assert ((alive == 0) | (alive == 1)).all()
        assert (z >= 0).all()
        assert (z.sum(1) - 1).abs().max() <= 1e-6
        assert mu.norm(dim=1).max() <= 1 + 1e-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@given(seed=seeds, sharpness=st.floats(0.1, 100))
def test_half_precision_rows_are_accumulated_in_float32(dtype, seed, sharpness):
    x, mu = unit_rows(draw(seed, 30, 4)).to(dtype), unit_rows(draw(seed + 1, 5, 4))
    half, single = em_statistics(x, mu, sharpness), em_statistics(x.float(), mu, sharpness)
    assert half.total.dtype == half.mass.dtype == torch.float32
    assert torch.equal(half.total, single.total)
    assert torch.equal(half.mass, single.mass)
    assert torch.equal(responsibilities(x, mu, sharpness), responsibilities(x.float(), mu, sharpness))


def test_a_thousand_half_precision_rows_do_not_stop_counting():
    # Summed in float16 the mass would stick at 2048.
    stats = em_statistics(torch.ones(5000, 1, dtype=torch.float16), torch.ones(1, 1), 1.0)
    assert stats.mass.tolist() == [5000.0]


@given(
    raw=degenerate_rows(),
    k=st.integers(1, 8),
    classes=st.integers(1, 5),
    seed=seeds,
    sharpness=sharpnesses,
    head=st.sampled_from([0.0, 1.0, 30.0, 1e3]),
    certainty=st.sampled_from([0.0, 1.0, 30.0, 1e4]),
    with_q=st.booleans(),
    sigma=st.sampled_from([0.0, 0.5]),
    kernel=st.sampled_from(KERNELS),
)
def test_values_and_gradients_are_finite_from_rows_to_loss(
    raw, k, classes, seed, sharpness, head, certainty, with_q, sigma, kernel
):
    n, d = raw.shape
    # The gradient of x/‖x‖ is 1/‖x‖, and a gradient has the dtype of its tensor: where the true value cannot be held
    # (sharpness 1e6 at ‖x‖ = 1e-30, or in float16) rows are constants, as they are in the EM of the method.
    holds = raw.dtype != torch.float16 and raw.abs().max() > 1e-10
    x = raw.clone().requires_grad_(bool(holds or sharpness <= 100))
    mu = unit_rows(draw(seed, k, d))
    mu[k // 2 :] = mu[0].clone()
    weight, bias, scores = (
        head * draw(seed + 1, classes, d),
        draw(seed + 2, classes),
        certainty * draw(seed + 3, n, classes),
    )
    leaves = [leaf.requires_grad_() for leaf in (mu, weight, bias, scores)]
    leaves = [*(leaves if with_q else leaves[:3]), *([x] if x.requires_grad else [])]
    z = responsibilities(unit_rows(x), mu, sharpness, kernel)
    p = component_probabilities(mu, weight, bias, sigma)
    mean, between, within = label_moments(z, p, scores.softmax(1) if with_q else None)
    assert (mean.sum(1) - 1).abs().max() <= 1e-5  # n·k·c products in float32, divided once
    label = torch.arange(n) % classes
    likelihood = -mean.gather(1, label.unsqueeze(1)).clamp_min(1e-12).log().mean()
    loss = likelihood + mean_variance(between, within) + class_balance(mean, torch.full((classes,), 1 / classes))
    assert torch.isfinite(loss)
    for gradient in torch.autograd.grad(loss, leaves):
        assert torch.isfinite(gradient).all()


def guided_chunks(seed: int, sizes: tuple[int, ...], d: int, k: int, c: int):
    """Unit rows in chunks with weights and priors, and a basis."""
    chunks = [unit_rows(draw(seed + number, n, d)) for number, n in enumerate(sizes)]
    weights = [draw(seed + 50 + number, n).abs() + 0.1 for number, n in enumerate(sizes)]
    priors = [
        ClassPrior(draw(seed + 90 + number, n, c).log_softmax(1), torch.arange(k) % c) for number, n in enumerate(sizes)
    ]
    return chunks, weights, priors, unit_rows(draw(seed + 7, k, d))


@pytest.mark.parametrize("guided", [False, True])
def test_chunks_that_are_merged_have_the_same_sums(guided, monkeypatch):
    monkeypatch.setattr(em, "EM_CHUNK", 20)
    chunks, weights, priors, mu = guided_chunks(3, (8, 9, 8, 30, 1), 5, 6, 3)
    known = priors if guided else None
    rows, merged_weights, merged_priors = em.merge_chunks(chunks, weights, known)
    assert [len(row) for row in rows] == [17, 8, 30, 1]
    assert torch.equal(torch.cat(rows), torch.cat(chunks))
    whole = em.sum_em_statistics(chunks, mu, 4.0, weights, priors=known)
    merged = em.sum_em_statistics(rows, mu, 4.0, merged_weights, priors=merged_priors)
    for name in ("mass", "total", "objective"):
        torch.testing.assert_close(getattr(merged, name), getattr(whole, name), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("guided", [False, True])
def test_iterations_in_the_span_of_the_rows_are_those_in_all_features(guided):
    chunks, weights, priors, mu = guided_chunks(5, (40, 33), 300, 6, 3)
    known = priors if guided else None
    found = em.iterate_in_span(chunks, mu, 9.0, weights, known, 4)
    assert found is not None
    expected = mu
    for _ in range(4):
        stats = em.sum_em_statistics(chunks, expected, 9.0, weights, priors=known)
        expected, _ = m_step(stats, expected, sphere=True)
    torch.testing.assert_close(found[1], expected, atol=1e-5, rtol=1e-4)
    for name in ("mass", "total", "objective"):
        torch.testing.assert_close(getattr(found[0], name), getattr(stats, name), atol=1e-3, rtol=1e-4)


def test_no_span_where_rows_are_many_or_features_few_or_a_component_has_no_mass():
    chunks, weights, _, mu = guided_chunks(5, (40, 33), 300, 6, 3)
    many = [row.repeat(5, 1) for row in chunks]
    assert em.iterate_in_span(many, mu, 9.0, [each.repeat(5) for each in weights], None, 2) is None
    assert em.iterate_in_span([row[:, :72] for row in chunks], mu[:, :72], 9.0, weights, None, 2) is None
    others = [ClassPrior(torch.tensor([0.0, -1e4]).expand(n, 2), torch.tensor([0, 0, 0, 0, 0, 1])) for n in (40, 33)]
    assert em.iterate_in_span(chunks, mu, 9.0, weights, others, 2) is None
