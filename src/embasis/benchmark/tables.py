"""A comparison as text, Markdown, CSV, LaTeX and as a page.

A cell is the mean over seeds and their sample standard deviation, as `scores` makes them. A column that no run has is
left out.
"""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence

from embasis.benchmark.scores import (
    IOU_COLUMNS,
    PLUS_MINUS,
    Stat,
    Summary,
    averaging_note,
    best_methods,
    column_legend,
    file_columns,
    group_by_dataset,
    headline,
    table_columns,
)
from embasis.errors import reveal
from embasis.report.charts import progress_panel
from embasis.report.page import Page, render_page
from embasis.report.run_view import RunView
from embasis.report.summary import DASH, PageTable, Panel, format_decimals, format_share, make_panel, run_title
from embasis.report.svg import (
    LARGE_CHART,
    Axes,
    choose_ticks,
    draw_chart,
    draw_line,
    draw_point,
    draw_text,
    make_element,
    pad_range,
    shorten_name,
)

TABLE_WIDTH = 80


def format_metric(metric: str, value: float | None) -> str:
    """Three decimals, seconds one; a dash for None."""
    if value is None:
        return DASH
    return f"{value:.1f}" if metric == "seconds" else f"{value:.3f}"


def format_stat(metric: str, stat: Stat) -> str:
    """`0.912 ± 0.004`, without ± when there is one seed."""
    text = format_metric(metric, stat.mean)
    return text if stat.std is None else f"{text} {PLUS_MINUS} {format_metric(metric, stat.std)}"


def column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def align_row(row: Sequence[str], widths: Sequence[int]) -> str:
    """A line for the terminal: a name, then numbers to the right of their columns."""
    numbers = (text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))
    return " ".join([row[0].ljust(widths[0]), *numbers])


def markdown_lines(rows: Iterable[Sequence[str]]) -> str:
    """The lines of a Markdown table, all of whose cells are Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def text_table(summaries: Sequence[Summary]) -> str:
    """A table for the terminal: ± stands below its mean, so that eight columns fit; * marks the best of the first."""
    best, lines = best_methods(summaries), list[str]()
    for dataset, group in group_by_dataset(summaries).items():
        heads = table_columns(group)
        left_out = ("network_accuracy", *(["mean_class_accuracy"] if headline(group) in IOU_COLUMNS else []))
        metrics = [metric for metric in heads if metric not in left_out]
        cells = [["method", *(heads[m] for m in metrics)]]
        for summary in group:
            means = [format_metric(m, summary.stats[m].mean) for m in metrics]
            means[0] = ("*" if (dataset, summary.method) in best else "") + means[0]
            cells.append([reveal(summary.method), *means])
            stds = {m: std for m in metrics if (std := summary.stats[m].std) is not None}
            if stds:
                cells.append(["", *(PLUS_MINUS + format_metric(m, stds[m]) if m in stds else "" for m in metrics)])
        widths = column_widths(cells)
        _shorten_names(cells, widths)
        lines += ["", reveal(dataset), "-" * min(TABLE_WIDTH, sum(widths) + len(widths) - 1)]
        lines += [align_row(row, widths).rstrip() for row in cells]
    return "\n".join([*lines[1:], "", *textwrap.wrap(averaging_note(summaries), TABLE_WIDTH), ""])


def _shorten_names(cells: list[list[str]], widths: list[int]) -> None:
    """Cut long method names in their middle where the table would be too wide and they stay distinct."""
    room = TABLE_WIDTH - (sum(widths[1:]) + len(widths) - 1)
    if widths[0] <= room or room < 12:
        return
    names = [row[0] for row in cells]
    cut = [n if len(n) <= room else n[: room // 2] + "…" + n[len(n) - (room - room // 2 - 1) :] for n in names]
    if len(set(cut)) == len(set(names)):
        widths[0] = room
        for row, name in zip(cells, cut, strict=True):
            row[0] = name


def _table_rows(
    summaries: Sequence[Summary], name: Callable[[str], str], bold: Callable[[str], str]
) -> list[list[str]]:
    """Names and means of all columns, the best of each data set in bold."""
    best, rows = best_methods(summaries), list[list[str]]()
    ranked = {name: headline(group) for name, group in group_by_dataset(summaries).items()}
    for s in summaries:
        values = {metric: format_stat(metric, s.stats[metric]) for metric in table_columns(summaries)}
        if (s.dataset, s.method) in best:
            values[ranked[s.dataset]] = bold(values[ranked[s.dataset]])
        rows.append([name(s.dataset), name(s.method), *values.values()])
    return rows


def escape_markdown(text: str) -> str:
    """Text as Markdown shows it."""
    return re.sub(r"([\\`*_\[\]<>|&#~])", r"\\\1", reveal(text))


def markdown_table(summaries: Sequence[Summary]) -> str:
    """A Markdown table, the best accuracy (of label maps, mIoU) of each data set in bold."""
    heads = [text.replace("*", "\\*") for text in table_columns(summaries).values()]
    rule = ["---", "---", *["---:"] * len(heads)]
    rows = [["data set", "method", *heads], rule, *_table_rows(summaries, escape_markdown, lambda text: f"**{text}**")]
    return f"{markdown_lines(rows)}\n\n{escape_markdown(averaging_note(summaries))}\n"


def csv_table(summaries: Sequence[Summary]) -> str:
    """One line per data set, method and metric, at full precision.

    A name that a spreadsheet would take for a formula, or that begins with ', gets a ' in front: drop it to read back.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["dataset", "method", "metric", "mean", "std", "n", "seeds", "pairs_min", "pairs_max"])
    for s in summaries:
        for metric in file_columns(summaries):
            stat = s.stats[metric]
            value = ["" if number is None else repr(float(number)) for number in (stat.mean, stat.std)]
            names = (_escape_formula(s.dataset), _escape_formula(s.method))
            writer.writerow([*names, metric, *value, stat.n, s.seeds, *s.pairs])
    return out.getvalue()


def _escape_formula(text: str) -> str:
    text = reveal(text)
    return "'" + text if text[:1] in tuple("=+-@'\uff1d\uff0b\uff0d\uff20") else text  # the last four are full-width


def latex_table(summaries: Sequence[Summary]) -> str:
    """A tabular for the booktabs package, the best accuracy (of label maps, mIoU) of each data set in bold."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    escapes = str.maketrans(special | {character: f"\\{character}" for character in "&%$#_{}"})

    def name(text: str) -> str:
        return reveal(text).translate(escapes)

    def maths(text: str) -> str:
        return text.replace(PLUS_MINUS, r"$\pm$").replace(DASH, "--")

    rows = _table_rows(summaries, name, lambda text: rf"\textbf{{{text}}}")
    body = "\n".join(" & ".join([*row[:2], *map(maths, row[2:])]) + r" \\" for row in rows)
    heads = table_columns(summaries).values()
    header = " & ".join(["data set", "method", *heads]) + r" \\"
    note = maths(name(averaging_note(summaries)))
    start, end = rf"\begin{{tabular}}{{ll{'r' * len(heads)}}}", r"\end{tabular}"
    return f"% {note}\n{start}\n\\toprule\n{header}\n\\midrule\n{body}\n\\bottomrule\n{end}\n"


MOST_DRAWN_RUNS = 12
"""A comparison draws at most so many runs."""


def comparison_tables(summaries: Sequence[Summary]) -> list[PageTable]:
    """One table per data set, the best accuracy (of label maps, mIoU) in bold."""
    best, tables = best_methods(summaries), list[PageTable]()
    for dataset, group in group_by_dataset(summaries).items():
        heads = table_columns(group)
        rows = [[s.method, *(format_stat(metric, s.stats[metric]) for metric in heads)] for s in group]
        bold = frozenset(i for i, s in enumerate(group) if (dataset, s.method) in best)
        note = f"{averaging_note(group)} Bold: highest {_headline_name(group)}."
        note += "" if tables else f" {column_legend(summaries)}"
        tables.append(PageTable(dataset, ("method", *heads.values()), rows, note, bold))
    return tables


def _headline_name(group: Sequence[Summary]) -> str:
    return "mean IoU" if headline(group) in IOU_COLUMNS else "accuracy"


def runs_table(runs: Sequence[RunView]) -> PageTable:
    """One line per run."""
    note = f"The first {MOST_DRAWN_RUNS} are drawn above." if len(runs) > MOST_DRAWN_RUNS else ""
    maps, rows = any(view.on_maps for view in runs), []
    for i, view in enumerate(runs, 1):
        record = view.kept
        truth = record.evaluation if record else None
        row = [f"{i}. {run_title(view)}", view.status, str(len(view.rounds) - 1), str(view.best_round)]
        row.append(format_share(record.trusted, record.unlabelled) if record else DASH)
        row += [format_decimals(truth.mean_iou if truth else None)] if maps else []
        rows.append([*row, format_decimals(truth.accuracy if truth else None)])
    measures = ("mean IoU", "accuracy") if maps else ("accuracy",)
    return PageTable("Runs", ("run", "status", "rounds", "kept", "trusted", *measures), rows, note)


def comparison_panels(summaries: Sequence[Summary], runs: Sequence[RunView]) -> list[Panel]:
    """Accuracy (of label maps, mean IoU) of the methods, then the rounds of each run."""
    ranked = {dataset: headline(group) for dataset, group in group_by_dataset(summaries).items()}
    rows = [[s.method, s.dataset, format_stat("", s.stats[ranked[s.dataset]]), str(s.seeds)] for s in summaries]
    measure = " or ".join(dict.fromkeys(_headline_name(group) for group in group_by_dataset(summaries).values()))
    title = measure[:1].upper() + measure[1:]
    pictures = list[str]()
    for dataset, group in group_by_dataset(summaries).items():
        means = "; ".join(f"{s.method} {format_stat('', s.stats[ranked[dataset]])}" for s in group)
        pictures.append(draw_comparison(group, f"{_headline_name(group)} on {dataset}: {means}."))
    header = ["method", "data set", measure, "seeds"]
    panels = [make_panel(title, pictures, averaging_note(summaries), header, rows, wide=True)] if rows else []
    for i, view in enumerate(runs[:MOST_DRAWN_RUNS], 1):
        if view.rounds:
            panels.append(progress_panel(view, f"Run {i}: {run_title(view)}"))
    return panels


def draw_comparison(group: Sequence[Summary], label: str) -> str:
    """Mean accuracy (of label maps, mean IoU) of each method on one data set with its deviation."""
    best, measure, width = best_methods(group), headline(group), float(LARGE_CHART[0])
    stats = [summary.stats[measure] for summary in group]
    ends = [stat.mean + side * (stat.std or 0.0) for stat in stats if stat.mean is not None for side in (-1, 1)]
    low, high = pad_range(ends, 0.06)
    axes = Axes((low, high), (0, 1), 8, 26, width - 8, 26 + 36.0 * len(group))
    body = [
        draw_text(2, 14, shorten_name(group[0].dataset, 44), "title"),
        axes.grid(choose_ticks(low, high, 5), [], (False, False), _headline_name(group)),
    ]
    for row, (summary, stat) in enumerate(zip(group, stats, strict=True)):
        y, first = 38 + 36.0 * row, (summary.dataset, summary.method) in best
        body.append(draw_text(2, y, shorten_name(summary.method, 40), "strong" if first else ""))
        body.append(draw_line(8, y + 10, width - 8, y + 10, "grid"))
        if stat.mean is None:
            continue
        value = format_stat(measure, stat)
        body.append(draw_text(width - 2, y, value, "end strong" if first else "end quiet"))
        series, reach = (1, stat.std or 0.0) if first else (0, stat.std or 0.0)
        left, place, right = (axes.across(stat.mean + side * reach) for side in (-1, 0, 1))
        body.append(draw_line(left, y + 10, right, y + 10, f"l s{series}"))
        body.append(make_element("g", {}, draw_point(series, place, y + 10, 5, f"{summary.method}: {value}")))
    return draw_chart(width, axes.bottom + 42, label, body, "dots")


def comparison_page(
    title: str,
    summaries: Sequence[Summary],
    runs: Sequence[RunView] = (),
    lead: str = "",
    first: Sequence[PageTable] = (),
) -> str:
    """The report of several methods; `runs` adds what each run did round by round, `first` tables before the others."""
    methods, sets = len({s.method for s in summaries}), len(group_by_dataset(summaries))
    usual = f"{methods} methods on {sets} data set{'s' if sets != 1 else ''}; {averaging_note(summaries)}"
    page = Page(
        title=title,
        lead=lead or usual,
        tables=[*first, *comparison_tables(summaries)],
        panels=comparison_panels(summaries, runs),
        more=[runs_table(runs)] if runs else [],
    )
    return render_page(page)
