"""Learn how the columns of two tables become numbers, and apply it (types/encoding.py says what becomes of what).

Kinds and categories are those of both sides together: a value that only the unlabelled side has gets a column of its
own, which training may learn later. What fills gaps is the mean of each side by itself, because each side is
standardised by itself: so a filled cell says nothing on either side (decision 0031).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from embasis.data.raw_columns import EXPECTED, MICROSECONDS, Numbers, RawColumn
from embasis.errors import InputDataError, quote, require
from embasis.types import ColumnEncoding, TableEncoding

MOST_VALUES = 50
"""Different values that a category may have."""
FEW_VALUES = 10
"""More values than these in more than half as many rows are names of rows."""
LONGEST_VALUE = 200
"""Characters of a value of a category."""
MOSTLY = 0.5
"""A column of which a larger share of cells looks like numbers or dates is meant to be one of these."""
NAMED, MOST_NAMES = 3, 10
"""Values, and columns, that a sentence names."""


@dataclass(frozen=True, eq=False)
class RawTable:
    """The feature columns of one table by name, and how messages call it and one of its rows."""

    name: str
    columns: Mapping[str, RawColumn]
    describe_row: Callable[[int], str] = "row {}".format
    """Where a row is in its file."""


def find_kind(columns: Sequence[RawColumn]) -> str:
    """The first kind that all cells of a column are of, on all sides."""
    return next(kind for kind in (*EXPECTED, "category") if all(column.has(kind) for column in columns))


def describe_problem(name: str, kind: str, sides: Sequence[tuple[RawTable, RawColumn]]) -> str:
    """What is wrong with a column of this kind, with the cure; nothing where it can be encoded."""
    rows, where = sum(len(column) for _, column in sides), " and ".join(table.name for table, _ in sides)
    cure = f"leave it out with --drop {quote(name)}"
    if all(column.gaps.all() for _, column in sides):
        return f"{where}: column {quote(name)} has no value in {rows:,} rows; {cure}"
    if kind != "category":
        return ""
    for meant in ("date", "number"):
        for table, column in sides:
            if column.texts is not None and not column.has(meant) and column.share_like(meant) > MOSTLY:
                return describe_odd_cell(table, name, meant)
    values = {text for _, column in sides for text in column.read_categories() if text is not None}
    longest = max(len(value) for value in values)
    if longest > LONGEST_VALUE:
        rule = f"column {quote(name)} has texts of up to {longest:,} characters, at most {LONGEST_VALUE} are a category"
        return f"{where}: {rule}; {cure}"
    if len(values) > MOST_VALUES or (len(values) > FEW_VALUES and 2 * len(values) > rows):
        few = ", ".join(quote(value, 20) for value in sorted(values)[:NAMED])
        most = MOST_VALUES if len(values) > MOST_VALUES else max(FEW_VALUES, rows // 2)
        rule = f"column {quote(name)} has {len(values):,} different texts ({few}, …) in {rows:,} rows"
        return f"{where}: {rule}, at most {most} are encoded; {cure}, or write fewer"
    return ""


def describe_odd_cell(table: RawTable, name: str, kind: str) -> str:
    """A cell of a column that is meant to be of a kind and is not, with its place."""
    column = table.columns[name]
    row, text, count = column.find_other(kind)
    sign = {",": " with a decimal comma", ".": " with a decimal point"}.get(column.decimal, "")
    rest = f" (nor are {count - 1:,} more of its {len(column):,} cells)" if count > 1 else ""
    sentence = f"{table.name}: {table.describe_row(row)}, column {quote(name)}: {quote(text)} is not {EXPECTED[kind]}"
    return f"{sentence}{sign if kind == 'number' else ''}{rest}"


def learn_encoding(tables: Sequence[RawTable], dropped: Sequence[str] = ()) -> tuple[TableEncoding | None, list[str]]:
    """The encoding of the columns of the first table, with those of all; and a sentence for each that has none."""
    columns, problems = list[ColumnEncoding](), list[str]()
    for name in dict.fromkeys(name for table in tables for name in table.columns):
        sides = [(table, table.columns[name]) for table in tables if name in table.columns]
        kind = find_kind([column for _, column in sides])
        problem = describe_problem(name, kind, sides)
        if problem:
            problems.append(problem)
        else:
            columns.append(learn_column(name, kind, [column for _, column in sides]))
    encoding = TableEncoding(tuple(columns), tuple(dropped)) if columns and not problems else None
    names = Counter(() if encoding is None else encoding.names)
    twice = sorted(name for name, count in names.items() if count > 1)
    problems += [f"two columns would both be called {quote(name)} when encoded: rename one" for name in twice]
    return None if problems else encoding, problems


def learn_column(name: str, kind: str, sides: Sequence[RawColumn]) -> ColumnEncoding:
    """The encoding of one column; `sides` are the labelled and the unlabelled one, or one alone."""
    has_gaps = any(bool(column.gaps.any()) for column in sides)
    if kind == "category":
        values = sorted({text for column in sides for text in column.read_categories() if text is not None})
        return ColumnEncoding(name, kind, values=tuple(values), has_gaps=has_gaps)
    days = [column.read(kind) for column in sides]
    has_time = kind == "date" and any(bool((known[~np.isnan(known)] % 1).any()) for known in days)
    parts = [date_parts(known, has_time) if kind == "date" else known[:, None] for known in days]
    means = [known_means(part) for part in parts]
    zeros = (0.0,) * parts[0].shape[1]  # for numbers that are all infinite, which are refused later
    fallback = next((mean for mean in means if mean is not None), zeros)
    fills = [fallback if mean is None else mean for mean in (means * 2)[:2]]
    return ColumnEncoding(name, kind, (fills[0], fills[1]), (), has_gaps, has_time)


def known_means(parts: Numbers) -> tuple[float, ...] | None:
    """The mean of each part over the rows without a gap; None where there is none."""
    known = parts[np.isfinite(parts).all(1)]
    with np.errstate(over="ignore"):
        means = known.mean(0) if len(known) else np.array([np.nan])
    return tuple(means.tolist()) if np.isfinite(means).all() else None


def date_parts(days: Numbers, has_time: bool) -> Numbers:
    """(N, 5 or 7): days since 1970, and sine and cosine of the place in the year, the week and the day."""
    known = np.where(np.isnan(days), 0.0, days)
    instants = np.round(known * MICROSECONDS).astype(np.int64).view("datetime64[us]")
    years = instants.astype("datetime64[Y]")
    begins, ends = (each.astype("datetime64[us]") for each in (years, years + 1))
    turns = [(instants - begins) / (ends - begins), (known + 3) / 7]  # 1970 began on a Thursday
    angles = [2 * np.pi * turn for turn in (*turns, *([known] if has_time else []))]
    parts = np.stack([days, *(wave(angle) for angle in angles for wave in (np.sin, np.cos))], 1)
    parts[np.isnan(days)] = np.nan
    return parts


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """The numbers (N, f) of a table, and what was met that the encoding does not know."""

    x: Numbers
    notes: tuple[str, ...] = ()


def encode_columns(table: RawTable, encoding: TableEncoding, side: int) -> EncodedTable:
    """A table of the labelled (0) or the unlabelled side (1) as numbers; an InputDataError for cells of other kinds."""
    problems = [
        describe_odd_cell(table, column.name, column.kind)
        if table.columns[column.name].texts is not None
        else f"{table.name}: column {quote(column.name)} must be {EXPECTED.get(column.kind, 'text')} in every row"
        for column in encoding.columns
        if not table.columns[column.name].has(column.kind)
    ]
    require(not problems, "; ".join(problems), InputDataError)
    parts, notes = list[Numbers](), list[str]()
    for column in encoding.columns:
        raw = table.columns[column.name]
        values, unknown = encode_column(raw, column, side)
        gaps = raw.gaps
        parts += [values, gaps[:, None].astype(np.float64)] if column.has_gaps else [values]
        if unknown:
            count, few = sum(unknown.values()), ", ".join(quote(value, 20) for value in sorted(unknown)[:NAMED])
            more = ", …" if len(unknown) > NAMED else ""
            rows = "1 row has" if count == 1 else f"{count:,} rows have"
            notes.append(f"{table.name}: {rows} values of column {quote(column.name)} that the model does not know "
                         f"({few}{more}): they count as none of its values")  # fmt: skip
        if gaps.any() and not column.has_gaps:
            cells = "1 gap" if gaps.sum() == 1 else f"{int(gaps.sum()):,} gaps"
            how = "no value is set there" if column.kind == "category" else "its mean is set there"
            notes.append(f"{table.name}: {cells} in column {quote(column.name)}, which had none in training; {how}")
    return EncodedTable(np.concatenate(parts, 1), tuple(notes))


def encode_column(raw: RawColumn, column: ColumnEncoding, side: int) -> tuple[Numbers, dict[str, int]]:
    """(N, k) the parts of a column with its gaps filled; and how often each unknown value of a category is there."""
    if column.kind != "category":
        values = raw.read(column.kind)
        parts = date_parts(values, column.has_time) if column.kind == "date" else values[:, None]
        return np.where(np.isnan(parts), np.array(column.fills[side]), parts), {}
    places, unknown = {value: place for place, value in enumerate(column.values)}, dict[str, int]()
    ones: NDArray[np.float64] = np.zeros((len(raw), len(places)))
    for row, text in enumerate(raw.read_categories()):
        if text in places:
            ones[row, places[text]] = 1.0
        elif text is not None:
            unknown[text] = unknown.get(text, 0) + 1
    return ones, unknown


def describe_encoding(encoding: TableEncoding) -> list[str]:
    """A sentence for each thing that is done to columns, with their names."""
    chosen = {
        kind: [column for column in encoding.columns if column.kind == kind]
        for kind in ("boolean", "date", "category")
    }  # fmt: skip
    gaps = [column.name for column in encoding.columns if column.has_gaps]
    values = {column.name: f"{quote(column.name)} ({len(column.values)})" for column in chosen["category"]}
    sentences = {
        "true and false are 1 and 0": [quote(column.name) for column in chosen["boolean"]],
        "dates are days, and sine and cosine of year, week and time of day": [
            quote(each.name) for each in chosen["date"]
        ],
        "categories have a column for each value": list(values.values()),
        "gaps are marked in a column of their own, those of numbers filled with the mean of their side": list(
            map(quote, gaps)
        ),
    }
    return [f"{sentence}: {shorten_list(names)}" for sentence, names in sentences.items() if names]


def shorten_list(names: Sequence[str]) -> str:
    """Names for the end of a sentence, at most ten of them."""
    rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + rest
