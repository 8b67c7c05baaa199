"""A table of the paper with every row run here: below each published row stand our runs of that method, indented.

The published figures are not ours and are never averaged with them: published rows have the networks and settings of
their papers, our rows share one network, its starting weights and one plan.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence

from embasis.benchmark.published import (
    INDENT,
    PublishedTable,
    describe_seeds,
    find_published,
    format_percent,
    our_stats,
    published_cells,
    split_blocks,
    stat_lines,
)
from embasis.benchmark.scores import PLUS_MINUS, TABLE_WIDTH, RunScore, escape_markdown, markdown_lines
from embasis.errors import ConfigError, join_names, require, reveal
from embasis.report.summary import DASH, PageTable

OURS = "ours"
"""How the column that says whose a row is begins for rows that were run here."""


def find_table(dataset: str) -> PublishedTable:
    """The paper's table of a data set, or a ConfigError."""
    table = find_published(dataset)
    rule = f"the paper has no table of {reveal(dataset)}; it has one of {join_names(PAPER_SETS)}"
    require(table is not None, rule, ConfigError)
    assert table is not None
    return table


PAPER_SETS = ("office31", "visda17", "gta5_cityscapes", "synthia_cityscapes")


def methods_of_table(table: PublishedTable) -> tuple[str, ...]:
    """The methods that run for a table, in the order of its rows."""
    return tuple(dict.fromkeys(name for row in table.rows for name in row.runs))


def paired_table(table: PublishedTable, rows: Sequence[RunScore]) -> str:
    """The table for a terminal."""
    inline, ours, shown = table.kind == "pairs", our_stats(table, rows), set[str]()
    lines, headings = [["method", *table.short, *table.means]], dict[int, str]()
    nothing = [DASH] * (len(table.columns) + len(table.means))
    for row in table.rows:
        lines.append([row.name, *published_cells(row, inline, PLUS_MINUS)])
        for name in dict.fromkeys(name for name in row.runs if name not in shown):
            new = (
                stat_lines(f"{INDENT}{name}, ours", ours[name], inline)
                if name in ours
                else [[f"{INDENT}{name}, not run", *nothing]]
            )
            lines += new
        shown |= {*row.runs}
    headings |= {len(lines): "published elsewhere, not run by us:"} if table.elsewhere else {}
    lines += [[row.name, *published_cells(row, inline, PLUS_MINUS)] for row in table.elsewhere]
    notes = [*notes_below(table, rows), *table.column_names, *table.sources]
    below = [textwrap.wrap(note, TABLE_WIDTH, break_long_words=False, break_on_hyphens=False) for note in notes]
    return "\n".join([table.heading, *split_blocks(lines, headings), "", *itertools.chain(*below), ""])


def notes_below(table: PublishedTable, rows: Sequence[RunScore]) -> list[str]:
    """Whose the rows are, and what ours show."""
    whose = "Indented rows are ours: one network, one start and one plan for all"
    return [
        f"{whose}; {describe_seeds(table, rows)}. All others are published, not run by us.",
        f"Ours: {table.our_measure}.",
    ]


def paired_markdown(table: PublishedTable, rows: Sequence[RunScore]) -> str:
    """The same as Markdown, with a column that says whose a row is."""
    header = ["method", "whose", *(name.replace("*", "\\*") for name in (*table.columns, *table.means))]
    grid = [header, ["---", "---", *["---:"] * (len(header) - 2)]]
    for name, whose, cells in paired_lines(table, rows):
        grid.append([f"`{name}`" if whose.startswith(OURS) else escape_markdown(name), whose, *cells])
    notes = "\n".join(f"- {escape_markdown(note)}" for note in notes_beside(table))
    return "\n\n".join([f"### {table.heading}", markdown_lines(grid), notes])


def paired_page_table(table: PublishedTable, rows: Sequence[RunScore]) -> PageTable:
    """The same for the page of a comparison."""
    lines = [[name, whose, *cells] for name, whose, cells in paired_lines(table, rows)]
    header = ("method", "whose", *table.columns, *table.means)
    return PageTable(table.heading, header, lines, " ".join(notes_beside(table)))


def paired_lines(table: PublishedTable, rows: Sequence[RunScore]) -> Iterator[tuple[str, str, list[str]]]:
    """Name, whose it is, and cells of each published row and of our methods below it."""
    ours, shown, sign = our_stats(table, rows), set[str](), f" {PLUS_MINUS} "
    nothing = [DASH] * (len(table.columns) + len(table.means))
    for row in table.rows:
        yield row.name, "published", published_cells(row, True, sign)
        for name in dict.fromkeys(name for name in row.runs if name not in shown):
            if name in ours:
                cells = [format_percent(stat.mean, stat.std, sign) for stat in ours[name]]
                yield name, f"{OURS}, {describe_seeds(table, rows)}", cells
            else:
                yield name, f"{OURS}, not run", nothing
        shown |= {*row.runs}
    for row in table.elsewhere:
        yield row.name, "published elsewhere", published_cells(row, True, sign)


def notes_beside(table: PublishedTable) -> list[str]:
    """What ours show, where all others come from, and what is doubtful about them."""
    checks = [f"{row.name}: {row.check}." for row in table.rows if row.check]
    ours = f"Ours: {table.our_measure}; one network, one start and one plan for all."
    return [ours, *table.column_names, *table.sources, *checks]
