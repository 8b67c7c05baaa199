"""Tables and small files that are out for trouble, and classes that cannot be learned."""

from __future__ import annotations

import io
import os
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli_tables import embasis, refused, write_tables
from embasis.config import load
from embasis.data.encoding import learn_encoding
from embasis.data.images.scan import scan_list
from embasis.data.segmentation.classes import read_class_file
from embasis.data.table_pair import load_pair
from embasis.data.tables import describe_table, read_raw, read_table
from embasis.errors import ConfigError, EmbasisWarning, InputDataError
from fuzz_targets import MEGABYTES, Target, try_one
from image_trees import picture, plant


def says(call) -> str:
    with pytest.raises((InputDataError, ConfigError)) as caught:
        call()
    return str(caught.value)


def parquet(**columns: object) -> bytes:
    # Without arrow's own schema: with it, whoever reads is told that texts were a dictionary.
    pq.write_table(pa.table(columns), stream := io.BytesIO(), compression="zstd", store_schema=False)
    return stream.getvalue()


# --- a few bytes that stand for gigabytes


def test_one_long_label_in_many_rows_is_in_memory_once(tmp_path: Path) -> None:
    """400 rows of one text of 1 MB would be 400 MB; the file has a few kB."""
    text = "a" * 2**20
    data = parquet(w=np.arange(400.0), label=pa.array([text] * 400).dictionary_encode())
    assert len(data) < 100_000
    (tmp_path / "x.parquet").write_bytes(data)
    found = []
    target = Target(lambda _, folder: found.extend(read_table(tmp_path / "x.parquet").labels or ()), ())
    assert try_one(target, b"").megabytes < MEGABYTES / 2
    assert (len(found), set(found)) == (400, {text})


def test_one_long_path_in_many_rows_of_a_list_is_in_memory_once(tmp_path: Path) -> None:
    plant(tmp_path, {"a.png": picture()})
    paths = ["a.png", *["b" * 2**20] * 100]
    (tmp_path / "x.parquet").write_bytes(parquet(path=pa.array(paths).dictionary_encode()))
    scan, _ = scan_list(tmp_path / "x.parquet")
    assert (len(scan.files), len(scan.rejected), scan.seen) == (1, 100, 101)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"w": [1.0], "label": [["a", "b"]]}, "labels must be text or integers, got list<element: string>"),
        ({"w": [1.0], "id": ["a"]}, "ids must be one column of int64 values without gaps, got string"),
        ({"w": [1j.real], "id": [1.5]}, "ids must be one column of int64 values without gaps, got double"),
    ],
)
def test_columns_of_another_kind_are_refused_by_the_schema(tmp_path: Path, columns: dict, sentence: str) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(parquet(**columns))
    assert says(lambda: read_raw(path)) == f"{path}: {sentence}"


def test_a_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(parquet(w=[1.0, 2.0], label=["abcdefgh", "x"]).replace(b"abcdefgh", b"abc\xff\xfefgh"))
    pq.write_table(pa.table({"w": [1.0], "label": ["abcdefgh"]}), path, compression="none")
    path.write_bytes(path.read_bytes().replace(b"abcdefgh", b"abc\xff\xfefgh"))
    rule = "row 0: b'abc\\xff\\xfefgh' is not UTF-8 text; write the table again, with text in UTF-8"
    assert says(lambda: read_raw(path)) == f"{path}: {rule}"


def test_sixty_thousand_columns_of_one_name_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(",".join(["a"] * 60_000) + "\n")
    began = time.monotonic()
    assert says(lambda: read_raw(path)) == f"{path}: columns must have different names, twice or more: 'a'"
    assert time.monotonic() - began < 2


def test_a_csv_file_over_the_limit_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a\n" + "1\n" * 100)
    assert says(lambda: read_raw(path, largest=200)) == f"{path}: has 202 bytes, at most 200 are read"


# --- settings that are no files


def test_a_pipe_as_settings_or_classes_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    for name in ("run.toml", "classes.toml", "x.csv"):
        os.mkfifo(tmp_path / name)
    path = tmp_path / "run.toml"
    assert says(lambda: load(path)) == f"cannot read config {path}: not a regular file"
    path = tmp_path / "classes.toml"
    assert says(lambda: read_class_file(path)) == f"{path}: cannot be read: not a regular file"
    path = tmp_path / "x.csv"
    rule = "a table is expected: .csv, .npy, .npz or .parquet"
    assert says(lambda: read_raw(path)) == f"{path}: is not a regular file; {rule}"


def test_settings_of_megabytes_and_numbers_of_thousands_of_digits_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("# " + "x" * 2**20)
    assert says(lambda: load(path)) == f"cannot read config {path}: 1,048,578 bytes, at most 1,048,576 are read"
    path.write_text(f"seed = {'1' * 5000}\n")
    assert says(lambda: load(path)).startswith(f"config {path}: Exceeds the limit (4300 digits) for integer string")
    path.write_text(f"seed = {'[' * 5000}\n")
    assert says(lambda: load(path)).startswith(f"config {path}: ")
    assert says(lambda: load(overrides=[f"seed={'1' * 5000}"])).startswith("config: Expected `int`, got `str`")
    assert says(lambda: load(overrides=[f"seed={'[' * 5000}"])).startswith("config: Expected `int`, got `str`")


def test_arrays_that_are_packed_in_a_way_of_no_numpy_are_refused(tmp_path: Path) -> None:
    """Their reader would take what memory the file asks for, and raises errors of its own."""
    path = tmp_path / "x.npz"
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("x.npy", b"\x93NUMPY")
        rule = "packed in another way than deflate: 'x.npy'; use numpy.savez"
        assert says(lambda: read_raw(path)) == f"{path}: {rule}"


def test_a_table_of_very_many_columns_takes_time_by_their_number_alone(tmp_path: Path) -> None:
    """13 s before, when names were looked for one among all the others."""
    count, path = 30_000, tmp_path / "wide.csv"
    lines = [[f"a{number}" for number in range(count)], ["1"] * count, ["2"] * count]
    path.write_text("".join(f"{','.join(cells)}\n" for cells in lines))
    began = time.process_time()
    encoding, problems = learn_encoding([describe_table(read_raw(path))])
    assert time.process_time() - began < 6
    assert encoding is not None
    assert (len(encoding.names), problems) == (count, [])


# --- leaks between tables


def test_labelled_rows_among_those_to_score_on_are_a_warning_or_an_error(tmp_path: Path) -> None:
    rows = {"labelled": "1,2,x\n3,4,y\n", "unlabelled": "5,6,\n7,8,\n", "test": "3,4,y\n5,6,x\n9,9,x\n"}
    paths = {name: tmp_path / f"{name}.csv" for name in rows}
    for name, text in rows.items():
        paths[name].write_text("a,b,label\n" + text)
    leak = f"1 row of {paths['test']} is in {paths['labelled']} too"
    with pytest.warns(EmbasisWarning) as caught:
        problem = load_pair(**paths)
    assert [str(item.message) for item in caught] == [f"{leak}: scores on the test rows are too good"]
    assert problem.notes == (leak, f"1 row of {paths['test']} is in {paths['unlabelled']} too")
    hint = "remove them from one side (data.forbid_leakage=true)"
    assert says(lambda: load_pair(**paths, forbid_leakage=True)) == f"{leak}; {hint}"


def test_forbid_leakage_is_for_tables_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    words = ("fit", "labelled.csv", "unlabelled.csv", "-o", "run", "--test", "labelled.csv", "--forbid-leakage")
    hint = "remove them from one side (data.forbid_leakage=true)"
    refused(3, f"60 rows of labelled.csv are in labelled.csv too; {hint}", *words)
    assert not Path("run").exists()


# --- classes that cannot be learned


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (["a", "a", "a"], "{path}: at least 2 classes are needed, got 1 class: 'a'"),
        (["", "", ""], "{path}: 3 of 3 rows have no label (empty, NaN or -1)"),
    ],
)
def test_one_class_and_no_class_are_refused_with_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("l.csv").write_text("w,label\n" + "".join(f"{row},{name}\n" for row, name in enumerate(labels)))
    Path("u.csv").write_text("w\n1\n2\n")
    result = embasis("fit", "l.csv", "u.csv", "-o", "run")
    assert result.exit_code == 3, result.output
    assert result.stderr == f"embasis: {sentence.format(path='l.csv')}\n"
    assert not Path("run").exists()


def test_an_unlabelled_side_without_rows_or_images_is_refused_with_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    Path("none.csv").write_text("w\n")
    refused(3, "none.csv: no rows", "fit", "labelled.csv", "none.csv", "-o", "run")
    plant(tmp_path / "photos", {"a/1.png": picture(1), "b/2.png": picture(2)})
    os.mkdir("empty")
    heif = ".heic, .heif, " if find_spec("pillow_heif") else ""
    kinds = f".bmp, .gif, {heif}.jfif, .jpe, .jpeg, .jpg, .pbm, .pgm, .png, .pnm, .ppm, .tif, .tiff, .webp"
    refused(3, f"empty: no images; read are {kinds}", "fit", "photos", "empty", "-o", "run")
