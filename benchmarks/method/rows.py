"""Finished rows on disk: one file of JSON lines for each unit of work, written anew and whole after every row.

A row is the set, pair, seed, stage, candidate and its mark (a hash of all settings), then figures. `right` says for
each judged row whether its label is true, as hexadecimal bits: so any two candidates of a pair can be compared row by
row. `seconds` are by the clock, `cpu_seconds` of the processor: these count where others work on the same machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embasis.storage.atomic import encode_table, read_jsonl, write_output

Row = dict[str, Any]
FIRST = ("set", "pair", "seed", "stage", "variant", "method", "mark")


def unit_file(folder: Path, each: str, pair: str, seed: int, stage: str) -> Path:
    """Where the rows of a unit of work are."""
    plain = re.sub(r"[^a-z0-9_]+", "-", pair.lower()) or "all"
    return folder / "rows" / each / f"{plain}-{seed}-{stage}.jsonl"


def read_rows(path: Path) -> list[Row]:
    """The finished rows of a unit."""
    return read_jsonl(path) if path.is_file() else []


def keep(path: Path, row: Row) -> None:
    """Add a row; an older one of the same candidate goes."""
    rows = [old for old in read_rows(path) if old["variant"] != row["variant"]]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_output(path, "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in (*rows, row)))


def all_rows(folder: Path) -> list[Row]:
    """Everything that is finished."""
    return [row for path in sorted((folder / "rows").glob("*/*.jsonl")) for row in read_rows(path)]


def write_parquet(path: Path, rows: Iterable[Row]) -> None:
    """All rows as one table; a figure that a row lacks is empty."""
    rows = list(rows)
    names = list(dict.fromkeys((*FIRST, *(name for row in rows for name in row))))
    columns = {name: [number(row.get(name)) for row in rows] for name in names}
    write_output(path, encode_table(columns, ".parquet"))


def number(value: Any) -> Any:
    """Lists as text; everything else as it is."""
    return " ".join(value) if isinstance(value, list) else value


def packed(right: NDArray[np.bool_]) -> str:
    """Bits as hexadecimal text."""
    return np.packbits(right).tobytes().hex()


def unpacked(text: str, count: int) -> NDArray[np.bool_]:
    """The inverse."""
    return np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))[:count].astype(bool)
