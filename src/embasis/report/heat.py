"""Heat maps: a shade for each cell with its value in it, or one image where there are many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embasis.report.drawing import (
    LARGE,
    LETTER,
    NAMED_CLASSES,
    WRITTEN_CELLS,
    chart,
    cut,
    element,
    image,
    mark,
    text,
)

DARK_SHADE = 0.81
"""Above it white is easier to read on a light page than black, and both have a contrast of 4.5."""
FITS = 400
"""A heat map that is wider keeps its size on a small screen, where it can be moved sideways."""


@dataclass(frozen=True)
class Heat:
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


def heat(found: Heat) -> str:
    """A shade for each cell with its value in it."""
    rows, columns = len(found.down), len(found.across)
    top = max(max((value for row in found.shares for value in row), default=0.0), found.least)
    if max(rows, columns) > NAMED_CLASSES:
        return _many(found, top)
    turned = max(map(len, found.across), default=0) > 5
    left = 14 + LETTER * max((len(cut(name, 16)) for name in found.down), default=0)
    wide = max(28.0, min(56.0, (LARGE[0] - left - 10) / columns))
    above, tall = 20.0, 27.0
    below = above + rows * tall
    lean = (LETTER * max(len(cut(name, 16)) for name in found.across) * 0.71 + 14) if turned else 18.0
    width, height = left + columns * wide + (10 if not turned else 14), below + lean + 20
    body = [text(0, 13, found.names[0], "quiet")] if found.names[0] else []
    numbers = rows * columns <= WRITTEN_CELLS
    for i, name in enumerate(found.down):
        y = above + i * tall
        body.append(text(left - 8, y + tall / 2 + 4, cut(name, 16), "end"))
        cells = [_cell(found, i, j, (left + j * wide, y, wide, tall), top) for j in range(columns)]
        body.append(element("g", {}, "".join(cells)))
        for j in range(columns):
            if numbers and found.values[i][j]:
                strong = "on" if shade(found.shares[i][j], top) > DARK_SHADE else ""
                place = (left + (j + 0.5) * wide, y + tall / 2 + 4)
                body.append(text(*place, found.values[i][j], f"cell middle {strong}".strip()))
    for j, name in enumerate(found.across):
        x, turn = left + (j + 0.5) * wide, -45 if turned else 0
        body.append(text(x + 4 * turned, below + 15, cut(name, 16), "end" if turned else "middle", turn))
    body.append(text(left + columns * wide / 2, height - 4, found.names[1], "quiet middle"))
    return chart(width, height, found.label, body, "heat fits" if width <= FITS else "heat")


def _cell(found: Heat, i: int, j: int, place: tuple[float, float, float, float], top: float) -> str:
    x, y, width, height = place
    size = {"x": x + 0.5, "y": y + 0.5, "width": width - 1, "height": height - 1}
    opacity = f"{shade(found.shares[i][j], top):.3f}"
    return mark("rect", {**size, "fill-opacity": opacity}, found.texts[i][j], "h")


def shade(share: float, top: float) -> float:
    """How much of the colour a cell has; an empty one has a trace of it."""
    return 0.04 + 0.96 * min(share / top, 1.0)


def _many(found: Heat, top: float) -> str:
    """The same as one image; only some cells have marks."""
    rows, columns = len(found.down), len(found.across)
    side = 360.0
    wide, tall = side / columns, side / rows
    body = [
        element(
            "image",
            {
                "href": image(found.shares, top),
                "x": 10,
                "y": 20,
                "width": side,
                "height": side,
                "preserveAspectRatio": "none",
            },
        )
    ]
    marks = [
        mark("rect", {"x": 10 + j * wide, "y": 20 + i * tall, "width": wide, "height": tall}, found.texts[i][j], "hit")
        for i, j in sorted(found.marked or ())
    ]
    body += [element("g", {}, "".join(marks)), text(10, 13, found.names[0], "quiet")]
    body.append(text(10 + side / 2, side + 38, found.names[1], "quiet middle"))
    return chart(side + 20, side + 46, found.label, body, "heat")
