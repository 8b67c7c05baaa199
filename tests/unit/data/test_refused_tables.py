"""Tables that say two things, that say nothing, or that are far too long to be said: refused in a sentence, code 3."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli_tables import embasis, refused, write_tables
from embasis.data import formats
from embasis.data.class_labels import label_names
from embasis.data.datasets.digit_sets import read_digit_pack as digit_pack
from embasis.data.formats import read_csv_rows
from embasis.data.images.scan import scan_list
from embasis.data.tables import read_raw
from embasis.errors import ConfigError, InputDataError, join_names, quote, shorten
from embasis.inputs.correction_table import read_corrections

WRITE_UTF8 = "write the table again, with text in UTF-8"
X = np.arange(8.0).reshape(4, 2)


def says(call: Callable[[], object]) -> str:
    with pytest.raises(InputDataError) as caught:
        call()
    return str(caught.value)


def npy(array: np.ndarray) -> bytes:
    np.save(stream := io.BytesIO(), array)
    return stream.getvalue()


def zipped(path: Path, *members: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members:
            with pytest.warns(UserWarning, match="Duplicate") if name in archive.namelist() else nullcontext():
                archive.writestr(name, data)
    return path


# --- labels that are no text


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("code", "shown"), [(0x110000, "0x110000"), (0x7FFFFFFF, "0x7fffffff"), (0xD800, "0xd800")])
def test_a_label_of_a_character_that_is_none_is_refused_with_its_row(
    tmp_path: Path, order: str, code: int, shown: str
) -> None:
    forged = np.array([[97, 98], [97, 0], [99, code], [97, 0]], dtype=f"{order}u4").view(f"{order}U2").ravel()
    path = zipped(tmp_path / "x.npz", ("x.npy", npy(X)), ("y.npy", npy(forged)))
    rule = f"row 2: labels must be text, got the character number {shown}, which is none; {WRITE_UTF8}"
    refused(3, f"{path}: {rule}", "fit", path, path, "-o", tmp_path / "run")
    found = embasis("check", path, path)
    assert found.exit_code == 3
    assert f"error: {path}: {rule}\n" in found.stdout


def test_two_labels_of_bytes_that_are_not_utf8_do_not_become_one_class(tmp_path: Path) -> None:
    """Both 0xe9 and 0xe8 were read as U+FFFD: rows of two classes had one."""
    words = np.array([b"caf\xe9", b"caf\xe8", b"tea", b"tea"])
    path = zipped(tmp_path / "x.npz", ("x.npy", npy(X)), ("y.npy", npy(words)))
    refused(3, f"{path}: row 0: b'caf\\xe9' is not UTF-8 text; {WRITE_UTF8}", "fit", path, path, "-o", tmp_path / "run")
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": X[:, 0], "label": pa.array([b"tea", b"caf\xe8", b"caf\xe9", b"tea"])}), path)
    refused(3, f"{path}: row 1: b'caf\\xe8' is not UTF-8 text; {WRITE_UTF8}", "fit", path, path, "-o", tmp_path / "run")
    pq.write_table(pa.table({"a": X[:, 0], "label": pa.array([b"tea", "café".encode(), None, b"tea"])}), path)
    assert read_raw(path).labels == ["tea", "café", "", "tea"]
    assert label_names(np.array(["café".encode(), b"tea"]), "labelled") == ["café", "tea"]


def test_half_of_a_pair_of_surrogates_is_no_label() -> None:
    rule = f"row 1: 'a\\udc80' is not UTF-8 text; {WRITE_UTF8}"
    assert says(lambda: label_names(["a", "a\udc80"], "labelled")) == f"labelled: {rule}"


def not_utf8(path: Path, columns: dict[str, list[str]]) -> Path:
    """A parquet file whose text `spoiled!` is no UTF-8."""
    pq.write_table(pa.table(columns), path, compression="none", store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"spoiled!", b"spoiled\xff"))
    return path


def test_paths_ids_and_column_names_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    path = not_utf8(tmp_path / "list.parquet", {"path": ["a.png", "spoiled!"], "label": ["a", "b"]})
    assert says(lambda: scan_list(path)) == f"{path}: row 1: b'spoiled\\xff' is not UTF-8 text; {WRITE_UTF8}"
    path = not_utf8(tmp_path / "fix.parquet", {"id": ["7", "8", "spoiled!"], "label": ["a", "b", "a"]})
    rule = f"row 2: b'spoiled\\xff' is not UTF-8 text; {WRITE_UTF8}"
    assert says(lambda: read_corrections(str(path), ("a", "b"), numbered=False)) == f"{path}: {rule}"
    pq.write_table(pa.table({"id": [b"7", b"8"], "label": [b"a", b"b"]}), path)
    assert read_corrections(str(path), ("a", "b"), numbered=False) == {"7": "a", "8": "b"}
    path = not_utf8(tmp_path / "x.parquet", {"spoiled!": ["1"], "label": ["a"]})
    reason = "'utf-8' codec can't decode byte 0xff in position 7: invalid start byte"
    assert says(lambda: read_raw(path)) == f"{path}: a name in it is not UTF-8 text: {reason}; {WRITE_UTF8}"


# --- arrays that say two things


@pytest.mark.parametrize("second", ["x.npy", "x"])
def test_two_arrays_of_one_name_are_refused(tmp_path: Path, second: str) -> None:
    path = zipped(tmp_path / "x.npz", ("x.npy", npy(X)), ("y.npy", npy(np.arange(4))), (second, npy(X + 1)))
    hint = "write the file anew with one array under each name"
    rule = f"arrays must have different names, twice or more: 'x'; {hint}"
    refused(3, f"{path}: {rule}", "fit", path, path, "-o", tmp_path / "run")
    pack = [(f"{name}.npy", npy(np.zeros(1))) for name in ("train_x", "train_y", "test_x", "test_y", "test_y")]
    path = zipped(tmp_path / "mnist.npz", *pack)
    rule = f"arrays must have different names, twice or more: 'test_y'; {hint}"
    assert says(lambda: digit_pack(tmp_path, "mnist")) == f"{path}: {rule}"


@pytest.mark.parametrize("value", ["0", "1", "'False'", "None", "[]"])
def test_a_column_order_that_is_no_boolean_is_refused(tmp_path: Path, value: str) -> None:
    data = npy(X).replace(b"'fortran_order': False,", f"'fortran_order': {value},".encode().ljust(23))
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    rule = f"not a readable numpy array: its fortran_order is {value}, it must be True or False"
    assert says(lambda: read_raw(path)) == f"{path}: {rule}"


# --- a line without an end


HINT = "is it a .csv file, with a line for each row and every quotation mark closed?"


def test_a_quotation_mark_that_is_never_closed_does_not_hold_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"a,b\n1,{'2' * 100_000}\n" * 200)  # 20 MB in short records
    assert len(list(read_csv_rows(path))) == 400
    monkeypatch.setattr(formats, "LONGEST_RECORD", 1000)
    path.write_text('a,b\nx,"\n' + '",x,"\n' * 1000)  # a field ends in each line, the record in none
    rule = "a row has at most 1,000 characters, this one has more"
    assert says(lambda: list(read_csv_rows(path))) == f"{path}: line 169: {rule}; {HINT}"


# --- what was typed or written is quoted in part


HUGE = 100_000


def test_a_value_in_a_message_is_cut() -> None:
    assert quote("a" * 80) == repr("a" * 80)
    assert quote("a" * 81) == repr("a" * 80) + "… (81 characters)"
    assert quote(b"a" * HUGE) == repr(b"a" * 80) + "… (100,000 bytes)"
    assert quote(3) == "3"
    assert quote([1] * HUGE) == f"[{'1, ' * 17}1… (299,921 characters left out) …{'1, ' * 8}1]"
    assert join_names(["b" * HUGE, "a"]) == f"a, {'b' * 53}… (99,921 characters left out) …{'b' * 26}"
    assert shorten("a" * 1500) == "a" * 1500
    word = "x" * 200 + "… (99,700 characters left out) …" + "x" * 100
    assert str(ConfigError(f"no file {'x' * HUGE} is there")) == f"no file {word} is there"
    every = "; ".join(f"plan.setting{number}: 1 → 2" for number in range(200))
    assert str(ConfigError(every)) == every
    assert str(ConfigError("x " * HUGE)) == "x " * 3333 + "… (190,001 characters left out) …" + " x" * 1666 + " "


def test_no_message_is_longer_for_a_longer_name(tmp_path: Path) -> None:
    """Labels, column names, ids, settings, class names and paths of 100 kB."""
    write_tables(tmp_path)
    here = {name: tmp_path / f"{name}.csv" for name in ("labelled", "unlabelled", "judged")}
    good = (here["labelled"], here["unlabelled"], "-o", tmp_path / "run")
    long = "x" * HUGE
    header, *rows = here["judged"].read_text().splitlines()

    def table(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    wide = table("wide.csv", f"{header},{long}\n" + "".join(f"{row},1\n" for row in rows))
    named = table("named.csv", "".join(f"{line}\n" for line in [header, *(f"{row}{long}" for row in rows[:9])]))
    twice = table("twice.csv", f"a,{long},{long}\n1,2,3\n")
    word = table("word.csv", f"a,label\n{long},c0\n")
    unknown = table("unknown.csv", f"id,label\n10,{long}\n{long},c0\n")
    strange = table("strange.csv", f"id,label\n{long},c0\n")
    both = table("both.csv", f"id,label\n{long},c0\n{long},c1\n")
    config = table("run.toml", f'"{long}" = 1\n')
    value = table("value.toml", f'[plan]\noptimiser = "{long}"\n')
    half = "x" * 60_000
    calls: list[tuple[int, tuple[object, ...]]] = [
        (3, ("fit", wide, here["unlabelled"], "-o", tmp_path / "run")),
        (3, ("fit", here["labelled"], named, "-o", tmp_path / "run")),
        (3, ("fit", twice, twice, "-o", tmp_path / "run")),
        (3, ("fit", word, word, "-o", tmp_path / "run")),
        (3, ("fit", *good, "--corrections", unknown)),
        (3, ("fit", *good, "--corrections", strange)),
        (3, ("fit", *good, "--corrections", both)),
        (2, ("fit", *good, "--config", config)),
        (2, ("fit", *good, "--config", value)),
        (2, ("fit", *good, f"{half}=1")),
        (2, ("fit", *good, f"plan.{half}=1")),
        (2, ("fit", *good, f"{half}.a=1")),
        (2, ("fit", *good, f"method.name={half}")),
        (2, ("fit", *good, "--method", half)),
        (2, ("fit", *good, "--seed", half)),
        (2, ("fit", *good, f"--{half}")),
        (2, (half,)),
        (3, ("fit", *good, "--label", half)),
        (3, ("fit", *good, "--id", half)),
        (3, ("fit", half, half, "-o", tmp_path / "run")),
        (3, ("fit", f"{half}.csv", f"{half}.csv", "-o", tmp_path / "run")),
        (2, ("fit", *good, "--preset", half)),
        (5, ("predict", half, here["judged"], "-o", half)),
    ]
    for code, words in calls:
        found = embasis(*words)
        what = [str(word)[:30] for word in words]
        assert len(found.stderr.encode()) < 2048, what
        assert len(found.stdout.encode()) < 2048, what
        assert found.exit_code == code, (what, found.stderr)
    assert len(embasis("check", wide, named).output.encode()) < 4096
