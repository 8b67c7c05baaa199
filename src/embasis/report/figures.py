"""The figures of a page: the same bytes for the same values, no clock.

What needs true labels takes an Evaluation, so it is drawn only where a record has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embasis.report.drawing import (
    LARGE,
    SMALL,
    Axes,
    box,
    chart,
    cut,
    element,
    finite,
    key,
    line,
    mark,
    path,
    point,
    steps,
    text,
    wide_enough,
)
from embasis.report.scores import IOU, PLUS_MINUS, Summary, best_of, headline
from embasis.report.tables import number as written

MARKS = 24
"""A curve has at most so many marks, and one at its end."""


@dataclass(frozen=True)
class Line:
    """A series of points with a name; `texts` says each of them, `sizes` are their marks'."""

    name: str
    places: Sequence[tuple[float, float | None]]
    texts: Sequence[str]
    sizes: Sequence[float] = ()


@dataclass(frozen=True)
class Field:
    """How lines are drawn: what the axes are called, their ranges if they are set, whether they are shares."""

    label: str
    x_name: str
    title: str = ""
    x: tuple[float, float] | None = None
    y: tuple[float, float] | None = None
    shares: tuple[bool, bool] = (False, False)
    whole: bool = False
    """x are whole numbers"""
    size: tuple[float, float] = SMALL
    upright: float | None = None
    """an upright line at this x"""
    diagonal: bool = False


def lines(found: Sequence[Line], field: Field, first_series: int = 0) -> str:
    """Lines with marks over a grid; series are counted from `first_series` on."""
    width, height = field.size
    parts, top = list[str](), 14.0
    if field.title:
        parts.append(text(2, top, field.title, "title"))
        top += 19
    if len(found) > 1:
        drawn, tall = key([one.name for one in found], 2, top, width, first_series)
        parts.append(drawn)
        top += tall
    ys = [y for one in found for _, y in one.places if y is not None and finite(y)]
    xs = [x for one in found for x, _ in one.places]
    y_range, x_range = field.y or wide_enough(ys), field.x or wide_enough(xs, 0.04)
    axes = Axes(x_range, y_range, 52, top, width - 10, height - 40)
    x_steps = [x for x in steps(*x_range, 6) if not field.whole or x == round(x)]
    y_steps = steps(*y_range, 4 if field.size == SMALL else 5)
    parts.append(axes.grid(x_steps, y_steps, field.shares, field.x_name))
    if field.diagonal:
        parts.append(line(axes.across(0), axes.down(0), axes.across(1), axes.down(1), "even"))
    if field.upright is not None and x_range[0] <= field.upright <= x_range[1]:
        place = axes.across(field.upright)
        parts.append(line(place, axes.top - 4, place, axes.bottom, "kept"))
    for series, one in enumerate(found, first_series):
        parts.append(_drawn(one, series, axes))
    return chart(width, height, field.label, parts)


def _drawn(one: Line, series: int, axes: Axes) -> str:
    places = [(axes.across(x), axes.down(y)) if y is not None and finite(y) else None for x, y in one.places]
    every = max(1, -(-len(places) // MARKS))
    shown = {*range(0, len(places), every), len(places) - 1}
    sizes = one.sizes or [3.4] * len(places)
    points = [
        point(series, *place, sizes[i], one.texts[i])
        for i, place in enumerate(places)
        if place is not None and i in shown
    ]
    return element("g", {}, path(series, places) + "".join(points))


@dataclass(frozen=True)
class Bars:
    """Two counts in each bin; `texts` says a bin."""

    title: str
    x_name: str
    edges: Sequence[float]
    counts: Sequence[tuple[int, int]]
    texts: Sequence[str]
    names: tuple[str, str]
    label: str


def stacked(bars: Bars) -> str:
    """A histogram whose bars are parted in two."""
    width, height = LARGE[0], 240.0
    drawn, tall = key(bars.names, 2, 33, width, 1, filled=True)
    most = max((sum(pair) for pair in bars.counts), default=0) or 1
    low, high = bars.edges[0], bars.edges[-1]
    axes = Axes((low, high), (0, most * 1.05), 52, 33 + tall, width - 10, height - 40)
    y_steps = [y for y in steps(0, most * 1.05, 4) if y == round(y)]
    parts = [
        text(2, 14, bars.title, "title"),
        drawn,
        axes.grid(steps(low, high, 5), y_steps, (False, False), bars.x_name),
    ]
    hits = list[str]()
    for (a, b), said, left, right in zip(bars.counts, bars.texts, bars.edges[:-1], bars.edges[1:], strict=True):
        x, wide = axes.across(left), axes.across(right) - axes.across(left)
        if not a + b:
            continue
        first, second = axes.down(a), axes.down(a + b)
        parts.append(box(x + 0.7, first, wide - 1.4, axes.bottom - first, "b s1") if a else "")
        parts.append(box(x + 0.7, second, wide - 1.4, first - second, "b s2") if b else "")
        place = {"x": x, "y": axes.top, "width": wide, "height": axes.bottom - axes.top}
        hits.append(mark("rect", place, said, "hit"))
    return chart(width, height, bars.label, [*parts, element("g", {}, "".join(hits))], "bars")


@dataclass(frozen=True)
class Strip:
    """One row of a bar chart: a name, what is written at its end, and parts with their texts."""

    name: str
    value: str
    parts: Sequence[tuple[int, float, str]]
    """(series, length, text)"""


def strips(found: Sequence[Strip], label: str, names: Sequence[str]) -> str:
    """A bar for each row, below its name; `names` are those of the series."""
    width = float(LARGE[0])
    drawn, tall = key(names, 2, 14, width, 1, filled=True) if len(names) > 1 else ("", 0.0)
    most = max((sum(length for _, length, _ in row.parts) for row in found), default=0.0) or 1.0
    body, y = [drawn], tall + (22.0 if tall else 14.0)
    for row in found:
        body += [text(2, y, cut(row.name, 40)), text(width - 2, y, row.value, "end quiet")]
        x, pieces = 2.0, list[str]()
        for series, length, said in row.parts:
            wide = (width - 4) * length / most
            pieces.append(
                mark("rect", {"x": x, "y": y + 5, "width": max(wide, 1.0), "height": 9}, said, f"b s{series}")
            )
            x += wide
        body.append(element("g", {}, "".join(pieces)))
        y += 36
    return chart(width, y - 14, label, body)


def comparison(group: Sequence[Summary], label: str) -> str:
    """Mean accuracy (of label maps, mean IoU) of each method on one data set with its deviation."""
    best, measure, width = best_of(group), headline(group), float(LARGE[0])
    stats = [summary.stats[measure] for summary in group]
    ends = [stat.mean + side * (stat.std or 0.0) for stat in stats if stat.mean is not None for side in (-1, 1)]
    low, high = wide_enough(ends, 0.06)
    axes = Axes((low, high), (0, 1), 8, 26, width - 8, 26 + 36.0 * len(group))
    body = [
        text(2, 14, cut(group[0].dataset, 44), "title"),
        axes.grid(steps(low, high, 5), [], (False, False), "mean IoU" if measure in IOU else "accuracy"),
    ]
    for row, (summary, stat) in enumerate(zip(group, stats, strict=True)):
        y, first = 38 + 36.0 * row, (summary.dataset, summary.method) in best
        body.append(text(2, y, cut(summary.method, 40), "strong" if first else ""))
        body.append(line(8, y + 10, width - 8, y + 10, "grid"))
        if stat.mean is None:
            continue
        spread = "" if stat.std is None else f" {PLUS_MINUS} {written('accuracy', stat.std)}"
        told = written("accuracy", stat.mean) + spread
        body.append(text(width - 2, y, told, "end strong" if first else "end quiet"))
        series, reach = (1, stat.std or 0.0) if first else (0, stat.std or 0.0)
        body.append(
            line(axes.across(stat.mean - reach), y + 10, axes.across(stat.mean + reach), y + 10, f"l s{series}")
        )
        body.append(element("g", {}, point(series, axes.across(stat.mean), y + 10, 5, f"{summary.method}: {told}")))
    return chart(width, axes.bottom + 42, label, body, "dots")
