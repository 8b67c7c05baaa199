"""Alignment in run folders, on the command line and in Python: stopped and gone on with, beside em_basis, refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import embasis
from alignment_runs import TAKES, align_only, all_finite, built, finish, network_of, undisturbed
from cli_tables import embasis as command
from cli_tables import write_tables
from embasis.engine.self_train import TrainingEvent, train_rounds
from embasis.engine.state import TrainState
from embasis.errors import ConfigError, CorruptError
from embasis.runs.checkpoint import read_run
from embasis.runs.parts import RunParts, build
from folder_runs import config, digests, go
from map_runs import kept_moments
from training_runs import Saved, built_for, go_on, little_digits, run_built, same, saved_moments, toy


@pytest.mark.parametrize("words", [("align.name=dann", "align.ends=1"), ("align.name=mcd",)])
def test_em_basis_with_an_aligner_goes_on_from_any_step(tmp_path: Path, words: tuple[str, ...]) -> None:
    settings = config(*words)
    whole = digests(go(tmp_path / "whole", settings).folder.path)
    for stop in (1, 4, 9, 13):
        go(tmp_path / f"stopped{stop}", settings, stop_after=stop)
        assert digests(go(tmp_path / f"stopped{stop}", settings).folder.path) == whole, stop


def test_modules_of_an_aligner_are_in_a_checkpoint_until_it_ends(tmp_path: Path) -> None:
    settings = config("align.name=dann", "align.ends=1")
    for stop, there in ((2, True), (14, False)):
        go(tmp_path / str(stop), settings, stop_after=stop)
        names = read_run(tmp_path / str(stop)).tensors
        assert any(name.startswith("extra/domain.") for name in names) == there
        assert any(name.startswith("optimiser/domain/") for name in names) == there
    go(tmp_path / "whole", settings)
    first, _, last = read_run(tmp_path / "whole").facts["records"]
    assert 0 < first["facts"]["domain_accuracy"] < 1
    assert "domain_accuracy" not in last["facts"]


def test_em_basis_with_an_aligner_begins_with_the_network_that_the_aligner_alone_makes() -> None:
    beside = build(toy(), config("align.name=dann", "plan.rounds=1"))
    assert (beside.method.name, beside.resolved["align"]) == ("em_basis", {"name": "dann", "weight": 1.0, "ends": 0})
    assert beside.method.align is not None
    assert (beside.method.align.begins, beside.method.align.ends) == (0, 0)
    alone, both = (
        next(event.state for event in embasis_rounds(build(toy(), settings)) if event.record is not None)
        for settings in (config("plan.rounds=0", method="dann"), config("align.name=dann", "plan.rounds=0"))
    )
    plain = run_built(build(toy(), config(method="source_only")))
    assert same(dict(alone.network.state_dict()), dict(both.network.state_dict()))
    assert not same(plain.weights, dict(both.network.state_dict()))


def test_saved_modules_that_do_not_fit_are_damage() -> None:
    parts = built_for(toy(), "mlp", "dann")
    saved = [Saved.of(event.state) for event, _ in zip(embasis_rounds(parts), range(3), strict=False)][-1]
    saved.tensors["extra/domain.0.weight"] = torch.zeros(3, 3)
    again = built_for(toy(), "mlp", "dann")
    with pytest.raises(CorruptError, match="the saved modules of dann do not fit this run"):
        list(embasis_rounds(again, saved.restore(again)))


def embasis_rounds(parts: RunParts, state: TrainState | None = None) -> Iterator[TrainingEvent]:
    return train_rounds(parts.problem, parts.network, parts.method, parts.plan, state)


def test_the_command_line_aligns_and_says_what_it_cannot_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    sides = ("labelled.csv", "unlabelled.csv")
    short = ("--backbone", "adapter", "rounds=1", "source_epochs=2", "epochs=1")
    done = command("fit", *sides, "-o", "run", "--method", "em_basis", "--align", "dann", *short)
    assert done.exit_code == 0, done.output
    for sentence, words in {
        "the run folder was begun with other settings: align.name": ("-o", "run", "--align", "mcc", *short),
        "needs features that can be trained": ("-o", "other", "--method", "dan"),
        "dann aligns by itself": ("-o", "other", "--method", "dann", "--align", "mcc", *short),
        "unknown alignment method 'cbts'; known: adaptsegnet, adda, ": ("-o", "other", "--align", "cbts", *short),
        "cbst does not align, it labels: name it by --method; alignment methods: adaptsegnet, adda, ": (
            ("-o", "other", "--align", "cbst", *short)
        ),
        "align.ends must be a round from 0 on": ("-o", "other", "--align", "dann", "align.ends=-1", *short),
        "align.name is missing": ("-o", "other", "align.ends=1", *short),
    }.items():
        answer = command("fit", *sides, *words)
        assert sentence in answer.stderr
        assert answer.exit_code == 2


def test_python_takes_an_aligner_by_its_name(tmp_path: Path) -> None:
    write_tables(tmp_path)
    sides = (tmp_path / "labelled.csv", tmp_path / "unlabelled.csv")
    model = embasis.fit_tables(*sides, align="mcc", network="adapter", rounds=1, source_epochs=2, epochs=1)
    assert model.predict(tmp_path / "unlabelled.csv").label
    with pytest.raises(ConfigError, match="needs features that can be trained"):
        embasis.fit_tables(*sides, method="dann")


@pytest.mark.parametrize("name", [name for name, kinds in TAKES.items() if "rows" not in kinds])
def test_a_run_on_maps_stopped_after_any_step_ends_as_if_it_had_not_been(name: str) -> None:
    kept = kept_moments(built(name, "maps"))
    assert kept[-1].saved.same(undisturbed(name, "maps"))
    for moment in kept[1:-1:3]:
        assert moment.end(built(name, "maps")).same(kept[-1].saved), moment.saved.cursor


@pytest.mark.parametrize("name", [name for name, kinds in TAKES.items() if "rows" in kinds])
def test_small_pictures_are_rows_too(name: str) -> None:
    def digits_for(method: str, **own: Any) -> RunParts:
        return built_for(little_digits(), "small_cnn", method, plan={"rounds": 1}, **{**align_only(method), **own})

    none, source = finish(digits_for(name, weight=0.0)), finish(digits_for("source_only"))
    assert same(network_of(none.tensors), network_of(source.tensors))
    moments = saved_moments(digits_for(name))
    assert all_finite(moments[-1].tensors)
    for saved in (moments[len(moments) // 3], moments[-3]):
        assert go_on(saved, digits_for(name)).same(moments[-1]), saved.cursor
