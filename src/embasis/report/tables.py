"""Compare tables: what many runs come to, as text, Markdown, CSV and LaTeX.

A cell is the mean over seeds and their sample standard deviation, as `scores` makes them. A column that no run has is
left out.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence

from embasis.report.records import visible
from embasis.report.scores import (
    IOU,
    LEGEND,
    METRICS,
    PLUS_MINUS,
    RunScore,
    Stat,
    Summary,
    best_of,
    by_dataset,
    caption,
    columns,
    headline,
    numbers,
    summarise,
)

__all__ = [
    "LEGEND",
    "METRICS",
    "RunScore",
    "Stat",
    "Summary",
    "as_csv",
    "as_latex",
    "as_markdown",
    "as_text",
    "caption",
    "cell",
    "escaped",
    "number",
    "summarise",
]

WIDTH = 80
NONE = "–"


def number(metric: str, value: float | None) -> str:
    """Three decimals, seconds one; a dash for None."""
    if value is None:
        return NONE
    return f"{value:.1f}" if metric == "seconds" else f"{value:.3f}"


def cell(metric: str, stat: Stat) -> str:
    """`0.912 ± 0.004`, without ± when there is one seed."""
    text = number(metric, stat.mean)
    return text if stat.std is None else f"{text} {PLUS_MINUS} {number(metric, stat.std)}"


def as_text(summaries: Sequence[Summary]) -> str:
    """A table for the terminal: ± stands below its mean, so that eight columns fit; * marks the best of the first."""
    best, lines = best_of(summaries), list[str]()
    for dataset, group in by_dataset(summaries).items():
        heads = columns(group)
        left_out = ("network_accuracy", *(["mean_class_accuracy"] if headline(group) in IOU else []))
        metrics = [metric for metric in heads if metric not in left_out]
        cells = [["method", *(heads[m] for m in metrics)]]
        for summary in group:
            means = [number(m, summary.stats[m].mean) for m in metrics]
            means[0] = ("*" if (dataset, summary.method) in best else "") + means[0]
            cells.append([visible(summary.method), *means])
            stds = [summary.stats[m].std for m in metrics]
            if any(std is not None for std in stds):
                shown = ["" if s is None else PLUS_MINUS + number(m, s) for m, s in zip(metrics, stds, strict=True)]
                cells.append(["", *shown])
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        _shorten(cells, widths)
        title = visible(dataset)
        lines += ["", title, "-" * min(WIDTH, sum(widths) + len(widths) - 1)]
        for row in cells:
            numbers = (text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))
            lines.append(" ".join([row[0].ljust(widths[0]), *numbers]).rstrip())
    return "\n".join([*lines[1:], "", *_wrap(caption(summaries)), ""])


def _shorten(cells: list[list[str]], widths: list[int]) -> None:
    """Cut long method names in their middle where the table would be too wide and they stay distinct."""
    room = WIDTH - (sum(widths[1:]) + len(widths) - 1)
    if widths[0] <= room or room < 12:
        return
    names = [row[0] for row in cells]
    cut = [n if len(n) <= room else n[: room // 2] + "…" + n[len(n) - (room - room // 2 - 1) :] for n in names]
    if len(set(cut)) == len(set(names)):
        widths[0] = room
        for row, name in zip(cells, cut, strict=True):
            row[0] = name


def _wrap(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, WIDTH)


def _grid(summaries: Sequence[Summary], name: Callable[[str], str], bold: Callable[[str], str]) -> list[list[str]]:
    best, ranked = best_of(summaries), {name: headline(group) for name, group in by_dataset(summaries).items()}
    rows = []
    for s in summaries:
        values = {metric: cell(metric, s.stats[metric]) for metric in columns(summaries)}
        if (s.dataset, s.method) in best:
            values[ranked[s.dataset]] = bold(values[ranked[s.dataset]])
        rows.append([name(s.dataset), name(s.method), *values.values()])
    return rows


def escaped(text: str) -> str:
    """Text as Markdown shows it."""
    return re.sub(r"([\\`*_\[\]<>|&#~])", r"\\\1", visible(text))


def as_markdown(summaries: Sequence[Summary]) -> str:
    """A Markdown table, the best accuracy (of label maps, mIoU) of each data set in bold."""
    heads = [text.replace("*", "\\*") for text in columns(summaries).values()]
    rule = ["---", "---", *["---:"] * len(heads)]
    rows = [["data set", "method", *heads], rule, *_grid(summaries, escaped, lambda text: f"**{text}**")]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"{table}\n\n{escaped(caption(summaries))}\n"


def as_csv(summaries: Sequence[Summary]) -> str:
    """One line per data set, method and metric, at full precision.

    A name that a spreadsheet would take for a formula, or that begins with ', gets a ' in front: drop it to read back.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["dataset", "method", "metric", "mean", "std", "n", "seeds", "pairs_min", "pairs_max"])
    for s in summaries:
        for metric in numbers(summaries):
            stat = s.stats[metric]
            value = ["" if number is None else repr(float(number)) for number in (stat.mean, stat.std)]
            writer.writerow([_inert(s.dataset), _inert(s.method), metric, *value, stat.n, s.seeds, *s.pairs])
    return out.getvalue()


def _inert(text: str) -> str:
    text = visible(text)
    return "'" + text if text[:1] in tuple("=+-@'\uff1d\uff0b\uff0d\uff20") else text  # the last four are full-width


def as_latex(summaries: Sequence[Summary]) -> str:
    """A tabular for the booktabs package, the best accuracy (of label maps, mIoU) of each data set in bold."""
    special = {c: f"\\{c}" for c in "&%$#_{}"} | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }

    def name(text: str) -> str:
        return "".join(special.get(character, character) for character in visible(text))

    def maths(text: str) -> str:
        return text.replace(PLUS_MINUS, r"$\pm$").replace(NONE, "--")

    rows = _grid(summaries, name, lambda text: rf"\textbf{{{text}}}")
    body = "\n".join(" & ".join([*row[:2], *map(maths, row[2:])]) + r" \\" for row in rows)
    heads = columns(summaries).values()
    header = " & ".join(["data set", "method", *heads]) + r" \\"
    note = maths(name(caption(summaries)))
    start, end = rf"\begin{{tabular}}{{ll{'r' * len(heads)}}}", r"\end{tabular}"
    return f"% {note}\n{start}\n\\toprule\n{header}\n\\midrule\n{body}\n\\bottomrule\n{end}\n"
