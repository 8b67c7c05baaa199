"""What each part of a method is worth: paired runs with and without it.

| symbol | meaning |
| --- | --- |
| run | one pair of a data set, one seed |
| d | score with the part − score without it, in the same run; of ECE, where low is good, the other way round |
| worth | mean of d over the runs: positive means that the part helps, whether it is on by default or not |
| error | standard error of the worth: sd(d) / √n, sd with n − 1 |
| effect | helps, hurts: worth is more than two errors from 0; not measurable: it is not; one run: there is no error |

Seeds of one pair see the same data, and pairs of one seed are tasks that a part may suit or not, so neither are n
independent runs. d is averaged over the seeds of each pair, and over the pairs of each seed; the larger standard error
of the two is the error.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from embasis.benchmark.compare import Outcome, Variant, run_variants
from embasis.benchmark.scores import (
    PLUS_MINUS,
    TABLE_WIDTH,
    RunScore,
    Stat,
    Summary,
    align_row,
    averaging_note,
    column_widths,
    escape_markdown,
    format_metric,
    format_stat,
    headline,
    markdown_lines,
    summarise_runs,
    table_columns,
)
from embasis.config import Config
from embasis.errors import ConfigError, lookup, quote, require
from embasis.methods.em_basis.state import CLASS_PRIORS, INVERSE_TEMPERATURE, NEIGHBOUR_ROWS
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
        values = {
            path: str(value).lower() if isinstance(value, bool) else value for path, value in self.changes.items()
        }
        return " ".join(f"{names[path]}={value}" for path, value in values.items()) or f"method={self.method}"


def run_name(name: str, part: AblatedPart) -> str:
    """The name of the runs with that part changed."""
    return f"{'with' if part.adds else 'without'} {name}"


ABLATED_PARTS: Mapping[str, AblatedPart] = {
    "centring": AblatedPart("features of both sides are standardised before EM", {"labeller.mixture.centring": "none"}),
    "stage1": AblatedPart(
        "the source network proposes the first basis by terms of its own", {"labeller.start": "StageOne"}, adds=True
    ),
    "em": AblatedPart(
        "the basis follows the rows of both sides, not the labelled class means alone",
        {"labeller.mixture.iterations": 0},
    ),
    "joint": AblatedPart("labels and the network guide EM, not features alone", {"labeller.mixture.guided": False}),
    "head": AblatedPart(
        "a learned head gives each component its class probabilities, not counts", {"labeller.head": "CountHead"}
    ),
    "variance": AblatedPart(
        "the head is also to give low variance and all classes", {"labeller.head.variance_weight": 0.1}, adds=True
    ),
    "selection": AblatedPart(
        "each class has a threshold of its own; without: one for all", {"selector.selects": "all"}
    ),
    "weights": AblatedPart(
        "trusted labels weigh by their inverse variance", {"selector.weights": "inverse_variance"}, adds=True
    ),
    "draw": AblatedPart(
        "pseudo-labels are drawn from their distribution, not its mode", {"selector.labels": "draw"}, adds=True
    ),
    "recalibration": AblatedPart(
        "probabilities are fitted to reference labels, which self-training does not change",
        {"recalibration": "none"},
        needs=INVERSE_TEMPERATURE,
    ),
    "evidence": AblatedPart(
        "the network's own prediction enters the label distribution", {"labeller.fusion.weight": 0.0}
    ),
    "temper": AblatedPart(
        "the network's prediction is softened until no surer than the basis", {"labeller.fusion.soften": False}
    ),
    "neighbours": AblatedPart(
        "the network's view of the nearest unlabelled rows is a third of the label distribution",
        {"labeller.neighbours.share": 0.0},
        needs=NEIGHBOUR_ROWS,
    ),
    "shares": AblatedPart(
        "class shares of the unlabelled side are estimated",
        {"labeller.fusion.class_priors": "labelled"},
        needs=CLASS_PRIORS,
    ),
    "basis": AblatedPart("all of it; without: class-balanced self-training", {}, method="cbst"),
}
"""By the name that --only takes."""


def select_parts(names: Sequence[str] | None) -> dict[str, AblatedPart]:
    """The parts of these names, or all."""
    parts = {name: lookup(ABLATED_PARTS, name, "part") for name in (ABLATED_PARTS if names is None else names)}
    require(parts, "ablate needs at least one part", ConfigError)
    return parts


def run_ablation(
    dataset: str, parts: Mapping[str, AblatedPart], seeds: Sequence[int], config: Config, root: str | None = None
) -> Iterator[Outcome]:
    """The default, then one part changed at a time, on every pair with every seed; what is given holds for all."""
    name = config.method.get("name", DEFAULT_RUNS)
    require(
        name == DEFAULT_RUNS,
        f"ablate is about {DEFAULT_RUNS}; method.name must be left out, got {quote(name)}",
        ConfigError,
    )
    changed = [Variant(run_name(name, part), part.method, part.changes, part.needs) for name, part in parts.items()]
    yield from run_variants(dataset, [Variant(DEFAULT_RUNS, DEFAULT_RUNS), *changed], seeds, config, root)


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
    gains: dict[tuple[str, int], float] = {}
    for row in changed:
        before, after = by_run.get((row.pair, row.seed)), getattr(row, measure)
        if before is not None and after is not None:
            gains[row.pair, row.seed] = sign * (after - before) + 0.0  # no −0
    errors = [error for place in (0, 1) if (error := standard_error(group_means(gains, place))) is not None]
    return Worth(Stat.of([*gains.values()]).mean, max(errors, default=None), len(gains))


def group_means(gains: Mapping[tuple[str, int], float], place: int) -> list[float]:
    """One mean for each pair (place 0) or each seed (1)."""
    groups: dict[Any, list[float]] = {}
    for key, value in gains.items():
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

    @property
    def names(self) -> tuple[str, str, str]:
        """The part, whether it is on by default, and what was changed."""
        return self.name, "off" if self.part.adds else "on", self.part.change_text


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
            worths = {field: measure_worth(plain, changed, field, part.adds) for field in (measure, "ece", "auroc")}
            lines.append(AblationLine(name, part, summaries[run_name(name, part)], worths))
    there = {line.name for line in lines}
    lines.sort(key=lambda line: -(line.worth[measure].mean or 0.0))
    return Ablation(summaries[DEFAULT_RUNS], tuple(lines), tuple(name for name in parts if name not in there))


def ablation_note(ablation: Ablation) -> str:
    """What the numbers are."""
    first = next(iter(ablation.measures.values()))
    text = averaging_note(ablation.summaries)
    text += " worth: how much better the same runs are with the part than without it; ECE: how much lower. "
    several = ablation.plain.seeds > 1 and ablation.plain.pairs[1] > 1
    if any(value.error is not None for line in ablation.lines for value in line.worth.values()):
        text += f"{PLUS_MINUS} there: standard error{', over pairs or over seeds, the larger' if several else ''}. "
        text += f"*: more than two of them from 0; the effect is for {first}."
    else:
        text += "One run has no standard error: use --seeds."
    return text + (f" Not used on this data set, so left out: {', '.join(ablation.unused)}." if ablation.unused else "")


def ablation_text(ablation: Ablation) -> str:
    """A table for the terminal: below each run stands what was changed, below each number its deviation or error."""
    heads, stat = [*ablation.measures.values()], headline(ablation.summaries)
    plain = ablation.plain.stats[stat]
    cells = [
        ["", heads[0], *(f"{head} " for head in heads), "effect"],
        [DEFAULT_RUNS, format_metric(stat, plain.mean), *[""] * len(heads), ""],
    ]
    if plain.std is not None:
        cells.append(["", PLUS_MINUS + format_metric(stat, plain.std), *[""] * len(heads), ""])
    for line in ablation.lines:
        own = line.summary.stats[stat]
        worths = [line.worth[measure] for measure in ablation.measures]
        shown = [value.text if value.text.endswith("*") else f"{value.text} " for value in worths]
        errors = ["" if value.error is None else f"{PLUS_MINUS}{value.error:.3f} " for value in worths]
        deviation = "" if own.std is None else PLUS_MINUS + format_metric(stat, own.std)
        cells.append([line.summary.method, format_metric(stat, own.mean), *shown, worths[0].effect])
        cells.append([f"  {line.part.change_text}", deviation, *errors, ""])
    widths = column_widths(cells)
    title = f"{ablation.plain.dataset}: what each part of {DEFAULT_RUNS} is worth"
    over = "worth of the part".rjust(sum(widths[:5]) + 4)
    text = [title, "-" * (sum(widths) + len(widths) + 1), over if ablation.lines else ""]
    text += [f"{align_row(row[:-1], widths[:-1])}  {row[-1]}".rstrip() for row in cells]
    return "\n".join([*filter(None, text), "", *textwrap.wrap(ablation_note(ablation), TABLE_WIDTH), ""])


ABLATION_COLUMNS = (
    "part", "by_default", "changed_to", "metric", "mean", "std", "worth", "standard_error", "runs", "verdict"
)  # fmt: skip
"""Of ablate.csv."""


def ablation_grid(ablation: Ablation) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the whole table."""
    measures, stat = ablation.measures, headline(ablation.summaries)
    worth = [f"worth in {head}" for head in measures.values()]
    header = ["part", "by default", "changed to", measures[stat], *worth, "effect", "what it does"]
    rows = [[DEFAULT_RUNS, "", "", format_stat(stat, ablation.plain.stats[stat]), *[""] * (len(measures) + 2)]]
    for line in ablation.lines:
        values = [line.worth[measure] for measure in measures]
        errors = ["" if value.error is None else f" {PLUS_MINUS} {value.error:.3f}" for value in values]
        shown = [value.text + error for value, error in zip(values, errors, strict=True)]
        own = format_stat(stat, line.summary.stats[stat])
        rows.append([*line.names, own, *shown, values[0].effect, line.part.about])
    return header, rows


def ablation_markdown(ablation: Ablation) -> str:
    """A Markdown table."""
    header, rows = ablation_grid(ablation)
    rule = ["---"] * 3 + ["---:"] * (1 + len(ablation.measures)) + ["---"] * 2
    table = markdown_lines([header, rule, *([escape_markdown(value) for value in row] for row in rows)])
    return f"{table}\n\n{escape_markdown(ablation_note(ablation))}\n"


def ablation_page_table(ablation: Ablation) -> PageTable:
    """The same for the page, with what the parts do below it; what helps is bold."""
    header, rows = ablation_grid(ablation)
    bold = frozenset(place for place, row in enumerate(rows) if row[-2] == "helps")
    about = " ".join(f"{line.name}: {line.part.about}." for line in ablation.lines)
    below = f"{ablation_note(ablation)} Bold: it helps. {about}"
    return PageTable("What each part is worth", header[:-1], [row[:-1] for row in rows], below, bold)


def ablation_columns(ablation: Ablation) -> dict[str, list[Any]]:
    """One row for each part and measure, at full precision; the default first."""
    rows = list[tuple[Any, ...]]()
    for measure in ablation.measures:
        own = ablation.plain.stats[measure]
        rows.append((DEFAULT_RUNS, "", "", measure, own.mean, own.std, None, None, own.n, ""))
    for line in ablation.lines:
        for measure, value in line.worth.items():
            own = line.summary.stats[measure]
            rows.append((*line.names, measure, own.mean, own.std, value.mean, value.error, value.n, value.effect))
    dataset = {"dataset": [ablation.plain.dataset] * len(rows)}
    return dataset | dict(zip(ABLATION_COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
