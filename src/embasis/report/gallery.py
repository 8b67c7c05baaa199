"""Pictures of a run on label maps: what the network saw, what it said, how sure it was, and what was trusted."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from embasis.report.records import RunView, Shown

SIGNATURE = b"\x89PNG\r\n\x1a\n"
SMOOTH = ("picture", "variance")
"""Shown smooth when enlarged; the others have sharp edges."""
KINDS = (
    ("picture", "picture", "the picture itself"),
    ("labels", "predicted labels", "each pixel in the colour of the class it was labelled as"),
    ("variance", "variance", "the brighter, the less sure the label"),
    ("trusted", "trusted", "white where the label is trusted, black elsewhere"),
    ("truth", "true labels", "each pixel in the colour of its true class"),
)
"""The field of Shown, its name, and what is to be seen."""


@dataclass(frozen=True)
class Tile:
    """One image of a row."""

    name: str
    alt: str
    uri: str
    width: int
    height: int
    sharp: bool


@dataclass(frozen=True)
class Strip:
    """One picture and its maps, side by side."""

    name: str
    why: str
    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class Gallery:
    """All that the section shows; `legend` has (class, colour as an image) of each class."""

    strips: tuple[Strip, ...]
    legend: tuple[tuple[str, str], ...]
    caption: str


def gallery(view: RunView) -> Gallery | None:
    """The pictures of a run, None where it has none that can be shown."""
    strips = tuple(strip for shown in view.gallery if (strip := _strip(shown)).tiles)
    if not strips:
        return None
    legend = tuple((name, _swatch(colour)) for name, colour in zip(view.classes, view.palette, strict=False))
    kinds = {tile.name for strip in strips for tile in strip.tiles}
    seen = "; ".join(f"{name}: {what}" for _, name, what in KINDS[2:4] if name in kinds)
    return Gallery(strips, legend, seen[:1].upper() + seen[1:] + "." if seen else "")


def _strip(shown: Shown) -> Strip:
    found = ((kind, name, what, getattr(shown, kind)) for kind, name, what in KINDS)
    tiles = [_tile(shown.name, kind, name, what, data) for kind, name, what, data in found if is_png(data)]
    return Strip(shown.name, shown.why, tuple(tiles))


def _tile(picture: str, kind: str, name: str, what: str, data: bytes) -> Tile:
    width, height = (int.from_bytes(data[start : start + 4]) for start in (16, 20))
    alt = f"{name[:1].upper()}{name[1:]} of {picture}: {what}."
    return Tile(name, alt, _uri("png", data), width, height, kind not in SMOOTH)


def is_png(data: bytes | None) -> bool:
    """Whether these bytes begin as a PNG file does, up to its size."""
    return data is not None and data.startswith(SIGNATURE) and data[12:16] == b"IHDR" and len(data) > 24


def _swatch(colour: Sequence[int]) -> str:
    """A square of one colour, as an image: a page may have no style of its own."""
    red, green, blue = (min(max(int(part), 0), 255) for part in colour)
    fill = f"#{red:02x}{green:02x}{blue:02x}"
    shape = f'<rect width="16" height="16" fill="{fill}"/>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16">{shape}</svg>'
    return _uri("svg+xml", svg.encode())


def _uri(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64," + base64.b64encode(data).decode()
