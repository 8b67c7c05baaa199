"""The pieces that figures are made of, as SVG inside the page: text, marks with a value each, axes, keys, heat maps.

Colours are classes of figures.css, so one picture serves a light and a dark page. A mark carries its value as a title:
browsers show it at the pointer, screen readers read it, and the page's script lets arrow keys walk from mark to mark.
A `g` of marks is a line, or a row of a heat map. All text is escaped here and nowhere else.

| symbol | meaning |
| --- | --- |
| x, y | places in units of the picture; y grows downwards |
| s0 … s3 | classes of series: colours that colour-blind readers tell apart (Okabe and Ito), each with its own shape |
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from embasis.report.records import public

SMALL, LARGE = (330, 210), (350, 280)
"""Width and height of a picture among others, and of one that stands alone."""
LETTER = 6.4
"""About the width of a letter in units of the picture."""
SHAPES = ("circle", "square", "triangle", "diamond")
NAMED_CLASSES = 40
"""A heat map with more rows or columns is one image, without names."""
WRITTEN_CELLS = 26 * 26
"""A heat map with more cells has no numbers in them."""
HEAT = (42, 111, 176)
"""Of an image, which is the same on a light and on a dark page."""


def escape_text(text: str) -> str:
    """Text as it may stand anywhere in a page."""
    return escape(public(text))


def number(value: float) -> str:
    """A place with at most one decimal."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def element(name: str, attributes: Mapping[str, str | float], inside: str = "") -> str:
    """One element; `inside` is markup."""
    parts = [f'{key}="{escape(v) if isinstance(v, str) else number(v)}"' for key, v in attributes.items()]
    return f"<{' '.join([name, *parts])}>{inside}</{name}>"


def mark(name: str, attributes: Mapping[str, str | float], value: str, kind: str = "") -> str:
    """An element that says its value."""
    said = {"class": f"m {kind}".strip(), **attributes, "role": "img", "tabindex": "-1"}
    return element(name, said, f"<title>{escape_text(value)}</title>")


def text(x: float, y: float, content: str, kind: str = "", turn: int | None = None) -> str:
    """Text at a place; `kind` is its class: middle or end, title, quiet, on; `turn` in degrees."""
    attributes: dict[str, str | float] = {"x": x, "y": y, "class": kind}
    if turn is not None:
        attributes["transform"] = f"rotate({turn} {number(x)} {number(y)})"
    return element("text", attributes, escape_text(content))


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return element("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": kind})


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A filled rectangle without a value."""
    return element("rect", {"x": x, "y": y, "width": max(width, 0.0), "height": max(height, 0.0), "class": kind})


def chart(width: float, height: float, label: str, body: Iterable[str], kind: str = "") -> str:
    """The whole picture; its first mark is what the tab key reaches."""
    inside = "".join(body).replace('tabindex="-1"', 'tabindex="0"', 1)
    said: dict[str, str | float] = {"class": f"chart {kind}".strip()}
    said |= {"viewBox": f"0 0 {number(width)} {number(height)}", "width": width, "height": height}
    return element("svg", {**said, "role": "group", "aria-label": public(label)}, inside)


def point(series: int, x: float, y: float, size: float, value: str | None) -> str:
    """The mark of a series; without a value it is part of a key."""
    shape, kind = SHAPES[series % len(SHAPES)], f"p s{series}"
    if shape == "circle":
        name, place = "circle", dict[str, str | float](cx=x, cy=y, r=size)
    else:
        corners = {
            "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
            "triangle": ((0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
            "diamond": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
        }[shape]
        places = " ".join(f"{number(x + size * dx)},{number(y + size * dy)}" for dx, dy in corners)
        name, place = "polygon", {"points": places}
    return mark(name, place, value, kind) if value is not None else element(name, {"class": kind, **place})


def path(series: int, places: Sequence[tuple[float, float] | None]) -> str:
    """The line of a series; None breaks it."""
    steps, pen = list[str](), "M"
    for place in places:
        if place is None:
            pen = "M"
            continue
        steps.append(f"{pen}{number(place[0])} {number(place[1])}")
        pen = "L"
    return element("path", {"class": f"l s{series}", "d": " ".join(steps)})


def key(
    names: Sequence[str], x: float, y: float, width: float, first: int = 0, filled: bool = False
) -> tuple[str, float]:
    """The names of the series from (x, y) on, in as many lines as they need, and the height of these."""
    parts, left, down = list[str](), x, y
    for series, name in enumerate(names, first):
        wide = 24 + LETTER * len(cut(name)) + 12
        if left > x and left + wide > width:
            left, down = x, down + 17
        parts.append(
            box(left + 4, down - 9, 11, 11, f"b s{series}")
            if filled
            else path(series, [(left, down - 4), (left + 19, down - 4)])
            + point(series, left + 9.5, down - 4, 3.4, None)
        )
        parts.append(text(left + 24, down, cut(name), "quiet"))
        left += wide
    return "".join(parts), down - y + 17


def finite(value: float | None) -> bool:
    """Whether a value can be drawn."""
    return value is not None and math.isfinite(value)


def steps(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, at most so many and one more."""
    span = high - low if high > low else max(abs(low), 1.0)
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * nice for nice in (1, 2, 2.5, 5, 10, 20) if power * nice * most >= span * (1 - 1e-9))
    return [step * n for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def tick_labels(values: Sequence[float], share: bool = False) -> list[str]:
    """Round numbers as text, all with the decimals that the steps between them need."""
    factor, sign = (100.0, "%") if share else (1.0, "")
    step = min((b - a for a, b in pairwise(values)), default=1.0) * factor
    decimals = next((n for n in range(6) if abs(round(step, n) - step) < step * 1e-6), 6)
    return [f"{value * factor + 0.0:,.{decimals}f}{sign}" for value in values]


@dataclass(frozen=True)
class Axes:
    """A field for marks: from data to places."""

    x: tuple[float, float]
    y: tuple[float, float]
    left: float
    top: float
    right: float
    bottom: float

    def across(self, value: float) -> float:
        """Place of an x."""
        return self.left + (value - self.x[0]) / (self.x[1] - self.x[0]) * (self.right - self.left)

    def down(self, value: float) -> float:
        """Place of a y."""
        return self.bottom - (value - self.y[0]) / (self.y[1] - self.y[0]) * (self.bottom - self.top)

    def grid(self, x_steps: Sequence[float], y_steps: Sequence[float], share: tuple[bool, bool], name: str) -> str:
        """Lines and numbers, and what the numbers below are of."""
        parts = [line(self.left, self.down(y), self.right, self.down(y), "grid") for y in y_steps]
        parts += [
            text(self.left - 7, self.down(y) + 4, told_as, "quiet end")
            for y, told_as in zip(y_steps, tick_labels(y_steps, share[1]), strict=True)
        ]
        parts += [
            text(self.across(x), self.bottom + 17, told_as, "quiet middle")
            for x, told_as in zip(x_steps, tick_labels(x_steps, share[0]), strict=True)
        ]
        parts.append(text((self.left + self.right) / 2, self.bottom + 34, name, "quiet middle"))
        return "".join(parts)


def wide_enough(values: Sequence[float], room: float = 0.12) -> tuple[float, float]:
    """The range of these values with some room above and below."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    span = high - low if high > low else max(abs(high) * 0.1, 1e-3)
    return low - room * span, high + room * span


def cut(name: str, most: int = 24) -> str:
    """A name short enough for a picture."""
    shown = public(name)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def image(shares: Sequence[Sequence[float]], top: float) -> str:
    """A heat map as a data: image, a pixel for each cell; the larger the share the less it lets through."""
    rows = [b"\0" + b"".join(bytes((*HEAT, _shade(value, top))) for value in row) for row in shares]
    header = struct.pack(">IIBBBBB", len(shares[0]), len(shares), 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows), 9)), (b"IEND", b""))
    packed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(packed)).decode()


def _shade(value: float, top: float) -> int:
    return round(255 * min(max(value / top, 0.0), 1.0))
