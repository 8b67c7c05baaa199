"""The table of renames: tab-separated, one rename a line.

| column | meaning |
| --- | --- |
| kind | module, name, attribute, keyword, local, string, key or path |
| scope | where: see below; several patterns have commas between them |
| old, new | the names |
| row | the row of the design table that the line is of; `--rows` selects by it |
| note | a note that begins with "hand" says that a person must do this line, and why; it is not applied |

| kind | scope | old |
| --- | --- | --- |
| module | - | a module or a package with all below it, `embasis.engine.verdict` |
| name | the module that defines it | a function, class or constant of that module |
| attribute | the modules that are searched | `Class.member`, `One|Two.member` for several classes, or
  `Class.member[receiver,receiver]` to rename `x.member` only where x ends in one of these names; fields, methods and
  keywords of `Class(…)` and `replace(…)` |
| keyword | the module that defines the function | `function.parameter`, `Class.method.parameter`; or `*.keyword`, and
  the scope is the modules in which any call has its keyword renamed |
| local | the modules, or `module:function` | a variable or parameter within functions |
| string | the modules that are searched | a text that is exactly this; with `=` at its end, a text that begins so |
| key | the modules that are searched; `toml` for settings in .toml files | a text that is the key of a mapping: in
  `{"old": …}`, `x["old"]`, `x.get("old")`, `"old" in x` |
| path | - | a file or folder that is no module, relative to the root |

Modules outside src/ are called by their path: tests.folder_runs, benchmarks.smoke.
All names are those before any rename, so that lines do not hang on each other.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

KINDS = ("module", "name", "attribute", "keyword", "local", "string", "key", "path")
COLUMNS = ("kind", "scope", "old", "new", "row", "note")


class RenameError(Exception):
    """A line that cannot be applied; the text says which, why, and what to do."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    kind: str
    scope: str
    old: str
    new: str
    row: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise RenameError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r} in {self}")

    def __str__(self) -> str:
        place = "" if self.scope in ("-", "*") else f" in {self.scope}"
        return f"{self.kind} {self.old} → {self.new}{place}"

    @property
    def by_hand(self) -> bool:
        """Whether a person must do it."""
        return self.note.startswith("hand")

    @property
    def parts(self) -> tuple[str, ...]:
        """`Class.member[receiver]` as Class, member."""
        return tuple(self.old.partition("[")[0].split("."))

    @property
    def owners(self) -> tuple[str, ...]:
        """The classes of `One|Two.member`."""
        return tuple(self.parts[0].split("|"))

    @property
    def receivers(self) -> tuple[str, ...]:
        """The names in brackets; none = any."""
        found = re.search(r"\[(.*)\]", self.old)
        return tuple(found[1].split(",")) if found else ()

    def covers(self, module: str, function: str = "") -> bool:
        """Whether a module, and a function within it, is in the scope."""
        for pattern in self.scope.split(","):
            home, _, inside = pattern.partition(":")
            if fnmatchcase(module, home) and inside in ("", function):
                return True
        return False


def read_table(path: Path) -> list[Row]:
    """All lines; those that begin with # are comments."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = [line for line in file if line.strip() and not line.startswith("#")]
    cells = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    if not cells or tuple(cells[0]) != COLUMNS:
        raise RenameError(f"{path}: the first line must be the columns {', '.join(COLUMNS)}, got {cells[:1]}")
    rows = []
    for line in cells[1:]:
        if not 4 <= len(line) <= len(COLUMNS):
            raise RenameError(f"{path}: a line has 4 to 6 columns with tabs between them, got {line}")
        rows.append(Row(*line))
    return rows


def select_rows(rows: Iterable[Row], wanted: str | None) -> list[Row]:
    """The lines of some rows of the design table: "10,14-17"; None = all."""
    if wanted is None:
        return list(rows)
    numbers: set[str] = set()
    for part in wanted.split(","):
        first, _, last = part.partition("-")
        numbers |= {str(number) for number in range(int(first), int(last or first) + 1)}
    return [row for row in rows if row.row in numbers]
