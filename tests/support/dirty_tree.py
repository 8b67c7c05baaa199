"""Trees of images, sound and damaged, made of hard links to a few payloads, and what must be said of each file."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 32
"""Pixels of a sound image."""


def sound(number: int) -> bytes:
    """An image of its own for each number: a PNG, or a JPEG for odd ones."""
    pixels = np.random.default_rng(number).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((SIDE, SIDE)).save(stream := io.BytesIO(), "JPEG" if number % 2 else "PNG")
    return stream.getvalue()


def ending(number: int) -> str:
    """Of the file of a sound image."""
    return "jpg" if number % 2 else "png"


def _header(width: int, height: int) -> bytes:
    content = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + content + struct.pack(">I", zlib.crc32(content))


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _saved(pixels: np.ndarray, kind: str) -> bytes:
    Image.fromarray(pixels).save(stream := io.BytesIO(), kind)
    return stream.getvalue()


PNG, JPEG = sound(0), sound(1)
BMP = _saved(np.zeros((8, 8, 3), np.uint8), "BMP")
DAMAGED = {
    "empty": (b"", "scan", "the file is empty"),
    "noise": (bytes(range(7, 251, 3)), "scan", "not an image that is read"),
    "page": (b"<!DOCTYPE html><p>404", "scan", "format HTML is not read"),
    "psd": (b"8BPS\x00\x01", "scan", "format PSD is not read"),
    "pdf": (b"%PDF-1.7\n", "scan", "format PDF is not read"),
    "eps": (b"%!PS-Adobe-3.0 EPSF-3.0\n", "scan", "format EPS is not read"),
    "archive": (b"PK\x03\x04" + bytes(40), "scan", "format ZIP is not read"),
    "bomb": (_header(60_000, 60_000), "scan", "60000×60000 exceeds 64 Mpx"),
    "wide": (BMP[:18] + struct.pack("<ii", 2**20, 2**20) + BMP[26:], "scan", "1048576×1048576 exceeds 64 Mpx"),
    "nothing": (_header(0, 7), "scan", "damaged PNG: 0×7 pixels"),
    "stump": (PNG[:20], "scan", "truncated PNG"),
    "cut": (PNG[:-30], "read", "truncated PNG"),
    "flipped": (_flipped(PNG, 60), "read", "damaged PNG: wrong checksum of its IDAT chunk"),
    "half": (JPEG[:-20], "read", "truncated JPEG"),
    "float": (_saved(np.zeros((8, 8), np.float32), "TIFF"), "read", "floating-point pixels are not read"),
}
"""Kind of damage → payload, the phase that finds it, and the reason that must be given."""
ODD = {
    "pipe": "not a regular file",
    "socket": "not a regular file",
    "link": "is a link; links are not followed",
    "loop": "is a link; links are not followed",
    "huge": "314,572,800 bytes exceed 256 MiB",
}
"""Kinds that are no payload of bytes, and their reasons; all are found by the scan."""
KINDS = (*DAMAGED, *ODD)
RULES = ("pipe", "socket", "link", "loop")
"""Refused by a rule, not damaged."""


@dataclass(frozen=True)
class Line:
    """What the ledger must say of one damaged file."""

    name: str
    reason: str
    phase: str
    kind: str


def plant_payloads(pool: Path, count: int) -> None:
    """`count` sound images, and one payload of each kind of damage, to be linked to."""
    pool.mkdir()
    for number in range(count):
        (pool / f"{number}").write_bytes(sound(number))
    for kind, (data, _, _) in DAMAGED.items():
        (pool / kind).write_bytes(data)
    os.mkfifo(pool / "pipe")
    here = os.getcwd()
    os.chdir(pool)  # the address of a socket has at most 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as door:
            door.bind("socket")
    finally:
        os.chdir(here)
    os.symlink("/", pool / "link")
    os.symlink("loop", pool / "loop")
    with open(pool / "huge", "wb") as file:
        file.truncate(300 * 2**20)


def plant_tree(root: Path, pool: Path, numbers: range, folders: int, each: int, damaged: int) -> list[Line]:
    """`folders` folders of `each` files, links to the payloads `numbers`; `damaged` of each folder are of all kinds."""
    lines = []
    for folder in range(folders):
        below = root / f"class{folder % 10}" / f"part{folder:05}"
        below.mkdir(parents=True)
        for place in range(each):
            if place < damaged:
                line = _plant_damaged(root, below, pool, KINDS[(folder * damaged + place) % len(KINDS)], place)
                lines.append(line)
            else:
                number = numbers[(folder * each + place) % len(numbers)]
                os.link(pool / f"{number}", below / f"frame{place:06}.{ending(number)}")
    return lines


def _plant_damaged(root: Path, below: Path, pool: Path, kind: str, place: int) -> Line:
    path = below / f"bad{place:06}.png"
    os.link(pool / kind, path, follow_symlinks=False)
    phase, reason = (DAMAGED[kind][1:]) if kind in DAMAGED else ("scan", ODD[kind])
    return Line(path.relative_to(root).as_posix(), reason, phase, "refused" if kind in RULES else "quarantined")


def state_of(root: Path) -> str:
    """A hash over all names below with kind, size, mode, owner, links and times: no write leaves it as it was."""
    digest = hashlib.sha256()
    for entry in _below(str(root)):
        state = entry.stat(follow_symlinks=False)
        facts = (
            entry.path,
            state.st_mode,
            state.st_ino,
            state.st_nlink,
            state.st_size,
            state.st_mtime_ns,
            state.st_uid,
        )
        digest.update(repr(facts).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _below(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path)
