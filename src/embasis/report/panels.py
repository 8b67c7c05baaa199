"""The figures of a page with their words: title, caption, a text for those who cannot see it, and the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from embasis.report import figures
from embasis.report.records import RunView
from embasis.report.sections import Panel, Table, judged, three
from embasis.report.tables import NONE

if TYPE_CHECKING:
    from embasis.types import Evaluation, RoundRecord

MOST_ROWS = 40
"""A table behind a figure shows at most so many rows."""


def run_panels(view: RunView) -> list[Panel]:
    """The figures of a run; those that need true labels only where there are some."""
    panels = [progress(view)] if view.rounds else []
    curves, known = checked(view), view.labels or {}
    if curves:
        panels += [reliability(curves, judged(view)), risk_coverage(curves)]
    if view.labels and known.get("trusted") and all(name in known for name in ("probability", "between", "within")):
        panels.append(uncertainty(view.labels))
    if view.rounds and view.classes:
        panels.append(balance(view))
    if curves:
        panels.append(confusion(view))
    return panels


def checked(view: RunView) -> list[tuple[str, Evaluation]]:
    """The first, the last and the kept round, as far as they are different and have true labels."""
    found = [record for record in view.rounds if record.evaluation is not None and record.evaluation.rows > 0]
    if not found:
        return []
    chosen: dict[int, RoundRecord] = {record.round: record for record in (found[0], found[-1])}
    if view.kept is not None and view.kept in found:
        chosen[view.kept.round] = view.kept
    kept = view.best_round
    names = {number: f"round {number}" + (" (kept)" if number == kept else "") for number in chosen}
    return [(names[number], record.evaluation) for number, record in chosen.items() if record.evaluation is not None]


def progress(view: RunView, title: str = "Round by round", wide: bool = True) -> Panel:
    """Lines over rounds."""
    lines = {
        name if len(parts) == 1 else f"{part}: {name}": values
        for part, parts in figures.panels(view.rounds)
        for name, values in parts.items()
    }
    rows = [
        [str(record.round), *(_short(values[i]) for values in lines.values())] for i, record in enumerate(view.rounds)
    ]
    ends = [f"{name} from {_short(values[0])} to {_short(values[-1])}" for name, values in lines.items()]
    first, last = view.rounds[0].round, view.rounds[-1].round
    alt = f"Lines from round {first} to round {last}: {'; '.join(ends)}."
    truth = any(record.evaluation for record in view.rounds)
    text = "Label-free scores: higher is better."
    text += " The dotted upright line is the round kept, chosen without true labels." if view.kept else ""
    measures, them = ("Mean IoU and accuracy are", "them") if view.on_maps else ("Accuracy is", "it")
    text += f" {measures} for your eyes only: no choice is made with {them}." if truth else ""
    return Panel(
        title, figures.progress(view.rounds, view.best_round), alt, text, numbers_table(["round", *lines], rows), wide
    )


def _short(value: float | None) -> str:
    return NONE if value is None else f"{value:.4g}"


def numbers_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The numbers behind a figure, the first of them."""
    note = f"The first {MOST_ROWS} of {len(rows)} rows." if len(rows) > MOST_ROWS else ""
    return Table("The numbers of this figure", header, rows[:MOST_ROWS], note)


def reliability(curves: Sequence[tuple[str, Evaluation]], unit: str = "rows") -> Panel:
    """Stated against true confidence."""
    rows = [
        [name, f"{n:,}", three(stated), three(right)]
        for name, evaluation in curves
        for n, stated, right in figures.reliability_points(evaluation)
    ]
    errors = "; ".join(f"{name} has a calibration error of {three(e.ece)}" for name, e in curves)
    text = (
        "Does a label that says 90 % hold in 90 % of cases? On the diagonal it does; below it the labels are too sure. "
        f"A larger mark stands for more {unit}."
    )
    alt = f"Reliability diagram: share right against stated confidence. {errors}."
    table = numbers_table(["round", unit, "stated confidence", "share right"], rows)
    return Panel("Can its confidence be believed?", figures.reliability(curves), alt, text, table)


def risk_coverage(curves: Sequence[tuple[str, Evaluation]]) -> Panel:
    """Errors among the surest."""
    rows = []
    for name, evaluation in curves:
        points = evaluation.risk_coverage
        step = max(1, -(-len(points) // 12))
        rows += [[name, three(share), three(risk)] for share, risk in (*points[:-1:step], *points[-1:])]
    ends = "; ".join(f"{name}: {_errors(e, 0.5)} in the surest half, {_errors(e, 1.0)} in all" for name, e in curves)
    text = "Errors among the labels kept when the least sure are dropped first. Low at the left: the uncertainty works."
    alt = f"Risk–coverage curves, share of errors. {ends}."
    table = numbers_table(["round", "share kept", "errors among them"], rows)
    return Panel("Does the uncertainty find the errors?", figures.risk_coverage(curves), alt, text, table)


def _errors(evaluation: Evaluation, share: float) -> str:
    points = evaluation.risk_coverage
    return three(min(points, key=lambda point: abs(point[0] - share))[1] if points else None)


def uncertainty(labels: dict[str, list[Any]]) -> Panel:
    """Probability and variance of trusted and other labels."""
    rows = [
        [title, f"{low:.3g} – {high:.3g}", f"{int(yes):,}", f"{int(no):,}"]
        for title, edges, trusted, rest in figures.histograms(labels)
        for low, high, yes, no in zip(edges[:-1], edges[1:], trusted, rest, strict=True)
        if yes + no
    ]
    n, trusted = len(labels["trusted"]), sum(map(bool, labels["trusted"]))
    alt = f"Histograms of probability and variance of {n:,} labels, {trusted:,} of them trusted."
    text = "Labels of the last round. Variance is the sum of its two parts, between and within components."
    table = numbers_table(["value", "from – to", "trusted", "not trusted"], rows)
    return Panel("How sure are the labels?", figures.uncertainty(labels), alt, text, table, wide=True)


def balance(view: RunView) -> Panel:
    """Class shares over rounds."""
    totals = [max(1, sum(record.class_counts)) for record in view.rounds]
    rows = [
        [name, *(f"{r.class_counts[c] / t:.1%}" for r, t in zip(view.rounds, totals, strict=True))]
        for c, name in enumerate(view.classes)
    ]
    last = view.rounds[-1]
    most = max(range(len(view.classes)), key=lambda c: last.class_counts[c])
    alt = f"Heat map of class shares per round. Largest in round {last.round}: {view.classes[most]}, {rows[most][-1]}."
    text = "Share of each class among the labels of each round. One class that swallows the others is a collapse."
    table = numbers_table(["class", *(f"round {record.round}" for record in view.rounds)], rows)
    return Panel("Class balance of the labels", figures.balance(view.rounds, view.classes), alt, text, table)


def confusion(view: RunView) -> Panel:
    """True classes against labels, for the kept round."""
    with_truth = [record for record in view.rounds if record.evaluation is not None]
    record = view.kept if view.kept in with_truth and view.kept is not None else with_truth[-1]
    evaluation = record.evaluation
    assert evaluation is not None
    cells = [
        (n, view.classes[i], view.classes[j])
        for i, line in enumerate(evaluation.confusion)
        for j, n in enumerate(line)
        if n and i != j
    ]
    cells.sort(key=lambda item: -item[0])
    worst = (
        f"Most frequent error: {cells[0][1]} labelled {cells[0][2]}, {cells[0][0]:,} {judged(view)}."
        if cells
        else "No errors."
    )
    text = f"Round {record.round}. A row is a true class, a column a label; the shade is the share of the true class."
    text += " The numbers are per cent of it." if view.on_maps else ""
    table = numbers_table(
        ["true class", "labelled", judged(view)], [[true, label, f"{n:,}"] for n, true, label in cells]
    )
    svg = figures.confusion(evaluation, view.classes, view.on_maps)
    return Panel("Which classes are confused?", svg, f"Confusion matrix. {worst}", f"{text} {worst}", table)
