"""A header cannot take minutes: every loop over a file has a limit of steps, so the scan needs no clock.

The bytes are at most 256 MiB and are read once (`files.read_part`, each turn of whose loop gets some of them). After
that, native code goes over them once, and Python's loops are those tried here.
"""

from __future__ import annotations

import io
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from embasis.data.images import header, pixels
from embasis.data.images.scan import scan_folder
from embasis.data.segmentation.labels import BadMap, iter_numbers
from embasis.types import RejectedFile

MANY = 2**22
SECONDS = 2.0
"""Of processor time, for what would take a minute or so without the limit."""


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(before: bytes = b"", after: bytes = b"") -> bytes:
    """8 × 8 zeros, with something before the pixels, and something after the end."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(72)))
    return b"\x89PNG\r\n\x1a\n" + head + before + pixels + chunk(b"IEND") + after


def jpeg(between: bytes) -> bytes:
    """8 × 8 pixels, with something after the first mark."""
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "JPEG")
    return stream.getvalue()[:2] + between + stream.getvalue()[2:]


def tiff(tags: int, size: int) -> bytes:
    """Entries that all name the same bytes, which a reader may copy again for each."""
    known = [(256, 4, 1, 8), (257, 4, 1, 8), (258, 4, 1, 8), (259, 4, 1, 1), (262, 4, 1, 1), (273, 4, 1, 8),
             (278, 4, 1, 8), (279, 4, 1, 64)]  # fmt: skip
    rows = known + [(1000 + number, 7, size, 8) for number in range(tags)]
    table = struct.pack("<H", len(rows)) + b"".join(struct.pack("<HHII", *row) for row in rows) + bytes(4)
    return b"II*\0" + struct.pack("<I", 8 + size) + bytes(size) + table


FLOODS: dict[str, Callable[[], bytes]] = {
    "PNG": lambda: png(chunk(b"tEXt") * MANY),
    "PPM": lambda: b"P6\n#" + b"x" * 16 * MANY + b"\n8 8\n255\n" + bytes(192),
    "GIF": lambda: b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0, 0, 0) + b"\x21\xfe\x01x\x00" * MANY + b"\x3b",
    "JPEG": lambda: jpeg(b"\xff" * 16 * MANY),
    "JPEG segments": lambda: jpeg(b"\xff\xe5\x00\x02" * MANY),
    "TIFF": lambda: tiff(60_000, 2**22),
}
"""Files of up to 64 MB of which nearly all is header."""


@pytest.mark.parametrize("kind", FLOODS)
def test_a_header_of_millions_of_parts_takes_no_time(kind: str) -> None:
    data, reason = FLOODS[kind](), ""
    began = time.process_time()
    try:
        read = header.read_header(data)
        assert pixels.oriented_size(read, pixels.read_orientation(data, read)) == (8, 8)
    except header.UnreadableImage as error:
        reason = str(error)
    assert time.process_time() - began < SECONDS
    assert reason in ("", f"damaged {kind}: reading it takes too many steps")
    assert bool(reason) is (kind in ("PNG", "PPM", "GIF")), "a JPEG's size is found, and it is not turned"


@pytest.mark.parametrize("kind", ["PNG", "PPM"])
def test_without_the_limit_all_of_it_would_be_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header, "MOST_READS", 10**9)
    data = png(chunk(b"tEXt") * 200_000) if kind == "PNG" else b"P6\n#" + b"x" * 10**6 + b"\n8 8\n255\n" + bytes(192)
    assert header.read_header(data) == header.Header(kind, 8, 8)


def test_bytes_that_are_read_again_and_again_are_noticed() -> None:
    file = header.LimitedReader(bytes(2**20), "TIFF")
    for _ in range(5):
        file.seek(0)
        file.read()
    file.seek(0)
    with pytest.raises(header.UnreadableImage) as caught:
        file.read()
    assert str(caught.value) == "damaged TIFF: reading it takes too many steps"


@pytest.mark.parametrize("flood", ["before", "after"])
def test_a_label_map_of_millions_of_chunks_takes_neither_time_nor_memory(flood: str) -> None:
    data = png(**{flood: chunk(b"tEXt") * MANY})
    began = time.process_time()
    if flood == "before":
        with pytest.raises(BadMap) as caught:
            [*iter_numbers(data, "ids")]
        assert str(caught.value) == "damaged PNG: it has more than 100,000 chunks"
    else:
        assert np.concatenate([*iter_numbers(data, "ids")]).shape == (8, 8)
    assert time.process_time() - began < SECONDS


def test_a_label_map_of_the_largest_size_takes_seconds_and_no_more() -> None:
    """What is left is proportional to the pixels, of which there are at most 64 Mpx: here a sixteenth of them."""
    side, stream = 2048, io.BytesIO()
    Image.new("L", (side, side)).save(stream, "PNG")
    began = time.process_time()
    assert np.concatenate([*iter_numbers(stream.getvalue(), "ids")]).shape == (side, side)
    assert 16 * (time.process_time() - began) < 10


def test_such_files_are_lines_of_the_ledger(tmp_path: Path) -> None:
    (tmp_path / "good.png").write_bytes(png())
    (tmp_path / "flood.png").write_bytes(png(chunk(b"tEXt") * 200_000))
    scan = scan_folder(tmp_path)
    assert [file.name for file in scan.files] == ["good.png"]
    reason = "damaged PNG: reading it takes too many steps"
    assert scan.rejected == (RejectedFile("flood.png", reason, "scan", kind="quarantined"),)
