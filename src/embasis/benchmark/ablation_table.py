"""What each part of a method is worth: paired runs with and without it.

| symbol | meaning |
| --- | --- |
| run | one pair of a data set, one seed |
| d | score with the part − score without it, in the same run; of ECE, where low is good, the other way round |
| worth | mean of d over the runs: positive means that the part helps, whether it is on by default or not |
| error | standard error of the worth: sd(d) / √n, sd with n − 1 |
| verdict | helps, hurts: worth is more than two errors from 0; not measurable: it is not; one run: there is no error |

Seeds of one pair see the same data, and pairs of one seed are tasks that a part may suit or not, so neither are n
independent runs. d is averaged over the seeds of each pair, and over the pairs of each seed; the larger standard error
of the two is the error.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from embasis.benchmark.scores import (
    PLUS_MINUS,
    RunScore,
    Stat,
    Summary,
    averaging_note,
    headline,
    summarise_runs,
    table_columns,
)
from embasis.benchmark.tables import TABLE_WIDTH, escape_markdown, format_metric, format_stat
from embasis.report.summary import DASH, PageTable

LOWER_IS_BETTER = ("ece",)
"""Measures that are better when they are lower."""
DEFAULT_RUNS = "em_basis"
"""The method, and the name of the runs with its default."""


@dataclass(frozen=True)
class AblatedPart:
    """A part of the method: what it does, and the change that turns it off, or on where it is off by default."""

    about: str
    changes: Mapping[str, Any]
    """Of the method's parts (methods/parts.py)."""
    adds: bool = False
    """It is off by default."""
    method: str = DEFAULT_RUNS
    needs: str = ""
    """What the labeller must have learned by default, or else the part is not used on the data."""

    @property
    def change_text(self) -> str:
        """What was changed, as fields of parts."""
        names = {path: path.removeprefix("labeller.").removeprefix("selector.") for path in self.changes}
        found = [f"{names[path]}={format_setting(value)}" for path, value in self.changes.items()]
        return " ".join(found) or f"method={self.method}"


def format_setting(value: Any) -> str:
    """As settings are written."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def run_name(name: str, part: AblatedPart) -> str:
    """The name of the runs with that part changed."""
    return f"{'with' if part.adds else 'without'} {name}"


@dataclass(frozen=True)
class Worth:
    """Mean and standard error of what a part adds to a measure, over n runs; error is None if there is one run only."""

    mean: float | None
    error: float | None
    n: int

    @property
    def effect(self) -> str:
        """In words."""
        return DASH if self.mean is None else classify_effect(self.mean, self.error)

    @property
    def text(self) -> str:
        """`+0.012*`: the star says that it is more than two standard errors from 0."""
        if self.mean is None:
            return DASH
        return (f"{self.mean:+.3f}" if self.mean else "0.000") + ("*" if self.effect in ("helps", "hurts") else "")


def classify_effect(mean: float, error: float | None) -> str:
    """Whether a part helps: |mean| > 2 error."""
    if error is None:
        return "one run"
    # The same gain in two of three runs is two errors to the bit or nearly: rounding must not decide.
    if not abs(mean) > 2 * error * (1 + 1e-9):
        return "not measurable"
    return "helps" if mean > 0 else "hurts"


def measure_worth(plain: Sequence[RunScore], changed: Sequence[RunScore], measure: str, adds: bool) -> Worth:
    """What the part is worth, from the runs by default and those with it changed."""
    by_run = {(row.pair, row.seed): getattr(row, measure) for row in plain}
    sign = (1 if adds else -1) * (-1 if measure in LOWER_IS_BETTER else 1)
    found: dict[tuple[str, int], float] = {}
    for row in changed:
        before, after = by_run.get((row.pair, row.seed)), getattr(row, measure)
        if before is not None and after is not None:
            found[row.pair, row.seed] = sign * (after - before) + 0.0  # no −0
    errors = [error for place in (0, 1) if (error := standard_error(group_means(found, place))) is not None]
    return Worth(Stat.of([*found.values()]).mean, max(errors, default=None), len(found))


def group_means(found: Mapping[tuple[str, int], float], place: int) -> list[float]:
    """One mean for each pair (place 0) or each seed (1)."""
    groups: dict[Any, list[float]] = {}
    for key, value in found.items():
        groups.setdefault(key[place], []).append(value)
    return [math.fsum(values) / len(values) for values in groups.values()]


def standard_error(values: Sequence[float]) -> float | None:
    """sd / √n; None for fewer than two."""
    std = Stat.of(values).std
    return None if std is None else std / math.sqrt(len(values))


@dataclass(frozen=True)
class AblationLine:
    """One part: the runs without it (or with it, where it is off by default), and what it is worth."""

    name: str
    part: AblatedPart
    summary: Summary
    worth: dict[str, Worth]
    """by measure"""


@dataclass(frozen=True)
class Ablation:
    """The runs by default, then the parts by falling worth."""

    plain: Summary
    lines: tuple[AblationLine, ...]
    unused: tuple[str, ...]
    """Parts that are not used on this data set."""

    @property
    def summaries(self) -> list[Summary]:
        """Of all runs, in this order."""
        return [self.plain, *(line.summary for line in self.lines)]

    @property
    def measures(self) -> dict[str, str]:
        """What is measured, with its heading: accuracy, or the mean IoU of label maps; calibration; ranking."""
        heads = table_columns(self.summaries)
        return {name: heads[name] for name in (headline(self.summaries), "ece", "auroc")}


def summarise_ablation(rows: Sequence[RunScore], parts: Mapping[str, AblatedPart]) -> Ablation:
    """What the runs of one data set say about these parts."""
    summaries = {summary.method: summary for summary in summarise_runs(rows)}
    plain = [row for row in rows if row.method == DEFAULT_RUNS]
    measure, lines = headline([*summaries.values()]), list[AblationLine]()
    for name, part in parts.items():
        changed = [row for row in rows if row.method == run_name(name, part)]
        if changed:
            found = {field: measure_worth(plain, changed, field, part.adds) for field in (measure, "ece", "auroc")}
            lines.append(AblationLine(name, part, summaries[run_name(name, part)], found))
    there = {line.name for line in lines}
    lines.sort(key=lambda line: -(line.worth[measure].mean or 0.0))
    return Ablation(summaries[DEFAULT_RUNS], tuple(lines), tuple(name for name in parts if name not in there))


def ablation_note(found: Ablation) -> str:
    """What the numbers are."""
    first = next(iter(found.measures.values()))
    text = averaging_note(found.summaries)
    text += " worth: how much better the same runs are with the part than without it; ECE: how much lower. "
    several = found.plain.seeds > 1 and found.plain.pairs[1] > 1
    if any(value.error is not None for line in found.lines for value in line.worth.values()):
        text += f"{PLUS_MINUS} there: standard error{', over pairs or over seeds, the larger' if several else ''}. "
        text += f"*: more than two of them from 0; the verdict is for {first}."
    else:
        text += "One run has no standard error: use --seeds."
    return text + (f" Not used on this data set, so left out: {', '.join(found.unused)}." if found.unused else "")


def ablation_text(found: Ablation) -> str:
    """A table for the terminal: below each run stands what was changed, below each number its deviation or error."""
    heads, stat = [*found.measures.values()], headline(found.summaries)
    plain = found.plain.stats[stat]
    cells = [
        ["", heads[0], *(f"{head} " for head in heads), "verdict"],
        [DEFAULT_RUNS, format_metric(stat, plain.mean), *[""] * len(heads), ""],
    ]
    if plain.std is not None:
        cells.append(["", PLUS_MINUS + format_metric(stat, plain.std), *[""] * len(heads), ""])
    for line in found.lines:
        own = line.summary.stats[stat]
        worths = [line.worth[measure] for measure in found.measures]
        shown = [value.text if value.text.endswith("*") else f"{value.text} " for value in worths]
        errors = ["" if value.error is None else f"{PLUS_MINUS}{value.error:.3f} " for value in worths]
        deviation = "" if own.std is None else PLUS_MINUS + format_metric(stat, own.std)
        cells.append([line.summary.method, format_metric(stat, own.mean), *shown, worths[0].effect])
        cells.append([f"  {line.part.change_text}", deviation, *errors, ""])
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    title = f"{found.plain.dataset}: what each part of {DEFAULT_RUNS} is worth"
    over = "worth of the part".rjust(sum(widths[:5]) + 4)
    text = [title, "-" * (sum(widths) + len(widths) + 1), over if found.lines else ""]
    for row in cells:
        numbers = [value.rjust(width) for value, width in zip(row[1:-1], widths[1:-1], strict=True)]
        text.append(" ".join([row[0].ljust(widths[0]), *numbers, f" {row[-1]}"]).rstrip())
    return "\n".join([*filter(None, text), "", *textwrap.wrap(ablation_note(found), TABLE_WIDTH), ""])


ABLATION_HEADER = ("part", "by default", "changed to")
ABLATION_COLUMNS = (
    "part", "by_default", "changed_to", "metric", "mean", "std", "worth", "standard_error", "runs", "verdict"
)  # fmt: skip


def ablation_grid(found: Ablation) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the whole table."""
    measures, stat = found.measures, headline(found.summaries)
    header = [
        *ABLATION_HEADER,
        measures[stat],
        *(f"worth in {head}" for head in measures.values()),
        "verdict",
        "what it does",
    ]
    rows = [[DEFAULT_RUNS, "", "", format_stat(stat, found.plain.stats[stat]), *[""] * (len(measures) + 2)]]
    for line in found.lines:
        values = [line.worth[measure] for measure in measures]
        shown = [
            value.text if value.error is None else f"{value.text} {PLUS_MINUS} {value.error:.3f}" for value in values
        ]
        row = [
            line.name,
            "off" if line.part.adds else "on",
            line.part.change_text,
            format_stat(stat, line.summary.stats[stat]),
        ]
        rows.append([*row, *shown, values[0].effect, line.part.about])
    return header, rows


def ablation_markdown(found: Ablation) -> str:
    """A Markdown table."""
    header, rows = ablation_grid(found)
    rule = ["---"] * 3 + ["---:"] * (1 + len(found.measures)) + ["---"] * 2
    lines = [header, rule, *([escape_markdown(value) for value in row] for row in rows)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{table}\n\n{escape_markdown(ablation_note(found))}\n"


def ablation_page_table(found: Ablation) -> PageTable:
    """The same for the page, with what the parts do below it; what helps is bold."""
    header, rows = ablation_grid(found)
    bold = frozenset(place for place, row in enumerate(rows) if row[-2] == "helps")
    about = " ".join(f"{line.name}: {line.part.about}." for line in found.lines)
    below = f"{ablation_note(found)} Bold: it helps. {about}"
    return PageTable("What each part is worth", header[:-1], [row[:-1] for row in rows], below, bold)


def ablation_columns(found: Ablation) -> dict[str, list[Any]]:
    """One row for each part and measure, at full precision; the default first."""
    rows = list[dict[str, Any]]()
    for measure in found.measures:
        own = found.plain.stats[measure]
        rows.append(
            dict(
                zip(
                    ABLATION_COLUMNS,
                    (DEFAULT_RUNS, "", "", measure, own.mean, own.std, None, None, own.n, ""),
                    strict=True,
                )
            )
        )
    for line in found.lines:
        part = (line.name, "off" if line.part.adds else "on", line.part.change_text)
        for measure, value in line.worth.items():
            own = line.summary.stats[measure]
            numbers = (own.mean, own.std, value.mean, value.error, value.n, value.effect)
            rows.append(dict(zip(ABLATION_COLUMNS, (*part, measure, *numbers), strict=True)))
    dataset = {"dataset": [found.plain.dataset] * len(rows)}
    return dataset | {name: [row[name] for row in rows] for name in ABLATION_COLUMNS}
