"""How a worker, or this process, reads a picture and its label map and makes a view of them.

| JSON of | holds |
| --- | --- |
| all rows | kind "maps"; plan, stride and multiple; the class table; weights of wanted classes or null |
| a row | the picture as in `request_for`; size; draw; wanted: a place or null |
| its label | the map as in `request_for`, or null; turn: how it is turned |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import torch
from torch import Tensor

from embasis.data.images import decode
from embasis.data.segmentation.files import MapFile
from embasis.data.segmentation.labels import BadMap, class_map
from embasis.data.segmentation.views import Place, shown
from embasis.data.workers.protocol import Json, failure_reason, read_checked, request_for
from embasis.types import ClassTable, MapPlan, MapPreparation


def common_words(preparation: MapPreparation, table: ClassTable, classes: Tensor | None = None) -> Json:
    """What all rows of a request have in common."""
    weights = None if classes is None else classes.double().tolist()
    return {"kind": "maps", **asdict(preparation), "table": asdict(table), "classes": weights}


def row_words(file: MapFile, draw: int | None = None, wanted: Place | None = None) -> Json:
    """What is asked for one row."""
    label = None if file.label is None else label_words(file)
    return {**request_for(file.image), "label": label, "size": list(file.size), "draw": draw, "wanted": wanted}


def label_words(file: MapFile) -> Json:
    """What is asked for a row's label map, which it has."""
    assert file.label is not None
    return {**request_for(file.label), "turn": file.turn}


def map_loader(common: Json) -> Callable[[Json], tuple[Tensor, ...]]:
    """Reads rows with maps by what a request says of all of them: input, classes and places of a row's view."""
    preparation = MapPreparation(MapPlan(**common["plan"]), common["stride"], common["multiple"])
    table = table_of(common["table"])
    classes = None if common["classes"] is None else torch.tensor(common["classes"], dtype=torch.float64)

    def load(asked: Json) -> tuple[Tensor, ...]:
        picture = picture_of(asked)
        labels = None if asked["label"] is None else labels_of(asked["label"], table)
        wanted = None if asked["wanted"] is None else (asked["wanted"][0], asked["wanted"][1])
        return shown(picture, labels, preparation, asked["draw"], wanted, classes)

    return load


def table_of(words: Json) -> ClassTable:
    """The class table that was sent."""
    ids = tuple(tuple(numbers) for numbers in words["ids"])
    colours = tuple((r, g, b) for r, g, b in words["colours"])
    return ClassTable(tuple(words["names"]), ids, colours, tuple(words["ignore"]), words["others"], words["coded"])


def picture_of(asked: Json) -> Tensor:
    """uint8 (3, H, W); UnreadableImage when it is not of the size that the scan found."""
    picture = decode.decode(read_checked(asked))
    height, width = picture.shape[1:]
    if [height, width] != list(asked["size"]):
        rows, columns = asked["size"]
        raise decode.UnreadableImage(f"has {width}×{height} pixels, {columns}×{rows} at the scan")
    return picture


def labels_of(asked: Json, table: ClassTable) -> Tensor:
    """uint8 (H, W) of a label map, upright; UnreadableImage says why there is none."""
    try:
        return decode.turned(class_map(read_checked(asked), table), asked["turn"])
    except BadMap as error:
        raise decode.UnreadableImage(f"its label map: {error}") from error
    except Exception as error:  # the same reasons as those of a picture
        raise decode.UnreadableImage(f"its label map {failure_reason(error)}") from error
