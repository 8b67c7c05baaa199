"""Tables as they are: texts, true and false, dates and gaps become numbers by an encoding that both sides share."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embasis.data.encoding import MOST_VALUES
from embasis.data.raw_columns import RawColumn, read_date
from embasis.data.table_pair import TableColumns, check_pair, load_pair
from embasis.errors import InputDataError
from embasis.types import Arrays, ColumnEncoding, Problem, TableEncoding

A = "colour,weight,smokes,seen,label\nred,1.5,True,2026-01-05,x\nblue,,false,2026-03-01,y\nred,3,TRUE,,x\n"
B = "colour,weight,smokes,seen\ngreen,4,False,2026-07-01\n?,5,true,2026-07-02\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "a.csv", A), write(tmp_path / "b.csv", B)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(InputDataError) as caught:
        call()
    return str(caught.value)


def rows(problem: Problem, side: str) -> dict[str, list[float]]:
    """The features of a side by name."""
    samples = getattr(problem, side)
    assert isinstance(samples, Arrays)
    assert problem.columns is not None
    return {name: samples.x[:, place].tolist() for place, name in enumerate(problem.columns)}


def errors(*tables: Path, drop: tuple[str, ...] = ()) -> list[str]:
    found = check_pair(tables[0], tables[1], columns=TableColumns(dropped=drop))
    return [finding.text for finding in found if finding.level == "error"]


def test_each_kind_of_column_becomes_the_numbers_that_the_page_promises(pair: tuple[Path, Path]) -> None:
    problem = load_pair(*pair)
    one, two = rows(problem, "labelled"), rows(problem, "unlabelled")
    assert [one[f"colour={value}"] for value in ("blue", "green", "red")] == [[0, 1, 0], [0, 0, 0], [1, 0, 1]]
    assert [two[f"colour={value}"] for value in ("blue", "green", "red")] == [[0, 0], [1, 0], [0, 0]]
    assert (one["colour is missing"], two["colour is missing"]) == ([0, 0, 0], [0, 1])
    assert (one["weight"], two["weight"]) == ([1.5, 2.25, 3], [4, 5])  # the mean of its own side
    assert (one["weight is missing"], two["weight is missing"]) == ([0, 1, 0], [0, 0])
    assert (one["smokes"], two["smokes"]) == ([1, 0, 1], [0, 1])
    days = [(np.datetime64(day) - np.datetime64("1970-01-01")).astype(int) for day in ("2026-01-05", "2026-03-01")]
    assert one["seen"] == [*days, pytest.approx(sum(days) / 2)]
    assert one["seen is missing"] == [0, 0, 1]
    assert one["seen (sine of the week)"][:2] == pytest.approx([0, math.sin(2 * math.pi * 6 / 7)], abs=1e-6)  # Mo, Su
    assert one["seen (cosine of the year)"][0] == pytest.approx(math.cos(2 * math.pi * 4 / 365))
    assert "seen (sine of the day)" not in one  # there are no times


def test_a_date_with_a_time_has_a_place_in_the_day_too(tmp_path: Path) -> None:
    a = write(tmp_path / "a.csv", "t,label\n2026-01-05 06:00,x\n2026-01-06T18:00:00Z,y\n")
    b = write(tmp_path / "b.csv", "t\n2026-01-05T12:00:00.5+02:00\n")
    found = rows(load_pair(a, b), "labelled")
    assert found["t (sine of the day)"] == pytest.approx([1, -1])
    assert found["t"][0] % 1 == pytest.approx(0.25, abs=1e-3)
    assert read_date("2026-02-30") is None
    assert read_date("1970-01-02T12:00:00+12:00") == 1.0


def test_a_parquet_table_has_the_features_of_the_same_csv_table(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    days = pa.array([date(2026, 1, 5), date(2026, 3, 1), None], pa.date32())
    first = {
        "colour": pa.array(["red", "blue", "red"]).dictionary_encode(), "weight": [1.5, None, 3.0],
        "smokes": [True, False, True], "seen": days, "label": ["x", "y", "x"],
    }  # fmt: skip
    moments = pa.array([np.datetime64("2026-07-01", "ns"), np.datetime64("2026-07-02", "ns")], pa.timestamp("ns"))
    second = {"colour": ["green", None], "weight": [4, 5], "smokes": [False, True], "seen": moments}
    for name, columns in (("a.parquet", first), ("b.parquet", second)):
        pq.write_table(pa.table(columns), tmp_path / name)
    found, expected = load_pair(tmp_path / "a.parquet", tmp_path / "b.parquet"), load_pair(*pair)
    for side in ("labelled", "unlabelled"):
        assert rows(found, side) == rows(expected, side)


def test_columns_that_are_numbers_without_gaps_stay_as_they_are_to_the_bit(tmp_path: Path) -> None:
    draw = np.random.default_rng(0).normal(size=(4, 2))
    lines = [f"{x!r},{y!r},{'ab'[i % 2]}" for i, (x, y) in enumerate(draw.tolist())]
    a = write(tmp_path / "a.csv", "p,q,label\n" + "\n".join(lines) + "\n")
    b = write(tmp_path / "b.csv", "q,p\n1.5,2\n")
    problem = load_pair(a, b)
    assert problem.columns == ("p", "q")
    assert problem.encoding is not None
    assert problem.encoding.is_plain
    assert isinstance(problem.labelled, Arrays)
    assert np.array_equal(problem.labelled.x.numpy(), draw.astype(np.float32))
    assert rows(problem, "unlabelled") == {"p": [2], "q": [1.5]}
    assert not [note for note in problem.notes if "gaps" in note or "categories" in note]


def test_both_sides_decide_the_kind_and_the_order_of_columns_is_the_labelled_one_s(tmp_path: Path) -> None:
    a = write(tmp_path / "a.csv", "grade,size,label\n1,2,x\n2,3,y\n")
    b = write(tmp_path / "b.csv", "size,grade\n1,none\n2,some\n")
    assert rows(load_pair(a, b), "labelled") == {
        "grade=1": [1, 0], "grade=2": [0, 1], "grade=none": [0, 0], "grade=some": [0, 0], "size": [2, 3],
    }  # fmt: skip


def test_check_lists_every_problem_of_every_column_and_fit_says_them_together(tmp_path: Path) -> None:
    lines = [
        f"{i},free text {i},{'?' if i == 9 else i},1{'a' if i == 7 else ''},0{i % 9 + 1}.02.2026,,k" for i in range(60)
    ]
    a = write(tmp_path / "a.csv", "n,note,m,odd,when,none,label\n" + "\n".join(lines) + "\n1,b,2,3,,,l\n")
    b = write(tmp_path / "b.csv", "n,note,m,odd,when,none\n1,c,2,3,,\n")
    found = errors(a, b)
    assert found == [
        f"{a} and {b}: column 'note' has 62 different texts ('b', 'c', 'free text 0', …) in 62 rows, at most "
        f"{MOST_VALUES} are encoded; leave it out with --drop 'note', or write fewer",
        f"{a}: line 9, column 'odd': '1a' is not a number",
        f"{a}: line 2, column 'when': '01.02.2026' is not a date such as 2026-11-18 (nor are 59 more of its 61 cells)",
        f"{a} and {b}: column 'none' has no value in 62 rows; leave it out with --drop 'none'",
    ]
    assert refusal(lambda: load_pair(a, b)) == "; ".join(found)
    assert errors(a, b, drop=("note", "odd", "when", "none")) == []
    problem = load_pair(a, b, columns=TableColumns(dropped=("note", "odd", "when", "none")))
    assert problem.columns == ("n", "m", "m is missing")
    assert problem.encoding is not None
    assert problem.encoding.dropped == ("note", "odd", "when", "none")


def test_names_of_rows_and_long_texts_are_no_categories(tmp_path: Path) -> None:
    names = "\n".join(f"person {i},x{i % 2}" for i in range(20))
    a, b = write(tmp_path / "a.csv", f"who,label\n{names}\n"), write(tmp_path / "b.csv", "who\nperson 1\n")
    assert errors(a, b) == [
        f"{a} and {b}: column 'who' has 20 different texts ('person 0', 'person 1', 'person 10', …) in 21 rows, "
        "at most 10 are encoded; leave it out with --drop 'who', or write fewer"
    ]
    a = write(tmp_path / "a.csv", f"who,label\n{'long ' * 60},x\nb,y\n")
    assert errors(a, b) == [
        f"{a} and {b}: column 'who' has texts of up to 299 characters, at most 200 are a category; "
        "leave it out with --drop 'who'"
    ]


def test_a_column_to_drop_must_be_there(pair: tuple[Path, Path]) -> None:
    sentence = "no column to drop: 'wheight'; columns: 'colour', 'seen', 'smokes', 'weight'"
    assert refusal(lambda: load_pair(*pair, columns=TableColumns(dropped=("wheight",)))) == sentence
    assert sentence in errors(*pair, drop=("wheight",))


def test_an_encoded_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    a = write(tmp_path / "a.csv", "w,w is missing,label\n1,2,x\n,3,y\n")
    b = write(tmp_path / "b.csv", "w,w is missing\n1,2\n")
    assert (
        refusal(lambda: load_pair(a, b)) == "two columns would both be called 'w is missing' when encoded: rename one"
    )


def test_check_says_what_is_done_to_columns(pair: tuple[Path, Path]) -> None:
    notes = [finding.text for finding in check_pair(*pair) if finding.level == "note" and "spread" not in finding.text]
    assert notes[:6] == [
        f"{pair[0]}: 3 rows of 13 features, made of 4 columns",
        f"{pair[1]}: 2 rows of 13 features, made of 4 columns",
        "true and false are 1 and 0: 'smokes'",
        "dates are days, and sine and cosine of year, week and time of day: 'seen'",
        "categories have a column for each value: 'colour' (3)",
        "gaps are marked in a column of their own, those of numbers filled with the mean of their side: "
        "'colour', 'weight', 'seen'",
    ]


def test_spreadsheets_with_decimal_commas_have_the_same_features(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    other = [write(tmp_path / f"{n}.csv", t.replace(",", ";").replace("1.5", "1,5")) for n, t in (("c", A), ("d", B))]
    found, expected = load_pair(*other), load_pair(*pair)
    assert rows(found, "labelled") == rows(expected, "labelled")


@pytest.mark.parametrize(
    ("cells", "kind", "expected"),
    [
        (["1", None, "2.5"], "number", [1, math.nan, 2.5]),
        (["true", "0", None], "boolean", [1, 0, math.nan]),
        ([None, "1970-01-03"], "date", [math.nan, 2]),
    ],
)
def test_cells_are_read_as_the_kind_that_they_are_of(cells: list[str | None], kind: str, expected: list[float]) -> None:
    column = RawColumn.of_texts(cells)
    assert column.has(kind)
    np.testing.assert_array_equal(column.read(kind), expected)


def test_an_encoding_that_contradicts_itself_is_refused_at_birth() -> None:
    assert (
        refusal(lambda: ColumnEncoding("w", "number")) == "fills of column 'w' must be 1 finite numbers for each side"
    )
    assert refusal(lambda: TableEncoding(())) == "an encoding has at least one column, got none"
    rule = "values of column 'c' must be different, and there for categories alone"
    assert refusal(lambda: ColumnEncoding("c", "category", values=("a", "a"))) == rule
    assert refusal(lambda: ColumnEncoding("c", "number", ((0.0,), (0.0,)), ("a",))) == rule
