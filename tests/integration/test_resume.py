"""A run folder: whoever walks away after any moment and comes back ends with the same bytes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from embasis.engine import train
from embasis.engine.self_train import train_rounds
from embasis.engine.state import TrainState
from embasis.errors import ConfigError, CorruptError, InputDataError, RunLockedError
from embasis.runs import run as folder
from embasis.runs.model import load_model
from embasis.runs.parts import build
from embasis.storage import RunFolder, read_newest
from embasis.types import Arrays, LabelSchema, Problem
from folder_runs import config, digests, go
from storage_runs import do_not_wait, tree
from training_runs import toy

METHODS = ("em_basis", "cbst")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk, and no figures: drawing them takes ten times as long as the run."""
    do_not_wait(monkeypatch)
    monkeypatch.setattr(folder, "run_page", lambda view: f"<p>{len(view.rounds)} rounds, {view.status}</p>")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, str]]:
    @functools.cache
    def of(method: str, save_seconds: float = 0.0) -> dict[str, str]:
        path = tmp_path_factory.mktemp("undisturbed") / method
        go(path, config(method=method, save_seconds=save_seconds))
        return digests(path)

    return of


def moments_in_all(method: str) -> int:
    built = build(toy(), config(method=method))
    return sum(1 for _ in train_rounds(built.problem, built.network, built.method, built.plan))


def test_a_run_writes_all_its_artefacts(undisturbed: Any) -> None:
    names = undisturbed("em_basis").keys()
    rounds = {f"labels/round-00{number}.parquet" for number in range(3)}
    assert {"config.json", "environment.json", "rounds.jsonl", "quarantine.jsonl", "facts", *rounds} <= names
    assert "tensor labeller/mu" in names


@pytest.mark.parametrize("save_seconds", [0.0, 1e9])
@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_is_left_after_any_moment_ends_as_the_undisturbed_one(
    tmp_path: Path, undisturbed: Any, method: str, save_seconds: float
) -> None:
    settings = config(method=method, save_seconds=save_seconds)
    for stop in (1, 5, 7, 10, moments_in_all(method) - 1, moments_in_all(method)):
        path = tmp_path / f"left-{stop}"
        go(path, settings, stop_after=stop)
        go(path, settings)
        assert digests(path) == undisturbed(method, save_seconds), f"left after {stop} moments"


def test_a_run_that_is_left_again_and_again_ends_as_the_undisturbed_one(tmp_path: Path, undisturbed: Any) -> None:
    resumed = []
    for _ in range(100):
        run = go(tmp_path / "run", config(), stop_after=3)
        resumed.append(run.resumed)
        if run.model is not None:
            break
    assert len(resumed) > 4
    assert digests(tmp_path / "run") == undisturbed("em_basis")


def test_a_step_is_repeated_only_if_it_was_not_saved(tmp_path: Path) -> None:
    go(tmp_path / "run", config(), stop_after=4)
    before = read_newest(tmp_path / "run").facts["progress"]
    run = go(tmp_path / "run", config(), stop_after=1)
    assert run.resumed is not None
    assert run.resumed.facts["progress"] == before
    after = read_newest(tmp_path / "run").facts["progress"]
    assert after["loss_count"] == before["loss_count"] + 1


def test_a_finished_run_does_nothing_again(tmp_path: Path) -> None:
    go(tmp_path / "run", config())
    before = tree(tmp_path / "run")
    run = go(tmp_path / "run", config())
    assert run.model is not None
    assert tree(tmp_path / "run") == before


def test_how_often_a_run_saves_may_change(tmp_path: Path, undisturbed: Any) -> None:
    go(tmp_path / "run", config(save_seconds=7.0), stop_after=7)
    go(tmp_path / "run", config())
    expected = undisturbed("em_basis")
    assert {name for name, value in digests(tmp_path / "run").items() if value != expected[name]} == {"config.json"}


def test_a_stored_model_labels_as_the_finished_run_does(tmp_path: Path) -> None:
    run = go(tmp_path / "run", config())
    newest = read_newest(tmp_path / "run")
    x = toy().unlabelled.inputs(torch.arange(40))
    assert run.model is not None
    left, right = run.model.label(x), load_model(newest.facts, newest.tensors, tmp_path / "run").label(x)
    assert torch.equal(left.distribution.mean, right.distribution.mean)
    assert torch.equal(left.pseudo.label, right.pseudo.label)


# --- refusals


@pytest.mark.parametrize(
    ("word", "change"),
    [
        ("rounds=3", "plan.rounds: 2 → 3"),
        ("seed=6", "seed: 5 → 6"),
        ("keep_first=0.3", "method.keep_first: 0.2 → 0.3"),
        ("hidden=8", "network.hidden: 16 → 8"),
        ("standardise=none", "standardise: 'domain' → 'none'"),
    ],
)
def test_other_settings_are_refused_and_nothing_is_changed(tmp_path: Path, word: str, change: str) -> None:
    go(tmp_path / "run", config(), stop_after=3)
    before = tree(tmp_path / "run")
    with pytest.raises(ConfigError) as caught:
        go(tmp_path / "run", config(word))
    assert str(caught.value) == (
        f"the run folder was begun with other settings: {change}; "
        f"use another folder, the old settings, or --allow-change {change.partition(':')[0]}"
    )
    assert tree(tmp_path / "run") == before


def other_data() -> dict[str, tuple[Problem, str]]:
    problem = toy()
    x, y, u = problem.labelled.inputs(torch.arange(90)), problem.labelled.labels, problem.unlabelled
    moved = x.clone()
    moved[17, 3] += 1e-3
    assert problem.hidden_labels is not None
    return {
        "a value": (
            replace(problem, labelled=Arrays.of(moved, y)),
            "labelled (0 added, 0 removed, 1 edited: 'row 17')",
        ),
        "a label": (
            replace(problem, labelled=Arrays.of(x, torch.where(torch.arange(90) == 17, (y + 1) % 3, y))),
            "labelled (0 added, 0 removed, 1 edited: 'row 17')",
        ),
        "a row": (
            replace(problem, unlabelled=Arrays.of(u.inputs(torch.arange(89))), hidden_labels=None),
            "labels, unlabelled (0 added, 1 removed, 0 edited: 'row 89')",
        ),
        "ids": (
            replace(problem, unlabelled=Arrays.of(u.inputs(torch.arange(90)), ids=u.ids + 80)),
            "unlabelled (80 added, 80 removed, 10 edited: 'row 90', 'row 91', 'row 92', 'row 93', 'row 94', "
            "'row 95', 'row 96', 'row 97', 'row 98', 'row 99' and 160 more)",
        ),
        "names": (replace(problem, schema=LabelSchema(("a", "b", "c"))), "labels"),
        "hidden labels": (replace(problem, hidden_labels=problem.hidden_labels.roll(1)), "labels"),
        "test rows": (replace(problem, test=Arrays.of(x, y)), "test"),
    }


@pytest.mark.parametrize("change", list(other_data()))
def test_other_data_are_refused_and_nothing_is_changed(tmp_path: Path, change: str) -> None:
    problem, sides = other_data()[change]
    go(tmp_path / "run", config(), stop_after=3)
    before = tree(tmp_path / "run")
    with pytest.raises(InputDataError) as caught:
        go(tmp_path / "run", config(), problem=problem)
    assert str(caught.value) == (
        f"the data have changed since the run began: {sides}; use another folder, the old data, or --accept-data-change"
    )
    assert tree(tmp_path / "run") == before


def test_two_runs_in_one_folder_are_one_too_many(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run"), pytest.raises(RunLockedError, match="is locked by pid"):
        go(tmp_path / "run", config())


# --- the proof that these tests are not blind


def forget(**changes: Any) -> Callable[[TrainState], None]:
    return lambda progress: vars(progress).update(changes)


MUTATIONS: dict[str, Callable[[TrainState], None]] = {
    "the optimiser": forget(restored_optimisers={}),
    "the cursor": forget(epoch=0, step=0),
    "the step": forget(step=0),
    "the pseudo-labels": forget(pseudo=None),
    "the basis": forget(labeller={}),
    "the last labels": forget(labels=None),
    "the loss so far": forget(loss_sum=0.0, loss_count=0),
    "the records": forget(records=[]),
}


@pytest.mark.parametrize("what", list(MUTATIONS))
def test_a_resume_that_forgets_something_ends_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Any, what: str
) -> None:
    expected, whole = undisturbed("em_basis"), TrainState.restore
    seven = 2 * 3 + 1  # source training is six steps and its labels: the next moments are inside round 1
    go(tmp_path / "run", config(), stop_after=seven + 4)

    def careless(*arguments: Any) -> TrainState:
        progress = whole(*arguments)
        assert (progress.round, progress.epoch, progress.step) == (1, 1, 1)
        MUTATIONS[what](progress)
        return progress

    monkeypatch.setattr(TrainState, "restore", careless)
    go(tmp_path / "run", config())
    assert digests(tmp_path / "run") != expected


def test_a_resume_whose_draws_hang_on_the_process_ends_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout from torch's own generator, as most trainers have it: a new process begins it anew."""
    monkeypatch.setattr(train, "seeded", lambda *_: contextlib.nullcontext())

    def start(path: Path, stop_after: int | None = None) -> dict[str, str]:
        torch.manual_seed(0)
        go(path, config(), stop_after)
        return digests(path)

    assert start(tmp_path / "one") == start(tmp_path / "two")
    start(tmp_path / "run", stop_after=11)
    assert start(tmp_path / "run") != digests(tmp_path / "one")


def test_the_same_resume_that_forgets_nothing_ends_alike(tmp_path: Path, undisturbed: Any) -> None:
    go(tmp_path / "run", config(), stop_after=11)
    go(tmp_path / "run", config())
    assert digests(tmp_path / "run") == undisturbed("em_basis")


def test_a_generation_without_its_facts_is_refused(tmp_path: Path) -> None:
    go(tmp_path / "run", config(), stop_after=3)
    newest = read_newest(tmp_path / "run")
    facts = {**newest.facts, "progress": {"round": 0}}
    with RunFolder(tmp_path / "run") as opened:
        opened.publish(newest.tensors, facts)
    with pytest.raises(CorruptError, match="the run's facts are damaged: Object missing required field `epoch` - at "):
        go(tmp_path / "run", config())
