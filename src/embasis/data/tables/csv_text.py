"""The text of a .csv file, record by record; never more of it in memory than one record may have."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from embasis.data.text import open_regular
from embasis.errors import InputDataError, require

LONGEST_RECORD = 2**23
"""Characters of one record: some hundred thousand columns of numbers."""


def read_csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of each record, by a plain and slow reader; bytes that are not UTF-8 become surrogates."""
    with io.TextIOWrapper(open_regular(path), "utf-8-sig", "surrogateescape", newline="") as stream:
        lines = _RecordLines(stream, path)
        reader = csv.reader(lines)
        try:
            for cells in reader:
                lines.held = 0
                if cells:
                    text = "".join(cells)
                    require(text.isprintable() or _is_utf8(text), f"{path}: line {reader.line_num} is not UTF-8 text")
                    yield reader.line_num, cells
        except csv.Error as error:
            raise InputDataError(f"{path}: line {reader.line_num}: {error}") from error


class _RecordLines:
    """The lines of a file, refused before a record of them is larger than it may be.

    A file without a line end is one line; a quotation mark that is never closed makes one record of many lines."""

    def __init__(self, stream: TextIO, path: Path) -> None:
        self.stream, self.path, self.number, self.held = stream, path, 0, 0
        """The lines so far, and the characters since the last record ended."""

    def __iter__(self) -> Iterator[str]:
        while line := self.stream.readline(LONGEST_RECORD + 1):
            self.number, self.held = self.number + 1, self.held + len(line)
            rule = f"line {self.number}: a row has at most {LONGEST_RECORD:,} characters, this one has more"
            hint = "is it a .csv file, with a line for each row and every quotation mark closed?"
            require(self.held <= LONGEST_RECORD, f"{self.path}: {rule}; {hint}")
            yield line


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def read_csv_header(path: Path) -> list[str]:
    """The cells of a .csv file's first line; none when there is no line."""
    for _, cells in read_csv_rows(path):
        return list(cells)
    raise InputDataError(f"{path}: no rows")
