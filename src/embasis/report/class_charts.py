"""The figures that show the classes, components and stages of a run, each with its caption and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embasis.report.run_view import Component, RunView
from embasis.report.summary import Panel, format_seconds, format_share, numbers_table, truth_unit
from embasis.report.svg import (
    LARGE_CHART,
    NAMED_CLASSES,
    HeatMap,
    draw_chart,
    draw_heat_map,
    draw_key,
    draw_mark,
    draw_text,
    make_element,
    shorten_name,
)

MOST_MARKED_CELLS = 60
"""A picture of many classes has a mark on so many cells."""
MOST_TIMED_ROUNDS = 24
"""A picture of times shows at most so many rounds, the last ones."""


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
            pieces.append(
                draw_mark("rect", {"x": x, "y": y + 5, "width": max(wide, 1.0), "height": 9}, text, f"b s{series}")
            )
            x += wide
        body.append(make_element("g", {}, "".join(pieces)))
        y += 36
    return draw_chart(width, y - 14, label, body)


def balance_panel(view: RunView) -> Panel:
    """Class shares over rounds."""
    totals = [max(1, sum(record.class_counts)) for record in view.rounds]
    pairs = list(zip(view.rounds, totals, strict=True))
    shares = [[record.class_counts[c] / total for record, total in pairs] for c in range(len(view.classes))]
    rows = [[name, *(f"{share:.1%}" for share in shares[c])] for c, name in enumerate(view.classes)]
    texts = [
        [
            f"{name}, round {record.round}: {share:.1%}, {record.class_counts[c]:,} labels"
            for record, share in zip(view.rounds, shares[c], strict=True)
        ]
        for c, name in enumerate(view.classes)
    ]
    last = view.rounds[-1]
    most = max(range(len(view.classes)), key=lambda c: last.class_counts[c])
    label = f"Class shares per round. Largest in round {last.round}: {view.classes[most]}, {rows[most][-1]}."
    order = sorted(range(len(view.classes)), key=lambda c: -last.class_counts[c])[:MOST_MARKED_CELLS]
    picture = draw_heat_map(
        HeatMap(
            label,
            view.classes,
            [str(record.round) for record in view.rounds],
            shares,
            [[f"{share:.0%}" if share else "" for share in row] for row in shares],
            texts,
            ("", "round"),
            least=min(1.0, 2.5 / max(len(view.classes), 1)),  # an even balance stays pale
            marked=frozenset((c, len(view.rounds) - 1) for c in order),
        )
    )
    text = "Share of each class among the labels of each round. One class that swallows the others is a collapse."
    title = "Class balance of the labels"
    table = numbers_table(["class", *(f"round {record.round}" for record in view.rounds)], rows, title)
    return Panel(title, [picture], text, table)


def confusion_panel(view: RunView) -> Panel:
    """True classes against labels, for the kept round."""
    with_truth = [record for record in view.rounds if record.evaluation is not None]
    record = view.kept if view.kept in with_truth and view.kept is not None else with_truth[-1]
    evaluation = record.evaluation
    assert evaluation is not None
    counts, unit = evaluation.confusion, truth_unit(view)
    cells = [(n, i, j) for i, row in enumerate(counts) for j, n in enumerate(row) if n and i != j]
    cells.sort(key=lambda item: -item[0])
    worst = "No errors."
    if cells:
        n, i, j = cells[0]
        worst = f"Most frequent error: {view.classes[i]} labelled {view.classes[j]}, {n:,} {unit}."
    shares = [[n / max(sum(row), 1) for n in row] for row in counts]
    picture = draw_heat_map(
        HeatMap(
            f"Confusion matrix. {worst}",
            view.classes,
            view.classes,
            shares,
            _cell_values(counts, shares, view.on_maps),
            _cell_texts(counts, shares, view.classes, unit),
            ("true class", "label"),
            marked=frozenset((i, j) for _, i, j in cells[:MOST_MARKED_CELLS]),
        )
    )
    text = f"Round {record.round}. A row is a true class, a column a label; the shade is the share of the true class."
    text += " The numbers are per cent of it." if view.on_maps else ""
    title = "Which classes are confused?"
    rows = [[view.classes[i], view.classes[j], f"{n:,}"] for n, i, j in cells]
    table = numbers_table(["true class", "labelled", unit], rows, title)
    return Panel(title, [picture], f"{text} {worst}", table)


def _cell_values(counts: Sequence[Sequence[int]], shares: Sequence[Sequence[float]], per_cent: bool) -> list[list[str]]:
    """What stands in the cells; nothing in empty ones."""
    if not per_cent:
        return [[str(n) if n else "" for n in row] for row in counts]
    return [[f"{100 * share:.0f}" if share >= 0.005 else "" for share in row] for row in shares]


def _cell_texts(
    counts: Sequence[Sequence[int]], shares: Sequence[Sequence[float]], classes: Sequence[str], unit: str
) -> list[list[str]]:
    return [
        [
            f"{true} labelled {label}: {n:,} {unit}, {share:.1%} of {true}"
            for label, n, share in zip(classes, row, parts, strict=True)
        ]
        for true, row, parts in zip(classes, counts, shares, strict=True)
    ]


def draw_components(view: RunView) -> str:
    """A bar for each class, a piece for each component for which it is the likeliest."""
    by_class: dict[str, list[tuple[int, Component]]] = {name: [] for name in view.classes}
    for number, component in enumerate(view.basis):
        by_class.setdefault(component.classes[0][0], []).append((number, component))
    sums = {name: sum(component.share for _, component in parts) for name, parts in by_class.items()}
    largest = set(sorted(by_class, key=lambda name: -sums[name])[:NAMED_CLASSES])
    bars = [
        BarRow(
            name,
            format_share(sums[name], 1) if parts else "no component",
            [(1, component.share, _component_text(number, component)) for number, component in parts],
        )
        for name, parts in by_class.items()
        if name in largest
    ]
    most = max(sums, key=lambda name: sums[name])
    label = f"{len(view.basis)} components by their likeliest class. Largest: {most}, {sums[most]:.1%}."
    return draw_bars(bars, label, [])


def _component_text(number: int, component: Component) -> str:
    classes = ", ".join(f"{name} {p:.3f}" for name, p in component.classes)
    return f"component {number}: {classes}; {component.share:.1%} of the unlabelled side"


def cost_panel(view: RunView) -> Panel:
    """Seconds of each stage, round by round."""
    stages = list(dict.fromkeys(str(row["stage"]) for row in view.timings))
    rounds: dict[int, dict[str, float]] = {}
    for row in view.timings:
        times = rounds.setdefault(int(row["round"]), {})
        times[str(row["stage"])] = times.get(str(row["stage"]), 0.0) + float(row["seconds"])
    total = sum(sum(times.values()) for times in rounds.values())
    bars = [
        BarRow(
            f"round {number}",
            format_seconds(sum(times.values())),
            [
                (series, times[stage], f"round {number}, {stage}: {format_seconds(times[stage])}")
                for series, stage in enumerate(stages, 1)
                if stage in times
            ],
        )
        for number, times in sorted(rounds.items())[-MOST_TIMED_ROUNDS:]
    ]
    sums = {stage: sum(times.get(stage, 0.0) for times in rounds.values()) for stage in stages}
    stage_texts = "; ".join(
        f"{stage} {format_seconds(seconds)}, {format_share(seconds, total)}" for stage, seconds in sums.items()
    )
    rows = [
        [str(number), stage, f"{times[stage]:.2f}"]
        for number, times in sorted(rounds.items())
        for stage in stages
        if stage in times
    ]
    text = f"{format_seconds(total)} in all: {stage_texts}."
    title = "Where the time went"
    picture = draw_bars(bars, f"Times of the rounds. {text}", stages)
    return Panel(title, [picture], text, numbers_table(["round", "stage", "seconds"], rows, title))
