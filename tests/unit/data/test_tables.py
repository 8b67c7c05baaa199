from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from embasis.data.problem import Finding
from embasis.data.table_pair import check_pair, load_pair
from embasis.data.tables import read_table
from embasis.errors import EmbasisWarning, InputDataError

CSV = "w,h,label\n1,2,cat\n3,4,dog\n5,6.5,cat\n"
EXPECTED = "a table is expected: .csv, .npy, .npz or .parquet"


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(call) -> str:
    with pytest.raises(InputDataError) as caught:
        call()
    return str(caught.value)


def npy(array: np.ndarray, **header: object) -> bytes:
    """An array in numpy's format, with a header that may lie."""
    stream = io.BytesIO()
    described = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape} | header
    np.lib.format.write_array_header_1_0(stream, described)
    return stream.getvalue() + array.tobytes()


def write_npz(path: Path, **entries: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return path


# Reading one table


def test_a_csv_file_is_read_by_its_header(tmp_path):
    table = read_table(write(tmp_path / "a.csv", CSV))
    assert table.columns == ("w", "h")
    assert table.x.tolist() == [[1, 2], [3, 4], [5, 6.5]]
    assert table.x.dtype == np.float32
    assert table.labels == ["cat", "dog", "cat"]
    assert table.ids is None


def test_a_byte_order_mark_quotes_windows_lines_and_blank_lines_change_nothing(tmp_path):
    plain = read_table(write(tmp_path / "a.csv", CSV))
    text = '\ufeff"w","h",label\r\n"1",2,"cat"\r\n\r\n3,"4",dog\r\n5,6.5,cat'
    other = read_table(write(tmp_path / "b.CSV", text))
    assert other.columns == plain.columns
    assert other.labels == plain.labels
    assert np.array_equal(other.x, plain.x)


def test_quoted_labels_may_hold_commas_and_line_breaks(tmp_path):
    table = read_table(write(tmp_path / "a.csv", 'w,label\n1,"cat, big"\n2,"two\nlines"\n'))
    assert table.labels == ["cat, big", "two\nlines"]


def test_labels_are_text_and_integers_lose_their_point(tmp_path):
    assert read_table(write(tmp_path / "a.csv", "w,y\n1,3.0\n2,-1\n3,NA\n4,\n5,nan\n"), "y").labels == [
        "3",
        "",
        "NA",
        "",
        "",
    ]


def test_a_column_called_id_holds_ids_and_another_name_can_be_given(tmp_path):
    path = write(tmp_path / "a.csv", "id,number,w\n7,1,0.5\n3,2,0.25\n")
    assert read_table(path).ids.tolist() == [7, 3]
    assert read_table(path, id="number").columns == ("id", "w")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("w,h,label\n1,2,cat\n3,dog\n", "line 3 has 2 fields, the header has 3"),
        ('w,label\n1,"a\nb"\n2,x,y\n', "line 4 has 3 fields, the header has 2"),
        ("w,label\nNA,cat\n\nabc,dog\n", "line 4, column 'w': 'abc' is not a number"),
        ("w,id\n1,2\n1,2.5\n", "line 3, column 'id': '2.5' is not an integer"),
        ("w,id\n1,2\n1,\n", "ids must be one column of int64 values without gaps, got float64"),
        ("w,id\n1,2\n1,2\n1,4\n", "ids must be unique, 2 appears 2 times"),
        ("w,label\n", "no rows"),
        ("w,label", "no rows"),
        ("\n\n", "no rows"),
        ("", "the file is empty"),
        ("label\ncat\n", "no feature columns; columns: 'label'"),
        ("w,w,label\n1,2,cat\n", "columns must have different names, twice or more: 'w'"),
        (",w,label\n0,1,cat\n", "column '' looks like a row index; write the table without it"),
        ("w,label\n1,caf\u00e9\n".encode("latin-1"), "line 2 is not UTF-8 text; save it as 'CSV UTF-8'"),
        ("caf\u00e9,label\n1,cat\n".encode("latin-1"), "line 1 is not UTF-8 text; save it as 'CSV UTF-8'"),
        ("w,label\n1,cat\n".encode("utf-16"), "line 1 is not UTF-8 text; save it as 'CSV UTF-8'"),
        (
            "w,h\n1,2\n,inf\n3,\n",
            "values must be finite, got 2 NaN and 1 inf in 2 of 3 rows and 2 of 2 columns; first at row 1, column 'w'",
        ),
        ("w\n1e39\n", "values must fit in float32 (up to 3.4e+38), 1 do not; first at row 0, column 'w': 1e+39"),
    ],
)
def test_a_csv_file_that_cannot_be_used_is_refused_with_the_place(tmp_path, content, sentence):
    path = write(tmp_path / "a.csv", content)
    assert refusal(lambda: read_table(path)) == f"{path}: {sentence}"


def test_paths_that_are_no_table_are_refused_without_being_opened(tmp_path):
    missing, folder, fifo = tmp_path / "m.csv", tmp_path / "f.npz", tmp_path / "p.parquet"
    folder.mkdir()
    os.mkfifo(fifo)
    other = write(tmp_path / "a.xls", "x")
    assert refusal(lambda: read_table(missing)) == f"{missing}: no such file"
    assert refusal(lambda: read_table(folder)) == f"{folder}: is a folder; {EXPECTED}"
    assert refusal(lambda: read_table(fifo)) == f"{fifo}: is not a regular file; {EXPECTED}"
    assert refusal(lambda: read_table(other)) == f"{other}: unknown kind of file '.xls'; {EXPECTED}"


@pytest.mark.parametrize("key", ["x", "X", "features", "data"])
@pytest.mark.parametrize("label", ["y", "label", "labels", "species"])
def test_an_npz_file_is_read_by_the_usual_names(tmp_path, key, label):
    np.savez(tmp_path / "a.npz", **{key: np.ones((2, 1, 8, 8), np.float16), label: [3, 4], "ids": [5, 9]})
    table = read_table(tmp_path / "a.npz", "species")
    assert table.x.shape == (2, 1, 8, 8)
    assert table.x.dtype == np.float32
    assert table.labels == ["3", "4"]
    assert table.ids.tolist() == [5, 9]
    assert table.columns is None


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint8", "bool", ">f4"])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_arrays_of_every_width_and_layout_are_read(tmp_path, dtype, layout):
    x = np.asarray([[0, 1, 0], [1, 1, 0]], dtype=dtype, order=layout)
    np.savez_compressed(tmp_path / "a.npz", x=x)
    np.save(tmp_path / "a.npy", x)
    for name in ("a.npz", "a.npy"):
        assert np.array_equal(read_table(tmp_path / name).x, x.astype(np.float32))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=4), elements=st.floats(-9, 9, width=32)))
def test_what_numpy_saves_is_what_is_read(tmp_path, x):
    np.savez_compressed(tmp_path / "a.npz", x=x, y=np.arange(len(x)).astype(str))
    table = read_table(tmp_path / "a.npz")
    assert np.array_equal(table.x, x)
    assert table.labels == [str(number) for number in range(len(x))]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400), st.sampled_from(["npz", "npy", "parquet", "csv"]), st.integers(0, 300))
def test_damaged_files_are_refused_or_read_but_never_break_the_reader(tmp_path, noise, kind, position):
    stream = io.BytesIO()
    if kind == "npz":
        np.savez(stream, x=np.ones((3, 2)), y=["a", "b", "c"])
    elif kind == "npy":
        np.save(stream, np.ones((3, 2)))
    elif kind == "parquet":
        pq.write_table(pa.table({"w": [1.0, 2.0], "label": ["a", "b"]}), stream)
    else:
        stream.write(CSV.encode())
    sound = stream.getvalue()
    path = write(tmp_path / f"a.{kind}", sound[:position] + noise + sound[position + len(noise) :])
    refused = ""
    try:
        assert len(read_table(path).x) > 0
    except InputDataError as error:
        refused = str(error)
    assert refused == "" or refused.startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"a": [1], "b": [2]}, "no array of features (x or X or features or data); it has: 'a', 'b'"),
        ({"x": [[1]], "X": [[1]]}, "2 arrays of features, one is needed: 'X', 'x'"),
        ({"x": [[1], [2]], "y": [1, 2, 3]}, "2 rows but 3 labels"),
        ({"x": [[1], [2]], "id": [1, 2, 3]}, "2 rows but 3 ids"),
        ({"x": [[1], [2]], "id": ["a", "b"]}, "ids must be one column of int64 values without gaps, got <U1"),
        ({"x": [1, 2]}, "2 or more dimensions (rows, features) are needed, got shape (2,)"),
        ({"x": 5}, "2 or more dimensions (rows, features) are needed, got shape ()"),
        ({"x": [[1j]]}, "values must be real numbers, got dtype complex128"),
        ({"x": [["a"]]}, "values must be real numbers, got dtype <U1"),
        ({"x": np.zeros((0, 4))}, "array 'x': no rows, got shape (0, 4)"),
        ({"x": np.zeros((1, 1), "M8[s]")}, "array 'x': only numbers and text are read, got dtype '<M8[s]'"),
        (
            {"x": [[1, np.nan], [np.inf, np.nan]]},
            "values must be finite, got 2 NaN and 1 inf in 2 of 2 rows and 2 of 2 columns; first at row 0, column 1",
        ),
        ({"x": [[1], [2]], "y": [0.5, 1.5]}, "labels must be classes, got the continuous value 0.5"),
    ],
)
def test_an_npz_file_that_cannot_be_used_is_refused_with_a_sentence(tmp_path, arrays, sentence):
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)
    assert refusal(lambda: read_table(path)) == f"{path}: {sentence}"


def test_a_pickle_is_refused_and_never_run(tmp_path):
    class Canary:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "canary"),)

    np.savez(tmp_path / "a.npz", x=np.array([[Canary()]], dtype=object))
    np.save(tmp_path / "a.npy", np.array([[Canary()]], dtype=object), allow_pickle=True)
    rule = "holds Python objects (a pickle); only plain numbers and text are read"
    assert refusal(lambda: read_table(tmp_path / "a.npz")) == f"{tmp_path}/a.npz: array 'x': {rule}"
    assert refusal(lambda: read_table(tmp_path / "a.npy")) == f"{tmp_path}/a.npy: {rule}"
    assert not (tmp_path / "canary").exists()


def test_a_header_that_claims_more_than_the_file_holds_is_refused(tmp_path):
    content = npy(np.ones((2, 2), np.float32), shape=(10**9, 10**3))
    rule = "its header claims 4000000000000 bytes as shape (1000000000, 1000), the file holds 16"
    path = write_npz(tmp_path / "a.npz", x=content)
    assert refusal(lambda: read_table(path)) == f"{path}: array 'x': {rule}"
    path = write(tmp_path / "a.npy", content)
    assert refusal(lambda: read_table(path)) == f"{path}: {rule}"


@pytest.mark.parametrize("shape", [(-2, -2), (0, 10**30), (-1, 4)])
def test_shapes_that_no_array_has_are_refused(tmp_path, shape):
    path = write_npz(tmp_path / "a.npz", x=npy(np.ones((2, 2), np.float32), shape=shape))
    assert refusal(lambda: read_table(path)) == f"{path}: array 'x': no rows, got shape {shape}"


def test_a_header_that_is_longer_than_any_we_write_is_refused(tmp_path):
    content = b"\x93NUMPY\x02\x00" + (2**32 - 1).to_bytes(4, "little") + b"{" * 100
    path = write(tmp_path / "a.npy", content)
    assert refusal(lambda: read_table(path)) == (
        f"{path}: not a readable numpy array: its header has 4294967295 bytes, at most 10000 are read"
    )


def test_an_npz_bomb_is_refused_from_its_directory(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros((1000, 1000), np.float32))
    assert path.stat().st_size < 20_000
    assert refusal(lambda: read_table(path, largest=10**6)) == (
        f"{path}: takes 4000128 bytes unpacked, at most 1000000 are read"
    )
    assert read_table(path, largest=4_000_128).x.shape == (1000, 1000)


def test_a_large_npy_file_is_refused_from_its_header(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((10, 10)))
    assert refusal(lambda: read_table(tmp_path / "a.npy", largest=700)) == (
        f"{tmp_path}/a.npy: takes 800 bytes, at most 700 are read"
    )


def test_files_that_only_pretend_to_be_tables_are_refused(tmp_path):
    for kind in ("npz", "parquet"):
        path = write(tmp_path / f"a.{kind}", "no table" * 20)
        assert refusal(lambda path=path, kind=kind: read_table(path)).startswith(
            f"{path}: not a readable .{kind} file: "
        )
    path = write(tmp_path / "a.npy", "no table" * 20)
    assert refusal(lambda: read_table(path)).startswith(f"{path}: not a readable numpy array: ")


def test_a_parquet_file_is_read_by_its_columns(tmp_path):
    columns = {
        "id": pa.array([4, 2]),
        "half": pa.array(np.array([1, 2], np.float16)),
        "flag": pa.array([True, False]),
        "count": pa.array([7, 8], pa.uint8()),
        "label": pa.array(["a", "b"]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert table.columns == ("half", "flag", "count")
    assert table.x.tolist() == [[1, 1, 7], [2, 0, 8]]
    assert table.labels == ["a", "b"]
    assert table.ids.tolist() == [4, 2]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"w": ["a"], "label": ["b"]}, "row 0, column 'w': 'a' is not a number"),
        (
            {"w": [[1.0]]},
            "column 'w' must be numbers, text, true and false, or dates, got list<element: double>",
        ),
        (
            {"w": [1.0], "__index_level_0__": [3]},
            "column '__index_level_0__' looks like a row index; write the table without it",
        ),
        (
            {"w": [1.0, None], "h": [None, True]},
            "values must be finite, got 2 NaN in 2 of 2 rows and 2 of 2 columns; first at row 0, column 'h'",
        ),
        ({"w": pa.array([], pa.float32())}, "no rows"),
        ({"w": np.zeros(300), "v": np.zeros(300)}, "takes 4800 bytes unpacked, at most 1000 are read"),
    ],
)
def test_a_parquet_file_that_cannot_be_used_is_refused_with_a_sentence(tmp_path, columns, sentence):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path)
    assert refusal(lambda: read_table(path, largest=1000)) == f"{path}: {sentence}"


# Two tables as a problem


def test_two_tables_are_matched_by_the_names_of_columns_and_classes(tmp_path):
    labelled = write(tmp_path / "a.csv", CSV)
    pq.write_table(pa.table({"label": ["dog", None], "h": [20, 40], "w": [10, 30]}), tmp_path / "b.parquet")
    with pytest.warns(
        EmbasisWarning, match=r"^3 rows of .*a\.csv are in .*a\.csv too: scores on the test rows are too good$"
    ):
        problem = load_pair(labelled, tmp_path / "b.parquet", test=labelled)
    assert problem.schema.names == ("cat", "dog")
    assert problem.unlabelled.x.tolist() == [[10, 20], [30, 40]]
    assert problem.unlabelled.labels.tolist() == [-1, -1]
    assert problem.hidden_labels.tolist() == [1, -1]
    assert problem.test.labels.tolist() == [0, 1, 0]


def test_rows_labels_and_hidden_labels_follow_their_ids(tmp_path):
    labelled = write(tmp_path / "a.csv", "id,w,label\n9,90,cat\n3,30,dog\n")
    unlabelled = write(tmp_path / "b.csv", "w,label,id\n50,dog,5\n10,cat,1\n20,,2\n")
    problem = load_pair(labelled, unlabelled)
    assert problem.labelled.ids.tolist() == [3, 9]
    assert problem.labelled.labels.tolist() == [1, 0]
    assert problem.unlabelled.x.flatten().tolist() == [10, 20, 50]
    assert problem.hidden_labels.tolist() == [0, -1, 1]


def test_arrays_of_images_and_plain_arrays_are_matched_by_position(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 1, 8, 8)), y=[0, 1, 0, 1])
    np.save(tmp_path / "b.npy", np.ones((3, 1, 8, 8), np.uint8))
    problem = load_pair(tmp_path / "a.npz", tmp_path / "b.npy")
    assert problem.unlabelled.x.shape == (3, 1, 8, 8)
    assert problem.hidden_labels is None


@pytest.mark.parametrize(
    ("unlabelled", "sentence"),
    [
        ("w,x,z\n1,2,3\n", "feature columns differ; only in {a}: 'h'; only in {b}: 'x', 'z'"),
        ("w,h,x\n1,2,3\n", "feature columns differ; only in {b}: 'x'"),
        ("w\n1\n", "feature columns differ; only in {a}: 'h'"),
        (
            "w,h,label\n1,2,cat\n1,2,yak\n",
            "{b}: classes that the labelled side lacks: 'yak'; classes only on the labelled side: 'dog'",
        ),
    ],
)
def test_tables_that_differ_are_refused_with_both_differences(tmp_path, unlabelled, sentence):
    a, b = write(tmp_path / "a.csv", CSV), write(tmp_path / "b.csv", unlabelled)
    assert refusal(lambda: load_pair(a, b)) == sentence.format(a=a, b=b)


def test_a_labelled_side_without_labels_is_refused_with_where_they_belong(tmp_path):
    b = write(tmp_path / "b.csv", CSV)
    bare, some, one = tmp_path / "c.csv", tmp_path / "d.csv", tmp_path / "e.csv"
    write(bare, "w,h\n1,2\n")
    write(some, "w,h,label\n1,2,cat\n3,4,\n5,6,dog\n7,8,-1\n")
    write(one, "w,h,label\n1,2,cat\n3,4,cat\n")
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    np.savez(tmp_path / "a.npz", x=np.ones((3, 2)))
    assert (
        refusal(lambda: load_pair(bare, b))
        == f"{bare}: no label column 'label'; columns: 'h', 'w'; --label names another"
    )
    assert (
        refusal(lambda: load_pair(b, b, test=bare))
        == f"{bare}: no label column 'label'; columns: 'h', 'w'; --label names another"
    )
    assert refusal(lambda: load_pair(some, b)) == f"{some}: 2 of 4 rows have no label (empty, NaN or -1)"
    assert refusal(lambda: load_pair(one, b)) == f"{one}: at least 2 classes are needed, got 1 class: 'cat'"
    assert refusal(lambda: load_pair(tmp_path / "a.npy", b)) == (
        f"{tmp_path}/a.npy: a .npy file holds no labels; put x and y into one .npz file"
    )
    assert refusal(lambda: load_pair(tmp_path / "a.npz", b)) == (
        f"{tmp_path}/a.npz: no labels; store them as array y, label or labels"
    )


def test_a_named_table_and_a_plain_array_must_have_as_many_features(tmp_path):
    a = write(tmp_path / "a.csv", CSV)
    np.save(tmp_path / "b.npy", np.ones((3, 7)))
    assert refusal(lambda: load_pair(a, tmp_path / "b.npy")) == f"{tmp_path}/b.npy: 7 features, {a} has 2"


def test_reading_leaves_the_files_as_they_were(tmp_path):
    a = write(tmp_path / "a.csv", CSV)
    before = a.stat().st_mtime_ns
    load_pair(a, a)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert a.stat().st_mtime_ns == before


# Checking two tables


def test_a_sound_pair_has_notes_only(tmp_path):
    a = write(tmp_path / "a.csv", "w,h,label\n1,2,cat\n3,4,dog\n5,6,cat\n7,8,dog\n")
    b = write(tmp_path / "b.csv", "w,h,label\n10,20,cat\n30,40,\n")
    assert check_pair(a, b) == [
        Finding("note", f"{a}: 4 rows of 2 features"),
        Finding("note", f"{b}: 2 rows of 2 features"),
        Finding("note", f"{a}: 2 classes: 'cat' 2, 'dog' 2"),
        Finding("note", f"{b}: 1 of 2 rows have labels, used for evaluation only"),
        Finding("note", f"{b}: classes without a row: 'dog'"),
    ]


def test_everything_doubtful_is_found_at_once(tmp_path):
    a = write(tmp_path / "a.csv", "w,h,c,label\n1,2,0,cat\n3,4,0,dog\n1,2,0,cat\n5,6,0,eel\n")
    b = write(tmp_path / "b.csv", "w,h,c\n3,4,0\n3,9999,1\n")
    assert [finding.text for finding in check_pair(a, b) if finding.level == "warning"] == [
        f"{a}: 1 column has one value only: 'c'",
        f"{a}: 1 row repeats an earlier row",
        f"{b}: 1 column has one value only: 'w'",
        f"{a}: classes with under 2 rows: 'dog', 'eel'",
        f"1 row of {b} is in {a} too",
        f"1 column differs in size by more than 100 times between {a} and {b}: 'h'",
    ]


def test_all_errors_are_found_at_once_and_come_first(tmp_path):
    a = write(tmp_path / "a.csv", "w,h,label\n1,,cat\n3,4,\n")
    b = write(tmp_path / "b.csv", "w,z,label\n1,inf,yak\n")
    findings = check_pair(a, b)
    assert [finding.text for finding in findings if finding.level == "error"] == [
        f"{b}: values must be finite, got 1 inf in 1 of 1 row and 1 of 2 columns; first at row 0, column 'z'",
        f"{a}: 1 of 2 rows have no label (empty, NaN or -1)",
        f"{a}: at least 2 classes are needed, got 1 class: 'cat'",
        f"{b}: classes that the labelled side lacks: 'yak'; classes only on the labelled side: 'cat'",
        f"feature columns differ; only in {a}: 'h'; only in {b}: 'z'",
    ]
    levels = [finding.level for finding in findings]
    assert levels == sorted(levels, key=["error", "warning", "note"].index)


def test_files_that_cannot_be_read_do_not_stop_the_check_of_the_other(tmp_path):
    missing, b = tmp_path / "a.csv", write(tmp_path / "b.csv", CSV)
    assert check_pair(missing, b) == [
        Finding("error", f"{missing}: no such file"),
        Finding("note", f"{b}: 3 rows of 2 features"),
    ]
    assert [finding.text for finding in check_pair(b, missing)] == [
        f"{missing}: no such file",
        f"{b}: classes with under 2 rows: 'dog'",
        f"{b}: 3 rows of 2 features",
        f"{b}: 2 classes: 'cat' 2, 'dog' 1",
    ]


def test_a_label_column_that_is_missing_and_a_shape_that_differs_are_errors(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.eye(4).reshape(4, 2, 2))
    np.save(tmp_path / "b.npy", np.eye(3))
    a, b = tmp_path / "a.npz", tmp_path / "b.npy"
    assert check_pair(a, b) == [
        Finding("error", f"{a}: no labels; store them as array y, label or labels"),
        Finding("error", f"{b}: rows of shape (3,), {a} has (2, 2)"),
        Finding("note", f"{a}: 4 rows of 2 × 2 features"),
        Finding("note", f"{b}: 3 rows of 3 features"),
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 20))
def test_planted_duplicates_are_counted_exactly(tmp_path, within, between, rows):
    x = np.random.default_rng(rows).normal(size=(rows + 1, 3)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=np.concatenate([x, x[:1].repeat(within, 0)]), y=np.arange(rows + 1 + within) % 2)
    planted = x[1 : 1 + between]
    np.savez(tmp_path / "b.npz", x=np.concatenate([planted, x[:2] + 10]))
    found = " ".join(finding.text for finding in check_pair(tmp_path / "a.npz", tmp_path / "b.npz"))
    count, leaked = within, len(planted)
    assert (f"{count} row{'s repeat' if count > 1 else ' repeats'} an earlier row" in found) == (count > 0)
    assert (f"{leaked} row{'s' if leaked > 1 else ''} of" in found) == (leaked > 0)


def test_the_problem_that_load_pair_makes_is_float32_throughout(tmp_path):
    a = write(tmp_path / "a.csv", CSV)
    problem = load_pair(a, a)
    assert problem.labelled.x.dtype == problem.unlabelled.x.dtype == torch.float32
