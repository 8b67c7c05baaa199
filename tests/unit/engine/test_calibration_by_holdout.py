"""Recalibration by labelled rows that are held out, weighted to the unlabelled side."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from embasis.data.datasets.digit_sets import blobs
from embasis.engine.holdout import held_rows
from embasis.errors import ConfigError
from embasis.runs.precision import FEW_ANSWERS, caveats
from embasis.types import Arrays, Plan, Problem
from map_runs import run_maps
from training_runs import Run, built_for, run, toy

HALF = {"holdout": 0.4}


def overlapping(separation: float = 2.0) -> Problem:
    return blobs(count=600, shift=1.0, separation=separation)


def weighted(problem: Problem) -> Run:
    return run(problem, recalibration="weighted", plan=HALF)


def test_labels_say_how_often_they_are_right() -> None:
    plain = run(overlapping(1.5), recalibration="none", plan=HALF).records[-1].evaluation  # labels are too sure
    done = weighted(overlapping(1.5))
    found = done.records[-1].evaluation
    assert plain is not None
    assert found is not None
    assert found.ece < plain.ece
    assert done.records[-1].facts["expected_accuracy"] == pytest.approx(found.accuracy, abs=0.06)
    assert done.records[-1].facts["power"] != 1.0


def test_the_bins_are_of_held_out_rows_and_count_no_more_than_there_are() -> None:
    done = weighted(overlapping())
    support = done.progress.labeller["support"]
    held = int(held_rows(overlapping().labelled, done.built.plan).sum())
    assert 0.3 * held < float(support[:, 0].sum()) <= held + 1e-9
    assert float(support[:, 2].sum() / support[:, 0].sum()) == pytest.approx(
        float(support[:, 1].sum() / support[:, 0].sum()), abs=0.05
    )


def test_held_out_labels_that_are_all_wrong_take_all_sureness_away() -> None:
    """The power comes from held-out rows and from nothing else."""
    problem = overlapping()
    assert isinstance(problem.labelled, Arrays)
    held = held_rows(problem.labelled, Plan(**HALF))
    labels = torch.where(held, (problem.labelled.labels + 1) % 3, problem.labelled.labels)
    turned = replace(problem, labelled=Arrays(problem.labelled.x, labels, problem.labelled.ids))
    assert weighted(turned).records[0].facts["power"] < 0.1 < weighted(problem).records[0].facts["power"]


def test_a_precision_is_promised_by_held_out_rows_and_says_how_many_they_are() -> None:
    done = weighted(overlapping())
    mean = float(done.progress.labeller["expected_accuracy"])
    answers = round(float(done.progress.labeller["support"][:, 0].sum()))
    few = [f"the run could check its probabilities on {answers} labels only"] if answers < FEW_ANSWERS else []
    assert caveats(done.progress, 0.5, 0.6, mean) == few
    assert any("are right on held-out rows" in text for text in caveats(done.progress, 0.0, 0.999, mean))


def test_too_few_held_out_rows_recalibrate_nothing() -> None:
    done = run(toy(), recalibration="weighted", plan={"holdout": 0.1})
    assert "power" not in done.progress.labeller
    assert len(done.records) == 3


def test_label_maps_are_recalibrated_by_held_out_maps() -> None:
    done = run_maps(recalibration="weighted", plan={"holdout": 0.3})
    assert all(0 < record.facts["expected_accuracy"] <= 1 for record in done.records)
    assert all(0 < record.facts["power"] <= 8 for record in done.records)


def test_without_held_out_rows_it_is_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigError) as caught:
        built_for(toy(), recalibration="weighted")
    assert str(caught.value) == (
        "method.recalibration = weighted needs plan.holdout > 0 (labelled rows to check by), got 0.0"
    )
    assert ConfigError.exit_code == 2
