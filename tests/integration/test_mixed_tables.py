"""Tables with texts, dates, true and false and gaps, from the command line and Python: fit, predict, resume, save."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli_tables import embasis
from embasis import TableModel, fit_tables
from embasis.errors import CorruptError, EmbasisWarning, InputDataError
from embasis.runs.checkpoint import unpack_encoding
from embasis.storage import read_newest
from paths import DATA

pytestmark = pytest.mark.usefixtures("fast_runs")
SHORT = ("rounds=1", "source_epochs=2", "epochs=1")
COLUMNS = ("size", "colour", "sharp", "seen", "comment")


def make_rows(count: int, seed: int, shift: float) -> list[dict[str, str]]:
    """Large things are red and sharp, small ones blue; a tenth of all cells is empty."""
    draw, made = np.random.default_rng(seed), []
    for number in range(count):
        kind = number % 2
        cells = {
            "size": f"{draw.normal(3 * kind + shift, 1):.4f}",
            "colour": str(draw.choice(["red", "rose", "blue"], p=[0.6, 0.3, 0.1] if kind else [0.1, 0.1, 0.8])),
            "sharp": "True" if draw.random() < 0.2 + 0.6 * kind else "False",
            "seen": f"2026-{1 + number % 12:02d}-{1 + number % 28:02d}",
        }
        cells = {name: "" if draw.random() < 0.1 else cell for name, cell in cells.items()}
        made.append({**cells, "comment": f"thing {seed} {number}", "label": ("small", "large")[kind]})
    return made


def write(name: str, rows: list[dict[str, str]], labels: bool = False) -> list[dict[str, str]]:
    with open(name, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, [*COLUMNS, *(["label"] if labels else [])], extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
    return rows


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write("a.csv", make_rows(80, 0, 0.0), labels=True)
    write("b.csv", make_rows(60, 1, 0.5), labels=True)
    write("c.csv", make_rows(10, 2, 0.5))
    return tmp_path


def test_the_commands_go_through_with_tables_as_they_are(here: Path) -> None:
    refused = embasis("check", "a.csv", "b.csv")
    assert refused.exit_code == 3
    assert "error: a.csv and b.csv: column 'comment' has 140 different texts" in refused.output
    checked = embasis("check", "a.csv", "b.csv", "--drop", "comment")
    assert checked.exit_code == 0, checked.output
    fitted = embasis("fit", "a.csv", "b.csv", "-o", "run", "--drop", "comment", *SHORT)
    assert fitted.exit_code == 0, fitted.output
    assert "note: categories have a column for each value: 'colour' (3)" in fitted.output
    first = Path("run/rounds.jsonl").read_bytes()
    again = embasis("fit", "a.csv", "b.csv", "-o", "run", "--drop", "comment", *SHORT)
    assert again.exit_code == 0, again.output
    assert Path("run/rounds.jsonl").read_bytes() == first
    done = embasis("predict", "run", "c.csv", "-o", "labels.csv")
    assert done.exit_code == 0, done.output
    assert len(Path("labels.csv").read_text().splitlines()) == 11
    exported = embasis("export", "run", "-o", "out.csv", "--as", "csv", "--all")
    assert exported.exit_code == 0, exported.output
    assert len(Path("out.csv").read_text().splitlines()) == 61
    assert json.loads(Path("run/rounds.jsonl").read_text().splitlines()[-1])["evaluation"]["accuracy"] > 0.8


def test_a_model_takes_its_encoding_along_and_says_what_it_does_not_know(here: Path) -> None:
    model = fit_tables("a.csv", "b.csv", drop=["comment"], rounds=1)
    expected = model.predict_proba("c.csv")
    model.save("model")
    loaded = TableModel.load("model")
    assert np.array_equal(loaded.predict_proba("c.csv"), expected)
    rows = make_rows(10, 2, 0.5)
    for row in rows[:3]:
        row["colour"] = "mauve" if row is not rows[2] else "Red"
    write("d.csv", rows)
    sentence = (
        "d.csv: 3 rows have values of column 'colour' that the model does not know ('Red', 'mauve'): "
        "they count as none of its values"
    )
    with pytest.warns(EmbasisWarning) as met:
        found = loaded.predict_proba("d.csv")
    assert [str(each.message) for each in met] == [sentence]
    assert np.array_equal(found[3:], expected[3:])
    done = embasis("predict", "model", "d.csv", "-o", "labels.csv")
    assert f"warning: {sentence}\n" in done.stderr


def test_rows_in_memory_have_the_labels_of_their_table(here: Path) -> None:
    model = fit_tables("a.csv", "b.csv", drop=["comment"], rounds=1)
    expected, frame = model.predict_proba("c.csv"), pd.read_csv("c.csv")
    assert np.array_equal(model.predict_proba(frame), expected)
    frame["seen"], frame["sharp"] = pd.to_datetime(frame["seen"]), frame["sharp"].astype("boolean")
    frame["colour"] = frame["colour"].astype("category")
    assert np.array_equal(model.predict_proba(frame[list(reversed(frame.columns))]), expected)
    assert np.array_equal(model.predict_proba({name: frame[name].tolist() for name in COLUMNS[:4]}), expected)
    with pytest.raises(InputDataError, match=r"^X: no column 'colour'$"):
        model.predict_proba(frame.drop(columns="colour"))
    with pytest.raises(InputDataError) as caught:
        model.predict_proba(np.zeros((2, 4)))
    assert str(caught.value) == (
        "the run's table has columns that are no numbers, or gaps: give a path, a data frame or a mapping of columns"
    )


def test_a_table_of_other_kinds_than_the_model_s_is_refused_with_every_column(here: Path) -> None:
    model = fit_tables("a.csv", "b.csv", drop=["comment"], rounds=1)
    rows = make_rows(4, 3, 0.5)
    rows[1] |= {"size": "big", "seen": "soon"}
    write("d.csv", rows)
    with pytest.raises(InputDataError) as caught:
        model.predict("d.csv")
    assert str(caught.value) == (
        "d.csv: line 3, column 'size': 'big' is not a number; "
        "d.csv: line 3, column 'seen': 'soon' is not a date such as 2026-11-18"
    )


def test_a_model_of_numbers_fills_gaps_of_new_rows_and_says_so(here: Path) -> None:
    for name, count in (("n.csv", 40), ("m.csv", 30)):
        rows = [f"{i % 2 + i / 100},{i},{'xy'[i % 2]}" for i in range(count)]
        Path(name).write_text("p,q,label\n" + "\n".join(rows) + "\n")
    model = fit_tables("n.csv", "m.csv", rounds=1)
    Path("new.csv").write_text("q,p\n14.5,1.2\n,1.2\n")
    with pytest.warns(EmbasisWarning) as met:
        found = model.predict_proba("new.csv")
    assert str(met[0].message) == "new.csv: 1 gap in column 'q', which had none in training; its mean is set there"
    assert found[0].tolist() == found[1].tolist()  # 14.5 is the mean of m.csv


def test_facts_of_columns_that_are_damaged_are_refused(here: Path) -> None:
    fit_tables("a.csv", "b.csv", drop=["comment"], rounds=0, output="run")
    facts = read_newest("run").facts
    shape = tuple(facts["shape"])
    assert unpack_encoding(facts, shape) is not None
    columns = facts["encoding"]["columns"]
    damaged = "the run's facts of its columns are damaged"
    for change, reason in (
        ({"version": 2}, "Expected `int` <= 1 - at `$.version`"),
        ({"columns": columns[:-1]}, "they make 8 features, the model has shape (14,)"),
        (
            {"columns": [{**columns[0], "kind": "pickle"}]},
            "kind must be one of number, boolean, date, category, got 'pickle'",
        ),
        (
            {"columns": [{**columns[0], "fills": [[1e999], [0]]}]},
            "fills of column 'size' must be 1 finite numbers for each side",
        ),
        ({"columns": [{**columns[0], "name": 3}]}, "Expected `str`, got `int` - at `$.columns[0].name`"),
    ):
        with pytest.raises(CorruptError) as caught:
            unpack_encoding({**facts, "encoding": {**facts["encoding"], **change}}, shape)
        assert str(caught.value) == f"{damaged}: {reason}"


HEART = DATA / "heart_disease.npz"
CHEST_PAIN = {1: "typical", 2: "atypical", 3: "other", 4: "none"}


def write_hospital(name: str, hospital: str) -> None:
    """The patients of a hospital as it collected them: words, true and false, and gaps written in two ways."""
    pack = np.load(HEART, allow_pickle=False)
    names = pack["features"].tolist()
    with open(name, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow([*names, "label"])
        for values, y in zip(pack["X_raw"][(chosen := pack["domain"] == hospital)], pack["y"][chosen], strict=True):
            cells = {key: ("?" if key == "ca" else "") if value != value else f"{value:.4g}"
                     for key, value in zip(names, values.tolist(), strict=True)}  # fmt: skip
            cells |= {"cp": CHEST_PAIN[int(float(cells["cp"]))], "sex": str(cells["sex"] == "1")}
            table.writerow([*cells.values(), ("healthy", "sick")[int(y)]])


@pytest.mark.skipif(not HEART.is_file(), reason=f"needs {HEART.name} of the data packs")
def test_patients_of_hospitals_go_through_with_their_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, hospital in (("a.csv", "cleveland"), ("b.csv", "hungarian"), ("c.csv", "switzerland")):
        write_hospital(name, hospital)
    done = embasis("fit", "a.csv", "b.csv", "-o", "run", "rounds=1")
    assert done.exit_code == 0, done.output
    facts = read_newest("run").facts
    assert (len(facts["encoding"]["columns"]), facts["shape"]) == (13, [25])
    assert facts["records"][0]["evaluation"]["accuracy"] > 0.8
    done = embasis("predict", "run", "c.csv", "-o", "labels.csv")
    assert done.exit_code == 0, done.output
    assert "gaps in column 'oldpeak', which had none in training; its mean is set there" in done.stderr
    assert len(Path("labels.csv").read_text().splitlines()) == 124
