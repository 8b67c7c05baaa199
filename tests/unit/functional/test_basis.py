"""Where a basis comes from: Stage I's three terms, and the means of the labelled classes."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from embasis.functional.basis import affinity, class_means, orthogonality, reconstruction

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 8)


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def labels(seed: int, n: int, classes: int) -> torch.Tensor:
    return torch.randint(0, classes, (n,), generator=torch.Generator().manual_seed(seed))


@given(seed=seeds, n=sizes, k=sizes, d=sizes, classes=sizes)
def test_stage_one_terms_equal_the_naive_matrices(seed, n, k, d, classes):
    x, w, y = draw(seed, n, d), draw(seed + 1, k, d), labels(seed, n, classes)
    assert float(orthogonality(w)) == pytest.approx(reference.orthogonality(w), rel=1e-4, abs=1e-5)
    assert float(reconstruction(x, w)) == pytest.approx(reference.reconstruction(x, w), rel=1e-4, abs=1e-5)
    slow = reference.affinity(x, w, y)
    # A difference of sums that may each be a hundred times the answer.
    assert float(affinity(x, w, y)) == pytest.approx(slow, rel=1e-3, abs=1e-3)


@given(seed=seeds, d=st.integers(1, 8), data=st.data())
def test_orthogonality_is_zero_for_orthonormal_rows_and_for_no_others(seed, d, data):
    k = data.draw(st.integers(1, d))
    w = torch.linalg.qr(draw(seed, d, d).double()).Q[:k].float()
    assert float(orthogonality(w)) < 1e-12
    w[-1] *= 1.5
    assert float(orthogonality(w)) > 1 / k**2


def test_orthogonality_of_unit_vectors_is_exactly_zero():
    assert float(orthogonality(torch.eye(5)[:3])) == 0


def test_more_rows_than_features_cannot_be_orthonormal():
    # ‖w wᵀ − I‖² ≥ k − d for every w, since w wᵀ has rank d at most.
    for seed in range(20):
        assert float(orthogonality(draw(seed, 5, 3))) * 25 >= 2 - 1e-4


@given(seed=seeds, d=st.integers(1, 8))
def test_a_full_orthonormal_basis_rebuilds_everything(seed, d):
    assert float(reconstruction(draw(seed, 6, d), torch.linalg.qr(draw(seed + 1, d, d)).Q)) < 1e-9


def test_affinity_is_zero_when_the_latent_is_the_one_hot_class():
    y = torch.tensor([0, 2, 1, 2])
    assert float(affinity(torch.eye(3)[y], torch.eye(3), y)) == 0


@given(seed=seeds, n=sizes, classes=st.integers(1, 5))
def test_affinity_sees_which_sites_share_a_class_not_how_classes_are_numbered(seed, n, classes):
    x, w, y = draw(seed, n, 4), draw(seed + 1, 3, 4), labels(seed, n, classes)
    assert float(affinity(x, w, y + 7)) == pytest.approx(float(affinity(x, w, y)), rel=1e-4, abs=1e-4)
    assert float(affinity(x, w, classes - 1 - y)) == pytest.approx(float(affinity(x, w, y)), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("times", [2, 5])
def test_the_terms_mean_the_same_for_every_batch_size(times):
    x, w, y = draw(0, 12, 4), draw(1, 3, 4), labels(2, 12, 3)
    for term in (lambda x, y: reconstruction(x, w), lambda x, y: affinity(x, w, y)):
        torch.testing.assert_close(term(x.repeat(times, 1), y.repeat(times)), term(x, y), rtol=1e-4, atol=1e-6)


def test_no_rows_have_no_affinity_loss():
    assert float(affinity(torch.zeros(0, 4), draw(0, 2, 4), torch.zeros(0, dtype=torch.int64))) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_features_give_the_float32_terms(dtype):
    x, w, y = draw(0, 200, 8).to(dtype), draw(1, 4, 8).to(dtype), labels(2, 200, 3)
    assert torch.equal(orthogonality(w), orthogonality(w.float()))
    assert torch.equal(reconstruction(x, w), reconstruction(x.float(), w.float()))
    assert torch.equal(affinity(x, w, y), affinity(x.float(), w.float(), y))


def trained_block(seed: int, weight: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Stage I on W alone: three classes in quiet directions, most of the variance in four directions of noise."""
    y = torch.arange(3).repeat_interleave(30)
    x = torch.cat([torch.eye(3)[y], torch.zeros(90, 3), 0.6 * draw(seed, 90, 4)], 1) + 0.1 * draw(seed + 1, 90, 10)
    w = (0.3 * draw(seed + 2, 3, 10)).requires_grad_()
    optimiser = torch.optim.Adam([w], lr=0.05)
    for _ in range(200):
        loss = orthogonality(w) + reconstruction(x, w) + weight * affinity(x, w, y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return (x @ w.detach().T), y


def separation(z: torch.Tensor, y: torch.Tensor) -> float:
    """Share of the scatter of z that lies between classes."""
    means = torch.stack([z[y == c].mean(0) for c in range(3)])
    return float((means[y] - z.mean(0)).square().sum() / (z - z.mean(0)).square().sum())


@pytest.mark.parametrize("seed", range(3))
def test_without_the_affinity_term_the_block_no_longer_separates_the_classes(seed):
    assert separation(*trained_block(seed, 1.0)) > 0.9
    assert separation(*trained_block(seed, 0.0)) < 0.6


# class means


@given(seed=seeds, n=st.integers(1, 30), classes=st.integers(1, 4), per_class=st.integers(1, 5))
def test_centres_lie_inside_their_class_and_come_in_class_order(seed, n, classes, per_class):
    x, y = draw(seed, n, 3), labels(seed, n, classes)
    centres, owner = class_means(x, y, classes, per_class)
    assert centres.shape == (classes * per_class, 3)
    assert owner.tolist() == [c for c in range(classes) for _ in range(per_class)]
    for c in range(classes):
        mine = centres[owner == c]
        rows = x[y == c]
        if not len(rows):
            torch.testing.assert_close(mine, x.mean(0).expand_as(mine))
            continue
        assert (mine <= rows.amax(0) + 1e-5).all()
        assert (mine >= rows.amin(0) - 1e-5).all()


@given(seed=seeds, n=st.integers(1, 30), classes=st.integers(1, 4))
def test_one_centre_per_class_is_the_class_mean(seed, n, classes):
    x, y = draw(seed, n, 3), labels(seed, n, classes)
    centres, _ = class_means(x, y, classes, 1)
    for c in range(classes):
        if (y == c).any():
            torch.testing.assert_close(centres[c], x[y == c].mean(0), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_two_clusters_of_one_class_get_a_centre_each_also_far_from_zero(offset):
    # 40 rows: with the products of matrices torch takes beyond 25 rows, both clusters were one at offset 100.
    x = 0.001 * draw(0, 40, 4)
    x[:20, 0] += 0.05
    x = x + offset
    centres, _ = class_means(x, torch.zeros(40, dtype=torch.int64), 1, 2)
    expected = torch.stack([x[20:].mean(0), x[:20].mean(0)])
    torch.testing.assert_close(centres[centres[:, 0].argsort()], expected, atol=1e-3, rtol=0)


@given(seed=seeds, n=st.integers(2, 25), per_class=st.integers(1, 4))
def test_more_iterations_never_raise_the_distance_to_the_nearest_centre(seed, n, per_class):
    x, y = draw(seed, n, 2), torch.zeros(n, dtype=torch.int64)
    costs = []
    for iterations in range(5):
        centres, _ = class_means(x, y, 1, per_class, iterations)
        costs.append(sum(min(float((row - c).square().sum()) for c in centres) for row in x))
    assert all(after <= before + 1e-4 for before, after in itertools.pairwise(costs)), costs


@given(seed=seeds, distinct=st.integers(1, 3), per_class=st.integers(1, 6))
def test_a_class_of_few_distinct_rows_uses_each_and_repeats(seed, distinct, per_class):
    points = draw(seed, distinct, 3)
    x = points.repeat(4, 1)
    centres, _ = class_means(x, torch.zeros(len(x), dtype=torch.int64), 1, per_class)
    assert torch.isfinite(centres).all()
    if per_class >= distinct:
        assert torch.cdist(points, centres).amin(1).max() < 1e-3


@given(seed=seeds)
def test_the_order_of_rows_does_not_move_the_centres(seed):
    x, y = draw(seed, 20, 3), labels(seed, 20, 2)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(class_means(x[order], y[order], 2, 3)[0], class_means(x, y, 2, 3)[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rows_give_the_float32_centres(dtype):
    x, y = draw(0, 20, 3).to(dtype), labels(1, 20, 2)
    assert torch.equal(class_means(x, y, 3, 2)[0], class_means(x.float(), y, 3, 2)[0])


def test_unlabelled_rows_belong_to_no_class():
    x, y = draw(0, 10, 3), torch.tensor([0, 0, 0, 1, 1, 1, -1, -1, -1, -1])
    assert torch.equal(class_means(x, y, 2, 2)[0], class_means(x[:6], y[:6], 2, 2)[0])
