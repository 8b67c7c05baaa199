"""Rows with one site each, labelled batch by batch: the columns that users get, in the order in which they get them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from embasis.engine.labels import RowLabels
from embasis.inputs import RowBatch, RowSource
from embasis.runs.model import TrainedModel, label_columns

LABEL_TYPES = {
    "id": "string", "label": "string", "probability": "double", "between": "double", "within": "double",
    "uncertainty": "double", "trusted": "bool",
}  # fmt: skip
"""The columns of a table of labels; rows of tables have numbers as ids."""
LABEL_COLUMNS = tuple(LABEL_TYPES)

Show = Callable[[str, int, int], None]
"""Called with what is done, how many of it, and how many there are."""


def iter_labels(model: TrainedModel, source: RowSource, show: Show) -> Iterator[tuple[RowBatch, RowLabels | None]]:
    """Each batch with its labels, if one of its rows can be read; why others cannot goes to `source.rejected`."""
    done = 0
    for batch in source.batches:
        source.rejected.update(batch.rejected)
        done += len(batch.names) + len(batch.rejected)
        show(f"labelling {source.unit}", done, source.total)
        yield batch, model.label(batch.x, batch.ids) if batch.names else None


def iter_columns(model: TrainedModel, source: RowSource, show: Show) -> Iterator[dict[str, list[Any]]]:
    """The columns of all rows in the order of the output, batch by batch: rows of tables as they come, images by their
    names, with those that cannot be read in their places."""
    early = deque(sorted(source.rejected))
    for batch, labels in iter_labels(model, source, show):
        columns = {key: list[Any]() for key in LABEL_COLUMNS}
        if labels is not None:
            part = label_columns(labels, batch.names, model.schema)
            columns = {key: part[key] for key in LABEL_COLUMNS}
        unread = list(batch.rejected)
        last = max([*batch.names, *unread], default="") if source.unit == "images" else ""
        while early and early[0] <= last:
            unread.append(early.popleft())
        add_unread(columns, unread)
        ids = columns["id"]
        yield take_rows(columns, sorted(range(len(ids)), key=ids.__getitem__)) if source.unit == "images" else columns
    if early:
        add_unread(rest := {key: list[Any]() for key in LABEL_COLUMNS}, early)
        yield rest


def add_unread(columns: dict[str, list[Any]], names: Iterable[str]) -> None:
    """Add rows for files that cannot be read: they have no label."""
    for name in names:
        for key, column in columns.items():
            column.append({"id": name, "trusted": False}.get(key))


def take_rows(columns: dict[str, list[Any]], rows: list[int]) -> dict[str, list[Any]]:
    """These rows of a table, in this order."""
    return {name: [column[row] for row in rows] for name, column in columns.items()}
