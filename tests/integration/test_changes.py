"""Settings and data that change between two starts: nothing is taken over silently, what is allowed is written down."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from embasis.errors import ConfigError, InputDataError
from embasis.runs import resume
from embasis.runs import run as folder
from embasis.runs.run import TrainingRun
from embasis.storage import RunFolder, encode_table, read_newest, read_stored_table
from embasis.types import Arrays, LabelSchema, Problem
from folder_runs import config, digests, go
from storage_runs import do_not_wait, tree
from training_runs import toy


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_wait(monkeypatch)
    monkeypatch.setattr(folder, "run_page", lambda view: "; ".join(view.notes))


def go_on(
    path: Path, *words: str, allow: tuple[str, ...] = (), problem: Problem | None = None, accept: bool = False
) -> TrainingRun:
    with RunFolder(path) as opened:
        run = TrainingRun(problem or toy(), config(*words), opened, None, allow, accept)
        for _ in run.events():
            pass
    return run


def flat(value: dict[str, object], prefix: str = "") -> list[str]:
    """All keys of a resolved config."""
    return [
        key
        for name, item in value.items()
        for key in (flat(item, f"{name}.") if isinstance(item, dict) else [f"{prefix}{name}"])
    ]


# --- settings


def test_every_setting_of_a_run_is_guarded_and_can_be_named(tmp_path: Path) -> None:
    go(tmp_path / "run", config(), stop_after=1)
    resolved = read_newest(tmp_path / "run").facts["config"]
    guarded = [key for key in flat(resolved) if not key.startswith(("data.", "save_seconds"))]
    assert len(guarded) > 25
    for key in guarded:
        other = json.loads(json.dumps(resolved))
        place = other
        *tables, last = key.split(".", 1)  # a name of parts has dots of its own
        for table in tables:
            place = place[table]
        place[last] = "other"
        with pytest.raises(ConfigError) as caught:
            resume.refuse_changed_config(resolved, other)
        assert str(caught.value).endswith(f"or --allow-change {key}")
        assert resume.refuse_changed_config(resolved, other, [key])[0].startswith(f"{key}: ")


def test_a_setting_that_is_newer_than_the_run_and_does_what_the_run_did_is_no_change() -> None:
    old = {"plan": {"rounds": 1}}
    assert resume.refuse_changed_config(old, {"plan": {"rounds": 1, "augment": 0.0}}) == ()
    for new, words in (({"augment": 1.0}, "plan.augment: None → 1.0"), ({"wrap": 0.0}, "plan.wrap: None → 0.0")):
        with pytest.raises(ConfigError) as caught:
            resume.refuse_changed_config(old, {"plan": {"rounds": 1, **new}})
        assert words in str(caught.value)
    with pytest.raises(ConfigError):
        resume.refuse_changed_config({"plan": {"augment": 1.0}}, {"plan": {"augment": 0.0}})


def test_only_the_settings_that_are_named_may_change(tmp_path: Path) -> None:
    go(tmp_path / "run", config(), stop_after=3)
    before = tree(tmp_path / "run")
    with pytest.raises(ConfigError) as caught:
        go_on(tmp_path / "run", "rounds=3", "keep_first=0.3", "lr=0.5", allow=("plan.rounds",))
    assert str(caught.value) == (
        "the run folder was begun with other settings: method.keep_first: 0.2 → 0.3; plan.lr: 0.001 → 0.5; "
        "use another folder, the old settings, or --allow-change method.keep_first --allow-change plan.lr"
    )
    assert tree(tmp_path / "run") == before


def test_a_change_that_is_allowed_is_written_down_and_asked_for_once(tmp_path: Path) -> None:
    path = tmp_path / "run"
    go(path, config(), stop_after=3)
    run = go_on(path, "keep_first=0.3", allow=("method.keep_first",))
    note = "from generation 4 on, method.keep_first: 0.2 → 0.3"
    assert run.changes == [note]
    assert (path / "changes.jsonl").read_text() == json.dumps(note, ensure_ascii=True) + "\n"
    assert (path / "report.html").read_text() == note
    assert json.loads((path / "config.json").read_text())["method"]["keep_first"] == 0.3
    assert go_on(path, "keep_first=0.3").changes == [note]
    with pytest.raises(ConfigError, match=r"method\.keep_first: 0\.3 → 0\.2"):
        go_on(path)


def test_a_finished_run_that_may_have_more_rounds_ends_as_if_it_had_had_them_from_the_start(tmp_path: Path) -> None:
    path, whole = tmp_path / "run", tmp_path / "whole"
    go(path, config())
    go_on(path, "rounds=4", allow=("plan.rounds",))
    go_on(whole, "rounds=4")
    left, right = digests(path), digests(whole)
    assert {name for name in left.keys() | right.keys() if left.get(name) != right.get(name)} == {
        "changes.jsonl",
        "facts",
    }
    assert read_newest(path).facts["records"] == read_newest(whole).facts["records"]


def test_a_run_that_brought_an_earlier_round_back_gets_no_more_rounds(tmp_path: Path) -> None:
    path = tmp_path / "run"
    go(path, config("keep_round=validation", "holdout=0.2"))
    found = read_newest(path)
    facts = {**found.facts, "progress": {**found.facts["progress"], "kept": 1}}
    with RunFolder(path) as opened:
        opened.publish(found.tensors, facts)
    with pytest.raises(ConfigError) as caught:
        go_on(path, "keep_round=validation", "holdout=0.2", "rounds=4", allow=("plan.rounds",))
    assert str(caught.value) == (
        "plan.rounds cannot change: the run had ended and brought round 1 back, so no round can follow; "
        "use another folder"
    )


def test_settings_of_another_network_cannot_change_within_a_run(tmp_path: Path) -> None:
    go(tmp_path / "run", config(), stop_after=3)
    before = tree(tmp_path / "run")
    with pytest.raises(ConfigError) as caught:
        go_on(tmp_path / "run", "hidden=8", allow=("network.hidden",))
    assert str(caught.value) == (
        "these settings cannot change within a run: network.hidden: 16 → 8; use another folder"
    )
    assert tree(tmp_path / "run") == before


# --- data


def other_rows(problem: Problem) -> Problem:
    """Row 3 is gone, row 5 is edited, rows 200 and 201 are new."""
    unlabelled = problem.unlabelled
    assert isinstance(unlabelled, Arrays)
    kept = unlabelled.ids != 3
    x = unlabelled.x.clone()
    x[5] += 0.25
    x = torch.cat([x[kept], unlabelled.x[:2] + 0.01])
    return replace(problem, unlabelled=Arrays.of(x, ids=torch.cat([unlabelled.ids[kept], torch.tensor([200, 201])])),
                   hidden_labels=None)  # fmt: skip


SHIFT = "unlabelled (2 added, 1 removed, 1 edited: 'row 200', 'row 201', 'row 3', 'row 5')"


def test_changed_rows_are_counted_named_and_refused(tmp_path: Path) -> None:
    before = replace(toy(), hidden_labels=None)
    go(tmp_path / "run", config(), stop_after=9, problem=before)
    files = tree(tmp_path / "run")
    with pytest.raises(InputDataError) as caught:
        go_on(tmp_path / "run", problem=other_rows(before))
    assert str(caught.value) == (
        f"the data have changed since the run began: {SHIFT}; use another folder, the old data, or --accept-data-change"
    )
    assert caught.value.exit_code == 3
    assert tree(tmp_path / "run") == files


def test_changed_rows_that_are_accepted_are_taken_over_and_written_down(tmp_path: Path) -> None:
    before, path = replace(toy(), hidden_labels=None), tmp_path / "run"
    go(path, config(), stop_after=9, problem=before)
    old = read_newest(path)
    with RunFolder(path) as opened:
        run = TrainingRun(other_rows(before), config(), opened, None, (), True)
        progress = run.open()
        ids = run.problem.unlabelled.ids.tolist()
        pseudo, labels = progress.pseudo, progress.labels
        assert isinstance(labels, torch.Tensor)
        assert pseudo is not None
        for place, row in enumerate(ids):
            new = row in (5, 200, 201)
            assert pseudo.label[place] == (-1 if new else old.tensors["pseudo/label"][row])
            assert pseudo.weight[place] == (0 if new else old.tensors["pseudo/weight"][row])
            assert labels[place] == (-1 if new else old.tensors["labels"][row])
        for _ in run.events():
            pass
    note = f"from generation {old.number + 1} on, data: {SHIFT}"
    assert run.changes == [note]
    assert json.loads((path / "changes.jsonl").read_text()) == note
    last = read_newest(path).facts
    assert note in last["notes"]
    assert read_stored_table(path / "labels" / "round-002.parquet")["id"] == ids
    assert go_on(path, problem=other_rows(before)).changes == [note], "the next start needs no flag"
    with pytest.raises(InputDataError, match=r"unlabelled \(1 added, 2 removed, 1 edited: "):
        go_on(path, problem=before)


def test_what_an_aligner_knows_of_single_rows_moves_with_them(tmp_path: Path) -> None:
    before, path = replace(toy(), hidden_labels=None), tmp_path / "run"
    go(path, config(method="shot"), stop_after=9, problem=before)
    old = read_newest(path).tensors["extra/labels.by_row"]
    assert int(old.min()) >= 0
    with RunFolder(path) as opened:
        run = TrainingRun(other_rows(before), config(method="shot"), opened, None, (), True)
        progress = run.open()
        ids = run.problem.unlabelled.ids.tolist()
        moved = progress.restored_extra["labels.by_row"].tolist()
        assert moved == [-1 if row in (5, 200, 201) else int(old[row]) for row in ids]
        for _ in run.events():
            pass
    assert int(read_newest(path).tensors["extra/labels.by_row"].min()) >= 0


def test_a_crash_before_the_change_is_published_asks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, path = replace(toy(), hidden_labels=None), tmp_path / "run"
    go(path, config(), stop_after=9, problem=before)

    class Crash(BaseException):
        pass

    def crash(*_: object) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingRun, "save", crash)
        with pytest.raises(Crash):
            go_on(path, problem=other_rows(before), accept=True)
    with pytest.raises(InputDataError, match="2 added, 1 removed, 1 edited"):
        go_on(path, problem=other_rows(before))
    assert go_on(path, problem=before).model is not None, "the old data still fit"


def test_rows_of_a_folder_without_its_table_are_refused_without_counts(tmp_path: Path) -> None:
    before, path = replace(toy(), hidden_labels=None), tmp_path / "run"
    go(path, config(), stop_after=9, problem=before)
    (table,) = (path / "rows").iterdir()
    strange = [encode_table({"side": ["unlabelled"], "id": ["x"], "name": [""], "mark": ["y"]}, ".parquet"),
               encode_table({"side": ["unlabelled"]}, ".parquet"), b"nothing"]  # fmt: skip
    for data in (*strange, None):
        if data is None:
            shutil.rmtree(path / "rows")
        else:
            table.write_bytes(data)
        with pytest.raises(InputDataError, match="since the run began: unlabelled; use another folder"):
            go_on(path, problem=other_rows(before))
    with pytest.raises(InputDataError) as caught:
        go_on(path, problem=other_rows(before), accept=True)
    assert str(caught.value) == (
        "the table of the run's rows is missing or damaged, so other rows cannot be taken over; use another folder"
    )


def test_what_the_network_is_built_on_cannot_change_even_if_it_is_accepted(tmp_path: Path) -> None:
    problem, path = toy(), tmp_path / "run"
    labelled = problem.labelled
    assert isinstance(labelled, Arrays)
    go(path, config(), stop_after=3)
    narrow = [
        Arrays.of(labelled.x[:, :4], labelled.labels),
        Arrays.of(problem.unlabelled.inputs(torch.arange(90))[:, :4]),
    ]
    others = [
        (
            replace(problem, schema=LabelSchema(("a", "b", "c"))),
            f"the classes cannot change within a run: {list(problem.schema.names)} → ['a', 'b', 'c']; "
            "use another folder",
        ),
        (
            Problem(narrow[0], narrow[1], problem.schema),
            f"the shape of an input cannot change within a run: {list(labelled.x.shape[1:])} → [4]; use another folder",
        ),
    ]
    for other, sentence in others:
        with pytest.raises(InputDataError) as caught:
            go_on(path, problem=other, accept=True)
        assert str(caught.value) == sentence


def test_a_run_that_has_ended_takes_no_other_rows(tmp_path: Path) -> None:
    before, path = replace(toy(), hidden_labels=None), tmp_path / "run"
    go(path, config(), problem=before)
    with pytest.raises(InputDataError) as caught:
        go_on(path, problem=other_rows(before), accept=True)
    assert str(caught.value) == "the run had ended (finished) with the old data; use another folder"
