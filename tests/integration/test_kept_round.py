"""Scores of rounds, and the round that is kept by them."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from attacked_runs import attacked
from cli_tables import embasis, write_tables
from embasis.api.classifier import EMBasisClassifier
from embasis.data.datasets.digit_sets import blobs
from embasis.engine import round as round_module
from embasis.engine import scores, self_train
from embasis.engine.holdout import cross_fit_weights
from embasis.engine.labels import BoundSelector, LabelBatch
from embasis.engine.scores import LabelSummary
from embasis.engine.self_train import train_rounds
from embasis.errors import ConfigError
from embasis.functional.validation import neighbourhood_density
from embasis.methods.selectors import SelectNone
from embasis.runs.checkpoint import read_run_view
from embasis.storage import read_newest, read_stored_table
from embasis.types import LabelDistribution, Plan, Problem
from embasis.types.plans import CHOICES
from folder_runs import config, digests, go
from map_folder_runs import fitted, sides
from map_runs import built_maps, kept_moments, run_built_maps, run_maps
from storage_runs import make_runs_fast
from training_runs import built_for, go_on, parts, run, run_built, same, same_round_labels, saved_moments, toy

HALF = {"holdout": 0.4}


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def scripted(monkeypatch: pytest.MonkeyPatch, name: str, values: list[float]) -> None:
    """Round r has this score, whatever it did; as a function of the round, so that a run can stop and go on."""
    whole = round_module.label_free_scores

    def label_free_scores(seen: LabelSummary, labelled: Any) -> dict[str, float]:
        assert current is not None
        return {**whole(seen, labelled), name: float(values[current.round])}

    current = None
    finish = self_train.finish_round

    def finish_round(setup: Any, state: Any) -> Any:
        nonlocal current
        current = state
        return finish(setup, state)

    monkeypatch.setattr(self_train, "finish_round", finish_round)
    monkeypatch.setattr(round_module, "label_free_scores", label_free_scores)


# --- scores


def part_of(mean: torch.Tensor, ids: torch.Tensor) -> LabelBatch:
    spread = LabelDistribution(mean, torch.zeros_like(mean), mean - mean.square(), 1 - mean.amax(1))
    return LabelBatch(torch.arange(len(mean)), (), spread, mean.argmax(1), ids, BoundSelector(SelectNone(), {}, 0, 0))


def test_what_a_look_sees_does_not_depend_on_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "DENSITY_SITES", 20)
    mean, ids = normal(0, 90, 4).softmax(1), torch.arange(90) * 5 + 1
    whole, cut = LabelSummary(4, 7), LabelSummary(4, 7)
    whole.add(part_of(mean, ids))
    for rows in torch.arange(90).split(13):
        cut.add(part_of(mean[rows], ids[rows]))
    assert torch.equal(whole.sample, cut.sample)
    assert len(whole.sample) == 20
    assert whole.certainty() == pytest.approx(cut.certainty())


def test_few_sites_are_all_in_the_sample() -> None:
    mean, seen = normal(1, 30, 3).softmax(1), LabelSummary(3)
    seen.add(part_of(mean, torch.arange(30)))
    assert neighbourhood_density(seen.sample) == pytest.approx(neighbourhood_density(mean), rel=1e-6)


@pytest.mark.parametrize(("mean", "expected"), [([[1.0, 0.0]], 1.0), ([[0.5, 0.5]], 0.0)])
def test_sureness_is_one_for_a_sure_label_and_nothing_for_none(mean: list[list[float]], expected: float) -> None:
    seen = LabelSummary(2)
    seen.add(part_of(torch.tensor(mean), torch.arange(1)))
    assert seen.certainty() == pytest.approx(expected)
    assert LabelSummary(2).certainty() == 0.0


def uniform(seed: int, count: int) -> torch.Tensor:
    """Keys that do not hang on which tests ran before."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))


def test_weights_of_sides_that_are_alike_are_near_one() -> None:
    sides = [(normal(seed, count, 5), uniform(seed, count)) for seed, count in ((0, 300), (1, 900))]
    weight = cross_fit_weights(sides)
    assert float(weight.mean()) == pytest.approx(1, abs=0.05)
    assert float(weight.std()) < 0.15


def test_weights_of_sides_that_differ_are_the_ratio_of_their_densities() -> None:
    x, other = normal(0, 2000, 2), normal(1, 4000, 2) + torch.tensor([1.0, 0.0])
    weight = cross_fit_weights([(x, uniform(0, 2000)), (other, uniform(1, 4000))])
    assert torch.allclose(weight.log().float(), x[:, 0] - 0.5, atol=0.35)


def same_place(seed: int = 0) -> Problem:
    """Both sides from one place, where classes overlap."""
    return blobs(seed=seed, features=4, count=600, shift=0.0, separation=2.0)


def test_embedded_validation_is_plain_validation_where_both_sides_are_alike() -> None:
    done = run(same_place(), plan=HALF)
    for record in done.records:
        assert record.scores["embedded_validation"] == pytest.approx(record.scores["validation"], abs=0.02)
        assert record.evaluation is not None
        assert record.scores["validation"] == pytest.approx(record.evaluation.accuracy, abs=0.06)


def test_without_unlabelled_rows_embedded_validation_is_plain_validation() -> None:
    alone = replace(toy(), unlabelled=toy().unlabelled.__class__.of(torch.zeros(0, 9)), hidden_labels=None)
    (record,) = run(alone, plan=HALF).records
    assert record.scores["embedded_validation"] == record.scores["validation"]


# --- the round that is kept


def test_last_is_the_default_and_keeps_the_last_round() -> None:
    assert Plan().keep_round == "last"
    done = run(toy(), "mlp")
    assert done.progress.kept_round is None
    assert done.progress.model_round == 2
    assert done.progress.final_record is done.records[2]


@pytest.mark.parametrize("method", ["em_basis", "cbst"])
@pytest.mark.parametrize("choose", CHOICES)
def test_no_choice_changes_what_is_learned_on_the_way(method: str, choose: str) -> None:
    done, last = (run(toy(), "mlp", method, plan={**HALF, "keep_round": name}) for name in (choose, "last"))
    assert same_round_labels(done.round_labels, last.round_labels)
    assert done.records == last.records


@pytest.mark.parametrize("choose", CHOICES[1:])
def test_the_best_round_by_the_score_is_kept_and_of_equal_ones_the_last(choose: str) -> None:
    done = run(toy(), "mlp", "cbst", plan={**HALF, "keep_round": choose, "rounds": 3})
    found = [record.scores[choose] for record in done.records]
    assert done.progress.model_round == max(range(4), key=lambda number: (found[number], number))


@pytest.mark.parametrize(
    ("values", "kept"), [([1, 3, 2], 1), ([3, 1, 2], 0), ([1, 2, 3], 2), ([2, 2, 1], 1), ([1, 1, 1], 2)]
)
@pytest.mark.parametrize("method", ["em_basis", "cbst"])
def test_the_model_that_is_kept_labels_as_its_round_did(
    method: str, values: list[float], kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, "density", values)
    own = {"parts": {"selector.labels": "draw"}} if method == "em_basis" else {}
    done = run(toy(), "mlp", method, plan={"keep_round": "density"}, **own)
    assert done.progress.model_round == kept
    assert done.progress.kept_round == (kept if kept < 2 else None)
    problem = done.built.problem
    x = problem.unlabelled.inputs(torch.arange(len(problem.unlabelled)))
    again = replace(done.model, standardiser=None).label(x, problem.unlabelled.ids)
    assert same(parts(again), parts(done.round_labels[kept]))
    assert len(done.records) == 3


@pytest.mark.parametrize("network", ["linear", "mlp"])
def test_a_run_that_stops_anywhere_and_goes_on_keeps_the_same_round(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, "entropy", [1, 3, 2])
    settings = {"network": network, "plan": {**HALF, "keep_round": "entropy"}, "recalibration": "weighted"}
    moments = saved_moments(built_for(toy(), **settings))
    assert '"kept": 1' in moments[-1].facts
    for saved in moments:
        assert go_on(saved, built_for(toy(), **settings)).same(moments[-1])


def test_maps_keep_the_best_round_also_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, "density", [1, 3, 2])
    settings: dict[str, Any] = {"plan": {"keep_round": "density", "holdout": 0.3}}
    moments = kept_moments(built_maps(**settings))
    done = run_maps(**settings)
    assert done.progress.kept_round == 1
    for event in moments[:: max(len(moments) // 5, 1)]:
        assert event.end(built_maps(**settings)).same(moments[-1].saved)
    short = run_maps(plan={"rounds": 1, "holdout": 0.3})
    assert same(done.weights, short.weights)
    assert same(done.progress.labeller, short.progress.labeller)
    assert same(done.progress.selector, short.progress.selector)


def test_after_a_collapse_the_best_round_by_the_chosen_score_is_kept() -> None:
    built = attacked(turn=2)
    built = replace(built, plan=replace(built.plan, keep_round="agreement"))
    done = run_built(built)
    assert done.progress.status == "collapsed"
    found = [record.scores["agreement"] for record in done.records[:2]]
    best = max((0, 1), key=lambda number: (found[number], number))
    assert done.progress.best_round == best
    assert done.progress.kept_round is None
    assert done.records[-1].notes[0].endswith(f"round {best} is kept")


@pytest.mark.parametrize("name", ["validation", "embedded_validation"])
def test_a_score_of_held_out_rows_needs_some(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Plan(keep_round=name)
    assert str(caught.value) == f"plan.keep_round = {name} needs plan.holdout > 0 (labelled rows to check by), got 0.0"


def test_an_unknown_score_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        Plan(keep_round="accuracy")
    assert str(caught.value) == (
        "plan.keep_round must be one of last, information, entropy, density, agreement, labelled_accuracy, validation, "
        "embedded_validation, got 'accuracy'"
    )


# --- folders and the estimator


@functools.cache
def words() -> tuple[str, ...]:
    return ("plan.holdout=0.3", "plan.keep_round=entropy")


def test_a_folder_keeps_and_reports_the_chosen_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, "entropy", [1, 3, 2])
    whole = go(tmp_path / "whole", config(*words()))
    for stop in (3, 7, 9):
        go(tmp_path / f"cut{stop}", config(*words()), stop_after=stop)
        go(tmp_path / f"cut{stop}", config(*words()))
        assert digests(tmp_path / f"cut{stop}") == digests(tmp_path / "whole")
    view = read_run_view(tmp_path / "whole")
    assert view.best_round == 1
    assert view.kept is view.rounds[1]
    assert whole.model is not None
    problem = whole.prepare().problem
    x = problem.unlabelled.inputs(torch.arange(len(problem.unlabelled)))
    again = replace(whole.model, standardiser=None).label(x, problem.unlabelled.ids)
    assert view.labels is not None
    assert view.labels["uncertainty"] == again.distribution.uncertainty.tolist()
    assert view.labels["trusted"] == again.pseudo.trusted.tolist()
    assert read_newest(tmp_path / "whole").facts["progress"]["kept"] == 1


def test_a_folder_of_another_choice_is_refused(tmp_path: Path) -> None:
    go(tmp_path / "run", config(*words()), stop_after=2)
    with pytest.raises(ConfigError, match=r"plan\.holdout: 0\.3 → 0\.2"):
        go(tmp_path / "run", config("plan.holdout=0.2", "plan.keep_round=entropy"))


def test_the_gallery_of_maps_stays_with_the_round_that_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, "density", [1, 3, 2])
    built = built_maps(plan={"keep_round": "density"})
    steps = train_rounds(built.problem, built.network, built.method, built.plan)
    assert [event.is_kept for event in steps if event.record is not None] == [True, True, False]
    assert run_built_maps(built_maps()).progress.kept_round is None


def test_the_estimator_hands_over_the_labels_of_the_round_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = toy()
    x, y = problem.labelled.inputs(torch.arange(90)).numpy(), problem.labelled.labels.numpy()
    other = problem.unlabelled.inputs(torch.arange(90)).numpy()
    short = EMBasisClassifier(rounds=1, random_state=0).fit(x, y, other)
    scripted(monkeypatch, "entropy", [1, 3, 2, 2])
    model = EMBasisClassifier(rounds=3, random_state=0, settings={"plan.keep_round": "entropy"}).fit(x, y, other)
    assert model.n_iter_ == 3
    assert (model.transduction_ == short.transduction_).all()
    assert (model.labeled_iter_ == short.labeled_iter_).all()
    assert (model.predict_proba(other) == short.predict_proba(other)).all()


# --- the command line


def test_the_command_says_which_round_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, "entropy", [1, 3, 2])
    write_tables(tmp_path)
    sides = (tmp_path / "labelled.csv", tmp_path / "judged.csv")
    result = embasis("fit", *sides, "-o", tmp_path / "run", "rounds=2", "holdout=0.2", "keep_round=entropy")
    assert result.exit_code == 0, result.output
    assert "round 1 of 2 is kept: the best one by entropy\n" in result.output
    assert f"{tmp_path / 'run' / 'labels' / 'round-001.parquet'}" in result.output.replace("\n", "")
    assert "finished: round 1 of 2 is kept" in embasis("report", tmp_path / "run").output
    done = embasis("predict", tmp_path / "run", tmp_path / "unlabelled.csv", "-o", tmp_path / "labels.parquet")
    assert done.exit_code == 0, done.output
    found, kept = (
        read_stored_table(tmp_path / "labels.parquet"),
        read_stored_table(tmp_path / "run" / "labels" / "round-001.parquet"),
    )
    assert all(found[name] == kept[name] for name in ("label", "uncertainty", "trusted"))


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        (
            "keep_round=validation",
            "plan.keep_round = validation needs plan.holdout > 0 (labelled rows to check by), got 0.0",
        ),
        (
            "recalibration=weighted",
            "method.recalibration = weighted needs plan.holdout > 0 (labelled rows to check by), got 0.0",
        ),
        ("holdout=0.9", "plan.holdout must be in [0, 0.5], got 0.9"),
    ],
)
def test_what_needs_held_out_rows_is_refused_before_the_folder_is_touched(
    tmp_path: Path, word: str, sentence: str
) -> None:
    write_tables(tmp_path)
    result = embasis("fit", tmp_path / "labelled.csv", tmp_path / "judged.csv", "-o", tmp_path / "run", word)
    assert (result.exit_code, result.output.splitlines()[-1]) == (2, f"embasis: {sentence}")
    assert not (tmp_path / "run").exists()


def test_a_folder_of_label_maps_shows_and_predicts_by_the_round_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_runs_fast(monkeypatch)
    home = sides(tmp_path)
    short = fitted(home, tmp_path / "short", "rounds=0", "holdout=0.2")
    scripted(monkeypatch, "density", [3, 1, 2])
    run = fitted(home, tmp_path / "run", "holdout=0.2", "keep_round=density")
    galleries = [sorted((path / "gallery" / "round-000").iterdir()) for path in (short, run)]
    assert [file.name for file in galleries[0]] == [file.name for file in galleries[1]]
    assert all(one.read_bytes() == two.read_bytes() for one, two in zip(*galleries, strict=True))
    assert read_run_view(run).best_round == 0
    tensors = [read_newest(path).tensors for path in (short, run)]
    names = [name for name in tensors[0] if name.startswith(("network/", "labeller/", "selector/"))]
    assert all(torch.equal(tensors[0][name], tensors[1][name]) for name in names)
    for path in (short, run):
        done = embasis("predict", path, home / "streets", "-o", tmp_path / f"{path.name}-maps")
        assert done.exit_code == 0, done.output
    maps = [sorted(file for file in (tmp_path / f"{path.name}-maps").rglob("*.png")) for path in (short, run)]
    assert len(maps[0]) > 0
    assert all(one.read_bytes() == two.read_bytes() for one, two in zip(*maps, strict=True))
