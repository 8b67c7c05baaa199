"""The page of a comparison: its tables, one figure of all methods, and how they went round by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from embasis.benchmark.scores import (
    IOU_COLUMNS,
    Summary,
    averaging_note,
    best_methods,
    column_legend,
    format_stat,
    group_by_dataset,
    headline,
    table_columns,
)
from embasis.report import RunView, svg
from embasis.report.page import Page, render_page
from embasis.report.summary import (
    DASH,
    PageTable,
    Panel,
    count_of,
    format_decimals,
    format_number,
    format_share,
    make_panel,
    run_title,
)
from embasis.report.svg import LineChart, Series, draw_lines

if TYPE_CHECKING:
    from embasis.types import RoundRecord

MOST_LISTED_RUNS = 12
"""A page lists single runs only where there are at most so many; runs.csv has all."""
MOST_CURVES = 8
"""A figure has a line for at most so many methods, those with the best labels."""


def comparison_tables(summaries: Sequence[Summary]) -> list[PageTable]:
    """One table per data set, the best accuracy (of label maps, mIoU) in bold."""
    best, tables = best_methods(summaries), list[PageTable]()
    for dataset, group in group_by_dataset(summaries).items():
        heads = table_columns(group)
        rows = [[s.method, *(format_stat(metric, s.stats[metric]) for metric in heads)] for s in group]
        bold = frozenset(i for i, s in enumerate(group) if (dataset, s.method) in best)
        note = _begin_sentence(averaging_note(group))
        if len(bold) < len(group):
            note += f" Bold: highest {_headline_name(group)}."
        elif len(group) > 1:
            bold, note = frozenset(), f"{note} All have the same {_headline_name(group)}."
        note += "" if tables else f" {column_legend(summaries)}"
        tables.append(PageTable(dataset, ("method", *heads.values()), rows, note, bold))
    return tables


def _headline_name(group: Sequence[Summary]) -> str:
    return "mean IoU" if headline(group) in IOU_COLUMNS else "accuracy"


def runs_table(runs: Sequence[RunView]) -> PageTable:
    """One line per run."""
    maps, rows = any(view.on_maps for view in runs), []
    many = len({view.config.get("seed") for view in runs}) > 1
    for i, view in enumerate(runs, 1):
        record = view.kept
        truth = record.evaluation if record else None
        seed = f", seed {view.config.get('seed')}" if many else ""
        row = [f"{i}. {run_title(view)}{seed}", view.status, str(len(view.rounds) - 1), str(view.best_round)]
        row.append(format_share(record.trusted, record.unlabelled) if record else DASH)
        row += [format_decimals(truth.mean_iou if truth else None)] if maps else []
        rows.append([*row, format_decimals(truth.accuracy if truth else None)])
    measures = ("mean IoU", "accuracy") if maps else ("accuracy",)
    return PageTable("Runs", ("run", "status", "rounds", "kept", "trusted", *measures), rows)


def comparison_panels(summaries: Sequence[Summary], runs: Sequence[RunView]) -> list[Panel]:
    """Accuracy (of label maps, mean IoU) of the methods, then all of them round by round."""
    ranked = {dataset: headline(group) for dataset, group in group_by_dataset(summaries).items()}
    rows = [[s.method, s.dataset, format_stat("", s.stats[ranked[s.dataset]]), str(s.seeds)] for s in summaries]
    measure = " or ".join(dict.fromkeys(_headline_name(group) for group in group_by_dataset(summaries).values()))
    title = _begin_sentence(measure)
    pictures = list[str]()
    for dataset, group in group_by_dataset(summaries).items():
        means = "; ".join(f"{s.method} {format_stat('', s.stats[ranked[dataset]])}" for s in group)
        pictures.append(draw_comparison(group, f"{_headline_name(group)} on {dataset}: {means}."))
    header = ["method", "data set", measure, "seeds"]
    panels = (
        [make_panel(title, pictures, _begin_sentence(averaging_note(summaries)), header, rows, wide=True)]
        if rows
        else []
    )
    return [*panels, *rounds_panels(runs)]


TRACKS: Mapping[str, Callable[[RoundRecord], float | None]] = {
    "Mean IoU of the labels": lambda r: None if r.evaluation is None else r.evaluation.mean_iou,
    "Accuracy of the labels": lambda r: None if r.evaluation is None else r.evaluation.accuracy,
    "Trusted share": lambda r: r.trusted / r.unlabelled if r.unlabelled else None,
    "Right among the trusted": lambda r: None if r.evaluation is None else r.evaluation.trusted_precision,
}
"""What is drawn over the rounds, the first that there is ranks the methods."""


def rounds_panels(runs: Sequence[RunView]) -> list[Panel]:
    """One figure of all methods over the rounds: a picture for each measure, a line for each method with rounds."""
    methods: dict[str, list[RunView]] = {}
    for view in runs:
        methods.setdefault(method_of(view), []).append(view)
    long = {name: views for name, views in methods.items() if any(len(view.rounds) > 1 for view in views)}
    tracks = {
        title: {name: mean_by_round(views, value) for name, views in long.items()} for title, value in TRACKS.items()
    }
    tracks = {title: lines for title, lines in tracks.items() if any(lines.values())}
    if not tracks:
        return []
    last = {name: next(reversed(line.values()), 0.0) for name, line in next(iter(tracks.values())).items()}
    drawn = sorted(long, key=lambda name: -last[name])[:MOST_CURVES]
    pictures = [draw_track(title, {name: lines[name] for name in drawn}) for title, lines in tracks.items()]
    numbers = sorted({number for lines in tracks.values() for line in lines.values() for number in line})
    rows = [
        [name, str(number), *(format_number(lines[name].get(number)) for lines in tracks.values())]
        for name in long
        for number in numbers
        if any(number in lines[name] for lines in tracks.values())
    ]
    caption = describe_lines(methods, long, drawn)
    return [make_panel("Round by round", pictures, caption, ["method", "round", *tracks], rows, wide=True)]


def method_of(view: RunView) -> str:
    """The name of a run's method."""
    method = view.config.get("method")
    return str(method.get("name", "")) if isinstance(method, Mapping) else str(method or run_title(view))


def mean_by_round(views: Sequence[RunView], value: Callable[[RoundRecord], float | None]) -> dict[int, float]:
    """Round → the mean over runs, as far as they have the value."""
    found: dict[int, list[float]] = {}
    for view in views:
        for record in view.rounds:
            if (number := value(record)) is not None:
                found.setdefault(record.round, []).append(number)
    return {number: fmean(values) for number, values in sorted(found.items())}


def draw_track(title: str, lines: Mapping[str, Mapping[int, float]]) -> str:
    """One measure of all methods over the rounds."""
    drawn, ends = list[Series](), list[str]()
    for name, line in lines.items():
        texts = [f"{name}, {title}, round {number}: {format_number(value)}" for number, value in line.items()]
        drawn.append(Series(name, list(line.items()), texts))
        values = list(line.values())
        ends += [f"{name} from {format_number(values[0])} to {format_number(values[-1])}"] if values else []
    last = max(number for line in lines.values() for number in line)
    chart = LineChart(f"{title} by round: {'; '.join(ends)}.", "round", title, (-0.3, last + 0.3), whole=True)
    return draw_lines(drawn, chart, first_series=1)


def describe_lines(
    methods: Mapping[str, Sequence[RunView]], long: Mapping[str, Sequence[RunView]], drawn: Sequence[str]
) -> str:
    """What the lines are, and which methods have none."""
    most = max(len(views) for views in long.values())
    text = f"Each line is a method{f', the mean over its {most} runs' if most > 1 else ''}."
    text += f" Drawn are the {len(drawn)} with the best labels; the table has all." if len(drawn) < len(long) else ""
    if without := [name for name in methods if name not in long]:
        text += f" No rounds follow the first of {', '.join(without)}, so there is no line."
    return f"{text} Accuracy is for your eyes only: no choice is made with it."


def draw_comparison(group: Sequence[Summary], label: str) -> str:
    """Mean accuracy (of label maps, mean IoU) of each method on one data set with its deviation."""
    best, measure, width = best_methods(group), headline(group), float(svg.LARGE_CHART[0])
    stats = [summary.stats[measure] for summary in group]
    ends = [stat.mean + side * (stat.std or 0.0) for stat in stats if stat.mean is not None for side in (-1, 1)]
    low, high = svg.pad_range(ends, 0.06)
    axes = svg.Axes((low, high), (0, 1), 8, 26, width - 8, 26 + 36.0 * len(group))
    body = [
        svg.draw_text(2, 14, svg.shorten_name(group[0].dataset, 44), "title"),
        axes.grid(svg.choose_ticks(low, high, 5), [], (False, False), _headline_name(group)),
    ]
    for row, (summary, stat) in enumerate(zip(group, stats, strict=True)):
        y, first = 38 + 36.0 * row, (summary.dataset, summary.method) in best
        body.append(svg.draw_text(2, y, svg.shorten_name(summary.method, 40), "strong" if first else ""))
        body.append(svg.draw_line(8, y + 10, width - 8, y + 10, "grid"))
        if stat.mean is None:
            continue
        value = format_stat(measure, stat)
        body.append(svg.draw_text(width - 2, y, value, "end strong" if first else "end quiet"))
        series, reach = (1, stat.std or 0.0) if first else (0, stat.std or 0.0)
        left, place, right = (axes.across(stat.mean + side * reach) for side in (-1, 0, 1))
        body.append(svg.draw_line(left, y + 10, right, y + 10, f"l s{series}"))
        body.append(svg.make_element("g", {}, svg.draw_point(series, place, y + 10, 5, f"{summary.method}: {value}")))
    return svg.draw_chart(width, axes.bottom + 42, label, body, "dots")


def headline_of(title: str, summaries: Sequence[Summary]) -> str:
    """The title with its answer, where there is one: which method is the best on the one data set."""
    groups = group_by_dataset(summaries)
    if len(groups) != 1 or len(summaries) < 2:
        return title
    (group,) = groups.values()
    best = [s for s in group if (s.dataset, s.method) in best_methods(summaries)]
    if len(best) != 1:
        return title
    value = format_stat("", best[0].stats[headline(group)])
    return f"{title}: {best[0].method} has the highest {_headline_name(group)}, {value}"


def _begin_sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def comparison_page(
    title: str,
    summaries: Sequence[Summary],
    runs: Sequence[RunView] = (),
    lead: str = "",
    first: Sequence[PageTable] = (),
) -> str:
    """The report of several methods; `runs` adds what each run did round by round, `first` tables before the others."""
    methods, sets = len({s.method for s in summaries}), len(group_by_dataset(summaries))
    usual = f"{count_of(methods, 'method')} on {count_of(sets, 'data set')}; {averaging_note(summaries)}"
    page = Page(
        title=title,
        heading=headline_of(title, summaries),
        lead=lead or usual,
        tables=[*first, *comparison_tables(summaries)],
        panels=comparison_panels(summaries, runs),
        more=[runs_table(runs)] if 0 < len(runs) <= MOST_LISTED_RUNS else [],
    )
    return render_page(page)
