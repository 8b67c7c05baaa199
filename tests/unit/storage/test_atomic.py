"""Single files and tables: what was written comes back, what is damaged is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embasis import storage
from embasis.errors import ConfigError, CorruptError, NumericalError, ResourceError, UntrustedError
from embasis.storage import RunFolder
from storage_runs import do_not_wait, tree


@pytest.fixture(autouse=True)
def fsync_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_wait(monkeypatch)


# Text, JSON, tables


def test_json_is_sorted_indented_and_refuses_nan(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as run:
        path = run.write_json("sub/config.json", {"b": [1, 2.5], "a": None})
        assert path == tmp_path / "sub" / "config.json"
        assert path.read_text() == '{\n  "a": null,\n  "b": [\n    1,\n    2.5\n  ]\n}\n'
        assert storage.read_json(path) == {"a": None, "b": [1, 2.5]}
        with pytest.raises(NumericalError, match=r"x\.json cannot be written: "):
            run.write_json("x.json", {"loss": float("nan")})
        assert not (tmp_path / "x.json").exists()


def test_json_lines_come_back_and_a_cut_line_is_refused(tmp_path: Path) -> None:
    rows = [{"round": 1, "text": "a\nb\u2028c"}, {"round": 2}]
    with RunFolder(tmp_path) as run:
        assert storage.read_jsonl(run.write_jsonl("none.jsonl", [])) == []
        path = run.write_jsonl("rounds.jsonl", rows)
        run.write_jsonl("rounds.jsonl", rows)
    assert storage.read_jsonl(path) == rows
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CorruptError) as caught:
        storage.read_jsonl(path)
    assert str(caught.value) == f"{path}: the last line is cut off"
    path.write_bytes(b'{"a": 1}\n{\n')
    with pytest.raises(CorruptError, match="line 2, is not JSON"):
        storage.read_jsonl(path)


def test_text_that_utf8_cannot_hold_becomes_visible(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as run:
        assert run.write_text("a.txt", "é\udcff").read_bytes() == b"\xc3\xa9\\udcff"


COLUMNS: dict[str, Any] = {
    "id": ["a.png", "b,c", 'say "hi"', "two\nlines", "cr\rhere", "", "\udcff"],
    "label": np.arange(-1, 6),
    "p": np.array([0.1, 1, 1e-9, 0.5, 1 / 3, 0, -2.5], dtype=np.float32),
    "x": [0.1, None, 2.0, 3.0, 4.0, 5.0, 6.0],
    "trusted": np.array([True, False, True, True, True, True, False]),
}


def test_a_csv_table_has_these_bytes(tmp_path: Path) -> None:
    assert storage.encode_table(COLUMNS, ".csv").decode() == (
        "id,label,p,x,trusted\n"
        "a.png,-1,0.1,0.1,true\n"
        '"b,c",0,1.0,,false\n'
        '"say ""hi""",1,1e-09,2.0,true\n'
        '"two\nlines",2,0.5,3.0,true\n'
        '"cr\rhere",3,0.33333334,4.0,true\n'
        ",4,0.0,5.0,true\n"
        "\\udcff,5,-2.5,6.0,false\n"
    )


def test_a_parquet_table_keeps_its_types_and_has_the_same_bytes_twice(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as run:
        back = storage.read_stored_table(run.write_table("labels/round-1.parquet", COLUMNS))
    assert back["id"] == [*COLUMNS["id"][:-1], "\\udcff"]
    assert back["label"] == list(range(-1, 6))
    assert back["p"] == COLUMNS["p"].tolist()
    assert back["x"] == COLUMNS["x"]
    assert back["trusted"] == COLUMNS["trusted"].tolist()
    assert storage.encode_table(COLUMNS, ".parquet") == storage.encode_table(dict(COLUMNS), ".parquet")


FORMULAS = ["=1+1", "+a", "-5", "@x", "\tx", "\rx", "'=1", "''=1", "'quoted'", "'", "", "plain", "a=b", '=,"\n\r',
            "\n=1", "\n", "'\nx", "\uff1d1+1", "\uff0ba", "\uff0d5", "\uff20x", "'\uff1d1", "''\uff20x"]  # fmt: skip


def test_formula_cells_are_neutral_in_csv_and_come_back(tmp_path: Path) -> None:
    for text in FORMULAS:
        neutral = storage.escape_formula(text)
        assert neutral[:1] not in ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
        assert storage.unescape_formula(neutral) == text
    assert storage.escape_formula("=1+1") == "'=1+1"
    assert storage.escape_formula("\n=1+1") == "'\n=1+1"
    assert storage.escape_formula("\uff1d1+1") == "'\uff1d1+1"
    assert storage.escape_formula("'\uff1d1+1") == "''\uff1d1+1"
    assert storage.escape_formula("'quoted'") == "'quoted'"
    assert len({storage.escape_formula(text) for text in FORMULAS}) == len(FORMULAS)
    with RunFolder(tmp_path) as run:
        path = run.write_table("t.csv", {"=name": FORMULAS, "n": [-1] * len(FORMULAS)})
        assert storage.read_stored_table(path) == {"=name": FORMULAS, "n": ["-1"] * len(FORMULAS)}
        assert storage.read_stored_table(run.write_table("one.csv", {"a": FORMULAS})) == {"a": FORMULAS}
        assert storage.read_stored_table(run.write_table("t.parquet", {"=name": FORMULAS})) == {"=name": FORMULAS}


def test_an_unknown_suffix_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError) as caught:
        storage.encode_table({}, ".xls")
    assert str(caught.value) == "output must end in .csv or .parquet, got '.xls'"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_of_unequal_length_are_a_mistake_of_the_caller(suffix: str) -> None:
    with pytest.raises(ValueError):
        storage.encode_table({"a": [1, 2], "b": [1]}, suffix)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_malformed_table_is_corrupt(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    whole = storage.encode_table({"a": ["x", "y,z"], "b": [1, 2]}, suffix)
    broken = [b"", b"\xff\xfe", whole[:-1], whole[: len(whole) // 2 - 1], b'a,b\n"x\n', b"a,b\n1\n"]
    for data in broken:
        path.write_bytes(data)
        with pytest.raises(CorruptError, match="is not a table: "):
            storage.read_stored_table(path)
    path.write_bytes(b"\x80\x04\x95" + bytes(20))
    with pytest.raises(UntrustedError):
        storage.read_stored_table(path)


@pytest.mark.parametrize("read", [storage.read_json, storage.read_jsonl, storage.read_stored_table])
def test_a_missing_file_is_corrupt(tmp_path: Path, read: Any) -> None:
    with pytest.raises(CorruptError) as caught:
        read(tmp_path / "none.csv")
    assert str(caught.value) == f"cannot read {tmp_path / 'none.csv'}: No such file or directory"


# Single files


def test_an_output_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    storage.write_output(path, "old")
    storage.write_output(path, b"new")
    assert tree(tmp_path) == {"labels.csv": b"new"}


def test_an_output_needs_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "out" / "labels.csv"
    with pytest.raises(ResourceError) as caught:
        storage.write_output(path, "x")
    assert str(caught.value) == f"cannot write {path}: folder {tmp_path / 'out'} does not exist"


def test_an_output_never_replaces_a_device_a_link_or_a_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "folder"):
        with pytest.raises(ResourceError) as caught:
            storage.write_output(tmp_path / name, "x")
        assert str(caught.value) == f"cannot write {tmp_path / name}: it is not a regular file"
    assert sorted(os.listdir(tmp_path)) == ["folder", "link", "pipe"]
