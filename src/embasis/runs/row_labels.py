"""Rows with one site each, labelled batch by batch: the columns that users get, in the order in which they get them.

Several processes label pieces of the rows in turn, and hand them in to the first one, which writes
(`World.hand_in`): whole numbers, floating-point numbers as they are, and texts as JSON.
"""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from embasis.distributed import current_world
from embasis.engine.labels import RowLabels
from embasis.errors import EmbasisWarning
from embasis.inputs import RowBatch, RowSource
from embasis.runs.model import TrainedModel, label_columns
from embasis.types import LabelSchema

LABEL_TYPES = {
    "id": "string", "label": "string", "probability": "double", "between": "double", "within": "double",
    "uncertainty": "double", "trusted": "bool",
}  # fmt: skip
"""The columns of a table of labels; rows of tables have numbers as ids."""
LABEL_COLUMNS = tuple(LABEL_TYPES)
FLOAT_COLUMNS = tuple(name for name, kind in LABEL_TYPES.items() if kind == "double")

Show = Callable[[str, int, int], None]
"""Called with what is done, how many of it, and how many there are."""


def iter_labels(model: TrainedModel, source: RowSource) -> Iterator[tuple[RowBatch, RowLabels | None]]:
    """Each batch with its labels, if one of its rows can be read; why others cannot goes to `source.rejected`."""
    for batch in source.batches:
        source.rejected.update(batch.rejected)
        yield batch, model.label(batch.x, batch.ids) if batch.names else None


@dataclass(eq=False)
class LabelledPiece:
    """The columns of rows that were labelled together, why others could not be read, and what is to be said of them."""

    columns: dict[str, list[Any]] = field(default_factory=lambda: {key: list[Any]() for key in LABEL_COLUMNS})
    rejected: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def add(self, batch: RowBatch, labels: RowLabels | None, schema: LabelSchema) -> None:
        """More rows."""
        self.rejected |= batch.rejected
        self.notes = self.notes or batch.notes
        part = {} if labels is None else label_columns(labels, batch.names, schema)
        for key, column in self.columns.items():
            column.extend(part.get(key, ()))


def iter_own_pieces(model: TrainedModel, source: RowSource) -> Iterator[LabelledPiece]:
    """The labels of the pieces that this process reads; of one process a piece is a batch."""
    alone, piece = current_world().size == 1, LabelledPiece()
    for batch in source.batches:
        piece.add(batch, model.label(batch.x, batch.ids) if batch.names else None, model.schema)
        if batch.ends_piece or alone:
            yield piece
            piece = LabelledPiece()


def iter_pieces(model: TrainedModel, source: RowSource, show: Show) -> Iterator[LabelledPiece]:
    """The labels of all pieces in order, for the first process; for the others nothing.

    Why rows cannot be read goes to `source.rejected`; what a model does not know is said of the first of them alone."""
    names = model.schema.names
    done, warned = 0, False
    own = iter_own_pieces(model, source)
    for piece in current_world().hand_in(own, partial(pack_piece, names=names), partial(unpack_piece, names=names)):
        source.rejected.update(piece.rejected)
        done += len(piece.columns["id"]) + len(piece.rejected)
        show(f"labelling {source.unit}", done, source.total)
        if not warned:
            for note in piece.notes:
                warnings.warn(EmbasisWarning(note), stacklevel=4)  # the caller of predict
            warned = bool(piece.notes)
        yield piece


def pack_piece(piece: LabelledPiece, names: Sequence[str]) -> list[Tensor]:
    """A piece as columns that another process can be sent."""
    columns, places = piece.columns, {name: place for place, name in enumerate(names)}
    numbered = all(isinstance(id_, int) for id_ in columns["id"])
    texts = {"ids": None if numbered else columns["id"], "rejected": piece.rejected, "notes": piece.notes}
    return [
        torch.frombuffer(bytearray(json.dumps(texts).encode()), dtype=torch.uint8),
        torch.tensor(columns["id"] if numbered else [], dtype=torch.int64),
        torch.tensor([places[label] for label in columns["label"]], dtype=torch.int64),
        torch.tensor(columns["trusted"], dtype=torch.bool),
        *(torch.tensor(columns[key], dtype=torch.float64) for key in FLOAT_COLUMNS),
    ]


def unpack_piece(packed: list[Tensor], names: Sequence[str]) -> LabelledPiece:
    """The piece that the columns were."""
    texts = json.loads(packed[0].numpy().tobytes())
    columns = {
        "id": packed[1].tolist() if texts["ids"] is None else texts["ids"],
        "label": [names[place] for place in packed[2].tolist()],
        "trusted": packed[3].tolist(),
        **{key: column.tolist() for key, column in zip(FLOAT_COLUMNS, packed[4:], strict=True)},
    }
    return LabelledPiece({key: columns[key] for key in LABEL_COLUMNS}, texts["rejected"], tuple(texts["notes"]))


def iter_columns(model: TrainedModel, source: RowSource, show: Show) -> Iterator[dict[str, list[Any]]]:
    """The columns of all rows in the order of the output, batch by batch: rows of tables as they come, images by their
    names, with those that cannot be read in their places."""
    early = deque(sorted(source.rejected))
    for piece in iter_pieces(model, source, show):
        columns, unread = piece.columns, list(piece.rejected)
        last = max([*columns["id"], *unread], default="") if source.unit == "images" else ""
        while early and early[0] <= last:
            unread.append(early.popleft())
        add_unread(columns, unread)
        ids = columns["id"]
        yield take_rows(columns, sorted(range(len(ids)), key=ids.__getitem__)) if source.unit == "images" else columns
    if early and current_world().is_first:
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
