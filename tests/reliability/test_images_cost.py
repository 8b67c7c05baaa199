"""A picture or label map of up to 64 kB takes at most 2 s of processor and 512 MB, whatever its header says."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from embasis.data.images.header import Header, UnreadableImage, read_header
from embasis.data.images.pixels import decode
from embasis.data.images.scan import scan_folder
from embasis.types import RejectedFile
from paths import SUPPORT
from picture_bombs import BOMBS, MOST, SIDE, many_scans, saved, tile

SECONDS, MEGABYTES = 2.0, 512
CODED = {
    "ids": ("PNG P8 tRNS", "PNG L interlaced", "PNG L16"),
    "colours": ("PNG P8 tRNS", "PNG RGB"),
    "first": ("PNG RGB16",),
}
PICTURES = ("PNG 1 tRNS turned", "PNG P1 tRNS interlaced", "PNG P8 tRNS", "PNG L", "PNG LA", "PNG RGB tRNS", "PNG RGBA",
            "GIF transparent", "TIFF 1 group4", "TIFF I16 zstd")  # fmt: skip
"""The dearest of those that are read."""


def costs(words: list[str]) -> list[dict[str, Any]]:
    command = [sys.executable, str(SUPPORT / "picture_bombs.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def dear(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in found if one["seconds"] > SECONDS or one["megabytes"] > MEGABYTES or one["bytes"] > MOST]


def test_a_small_file_of_many_pixels_is_read_in_little_time_and_memory() -> None:
    found = costs([f"picture/{name}" for name in PICTURES])
    assert dear(found) == []
    sizes = {"PNG LA": "5744×5744", "PNG RGB tRNS": "4690×4690", "PNG RGBA": "4062×4062"}
    assert [one["said"] for one in found] == [sizes.get(name, "7990×7990") for name in PICTURES], "all of them are read"


def test_a_small_label_map_of_many_pixels_is_read_in_little_time_and_memory() -> None:
    found = costs([f"{coded}/{name}" for coded, names in CODED.items() for name in names])
    assert dear(found) == []
    strange = "colours {#000102: 63,840,100 px}; allowed #000000, #030405, ignore #0000ff"
    sizes = ["7990×7990", "7990×7990", "5744×5744", strange, "4690×4690", "3316×3316"]
    assert [one["said"] for one in found] == sizes


@pytest.mark.slow
def test_no_small_file_of_any_kind_takes_much() -> None:
    words = [f"picture/{name}" for name in BOMBS]
    words += [f"{coded}/{name}" for coded in CODED for name in BOMBS if name.startswith("PNG")]
    assert dear(costs(words)) == []


def reason(data: bytes) -> str:
    """What the scan and the decoder say, which is the same."""
    said = []
    for function in (read_header, decode):
        with pytest.raises(UnreadableImage) as caught:
            function(data)
        said.append(str(caught.value))
    assert said[0] == said[1]
    return said[0]


ALLOWED = "a file of up to 64 kB may take 480 MB; make it smaller"
SLOW = "take too long to decode for a file of up to 64 kB; save it as PNG"
REFUSED = {
    "WEBP": f"7990×7990 pixels take 974 MB to decode, {ALLOWED}",
    "JPEG cut": f"7990×7990 pixels take 913 MB to decode, {ALLOWED}",
    "TIFF RGBA zstd": f"7990×7990 pixels take 487 MB to decode, {ALLOWED}",
    "JPEG scans small": f"3,618 scans of 2000×2000 pixels {SLOW}",
    "BMP RLE8": f"7990×7990 pixels in packed rows {SLOW}",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_cheap_is_refused_from_its_header(name: str) -> None:
    assert reason(BOMBS[name]()) == REFUSED[name]


def test_a_tile_that_is_much_larger_than_its_picture_counts() -> None:
    data = tile(64)
    side = struct.pack("<HHII", 322, 4, 1, 30000) + struct.pack("<HHII", 323, 4, 1, 30000)
    at = data.index(struct.pack("<HHII", 322, 4, 1, 64))
    lie = data[:at] + side + data[at + len(side) :]
    assert reason(lie) == f"8×8 pixels take 2,574 MB to decode, {ALLOWED}"
    assert decode(data).shape == (3, 8, 8)


def test_a_refused_picture_is_a_line_of_the_ledger(tmp_path: Path) -> None:
    (tmp_path / "bomb.webp").write_bytes(BOMBS["WEBP"]())
    (tmp_path / "good.webp").write_bytes(saved("RGB", "WEBP", 40))
    scan = scan_folder(tmp_path)
    assert [file.name for file in scan.files] == ["good.webp"]
    assert scan.rejected == (RejectedFile("bomb.webp", REFUSED["WEBP"], "scan", kind="quarantined"),)


def test_a_photo_of_as_many_pixels_is_not_refused() -> None:
    """A file of more bytes may need them: genuine pictures of up to 64 Mpx are read."""
    small = BOMBS["WEBP"]()
    filler = b"EXIF" + struct.pack("<I", MOST) + bytes(MOST)
    flags = b"VP8X" + struct.pack("<IIHBHB", 10, 8, (SIDE - 1) & 0xFFFF, 0, (SIDE - 1) & 0xFFFF, 0)
    body = b"WEBP" + flags + small[12:] + filler
    photo = b"RIFF" + struct.pack("<I", len(body)) + body
    assert read_header(photo) == Header("WEBP", SIDE, SIDE)
    jpeg = BOMBS["JPEG cut"]()
    assert read_header(jpeg[:2] + b"\xff\xfe\xff\xff" + bytes(0xFFFD) + jpeg[2:]) == Header("JPEG", SIDE, SIDE)


def test_progressive_pictures_of_ordinary_size_are_read() -> None:
    assert decode(saved("RGB", "JPEG", 1200, progressive=True)).shape == (3, 1200, 1200)
    with pytest.raises(UnreadableImage) as caught:
        decode(many_scans(300))
    damage = "Inconsistent progression sequence for component 0 coefficient 0"
    assert str(caught.value) == f"damaged JPEG: {damage}", "its scans are few enough for its pixels"


def test_a_picture_of_parts_is_turned_as_a_whole_one() -> None:
    """Larger than one part in both directions, and mixed with white: the pixels are those of a picture of one part."""
    image = Image.effect_noise((700, 900), 90).convert("RGBA")
    image.putalpha(Image.effect_noise((700, 900), 120))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        out, corner = io.BytesIO(), io.BytesIO()
        image.save(out, "PNG", exif=exif)
        image.crop((600, 850, 700, 900)).save(corner, "PNG", exif=exif)
        whole, part = decode(out.getvalue()), decode(corner.getvalue())
        rows = [whole[:, -part.shape[1] :], whole[:, : part.shape[1]]]
        found = [row[:, :, cut] for row in rows for cut in (slice(-part.shape[2], None), slice(part.shape[2]))]
        assert any(one.equal(part) for one in found), orientation
