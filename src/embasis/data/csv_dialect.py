"""How a spreadsheet writes a .csv file: that depends on the country it is set to.

| | cells are separated by | numbers |
| --- | --- | --- |
| United Kingdom, United States, … | a comma | 0.5 |
| Germany, France, Brazil, … | a semicolon | 0,5 |
| copied out of a sheet | a tab | either |

The header tells the separator. Where it has several signs that could be one, that one is taken which cuts the rows into
as many cells as the header; two that do are refused. A comma in numbers is looked for only where it separates nothing:
0,5 and 12,25 have a decimal comma; 1,250 may be a thousand, too, and needs another number in the file that tells.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from embasis.errors import quote, require

COMMA = ","
SEPARATORS = {COMMA: "commas", ";": "semicolons", "\t": "tabs"}
TRIED_ROWS = 100
"""Rows that are cut with each separator that could be meant."""
LONGEST_RECORD = 2**23
"""Characters of one record of a .csv file: some hundred thousand columns of numbers."""
LONGEST_HEADER_PIECE = 2**16
"""Characters of a header that are looked at in one piece: enough to meet what separates its cells."""
MOST_HEADER_LINES = 100
"""Lines over which the names of columns may go; a quotation mark that is open longer is a letter of a name."""
_POINT = re.compile(r"[+-]?[0-9]*\.[0-9]*([eE][+-]?[0-9]+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]*([eE][+-]?[0-9]+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+")

Cells = tuple[int, list[str]]
"""The number of its last line, and its cells."""


def find_separator(open_lines: Callable[[int], Iterable[str]], where: str) -> str:
    """The sign between the cells of a file; `open_lines` gives its lines from the first one on, each time anew, in
    pieces of at most so many characters."""
    there = [sign for sign, count in count_separators(open_lines(LONGEST_HEADER_PIECE)).items() if count]
    if len(there) < 2:
        return there[0] if there else COMMA
    fitting = [sign for sign in there if cuts_evenly(open_lines(LONGEST_RECORD), sign)]
    signs = " or ".join(SEPARATORS[sign] for sign in fitting)
    cure = "put names and texts into quotation marks, or write the file with one of them only"
    require(len(fitting) < 2, f"{where}: its cells may be separated by {signs}; {cure}")
    return fitting[0] if fitting else COMMA


def count_separators(lines: Iterable[str]) -> dict[str, int]:
    """How often each separator stands in the header, outside of quotation marks."""
    first, text, is_quoted = "", "", False
    for line in islice(lines, MOST_HEADER_LINES):
        first = first or line
        for number, part in enumerate(line.split('"')):
            is_quoted ^= number > 0
            text += "" if is_quoted else part
        if not is_quoted and text.strip():
            break
    return {sign: (first if is_quoted else text).count(sign) for sign in SEPARATORS}


def cuts_evenly(lines: Iterable[str], separator: str) -> bool:
    """Whether the first rows have as many cells as the header; there must be a row."""
    rows = (cells for cells in csv.reader(lines, delimiter=separator) if cells)
    try:
        widths = [len(cells) for cells in islice(rows, 1 + TRIED_ROWS)]
    except csv.Error:
        return False
    return len(widths) > 1 and len({*widths}) == 1


def find_decimal_sign(rows: Iterator[Cells], features: Sequence[int], where: str) -> str:
    """The sign in numbers of a file whose cells no comma separates, by the first number that tells; a point if none."""
    doubtful = ""
    for line, cells in rows:
        for place in features:
            cell = cells[place].strip() if place < len(cells) else ""
            if COMMA not in cell:
                if "." in cell and _POINT.fullmatch(cell):
                    return "."
            elif _THOUSANDS.fullmatch(cell):
                doubtful = doubtful or f"line {line}: {quote(cell)}"
            elif _DECIMAL_COMMA.fullmatch(cell):
                return COMMA
    rule = f"{where}: {doubtful} may have a decimal comma or one between thousands, and no other number tells"
    require(not doubtful, f"{rule}; write 1.250 or 1250 in place of 1,250")
    return "."
