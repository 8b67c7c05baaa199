"""Pictures of up to 64 kB that ask for as many pixels as are read, in every kind; made by code, each in a second or so.

python tests/support/picture_bombs.py NAME      reads one, and prints what that cost as JSON; it is a process of its own
"""

from __future__ import annotations

import io
import json
import math
import os
import resource
import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any

from PIL import Image

MOST = 2**16
"""Bytes of an input for which cost is promised."""
SIDE = 7990


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def zeros(length: int) -> bytes:
    """So many zero bytes, packed."""
    packer, parts = zlib.compressobj(9), []
    for start in range(0, length, 2**20):
        parts.append(packer.compress(bytes(min(2**20, length - start))))
    return b"".join([*parts, packer.flush()])


CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def png(depth: int, colour: int, clear: bytes = b"", *, laced: bool = False, before: bytes = b"") -> bytes:
    """Zeros, as many as fit into MOST bytes."""
    bits = depth * CHANNELS[colour]
    side = min(SIDE, math.isqrt(int(66_000_000 * 8 / bits)))
    passes = PASSES if laced else ((0, 0, 1, 1),)
    sides = [(len(range(row, side, down)), len(range(column, side, right))) for row, column, down, right in passes]
    length = sum(rows * (1 + (columns * bits + 7) // 8) for rows, columns in sides)
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, depth, colour, 0, 0, int(laced))), before]
    parts += [chunk(b"PLTE", bytes(range(6)))] if colour == 3 else []
    parts += [chunk(b"tRNS", clear)] if clear else []
    return b"\x89PNG\r\n\x1a\n" + b"".join([*parts, chunk(b"IDAT", zeros(length)), chunk(b"IEND")])


def turned() -> bytes:
    """An EXIF block of a PNG that says: on its side."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return chunk(b"eXIf", exif.tobytes()[6:])


def saved(mode: str, kind: str, side: int = SIDE, **options: Any) -> bytes:
    out = io.BytesIO()
    Image.new(mode, (side, side)).save(out, kind, **options)
    return out.getvalue()


def bmp(depth: int) -> bytes:
    """One pixel in each row, and the end of the row: a decoder has to fill in the rest."""
    rows = b"\x01\x01\x00\x00" * SIDE + b"\x00\x01"
    size, colours = (SIDE, SIDE), 2**depth
    head = struct.pack("<IiiHHIIiiII", 40, *size, 1, depth, {8: 1, 4: 2}[depth], len(rows), 0, 0, colours, 0)
    start = 14 + len(head) + 4 * colours
    return b"BM" + struct.pack("<IHHI", start + len(rows), 0, 0, start) + head + bytes(4 * colours) + rows


def many_scans(side: int) -> bytes:
    """A progressive JPEG whose scans are there a thousand times; each goes over all blocks."""
    data = saved("L", "JPEG", 64, progressive=True)
    place = data.index(b"\xff\xc2") + 5
    data = data[:place] + struct.pack(">HH", side, side) + data[place + 4 :]
    first = data.index(b"\xff\xda")
    table = data[data.rindex(b"\xff\xc4", 0, first) : first] if b"\xff\xc4" in data[:first] else b""
    scan = b"\xff\xda\x00\x08\x01\x01\x00\x00\x00\x10" + b"\x00" * 8  # the first bits of the values in the middle
    return data[:first] + table + (scan * ((MOST - len(data) - 100) // len(scan))) + b"\xff\xd9"


def cut_jpeg(**options: Any) -> bytes:
    """A header of many pixels, and hardly any of them."""
    data = saved("RGB", "JPEG", 64, **options)
    place = data.index(b"\xff\xc2" if options else b"\xff\xc0") + 5
    return data[:place] + struct.pack(">HH", SIDE, SIDE) + data[place + 4 :]


def tiff(mode: str, how: str, side: int = SIDE) -> bytes:
    """One strip of all rows."""
    return saved(mode, "TIFF", side, compression=how, strip_size=2**31 - 1)


def tile(side: int) -> bytes:
    """A TIFF of 8 × 8 pixels in a tile of many more."""
    data = tiff("RGB", "zstd", side)
    image = Image.open(io.BytesIO(data))
    start, length = image.tag_v2[273][0], image.tag_v2[279][0]  # type: ignore[attr-defined]
    strip = data[start : start + length]
    rows = [(256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 1, 8), (259, 3, 1, 50000), (262, 3, 1, 2), (277, 3, 1, 3),
            (284, 3, 1, 1), (322, 4, 1, side), (323, 4, 1, side), (324, 4, 1, 8), (325, 4, 1, length)]  # fmt: skip
    bits = 8 + length + len(rows) * 12 + 6
    rows[2] = (258, 3, 3, bits)
    table = struct.pack("<H", len(rows)) + b"".join(struct.pack("<HHII", *row) for row in rows) + bytes(4)
    return b"II*\0" + struct.pack("<I", 8 + length) + strip + table + struct.pack("<HHH", 8, 8, 8)


BOMBS: dict[str, Callable[[], bytes]] = {
    "PNG 1": lambda: png(1, 0),
    "PNG 1 tRNS": lambda: png(1, 0, b"\0\0"),
    "PNG 1 tRNS turned": lambda: png(1, 0, b"\0\0", before=turned()),
    "PNG P1": lambda: png(1, 3),
    "PNG P1 tRNS": lambda: png(1, 3, b"\x80"),
    "PNG P1 tRNS interlaced": lambda: png(1, 3, b"\x80", laced=True),
    "PNG P4 tRNS": lambda: png(4, 3, b"\x80"),
    "PNG P8 tRNS": lambda: png(8, 3, b"\x80"),
    "PNG L": lambda: png(8, 0),
    "PNG L tRNS": lambda: png(8, 0, b"\0\0"),
    "PNG L turned": lambda: png(8, 0, before=turned()),
    "PNG L interlaced": lambda: png(8, 0, laced=True),
    "PNG L16": lambda: png(16, 0),
    "PNG L16 tRNS": lambda: png(16, 0, b"\0\0"),
    "PNG LA": lambda: png(8, 4),
    "PNG LA16": lambda: png(16, 4),
    "PNG RGB": lambda: png(8, 2),
    "PNG RGB tRNS": lambda: png(8, 2, bytes(6)),
    "PNG RGB16": lambda: png(16, 2),
    "PNG RGBA": lambda: png(8, 6),
    "PNG RGBA16": lambda: png(16, 6),
    "GIF": lambda: saved("P", "GIF", SIDE),
    "GIF transparent": lambda: saved("P", "GIF", SIDE, transparency=0),
    "WEBP": lambda: saved("RGB", "WEBP", lossless=True, method=0, quality=0),
    "WEBP alpha": lambda: saved("RGBA", "WEBP", lossless=True, method=0, quality=0, exact=True),
    "WEBP small": lambda: saved("RGBA", "WEBP", 4000, lossless=True, method=0, quality=0, exact=True),
    "TIFF 1 group4": lambda: tiff("1", "group4"),
    "TIFF L lzw": lambda: tiff("L", "tiff_lzw"),
    "TIFF L zstd": lambda: tiff("L", "zstd"),
    "TIFF RGB zstd": lambda: tiff("RGB", "zstd"),
    "TIFF RGBA zstd": lambda: tiff("RGBA", "zstd"),
    "TIFF CMYK zstd": lambda: tiff("CMYK", "zstd"),
    "TIFF I zstd": lambda: tiff("I", "zstd"),
    "TIFF I16 zstd": lambda: tiff("I;16", "zstd"),
    "TIFF F zstd": lambda: tiff("F", "zstd"),
    "TIFF RGB deflate": lambda: tiff("RGB", "tiff_adobe_deflate", 4600),
    "TIFF tile": lambda: tile(SIDE - SIDE % 16),
    "BMP RLE8": lambda: bmp(8),
    "BMP RLE4": lambda: bmp(4),
    "JPEG": lambda: saved("RGB", "JPEG", 2000),
    "JPEG progressive": lambda: saved("RGB", "JPEG", 3000, progressive=True),
    "JPEG cut": cut_jpeg,
    "JPEG cut progressive": lambda: cut_jpeg(progressive=True),
    "JPEG scans": lambda: many_scans(SIDE),
    "JPEG scans small": lambda: many_scans(2000),
    "PPM cut": lambda: b"P6 7990 7990 255\n" + bytes(1000),
    "PBM cut": lambda: b"P4 7990 7990\n" + bytes(1000),
}


def picture(data: bytes) -> str:
    from embasis.data.images import header
    from embasis.data.images import pixels as decode
    from embasis.data.images.pixels import centre_view
    from embasis.types import Preparation

    try:
        read = header.read_header(data)
        size = decode.oriented_size(read, decode.read_orientation(data, read))
        pixels = decode.decode(data)
        assert tuple(pixels.shape) == (3, *size)
        centre_view(pixels, Preparation(224, 0.875, "bilinear"))
    except header.UnreadableImage as error:
        return str(error)
    return f"{size[1]}×{size[0]}"


def label_map(coded: str) -> Callable[[bytes], str]:
    """Reads a map twice, as a run does: for its numbers, and for its classes."""

    def read(data: bytes) -> str:
        from embasis.data.segmentation.audit import count_values
        from embasis.data.segmentation.labels import BadMap, decode_classes
        from embasis.types import ClassTable

        table = ClassTable(("a", "b"), ((0,), (1,)), ((0, 0, 0), (3, 4, 5)), coded=coded)
        try:
            height, width = count_values(data, coded).size
            decode_classes(data, table)
        except BadMap as error:
            return str(error)
        return f"{width}×{height}"

    return read


READERS: dict[str, Callable[[bytes], str]] = {
    "picture": picture,
    "ids": label_map("ids"),
    "colours": label_map("colours"),
    "first": label_map("first"),
}


def peak() -> float:
    """Megabytes."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(reader: str, data: bytes) -> dict[str, Any]:
    """What it costs to read a file, beyond what reading a small one has brought in already."""
    small = io.BytesIO()
    Image.new("RGB", (300, 300)).save(small, "PNG")
    READERS[reader](small.getvalue())
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins anew
    before, began = peak(), processor()
    said = READERS[reader](data)
    return {"said": said, "bytes": len(data), "seconds": processor() - began, "megabytes": peak() - before}


def measure_apart(reader: str, name: str) -> dict[str, Any]:
    """The same in a process of its own, which has all imports already."""
    data = BOMBS[name]()  # memory that is free again is not counted: the child is measured from its own beginning
    out, into = os.pipe()
    if not (child := os.fork()):
        try:
            os.write(into, json.dumps(measure(reader, data)).encode())
        finally:
            os._exit(0)
    os.close(into)
    with open(out, "rb") as answer:
        found = json.loads(answer.read())
    os.waitpid(child, 0)
    return {"reader": reader, "name": name, **found}


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    READERS["picture"](png(8, 0)[:100])  # imports what reads
    READERS["ids"](b"")
    for words in sys.argv[1:]:
        print(json.dumps(measure_apart(*words.split("/"))), flush=True)
