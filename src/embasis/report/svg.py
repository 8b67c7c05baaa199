"""What figures are drawn with, as SVG inside the page: text, marks with a value each, axes, lines, bars and heat maps.

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

from embasis.report import public

PNG_START = b"\x89PNG\r\n\x1a\n"
SMALL_CHART, LARGE_CHART = (330, 210), (350, 280)
"""Width and height of a picture among others, and of one that stands alone."""
LETTER_WIDTH = 6.4
"""About the width of a letter in units of the picture."""
POINT_SHAPES = ("circle", "square", "triangle", "diamond")
NAMED_CLASSES = 40
"""A heat map with more rows or columns is one image, without names."""
WRITTEN_CELLS = 26 * 26
"""A heat map with more cells has no numbers in them."""
MOST_MARKS = 24
"""A curve has at most so many marks, and one at its end."""
DARK_SHADE = 0.81
"""Above it white is easier to read on a light page than black, and both have a contrast of 4.5."""
WIDEST_SCALED = 400
"""A heat map that is wider keeps its size on a small screen, where it can be moved sideways."""
HEAT_COLOUR = (42, 111, 176)
"""Of an image, which is the same on a light and on a dark page."""


def escape_text(text: str) -> str:
    """Text as it may stand anywhere in a page."""
    return escape(public(text))


def format_place(value: float) -> str:
    """A place with at most one decimal."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def make_element(name: str, attributes: Mapping[str, str | float], inside: str = "") -> str:
    """One element; `inside` is markup."""
    parts = [f'{key}="{escape(v) if isinstance(v, str) else format_place(v)}"' for key, v in attributes.items()]
    return f"<{' '.join([name, *parts])}>{inside}</{name}>"


def draw_mark(name: str, attributes: Mapping[str, str | float], value: str, kind: str = "") -> str:
    """An element that says its value."""
    marked = {"class": f"m {kind}".strip(), **attributes, "role": "img", "tabindex": "-1"}
    return make_element(name, marked, f"<title>{escape_text(value)}</title>")


def draw_text(x: float, y: float, content: str, kind: str = "", turn: int | None = None) -> str:
    """Text at a place; `kind` is its class: middle or end, title, quiet, on; `turn` in degrees."""
    attributes: dict[str, str | float] = {"x": x, "y": y, "class": kind}
    if turn is not None:
        attributes["transform"] = f"rotate({turn} {format_place(x)} {format_place(y)})"
    return make_element("text", attributes, escape_text(content))


def draw_line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return make_element("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": kind})


def draw_box(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A filled rectangle without a value."""
    return make_element("rect", {"x": x, "y": y, "width": max(width, 0.0), "height": max(height, 0.0), "class": kind})


def draw_chart(width: float, height: float, label: str, body: Iterable[str], kind: str = "") -> str:
    """The whole picture; its first mark is what the tab key reaches."""
    inside = "".join(body).replace('tabindex="-1"', 'tabindex="0"', 1)
    attributes: dict[str, str | float] = {"class": f"chart {kind}".strip()}
    attributes |= {"viewBox": f"0 0 {format_place(width)} {format_place(height)}", "width": width, "height": height}
    return make_element("svg", {**attributes, "role": "group", "aria-label": public(label)}, inside)


def draw_point(series: int, x: float, y: float, size: float, value: str | None) -> str:
    """The mark of a series; without a value it is part of a key."""
    shape, kind = POINT_SHAPES[series % len(POINT_SHAPES)], f"p s{series}"
    if shape == "circle":
        name, place = "circle", dict[str, str | float](cx=x, cy=y, r=size)
    else:
        corners = {
            "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
            "triangle": ((0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
            "diamond": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
        }[shape]
        places = " ".join(f"{format_place(x + size * dx)},{format_place(y + size * dy)}" for dx, dy in corners)
        name, place = "polygon", {"points": places}
    return draw_mark(name, place, value, kind) if value is not None else make_element(name, {"class": kind, **place})


def draw_path(series: int, places: Sequence[tuple[float, float] | None]) -> str:
    """The line of a series; None breaks it."""
    steps, pen = list[str](), "M"
    for place in places:
        if place is None:
            pen = "M"
            continue
        steps.append(f"{pen}{format_place(place[0])} {format_place(place[1])}")
        pen = "L"
    return make_element("path", {"class": f"l s{series}", "d": " ".join(steps)})


def draw_key(
    names: Sequence[str], x: float, y: float, width: float, first: int = 0, filled: bool = False
) -> tuple[str, float]:
    """The names of the series from (x, y) on, in as many lines as they need, and the height of these; one without a
    name is passed over."""
    parts, left, down = list[str](), x, y
    for series, name in ((series, name) for series, name in enumerate(names, first) if name):
        wide = 24 + LETTER_WIDTH * len(shorten_name(name)) + 12
        if left > x and left + wide > width:
            left, down = x, down + 17
        parts.append(
            draw_box(left + 4, down - 9, 11, 11, f"b s{series}")
            if filled
            else draw_path(series, [(left, down - 4), (left + 19, down - 4)])
            + draw_point(series, left + 9.5, down - 4, 3.4, None)
        )
        parts.append(draw_text(left + 24, down, shorten_name(name), "quiet"))
        left += wide
    return "".join(parts), down - y + 17


LEAST_SPAN = 0.002
"""Of an axis, as a share of its values: what differs by less looks the same, and its numbers need no seventh digit."""


def choose_ticks(low: float, high: float, most: int = 5) -> list[float]:
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
        parts = [draw_line(self.left, self.down(y), self.right, self.down(y), "grid") for y in y_steps]
        for y, label in zip(y_steps, tick_labels(y_steps, share[1]), strict=True):
            parts.append(draw_text(self.left - 7, self.down(y) + 4, label, "quiet end"))
        for x, label in zip(x_steps, tick_labels(x_steps, share[0]), strict=True):
            parts.append(draw_text(self.across(x), self.bottom + 17, label, "quiet middle"))
        parts.append(draw_text((self.left + self.right) / 2, self.bottom + 34, name, "quiet middle"))
        return "".join(parts)


def pad_range(values: Sequence[float], room: float = 0.12) -> tuple[float, float]:
    """The range of these values with some room above and below."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    span, size = high - low, max(abs(low), abs(high))
    if span <= 0:
        span = max(size * 0.1, 1e-3)
    elif size >= 0.1 and span < LEAST_SPAN * size:
        low, high, span = (low + high - LEAST_SPAN * size) / 2, (low + high + LEAST_SPAN * size) / 2, LEAST_SPAN * size
    return low - room * span, high + room * span


def shorten_name(name: str, most: int = 24) -> str:
    """A name short enough for a picture."""
    shown = public(name)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


@dataclass(frozen=True)
class Series:
    """A series of points with a name; `texts` says each of them, `sizes` are their marks'."""

    name: str
    places: Sequence[tuple[float, float | None]]
    texts: Sequence[str]
    sizes: Sequence[float] = ()


@dataclass(frozen=True)
class LineChart:
    """How lines are drawn: what the axes are called, their ranges if they are set, whether they are shares."""

    label: str
    x_name: str
    title: str = ""
    x: tuple[float, float] | None = None
    y: tuple[float, float] | None = None
    shares: tuple[bool, bool] = (False, False)
    whole: bool = False
    """x are whole numbers"""
    size: tuple[float, float] = SMALL_CHART
    upright: float | None = None
    """an upright line at this x"""
    diagonal: bool = False
    named: bool = False
    """the key is there for a single line, too"""


def draw_lines(series: Sequence[Series], field: LineChart, first_series: int = 0) -> str:
    """Lines with marks over a grid; series are counted from `first_series` on."""
    width, height = field.size
    parts, top = list[str](), 14.0
    if field.title:
        parts.append(draw_text(2, top, field.title, "title"))
        top += 19
    if len(series) > 1 or field.named:
        names = [line.name if any(y is not None for _, y in line.places) else "" for line in series]
        drawn, tall = draw_key(names, 2, top, width, first_series)
        parts.append(drawn)
        top += tall
    ys = [y for line in series for _, y in line.places if y is not None and math.isfinite(y)]
    xs = [x for line in series for x, _ in line.places]
    y_range, x_range = field.y or pad_range(ys), field.x or pad_range(xs, 0.04)
    x_steps = [x for x in choose_ticks(*x_range, 6) if not field.whole or x == round(x)]
    y_steps = choose_ticks(*y_range, 4 if field.size == SMALL_CHART else 5)
    longest = max((len(label) for label in tick_labels(y_steps, field.shares[1])), default=0)
    axes = Axes(x_range, y_range, max(52, 12 + LETTER_WIDTH * longest), top, width - 10, height - 40)
    parts.append(axes.grid(x_steps, y_steps, field.shares, field.x_name))
    if field.diagonal:
        parts.append(draw_line(axes.across(0), axes.down(0), axes.across(1), axes.down(1), "even"))
    if field.upright is not None and x_range[0] <= field.upright <= x_range[1]:
        place = axes.across(field.upright)
        parts.append(draw_line(place, axes.top - 4, place, axes.bottom, "kept"))
    parts += [draw_series(line, number, axes) for number, line in enumerate(series, first_series)]
    return draw_chart(width, height, field.label, parts)


def draw_series(one: Series, series: int, axes: Axes) -> str:
    """A line with its marks, broken where it has no value."""
    places = [(axes.across(x), axes.down(y)) if y is not None and math.isfinite(y) else None for x, y in one.places]
    every = max(1, -(-len(places) // MOST_MARKS))
    shown = {*range(0, len(places), every), len(places) - 1}
    sizes = one.sizes or [3.4] * len(places)
    points = [
        draw_point(series, *place, sizes[i], one.texts[i])
        for i, place in enumerate(places)
        if place is not None and i in shown
    ]
    return make_element("g", {}, draw_path(series, places) + "".join(points))


@dataclass(frozen=True)
class BarRow:
    """One row of a bar chart: a name, what is written at its end, and parts with their texts."""

    name: str
    value: str
    parts: Sequence[tuple[int, float, str]]
    """(series, length, text)"""


def draw_bars(rows: Sequence[BarRow], label: str, names: Sequence[str]) -> str:
    """A bar for each row, below its name; `names` are those of the series."""
    width = float(LARGE_CHART[0])
    drawn, tall = draw_key(names, 2, 14, width, 1, filled=True) if len(names) > 1 else ("", 0.0)
    most = max((sum(length for _, length, _ in row.parts) for row in rows), default=0.0) or 1.0
    body, y = [drawn], tall + (22.0 if tall else 14.0)
    for row in rows:
        body += [draw_text(2, y, shorten_name(row.name, 40)), draw_text(width - 2, y, row.value, "end quiet")]
        x, pieces = 2.0, list[str]()
        for series, length, text in row.parts:
            wide = (width - 4) * length / most
            place = {"x": x, "y": y + 5, "width": max(wide, 1.0), "height": 9}
            pieces.append(draw_mark("rect", place, text, f"b s{series}"))
            x += wide
        body.append(make_element("g", {}, "".join(pieces)))
        y += 36
    return draw_chart(width, y - 14, label, body)


@dataclass(frozen=True)
class HeatMap:
    """Rows and columns of shares; `values` are written into the cells, `texts` says them."""

    label: str
    down: Sequence[str]
    across: Sequence[str]
    shares: Sequence[Sequence[float]]
    values: Sequence[Sequence[str]]
    texts: Sequence[Sequence[str]]
    names: tuple[str, str]
    """what rows and columns are"""
    least: float = 1e-9
    """the darkest shade stands for the largest share, or for this if it is larger"""
    marked: frozenset[tuple[int, int]] | None = None
    """with many rows the cells that have a mark"""


def draw_heat_map(heat: HeatMap) -> str:
    """A shade for each cell with its value in it."""
    rows, columns = len(heat.down), len(heat.across)
    top = max(max((value for row in heat.shares for value in row), default=0.0), heat.least)
    if max(rows, columns) > NAMED_CLASSES:
        return draw_heat_image(heat, top)
    down, across = ([shorten_name(name, 16) for name in names] for names in (heat.down, heat.across))
    turned = max(map(len, heat.across), default=0) > 5
    left = 14 + LETTER_WIDTH * max(map(len, down), default=0)
    wide, tall, above = max(28.0, min(56.0, (LARGE_CHART[0] - left - 10) / columns)), 27.0, 20.0
    below = above + rows * tall
    lean = (LETTER_WIDTH * max(map(len, across)) * 0.71 + 14) if turned else 18.0
    width, height = left + columns * wide + (14 if turned else 10), below + lean + 20
    body = [draw_text(0, 13, heat.names[0], "quiet")] if heat.names[0] else []
    for i, name in enumerate(down):
        y, cells, numbers = above + i * tall, list[str](), list[str]()
        for j, (share, value) in enumerate(zip(heat.shares[i], heat.values[i], strict=True)):
            part = shade(share, top)
            place = {"x": left + j * wide + 0.5, "y": y + 0.5, "width": wide - 1, "height": tall - 1}
            cells.append(draw_mark("rect", {**place, "fill-opacity": f"{part:.3f}"}, heat.texts[i][j], "h"))
            if value and rows * columns <= WRITTEN_CELLS:
                kind = "cell middle on" if part > DARK_SHADE else "cell middle"
                numbers.append(draw_text(left + (j + 0.5) * wide, y + tall / 2 + 4, value, kind))
        body += [draw_text(left - 8, y + tall / 2 + 4, name, "end"), make_element("g", {}, "".join(cells)), *numbers]
    for j, name in enumerate(across):
        x, turn = left + (j + 0.5) * wide, -45 if turned else 0
        body.append(draw_text(x + 4 * turned, below + 15, name, "end" if turned else "middle", turn))
    body.append(draw_text(left + columns * wide / 2, height - 4, heat.names[1], "quiet middle"))
    return draw_chart(width, height, heat.label, body, "heat fits" if width <= WIDEST_SCALED else "heat")


def shade(share: float, top: float) -> float:
    """How much of the colour a cell has; an empty one has a trace of it."""
    return 0.04 + 0.96 * min(share / top, 1.0)


def draw_heat_image(heat: HeatMap, top: float) -> str:
    """A heat map of many cells as one image; only some cells have marks."""
    side, rows, columns = 360.0, len(heat.down), len(heat.across)
    wide, tall = side / columns, side / rows
    place: dict[str, str | float] = {"x": 10, "y": 20, "width": side, "height": side, "preserveAspectRatio": "none"}
    size = {"width": wide, "height": tall}
    marks = [
        draw_mark("rect", {"x": 10 + j * wide, "y": 20 + i * tall, **size}, heat.texts[i][j], "hit")
        for i, j in sorted(heat.marked or ())
    ]
    body = [
        make_element("image", {"href": encode_heat_image(heat.shares, top), **place}),
        make_element("g", {}, "".join(marks)),
        draw_text(10, 13, heat.names[0], "quiet"),
        draw_text(10 + side / 2, side + 38, heat.names[1], "quiet middle"),
    ]
    return draw_chart(side + 20, side + 46, heat.label, body, "heat")


def encode_heat_image(shares: Sequence[Sequence[float]], top: float) -> str:
    """A heat map as a data: image, a pixel for each cell; the larger the share the less it lets through."""
    opacity = [[round(255 * min(max(value / top, 0.0), 1.0)) for value in row] for row in shares]
    lines = b"".join(b"\0" + b"".join(bytes((*HEAT_COLOUR, value)) for value in row) for row in opacity)
    header = struct.pack(">IIBBBBB", len(shares[0]), len(shares), 8, 6, 0, 0, 0)
    chunks = (b"IHDR" + header, b"IDAT" + zlib.compress(lines, 9), b"IEND")
    packed = (struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)
    return "data:image/png;base64," + base64.b64encode(PNG_START + b"".join(packed)).decode()
