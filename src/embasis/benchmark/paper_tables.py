"""The paper's table for a comparison: our runs first, then what others published, which we did not run.

A cell of ours is the mean and sample standard deviation over seeds, in per cent. Columns are pairs of domains (the
accuracy over all images of the target) or classes (the accuracy of each class, or its IoU in label maps). The last
columns are means over the columns of each seed; a mean is left out where one of its columns is missing, because it
could not be held against the others. Where the columns do not fit a terminal they are printed in blocks.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Sequence

from embasis.benchmark.published import PublishedRow, PublishedTable, find_published
from embasis.benchmark.scores import PLUS_MINUS, RunScore, Stat
from embasis.benchmark.tables import TABLE_WIDTH, escape_markdown
from embasis.errors import reveal
from embasis.report.summary import DASH

PUBLISHED_HEADING = "published, not run by us:"
ELSEWHERE_HEADING = "published elsewhere, not run by us:"
OUR_MEASURES = {
    "pairs": "accuracy over all images of the target",
    "classes": "the last column is the mean over classes",
}
"""What our rows show, by kind of table."""
OUR_IOU = "IoU of each class from one confusion matrix of all pixels; mIoU is the mean over classes"


def paper_table(dataset: str, rows: Sequence[RunScore]) -> str | None:
    """The table for a terminal, None where the paper has none for this data set that these rows could fill."""
    table = _matching_table(dataset, rows)
    if table is None:
        return None
    inline, ours = table.kind == "pairs", _our_stats(table, rows)
    lines = [["method", *table.short, *table.means]]
    marks = {len(lines): f"ours, {_seed_text(table, rows)}:"} if ours else {}
    for method, stats in ours.items():
        lines += _stat_lines(reveal(method), stats, inline)
    for heading, group in ((PUBLISHED_HEADING, table.rows), (ELSEWHERE_HEADING, table.elsewhere)):
        marks |= {len(lines): heading} if group else {}
        lines += [[row.name, *_published_cells(row, inline, f"{{}}{PLUS_MINUS}{{}}")] for row in group]
    return "\n".join(
        [
            f"{table.title}, as in the paper: {_measure(table)}",
            *_split_blocks(lines, marks),
            "",
            *_terminal_notes(table),
            "",
        ]
    )


def paper_markdown(dataset: str, rows: Sequence[RunScore]) -> str | None:
    """The same as Markdown: one table of ours, one of what is published."""
    table = _matching_table(dataset, rows)
    if table is None:
        return None
    header = ["method", *(name.replace("*", "\\*") for name in (*table.columns, *table.means))]
    ours = [[escape_markdown(name), *(_format_mean(s, f"{{}} {PLUS_MINUS} {{}}") for s in stats)]
            for name, stats in _our_stats(table, rows).items()]  # fmt: skip
    theirs = [[escape_markdown(row.name), *_published_cells(row, True, f"{{}} {PLUS_MINUS} {{}}")]
              for row in (*table.rows, *table.elsewhere)]  # fmt: skip
    parts = [f"### {table.title}, as in the paper: {_measure(table)}"]
    if ours:
        parts += [f"Ours, {_seed_text(table, rows)}; {_our_measure(table)}:", _markdown_lines(header, ours)]
    called = [f"Columns: {names}."] if _is_iou(table) and (names := _heading_names(table)) else []
    notes = "\n".join(f"- {escape_markdown(note)}" for note in [*called, *_sources(table), *_check_notes(table)])
    return "\n\n".join([*parts, "Published, not run by us:", _markdown_lines(header, theirs), notes]) + "\n"


def _matching_table(dataset: str, rows: Sequence[RunScore]) -> PublishedTable | None:
    """The published table; one of IoU only if some run of ours has it."""
    table = find_published(dataset)
    if table is None or not _is_iou(table) or any(row.dataset == dataset and row.class_iou for row in rows):
        return table
    return None


def _is_iou(table: PublishedTable) -> bool:
    return table.measure.startswith("IoU")


def _our_measure(table: PublishedTable) -> str:
    return OUR_IOU if _is_iou(table) else OUR_MEASURES[table.kind]


def _measure(table: PublishedTable) -> str:
    return table.measure.partition(";")[0]


def _our_stats(table: PublishedTable, rows: Sequence[RunScore]) -> dict[str, list[Stat]]:
    """A method's stat of each column, then those of the means."""
    stats = {}
    for method, seeds in _by_seed(table, rows).items():
        columns = [[seed[key] for seed in seeds if key in seed] for key in table.keys]
        means = [_means(seeds, _averaged(table, number)) for number in range(len(table.means))]
        stats[method] = [Stat.of(values) for values in (*columns, *means)]
    return stats


def _averaged(table: PublishedTable, number: int) -> list[str]:
    """Our names of the columns that a mean is over."""
    pairs = zip(table.keys, table.columns, strict=True)
    return [key for key, name in pairs if number == 0 or name not in table.without]


def _means(seeds: Sequence[dict[str, float]], keys: Sequence[str]) -> list[float]:
    """The mean of each seed that has all of these columns."""
    return [math.fsum(seed[key] for key in keys) / len(keys) for seed in seeds if all(key in seed for key in keys)]


def _by_seed(table: PublishedTable, rows: Sequence[RunScore]) -> dict[str, list[dict[str, float]]]:
    """Method → for each seed, the value of each column in per cent."""
    by_method: dict[str, dict[int, dict[str, float]]] = {}
    for row in rows:
        if row.dataset == table.dataset:
            accuracies = dict(zip(row.class_names, row.class_accuracy, strict=True))
            classes = row.ious if _is_iou(table) else accuracies
            cells = {row.pair: row.accuracy} if table.kind == "pairs" else classes
            known = {key: 100 * value for key, value in cells.items() if value is not None}
            by_method.setdefault(row.method, {}).setdefault(row.seed, {}).update(known)
    return {method: list(seeds.values()) for method, seeds in by_method.items()}


def _seed_text(table: PublishedTable, rows: Sequence[RunScore]) -> str:
    counts = sorted({len(seeds) for seeds in _by_seed(table, rows).values()})
    if counts == [1]:
        return "one seed"
    return f"mean {PLUS_MINUS} std over {' to '.join(dict.fromkeys(map(str, (counts[0], counts[-1]))))} seeds"


def _format_percent(value: float | None) -> str:
    """One decimal; 100 has none, so that columns of classes stay narrow."""
    return DASH if value is None else f"{value:.1f}".replace("100.0", "100")


def _format_mean(stat: Stat, form: str) -> str:
    return (
        _format_percent(stat.mean)
        if stat.std is None
        else form.format(_format_percent(stat.mean), _format_percent(stat.std))
    )


def _stat_lines(name: str, stats: Sequence[Stat], inline: bool) -> list[list[str]]:
    """± beside the mean, or below it where columns are narrow."""
    if inline:
        return [[name, *(_format_mean(stat, f"{{}}{PLUS_MINUS}{{}}") for stat in stats)]]
    below = ["" if stat.std is None else PLUS_MINUS + _format_percent(stat.std) for stat in stats]
    return [[name, *(_format_percent(stat.mean) for stat in stats)], *([["", *below]] if any(below) else [])]


def _published_cells(row: PublishedRow, inline: bool, form: str) -> list[str]:
    spread = row.spread if inline and row.spread else (None,) * len(row.values)
    cells = [_format_percent(v) if s is None else form.format(_format_percent(v), _format_percent(s))
             for v, s in zip(row.values, spread, strict=True)]  # fmt: skip
    return [*cells, *map(_format_percent, row.means)]


def _split_blocks(lines: list[list[str]], marks: dict[int, str]) -> list[str]:
    """The table in as few blocks of columns as fit; a block leaves out the rows that have nothing in it."""
    widths = [max(map(len, column)) + 1 for column in zip(*lines, strict=True)]
    room, count = TABLE_WIDTH + 1 - widths[0], len(widths) - 1
    parts = 1
    while parts < count and any(sum(widths[i] for i in part) > room for part in _column_blocks(count, parts)):
        parts += 1
    if parts == 1:
        return _align_lines(lines, marks)
    drawn: list[str] = []
    for part in _column_blocks(count, parts):
        drawn += (
            ["", *_align_lines(*_take_block(lines, marks, part))]
            if drawn
            else _align_lines(*_take_block(lines, marks, part))
        )
    return drawn


def _column_blocks(count: int, parts: int) -> list[range]:
    """Numbers 1 … count in runs of nearly the same length."""
    ends = [1 + count * part // parts for part in range(parts + 1)]
    return [range(start, end) for start, end in itertools.pairwise(ends)]


def _take_block(lines: list[list[str]], marks: dict[int, str], part: range) -> tuple[list[list[str]], dict[int, str]]:
    """Some columns of the table, with the mark before its rows."""
    kept: list[list[str]] = []
    kept_marks: dict[int, str] = {}
    for number, line in enumerate(lines):
        if number in marks:
            kept_marks[len(kept)] = marks[number]
        cells = [line[i] for i in part]
        if number == 0 or any(cell not in ("", DASH) for cell in cells):
            kept.append([line[0], *cells])
    return kept, {number: mark for number, mark in kept_marks.items() if number < len(kept)}


def _align_lines(lines: list[list[str]], marks: dict[int, str]) -> list[str]:
    """Columns side by side; `marks` are lines of words before the line of that number."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    drawn = ["-" * min(TABLE_WIDTH, sum(widths) + len(widths) - 1)]
    for number, line in enumerate(lines):
        drawn += [marks[number]] if number in marks else []
        pad: list[Callable[[str, int], str]] = [str.ljust, *[str.rjust] * (len(line) - 1)]
        drawn.append(" ".join(p(text, w) for p, text, w in zip(pad, line, widths, strict=True)).rstrip())
    return drawn


def _terminal_notes(table: PublishedTable) -> list[str]:
    """What the columns and rows are, and where they come from, in lines of the terminal's width."""
    called = _heading_names(table)
    notes = [f"Ours: {_our_measure(table)}.", *([f"Columns: {called}."] if called else []), *_sources(table)]
    return [line for note in notes for line in textwrap.wrap(note, TABLE_WIDTH, break_long_words=False,
                                                             break_on_hyphens=False)]  # fmt: skip


def _heading_names(table: PublishedTable) -> str:
    """What headings stand for: the printed ones or, where these are short themselves, our names of the classes."""
    full = table.keys if _is_iou(table) else table.columns
    pairs = list(zip(table.short, full, strict=True))
    return ", ".join(f"{short} {name}" for short, name in pairs if short.strip("*").lower() != name.lower())


def _sources(table: PublishedTable) -> list[str]:
    """The source of the table, then those of rows from elsewhere, each once."""
    groups: dict[str, list[str]] = {}
    for row in table.elsewhere:
        groups.setdefault(row.source, []).append(row.method)
    others = [f"{', '.join(methods)}: {source} (read in a stored copy)." for source, methods in groups.items()]
    return [f"Published: {table.source}. {table.averaged}.", *others]


def _check_notes(table: PublishedTable) -> list[str]:
    return [f"{row.name}: {row.check}." for row in table.rows if row.check]


def _markdown_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *rows))
