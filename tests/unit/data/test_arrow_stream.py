"""Arrow streams by their headers: what pyarrow wrote is found, what a stranger could write is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from embasis.data import arrow_stream
from embasis.data.arrow_stream import END, BadArrow, MessageHeader, open_arrow, refuse_bad_arrow
from embasis.errors import InputDataError

ROWS = pa.table({"a": [0.5, None, 2.5, 3.5, 4.5], "t": ["x", "yö", None, "z", ""]})


def write(path: Path, rows: pa.Table = ROWS, packed: str | None = None) -> bytes:
    """A stream in batches of two rows."""
    options = pa.ipc.IpcWriteOptions(compression=packed)
    with pa.ipc.new_stream(path, rows.schema, options=options) as writer:
        writer.write_table(rows, max_chunksize=2)
    return path.read_bytes()


def reason(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises((BadArrow, pa.ArrowException, OSError)) as caught:
        list(open_arrow(str(path)).iter_batches())
    return str(caught.value)


def test_batches_are_those_that_pyarrow_reads(tmp_path: Path) -> None:
    write(path := tmp_path / "x.arrow")
    file = open_arrow(str(path))
    assert [place.rows for place in file.batches] == [2, 2, 1]
    assert file.rows == 5
    assert pa.Table.from_batches([batch.rows for batch in file.iter_batches()]).equals(ROWS)


def test_the_place_of_a_column_leads_to_its_bytes_in_the_file(tmp_path: Path) -> None:
    data = write(path := tmp_path / "x.arrow")
    for batch in open_arrow(str(path)).iter_batches():
        column = batch.rows.column("t")
        values = column.buffers()[2]
        if not values.size:
            continue
        at = batch.find_place(values)
        assert data[at : at + values.size] == values.to_pybytes()
    with pytest.raises(BadArrow, match=r"^a column is not stored as it is$"):
        batch.find_place(pa.py_buffer(b"elsewhere"))


def test_every_length_that_a_file_is_cut_to_is_noticed(tmp_path: Path) -> None:
    data = write(path := tmp_path / "x.arrow")
    for length in range(len(data)):
        assert reason(path, data[:length])
    assert reason(path, data[: -len(END)]).endswith(", rows may be missing")
    assert reason(path, b"") == "it is no Arrow stream"
    assert reason(path, END) == "has no schema"


def test_a_bit_that_is_flipped_is_noticed_or_changes_a_value_only(tmp_path: Path) -> None:
    data = write(path := tmp_path / "x.arrow")
    for at in range(0, len(data), 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        try:
            with refuse_bad_arrow(str(path)):
                list(open_arrow(str(path)).iter_batches())
        except InputDataError:
            pass


def test_what_could_stand_for_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    assert reason(path, write(path, packed="zstd")) == "is compressed; write it without compression"
    coded = pa.table({"t": pa.array(["x", "y"]).dictionary_encode()})
    assert reason(path, write(path, coded)) == "has dictionaries, which are not read"
    many = pa.table({"nothing": pa.nulls(10)})
    data = write(path, many)
    assert open_arrow(str(path)).rows == 10
    assert len(data) < 1500  # rows of no type take no byte: how many there are is checked by whoever reads them


def test_numbers_that_lie_are_refused(tmp_path: Path) -> None:
    data = write(path := tmp_path / "x.arrow")
    (first, *_) = open_arrow(str(path)).batches
    size = int.from_bytes(data[first.offset + 4 : first.offset + 8], "little")
    header = bytearray(data[first.offset + 8 : first.offset + 8 + size])
    body = MessageHeader.read(bytes(header)).body
    at = header.index(body.to_bytes(8, "little"))
    for lie in (2**62, -8, len(data)):
        header[at : at + 8] = lie.to_bytes(8, "little", signed=True)
        changed = data[: first.offset + 8] + bytes(header) + data[first.offset + 8 + size :]
        assert reason(path, changed) == f"is cut off or damaged at byte {first.offset:,}: a batch of {lie:,} bytes"
    long = data[: first.offset + 4] + (2**30).to_bytes(4, "little") + data[first.offset + 8 :]
    assert reason(path, long) == f"is cut off or damaged at byte {first.offset:,}: a header of 1,073,741,824 bytes"


@pytest.mark.parametrize("data", [b"", b"\xff" * 16, b"\x08\0\0\0" + b"\xff" * 8])
def test_a_header_that_leads_out_of_itself_is_refused(data: bytes) -> None:
    with pytest.raises(BadArrow, match=r"^a header leads out of itself$"):
        MessageHeader.read(data)


def test_more_parts_than_a_file_may_have_are_refused(tmp_path: Path, monkeypatch) -> None:
    data = write(path := tmp_path / "x.arrow")
    monkeypatch.setattr(arrow_stream, "MOST_MESSAGES", 3)
    assert reason(path, data) == "has more than 3 parts"


def test_a_link_a_pipe_and_a_file_that_shrinks_are_refused(tmp_path: Path) -> None:
    data = write(path := tmp_path / "x.arrow")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        open_arrow(str(tmp_path / "link"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadArrow, match=r"^not a regular file$"):
        open_arrow(str(tmp_path / "pipe"))
    file = open_arrow(str(path))
    path.write_bytes(data[:-100])
    with pytest.raises(BadArrow, match=r"^was changed while it was read$"):
        list(file.iter_batches())


def test_the_sentence_names_the_file_and_the_cure(tmp_path: Path) -> None:
    (path := tmp_path / "x.arrow").write_bytes(b"PAR1")
    with pytest.raises(InputDataError) as caught, refuse_bad_arrow(str(path)):
        open_arrow(str(path))
    text = f"{path}: not a readable Arrow file: it is no Arrow stream; save the data set again"
    assert str(caught.value) == text
