"""What tests share: pages of runs with label maps."""

from __future__ import annotations

import dataclasses
import struct
import zlib

from embasis.report import MapExample, RunView
from embasis.report.svg import PNG_START
from embasis.types import Evaluation
from page_views import BENIGN, evaluation, record, view

COLOURS = ((128, 64, 128), (255, 0, 0), (0, 0, 142))


def png(width: int = 4, height: int = 2, shade: int = 0) -> bytes:
    """A grey picture of one shade."""
    lines = (b"\0" + bytes([shade]) * width) * height
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines)),
        (b"IEND", b""),
    )
    packed = (struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks)
    return PNG_START + b"".join(packed)


def shown(name: str = "aachen/1.png", why: str = "least sure", truth: bool = True) -> MapExample:
    return MapExample(
        name, why, png(shade=1), png(shade=2), png(shade=3), png(shade=4), png(shade=5) if truth else None
    )


def judged(accuracy: float = 0.75) -> Evaluation:
    return dataclasses.replace(
        evaluation(accuracy), mean_iou=accuracy - 0.25, class_iou=(0.61, None, 0.43), class_ece=(0.11, 0.22, None)
    )


def on_maps(
    names: tuple[str, ...] = BENIGN, pictures: tuple[str, str] = ("a.png", "b.png"), truth: bool = True
) -> RunView:
    found = [record(i, truth) for i in range(3)]
    rounds = [dataclasses.replace(r, evaluation=judged(0.5 + 0.1 * r.round), test=judged()) for r in found]
    gallery = (shown(pictures[0]), shown(pictures[1], pictures[1], truth=False))
    return dataclasses.replace(
        view(names), rounds=tuple(rounds if truth else found), gallery=gallery, palette=COLOURS, pictures=1500
    )
