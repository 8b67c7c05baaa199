"""The figures of a run, each with its title, a caption, a sentence for those who cannot see it, and its numbers.

The same values give the same bytes. What needs true labels takes an Evaluation, so it is drawn only where a record has
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from embasis.report import Component, RunView, svg
from embasis.report.summary import (
    Panel,
    format_decimals,
    format_number,
    format_seconds,
    format_share,
    make_panel,
    truth_unit,
)
from embasis.report.svg import BarRow, HeatMap, LineChart, Series, draw_bars, draw_heat_map, draw_lines

if TYPE_CHECKING:
    from embasis.types import Evaluation, RoundRecord

Curves = Sequence[tuple[str, "Evaluation"]]
"""Rounds that are held against each other, by name."""
Measures = dict[str, list[float | None]]
"""By name, a value for each round."""

MOST_MARKED_CELLS = 60
"""A picture of many classes has a mark on so many cells."""
MOST_TIMED_ROUNDS = 24
"""A picture of times shows at most so many rounds, the last ones."""
EXPECTED_TITLE, ESTIMATED = "Expected accuracy", "without true labels"
"""Of the figure that shows what the labels say of themselves, where no true label is known; its line."""
TRUSTED_SIDES = ("trusted", "not trusted")
RIGHT_SIDES = ("right", "wrong")


def run_panels(view: RunView) -> list[Panel]:
    """The figures of a run; those that need true labels only where there are some."""
    curves = evaluated_rounds(view)
    panels = [progress_panel(view)] if view.rounds else []
    panels += [reliability_panel(curves, truth_unit(view)), risk_coverage_panel(curves)] if curves else []
    if histograms := label_histograms(view.labels or {}) + error_histograms(curves):
        panels.append(uncertainty_panel(histograms, bool(view.labels), curves))
    panels += [balance_panel(view)] if view.rounds and view.classes else []
    panels += [confusion_panel(view)] if curves else []
    return panels


def evaluated_rounds(view: RunView) -> list[tuple[str, Evaluation]]:
    """The first, the last and the kept round, as far as they are different and have true labels."""
    evaluated = {r.round: r.evaluation for r in view.rounds if r.evaluation is not None and r.evaluation.rows > 0}
    numbers = list(evaluated)
    chosen = dict.fromkeys(n for n in (*numbers[:1], *numbers[-1:], view.best_round) if n in evaluated)
    return [(f"round {n}" + (" (kept)" if n == view.best_round else ""), evaluated[n]) for n in chosen]


def round_series(rounds: Sequence[RoundRecord]) -> list[tuple[str, Measures]]:
    """What `progress_panel` draws: titles with their lines, one value per round."""

    def column(value: Callable[[Evaluation], float | None], side: str) -> list[float | None]:
        return [None if (evaluation := getattr(r, side)) is None else value(evaluation) for r in rounds]

    accuracy = {
        "labels": column(lambda e: e.accuracy, "evaluation"),
        "network": column(lambda e: e.network_accuracy, "evaluation"),
        "test set": column(lambda e: e.accuracy, "test"),
    }
    expected: list[float | None] = [r.facts.get("expected_accuracy") for r in rounds]
    known = any(value is not None for values in accuracy.values() for value in values)
    estimate: tuple[str, Measures] = (EXPECTED_TITLE, {ESTIMATED: expected})
    trust: Measures = {
        "trusted": [r.trusted / r.unlabelled if r.unlabelled else None for r in rounds],
        "right among them": column(lambda e: e.trusted_precision, "evaluation"),
    }
    overlap = {"labels": column(lambda e: e.mean_iou, "evaluation"), "test set": column(lambda e: e.mean_iou, "test")}
    of_maps = any(value is not None for values in overlap.values() for value in values)
    tracks: list[tuple[str, Measures]] = [
        ("Mean IoU", overlap),
        ("Pixel accuracy" if of_maps else "Accuracy", {**accuracy, "expected": expected}) if known else estimate,
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
    if any("expected_accuracy" in record.facts for record in view.rounds):
        text += " Expected accuracy is an estimate, made without true labels: the mean probability of the labels."
    text += f" The dotted upright line is the round kept, {view.how_kept}." if view.kept else ""
    measures, them = ("Mean IoU and accuracy are", "them") if view.on_maps else ("Accuracy is", "it")
    truth = any(record.evaluation for record in view.rounds)
    text += f" {measures} for your eyes only: no choice is made with {them}." if truth else ""
    pictures = [draw_round_series(track, part, numbers, view.best_round) for track, part in tracks]
    return make_panel(title, pictures, text, ["round", *names], rows, wide=True)


def draw_round_series(title: str, part: Measures, numbers: Sequence[int], best: int) -> str:
    """One measure over the rounds."""
    drawn, ends = list[Series](), list[str]()
    for name, values in part.items():
        places, full = list(zip(numbers, values, strict=True)), title if len(part) == 1 else f"{title}, {name}"
        drawn.append(Series(name, places, [f"{full}, round {n}: {format_number(value)}" for n, value in places]))
        ends.append(f"{name} from {format_number(values[0])} to {format_number(values[-1])}")
    label = f"{title} from round {numbers[0]} to round {numbers[-1]}: {'; '.join(ends)}."
    x_range = (numbers[0] - 0.3, numbers[-1] + 0.3)
    chart = LineChart(label, "round", title, x_range, whole=True, upright=best, named=ESTIMATED in part)
    return draw_lines(drawn, chart, first_series=1)


def reliability_panel(curves: Curves, unit: str) -> Panel:
    """Stated against true confidence, in each bin that has rows."""
    rows, drawn = list[list[str]](), list[Series]()
    for name, e in curves:
        bins = [(round(n), c / n, right / n) for n, c, right in e.reliability if n > 0]
        total = max(sum(n for n, _, _ in bins), 1)
        shown = [(f"{n:,}", format_decimals(stated), format_decimals(right)) for n, stated, right in bins]
        rows += [[name, *cells] for cells in shown]
        texts = [f"{name}: {n} {unit} say {stated}, {right} are right" for n, stated, right in shown]
        sizes = [2.5 + 7 * (n / total) ** 0.5 for n, _, _ in bins]
        drawn.append(Series(name, [(stated, right) for _, stated, right in bins], texts, sizes))
    errors = [(name, format_decimals(e.ece)) for name, e in curves]
    text = (
        "Does a label that says 90% hold in 90% of cases? On the diagonal it does; below it the labels are too sure. "
        f"A larger mark stands for more {unit}. {'; '.join(f'{name}: ECE {ece}' for name, ece in errors)}."
    )
    says = "; ".join(f"{name} has a calibration error of {ece}" for name, ece in errors)
    label = f"Reliability diagram: share right against stated confidence. {says}."
    whole, x_name = (0, 1.02), "stated confidence"
    field = LineChart(label, x_name, "Share right", whole, whole, size=svg.LARGE_CHART, diagonal=True)
    header = ["round", unit, x_name, "share right"]
    return make_panel("Can its confidence be believed?", [draw_lines(drawn, field)], text, header, rows)


def risk_coverage_panel(curves: Curves) -> Panel:
    """Errors among the surest."""
    rows, facts, ends, drawn = list[list[str]](), list[str](), list[str](), list[Series]()
    for name, e in curves:
        points = e.risk_coverage
        step = max(1, -(-len(points) // 12))
        few = (*points[:-1:step], *points[-1:])
        rows += [[name, format_decimals(share), format_decimals(risk)] for share, risk in few]
        ends.append(f"{name}: {format_risk(points, 0.5)} in the surest half, {format_risk(points, 1.0)} in all")
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
    field = LineChart(label, x_name, "Errors among them", (0, 1.02), (0, top), (True, True), size=svg.LARGE_CHART)
    title, header = "Does the uncertainty find the errors?", ["round", "share kept", "errors among them"]
    return make_panel(title, [draw_lines(drawn, field)], " ".join([text, *facts]), header, rows)


def format_risk(points: Sequence[tuple[float, float]], share: float) -> str:
    """The risk at the point that is nearest to this share."""
    return format_decimals(min(points, key=lambda point: abs(point[0] - share))[1] if points else None)


class Histogram(NamedTuple):
    """How many labels of two kinds, `sides`, have a value in each bin."""

    name: str
    edges: list[float]
    counts: list[tuple[int, int]]
    sides: tuple[str, str]

    def bins(self) -> list[tuple[float, float, int, int]]:
        """From, to, and the count of each side."""
        return [(*edges, *pair) for edges, pair in zip(pairwise(self.edges), self.counts, strict=True)]


def label_histograms(labels: dict[str, list[Any]]) -> list[Histogram]:
    """Probability and variance of trusted and other labels."""
    if not labels.get("trusted") or not {"probability", "between", "within"} <= labels.keys():
        return []
    probability, between, within = (np.asarray(labels[name], float) for name in ("probability", "between", "within"))
    trusted, histograms = np.asarray(labels["trusted"], dtype=bool), list[Histogram]()
    for name, values in (("probability", probability), ("variance", between + within)):
        fine = np.isfinite(values)
        low, high = (values[fine].min(), values[fine].max()) if fine.any() else (0.0, 1.0)
        edges = np.linspace(low, high if high > low else low + 1e-3, 21)
        yes, no = (np.histogram(values[fine & side], edges)[0].tolist() for side in (trusted, ~trusted))
        histograms.append(Histogram(name, edges.tolist(), list(zip(yes, no, strict=True)), TRUSTED_SIDES))
    return histograms


def error_histograms(curves: Curves) -> list[Histogram]:
    """Uncertainty of right and wrong labels, of the last of these rounds."""
    spread = curves[-1][1].spread if curves else ()
    edges, counts = [0.0, *(edge for edge, _, _ in spread)], [(right, wrong) for _, right, wrong in spread]
    return [Histogram("uncertainty", edges, counts, RIGHT_SIDES)] if spread else []


def uncertainty_panel(histograms: Sequence[Histogram], labels: bool, curves: Curves) -> Panel:
    """How sure labels of two kinds are; `labels` says that those of the last round are among them."""
    rows = [
        [f"{each.name}, {each.sides[0]} or {each.sides[1]}", f"{low:.3g} – {high:.3g}", f"{a:,}", f"{b:,}"]
        for each in histograms
        for low, high, a, b in each.bins()
        if a + b
    ]
    variance = "Variance is the sum of its two parts, between and within components."
    texts = [f"Labels of the last round. {variance}"] if labels else []
    if histograms[-1].sides is RIGHT_SIDES:
        texts.append(f"Right and wrong labels are those of {curves[-1][0]}: wrong ones should stand further right.")
    header = ["value", "from – to", "trusted or right", "not trusted or wrong"]
    pictures = [draw_histogram(each) for each in histograms]
    return make_panel("How sure are the labels?", pictures, " ".join(texts), header, rows, wide=True)


def draw_histogram(histogram: Histogram) -> str:
    """A histogram whose bars are parted in two."""
    name, sides, counts = histogram.name, histogram.sides, histogram.counts
    width, height = svg.LARGE_CHART[0], 240.0
    drawn, tall = svg.draw_key(sides, 2, 33, width, 1, filled=True)
    most = (max((a + b for a, b in counts), default=0) or 1) * 1.05
    low, high = histogram.edges[0], histogram.edges[-1]
    axes = svg.Axes((low, high), (0, most), 52, 33 + tall, width - 10, height - 40)
    y_steps = [y for y in svg.choose_ticks(0, most, 4) if y == round(y)]
    title = f"{name[:1].upper()}{name[1:]} of {sides[0]} and {sides[1] if sides is RIGHT_SIDES else 'other'} labels"
    unit = {"probability": "probability of the label"}.get(name, name)
    grid = axes.grid(svg.choose_ticks(low, high, 5), y_steps, (False, False), unit)
    parts, hits = [svg.draw_text(2, 14, title, "title"), drawn, grid], list[str]()
    for left, right, a, b in histogram.bins():
        x, wide = axes.across(left), axes.across(right) - axes.across(left)
        first, second = axes.down(a), axes.down(a + b)
        parts.append(svg.draw_box(x + 0.7, first, wide - 1.4, axes.bottom - first, "b s1") if a else "")
        parts.append(svg.draw_box(x + 0.7, second, wide - 1.4, first - second, "b s2") if b else "")
        if a + b:
            text = f"{name} {left:.3g} to {right:.3g}: {a:,} {sides[0]}, {b:,} {sides[1]}"
            place = {"x": x, "y": axes.top, "width": wide, "height": axes.bottom - axes.top}
            hits.append(svg.draw_mark("rect", place, text, "hit"))
    total, first_side = sum(a + b for a, b in counts), sum(a for a, _ in counts)
    label = f"Histogram of the {name} of {total:,} labels, {first_side:,} of them {sides[0]}."
    return svg.draw_chart(width, height, label, [*parts, svg.make_element("g", {}, "".join(hits))], "bars")


def balance_panel(view: RunView) -> Panel:
    """Class shares over rounds."""
    rounds, last = view.rounds, view.rounds[-1]
    totals = [max(1, sum(record.class_counts)) for record in rounds]
    shares, rows, texts = list[list[float]](), list[list[str]](), list[list[str]]()
    for c, name in enumerate(view.classes):
        counts = [record.class_counts[c] for record in rounds]
        shares.append([n / total for n, total in zip(counts, totals, strict=True)])
        shown = [f"{share:.1%}" for share in shares[c]]
        rows.append([name, *shown])
        cells = zip(rounds, shown, counts, strict=True)
        texts.append([f"{name}, round {record.round}: {share}, {n:,} labels" for record, share, n in cells])
    order = sorted(range(len(view.classes)), key=lambda c: -last.class_counts[c])
    picture = draw_heat_map(
        HeatMap(
            f"Class shares per round. Largest in round {last.round}: {rows[order[0]][0]}, {rows[order[0]][-1]}.",
            view.classes,
            [str(record.round) for record in rounds],
            shares,
            [[f"{share:.0%}" if share else "" for share in row] for row in shares],
            texts,
            ("", "round"),
            least=min(1.0, 2.5 / len(view.classes)),  # an even balance stays pale
            marked=frozenset((c, len(rounds) - 1) for c in order[:MOST_MARKED_CELLS]),
        )
    )
    text = "Share of each class among the labels of each round. One class that swallows the others is a collapse."
    header = ["class", *(f"round {record.round}" for record in rounds)]
    return make_panel("Class balance of the labels", [picture], text, header, rows)


def confusion_panel(view: RunView) -> Panel:
    """True classes against labels, for the kept round, or the last one with true labels."""
    evaluations = {record.round: record.evaluation for record in view.rounds if record.evaluation is not None}
    number = view.best_round if view.best_round in evaluations else max(evaluations)
    counts, classes, unit = evaluations[number].confusion, view.classes, truth_unit(view)
    cells = [(n, i, j) for i, row in enumerate(counts) for j, n in enumerate(row) if n and i != j]
    cells.sort(key=lambda item: -item[0])
    errors = [[classes[i], classes[j], f"{n:,}"] for n, i, j in cells]
    worst = "Most frequent error: {} labelled {}, {} {}.".format(*errors[0], unit) if errors else "No errors."
    shares = [[n / max(sum(row), 1) for n in row] for row in counts]
    if view.on_maps:
        values = [[f"{100 * share:.0f}" if share >= 0.005 else "" for share in row] for row in shares]
    else:
        values = [[str(n) if n else "" for n in row] for row in counts]
    texts = [
        [
            f"{true} labelled {label}: {n:,} {unit}, {share:.1%} of {true}"
            for label, n, share in zip(classes, row, parts, strict=True)
        ]
        for true, row, parts in zip(classes, counts, shares, strict=True)
    ]
    label, names = f"Confusion matrix. {worst}", ("true class", "label")
    marked = frozenset((i, j) for _, i, j in cells[:MOST_MARKED_CELLS])
    picture = draw_heat_map(HeatMap(label, classes, classes, shares, values, texts, names, marked=marked))
    text = f"Round {number}. A row is a true class, a column a label; the shade is the share of the true class."
    text += " The numbers are per cent of it." if view.on_maps else ""
    header = ["true class", "labelled", unit]
    return make_panel("Which classes are confused?", [picture], f"{text} {worst}", header, errors)


def draw_components(components: Sequence[Component], classes: Sequence[str]) -> str:
    """A bar for each class, a piece for each component for which it is the likeliest."""
    by_class: dict[str, list[tuple[int, float, str]]] = {name: [] for name in classes}
    for number, component in enumerate(components):
        says = ", ".join(f"{name} {p:.3f}" for name, p in component.classes)
        text = f"component {number}: {says}; {component.share:.1%} of the unlabelled side"
        by_class.setdefault(component.classes[0][0], []).append((1, component.share, text))
    sums = {name: sum(share for _, share, _ in parts) for name, parts in by_class.items()}
    ranked = sorted(by_class, key=lambda name: -sums[name])
    bars = [
        BarRow(name, format_share(sums[name], 1) if parts else "no component", parts)
        for name, parts in by_class.items()
        if name in ranked[: svg.NAMED_CLASSES]
    ]
    largest = f"Largest: {ranked[0]}, {sums[ranked[0]]:.1%}."
    return draw_bars(bars, f"{len(components)} components by their likeliest class. {largest}", [])


def cost_panel(view: RunView) -> Panel:
    """Seconds of each stage, round by round."""
    stages = list(dict.fromkeys(str(row["stage"]) for row in view.timings))
    rounds: dict[int, dict[str, float]] = {}
    for row in view.timings:
        times = rounds.setdefault(int(row["round"]), {})
        times[str(row["stage"])] = times.get(str(row["stage"]), 0.0) + float(row["seconds"])
    total = sum(sum(times.values()) for times in rounds.values())
    bars, rows = list[BarRow](), list[list[str]]()
    for number, times in sorted(rounds.items()):
        known = [(series, stage, times[stage]) for series, stage in enumerate(stages, 1) if stage in times]
        rows += [[str(number), stage, f"{seconds:.2f}"] for _, stage, seconds in known]
        parts = [(series, s, f"round {number}, {stage}: {format_seconds(s)}") for series, stage, s in known]
        bars.append(BarRow(f"round {number}", format_seconds(sum(times.values())), parts))
    sums = {stage: sum(times.get(stage, 0.0) for times in rounds.values()) for stage in stages}
    shares = [f"{stage} {format_seconds(spent)}, {format_share(spent, total)}" for stage, spent in sums.items()]
    text = f"{format_seconds(total)} in all: {'; '.join(shares)}."
    picture = draw_bars(bars[-MOST_TIMED_ROUNDS:], f"Times of the rounds. {text}", stages)
    return make_panel("Where the time went", [picture], text, ["round", "stage", "seconds"], rows)
