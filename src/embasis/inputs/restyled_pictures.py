"""Labelled pictures before and after a restyler, and an unlabelled one, as the report of a run shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from embasis.data.segmentation.samples import MapArrays
from embasis.inputs.fingerprint import names_of
from embasis.inputs.restyled_rows import Filed, read_whole_picture
from embasis.report import MOST_RESTYLED
from embasis.report.collect import PixelReader
from embasis.report.restyled import PairReader, PicturePair, make_other_picture, make_restyled_gallery
from embasis.types import Arrays, Problem, RowChange, Samples


def collect_restyled(problem: Problem, change: RowChange) -> dict[str, Any] | None:
    """What a run folder keeps for the report; None where rows are no pictures."""
    labelled, unlabelled = problem.labelled, problem.unlabelled
    readers = picture_readers(labelled, unlabelled, change)
    if readers is None:
        return None
    read_pairs, read_other = readers
    has_maps = len(labelled.truth[0].shape) > 0
    classes = () if has_maps else problem.schema.names
    names = name_pictures(problem, "labelled", labelled)
    made = make_restyled_gallery(change, names, labelled.labels.tolist(), classes, read_pairs)
    other = make_other_picture(name_pictures(problem, "unlabelled", unlabelled), read_other)
    return None if made is None else {**made, "other": other}


def name_pictures(problem: Problem, side: str, samples: Samples) -> list[str]:
    """The names of rows; their ids where they have none."""
    pairs = zip(names_of(problem, side, samples), samples.ids.tolist(), strict=True)
    return [name or f"row {number}" for name, number in pairs]


def picture_readers(labelled: Samples, unlabelled: Samples, change: RowChange) -> tuple[PairReader, PixelReader] | None:
    """What reads labelled pictures before and after, and unlabelled ones; None where rows are no pictures."""
    if isinstance(labelled, Filed) and isinstance(unlabelled, Filed):
        return (lambda rows: read_file_pairs(labelled, rows, change)), lambda row: read_whole_picture(unlabelled, row)
    if isinstance(labelled, MapArrays) and isinstance(unlabelled, MapArrays):
        return (lambda rows: change_pictures(labelled.pictures, rows, change)), unlabelled.picture
    if not (isinstance(labelled, Arrays) and isinstance(unlabelled, Arrays)):
        return None
    shapes = {tuple(side.x.shape[1:]) for side in (labelled, unlabelled)}
    if len(shapes) > 1 or len(shape := shapes.pop()) != 3 or shape[0] not in (1, 3):
        return None
    show = pixel_scale(labelled.x, unlabelled.x)

    def read_pairs(rows: Iterable[int]) -> Iterator[PicturePair]:
        return ((row, show(before), show(after)) for row, before, after in change_pictures(labelled.x, rows, change))

    return read_pairs, lambda row: show(unlabelled.x[row])


def pixel_scale(*sides: Tensor) -> Any:
    """Numbers (1 or 3, H, W) → uint8 (3, H, W), black and white where both sides have their ends."""
    low, high = min(float(x.min()) for x in sides), max(float(x.max()) for x in sides)
    span = 255 / (high - low) if high > low else 0.0
    return lambda x: ((x - low) * span).round().clamp(0, 255).to(torch.uint8).expand(3, -1, -1)


def change_pictures(pictures: Tensor, rows: Iterable[int], change: RowChange) -> Iterator[PicturePair]:
    """Pictures in memory, all at once: as many as a page shows, since each of them can be read."""
    chosen = [*islice(rows, MOST_RESTYLED)]
    yield from zip(chosen, pictures[chosen], change(pictures[chosen]), strict=True)


def read_file_pairs(samples: Filed, rows: Iterable[int], change: RowChange) -> Iterator[PicturePair]:
    """Pictures in files, one by one, without those that cannot be read any more."""
    for row in rows:
        if (picture := read_whole_picture(samples, row)) is not None:
            yield row, picture, change(picture.unsqueeze(0))[0]
