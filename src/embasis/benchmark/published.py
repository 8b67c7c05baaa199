"""Results that others published, and the paper's table for a comparison: our runs first, then theirs, never mixed.

They are read from published.toml: embasis/published.toml of an installed package, benchmarks/published.toml of a clone.

A cell of ours is the mean and sample standard deviation over seeds, in per cent. Columns are pairs of domains (the
accuracy over all images of the target) or classes (the accuracy of each class, or its IoU in label maps). The last
columns are means over the columns of each seed; a mean is left out where one of its columns is missing, because it
could not be held against the others. Where the columns do not fit a terminal they are printed in blocks.
"""

from __future__ import annotations

import itertools
import math
import textwrap
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embasis.benchmark.scores import (
    PLUS_MINUS,
    TABLE_WIDTH,
    RunScore,
    Stat,
    align_row,
    column_widths,
    escape_markdown,
    markdown_lines,
)
from embasis.errors import reveal
from embasis.report.summary import DASH

PACKAGE_FOLDER = Path(__file__).parent.parent
PUBLISHED_FILES = (PACKAGE_FOLDER / "published.toml", PACKAGE_FOLDER.parent.parent / "benchmarks" / "published.toml")
OUR_MEASURES = {
    "pairs": "accuracy over all images of the target",
    "classes": "the last column is the mean over classes",
}
"""What our rows show, by kind of table."""
INDENT = "  "
"""Before the name of a row that belongs to the row above it."""
OUR_IOU = "IoU of each class from one confusion matrix of all pixels; mIoU is the mean over classes"


@dataclass(frozen=True)
class PublishedRow:
    """One method of a published table, in per cent; None where the source prints a dash."""

    method: str
    values: tuple[float | None, ...]
    means: tuple[float | None, ...]
    spread: tuple[float, ...] = ()
    """the numbers after ±, one a column; empty where none are printed"""
    backbone: str = ""
    cites: str = ""
    source: str = ""
    """the row's own source, where it is not that of the table"""
    commit: str = ""
    averaged: str = ""
    verified: str = ""
    """how the row was checked; empty for rows of the paper, whose text we have"""
    check: str = ""
    """what is wrong with the printed means; empty where they are the means of the printed columns"""
    runs: tuple[str, ...] = ()
    """our methods that stand for the row when the whole table is run"""
    caveat: str = ""
    """why the row may not be what its name says"""

    @property
    def name(self) -> str:
        """The method and its backbone, where it is printed; the paper's "Ours" is not ours."""
        method = f"{self.method} (paper)" if self.method == "Ours" and not self.source else self.method
        return f"{method}, {self.backbone}" if self.backbone else method


@dataclass(frozen=True)
class PublishedTable:
    """One table of the paper, as printed, and rows for the same columns from elsewhere."""

    dataset: str
    title: str
    source: str
    averaged: str
    measure: str
    kind: str
    """"pairs": a column is a pair of domains, "classes": a column is a class"""
    columns: tuple[str, ...]
    short: tuple[str, ...]
    """headings for a terminal"""
    keys: tuple[str, ...]
    """our name of each column: source→target, or the class"""
    means: tuple[str, ...]
    """headings of the means, which follow the columns"""
    without: tuple[str, ...]
    """columns that the last mean leaves out"""
    rows: tuple[PublishedRow, ...]
    elsewhere: tuple[PublishedRow, ...]

    @property
    def is_iou(self) -> bool:
        """Whether its figures are IoU of label maps."""
        return self.measure.startswith("IoU")

    @property
    def heading(self) -> str:
        """What is shown, of which data set."""
        return f"{self.title}, as in the paper: {self.measure.partition(';')[0]}"

    @property
    def our_measure(self) -> str:
        """What rows of ours show in these columns."""
        return OUR_IOU if self.is_iou else OUR_MEASURES[self.kind]

    @property
    def column_names(self) -> list[str]:
        """A sentence: what headings stand for, the printed ones or, where these are short themselves, our classes."""
        pairs = zip(self.short, self.keys if self.is_iou else self.columns, strict=True)
        names = [f"{short} {name}" for short, name in pairs if short.strip("*").lower() != name.lower()]
        return [f"Columns: {', '.join(names)}."] if names else []

    @property
    def sources(self) -> list[str]:
        """The source of the table, then those of rows from elsewhere, each once, and which rows are doubtful."""
        groups: dict[str, list[str]] = {}
        for row in self.elsewhere:
            groups.setdefault(row.source, []).append(row.method)
        others = [f"{', '.join(methods)}: {source} (read in a stored copy)." for source, methods in groups.items()]
        caveats = [f"{row.name}: {row.caveat}." for row in self.rows if row.caveat]
        return [f"Published: {self.source}. {self.averaged}.", *others, *caveats]


def find_published(dataset: str) -> PublishedTable | None:
    """The published table of a data set, None where there is none."""
    raw = read_published().get(dataset)
    if raw is None:
        return None
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}
    fields = {"short": fields["columns"], "without": ()} | fields
    rows, elsewhere = (tuple(map(parse_row, fields.pop(name, ()))) for name in ("row", "elsewhere"))
    return PublishedTable(dataset=dataset, rows=rows, elsewhere=elsewhere, **fields)


def read_published() -> dict[str, Any]:
    """All tables of the file by data set; none if the file is missing, as no result of ours depends on it."""
    place = next((path for path in PUBLISHED_FILES if path.is_file()), None)
    return {} if place is None else tomllib.loads(place.read_text(encoding="utf-8"))


def parse_row(raw: dict[str, Any]) -> PublishedRow:
    """One method as the file has it; - is a dash of the source."""
    numbers = {
        name: tuple(None if printed == "-" else float(printed) for printed in raw.get(name, ()))
        for name in ("values", "means", "spread")
    }
    return PublishedRow(**{**raw, **numbers, "runs": tuple(raw.get("runs", ()))})


def match_table(dataset: str, rows: Sequence[RunScore]) -> PublishedTable | None:
    """The published table; one of IoU only if some run of ours has it."""
    table = find_published(dataset)
    if table is None or not table.is_iou or any(row.dataset == dataset and row.class_iou for row in rows):
        return table
    return None


def paper_table(dataset: str, rows: Sequence[RunScore]) -> str | None:
    """The table for a terminal, None where the paper has none for this data set that these rows could fill."""
    table = match_table(dataset, rows)
    if table is None:
        return None
    inline, ours = table.kind == "pairs", our_stats(table, rows)
    lines = [["method", *table.short, *table.means]]
    headings = {1: f"ours, {describe_seeds(table, rows)}:"} if ours else {}
    for method, stats in ours.items():
        lines += stat_lines(reveal(method), stats, inline)
    for where, group in (("published", table.rows), ("published elsewhere", table.elsewhere)):
        headings |= {len(lines): f"{where}, not run by us:"} if group else {}
        lines += [[row.name, *published_cells(row, inline, PLUS_MINUS)] for row in group]
    notes = [f"Ours: {table.our_measure}.", *table.column_names, *table.sources]
    below = [textwrap.wrap(note, TABLE_WIDTH, break_long_words=False, break_on_hyphens=False) for note in notes]
    return "\n".join([table.heading, *split_blocks(lines, headings), "", *itertools.chain(*below), ""])


def paper_markdown(dataset: str, rows: Sequence[RunScore]) -> str | None:
    """The same as Markdown: one table of ours, one of what is published."""
    table = match_table(dataset, rows)
    if table is None:
        return None
    header = ["method", *(name.replace("*", "\\*") for name in (*table.columns, *table.means))]
    grid, sign = [header, ["---", *["---:"] * (len(header) - 1)]], f" {PLUS_MINUS} "
    ours = [
        [escape_markdown(name), *(format_percent(stat.mean, stat.std, sign) for stat in stats)]
        for name, stats in our_stats(table, rows).items()
    ]
    theirs = [[escape_markdown(row.name), *published_cells(row, True, sign)] for row in (*table.rows, *table.elsewhere)]
    parts = [f"### {table.heading}"]
    if ours:
        parts += [f"Ours, {describe_seeds(table, rows)}; {table.our_measure}:", markdown_lines([*grid, *ours])]
    checks = [f"{row.name}: {row.check}." for row in table.rows if row.check]
    notes = [*(table.column_names if table.is_iou else []), *table.sources, *checks]
    parts += ["Published, not run by us:", markdown_lines([*grid, *theirs])]
    return "\n\n".join([*parts, "\n".join(f"- {escape_markdown(note)}" for note in notes)]) + "\n"


def our_stats(table: PublishedTable, rows: Sequence[RunScore]) -> dict[str, list[Stat]]:
    """A method's stat of each column, then those of the means: over the seeds that have all of their columns."""
    named = list(zip(table.keys, table.columns, strict=True))
    averaged = [[key for key, name in named if i == 0 or name not in table.without] for i in range(len(table.means))]
    stats = {}
    for method, seeds in values_by_seed(table, rows).items():
        columns = [[seed[key] for seed in seeds if key in seed] for key in table.keys]
        for keys in averaged:
            whole = [seed for seed in seeds if seed.keys() >= {*keys}]
            columns.append([math.fsum(seed[key] for key in keys) / len(keys) for seed in whole])
        stats[method] = [Stat.of(values) for values in columns]
    return stats


def values_by_seed(table: PublishedTable, rows: Sequence[RunScore]) -> dict[str, list[dict[str, float]]]:
    """Method → for each seed, the value of each column in per cent."""
    by_method: dict[str, dict[int, dict[str, float]]] = {}
    for row in rows:
        if row.dataset == table.dataset:
            accuracies = dict(zip(row.class_names, row.class_accuracy, strict=True))
            classes = row.ious if table.is_iou else accuracies
            cells = {row.pair: row.accuracy} if table.kind == "pairs" else classes
            known = {key: 100 * value for key, value in cells.items() if value is not None}
            by_method.setdefault(row.method, {}).setdefault(row.seed, {}).update(known)
    return {method: list(seeds.values()) for method, seeds in by_method.items()}


def describe_seeds(table: PublishedTable, rows: Sequence[RunScore]) -> str:
    """Over how many seeds our rows are averaged."""
    counts = sorted({len(seeds) for seeds in values_by_seed(table, rows).values()})
    if counts == [1]:
        return "one seed"
    return f"mean {PLUS_MINUS} std over {' to '.join(dict.fromkeys(map(str, (counts[0], counts[-1]))))} seeds"


def format_percent(value: float | None, std: float | None = None, sign: str = PLUS_MINUS) -> str:
    """One decimal; 100 has none, so that columns of classes stay narrow."""
    text = DASH if value is None else f"{value:.1f}".replace("100.0", "100")
    return text if std is None else f"{text}{sign}{format_percent(std)}"


def stat_lines(name: str, stats: Sequence[Stat], inline: bool) -> list[list[str]]:
    """± beside the mean, or below it where columns are narrow."""
    if inline:
        return [[name, *(format_percent(stat.mean, stat.std) for stat in stats)]]
    below = ["" if stat.std is None else PLUS_MINUS + format_percent(stat.std) for stat in stats]
    return [[name, *(format_percent(stat.mean) for stat in stats)], *([["", *below]] if any(below) else [])]


def published_cells(row: PublishedRow, inline: bool, sign: str) -> list[str]:
    """The columns of a published row, with ± where there is room for it, and its means."""
    spread = row.spread if inline and row.spread else (None,) * len(row.values)
    cells = [format_percent(value, std, sign) for value, std in zip(row.values, spread, strict=True)]
    return [*cells, *map(format_percent, row.means)]


def split_blocks(lines: list[list[str]], headings: dict[int, str]) -> list[str]:
    """The table in as few blocks of columns as fit; a block leaves out the rows that have nothing in it."""
    widths = [width + 1 for width in column_widths(lines)]
    room, count = TABLE_WIDTH + 1 - widths[0], len(widths) - 1
    parts = 1
    while parts < count and any(sum(widths[i] for i in part) > room for part in column_blocks(count, parts)):
        parts += 1
    if parts == 1:
        return align_lines(lines, headings)
    blocks = [["", *align_lines(*take_block(lines, headings, part))] for part in column_blocks(count, parts)]
    return [line for block in blocks for line in block][1:]


def column_blocks(count: int, parts: int) -> list[range]:
    """Numbers 1 … count in runs of nearly the same length."""
    ends = [1 + count * part // parts for part in range(parts + 1)]
    return [range(start, end) for start, end in itertools.pairwise(ends)]


def take_block(lines: list[list[str]], headings: dict[int, str], part: range) -> tuple[list[list[str]], dict[int, str]]:
    """Some columns of the table, with the headings before its rows. An indented row and the one that it belongs to stay
    even where they have nothing: else it would stand below another one."""
    kept: list[list[str]] = []
    kept_headings: dict[int, str] = {}
    indented = [line[0].startswith(INDENT) for line in lines]
    for number, (line, below) in enumerate(zip(lines, [*indented[1:], False], strict=True)):
        if number in headings:
            kept_headings[len(kept)] = headings[number]
        cells = [line[i] for i in part]
        if number == 0 or indented[number] or below or any(cell not in ("", DASH) for cell in cells):
            kept.append([line[0], *cells])
    return kept, {number: heading for number, heading in kept_headings.items() if number < len(kept)}


def align_lines(lines: list[list[str]], headings: dict[int, str]) -> list[str]:
    """Columns side by side; `headings` are lines of words before the line of that number."""
    widths = column_widths(lines)
    drawn = ["-" * min(TABLE_WIDTH, sum(widths) + len(widths) - 1)]
    for number, line in enumerate(lines):
        drawn += [headings[number]] if number in headings else []
        drawn.append(align_row(line, widths).rstrip())
    return drawn
