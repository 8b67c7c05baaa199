"""A few pictures of a run for its report: the least and the most sure ones, each beside its labels.

| file in the run folder | content |
| --- | --- |
| gallery/round-003/index.json | a list of name, why, and the names of the files |
| gallery/round-003/NN-KIND.png | small copies: picture, labels, variance, trust, and true labels where they are known |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 — its usual name

from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.engine.labels import MapLabels
from embasis.errors import CorruptError, require
from embasis.report.run_view import MapExample
from embasis.runs.map_output import label_map
from embasis.storage import SealedFiles, encode_grey_png, encode_label_png, encode_rgb_png
from embasis.types import ClassTable, Problem

MAPS_EACH = 4
"""Pictures of each kind."""
LARGEST_SIDE = 320
"""Pixels of the long side."""
MAP_COPIES = ("picture", "labels", "variance", "trusted", "truth")
GALLERY_INDEX = "index.json"
OLD_MAP_GALLERY = "gallery"
"""Where runs by 0.1.0 have the files of their last round."""
LARGEST_INDEX_FILE = 2**20
LARGEST_COPY_FILE = 2**22
"""Bytes of a small copy that are read."""


def map_row_names(problem: Problem) -> tuple[str, ...]:
    """What the unlabelled pictures are called in tables and as files."""
    return problem.row_names or tuple(f"{number:06d}" for number in problem.unlabelled.ids.tolist())


def map_gallery_files(
    problem: Problem, verdict: MapLabels, table: ClassTable, variance: Mapping[str, float], number: int
) -> dict[str, bytes]:
    """The files of a round's gallery: the pictures of the largest and of the smallest mean variance (by name)."""
    names, home = map_row_names(problem), map_gallery_folder(number)
    order = sorted((row for row, name in enumerate(names) if name in variance), key=lambda row: -variance[names[row]])
    few = min(MAPS_EACH, len(order) // 2 or len(order))
    chosen = [(row, "least sure") for row in order[:few]]
    chosen += [(row, "surest") for row in order[len(order) - min(few, len(order) - few) :]]
    found, index = dict[str, bytes](), list[dict[str, str]]()
    for place, (row, why) in enumerate(chosen):
        pictures = copy_map_row(problem, verdict, table, row)
        index.append({"name": names[row], "why": why, **{kind: f"{place:02d}-{kind}.png" for kind in pictures}})
        found |= {f"{home}/{place:02d}-{kind}.png": data for kind, data in pictures.items()}
    return {**found, f"{home}/{GALLERY_INDEX}": json.dumps(index).encode("ascii")}


def map_gallery_folder(number: int) -> str:
    """The folder of a round's gallery in the run folder."""
    return f"gallery/round-{number:03d}"


def copy_map_row(problem: Problem, verdict: MapLabels, table: ClassTable, row: int) -> dict[str, bytes]:
    """All pictures of one row as PNG."""
    samples = problem.unlabelled
    assert isinstance(samples, MapFiles | MapArrays)
    height, width = fit_size(*(int(size) for size in samples.sizes[row]))
    maps = label_map(verdict.part(row).enlarged(0, (height, width)), row, problem.schema)
    picture = F.interpolate(samples.picture(row).unsqueeze(0).float(), (height, width), mode="bilinear", antialias=True)
    found = {
        "picture": encode_rgb_png(picture[0].round().clamp(0, 255).to(torch.uint8)),
        "labels": encode_label_png(maps.labels, table),
        "variance": encode_grey_png(maps.variance),
        "trusted": encode_grey_png(maps.trusted),
    }
    if problem.hidden_labels is not None:
        found["truth"] = encode_label_png(resize_truth(problem.hidden_labels[row], height, width), table)
    return found


def fit_size(height: int, width: int) -> tuple[int, int]:
    """Of a copy with a long side of at most LARGEST."""
    factor = min(1.0, LARGEST_SIDE / max(height, width))
    return max(1, round(height * factor)), max(1, round(width * factor))


def resize_truth(truth: Tensor, height: int, width: int) -> Tensor:
    """A map of class numbers at another size, uint8; 255 where nothing is known."""
    rows = torch.arange(height) * truth.shape[0] // height
    columns = torch.arange(width) * truth.shape[1] // width
    small = truth[rows.unsqueeze(1), columns]
    return torch.where(small < 0, 255, small).to(torch.uint8)


def read_map_gallery(files: SealedFiles, number: int) -> tuple[MapExample, ...]:
    """The gallery of a round, if it has one; names in it lead nowhere but to its own files."""
    home = next(
        (home for home in (map_gallery_folder(number), OLD_MAP_GALLERY) if f"{home}/{GALLERY_INDEX}" in files), None
    )
    if home is None or not (files.path / home).exists():  # a user may have deleted it
        return ()
    try:
        rows = files.json(f"{home}/{GALLERY_INDEX}", LARGEST_INDEX_FILE)
        return tuple(parse_map_example(files, home, place, row) for place, row in enumerate(rows))
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptError(f"{files.path / home / GALLERY_INDEX}: {error}") from error


def parse_map_example(files: SealedFiles, home: str, place: int, row: Mapping[str, Any]) -> MapExample:
    """One line of the index with its pictures."""
    require(place < 2 * MAPS_EACH, f"{home}/{GALLERY_INDEX} names more than {2 * MAPS_EACH} pictures", CorruptError)
    parts = {
        kind: files.read(f"{home}/{place:02d}-{kind}.png", LARGEST_COPY_FILE) for kind in MAP_COPIES if kind in row
    }
    return MapExample(str(row["name"]), str(row["why"]), **parts)


def read_palette(facts: Mapping[str, Any]) -> tuple[tuple[int, int, int], ...]:
    """The colours of the classes of a run on label maps; none for other runs."""
    maps = facts.get("maps")
    if not maps:
        return ()
    return tuple((int(red), int(green), int(blue)) for red, green, blue in maps["table"]["colours"])
