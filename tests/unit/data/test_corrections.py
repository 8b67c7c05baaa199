"""Labels that a person has corrected, as labelled rows of the next run: tables and images."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import cli_tables
from cli_tables import embasis, write_tables
from embasis.data.corrections import replace_taken_ids, with_corrections
from embasis.data.images.folders import load_images
from embasis.data.problem import from_arrays
from embasis.data.table_pair import load_pair
from embasis.errors import InputDataError
from embasis.inputs.correction_table import apply_corrections, read_corrections
from embasis.report.summary import input_summary
from embasis.runs.checkpoint import read_run_view
from embasis.storage import encode_table, escape_formula, read_newest, read_stored_table
from embasis.types import Arrays, Problem
from folder_runs import digests
from image_runs import CLASSES, WORDS, picture
from image_runs import sides as image_sides
from image_trees import plant

FIT = ("fit", "labelled.csv", "judged.csv", "-o", "new", "rounds=1", "--corrections", "fix.csv")


pytestmark = pytest.mark.usefixtures("plain_page")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables in the current folder: ids from 10 on, on both sides."""
    write_tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(rows: Sequence[Sequence[object]], header: str = "id,label", name: str = "fix.csv") -> None:
    with open(name, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header.split(","), *rows])


def refused(code: int, sentence: str, *words: object) -> None:
    cli_tables.refused(code, sentence, *words)
    assert not Path("new").exists()


# --- tables


def test_corrected_rows_are_labelled_rows_of_the_run_and_nothing_is_scored_on_them(here: Path) -> None:
    write([[10, "c1"], [12, "c0"], [69, "c2"]])
    result = embasis(*FIT)
    assert result.exit_code == 0, result.output
    assert "note: fix.csv: 3 rows of judged.csv are labelled ones now\n" in result.stdout
    assert "63 labelled and 57 unlabelled rows, 3 classes\n" in result.stdout
    labels = read_stored_table("new/labels/round-001.parquet")
    assert labels["id"] == [id for id in range(10, 70) if id not in (10, 12, 69)]
    facts = read_newest("new").facts
    assert facts["corrected"] == 3
    assert facts["config"]["data"]["corrections"] == "fix.csv"
    assert sum(map(sum, facts["records"][-1]["evaluation"]["confusion"])) == 57
    assert ("corrected by hand, now labelled", "3") in input_summary(read_run_view(Path("new")))


def test_a_run_without_corrections_says_nothing_of_them(here: Path) -> None:
    assert embasis(*FIT[:-2]).exit_code == 0
    assert not [row for row in input_summary(read_run_view(Path("new"))) if "corrected" in row[0]]


def test_the_moved_rows_have_their_features_their_new_labels_and_their_ids(here: Path) -> None:
    write([[10, "c1"], [12, "c0"]])
    before = load_pair("labelled.csv", "judged.csv")
    found = apply_corrections(before, "fix.csv", "judged.csv")
    assert isinstance(found.labelled, Arrays)
    assert isinstance(found.unlabelled, Arrays)
    assert isinstance(before.unlabelled, Arrays)
    assert isinstance(before.labelled, Arrays)
    for row, label in ((0, 1), (2, 0)):
        (place,) = (found.labelled.x == before.unlabelled.x[row]).all(1).nonzero()
        assert int(found.labelled.labels[place]) == label
    old = torch.isin(found.labelled.ids, before.labelled.ids)
    assert torch.equal(found.labelled.x[old], before.labelled.x)
    assert torch.equal(found.labelled.labels[old], before.labelled.labels)
    stay = [row for row in range(60) if row not in (0, 2)]
    assert torch.equal(found.unlabelled.x, before.unlabelled.x[stay])
    assert isinstance(before.hidden_labels, torch.Tensor)
    assert isinstance(found.hidden_labels, torch.Tensor)
    assert torch.equal(found.hidden_labels, before.hidden_labels[stay])


def test_an_id_is_kept_unless_a_labelled_row_has_it() -> None:
    assert replace_taken_ids(torch.tensor([3, 7]), torch.tensor([1, 2])).tolist() == [3, 7]
    found = replace_taken_ids(torch.tensor([2, 3, 7]), torch.tensor([1, 2, 7]))
    assert found[1] == 3
    assert len({*found.tolist(), 1, 2, 7}) == 6
    assert torch.equal(
        replace_taken_ids(torch.tensor([2]), torch.tensor([2])), found[:1]
    )  # whatever rows are beside it


def test_hidden_labels_that_only_moved_rows_had_are_gone() -> None:
    x = torch.randn(4, 2)
    problem = from_arrays(x, ["a", "b", "a", "b"], x, hidden_labels=["a", "", "", ""])
    assert with_corrections(problem, {"0": "b"}, "f", "u").hidden_labels is None
    assert with_corrections(problem, {"1": "b"}, "f", "u").hidden_labels is not None


def test_rows_without_an_id_column_are_called_by_their_numbers(here: Path) -> None:
    for name in ("labelled", "judged"):
        lines = [line.partition(",")[2] for line in Path(f"{name}.csv").read_text().splitlines()]
        Path(f"{name}.csv").write_text("\n".join(lines) + "\n")
    assert embasis("fit", "labelled.csv", "judged.csv", "-o", "run", "rounds=0").exit_code == 0
    assert embasis("export", "run", "-o", "all.csv", "--as", "csv", "--all").exit_code == 0
    ids = read_stored_table("all.csv")["id"]
    assert ids == [str(number) for number in range(60)]
    write([[5, "c1"]])
    assert embasis(*FIT).exit_code == 0
    assert read_stored_table("new/labels/round-001.parquet")["id"] == [number for number in range(60) if number != 5]


def test_what_export_wrote_and_a_person_edited_comes_back(here: Path) -> None:
    assert embasis("fit", "labelled.csv", "judged.csv", "-o", "run", "rounds=1").exit_code == 0
    for suffix in ("csv", "parquet"):
        assert embasis("export", "run", "-o", f"out.{suffix}", "--as", suffix).exit_code == 0
    columns = read_stored_table("out.csv")
    marks = ["x", "x", *[""] * (len(columns["id"]) - 2)]
    edited = {**columns, "label": ["c2", *columns["label"][1:]], "corrected": marks}
    Path("fix.csv").write_bytes(b"\xef\xbb\xbf" + encode_table(edited, ".csv").replace(b"\n", b"\r\n"))
    assert embasis(*FIT).exit_code == 0
    moved = {int(id) for id in columns["id"][:2]}
    assert {*range(10, 70)} - {*read_stored_table("new/labels/round-001.parquet")["id"]} == moved
    named = read_corrections("fix.csv", ("c0", "c1", "c2"), numbered=True)
    assert named == {columns["id"][0]: "c2", columns["id"][1]: columns["label"][1]}
    whole = read_stored_table("out.parquet")
    named = read_corrections("out.parquet", ("c0", "c1", "c2"), numbered=True)
    assert named == dict(zip(map(str, whole["id"]), whole["label"], strict=True))


def test_going_on_needs_the_same_corrections(here: Path) -> None:
    write([[10, "c1"]])
    assert embasis(*FIT).exit_code == 0
    assert "nothing is left to train" in embasis(*FIT).stdout
    before = digests(Path("new"))
    changed = (
        "embasis: the data have changed since the run began: {}; "
        "use another folder, the old data, or --accept-data-change\n"
    )
    write([[10, "c2"]])
    assert (result := embasis(*FIT)).exit_code == 3
    assert result.stderr == changed.format("labelled (0 added, 0 removed, 1 edited: 'row 7586747249208401415')")
    write([[10, "c1"], [11, "c1"]])
    both = r"labelled \({}: 'row [0-9]+'\), labels, unlabelled \({}: 'row {}'\)"
    more = both.format("1 added, 0 removed, 0 edited", "0 added, 1 removed, 0 edited", 11)
    assert re.fullmatch(changed.format(more), embasis(*FIT).stderr)
    less = both.format("0 added, 1 removed, 0 edited", "1 added, 0 removed, 0 edited", 10)
    assert re.fullmatch(changed.format(less), embasis(*FIT[:-2]).stderr)
    assert digests(Path("new")) == before


def test_the_order_of_the_file_changes_nothing(here: Path) -> None:
    rows = [[10, "c1"], [40, "c0"], [13, "c2"]]
    write(rows)
    assert embasis(*FIT).exit_code == 0
    write([*rows[::-1], rows[0]], name="turned-fix.csv")
    assert embasis(*FIT[:3], "-o", "again", "rounds=1", "--corrections", "turned-fix.csv").exit_code == 0
    one, two = (
        {name: value for name, value in digests(Path(run)).items() if name not in ("facts", "config.json")}
        for run in ("new", "again")
    )
    assert one == two


def test_hidden_labels_of_moved_rows_change_nothing(here: Path) -> None:
    """Only what the person wrote counts: other true labels of these rows, the same run."""
    write([[10, "c1"], [12, "c0"]])
    assert embasis(*FIT).exit_code == 0
    lines = Path("judged.csv").read_text().splitlines()
    lines[1] = f"{lines[1].rpartition(',')[0]},c2"
    Path("judged.csv").write_text("\n".join(lines) + "\n")
    assert "nothing is left to train" in embasis(*FIT).stdout


KNOWN = "the labelled side has: 'c0', 'c1', 'c2'"
BAD: dict[str, tuple[str, str]] = {
    "unknown class": ("id,label\n10,c1\n11,dog\n", f"fix.csv: unknown classes: 'dog'; {KNOWN}"),
    "unknown ids": (
        "id,label\n" + "".join(f"{number},c1\n" for number in (10, *range(900, 907))),
        "fix.csv: 7 ids are not in judged.csv: '900', '901', '902', '903', '904' and 2 more",
    ),
    "hostile ids": (
        'id,label\n../x,c1\n/etc/passwd,c1\n"a\nb",c1\n\'=cmd(),c1\n',
        "fix.csv: 4 ids are not in judged.csv: '../x', '/etc/passwd', '=cmd()', 'a\\nb'",
    ),
    "two labels": ("id,label\n10,c1\n10.0,c2\n", "fix.csv: '10' has two labels, 'c1' and 'c2'"),
    "nothing": ("", "fix.csv: the file is empty"),
    "header": ("id,label\n", "fix.csv: no rows"),
    "no label": ("id,label\n10,\n11,\n", "fix.csv: no row has a label; there is nothing to correct"),
    "nothing marked": (
        "id,label,corrected\n10,c1,\n11,c2,no\n",
        "fix.csv: no row has column 'corrected' filled; there is nothing to correct",
    ),
    "marked and bare": (
        "id,label,corrected\n10,c1,x\n11,,x\n",
        "fix.csv: row 2 is marked as corrected and has no label",
    ),
    "no id": ("id,label\n,c1\n", "fix.csv: a row has a label and no id"),
    "no id column": ("name,label\n10,c1\n", "fix.csv: no column 'id' or 'path'; columns: 'label', 'name'"),
    "no label column": ("id,class\n10,c1\n", "fix.csv: no column 'label'; columns: 'class', 'id'"),
    "semicolons or commas": (
        "id;label,corrected\n10;c1,c2\n",
        "fix.csv: its cells may be separated by commas or semicolons; "
        "put names and texts into quotation marks, or write the file with one of them only",
    ),
    "ragged": ("id,label\n10\n", "fix.csv: line 2 has 1 fields, the header has 2"),
    "twice": ("id,label,label\n10,c1,c2\n", "fix.csv: columns must have different names, twice or more: 'label'"),
    "all rows": (
        "id,label\n" + "".join(f"{number},c1\n" for number in range(10, 70)),
        "fix.csv: names all 60 of judged.csv, so that nothing is left to adapt to; keep the ones that were corrected",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_file_that_cannot_be_meant_is_refused_with_a_sentence(here: Path, kind: str) -> None:
    content, sentence = BAD[kind]
    Path("fix.csv").write_text(content)
    refused(3, sentence, *FIT)


def test_what_is_no_table_is_refused(here: Path) -> None:
    refused(3, "fix.csv: no such file", *FIT)
    rule = "corrections must be a .csv or .parquet file with columns id and label, or a .json file of Label Studio"
    refused(3, f"fix.xlsx: {rule}", *FIT[:-1], "fix.xlsx")
    Path("fix.csv").mkdir()
    refused(3, f"fix.csv: {rule}", *FIT)
    Path("bad.parquet").write_bytes(b"PAR1 and no more")
    result = embasis(*FIT[:-1], "bad.parquet")
    assert result.exit_code == 3
    assert result.stderr.startswith("embasis: bad.parquet: not a readable .parquet file: ")


def test_corrections_of_a_named_data_set_are_refused(here: Path) -> None:
    rule = "corrections are for data of your own, LABELLED and UNLABELLED, not for a named data set"
    refused(2, rule, "fit", "--dataset", "blobs", "-o", "new", "--corrections", "fix.csv")


DIGITS = ("0", "1", "2")
MARKED: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "marks": ("1,a,x\n2,b,\n3,b,YES\n", ("a", "b"), {"1": "a", "3": "b"}),
    "classes": ("1,a,b\n2,b,\n3,b,a\n", ("a", "b"), {"1": "b", "3": "a"}),
    "numbers as classes": ("1,0,2\n2,1,\n3,1,0\n", DIGITS, {"1": "2", "3": "0"}),
    "marks beside numbers": ("1,0,x\n2,1,\n3,2.0,x\n", DIGITS, {"1": "0", "3": "2"}),
    "true and false": ("1,a,true\n2,b,false\n", ("a", "b"), {"1": "a"}),
    "a class called x": ("1,a,x\n2,b,a\n", ("a", "b", "x"), {"1": "x", "2": "a"}),
    "classes and marks": (
        "1,dog,horse\n2,dog,x\n3,horse,\n4,dog,No\n5,horse, X \n",
        ("dog", "horse"),
        {"1": "horse", "2": "dog", "5": "horse"},
    ),
    "numbers and marks": ("1,0,2\n2,1,x\n3,1.0,yes\n", DIGITS, {"1": "2", "2": "1", "3": "1"}),
    "a class called no": ("1,no,maybe\n2,no,no\n", ("maybe", "no"), {"1": "maybe", "2": "no"}),
}


@pytest.mark.parametrize("kind", MARKED)
def test_the_column_corrected_names_the_class_or_marks_the_row(here: Path, kind: str) -> None:
    rows, classes, expected = MARKED[kind]
    Path("fix.csv").write_text("id,label,corrected\n" + rows)
    assert read_corrections("fix.csv", classes, numbered=True) == expected


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_file_as_a_spreadsheet_of_another_country_saves_it_is_read(here: Path, separator: str) -> None:
    rows = [["id", "label", "probability", "corrected"], ["1", "dog", "0,97", "horse"], ["2", '"horse"', "0,5", "x"]]
    lines = [separator.join(cells) for cells in [*rows, ["3", "dog", "", ""]]]
    Path("fix.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*lines, ""]).encode())
    assert read_corrections("fix.csv", ("dog", "horse"), numbered=True) == {"1": "horse", "2": "horse"}


def test_a_mark_that_is_a_class_among_marks_and_classes_is_refused(here: Path) -> None:
    write([[1, "2", "1"], [2, "0", "x"], [3, "0", "2"]], "id,label,corrected")
    with pytest.raises(InputDataError) as caught:
        read_corrections("fix.csv", DIGITS, numbered=True)
    assert str(caught.value) == (
        "fix.csv: column 'corrected' may name classes or mark rows: '1'; "
        "write the class into every row that was corrected"
    )


@pytest.mark.parametrize(("cells", "classes"), [("1", DIGITS), ("0", DIGITS), ("x", ("X", "y"))])
def test_a_mark_that_is_a_class_as_well_is_refused(here: Path, cells: str, classes: tuple[str, ...]) -> None:
    write([[1, classes[1], cells], [2, classes[0], ""]], "id,label,corrected")
    with pytest.raises(InputDataError) as caught:
        read_corrections("fix.csv", classes, numbered=True)
    mark = "yes" if cells == "x" else "x"
    hint = f"mark rows with {mark}, or leave the column out and keep corrected rows only"
    assert str(caught.value) == f"fix.csv: column 'corrected' may name classes or mark rows: {cells!r}; {hint}"


def test_parquet_keeps_what_it_has(here: Path) -> None:
    columns: dict[str, list[Any]] = {"id": [1, 2, 3], "label": ["a", "b", None], "corrected": [True, False, None]}
    Path("fix.parquet").write_bytes(encode_table(columns, ".parquet"))
    assert read_corrections("fix.parquet", ("a", "b"), numbered=True) == {"1": "a"}
    columns = {"path": ["'=x", "=y"], "label": ["a", "b"]}  # nothing is escaped there
    Path("fix.parquet").write_bytes(encode_table(columns, ".parquet"))
    assert read_corrections("fix.parquet", ("a", "b"), numbered=False) == {"'=x": "a", "=y": "b"}


# --- images


HOSTILE = ("=cmd().png", "-x.png", "zeile\nzwei.png", "'=y.png", 'a "b", c.png', "@home.png")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders, hostile names on the unlabelled side, one name that both sides have, and a finished run."""
    root = image_sides(tmp_path_factory.mktemp("images"))
    plant(root / "paintings", {name: picture(number % 3, 70 + number, 40) for number, name in enumerate(HOSTILE)})
    plant(root / "paintings", {"amsel/bild 0.png": picture(0, 90, 40)})
    return cli_tables.fit_without_page(root, root / "photos", root / "paintings", *WORDS, "rounds=1")


@pytest.fixture
def pictures(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "here" / "cache"))
    return cli_tables.copied(made, tmp_path / "here", monkeypatch)


PAINT = ("fit", "photos", "paintings", "-o", "new", *WORDS, "rounds=1", "--corrections")


def test_images_that_predict_or_export_named_come_back_whatever_they_are_called(pictures: Path) -> None:
    assert embasis("predict", "run", "paintings", "-o", "labels.csv", "--workers", 0).exit_code == 0
    assert embasis("export", "run", "-o", "all.csv", "--as", "csv", "--all").exit_code == 0
    wanted = {*HOSTILE, "amsel/bild 0.png"}
    for number, name in enumerate(("labels.csv", "all.csv")):
        columns = read_stored_table(name)
        marks = ["Möwe" if id in wanted else "" for id in columns["id"]]
        Path("fix.csv").write_bytes(encode_table({**columns, "corrected": marks}, ".csv"))
        assert escape_formula("=cmd().png") == "'=cmd().png" in Path("fix.csv").read_text()
        out = f"new{number}"
        result = embasis(*PAINT[:4], out, *WORDS, "rounds=1", "--corrections", "fix.csv")
        assert result.exit_code == 0, result.output
        assert "25 labelled and 18 unlabelled rows" in result.stdout
        before, after = (read_stored_table(f"{run}/labels/round-001.parquet")["id"] for run in ("run", out))
        assert {*before} - {*after} == wanted
    (line,) = [line for line in result.stdout.splitlines() if "labelled ones now" in line]
    assert line == "note: fix.csv: 7 rows of paintings are labelled ones now"


def test_moved_images_keep_their_ids_and_get_the_labels(pictures: Path) -> None:
    before = load_images("photos", "paintings")
    found = with_corrections(before, {"=cmd().png": "Möwe", "amsel/bild 0.png": "amsel"}, "f", "u")
    labelled: Any = found.labelled
    names = dict(zip(labelled.names, labelled.labels.tolist(), strict=True))
    assert names["=cmd().png"] == sorted(CLASSES).index("Möwe")
    assert names["amsel/bild 0.png"] == names["corrections/amsel/bild 0.png"] == sorted(CLASSES).index("amsel")
    unlabelled: Any = before.unlabelled
    old = dict(zip(unlabelled.names, unlabelled.ids.tolist(), strict=True))
    new = dict(zip(labelled.names, labelled.ids.tolist(), strict=True))
    assert new["=cmd().png"] == old["=cmd().png"]
    assert len(found.row_names or ()) == len(before.row_names or ()) - 2
    assert "=cmd().png" not in (found.row_names or ())


@pytest.mark.parametrize("depth", ["partial", "full"])
def test_corrections_work_at_every_depth(pictures: Path, depth: str) -> None:
    write([["=cmd().png", "amsel"], ["@home.png", "Möwe"]], "path,label")
    plan = ("source_epochs=1", "epochs=1", "batch_size=8", "images.workers=0", f"images.depth={depth}")
    result = embasis(*PAINT, "fix.csv", *plan)
    assert result.exit_code == 0, result.output
    assert "20 labelled and 23 unlabelled rows" in result.stdout


def test_images_that_are_not_there_and_maps_for_images_are_refused(pictures: Path) -> None:
    write([["../photos/amsel/bild 0.png", "amsel"], ["/etc/passwd", "amsel"], ["amsel/bild 0.png", "amsel"]])
    sentence = "fix.csv: 2 ids are not in paintings: '../photos/amsel/bild 0.png', '/etc/passwd'"
    refused(3, sentence, *PAINT, "fix.csv")
    rule = "corrections must be a .csv or .parquet file with columns id and label, or a .json file of Label Studio"
    refused(3, f"photos: {rule}", *PAINT, "photos")


def test_a_problem_says_how_many_rows_were_corrected(pictures: Path) -> None:
    before: Problem = load_images("photos", "paintings")
    assert before.corrected == 0
    after = with_corrections(replace(before, notes=("old",)), {"-x.png": "amsel"}, "/home/me/fix.csv", "paintings")
    assert after.corrected == 1
    assert after.notes == ("old", "/home/me/fix.csv: 1 row of paintings is a labelled one now")
    Path("deep").mkdir()
    write([["-x.png", "amsel"]], name="deep/fix.csv")
    assert embasis(*PAINT, pictures / "deep" / "fix.csv").exit_code == 0
    assert read_newest("new").facts["notes"][-1] == "fix.csv: 1 row of paintings is a labelled one now"
    assert str(pictures) not in str(read_newest("new").facts)


# --- unusable rows


def test_unusable_rows_leave_the_unlabelled_side_and_go_nowhere(here: Path) -> None:
    write([[10, "c1", ""], [11, "", "true"], [12, "c0", "X"]], "id,label,unusable")
    before = load_pair("labelled.csv", "judged.csv")
    found = apply_corrections(before, "fix.csv", "judged.csv")
    assert (len(found.labelled), len(found.unlabelled), found.corrected) == (61, 57, 1)
    assert found.notes[-2:] == (
        "fix.csv: 1 row of judged.csv is a labelled one now",
        "fix.csv: 2 rows of judged.csv are unusable and left out",
    )


def test_a_file_may_name_unusable_rows_alone(here: Path) -> None:
    write([[10, "", "yes"]], "id,label,unusable")
    before = load_pair("labelled.csv", "judged.csv")
    found = apply_corrections(before, "fix.csv", "judged.csv")
    assert found.labelled is before.labelled
    assert (len(found.unlabelled), found.corrected) == (59, 0)


def test_marks_of_unusable_rows_are_marks(here: Path) -> None:
    write([[10, "c1", "maybe"]], "id,label,unusable")
    rule = "fix.csv: column 'unusable' takes marks: x, yes, true, 1, or nothing; got 'maybe'"
    refused(3, rule, *FIT)
    write([[10, "c1", ""], [10, "", "x"]], "id,label,unusable")
    refused(3, "fix.csv: '10' has two labels, 'c1' and unusable", *FIT)
    write([[number, "", "x"] for number in range(10, 70)], "id,label,unusable")
    refused(
        3,
        "fix.csv: names all 60 of judged.csv, so that nothing is left to adapt to; keep the ones that were corrected",
        *FIT,
    )
