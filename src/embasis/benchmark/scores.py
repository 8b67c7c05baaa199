"""What many runs come to: one score a run, one summary per data set and method, and tables of summaries.

A seed's value is the mean over its pairs (the tasks of a data set: amazon → dslr, …). A summary is the mean of these
values and their sample standard deviation: Σ (v − mean)² / (n − 1). Values that do not exist (None) are left out.
A cell of a table is the mean and the deviation; a column that no run has is left out.
"""

from __future__ import annotations

import csv
import io
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from embasis.errors import require, reveal
from embasis.report.summary import DASH

SCORE_COLUMNS = {
    "accuracy": "acc",
    "mean_class_accuracy": "class",
    "network_accuracy": "net",
    "ece": "ECE",
    "nll": "NLL",
    "auroc": "AUROC",
    "trusted_share": "trust",
    "trusted_precision": "prec",
    "seconds": "sec",
}
"""The columns of every table: the field of a RunScore and its short heading."""
FILE_COLUMNS = {
    "adaptive_ece": "aECE",
    "classwise_ece": "cECE",
    "brier": "Brier",
    "aupr": "AUPR",
    "aurc": "AURC",
    "coverage_95": "cov95",
}
"""What only the files of numbers have, so that tables stay narrow; docs/metrics.md says what they are."""
IOU_COLUMNS = {"mean_iou": "mIoU", "starred_iou": "mIoU*"}
"""Columns that stand before them where runs have them: those on label maps."""
PLUS_MINUS = "\u00b1"
TABLE_WIDTH = 80
IOU_LEGEND = (
    "mIoU: mean over classes of intersection over union, from one confusion matrix of the whole set; acc beside it is "
    "over pixels. mIoU*: over the 13 classes of SYNTHIA tables."
)
PLAIN_LEGEND = (
    "acc: accuracy of the labels. class: mean over classes. net: the network alone. ECE, NLL: calibration, lower is "
    "better. AUROC: uncertainty against errors. trust: share of labels trusted. prec: accuracy of the trusted. "
    "sec: seconds of a run."
)
LEGEND = f"{PLAIN_LEGEND} {IOU_LEGEND}"
"""What all columns are."""


@dataclass(frozen=True)
class RunScore:
    """What one run came to: one method, one pair of one data set, one seed."""

    dataset: str
    pair: str
    method: str
    seed: int
    accuracy: float
    mean_class_accuracy: float
    ece: float
    nll: float
    auroc: float | None
    trusted_share: float
    trusted_precision: float | None
    network_accuracy: float
    seconds: float
    class_names: tuple[str, ...] = ()
    class_accuracy: tuple[float | None, ...] = ()
    """by class of `class_names`; None where the class has no rows"""
    mean_iou: float | None = None
    """of label maps, as the next two; see `IOU_LEGEND`"""
    class_iou: tuple[float | None, ...] = ()
    """by class of `class_names`; None where no pixel is truly of the class"""
    starred_iou: float | None = None
    adaptive_ece: float | None = None
    classwise_ece: float | None = None
    brier: float | None = None
    aupr: float | None = None
    aurc: float | None = None
    coverage_95: float | None = None
    """the largest share of labels, surest first, of which 95 % are right; None where no share reaches that"""

    def cells(self) -> dict[str, Any]:
        """One line of a table of runs: values by their names, then `accuracy of <class>` and `IoU of <class>`."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if not name.startswith("class_")}
        plain = {name: value for name, value in plain.items() if name not in IOU_COLUMNS or value is not None}
        accuracies = zip(self.class_names, self.class_accuracy, strict=True)
        plain |= {f"accuracy of {name}": accuracy for name, accuracy in accuracies}
        return plain | {f"IoU of {name}": iou for name, iou in self.ious.items()}

    @property
    def ious(self) -> dict[str, float | None]:
        """The IoU of each class by its name; nothing for runs without label maps."""
        return dict(zip(self.class_names, self.class_iou, strict=True)) if self.class_iou else {}


@dataclass(frozen=True)
class Stat:
    """Mean and sample standard deviation over n seeds; mean is None for n = 0, std for n < 2."""

    mean: float | None
    std: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Stat:
        """The mean and standard deviation of these values."""
        n = len(values)
        if n == 0:
            return cls(None, None, 0)
        mean = math.fsum(values) / n
        return cls(mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else None, n)


@dataclass(frozen=True)
class Summary:
    """One line of a table: one method on one data set."""

    dataset: str
    method: str
    seeds: int
    pairs: tuple[int, int]
    """fewest and most pairs of a seed"""
    stats: dict[str, Stat]
    """by field of RunScore"""

    @property
    def averaged(self) -> str:
        """What is averaged, as a sentence without its stop."""
        few, most = self.pairs
        pairs = f"{few} pairs" if few == most else f"{few} to {most} pairs"
        if self.seeds == 1:
            return "one run" if most == 1 else f"one seed; mean over {pairs}"
        over = f"mean {PLUS_MINUS} std over {self.seeds} seeds"
        return over if most == 1 else f"{over}; each seed averages {pairs}"


def summarise_runs(rows: Iterable[RunScore]) -> list[Summary]:
    """One summary per data set and method, in the order of their first rows."""
    groups: dict[tuple[str, str], dict[int, dict[str, RunScore]]] = {}
    for row in rows:
        pairs = groups.setdefault((row.dataset, row.method), {}).setdefault(row.seed, {})
        run = f"{reveal(row.method)} on {reveal(row.dataset)} / {reveal(row.pair)}, seed {row.seed}"
        require(row.pair not in pairs, f"rows must be unique, got two of {run}")
        pairs[row.pair] = row
    return [_summarise_method(dataset, method, seeds) for (dataset, method), seeds in groups.items()]


def _summarise_method(dataset: str, method: str, seeds: dict[int, dict[str, RunScore]]) -> Summary:
    counts = [len(pairs) for pairs in seeds.values()]
    stats = {}
    for metric in (*IOU_COLUMNS, *SCORE_COLUMNS, *FILE_COLUMNS):
        per_seed = []
        for pairs in seeds.values():
            values = [value for row in pairs.values() if (value := getattr(row, metric)) is not None]
            per_seed += [math.fsum(values) / len(values)] if values else []
        stats[metric] = Stat.of(per_seed)
    return Summary(dataset, method, len(seeds), (min(counts), max(counts)), stats)


def group_by_dataset(summaries: Iterable[Summary]) -> dict[str, list[Summary]]:
    """The summaries of each data set, in the given order."""
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(summary.dataset, []).append(summary)
    return groups


def table_columns(summaries: Sequence[Summary]) -> dict[str, str]:
    """The columns of a table of these, by field of RunScore, with their headings: IoU only where some run has it."""
    return {name: text for name, text in IOU_COLUMNS.items() if any(s.stats[name].n for s in summaries)} | SCORE_COLUMNS


def file_columns(summaries: Sequence[Summary]) -> tuple[str, ...]:
    """All fields of RunScore that some run has, for the files of numbers."""
    return (*table_columns(summaries), *(name for name in FILE_COLUMNS if any(s.stats[name].n for s in summaries)))


def headline(summaries: Sequence[Summary]) -> str:
    """The field by which methods of one data set are ranked: mean IoU where it exists, else accuracy."""
    return next(iter(table_columns(summaries)))


def column_legend(summaries: Sequence[Summary]) -> str:
    """What the columns of a table of these are."""
    return LEGEND if headline(summaries) in IOU_COLUMNS else PLAIN_LEGEND


def best_methods(summaries: Sequence[Summary]) -> set[tuple[str, str]]:
    """(data set, method) of the highest mean of each data set's headline; several when they tie as printed."""
    best = set()
    for dataset, group in group_by_dataset(summaries).items():
        measure = headline(group)
        printed = {s.method: round(s.stats[measure].mean or 0.0, 3) for s in group}
        best |= {(dataset, method) for method, value in printed.items() if value == max(printed.values())}
    return best


def averaging_note(summaries: Sequence[Summary]) -> str:
    """What the numbers are averages of; one sentence for each method where they differ."""
    groups: dict[str, list[str]] = {}
    for summary in summaries:
        groups.setdefault(summary.averaged, []).append(f"{reveal(summary.method)} on {reveal(summary.dataset)}")
    if len(groups) == 1:
        text = next(iter(groups)) + "."
    else:
        text = " ".join(f"{', '.join(names)}: {averaged}." for averaged, names in groups.items())
    heads = table_columns(summaries)
    partial = [heads[m] for m in heads if any(0 < s.stats[m].n < s.seeds for s in summaries)]
    text += f" {', '.join(partial)}: over the seeds in which it exists." if partial else ""
    return text + (" acc beside mIoU is pixel accuracy." if headline(summaries) in IOU_COLUMNS else "")


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
