"""Tables as spreadsheets of other countries save them: separators, decimal commas, and what cannot be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_tables import embasis, write_tables
from embasis.data.formats import csv_separator, read_csv_header
from embasis.data.images.scan import is_list
from embasis.data.tables import read_table
from image_trees import refusal


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(text: str, mark: bytes = b"") -> Path:
    Path("a.csv").write_bytes(mark + text.encode())
    return Path("a.csv")


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("a,b\n1,2\n", ","),
        ("a;b\n1;2\n", ";"),
        ("a\tb\n1\t2\n", "\t"),
        ("a\n1\n", ","),
        ("a\n1;2\n", ","),
        ("", ","),
        ('"a,b";c\n1;2\n', ";"),
        ('"a;b",c\n1,2\n', ","),
        ('"a\n,";b\n1;2\n', ";"),
        ('"say ""a,b""";c\n1;2\n', ";"),
        ("a;b,c\n1,2\n", ","),
        ("size, in m;b\n1,5;2\n2;3\n", ";"),
        ("a,b;c,d\n1\n", ","),
        ('5" pipe;b\n1;2\n', ";"),
        ("\r\n\r\na;b\r\n1;2\r\n", ";"),
    ],
)
def test_the_header_tells_what_separates_cells_and_the_rows_where_it_does_not(text: str, separator: str) -> None:
    assert csv_separator(written(text)) == separator
    assert csv_separator(written(text, b"\xef\xbb\xbf")) == separator


def test_two_separators_that_both_fit_are_refused() -> None:
    assert refusal(lambda: read_csv_header(written("a;b,c\n1;2,3\n"))) == (
        "a.csv: its cells may be separated by commas or semicolons; "
        "put names and texts into quotation marks, or write the file with one of them only"
    )


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("decimal", [".", ","])
def test_the_numbers_are_those_of_the_plain_file(separator: str, decimal: str) -> None:
    plain = "id,a,label\n7,0.5,x\n8,-1250,y\n9,1.5e-3,\n10,1.250,z\n11,.25,x\n"
    expected = read_table(written(plain))
    text = plain.replace(",", separator).replace(".", decimal).replace("\n", "\r\n").replace("label", '"label"')
    found = read_table(written(text, b"\xef\xbb\xbf"))
    assert (found.x == expected.x).all()
    assert (found.columns, found.labels, found.ids.tolist()) == (("a",), ["x", "y", "", "z", "x"], [7, 8, 9, 10, 11])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "a;b\n1;2\n3;1,250\n",
            "line 3: '1,250' may have a decimal comma or one between thousands, and no other number tells; "
            "write 1.250 or 1250 in place of 1,250",
        ),
        ("a;b\n1,5;2.5\n", "line 2, column 'b': '2.5' is not a number with a decimal comma"),
        ("a;b\n1.5;2,5\n", "line 2, column 'b': '2,5' is not a number with a decimal point"),
        ("a;b\n0,5;1.234,5\n", "line 2, column 'b': '1.234,5' is not a number with a decimal comma"),
        ("a;b\n0,5;two\n", "line 2, column 'b': 'two' is not a number with a decimal comma"),
        ("a,b\n0.5,two\n", "line 2, column 'b': 'two' is not a number"),
        ("a;b\n0,5\n", "line 2 has 1 fields, the header has 2"),
    ],
)
def test_numbers_that_cannot_be_told_are_refused(text: str, sentence: str) -> None:
    assert refusal(lambda: read_table(written(text))) == f"a.csv: {sentence}"


@pytest.mark.parametrize(("number", "value"), [("1,250", 1.25), ("12,250", 12.25), ("-999,999", -999.999)])
def test_one_number_that_tells_is_enough(number: str, value: float) -> None:
    table = read_table(written(f"a;b\n{number};1\n0,250;2\n"))
    assert table.x[:, 0].tolist() == pytest.approx([value, 0.25])


def test_a_list_of_images_may_have_semicolons_and_commas_in_its_paths() -> None:
    assert is_list(written("path;label\na,b.png;x\n"))


def test_a_run_on_a_spreadsheet_of_another_country_is_the_run_on_the_plain_file(here: Path) -> None:
    write_tables(here)
    for name in ("labelled", "judged"):
        text = Path(f"{name}.csv").read_text()
        Path(f"{name}-de.csv").write_text("\ufeff" + text.replace(",", ";").replace(".", ","), encoding="utf-8")
    for end in ("", "-de"):
        run = embasis("fit", f"labelled{end}.csv", f"judged{end}.csv", "-o", f"run{end}", "rounds=1")
        assert run.exit_code == 0, run.output
        assert embasis("predict", f"run{end}", f"judged{end}.csv", "-o", f"labels{end}.csv").exit_code == 0
    assert Path("labels-de.csv").read_bytes() == Path("labels.csv").read_bytes()
    assert embasis("check", "labelled-de.csv", "judged.csv").exit_code == 0
