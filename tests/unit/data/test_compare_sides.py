"""Both sides of a problem are compared before anything is standardised."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from embasis.config import load
from embasis.data.compare_sides import compare_sides, recognise_one_domain
from embasis.engine.self_train import train_rounds
from embasis.runs.parts import build
from embasis.types import Arrays, LabelSchema, Problem

CLASSES, FEATURES = 3, 6


def sides(shares: tuple[float, ...], shift: float = 0.0, rows: int = 400, seed: int = 0) -> Problem:
    """Labelled rows of three classes in equal parts; unlabelled ones with these class shares, and shifted."""
    draw = torch.Generator().manual_seed(seed)
    centre = torch.randn(CLASSES, FEATURES, generator=draw) * 1.5
    y = torch.arange(rows) % CLASSES
    hidden = torch.multinomial(torch.tensor(shares), rows, True, generator=draw)
    x, u = (centre[labels] + torch.randn(rows, FEATURES, generator=draw) for labels in (y, hidden))
    unlabelled = Arrays.of(u * (1 + shift) + shift)
    return Problem(Arrays.of(x, y), unlabelled, LabelSchema(("ant", "bee", "fly")), hidden_labels=hidden)


def test_moved_class_shares_are_recognised_and_the_user_is_told() -> None:
    problem = recognise_one_domain(sides((0.8, 0.1, 0.1)))
    assert problem.same_domain
    found = compare_sides(problem)
    assert found is not None
    (note,) = problem.notes
    ant, bee, fly = (f"{float(share):.0%}" for share in found.shares)
    first, second = sorted((("bee", bee), ("fly", fly)), key=lambda pair: int(pair[1][:-1]))
    assert note == (
        f"the two sides look alike (neighbours tell them apart with AUROC {max(found.auroc, 0.5):.2f}, where 0.5 is "
        f"chance), but their class shares seem to differ (ant 34% → about {ant}, {first[0]} 33% → about {first[1]}, "
        f"{second[0]} 33% → about {second[1]}), so they are standardised together; standardise=domain does each by "
        "itself"
    )
    assert abs(float(found.shares[0]) - 0.8) < 0.05


def test_sides_of_one_place_are_recognised() -> None:
    problem = recognise_one_domain(sides((1.0, 1.0, 1.0)))
    assert problem.same_domain
    assert problem.notes[0].endswith(
        "where 0.5 is chance), so they are standardised together; standardise=domain does each by itself"
    )


@pytest.mark.parametrize("shares", [(1.0, 1.0, 1.0), (0.8, 0.1, 0.1)])
def test_sides_of_two_places_stay_two(shares: tuple[float, ...]) -> None:
    problem = sides(shares, shift=1.0)
    assert recognise_one_domain(problem) is problem


@pytest.mark.parametrize("rows", [3, 19])
def test_of_few_rows_nothing_is_said(rows: int) -> None:
    problem = sides((1.0, 1.0, 1.0), rows=rows)
    assert compare_sides(problem) is None
    assert recognise_one_domain(problem) is problem


def test_one_class_alone_and_constant_columns_are_no_error() -> None:
    problem = sides((1.0, 1.0, 1.0))
    one = replace(problem, labelled=Arrays.of(torch.zeros(30, FEATURES), torch.zeros(30, dtype=torch.int64)))
    assert compare_sides(one) is None
    flat = replace(problem, labelled=Arrays.of(torch.zeros(30, FEATURES), torch.arange(30) % 2))
    found = compare_sides(flat)
    assert found is not None
    assert not found.is_alike


def test_columns_that_say_nothing_hide_no_class_shares_and_make_no_two_places() -> None:
    problem = sides((0.8, 0.1, 0.1))
    noise = torch.randn(800, 20, generator=torch.Generator().manual_seed(3))
    here, there = problem.labelled.inputs(torch.arange(400)), problem.unlabelled.inputs(torch.arange(400))
    wide = torch.cat([torch.cat([here, there]), noise], 1)
    labelled, unlabelled = Arrays.of(wide[:400], problem.labelled.labels), Arrays.of(wide[400:])
    found = compare_sides(replace(problem, labelled=labelled, unlabelled=unlabelled))
    assert found is not None
    assert found.is_alike
    assert float(found.shares[0]) > 0.5


def accuracy(problem: Problem, **top: str) -> float:
    built = build(problem, load(top=dict(top), method={"name": "em_basis"}))
    *_, last = train_rounds(built.problem, built.network, built.method, built.plan)
    assert last.record is not None
    assert last.record.evaluation is not None
    return last.record.evaluation.accuracy


def test_what_is_recognised_saves_labels_that_scales_of_each_side_would_have_cost() -> None:
    problem = sides((0.9, 0.05, 0.05), seed=2)
    assert accuracy(problem) > accuracy(problem, standardise="domain") + 0.1


def test_settings_say_what_was_found() -> None:
    alike = build(sides((0.8, 0.1, 0.1)), load()).resolved
    assert (alike["standardise"], alike["parts"], alike["plan"]["harm_limit"]) == (
        "joint",
        {"labeller.mixture.centring": "joint"},
        2.0,
    )
    apart = build(sides((0.8, 0.1, 0.1), shift=1.0), load()).resolved
    assert (apart["standardise"], apart.get("parts"), apart["plan"]["harm_limit"]) == ("domain", None, 0.0)
    asked = build(sides((0.8, 0.1, 0.1)), load(top={"standardise": "domain"})).resolved
    assert (asked["standardise"], asked.get("parts"), asked["plan"]["harm_limit"]) == ("domain", None, 0.0)
