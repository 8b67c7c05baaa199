"""A run folder as the report reads it: the facts of its newest generation, and the sealed files that these name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from embasis.errors import CorruptError, require
from embasis.report.run_view import RunView
from embasis.runs.basis_view import read_basis
from embasis.runs.checkpoint_schema import read_environment, read_refused, read_run
from embasis.runs.gallery import read_map_gallery, read_palette
from embasis.runs.thumbnails import read_row_gallery
from embasis.storage import SealedFiles
from embasis.types import SELECTION_SCORE, record_from_json


def read_run_view(path: Path) -> RunView:
    """Everything that the page shows; CorruptError when a byte of it is not as the run wrote it."""
    newest = read_run(path)
    facts, files = newest.facts, SealedFiles(path, newest.sealed)
    rounds = tuple(record_from_json(row) for row in facts["records"])
    scored = all(SELECTION_SCORE in record.scores for record in rounds)
    require(scored, f"{path}: the run's facts are damaged: a round has no score {SELECTION_SCORE!r}", CorruptError)
    number = kept_round(facts)
    shown = shown_round(facts)
    items, pictures = read_row_gallery(files, shown, files.seal(labels_name(shown)))
    return RunView(
        config=facts["config"],
        environment=read_environment(path, facts),
        rounds=rounds,
        timings=facts["timings"],
        labels=read_labels(files, shown),
        status=str(facts["progress"]["status"]),
        best_round=number,
        classes=tuple(facts["classes"]),
        notes=tuple(str(note) for note in facts.get("notes", ())),
        corrected=int(facts.get("corrected", 0)),
        gallery=read_map_gallery(files, shown),
        palette=read_palette(facts),
        pictures=int((facts.get("maps") or {}).get("pictures", 0)),
        items=items,
        basis=read_basis(files, number, pictures),
        refused=read_refused(path, facts),
    )


def labels_name(number: int) -> str:
    """Where the labels of a round lie in the run folder, unless they are maps."""
    return f"labels/round-{number:03d}.parquet"


def read_labels(files: SealedFiles, number: int) -> dict[str, list[Any]] | None:
    """The columns of a round's labels; None for label maps, and before the first round has ended."""
    name = labels_name(number)
    return files.table(name) if name in files else None


def shown_round(facts: dict[str, Any]) -> int:
    """The round whose labels the page shows: the last one, or the one that was chosen."""
    kept = facts["progress"].get("kept")
    return max(len(facts["records"]) - 1, 0) if kept is None else int(kept)


def kept_round(facts: dict[str, Any]) -> int:
    """The round whose model is kept: the last one, the one that was chosen, or the best one after a collapse."""
    collapsed = facts["progress"].get("kept") is None and facts["progress"]["status"] == "collapsed"
    return int(facts["progress"]["best_round"]) if collapsed else shown_round(facts)
