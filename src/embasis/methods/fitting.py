"""How the EM labeller fits: on which features, how fine, by which steps, and whether anything has changed since."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from embasis.distributed import all_sum
from embasis.functional import em, sites
from embasis.functional.losses import one_hot
from embasis.functional.metrics import kappa
from embasis.types import EMStats, Features, Stream

SHARPNESS_ROWS = 4096
"""Unlabelled rows by which the sharpness is set."""
HEAD_STEPS = 30
CERTAIN = 1e-12
"""The least that is said of a class: what a labelled site's other classes are."""
ALIGNED = 16
"""Chunks begin at a multiple of so many rows, as memory of their own would: a product may round by where rows lie."""


def components_for(rows: int) -> int:
    """How finely a class of so many rows is cut: in three; from 1,024 rows on in four, and so on, up to eight."""
    return max(3, min(8, rows.bit_length() - 7))


def leading(parts: Iterable[Tensor]) -> Tensor:
    """The first SHARPNESS_ROWS rows; hardly more than these are copied."""
    taken, count = list[Tensor](), 0
    for part in parts:
        taken.append(part)
        count += len(part)
        if count >= SHARPNESS_ROWS:
            break
    return torch.cat(taken)[:SHARPNESS_ROWS]


def is_unlabelled(part: Features) -> bool:
    """Whether a chunk, which is of one side, is of the unlabelled one."""
    return len(part) > 0 and int(part.y[0]) < 0


def mean_entropy(stream: Stream, z: Iterable[Tensor], p: Tensor) -> float:
    """Of the basis's own label distributions z·p on unlabelled rows."""
    entropies, rows = 0.0, 0.0
    for each, part in zip(z, stream, strict=True):
        if not is_unlabelled(part):
            continue
        found = torch.special.entr(each @ p)
        entropies += float(found.sum() if part.weight is None else part.weight @ found.sum(1))
        rows += len(part) if part.weight is None else float(part.weight.double().sum())
    return entropies / rows


def labelled_shares(stream: Stream, classes: int) -> Tensor:
    """(C) class shares of the labelled side, each class with half a site more."""
    y, weight = torch.cat([part.y for part in stream]), torch.cat([part.shares for part in stream])
    counts = torch.bincount(y[y >= 0], weight[y >= 0].double(), classes) + 0.5
    return counts / counts.sum()


def domain_statistics(stream: Stream, centring: str) -> tuple[Tensor, Tensor]:
    """(2, d) centres and scales: of each side ("domain"), of both together ("joint"), or none."""
    width, rows = stream[0].x.shape[1], [(part.x, part.y) for part in stream]
    if centring == "none":
        return torch.zeros(2, width, dtype=torch.float64), torch.ones(2, width, dtype=torch.float64)
    sums = [
        [all_sum(value) for value in sites.summed((x[(y < 0) == side] for x, y in rows), len(stream), width)]
        for side in (False, True)
    ]
    if centring == "joint" or not float(sums[1][0]):
        both = [sums[0][i] + sums[1][i] for i in range(3)]
        sums = [both, both]
    pairs = [sites.centre_and_scale(*side) for side in sums]
    return torch.stack([pair[0] for pair in pairs]), torch.stack([pair[1] for pair in pairs])


def prepare(features: Features, centre: Tensor, scale: Tensor) -> Tensor:
    """Features centred and scaled by their side, of unit length."""
    side = (features.y < 0).long()
    side = side[:1] if bool((side == side[:1]).all()) else side
    return sites.unit_rows(((features.x.double() - centre[side]) / scale[side]).float())


def prepared(stream: Stream, centre: Tensor, scale: Tensor) -> list[Tensor]:
    """Every chunk prepared, all in one block of memory: by themselves they lie between gaps of their own size."""
    sizes = [-(-len(part) // ALIGNED) * ALIGNED for part in stream]
    places = torch.empty(sum(sizes), stream[0].x.shape[1]).split(sizes)
    return [place[: len(part)].copy_(prepare(part, centre, scale)) for place, part in zip(places, stream, strict=True)]


def weights_of(stream: Stream) -> Tensor | None:
    """The weights of all sites; None if each stands for itself."""
    plain = all(part.weight is None for part in stream)
    return None if plain else torch.cat([part.shares for part in stream])


def fingerprint(stream: Stream, scores: bool = False) -> Tensor:
    """(32) uint8: sha256 over features and labels, and the network's scores where they matter."""
    digest = hashlib.sha256()
    for part in stream:
        digest.update(f"{part.x.dtype} {tuple(part.x.shape)}".encode())
        columns = [part.x, part.y] + ([] if part.weight is None else [part.weight]) + ([part.scores] if scores else [])
        for column in columns:
            digest.update(column.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


@dataclass(frozen=True, eq=False)
class Said:
    """What is known of every site beside its features, and which class each component is of."""

    classes: list[Tensor]
    """(n, C) for each chunk: log of how likely each class is"""
    owner: Tensor


def owners(rows: list[Tensor], stream: Stream, mu: Tensor, sharpness: float, kernel: str, classes: int) -> Tensor:
    """(K) the class that each component of an unnamed basis is of: the one with most of its labelled mass."""
    counts = torch.zeros(len(mu), classes)
    for row, part in zip(rows, stream, strict=True):
        known = part.y >= 0
        z = em.responsibilities(row[known], mu, sharpness, kernel)
        counts += z.T @ one_hot(part.y[known], classes)
    return all_sum(counts).argmax(1)


def opinions(labels: Iterable[tuple[Tensor, Features]], classes: int) -> tuple[float, float, float]:
    """Cohen's κ of the basis's labels and the network's over unlabelled sites (1 where there is none), and the share of
    labelled sites that each has right."""
    counts, right, known = torch.zeros(classes**2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64), 0.0
    for label, part in labels:
        other, share = part.scores.argmax(1), part.shares.double()
        if is_unlabelled(part):
            counts += torch.bincount(label * classes + other, share, classes**2)
        else:
            right += torch.stack([share @ (found == part.y).double() for found in (label, other)])
            known += float(share.sum())
    counts, right, total = all_sum(counts), all_sum(right), float(all_sum(torch.tensor(known)))
    agreement = kappa(counts.view(classes, classes)) if float(counts.sum()) else 1.0
    return agreement, float(right[0]) / max(total, 1.0), float(right[1]) / max(total, 1.0)


def moved_by_em(
    rows: list[Tensor],
    labelled: list[Tensor],
    mu: Tensor,
    sharpness: float,
    iterations: int,
    kernel: str,
    said: Said | None = None,
) -> tuple[Tensor, EMStats, Tensor]:
    """The basis after so many iterations, the last statistics, and which components have mass."""
    beside: list[Tensor | None] = [None] * len(rows) if said is None else [*said.classes]
    owner = None if said is None else said.owner
    weights = em.domain_weights(torch.cat(labelled)).split([len(flag) for flag in labelled])
    for _ in range(max(iterations, 1)):
        parts = [
            em.em_statistics(row, mu, sharpness, weight, kernel, said=word, owner=owner)
            for row, weight, word in zip(rows, weights, beside, strict=True)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        stats = EMStats(all_sum(total.mass), all_sum(total.total), all_sum(total.objective))
        moved, alive = em.m_step(stats, mu, sphere=kernel == "dot")
        mu = moved if iterations else mu
    return mu, stats, alive


def minimise(objective: Callable[[Tensor, Tensor], Tensor], weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The smooth objective's minimum by L-BFGS from the given start."""
    weight, bias = weight.clone().requires_grad_(True), bias.clone().requires_grad_(True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=HEAD_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = objective(weight, bias)
        torch.autograd.backward(loss)
        return loss

    optimiser.step(closure)
    return weight.detach(), bias.detach()
