"""What a person has decided about the labels of a run, in the form that `fit --corrections` takes.

| labels | on disk |
| --- | --- |
| of rows | a .csv file with columns id, label, predicted, unusable |
| maps | a folder with a PNG for each corrected picture, named like it, and corrections.json, which says whose it is |

A file that somebody else has changed since it was read is left as it is: two reviews at once lose no decision.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from embasis.errors import CheckpointError, ConfigError, CorruptError, ResourceError, UntrustedError, quote, require
from embasis.storage import atomic
from embasis.storage.checkpoints import encode_sealed, installed_version, read_sealed
from embasis.storage.label_map_folder import is_map_path

CORRECTION_COLUMNS = ("id", "label", "predicted", "unusable")
CORRECTIONS_MARKER, CORRECTIONS_KIND = "corrections.json", "embasis corrections"
LARGEST_CORRECTIONS = 2**28
"""Bytes of a file of corrections that is gone on with."""


@dataclass(frozen=True)
class Correction:
    """What was decided about one row."""

    label: str
    """Its class; nothing if it is unusable."""
    predicted: str
    """The label that the run gave it."""

    @property
    def unusable(self) -> bool:
        """Whether the row has no class."""
        return not self.label


class CorrectionFile:
    """Decisions about rows by their ids; those of an earlier review are there from the beginning."""

    def __init__(self, path: Path | str) -> None:
        self.path, self.rows = Path(path), dict[str, Correction]()
        self._known: bytes | None = None
        atomic.refuse_lost_link(self.path)
        require(self.path.suffix == ".csv", f"output must end in .csv, got {quote(str(path))}", ConfigError)
        if os.path.lexists(self.path):
            self._known = atomic.read_bytes(self.path, range(LARGEST_CORRECTIONS))
            self.rows = self._parse(self._known)

    def _parse(self, data: bytes) -> dict[str, Correction]:
        other = f"output {self.path} is no file of embasis review; name another one"
        try:
            columns = atomic.parse_stored_table(data, self.path)
        except CorruptError as error:
            raise ConfigError(other) from error
        require(tuple(columns) == CORRECTION_COLUMNS, other, ConfigError)
        lines = zip(*columns.values(), strict=True)
        rows = {id: Correction("" if lost else label, predicted) for id, label, predicted, lost in lines}
        require(len(rows) == len(columns["id"]), other, ConfigError)
        return rows

    def put(self, id: str, decision: Correction | None) -> None:
        """Write down what was decided about a row, or that nothing is any more."""
        rows = {name: row for name, row in self.rows.items() if name != id}
        rows |= {} if decision is None else {id: decision}
        data = atomic.encode_table(correction_columns(rows), ".csv")
        rule = f"{self.path} was changed by another program since it was read; end the review and begin it again"
        with atomic.lock_folder(self.path.parent):
            now = atomic.read_bytes(self.path, range(LARGEST_CORRECTIONS)) if os.path.lexists(self.path) else None
            require(now == self._known, rule, ResourceError)
            atomic.write_output(self.path, data)
        self.rows, self._known = rows, data


def correction_columns(rows: Mapping[str, Correction]) -> dict[str, list[str]]:
    """The table of decisions, in the order in which they were made."""
    cells = [(id, row.label, row.predicted, "true" if row.unusable else "") for id, row in rows.items()]
    return {name: [line[place] for line in cells] for place, name in enumerate(CORRECTION_COLUMNS)}


class CorrectionMaps:
    """Corrected label maps by the names of their files."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        atomic.refuse_lost_link(self.path)
        there = sorted(os.listdir(self.path)) if self.path.is_dir() else []
        require(
            self.path.is_dir() or not os.path.lexists(self.path), f"output {path} is a file; name a folder", ConfigError
        )
        rule = f"output {path} holds files and is no folder of embasis review; name a new or an empty one"
        require(not there or self._is_marked(), rule, ConfigError)

    def _is_marked(self) -> bool:
        try:
            return bool(read_sealed(self.path / CORRECTIONS_MARKER).get("what") == CORRECTIONS_KIND)
        except CheckpointError:
            return False

    def __contains__(self, name: str) -> bool:
        return os.path.lexists(self._place(name))

    def find(self, name: str) -> bytes | None:
        """The bytes of a corrected map; None where there is none."""
        place = self._place(name)
        return atomic.read_bytes(place, range(LARGEST_CORRECTIONS)) if os.path.lexists(place) else None

    def put(self, name: str, data: bytes | None, known: bytes | None) -> None:
        """Write a corrected map in place of the known one, or take it away (None); another one is left as it is."""
        place = self._place(name)
        rule = f"{place} was changed by another program since it was read; look at it again"
        with atomic.explain_write_errors(place):
            atomic.disk.make(place.parent)
            with atomic.lock_folder(self.path):
                require(self.find(name) == known, rule, ResourceError)
                if data is None:
                    atomic.disk.unlink(place)
                    return
                if not self._is_marked():
                    facts = {"what": CORRECTIONS_KIND, "version": installed_version()}
                    atomic.disk.put(self.path / CORRECTIONS_MARKER, encode_sealed(facts))
                atomic.disk.put(place, data)

    def _place(self, name: str) -> Path:
        require(is_map_path(name), f"path escapes the folder of maps: {quote(name)}", UntrustedError)
        for folder in Path(name).parents:
            atomic.refuse_link(self.path / folder)
        return self.path / name
