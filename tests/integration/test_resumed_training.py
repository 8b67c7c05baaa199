"""A run that stops after any step and goes on ends as if nothing had happened, and proof that this test can fail."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from attacked_runs import attacked
from embasis.engine import optimisers
from embasis.engine.calibration import REFERENCE
from embasis.engine.self_train import train_rounds
from embasis.engine.state import TrainState, flatten, unflatten
from embasis.errors import CorruptError
from embasis.runs.model import model_of_run
from embasis.runs.parts import RunParts
from training_runs import Saved, built_for, go_on, parts, problem_for, run_built, same, saved_moments, toy

SMALL = {"rounds": 2, "source_epochs": 2, "epochs": 2, "batch_size": 40}
LBFGS = {**SMALL, "optimiser": "lbfgs", "batch_size": 0}
RUNS: dict[str, dict[str, Any]] = {
    "adam": {"network": "mlp", "method": "em_basis", "parts": {"selector.labels": "draw"}, "plan": SMALL},
    "sgd": {"network": "mlp", "method": "cbst", "plan": {**SMALL, "optimiser": "sgd", "lr": 0.05}},
    "lbfgs": {"network": "linear", "method": "em_basis", "plan": LBFGS},
    "lbfgs with dropout": {"network": "mlp", "method": "cbst", "plan": LBFGS},
    "linear by adam": {"network": "linear", "method": "lrent", "plan": {**SMALL, "optimiser": "adam"}},
    "stage1": {"network": "mlp", "method": "em_basis", "parts": {"labeller.start": "StageOne"}, "plan": SMALL},
    "carry": {
        "network": "mlp",
        "method": "em_basis",
        "parts": {"labeller.start": "WarmStart"},
        "iterations": 2,
        "plan": SMALL,
    },
    "boosting": {"network": "hist_gradient_boosting", "method": "em_basis", "plan": {"rounds": 3, "holdout": 0.3}},
    "forest": {"network": "random_forest", "method": "lrent", "plan": {"rounds": 3}},
    "cnn": {"network": "small_cnn", "method": "cbst", "plan": {**SMALL, "rounds": 1, "batch_size": 100}},
}


@pytest.fixture(autouse=True, scope="module")
def _no_step_is_the_last_word() -> Iterator[None]:
    """With its usual 20 inner iterations L-BFGS is done after one step here, and the next ones would do nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimisers, "LBFGS_STEPS", 2)
        yield


def fresh(name: str) -> RunParts:
    settings = RUNS[name]
    return built_for(problem_for(settings["network"]), **settings)


@functools.cache
def undisturbed(name: str) -> tuple[Saved, ...]:
    return tuple(saved_moments(fresh(name)))


@pytest.mark.parametrize("name", list(RUNS))
def test_a_run_that_goes_on_after_any_step_ends_bit_for_bit_as_the_undisturbed_one(name: str) -> None:
    moments = undisturbed(name)
    assert len(moments) >= 8
    for number, saved in enumerate(moments):
        assert go_on(saved, fresh(name)).same(moments[-1]), f"moment {number} of {len(moments)}"


def test_a_run_that_stops_after_every_step_ends_as_the_undisturbed_one() -> None:
    saved = undisturbed("adam")[0]
    for expected in undisturbed("adam")[1:]:
        built = fresh("adam")
        saved = Saved.of(
            next(train_rounds(built.problem, built.network, built.method, built.plan, saved.restore(built))).state
        )
        assert saved.same(expected)


@pytest.mark.parametrize("name", list(RUNS))
def test_what_was_just_restored_can_be_saved_again_unchanged(name: str) -> None:
    for saved in undisturbed(name):
        assert Saved.of(saved.restore(fresh(name))).same(saved)


# --- the proof that the tests above are not blind: drop one thing on restoring, and the end differs


def in_round(name: str, number: int) -> list[Saved]:
    """The moments inside a round, after at least one step."""
    return [saved for saved in undisturbed(name) if saved.cursor[:2] == (number, 1)]


def drop_optimiser(progress: TrainState) -> None:
    progress.restored_optimisers = {}


def drop_cursor(progress: TrainState) -> None:
    progress.epoch = progress.step = 0


def drop_epoch(progress: TrainState) -> None:
    progress.epoch = 0


def drop_round(progress: TrainState) -> None:
    progress.round = 0


def drop_pseudo_labels(progress: TrainState) -> None:
    progress.pseudo = None


def drop_labels(progress: TrainState) -> None:
    progress.labels = None


def drop_loss(progress: TrainState) -> None:
    progress.loss_sum, progress.loss_count = 0.0, 0


def drop_weights(progress: TrainState) -> None:
    progress.network.load_state_dict(fresh("adam").network.state_dict())


@pytest.mark.parametrize("name", ["adam", "sgd", "lbfgs", "lbfgs with dropout", "cnn"])
@pytest.mark.parametrize(
    "spoil", [drop_optimiser, drop_cursor, drop_epoch, drop_round, drop_pseudo_labels, drop_labels, drop_loss]
)
def test_dropping_any_part_of_the_state_gives_another_end(name: str, spoil: Callable[[TrainState], None]) -> None:
    saved = in_round(name, 1)[0]
    if name == "lbfgs" and spoil is drop_optimiser:  # a linear network is solved at once: nothing is left to remember
        assert not any(key.startswith("optimiser/") for key in saved.tensors)
        return
    assert not go_on(saved, fresh(name), spoil).same(undisturbed(name)[-1])


@pytest.mark.parametrize("spoil", [drop_optimiser, drop_cursor, drop_epoch, drop_pseudo_labels, drop_weights])
def test_dropping_what_training_reads_gives_other_weights(spoil: Callable[[TrainState], None]) -> None:
    end, spoilt = undisturbed("adam")[-1], go_on(in_round("adam", 1)[0], fresh("adam"), spoil)
    names = [name for name in end.tensors if name.startswith("network/")]
    assert not all(torch.equal(end.tensors[name], spoilt.tensors[name]) for name in names)


def drop_basis(progress: TrainState) -> None:
    progress.labeller = {name: value for name, value in progress.labeller.items() if name in REFERENCE}


def drop_reference_labels(progress: TrainState) -> None:
    progress.labeller = {name: value for name, value in progress.labeller.items() if name not in REFERENCE}


def test_reference_labels_that_are_computed_too_late_give_another_end() -> None:
    assert not go_on(in_round("adam", 1)[0], fresh("adam"), drop_reference_labels).same(undisturbed("adam")[-1])


@pytest.mark.parametrize("name", ["carry", "stage1"])
def test_dropping_the_basis_gives_another_end_where_a_round_starts_from_the_last_one(name: str) -> None:
    assert not go_on(in_round(name, 1)[0], fresh(name), drop_basis).same(undisturbed(name)[-1])


def test_a_basis_that_starts_from_class_means_in_every_round_does_not_read_the_old_one() -> None:
    assert go_on(in_round("adam", 1)[0], fresh("adam"), drop_basis).same(undisturbed("adam")[-1])


def test_a_finished_run_predicts_with_its_basis_and_not_with_an_older_one() -> None:
    x, end = toy().unlabelled.inputs(torch.arange(90)), undisturbed("adam")[-1]
    expected, built = parts(run_built(fresh("adam")).model.label(x)), fresh("adam")
    restored = end.restore(built)
    assert same(expected, parts(model_of_run(built, restored).label(x)))
    older = next(saved for saved in undisturbed("adam") if saved.cursor == (1, 0, 0))
    stale = replace(restored, labeller=older.restore(fresh("adam")).labeller)
    assert not same(expected, parts(model_of_run(built, stale).label(x)))
    with pytest.raises(CorruptError, match=r"^the labeller's state lacks centre, scale, mu, "):
        model_of_run(built, replace(restored, labeller={})).label(x)


def test_the_best_round_survives_a_stop_before_the_collapse() -> None:
    moments = saved_moments(attacked(turn=2))
    for saved in moments:
        assert go_on(saved, attacked(turn=2)).same(moments[-1])


def test_a_collapse_without_the_best_round_cannot_be_rolled_back() -> None:
    def drop_best(progress: TrainState) -> None:
        progress.best = {}

    def stale_best(progress: TrainState) -> None:
        progress.best_round, progress.best_score = 0, 0.5

    moments = saved_moments(attacked(turn=2))
    inside = next(saved for saved in moments if saved.cursor[0] == 2)
    with pytest.raises(CorruptError) as caught:
        go_on(inside, attacked(turn=2), drop_best)
    assert str(caught.value) == "there is no round to roll back to"
    assert not go_on(inside, attacked(turn=2), stale_best).same(moments[-1])


# --- saved progress that does not fit


def test_progress_of_another_network_is_refused() -> None:
    with pytest.raises(CorruptError, match="the saved progress does not fit this run"):
        undisturbed("adam")[-1].restore(fresh("lbfgs"))


def test_progress_without_one_of_its_facts_is_refused() -> None:
    saved = undisturbed("adam")[3]
    with pytest.raises(CorruptError, match="the saved progress does not fit this run"):
        replace(saved, facts=saved.facts.replace('"epoch"', '"era"')).restore(fresh("adam"))


@pytest.mark.parametrize("tree", [{"a": {"b": [1, [], {"c": 2.5}]}, "d": None}, {}, {"0": {"old_dirs": []}}])
def test_flat_trees_grow_back(tree: dict[str, Any]) -> None:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flatten(key, value, flat)
    assert unflatten(flat) == tree
