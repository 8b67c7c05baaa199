"""Images named by a table: a .csv or .parquet file with a column `path` and maybe one of labels.

Paths are relative to the folder of the list, or absolute. `\\xNN` stands for a byte that is not UTF-8.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from embasis.data.images.files import IS_LINK, LEADS_NOWHERE, NOT_REGULAR, Collector, PathLike, Scan, name_bytes, why
from embasis.data.problem import decode_text, label_names, listed
from embasis.data.tables.csv_text import read_csv_header, read_csv_rows
from embasis.data.tables.parquet import column_types, open_parquet, read_column_names, read_columns
from embasis.data.tables.read import require_different
from embasis.errors import InputDataError, ResourceError, require

COLUMN = "path"
Row = tuple[str, str | None, object]
"""Where it stands ("line 3"), the path as written, the label as written."""


def is_list(path: PathLike) -> bool:
    """Whether this is a .csv or .parquet file with a column `path`."""
    path = Path(path)
    try:
        regular = path.suffix.lower() in (".csv", ".parquet") and path.is_file()
        return regular and COLUMN in _columns(path)
    except (InputDataError, OSError):
        return False


def scan_list(path: PathLike, *, label: str = "label", follow_links: bool = False) -> tuple[Scan, list[str] | None]:
    """The images that a list names, and their labels in the order of `Scan.files`, if it has a column of labels."""
    path = Path(path)
    try:
        require(path.stat().st_size > 0, f"{path}: the file is empty")
        columns = _columns(path)
        require(COLUMN in columns, f"{path}: no column {COLUMN!r}; columns: {listed(columns)}")
        require_different(columns, path)
        collector, labels = _collect(path, label, follow_links)
    except ResourceError:  # is an OSError, too
        raise
    except FileNotFoundError as error:
        raise InputDataError(f"{path}: no such file") from error
    except OSError as error:
        raise InputDataError(f"{path}: cannot be read: {error.strerror or error}") from error
    scan = collector.scan()
    if label not in columns:
        return scan, None
    return scan, label_names([labels[file.name] for file in scan.files], str(path))


def listed_paths(path: PathLike) -> dict[str, str]:
    """Where each path of a list leads, by the path as written; nothing is opened."""
    path = Path(path)
    try:
        columns = _columns(path)
        require(COLUMN in columns, f"{path}: no column {COLUMN!r}; columns: {listed(columns)}")
        return {written: _target(path, written) for _, written, _ in _cells(path, "") if written}
    except OSError as error:
        raise InputDataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _target(path: Path, written: str) -> str:
    return os.path.normpath(os.path.join(path.parent.absolute(), os.fsdecode(name_bytes(written))))


def _collect(path: Path, label: str, follow_links: bool) -> tuple[Collector, dict[str, object]]:
    collector, labels = Collector(os.fspath(path)), dict[str, object]()
    met, targets = set[str](), dict[str, str]()  # a text of many rows is worked on once
    for where, written, mark in _cells(path, label):
        collector.seen += 1
        if not written:
            collector.refuse(where, "has no path", "refused")
            continue
        target = targets[written] if written in targets else targets.setdefault(written, _target(path, written))
        if target in met:
            collector.refuse(written, f"is listed twice, again in {where}", "refused")
        elif reason := _refusal(target, where, follow_links):
            collector.refuse(
                written, reason, "refused" if reason in (IS_LINK, LEADS_NOWHERE, NOT_REGULAR) else "quarantined"
            )
        else:
            collector.examine(written, os.path.realpath(target) if follow_links else target)
            labels[written] = mark
        met.add(target)
    require(met or collector.refused, f"{path}: no rows")
    return collector, labels


def _refusal(target: str, where: str, follow_links: bool) -> str:
    """Why a listed path cannot be opened, or nothing."""
    try:
        mode = (os.stat if follow_links else os.lstat)(target).st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return f"no such file ({where})"
    except OSError as error:
        return LEADS_NOWHERE if error.errno == errno.ELOOP else why(error)
    if stat.S_ISLNK(mode):
        return IS_LINK
    return "" if stat.S_ISREG(mode) else NOT_REGULAR


def _columns(path: Path) -> list[str]:
    return read_csv_header(path) if path.suffix.lower() == ".csv" else read_column_names(path)


def _cells(path: Path, label: str) -> Iterator[Row]:
    return _parquet_cells(path, label) if path.suffix.lower() == ".parquet" else _csv_cells(path, label)


def _csv_cells(path: Path, label: str) -> Iterator[Row]:
    rows = read_csv_rows(path)
    _, header = next(rows)
    at, marked = header.index(COLUMN), header.index(label) if label in header else None
    for line, cells in rows:
        require(len(cells) == len(header), f"{path}: line {line} has {len(cells)} fields, the header has {len(header)}")
        yield f"line {line}", cells[at], None if marked is None else cells[marked]


def _parquet_cells(path: Path, label: str) -> Iterator[Row]:
    with open_parquet(path) as file:
        kinds = column_types(file)
    kind, names = str(kinds[COLUMN]), [COLUMN, label] if label in kinds else [COLUMN]
    require(kind in ("string", "large_string"), f"{path}: column {COLUMN!r} must be text, got {kind}")
    found = read_columns(path, names)
    for row, written in enumerate(found[COLUMN]):
        mark = found[label][row] if label in found else None
        yield f"row {row + 1}", written and decode_text(written, str(path), row), mark
