"""Tasks for Label Studio, and its annotations as corrections: what goes out, what comes back, what is refused."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import image_runs
from cli_tables import embasis, fit_tables, fit_without_page, refused
from embasis.data.label_studio import read_label_studio
from embasis.errors import InputDataError
from embasis.storage import read_newest, read_stored_table

EXPORT = ("export", "run", "-o", "tasks.json", "--as", "label-studio")
FIT = ("fit", "labelled.csv", "judged.csv", "-o", "new", "rounds=0", "--corrections", "out.json")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("runs")
    (home / "tables").mkdir()
    (home / "images").mkdir()
    fit_tables(home / "tables", "rounds=0")
    sides = image_runs.sides(home / "images", each=4)
    fit_without_page(sides, sides / "photos", sides / "paintings", "rounds=0", *image_runs.WORDS)
    return home


def annotate(task: Any, *labels: str, cancelled: bool = False, name: str = "class") -> dict[str, Any]:
    """A task as Label Studio exports it after a person has annotated it."""
    answers = [
        {"id": "Dx_aB91ISN", "type": "choices", "origin": "manual", "to_name": "item", "from_name": name,
         "value": {"choices": [label]}}
        for label in labels
    ]  # fmt: skip
    annotation = {"id": 1001, "completed_by": 10, "result": answers, "was_cancelled": cancelled, "lead_time": 4.288}
    old = task.get("annotations", [])
    more = {"id": 7, "project": 83, "drafts": [], "meta": {}, "annotations": [*old, annotation]}
    return {**task, **more}


def read_tasks() -> list[Any]:
    return list(json.loads(Path("tasks.json").read_text()))


def test_every_label_is_a_task_with_its_prediction_and_score_the_least_sure_first(tables: Path) -> None:
    result = embasis(*EXPORT, "--table", "judged.csv")
    assert result.exit_code == 0, result.output
    labels = read_stored_table("run/labels/round-000.parquet")
    order = sorted(range(60), key=lambda row: -labels["uncertainty"][row])
    tasks = read_tasks()
    assert [task["data"]["row"] for task in tasks] == [str(labels["id"][row]) for row in order]
    for task, row in zip(tasks, order, strict=True):
        (prediction,) = task["predictions"]
        (answer,) = prediction["result"]
        assert prediction["score"] == labels["probability"][row]
        assert answer["value"] == {"choices": [labels["label"][row]]}
        assert list(task["data"]["values"]) == [f"f{number}" for number in range(8)]
    said, _, interface = result.stdout.partition("Code):\n")
    assert said.startswith("wrote tasks.json: 60 tasks with labels of round 0\n")
    view = ElementTree.fromstring(interface)
    names = {answer["from_name"], *(tag.get("name") for tag in view)}
    assert names == {"class", "item"}
    assert [tag.get("value") for tag in view.iter("Choice")] == ["c0", "c1", "c2"]
    assert view.find("Table").get("value") == "$values"  # type: ignore[union-attr]
    assert view.find("Choices").get("toName") == answer["to_name"] == "item"  # type: ignore[union-attr]
    before = Path("tasks.json").read_bytes()
    assert embasis(*EXPORT, "--table", "judged.csv").exit_code == 0
    assert Path("tasks.json").read_bytes() == before


def test_images_are_named_as_local_files_and_come_back_by_their_names(images: Path) -> None:
    assert embasis(*EXPORT).exit_code == 0
    first, second, third, *_ = tasks = read_tasks()
    for task in tasks:
        start, _, path = task["data"]["image"].partition("?d=")
        assert start == "/data/local-files/"
        assert Path("paintings", unquote(path)).is_file()
        assert path.isascii()
    Path("out.json").write_text(json.dumps([annotate(first, "amsel"), annotate(second, cancelled=True), third]))
    fit = ("fit", "photos", "paintings", "-o", "new", "rounds=0", *image_runs.WORDS, "--corrections", "out.json")
    result = embasis(*fit)
    assert result.exit_code == 0, result.output
    assert "note: out.json: 1 row of paintings is a labelled one now\n" in result.stdout
    left = read_stored_table("new/labels/round-000.parquet")["id"]
    assert first["data"]["row"] not in left
    assert second["data"]["row"] in left


def test_annotations_become_corrections_and_the_labels_of_the_next_run(tables: Path) -> None:
    assert embasis(*EXPORT, "--table", "judged.csv").exit_code == 0
    one, two, three, *_ = read_tasks()
    twice = annotate(annotate(two, "c2"), "c2")
    own = annotate(three, "c0")
    own["annotations"][0]["result"].append({"type": "choices", "from_name": "mood", "value": {"choices": ["bored"]}})
    Path("out.json").write_text(json.dumps([annotate(one, "c1"), twice, own], indent=2))
    assert read_label_studio(Path("out.json"))["label"] == ["c1", "c2", "c2", "c0"]
    result = embasis(*FIT)
    assert result.exit_code == 0, result.output
    assert read_newest("new").facts["corrected"] == 3


def test_what_cannot_be_exported_so_is_refused(tables: Path) -> None:
    rule = "--as label-studio needs --table, the table that the run has labelled: a run keeps no values of it"
    refused(2, rule, *EXPORT)
    rule = "--table is for --as label-studio of a run on a table, got --as csv of a table"
    refused(2, rule, "export", "run", "-o", "x.csv", "--as", "csv", "--table", "judged.csv")
    refused(2, "output must end in .json for --as label-studio, got 'x.csv'", *EXPORT[:3], "x.csv", *EXPORT[4:])
    same = Path("judged.json")
    same.symlink_to("judged.csv")
    rule = "output judged.json is the table judged.csv itself; name another place"
    refused(2, rule, "export", "run", "-o", "judged.json", "--as", "label-studio", "--table", "judged.csv")
    refused(3, "lost.csv: no such file", *EXPORT, "--table", "lost.csv")
    assert not Path("tasks.json").exists()


HINT = "export from Label Studio as JSON (not JSON-MIN) what embasis export --as label-studio has written"
TASK: dict[str, Any] = {"data": {"row": "10"}}
REFUSED: dict[str, tuple[Any, str]] = {
    "nothing is annotated": ([TASK], "no task is annotated; there is nothing to correct"),
    "an unknown class": (
        [annotate(TASK, "dog")], "unknown classes: 'dog'; the labelled side has: 'c0', 'c1', 'c2'",
    ),
    "an unknown row": ([annotate({"data": {"row": "9"}}, "c0")], "1 id is not in judged.csv: '9'"),
    "two people disagree": ([annotate(annotate(TASK, "c0"), "c1")], "'10' has two labels, 'c0' and 'c1'"),
    "two classes at once": (
        [annotate(TASK, "c0", "c1")], "'10' has several classes in one annotation: 'c0', 'c1'",
    ),
    "tasks of another origin": ([annotate({"data": {"image": "1.jpg"}}, "c0")], f"a task has no data.row; {HINT}"),
    "the small form": (
        [{"id": 1, "class": "c0", "row": "10"}],
        f"no annotated tasks: Object missing required field `data` - at `$[0]`; {HINT}",
    ),
    "no list": (TASK, f"no annotated tasks: Expected `array`, got `object`; {HINT}"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_export_that_cannot_be_used_is_refused_with_a_sentence(tables: Path, case: str) -> None:
    content, rule = REFUSED[case]
    Path("out.json").write_text(json.dumps(content))
    refused(3, f"out.json: {rule}", *FIT)


@pytest.mark.parametrize(
    "data", [b"", b"[", b"\xff\xfe", b"[" * 100_000, b'[{"data":' * 50_000, b'[{"data":{"row":1e999}}]', b"PK\x03\x04"]
)
def test_damaged_and_hostile_files_are_input_that_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(InputDataError):
        read_label_studio(tmp_path / "x.json")
