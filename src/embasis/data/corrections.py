"""Rows that a person has labelled move from the unlabelled side to the labelled one.

They are labelled rows from then on, and nothing is scored on them. They keep their ids, on which all randomness hangs;
one that a labelled row has already becomes another, which depends on nothing but the two. Rows that a person has found
unusable leave the unlabelled side and go nowhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from embasis.data.class_labels import quote_names
from embasis.data.images.files import ImageFile
from embasis.data.images.samples import Images
from embasis.errors import require
from embasis.types import Arrays, Fine, Problem, Samples

NAMED_IDS = 5
"""Ids that a sentence names."""
NEW_NAME_PREFIX = "corrections/"
"""Of the new name of an image whose name a labelled one has."""


def with_corrections(problem: Problem, labels: Mapping[str, str | None], source: str, unlabelled: str) -> Problem:
    """The problem after the rows that `labels` names (id → class) have moved; `source` is where that was written.

    Rows of images are called by their paths, those of tables by their ids. A row whose class is None is unusable."""
    names = problem.row_names or [str(number) for number in problem.unlabelled.ids.tolist()]
    place = {name: row for row, name in enumerate(names)}
    require_known_ids([name for name in labels if name not in place], source, unlabelled)
    numbers = {name: number for number, name in enumerate(problem.schema.names)}
    chosen = sorted((place[name], numbers[label]) for name, label in labels.items() if label is not None)
    require_rest(len(labels), len(names), source, unlabelled)
    stay = torch.ones(len(names), dtype=torch.bool)
    stay[[place[name] for name in labels]] = False
    kept = stay.nonzero().squeeze(1)
    hidden = problem.hidden_labels[kept] if isinstance(problem.hidden_labels, Tensor) else None
    moved = [describe_move(len(chosen), "row", source, unlabelled)] if chosen else []
    return replace(
        problem,
        labelled=_append_rows(problem.labelled, problem.unlabelled, chosen) if chosen else problem.labelled,
        unlabelled=_take_rows(problem.unlabelled, kept),
        hidden_labels=hidden if hidden is not None and bool((hidden >= 0).any()) else None,
        row_names=None if problem.row_names is None else tuple(names[row] for row in kept.tolist()),
        corrected=len(chosen),
        notes=(*problem.notes, *moved, *_describe_unusable(len(labels) - len(chosen), source, unlabelled)),
    )


def _describe_unusable(count: int, source: str, unlabelled: str) -> list[str]:
    what = f"1 row of {unlabelled} is" if count == 1 else f"{count:,} rows of {unlabelled} are"
    return [f"{source}: {what} unusable and left out"] if count else []


def require_known_ids(lacking: Sequence[str], source: str, unlabelled: str) -> None:
    """Every id is one of the unlabelled side."""
    what = "1 id is" if len(lacking) == 1 else f"{len(lacking):,} ids are"
    require(not lacking, f"{source}: {what} not in {unlabelled}: {quote_names(lacking, NAMED_IDS)}")


def require_rest(count: int, rows: int, source: str, unlabelled: str) -> None:
    """Something stays on the unlabelled side."""
    hint = "keep the ones that were corrected"
    require(count < rows, f"{source}: names all {rows:,} of {unlabelled}, so that nothing is left to adapt to; {hint}")


def describe_move(count: int, unit: str, source: str, unlabelled: str) -> str:
    """What was done, for the user."""
    one, more = f"1 {unit} of {unlabelled} is a labelled one", f"{count:,} {unit}s of {unlabelled} are labelled ones"
    return f"{source}: {one if count == 1 else more} now"


def _append_rows(labelled: Samples, unlabelled: Samples, chosen: Sequence[tuple[int, int]]) -> Samples:
    rows, classes = torch.tensor(chosen, dtype=torch.int64).T
    if isinstance(labelled, Images) and isinstance(unlabelled, Images):
        more = rename_taken([unlabelled.files[row] for row in rows.tolist()], labelled.names)
        return Images.of([*labelled.files, *more], torch.cat([labelled.labels, classes]))
    assert isinstance(labelled, Arrays)
    assert isinstance(unlabelled, Arrays)
    ids = torch.cat([labelled.ids, replace_taken_ids(unlabelled.ids[rows], labelled.ids)])
    x, fine = torch.cat([labelled.x, unlabelled.x[rows]]), None
    if labelled.fine is not None and unlabelled.fine is not None:  # they have the same columns
        values = torch.cat([labelled.fine.values, unlabelled.fine.values[rows]])
        fine = Fine(labelled.fine.columns, values)
    return Arrays.of(x, torch.cat([labelled.labels, classes]), ids, fine)


def _take_rows(samples: Samples, rows: Tensor) -> Samples:
    if isinstance(samples, Images):
        return samples.take(rows)
    assert isinstance(samples, Arrays)
    fine = None if samples.fine is None else samples.fine.take(rows)
    return Arrays(samples.x[rows], samples.labels[rows], samples.ids[rows], fine)


def rename_taken(files: Sequence[ImageFile], taken: Iterable[str]) -> list[ImageFile]:
    """The files, under other names where theirs are taken: an image's id is a hash of its name."""
    used, renamed = {*taken}, list[ImageFile]()
    for file in files:
        name = file.name
        while name in used:
            name = f"{NEW_NAME_PREFIX}{name}"
        used.add(name)
        renamed.append(file if name == file.name else replace(file, name=name, where=file.path))
    return renamed


def replace_taken_ids(ids: Tensor, taken: Tensor) -> Tensor:
    """The ids, but for those that are taken: 63 bits of a hash of each."""
    used = {*taken.tolist()} | {*ids.tolist()}
    clash = {*taken.tolist()} & {*ids.tolist()}
    new_ids = []
    for number in ids.tolist():
        new, attempt = number, 0
        while number in clash and new in used:
            data = f"{NEW_NAME_PREFIX}{number}/{attempt}".encode()
            new, attempt = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1, attempt + 1
        used.add(new)
        new_ids.append(new)
    return torch.tensor(new_ids, dtype=torch.int64)
