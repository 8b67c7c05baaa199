"""Degenerate numbers, drawn from a seed, and all that must hold of them; a fault is a sentence.

A case is a pure function of its seed, so that a fault can be seen again: `faults_of(draw_case(seed))`. The reference is
the same equation in float64, written here once more.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embasis.functional import em, losses, moments, selection, sites

SHAPES = ("random", "duplicates", "constant", "one value a column", "zero rows", "on a line", "far from zero")
SHARPNESS = (0.1, 1.0, 10.0, 100.0, 1e4, 1e6)
SCALES = {torch.float32: (1e-30, 1.0, 1e30), torch.bfloat16: (1e-30, 1.0, 1e30), torch.float16: (1e-2, 1.0)}
CLOSE = 1e-5
"""From the float64 reference."""
MILD = 10.0
"""Up to this sharpness rounding of float32 scores moves no responsibility by CLOSE."""


@dataclass(frozen=True, eq=False)
class NumberCase:
    """Rows as they come, a basis, a head and the network's scores, and how they are used."""

    seed: int
    kind: str
    raw: Tensor
    mu: Tensor
    weight: Tensor
    bias: Tensor
    scores: Tensor
    sharpness: float
    kernel: str
    sphere: bool
    sigma: float
    counted: Tensor | None
    """How often each row counts."""


def draw_case(seed: int) -> NumberCase:
    """The case of a seed."""
    pick = random.Random(seed)
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw)

    n, d, k, classes = pick.randint(1, 20), pick.choice((1, 1, 2, 3, 6)), pick.randint(1, 12), pick.randint(1, 5)
    kind, dtype = pick.choice(SHAPES), pick.choice(tuple(SCALES))
    raw = (shaped(kind, normal, n, d, pick) * pick.choice(SCALES[dtype])).to(dtype)
    mu = sites.unit_rows(normal(k, d))
    if pick.random() < 0.3:
        mu[k // 2 :] = mu[:1].clone()
    return NumberCase(
        seed, kind, raw, mu, pick.choice((0.0, 1.0, 30.0, 1e3)) * normal(classes, d), normal(classes),
        pick.choice((0.0, 1.0, 30.0, 1e4)) * normal(n, classes), pick.choice(SHARPNESS),
        pick.choice(("dot", "gaussian")), pick.random() < 0.5, pick.choice((0.0, 0.5)),
        torch.randint(1, 4, (n,), generator=draw).float() if pick.random() < 0.5 else None,
    )  # fmt: skip


def shaped(kind: str, normal: Callable[..., Tensor], n: int, d: int, pick: random.Random) -> Tensor:
    """Rows of one of the SHAPES; no entry is so small that `× 1e-30` would lose it."""
    rows = normal(n, d)
    rows = torch.where(rows.abs() < 0.01, 0.01, rows)
    if kind == "duplicates":
        return rows[torch.tensor([pick.randrange(min(n, 3)) for _ in range(n)])]
    if kind == "constant":
        return rows[:1].repeat(n, 1)
    if kind == "one value a column":
        return torch.cat([rows[:, :1], rows[:1, 1:].repeat(n, 1)], 1)
    if kind == "zero rows":
        return rows * (torch.arange(n) % 2).unsqueeze(1)
    if kind == "on a line":
        return torch.linspace(-1, 1, n).unsqueeze(1) * rows[:1]
    return rows + 100 if kind == "far from zero" else rows


# --- the equations in float64


def exact_unit(raw: Tensor) -> Tensor:
    wide = raw.double()
    largest = wide.abs().amax(1, keepdim=True)
    wide = wide / torch.where(largest > 0, largest, 1.0)
    length = wide.square().sum(1, keepdim=True).sqrt()
    return wide / torch.where(length > 0, length, 1.0)


def exact_scores(x: Tensor, mu: Tensor, sharpness: float, kernel: str) -> Tensor:
    wide = mu.double()
    products = (x.double().unsqueeze(1) * wide.unsqueeze(0)).sum(2)
    return sharpness * (products - (wide.square().sum(1) / 2 if kernel == "gaussian" else 0.0))


def exact_moments(z: Tensor, p: Tensor, q: Tensor | None) -> tuple[Tensor, Tensor]:
    """mean and total variance, through the joint distribution of component and class."""
    joint = z.double().unsqueeze(2) * p.double().clamp_min(moments.LEAST_PROBABILITY if q is not None else 0).unsqueeze(
        0
    )
    if q is not None:
        joint = joint * q.double().clamp_min(moments.LEAST_PROBABILITY).unsqueeze(1)
    mean = joint.sum(1)
    mean = mean / mean.sum(1, keepdim=True)
    return mean, mean * (1 - mean)


# --- what must hold


def faults_of(case: NumberCase) -> list[str]:
    """A sentence for each thing that does not hold."""
    found = list[str]()
    for rule in RULES:
        try:
            found += rule(case)
        except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
            found.append(f"{rule.__name__} failed: {error!r}")
    return [f"seed {case.seed} ({case.kind}, {case.raw.dtype}): {text}" for text in found]


def finite(**values: Tensor) -> Iterator[str]:
    for name, value in values.items():
        if not torch.isfinite(value).all():
            yield f"{name} is not finite"


def apart(left: Tensor, right: Tensor) -> float:
    return float((left.double() - right.double()).abs().max()) if left.numel() else 0.0


def unit_rows_hold(case: NumberCase) -> Iterator[str]:
    """Of unit length or zero, like their reference, whatever the scale."""
    x = sites.unit_rows(case.raw)
    yield from finite(x=x)
    if (error := apart(x, exact_unit(case.raw))) > CLOSE:
        yield f"unit rows are {error:.1e} from float64"


def responsibilities_hold(case: NumberCase) -> Iterator[str]:
    """Rows sum to one; each step is as close to float64 as float32 can be; components and rows may be permuted."""
    x = sites.unit_rows(case.raw)
    scores = em.kernel_scores(x, case.mu, case.sharpness, case.kernel)
    z = em.responsibilities(x, case.mu, case.sharpness, case.kernel)
    yield from finite(scores=scores, z=z)
    if apart(z.double().sum(1), torch.ones(len(z))) > 1e-6:
        yield "a row of z does not sum to 1"
    exact = exact_scores(x, case.mu, case.sharpness, case.kernel)
    if apart(scores, exact) > case.sharpness * (x.shape[1] + 1) * 3e-7:
        yield f"scores are {apart(scores, exact):.1e} from float64 at sharpness {case.sharpness:g}"
    if apart(z, scores.double().softmax(1)) > 1e-6:
        yield "z is not the softmax of its scores"
    if case.sharpness <= MILD and apart(z, exact.softmax(1)) > CLOSE:
        yield f"z is {apart(z, exact.softmax(1)):.1e} from float64"
    order = torch.randperm(len(case.mu), generator=torch.Generator().manual_seed(case.seed))
    turned = em.responsibilities(x, case.mu[order], case.sharpness, case.kernel)
    slack = 1e-6 + case.sharpness * (x.shape[1] + 1) * 3e-7
    if apart(turned, z[:, order]) > slack:
        yield "permuting the basis does not permute z"


def em_holds(case: NumberCase) -> Iterator[str]:
    """Three iterations stay finite; mass is kept; the order of rows does not matter; a copy counts like a weight."""
    x, mu = sites.unit_rows(case.raw), case.mu
    for _ in range(3):
        stats = em.em_statistics(x, mu, case.sharpness, case.counted, case.kernel)
        yield from finite(mass=stats.mass, total=stats.total, objective=stats.objective)
        count = float(len(x) if case.counted is None else case.counted.sum())
        if abs(float(stats.mass.double().sum()) - count) > 1e-5 * count:
            yield f"mass is {float(stats.mass.sum())}, not {count}"
        yield from same_statistics(case, x, mu, stats.mass, stats.total)
        moved, alive = em.m_step(stats, mu, case.sphere)
        yield from finite(mu=moved)
        if not torch.equal(moved[alive == 0], mu.float()[alive == 0]):
            yield "a component without mass has moved"
        if float(moved.norm(dim=1).max()) > 1 + 1e-5:
            yield "a mean of unit rows is longer than one"
        effective = em.effective_components(stats.mass)
        if not 1 - 1e-9 <= effective <= len(mu) + 1e-6:
            yield f"{effective} of {len(mu)} components are effective"
        mu = moved


def same_statistics(case: NumberCase, x: Tensor, mu: Tensor, mass: Tensor, total: Tensor) -> Iterator[str]:
    """Rows in another order, and rows repeated as often as they count, give the same sums."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(case.seed))
    weight = None if case.counted is None else case.counted[order]
    slack = len(x) * 3 * (1e-6 + case.sharpness * (x.shape[1] + 1) * 3e-7)
    turned = em.em_statistics(x[order], mu, case.sharpness, weight, case.kernel)
    if max(apart(turned.mass, mass), apart(turned.total, total)) > slack:
        yield "the order of rows changes the sums"
    counted = torch.ones(len(x)) if case.counted is None else case.counted
    copies = x.repeat_interleave((2 * counted).long(), 0)
    doubled = em.em_statistics(copies, mu, case.sharpness, None, case.kernel)
    if max(apart(doubled.mass, 2 * mass), apart(doubled.total, 2 * total)) > 2 * slack:
        yield "a row that is there twice does not count twice"


def moments_hold(case: NumberCase) -> Iterator[str]:
    """Label distributions are distributions, near float64, and their variance is in two parts that are not negative."""
    z = em.responsibilities(sites.unit_rows(case.raw), case.mu, case.sharpness, case.kernel)
    p = moments.component_probabilities(case.mu, case.weight, case.bias, case.sigma)
    yield from finite(p=p)
    for q in (None, case.scores.softmax(1)):
        mean, between, within = moments.label_moments(z, p, q)
        yield from finite(mean=mean, between=between, within=within)
        exact, total = exact_moments(z, p, q)
        error = max(apart(mean, exact), apart(between + within, total))
        if error > CLOSE:
            yield f"the label distribution is {error:.1e} from float64"
        if apart(mean.double().sum(1), torch.ones(len(mean))) > CLOSE:
            yield "a label distribution does not sum to 1"
        if float(torch.minimum(between, within).min()) < 0:
            yield "a part of the variance is negative"
        yield from trust_holds(case, mean, between, within)


def trust_holds(case: NumberCase, mean: Tensor, between: Tensor, within: Tensor) -> Iterator[str]:
    """Weights are bounded; of equal scores the ids decide, whatever the order of rows."""
    weight = losses.inverse_variance((between + within).sum(1))
    yield from finite(weight=weight)
    if float(weight.min()) < 1 / losses.WEIGHT_RATIO - 1e-6 or float(weight.max()) > losses.WEIGHT_RATIO + 1e-5:
        yield f"a weight is outside of its range: {float(weight.min())} to {float(weight.max())}"
    score, label = moments.scalar_uncertainty(mean, between, within, "gini"), mean.argmax(1)
    uniform = torch.rand(len(score), generator=torch.Generator().manual_seed(case.seed), dtype=torch.float64)
    order = torch.randperm(len(score), generator=torch.Generator().manual_seed(case.seed + 1))
    trusted = trust(label, score, uniform, mean.shape[1])
    if not torch.equal(trust(label[order], score[order], uniform[order], mean.shape[1]), trusted[order]):
        yield "what is trusted depends on the order of rows"


def trust(label: Tensor, score: Tensor, uniform: Tensor, classes: int) -> Tensor:
    key = selection.order_key(score)
    high = selection.high_counts(label, key, classes)
    chosen, _ = selection.rank_bin(high, selection.ranks(high, 0.5))
    threshold, share = selection.threshold_of(high, selection.low_counts(label, key, chosen), 0.5)
    return selection.is_trusted(label, score, threshold, share, uniform)


def gradients_hold(case: NumberCase) -> Iterator[str]:
    """From rows to loss every gradient is finite, where a float32 can hold its true value."""
    n, classes = case.scores.shape
    holds = case.raw.dtype != torch.float16 and bool(case.raw.abs().max() > 1e-10)
    # As float32: a half cannot hold the gradient of a row of length 1e-7, a million times that of its direction.
    raw = case.raw.float().clone().requires_grad_(holds or case.sharpness <= 100)
    leaves = {"mu": case.mu, "weight": case.weight, "bias": case.bias, "scores": case.scores}
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in leaves.items()}
    z = em.responsibilities(sites.unit_rows(raw), leaves["mu"], case.sharpness, case.kernel)
    p = moments.component_probabilities(leaves["mu"], leaves["weight"], leaves["bias"], case.sigma)
    mean, between, within = moments.label_moments(z, p, leaves["scores"].softmax(1))
    label = torch.arange(n) % classes
    loss = -mean.gather(1, label.unsqueeze(1)).clamp_min(1e-12).log().mean() + losses.mean_variance(between, within)
    loss = loss + losses.class_balance(mean, torch.full((classes,), 1 / classes))
    loss = loss + losses.weighted_cross_entropy(leaves["scores"], mean.detach(), torch.ones(n))
    yield from finite(loss=loss)
    wanted = {**leaves, **({"rows": raw} if raw.requires_grad else {})}
    for name, gradient in zip(wanted, torch.autograd.grad(loss, list(wanted.values())), strict=True):
        yield from finite(**{f"the gradient of {name}": gradient})


RULES = (unit_rows_hold, responsibilities_hold, em_holds, moments_hold, gradients_hold)


# --- the same through the public estimator


def estimator_faults(seed: int) -> list[str]:
    """Fit and predict on degenerate rows: probabilities are finite, sum to one, and belong to rows, not to places."""
    from embasis import EMBasisClassifier

    x, y, options = estimator_case(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = EMBasisClassifier(**options, random_state=seed % 5).fit(x, y)
        found = model.label_distribution(x)
        order = np.random.default_rng(seed).permutation(len(x))
        turned = model.label_distribution(x[order])
        twice = model.predict_proba(np.concatenate([x, x]))
        again = EMBasisClassifier(**options, random_state=seed % 5).fit(x, y).predict_proba(x)
    faults = [f"{name} is not finite" for name, value in found._asdict().items() if not np.isfinite(value).all()]
    faults += ["a row does not sum to 1"] if abs(found.mean.sum(1) - 1).max() > 1e-6 else []
    same = all((getattr(found, name)[order] == getattr(turned, name)).all() for name in found._fields)
    faults += [] if same else ["a row's distribution depends on its place"]
    faults += [] if (twice == np.concatenate([found.mean, found.mean])).all() else ["a copy has other probabilities"]
    faults += [] if (again == found.mean).all() else ["the same seed gives another model"]
    tensors = model._model.progress.tensors()
    faults += [f"tensor {name} is not finite" for name, value in tensors.items() if not torch.isfinite(value).all()]
    facts = model.records_[-1].facts
    if options["method"] == "em_basis" and not 1 <= facts["effective"] <= len(model.basis_) + 1e-3:
        faults.append(f"{facts['effective']} of {len(model.basis_)} components are effective")
    return [f"estimator seed {seed} ({options}): {fault}" for fault in faults]


def estimator_case(seed: int) -> tuple[Any, Any, dict[str, Any]]:
    """Rows, labels with −1, and settings."""
    pick, draw = random.Random(seed), torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw)

    n, d, classes = pick.randint(6, 30), pick.choice((1, 2, 5)), pick.choice((2, 3))
    rows = shaped(pick.choice(SHAPES), normal, n, d, pick).double().numpy() * pick.choice((1e-30, 1.0, 1e30))
    kind = pick.choice((np.float64, np.float32))
    y = np.arange(n) % classes
    y[2 * classes :][np.random.default_rng(seed).random(n - 2 * classes) < 0.6] = -1
    method = pick.choice(("em_basis", "em_basis", "em_basis", "cbst", "pseudo_label"))
    options: dict[str, Any] = {"method": method, "rounds": pick.choice((0, 1, 2))}
    if method == "em_basis":
        options["sharpness"] = pick.choice((0.0, 0.0, 1.0, 1e6))
        options["settings"] = pick.choice((None, {"method.iterations": 2}, {"method.recalibration": "none"}))
    return rows.astype(kind), y, options
