"""Compare tables: what many runs come to, as text, Markdown, CSV and LaTeX.

A seed's value is the mean over its pairs (the tasks of a data set: amazon → dslr, …). The table shows the mean of
these values and their sample standard deviation: Σ (v − mean)² / (n − 1). Values that do not exist (None) are left out.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from embasis.errors import require
from embasis.report.records import visible

METRICS = {
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
WIDTH = 80
NONE = "–"
PLUS_MINUS = "\u00b1"
LEGEND = (
    "acc: accuracy of the labels. class: mean over classes. net: the network alone. ECE, NLL: calibration, lower is "
    "better. AUROC: uncertainty against errors. trust: share of labels trusted. prec: accuracy of the trusted. "
    "sec: seconds of a run."
)


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

    def cells(self) -> dict[str, Any]:
        """One line of a table of runs: every value by its name, then `accuracy of <class>` for each class."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if not name.startswith("class_")}
        classes = zip(self.class_names, self.class_accuracy, strict=True)
        return plain | {f"accuracy of {name}": accuracy for name, accuracy in classes}


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


def summarise(rows: Iterable[RunScore]) -> list[Summary]:
    """One summary per data set and method, in the order of their first rows."""
    groups: dict[tuple[str, str], dict[int, dict[str, RunScore]]] = {}
    for row in rows:
        pairs = groups.setdefault((row.dataset, row.method), {}).setdefault(row.seed, {})
        run = f"{visible(row.method)} on {visible(row.dataset)} / {visible(row.pair)}, seed {row.seed}"
        require(row.pair not in pairs, f"rows must be unique, got two of {run}")
        pairs[row.pair] = row
    return [_summary(dataset, method, seeds) for (dataset, method), seeds in groups.items()]


def _summary(dataset: str, method: str, seeds: dict[int, dict[str, RunScore]]) -> Summary:
    counts = [len(pairs) for pairs in seeds.values()]
    stats = {}
    for metric in METRICS:
        per_seed = []
        for pairs in seeds.values():
            values = [value for row in pairs.values() if (value := getattr(row, metric)) is not None]
            per_seed += [math.fsum(values) / len(values)] if values else []
        stats[metric] = Stat.of(per_seed)
    return Summary(dataset, method, len(seeds), (min(counts), max(counts)), stats)


def by_dataset(summaries: Iterable[Summary]) -> dict[str, list[Summary]]:
    """The summaries of each data set, in the given order."""
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(summary.dataset, []).append(summary)
    return groups


def best_of(summaries: Sequence[Summary]) -> set[tuple[str, str]]:
    """(data set, method) of the highest mean accuracy of each data set; several when they tie as printed."""
    best = set()
    for dataset, group in by_dataset(summaries).items():
        printed = {s.method: round(s.stats["accuracy"].mean or 0.0, 3) for s in group}
        best |= {(dataset, method) for method, value in printed.items() if value == max(printed.values())}
    return best


def caption(summaries: Sequence[Summary]) -> str:
    """What the numbers are averages of; said per method where methods differ."""
    groups: dict[str, list[str]] = {}
    for summary in summaries:
        groups.setdefault(summary.averaged, []).append(f"{visible(summary.method)} on {visible(summary.dataset)}")
    if len(groups) == 1:
        text = next(iter(groups)) + "."
    else:
        text = " ".join(f"{', '.join(names)}: {averaged}." for averaged, names in groups.items())
    partial = [METRICS[m] for m in METRICS if any(0 < s.stats[m].n < s.seeds for s in summaries)]
    return text + (f" {', '.join(partial)}: over the seeds in which it exists." if partial else "")


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
    """A table for the terminal: ± stands below its mean, so that eight columns fit; * marks the best accuracy."""
    metrics = [metric for metric in METRICS if metric != "network_accuracy"]
    best, lines = best_of(summaries), list[str]()
    for dataset, group in by_dataset(summaries).items():
        cells = [["method", *(METRICS[m] for m in metrics)]]
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
    best = best_of(summaries)
    rows = []
    for s in summaries:
        values = [cell(metric, s.stats[metric]) for metric in METRICS]
        values[0] = bold(values[0]) if (s.dataset, s.method) in best else values[0]
        rows.append([name(s.dataset), name(s.method), *values])
    return rows


def escaped(text: str) -> str:
    """Text as Markdown shows it."""
    return re.sub(r"([\\`*_\[\]<>|&#~])", r"\\\1", visible(text))


def as_markdown(summaries: Sequence[Summary]) -> str:
    """A Markdown table, the best accuracy of each data set in bold."""
    header = ["data set", "method", *METRICS.values()]
    rows = [header, ["---", "---", *["---:"] * len(METRICS)], *_grid(summaries, escaped, lambda text: f"**{text}**")]
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
        for metric, stat in s.stats.items():
            value = ["" if number is None else repr(float(number)) for number in (stat.mean, stat.std)]
            writer.writerow([_inert(s.dataset), _inert(s.method), metric, *value, stat.n, s.seeds, *s.pairs])
    return out.getvalue()


def _inert(text: str) -> str:
    text = visible(text)
    return "'" + text if text[:1] in tuple("=+-@'") else text


def as_latex(summaries: Sequence[Summary]) -> str:
    """A tabular for the booktabs package, the best accuracy of each data set in bold."""
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
    header = " & ".join(["data set", "method", *METRICS.values()]) + r" \\"
    note = maths(name(caption(summaries)))
    start, end = rf"\begin{{tabular}}{{ll{'r' * len(METRICS)}}}", r"\end{tabular}"
    return f"% {note}\n{start}\n\\toprule\n{header}\n\\midrule\n{body}\n\\bottomrule\n{end}\n"
