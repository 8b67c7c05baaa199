"""The figures of a run, each with its title, a caption, a sentence for those who cannot see it, and its numbers.

The same values give the same bytes. What needs true labels takes an Evaluation, so it is drawn only where a record has
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from embasis.report.class_charts import balance_panel, confusion_panel
from embasis.report.run_view import RunView
from embasis.report.summary import Panel, format_decimals, format_number, format_share, numbers_table, truth_unit
from embasis.report.svg import (
    LARGE_CHART,
    SMALL_CHART,
    Axes,
    choose_ticks,
    draw_box,
    draw_chart,
    draw_key,
    draw_line,
    draw_mark,
    draw_path,
    draw_point,
    draw_text,
    is_drawable,
    make_element,
    pad_range,
)

if TYPE_CHECKING:
    from embasis.types import Evaluation, RoundRecord

MOST_MARKS = 24
"""A curve has at most so many marks, and one at its end."""


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


def draw_lines(series: Sequence[Series], field: LineChart, first_series: int = 0) -> str:
    """Lines with marks over a grid; series are counted from `first_series` on."""
    width, height = field.size
    parts, top = list[str](), 14.0
    if field.title:
        parts.append(draw_text(2, top, field.title, "title"))
        top += 19
    if len(series) > 1:
        drawn, tall = draw_key([line.name for line in series], 2, top, width, first_series)
        parts.append(drawn)
        top += tall
    ys = [y for line in series for _, y in line.places if y is not None and is_drawable(y)]
    xs = [x for line in series for x, _ in line.places]
    y_range, x_range = field.y or pad_range(ys), field.x or pad_range(xs, 0.04)
    axes = Axes(x_range, y_range, 52, top, width - 10, height - 40)
    x_steps = [x for x in choose_ticks(*x_range, 6) if not field.whole or x == round(x)]
    y_steps = choose_ticks(*y_range, 4 if field.size == SMALL_CHART else 5)
    parts.append(axes.grid(x_steps, y_steps, field.shares, field.x_name))
    if field.diagonal:
        parts.append(draw_line(axes.across(0), axes.down(0), axes.across(1), axes.down(1), "even"))
    if field.upright is not None and x_range[0] <= field.upright <= x_range[1]:
        place = axes.across(field.upright)
        parts.append(draw_line(place, axes.top - 4, place, axes.bottom, "kept"))
    for number, line in enumerate(series, first_series):
        parts.append(_draw_series(line, number, axes))
    return draw_chart(width, height, field.label, parts)


def _draw_series(one: Series, series: int, axes: Axes) -> str:
    places = [(axes.across(x), axes.down(y)) if y is not None and is_drawable(y) else None for x, y in one.places]
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
class Histogram:
    """Two counts in each bin; `texts` says a bin."""

    title: str
    x_name: str
    edges: Sequence[float]
    counts: Sequence[tuple[int, int]]
    texts: Sequence[str]
    names: tuple[str, str]
    label: str


def draw_histogram(bars: Histogram) -> str:
    """A histogram whose bars are parted in two."""
    width, height = LARGE_CHART[0], 240.0
    drawn, tall = draw_key(bars.names, 2, 33, width, 1, filled=True)
    most = max((sum(pair) for pair in bars.counts), default=0) or 1
    low, high = bars.edges[0], bars.edges[-1]
    axes = Axes((low, high), (0, most * 1.05), 52, 33 + tall, width - 10, height - 40)
    y_steps = [y for y in choose_ticks(0, most * 1.05, 4) if y == round(y)]
    parts = [
        draw_text(2, 14, bars.title, "title"),
        drawn,
        axes.grid(choose_ticks(low, high, 5), y_steps, (False, False), bars.x_name),
    ]
    hits = list[str]()
    for (a, b), text, left, right in zip(bars.counts, bars.texts, bars.edges[:-1], bars.edges[1:], strict=True):
        x, wide = axes.across(left), axes.across(right) - axes.across(left)
        if not a + b:
            continue
        first, second = axes.down(a), axes.down(a + b)
        parts.append(draw_box(x + 0.7, first, wide - 1.4, axes.bottom - first, "b s1") if a else "")
        parts.append(draw_box(x + 0.7, second, wide - 1.4, first - second, "b s2") if b else "")
        place = {"x": x, "y": axes.top, "width": wide, "height": axes.bottom - axes.top}
        hits.append(draw_mark("rect", place, text, "hit"))
    return draw_chart(width, height, bars.label, [*parts, make_element("g", {}, "".join(hits))], "bars")


TRUSTED_SIDES = ("trusted", "not trusted")
RIGHT_SIDES = ("right", "wrong")


def run_panels(view: RunView) -> list[Panel]:
    """The figures of a run; those that need true labels only where there are some."""
    panels = [progress_panel(view)] if view.rounds else []
    curves = evaluated_rounds(view)
    if curves:
        panels += [reliability_panel(curves, truth_unit(view)), risk_coverage_panel(curves)]
    if (panel := uncertainty_panel(view)) is not None:
        panels.append(panel)
    if view.rounds and view.classes:
        panels.append(balance_panel(view))
    if curves:
        panels.append(confusion_panel(view))
    return panels


def evaluated_rounds(view: RunView) -> list[tuple[str, Evaluation]]:
    """The first, the last and the kept round, as far as they are different and have true labels."""
    evaluated = [record for record in view.rounds if record.evaluation is not None and record.evaluation.rows > 0]
    if not evaluated:
        return []
    chosen: dict[int, RoundRecord] = {record.round: record for record in (evaluated[0], evaluated[-1])}
    if view.kept is not None and view.kept in evaluated:
        chosen[view.kept.round] = view.kept
    kept = view.best_round
    names = {number: f"round {number}" + (" (kept)" if number == kept else "") for number in chosen}
    return [(names[number], record.evaluation) for number, record in chosen.items() if record.evaluation is not None]


def round_series(rounds: Sequence[RoundRecord]) -> list[tuple[str, dict[str, list[float | None]]]]:
    """What `progress` draws: titles with their lines, one value per round."""

    def column(value: Callable[[Evaluation], float | None], side: str) -> list[float | None]:
        return [None if (evaluation := getattr(r, side)) is None else value(evaluation) for r in rounds]

    accuracy = {
        "labels": column(lambda e: e.accuracy, "evaluation"),
        "network": column(lambda e: e.network_accuracy, "evaluation"),
        "test set": column(lambda e: e.accuracy, "test"),
        "expected": [r.facts.get("expected_accuracy") for r in rounds],
    }
    trust: dict[str, list[float | None]] = {
        "trusted": [r.trusted / r.unlabelled if r.unlabelled else None for r in rounds],
        "right among them": column(lambda e: e.trusted_precision, "evaluation"),
    }
    overlap = {"labels": column(lambda e: e.mean_iou, "evaluation"), "test set": column(lambda e: e.mean_iou, "test")}
    of_maps = any(value is not None for values in overlap.values() for value in values)
    tracks: list[tuple[str, dict[str, list[float | None]]]] = [
        ("Mean IoU", overlap),
        ("Pixel accuracy" if of_maps else "Accuracy", accuracy),
        ("Trusted share", trust),
        ("Changed labels", {"changed": [r.changed for r in rounds]}),
    ]
    for name in dict.fromkeys(key for r in rounds for key in r.scores):
        tracks.append((f"Label-free: {name.replace('_', ' ')}", {name: [r.scores.get(name) for r in rounds]}))
    kept = [(title, {k: v for k, v in part.items() if any(x is not None for x in v)}) for title, part in tracks]
    return [(title, part) for title, part in kept if part]


def progress_panel(view: RunView, title: str = "Round by round") -> Panel:
    """A small picture for each measure, over the rounds."""
    tracks, numbers = round_series(view.rounds), [record.round for record in view.rounds]
    names = [name if len(part) == 1 else f"{track}: {name}" for track, part in tracks for name in part]
    columns = [values for _, part in tracks for values in part.values()]
    rows = [[str(number), *(format_number(values[i]) for values in columns)] for i, number in enumerate(numbers)]
    text = "Label-free scores: higher is better."
    text += " The dotted upright line is the round kept, chosen without true labels." if view.kept else ""
    measures, them = ("Mean IoU and accuracy are", "them") if view.on_maps else ("Accuracy is", "it")
    truth = any(record.evaluation for record in view.rounds)
    text += f" {measures} for your eyes only: no choice is made with {them}." if truth else ""
    pictures = [draw_round_series(track, part, numbers, view) for track, part in tracks]
    return Panel(title, pictures, text, numbers_table(["round", *names], rows, title), wide=True)


def draw_round_series(title: str, part: dict[str, list[float | None]], numbers: Sequence[int], view: RunView) -> str:
    """One measure over the rounds."""
    drawn, ends = list[Series](), list[str]()
    for name, values in part.items():
        places, full = list(zip(numbers, values, strict=True)), title if len(part) == 1 else f"{title}, {name}"
        drawn.append(Series(name, places, [f"{full}, round {n}: {format_number(value)}" for n, value in places]))
        ends.append(f"{name} from {format_number(values[0])} to {format_number(values[-1])}")
    label = f"{title} from round {numbers[0]} to round {numbers[-1]}: {'; '.join(ends)}."
    x_range = (numbers[0] - 0.3, numbers[-1] + 0.3)
    field = LineChart(label, "round", title, x=x_range, whole=True, upright=view.best_round)
    return draw_lines(drawn, field, first_series=1)


def reliability_points(evaluation: Evaluation) -> list[tuple[int, float, float]]:
    """(rows, mean confidence, share right) of each bin that has rows."""
    return [(round(n), c / n, right / n) for n, c, right in evaluation.reliability if n > 0]


def reliability_panel(curves: Sequence[tuple[str, Evaluation]], unit: str = "rows") -> Panel:
    """Stated against true confidence."""
    points_by_round = {name: reliability_points(evaluation) for name, evaluation in curves}
    rows = [
        [name, f"{n:,}", format_decimals(c), format_decimals(right)]
        for name, points in points_by_round.items()
        for n, c, right in points
    ]
    errors = "; ".join(f"{name} has a calibration error of {format_decimals(e.ece)}" for name, e in curves)
    text = (
        "Does a label that says 90% hold in 90% of cases? On the diagonal it does; below it the labels are too sure. "
        f"A larger mark stands for more {unit}. "
        + "; ".join(f"{name}: ECE {format_decimals(e.ece)}" for name, e in curves)
        + "."
    )
    drawn = [
        Series(
            name,
            [(stated, right) for _, stated, right in points],
            [
                f"{name}: {n:,} {unit} say {format_decimals(stated)}, {format_decimals(right)} are right"
                for n, stated, right in points
            ],
            [2.5 + 7 * (n / max(sum(m for m, _, _ in points), 1)) ** 0.5 for n, _, _ in points],
        )
        for name, points in points_by_round.items()
    ]
    label = f"Reliability diagram: share right against stated confidence. {errors}."
    unit_range, x_name = (0, 1.02), "stated confidence"
    field = LineChart(label, x_name, "Share right", unit_range, unit_range, size=LARGE_CHART, diagonal=True)
    title = "Can its confidence be believed?"
    table = numbers_table(["round", unit, "stated confidence", "share right"], rows, title)
    return Panel(title, [draw_lines(drawn, field)], text, table)


def risk_coverage_panel(curves: Sequence[tuple[str, Evaluation]]) -> Panel:
    """Errors among the surest."""
    rows, facts, ends, drawn = list[list[str]](), list[str](), list[str](), list[Series]()
    for name, e in curves:
        points = e.risk_coverage
        step = max(1, -(-len(points) // 12))
        few = (*points[:-1:step], *points[-1:])
        rows += [[name, format_decimals(share), format_decimals(risk)] for share, risk in few]
        ends.append(f"{name}: {_error_share(e, 0.5)} in the surest half, {_error_share(e, 1.0)} in all")
        texts = [f"{name}: of the surest {share:.0%}, {risk:.1%} are wrong" for share, risk in points]
        drawn.append(Series(name, points, texts))
        kept = [f"{p:.0%} are right among the surest {format_share(c, 1)}" for p, c in e.coverage if c is not None]
        kept += [f"{p:.0%} are right in no part" for p, c in e.coverage if c is None]
        area = [f"area {format_decimals(e.aurc)}"] if e.aurc is not None else []
        facts += [f"{name}: {', '.join([*area, *kept])}."] if area or kept else []
    text = "Errors among the labels kept when the least sure are dropped first. Low at the left: the uncertainty works."
    label = f"Risk–coverage curves, share of errors. {'; '.join(ends)}."
    top = max((risk for _, e in curves for _, risk in e.risk_coverage), default=0.1) * 1.1 or 0.1
    x_name = "share of labels kept, surest first"
    field = LineChart(label, x_name, "Errors among them", (0, 1.02), (0, top), (True, True), size=LARGE_CHART)
    title = "Does the uncertainty find the errors?"
    table = numbers_table(["round", "share kept", "errors among them"], rows, title)
    return Panel(title, [draw_lines(drawn, field)], " ".join([text, *facts]), table)


def _error_share(evaluation: Evaluation, share: float) -> str:
    points = evaluation.risk_coverage
    return format_decimals(min(points, key=lambda point: abs(point[0] - share))[1] if points else None)


def count_histograms(labels: dict[str, list[Any]]) -> list[tuple[str, list[float], list[tuple[int, int]]]]:
    """(title, bin edges, (trusted, not trusted) of each bin) of probability and variance."""
    trusted = np.asarray(labels["trusted"], dtype=bool)
    variance = np.asarray(labels["between"], dtype=float) + np.asarray(labels["within"], dtype=float)
    histograms = []
    for title, values in (("probability", np.asarray(labels["probability"], float)), ("variance", variance)):
        fine = np.isfinite(values)
        low, high = (values[fine].min(), values[fine].max()) if fine.any() else (0.0, 1.0)
        edges = np.linspace(low, high if high > low else low + 1e-3, 21)
        yes, no = (np.histogram(values[fine & side], edges)[0].tolist() for side in (trusted, ~trusted))
        histograms.append((title, edges.tolist(), list(zip(yes, no, strict=True))))
    return histograms


def uncertainty_panel(view: RunView) -> Panel | None:
    """Probability and variance of trusted and other labels, uncertainty of right and wrong ones."""
    labels, histograms = view.labels or {}, list[tuple[str, list[float], list[tuple[int, int]], tuple[str, str]]]()
    if labels.get("trusted") and all(name in labels for name in ("probability", "between", "within")):
        assert view.labels is not None
        histograms += [(name, edges, counts, TRUSTED_SIDES) for name, edges, counts in count_histograms(view.labels)]
    curves = evaluated_rounds(view)
    judged_round, last = curves[-1] if curves else ("", None)
    if last is not None and last.spread:
        edges = [0.0, *(edge for edge, _, _ in last.spread)]
        histograms.append(("uncertainty", edges, [(right, wrong) for _, right, wrong in last.spread], RIGHT_SIDES))
    if not histograms:
        return None
    rows = [
        [f"{name}, {sides[0]} or {sides[1]}", f"{low:.3g} – {high:.3g}", f"{a:,}", f"{b:,}"]
        for name, edges, counts, sides in histograms
        for low, high, (a, b) in zip(edges[:-1], edges[1:], counts, strict=True)
        if a + b
    ]
    pictures = [_draw_label_histogram(name, edges, counts, sides) for name, edges, counts, sides in histograms]
    text = (
        "Labels of the last round. Variance is the sum of its two parts, between and within components."
        if labels
        else ""
    )
    if last is not None and last.spread:
        text += f" Right and wrong labels are those of {judged_round}: wrong ones should stand further right."
    title = "How sure are the labels?"
    header = ["value", "from – to", "trusted or right", "not trusted or wrong"]
    return Panel(title, pictures, text.strip(), numbers_table(header, rows, title), wide=True)


def _draw_label_histogram(name: str, edges: list[float], counts: list[tuple[int, int]], sides: tuple[str, str]) -> str:
    total, first = sum(a + b for a, b in counts), sum(a for a, _ in counts)
    texts = [
        f"{name} {low:.3g} to {high:.3g}: {a:,} {sides[0]}, {b:,} {sides[1]}"
        for low, high, (a, b) in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    label = f"Histogram of the {name} of {total:,} labels, {first:,} of them {sides[0]}."
    title = f"{name[:1].upper()}{name[1:]} of {sides[0]} and {sides[1] if sides is RIGHT_SIDES else 'other'} labels"
    unit = {"probability": "probability of the label"}.get(name, name)
    return draw_histogram(Histogram(title, unit, edges, counts, texts, sides, label))
