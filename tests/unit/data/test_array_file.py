"""Rows of a file: the same numbers as numpy reads, in flat memory, and a sentence for whatever is no such file."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import array_file
from benchmarks.array_file import ArrayFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embasis.errors import InputDataError
from paths import ROOT


def save(path: Path, array: np.ndarray) -> Path:
    np.save(path, array, allow_pickle=array.dtype.hasobject)
    return path


def refusal(call) -> str:
    with pytest.raises(InputDataError) as caught:
        call()
    return str(caught.value)


def with_header(path: Path, content: bytes, **header: object) -> Path:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (2, 3)} | header)
    path.write_bytes(stream.getvalue() + content)
    return path


# the same numbers


@given(
    dtype=st.sampled_from(["<f4", ">f4", "<f8", "<f2", "<i4", "|u1", "|b1", ">i8"]),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 5)) | st.tuples(*[st.integers(1, 4)] * 3),
    cuts=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    chunk=st.integers(1, 50),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_and_chunks_are_what_numpy_loads(tmp_path, dtype, shape, cuts, chunk):
    array = (np.random.default_rng(0).normal(size=shape) * 50).astype(dtype)
    path = save(tmp_path / "x.npy", array)
    file, whole = ArrayFile(path), torch.from_numpy(np.load(path).astype(np.float32))
    first, last = sorted(min(cut, shape[0]) for cut in cuts)
    assert (file.shape, file.dtype) == (shape, np.dtype(dtype))
    assert file.rows(first, last).dtype == torch.float32
    assert torch.equal(file.rows(first, last), whole[first:last])
    assert torch.equal(torch.cat(list(file.chunks(chunk))), whole)
    assert torch.equal(torch.cat(list(file)), whole)


def test_a_chunk_has_as_many_rows_as_its_bytes_allow_and_at_least_one(tmp_path, monkeypatch):
    file = ArrayFile(save(tmp_path / "x.npy", np.ones((10, 4), np.float32)))
    monkeypatch.setattr(array_file, "CHUNK_BYTES", 3 * 16)
    assert [len(rows) for rows in file] == [3, 3, 3, 1]
    monkeypatch.setattr(array_file, "CHUNK_BYTES", 1)
    assert [len(rows) for rows in file] == [1] * 10


def test_rows_are_memory_of_their_own(tmp_path):
    file = ArrayFile(save(tmp_path / "x.npy", np.ones((4, 2), np.float32)))
    file.rows(0, 4).zero_()
    assert torch.equal(file.rows(0, 4), torch.ones(4, 2))


def test_the_second_version_of_the_format_is_read(tmp_path):
    with (tmp_path / "x.npy").open("wb") as stream:
        np.lib.format.write_array(stream, np.eye(3, dtype=np.float32), version=(2, 0))
    assert torch.equal(ArrayFile(tmp_path / "x.npy").rows(0, 3), torch.eye(3))


def test_nan_and_infinity_pass_as_they_are(tmp_path):
    file = ArrayFile(save(tmp_path / "x.npy", np.array([[np.nan, np.inf]])))
    assert [str(value) for value in file.rows(0, 1)[0].tolist()] == ["nan", "inf"]


# refusals


def test_rows_outside_the_file_are_refused(tmp_path):
    path = save(tmp_path / "x.npy", np.ones((4, 2), np.float32))
    for first, last in ((0, 5), (-1, 2), (3, 2)):
        assert refusal(lambda f=first, s=last: ArrayFile(path).rows(f, s)) == (
            f"{path}: rows must be in 0..4, got {first}..{last}"
        )
    assert refusal(lambda: list(ArrayFile(path).chunks(-1))) == "rows of a chunk must be at least 0, got -1"


def test_what_is_no_file_is_refused(tmp_path):
    assert refusal(lambda: ArrayFile(tmp_path / "no.npy")) == f"{tmp_path / 'no.npy'}: no such file"
    assert refusal(lambda: ArrayFile(tmp_path)) == (f"{tmp_path}: a .npy file is expected, this is not a regular file")


@pytest.mark.parametrize(
    "content",
    [b"", b"\x93NUM", b"PK\x03\x04 something", b"\x93NUMPY\x01\x00\xff\xff{'descr'", b"\x93NUMPY\x01\x00\x04\x00{{{\n"],
)
def test_a_header_that_cannot_be_read_is_refused(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    assert refusal(lambda: ArrayFile(path)).startswith(f"{path}: not a readable .npy file: ")


def test_a_header_longer_than_any_real_one_is_refused(tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x02\x00" + (20_000).to_bytes(4, "little") + b"(" * 20_000)
    assert refusal(lambda: ArrayFile(path)).startswith(f"{path}: not a readable .npy file: ")


@pytest.mark.parametrize("version", [(3, 0), (9, 1)])
def test_other_versions_of_the_format_are_refused(tmp_path, version):
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY" + bytes(version) + b"\x00" * 100)
    message = refusal(lambda: ArrayFile(path))
    assert message == (
        f"{path}: not a readable .npy file: version {version[0]}.{version[1]} of the format is not read, "
        "only 1.0 and 2.0"
    )


def test_python_objects_are_refused_and_never_unpickled(tmp_path):
    path = save(tmp_path / "x.npy", np.array([[{}, []]], dtype=object))
    assert refusal(lambda: ArrayFile(path)) == f"{path}: holds Python objects (a pickle); only plain numbers are read"


@pytest.mark.parametrize("dtype", ["<c8", "<U3", "|S4", "<M8[s]"])
def test_what_is_no_number_is_refused(tmp_path, dtype):
    path = save(tmp_path / "x.npy", np.zeros((2, 2), dtype))
    assert refusal(lambda: ArrayFile(path)) == f"{path}: only numbers of up to 8 bytes are read, got dtype {dtype!r}"


def test_columns_first_is_refused(tmp_path):
    path = save(tmp_path / "x.npy", np.asfortranarray(np.ones((3, 2), np.float32)))
    assert refusal(lambda: ArrayFile(path)) == (
        f"{path}: is stored column by column (Fortran order); save it row by row (C order)"
    )


@pytest.mark.parametrize("shape", [(), (4,), (0, 3), (3, 0), (-2, 3)])
def test_a_shape_without_rows_of_features_is_refused(tmp_path, shape):
    path = with_header(tmp_path / "x.npy", b"", shape=shape)
    assert refusal(lambda: ArrayFile(path)) == (
        f"{path}: 2 or more dimensions (rows, features) without a zero are needed, got shape {shape}"
    )


@pytest.mark.parametrize("held", [0, 23, 25])
def test_a_file_that_is_too_short_or_too_long_is_refused(tmp_path, held):
    path = with_header(tmp_path / "x.npy", b"x" * held)
    assert refusal(lambda: ArrayFile(path)) == (
        f"{path}: its header claims 152 bytes with shape (2, 3), the file holds {128 + held} bytes"
    )


def test_a_header_that_claims_more_than_memory_takes_none(tmp_path):
    path = with_header(tmp_path / "x.npy", b"", shape=(2**40, 2**30))
    assert "its header claims" in refusal(lambda: ArrayFile(path))


def test_a_file_that_is_cut_or_lost_after_it_was_opened_is_refused(tmp_path):
    path = save(tmp_path / "x.npy", np.ones((8, 4), np.float32))
    file = ArrayFile(path)
    os.truncate(path, 200)
    assert refusal(lambda: file.rows(0, 1)) == f"{path}: had 256 bytes when it was opened, now it has 200"
    path.unlink()
    assert refusal(lambda: file.rows(0, 1)) == f"{path}: no such file"


def test_values_beyond_float32_are_refused(tmp_path):
    path = save(tmp_path / "x.npy", np.array([[1.0], [1e39], [-1e39]]))
    assert torch.equal(ArrayFile(path).rows(0, 1), torch.ones(1, 1))
    assert refusal(lambda: ArrayFile(path).rows(1, 3)) == (
        f"{path}: rows 1..2 hold 2 values that are too large for float32 (over 3.4e38)"
    )


# memory


def test_reading_200_megabytes_takes_the_memory_of_a_chunk(tmp_path):
    path = tmp_path / "x.npy"
    with path.open("wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (100_000, 512)}
        np.lib.format.write_array_header_1_0(stream, header)
        stream.truncate(stream.tell() + 100_000 * 512 * 4)
    script = """
import sys
from benchmarks.array_file import ArrayFile
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
before = peak()
count = sum(len(rows) for rows in ArrayFile(sys.argv[1]))
print(count, peak() - before)
"""
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    count, megabytes = done.stdout.split()
    assert int(count) == 100_000
    assert float(megabytes) < 60  # two chunks of 16 MB are alive when one follows the other
