"""The figures of a run with their words: title, caption, a sentence for those who cannot see it, and the numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from embasis.report.drawing import LARGE
from embasis.report.figures import Bars, Field, Line, lines, stacked
from embasis.report.panels_of_classes import balance, confusion
from embasis.report.parts import Panel, numbers_table, percent, short, three
from embasis.report.records import RunView
from embasis.report.sections import judged
from embasis.report.tables import NONE

if TYPE_CHECKING:
    from embasis.types import Evaluation, RoundRecord

TRUSTED = ("trusted", "not trusted")
RIGHT = ("right", "wrong")


def run_panels(view: RunView) -> list[Panel]:
    """The figures of a run; those that need true labels only where there are some."""
    panels = [progress(view)] if view.rounds else []
    curves = checked(view)
    if curves:
        panels += [reliability(curves, judged(view)), risk_coverage(curves)]
    if (found := uncertainty(view)) is not None:
        panels.append(found)
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


def round_series(rounds: Sequence[RoundRecord]) -> list[tuple[str, dict[str, list[float | None]]]]:
    """What `progress` draws: titles with their lines, one value per round."""

    def column(value: Callable[[Evaluation], float | None], side: str) -> list[float | None]:
        return [None if (found := getattr(r, side)) is None else value(found) for r in rounds]

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
    overlap = {
        "labels": column(lambda e: e.mean_iou, "evaluation"),
        "test set": column(lambda e: e.mean_iou, "test"),
    }
    of_maps = any(value is not None for values in overlap.values() for value in values)
    found: list[tuple[str, dict[str, list[float | None]]]] = [
        ("Mean IoU", overlap),
        ("Pixel accuracy" if of_maps else "Accuracy", accuracy),
        ("Trusted share", trust),
        ("Changed labels", {"changed": [r.changed for r in rounds]}),
    ]
    for name in dict.fromkeys(key for r in rounds for key in r.scores):
        found.append((f"Label-free: {name.replace('_', ' ')}", {name: [r.scores.get(name) for r in rounds]}))
    kept = [(title, {k: v for k, v in part.items() if any(x is not None for x in v)}) for title, part in found]
    return [(title, part) for title, part in kept if part]


def progress(view: RunView, title: str = "Round by round") -> Panel:
    """A small picture for each measure, over the rounds."""
    found, numbers = round_series(view.rounds), [record.round for record in view.rounds]
    names = [name if len(part) == 1 else f"{track}: {name}" for track, part in found for name in part]
    columns = [values for _, part in found for values in part.values()]
    rows = [[str(number), *(short(values[i]) for values in columns)] for i, number in enumerate(numbers)]
    text = "Label-free scores: higher is better."
    text += " The dotted upright line is the round kept, chosen without true labels." if view.kept else ""
    measures, them = ("Mean IoU and accuracy are", "them") if view.on_maps else ("Accuracy is", "it")
    truth = any(record.evaluation for record in view.rounds)
    text += f" {measures} for your eyes only: no choice is made with {them}." if truth else ""
    pictures = [track_picture(track, part, numbers, view) for track, part in found]
    return Panel(title, pictures, text, numbers_table(["round", *names], rows, title), wide=True)


def track_picture(title: str, part: dict[str, list[float | None]], numbers: Sequence[int], view: RunView) -> str:
    """One measure over the rounds."""
    drawn = [
        Line(
            name,
            list(zip(numbers, values, strict=True)),
            [
                f"{_called(title, name, part)}, round {n}: {short(value)}"
                for n, value in zip(numbers, values, strict=True)
            ],
        )
        for name, values in part.items()
    ]
    ends = "; ".join(f"{name} from {short(values[0])} to {short(values[-1])}" for name, values in part.items())
    label = f"{title} from round {numbers[0]} to round {numbers[-1]}: {ends}."
    x_range = (numbers[0] - 0.3, numbers[-1] + 0.3)
    return lines(drawn, Field(label, "round", title, x=x_range, whole=True, upright=view.best_round), first_series=1)


def _called(title: str, name: str, part: dict[str, list[float | None]]) -> str:
    return title if len(part) == 1 else f"{title}, {name}"


def reliability_points(evaluation: Evaluation) -> list[tuple[int, float, float]]:
    """(rows, mean confidence, share right) of each bin that has rows."""
    return [(round(n), c / n, right / n) for n, c, right in evaluation.reliability if n > 0]


def reliability(curves: Sequence[tuple[str, Evaluation]], unit: str = "rows") -> Panel:
    """Stated against true confidence."""
    found = {name: reliability_points(evaluation) for name, evaluation in curves}
    rows = [[name, f"{n:,}", three(c), three(right)] for name, points in found.items() for n, c, right in points]
    errors = "; ".join(f"{name} has a calibration error of {three(e.ece)}" for name, e in curves)
    text = (
        "Does a label that says 90% hold in 90% of cases? On the diagonal it does; below it the labels are too sure. "
        f"A larger mark stands for more {unit}. " + "; ".join(f"{name}: ECE {three(e.ece)}" for name, e in curves) + "."
    )
    drawn = [
        Line(
            name,
            [(stated, right) for _, stated, right in points],
            [f"{name}: {n:,} {unit} say {three(stated)}, {three(right)} are right" for n, stated, right in points],
            [2.5 + 7 * (n / max(sum(m for m, _, _ in points), 1)) ** 0.5 for n, _, _ in points],
        )
        for name, points in found.items()
    ]
    label = f"Reliability diagram: share right against stated confidence. {errors}."
    field = Field(
        label, "stated confidence", "Share right", x=(0, 1.02), y=(0, 1.02), size=LARGE, diagonal=True
    )  # fmt: skip
    title = "Can its confidence be believed?"
    table = numbers_table(["round", unit, "stated confidence", "share right"], rows, title)
    return Panel(title, [lines(drawn, field)], text, table)


def risk_coverage(curves: Sequence[tuple[str, Evaluation]]) -> Panel:
    """Errors among the surest."""
    rows, facts, ends, drawn = list[list[str]](), list[str](), list[str](), list[Line]()
    for name, e in curves:
        points = e.risk_coverage
        step = max(1, -(-len(points) // 12))
        rows += [[name, three(share), three(risk)] for share, risk in (*points[:-1:step], *points[-1:])]
        ends.append(f"{name}: {_errors(e, 0.5)} in the surest half, {_errors(e, 1.0)} in all")
        texts = [f"{name}: of the surest {share:.0%}, {risk:.1%} are wrong" for share, risk in points]
        drawn.append(Line(name, points, texts))
        kept = [f"{p:.0%} are right among the surest {percent(c, 1)}" for p, c in e.coverage if c is not None]
        kept += [f"{p:.0%} are right in no part" for p, c in e.coverage if c is None]
        area = [f"area {three(e.aurc)}"] if e.aurc is not None else []
        facts += [f"{name}: {', '.join([*area, *kept])}."] if area or kept else []
    text = "Errors among the labels kept when the least sure are dropped first. Low at the left: the uncertainty works."
    label = f"Risk–coverage curves, share of errors. {'; '.join(ends)}."
    top = max((risk for _, e in curves for _, risk in e.risk_coverage), default=0.1) * 1.1 or 0.1
    field = Field(
        label, "share of labels kept, surest first", "Errors among them", (0, 1.02), (0, top), (True, True), size=LARGE
    )
    title = "Does the uncertainty find the errors?"
    table = numbers_table(["round", "share kept", "errors among them"], rows, title)
    return Panel(title, [lines(drawn, field)], " ".join([text, *facts]), table)


def _errors(evaluation: Evaluation, share: float) -> str:
    points = evaluation.risk_coverage
    return three(min(points, key=lambda point: abs(point[0] - share))[1] if points else None)


def histograms(labels: dict[str, list[Any]]) -> list[tuple[str, list[float], list[tuple[int, int]]]]:
    """(title, bin edges, (trusted, not trusted) of each bin) of probability and variance."""
    trusted = np.asarray(labels["trusted"], dtype=bool)
    variance = np.asarray(labels["between"], dtype=float) + np.asarray(labels["within"], dtype=float)
    found = []
    for title, values in (("probability", np.asarray(labels["probability"], float)), ("variance", variance)):
        fine = np.isfinite(values)
        low, high = (values[fine].min(), values[fine].max()) if fine.any() else (0.0, 1.0)
        edges = np.linspace(low, high if high > low else low + 1e-3, 21)
        yes, no = (np.histogram(values[fine & side], edges)[0].tolist() for side in (trusted, ~trusted))
        found.append((title, edges.tolist(), list(zip(yes, no, strict=True))))
    return found


def uncertainty(view: RunView) -> Panel | None:
    """Probability and variance of trusted and other labels, uncertainty of right and wrong ones."""
    labels, found = view.labels or {}, list[tuple[str, list[float], list[tuple[int, int]], tuple[str, str]]]()
    if labels.get("trusted") and all(name in labels for name in ("probability", "between", "within")):
        assert view.labels is not None
        found += [(name, edges, counts, TRUSTED) for name, edges, counts in histograms(view.labels)]
    curves = checked(view)
    judged_round, last = curves[-1] if curves else ("", None)
    if last is not None and last.spread:
        edges = [0.0, *(edge for edge, _, _ in last.spread)]
        found.append(("uncertainty", edges, [(right, wrong) for _, right, wrong in last.spread], RIGHT))
    if not found:
        return None
    rows = [
        [f"{name}, {sides[0]} or {sides[1]}", f"{low:.3g} – {high:.3g}", f"{a:,}", f"{b:,}"]
        for name, edges, counts, sides in found
        for low, high, (a, b) in zip(edges[:-1], edges[1:], counts, strict=True)
        if a + b
    ]
    pictures = [_bars(name, edges, counts, sides) for name, edges, counts, sides in found]
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


def _bars(name: str, edges: list[float], counts: list[tuple[int, int]], sides: tuple[str, str]) -> str:
    total, first = sum(a + b for a, b in counts), sum(a for a, _ in counts)
    texts = [
        f"{name} {low:.3g} to {high:.3g}: {a:,} {sides[0]}, {b:,} {sides[1]}"
        for low, high, (a, b) in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    label = f"Histogram of the {name} of {total:,} labels, {first:,} of them {sides[0]}."
    title = f"{name[:1].upper()}{name[1:]} of {sides[0]} and {sides[1] if sides is RIGHT else 'other'} labels"
    unit = {"probability": "probability of the label"}.get(name, name)
    return stacked(Bars(title, unit, edges, counts, texts, sides, label))


__all__ = ["NONE", "progress", "run_panels"]
