"""How every figure looks: colours, fonts, and the two canvases (axes and heat map) that the figures draw on.

Figures are drawn for a light page on a transparent ground; `dark` gives the same picture for a dark page.
Colours are told apart by colour-blind readers too (Okabe and Ito), and lines also differ in their markers.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

INK, QUIET, GRID = "#1f2328", "#656d76", "#d8dee4"
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
HEAT, ON_HEAT = "#0b66a5", "#fffffe"
DARK = {
    INK: "#e6edf3",
    QUIET: "#9198a1",
    GRID: "#30363d",
    BLUE: "#56b4e9",
    ORANGE: "#f0883e",
    GREEN: "#3fc79a",
    HEAT: "#2b7fc4",
}
SERIES = ((QUIET, "o", (0, (4, 2))), (BLUE, "s", "-"), (ORANGE, "^", (0, (1, 1.2))))
LINES = ((BLUE, "o", "-"), (ORANGE, "s", (0, (4, 2))), (GREEN, "^", (0, (1, 1.2))))
NAMED_CLASSES = 40
"""More classes than this are drawn without their names."""
_STYLE: dict[str, Any] = {
    "svg.hashsalt": "embasis",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",  # ships with matplotlib: the layout is the same on every machine
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": QUIET,
    "axes.titlecolor": INK,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
}
_FONTS = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


def dark(svg: str) -> str:
    """The same picture in the colours of a dark page."""
    return re.sub(r"(fill|stroke): (#[0-9a-f]{6})", lambda m: f"{m[1]}: {DARK.get(m[2], m[2])}", svg)


def canvas(
    size: tuple[float, float],
    grid: tuple[int, int],
    draw: Callable[[Any], None],
    heights: Sequence[float] | None = None,
) -> str:
    """Run `draw` on a grid (down, across) of axes and return the SVG."""
    import matplotlib.style
    from matplotlib.figure import Figure

    out = io.StringIO()
    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the reader's fonts have what DejaVu lacks
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots(*grid, squeeze=False, height_ratios=heights))
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return out.getvalue().replace("'DejaVu Sans'", _FONTS)


def tall(rows: int) -> float:
    """The height in inches of a heat map with so many rows."""
    return 6.5 if rows > NAMED_CLASSES else max(2.4, 1.2 + 0.3 * rows)


def margin(names: Sequence[str]) -> float:
    """The inches that the longest name takes on an axis; none where names are left off."""
    return 0.0 if len(names) > NAMED_CLASSES else 0.1 * max((len(cut(name)) for name in names), default=0)


def heat(
    ax: Any,
    shares: Any,
    across: list[str],
    down: list[str],
    xlabel: str,
    ylabel: str,
    form: str,
    values: Any,
    least: float = 1e-9,
) -> None:
    """Shade each cell by its share and write its value into it; names are left off when there are too many.

    The darkest shade stands for the largest share, or for `least` if that is larger.
    """
    from matplotlib.colors import ListedColormap, to_rgb

    ramp = ListedColormap([(*to_rgb(HEAT), alpha) for alpha in np.linspace(0.03, 1, 64)])
    many = max(shares.shape) > NAMED_CLASSES
    top = max(float(shares.max(initial=0)), least)
    ax.pcolormesh(shares, cmap=ramp, vmin=0, vmax=top, rasterized=many, linewidth=0, antialiased=False)
    ax.invert_yaxis()
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    for names, axis, ticks in ((across, ax.xaxis, ax.set_xticks), (down, ax.yaxis, ax.set_yticks)):
        if len(names) <= NAMED_CLASSES:
            long = axis is ax.xaxis and sum(map(len, names)) > 6 * len(names)
            turn = {"rotation": 45, "ha": "right"} if long else {}
            ticks(np.arange(len(names)) + 0.5, [cut(n) for n in names], **turn)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if shares.size <= 26 * 26 and not many:
        for (i, j), share in np.ndenumerate(shares):
            if values[i, j]:
                colour = ON_HEAT if share > 0.7 * top else INK
                look = {"ha": "center", "va": "center", "color": colour, "fontsize": 7.5}
                ax.text(j + 0.5, i + 0.5, form.format(values[i, j]), **look)


def cut(name: str, most: int = 24) -> str:
    """A name short enough for an axis."""
    return name if len(name) <= most else name[: most - 1] + "…"
