"""Whether both sides of a problem come from one place: then they share their scales (decision 0037).

Standardising each side by itself evens out what differs between two places. Where nothing but the class shares does, it
is wrong: the side with more rows of a class is shifted towards it, and every label with it. So the sides are compared
before anything is standardised; what is found holds for all methods.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from embasis.functional.domain_shift import DomainComparison, compare_domains
from embasis.functional.sites import centre_and_scale, domain_sums, standardise, unit_rows
from embasis.randomness import generator, uniforms
from embasis.types import Problem, Samples

MOST_COMPARED, MOST_COLUMNS = 600, 128
"""Of each side; class shares are told by so many mixtures of more columns."""
LEAST_COMPARED = 20
"""With fewer on a side nothing can be said."""
FAR = 5.0
"""Standard deviations beyond which a value counts as so far."""
WORTH_NAMING = 0.1
"""Class shares that moved by less are not worth a sentence."""
MOST_MOVED_NAMED = 3
"""Classes that a sentence names."""
PURPOSE = "compare sides"


def compare_sides(problem: Problem) -> DomainComparison | None:
    """How well the two sides of vectors are told apart; None where there are too few rows, or one class alone.

    The rows, the halves and the mixtures are drawn by the ids, not by the run's seed: it is a fact of the data."""
    labelled, unlabelled = draw_rows(problem.labelled), draw_rows(problem.unlabelled)
    y = problem.labelled.labels[labelled]
    if min(len(labelled), len(unlabelled)) < LEAST_COMPARED or len(torch.unique(y)) < 2:
        return None
    rows = torch.cat([problem.labelled.inputs(labelled), problem.unlabelled.inputs(unlabelled)])
    x = standardise_clipped(rows.flatten(1).double())
    half = torch.cat([draw_half(problem.labelled, labelled), draw_half(problem.unlabelled, unlabelled)])
    return compare_domains(unit_rows(x), y, add_squares(x), len(problem.schema), half)


def draw_rows(samples: Samples) -> Tensor:
    """Numbers of at most MOST_COMPARED rows, those of the smallest keys."""
    keys = uniforms(samples.ids, 0, PURPOSE, 0)
    return torch.argsort(keys, stable=True)[:MOST_COMPARED]


def draw_half(samples: Samples, rows: Tensor) -> Tensor:
    """(n) 0 or 1: every other row in the order of another key, so that both halves have as many."""
    order = torch.argsort(uniforms(samples.ids[rows], 0, PURPOSE, 1), stable=True)
    half = torch.zeros(len(rows), dtype=torch.int64)
    half[order[1::2]] = 1
    return half


def add_squares(x: Tensor) -> Tensor:
    """(n, d) standardised numbers, or MOST_COLUMNS mixtures of them, and their squares beside them."""
    if x.shape[1] > MOST_COLUMNS:
        mixture = torch.randn(x.shape[1], MOST_COLUMNS, generator=generator(0, PURPOSE), dtype=torch.float64)
        x = standardise_clipped(x @ mixture)
    return torch.cat([x, standardise_clipped(x.square())], 1)


def standardise_clipped(x: Tensor) -> Tensor:
    """Columns of mean 0 and deviation 1, with values beyond FAR brought back to it."""
    return standardise(x, *centre_and_scale(*domain_sums(x))).double().clamp(-FAR, FAR)


def recognise_one_domain(problem: Problem) -> Problem:
    """The problem as one of a single domain where its sides differ in nothing but, perhaps, their class shares."""
    comparison = None if problem.same_domain or not len(problem.unlabelled) else compare_sides(problem)
    return as_one_domain(problem, comparison) if comparison is not None and comparison.is_alike else problem


def as_one_domain(problem: Problem, comparison: DomainComparison | None) -> Problem:
    """The problem as one of a single domain, with a note of what was found."""
    notes = () if comparison is None else (describe_one_domain(problem, comparison),)
    return replace(problem, same_domain=True, notes=(*problem.notes, *notes))


def describe_one_domain(problem: Problem, comparison: DomainComparison) -> str:
    """What was found, in a sentence for the user."""
    measured = f"neighbours tell them apart with AUROC {max(comparison.auroc, 0.5):.2f}, where 0.5 is chance"
    alike = f"the two sides look alike ({measured})"
    rest = "so they are standardised together; standardise=domain does each by itself"
    if comparison.moved < WORTH_NAMING:
        return f"{alike}, {rest}"
    change = (comparison.shares - comparison.prior).abs()
    named = torch.argsort(change, descending=True, stable=True)[:MOST_MOVED_NAMED].tolist()
    shares = ", ".join(
        f"{problem.schema.names[each]} {float(comparison.prior[each]):.0%} → about {float(comparison.shares[each]):.0%}"
        for each in named
    )
    return f"{alike}, but their class shares seem to differ ({shares}), {rest}"
