"""Regions of classes in a picture as COCO writes them: run lengths, squeezed into a line of text.

| symbol | meaning |
| --- | --- |
| classes (H, W) | int64: the class of each pixel, −1 = none |
| n | pixels, counted column by column: n = column · H + row |
| counts | lengths of runs outside, inside, outside … the region; the first may be 0, the last is not |
| text | each count, from the fourth on less the one two before it, in parts of 5 bits, the lowest first |

A part is the character 48 + its bits, + 32 where another part of the same number follows. The highest bit of the last
part is the number's sign.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

RunPlaces = np.ndarray[Any, np.dtype[np.int64]]

MOST_DIGITS = 13
"""Parts of 5 bits in 64."""


@dataclass(frozen=True)
class Region:
    """The pixels of one class in one picture."""

    label: int
    counts: str
    area: int
    box: tuple[int, int, int, int]
    """Left, top, width, height."""


@dataclass(frozen=True)
class Picture:
    """A picture and its regions; `name` is its path below the folder of pictures."""

    name: str
    height: int
    width: int
    regions: Sequence[Region]


def find_regions(classes: RunPlaces) -> list[Region]:
    """The regions of all classes that occur, in their order; the runs of all are found at once."""
    height = classes.shape[0]
    flat = classes.T.reshape(-1)
    cuts = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    starts, ends = np.concatenate([[0], cuts]), np.concatenate([cuts, [len(flat)]])
    labels = flat[starts]
    regions = []
    for label in np.unique(labels[labels >= 0]).tolist():
        first, last = starts[labels == label], ends[labels == label]
        counts = encode_counts(count_runs(first, last, len(flat)))
        regions.append(Region(label, counts, int((last - first).sum()), enclose_runs(first, last, height)))
    return regions


def count_runs(starts: RunPlaces, ends: RunPlaces, size: int) -> RunPlaces:
    """The counts of runs [start, end) among `size` pixels."""
    edges = np.empty(2 * len(starts), np.int64)
    edges[::2], edges[1::2] = starts, ends
    rest = [] if ends[-1] == size else [size]
    return np.diff(np.concatenate([edges, rest]), prepend=0).astype(np.int64)


def enclose_runs(starts: RunPlaces, ends: RunPlaces, height: int) -> tuple[int, int, int, int]:
    """The smallest box around the runs; one that goes on in the next column touches top and bottom."""
    last = ends - 1
    left, right = int(starts[0]) // height, int(last[-1]) // height
    over = bool((starts // height != last // height).any())
    top, bottom = (0, height - 1) if over else (int((starts % height).min()), int((last % height).max()))
    return left, top, right - left + 1, bottom - top + 1


def encode_counts(counts: RunPlaces) -> str:
    """Counts as text."""
    rest = counts.copy()
    rest[3:] -= counts[1:-2]
    parts = np.zeros((len(rest), MOST_DIGITS), np.uint8)
    used = np.zeros((len(rest), MOST_DIGITS), bool)
    going = np.ones(len(rest), bool)
    for place in range(MOST_DIGITS):
        bits = rest & 31
        rest >>= 5
        more = np.where(bits & 16, rest != -1, rest != 0)
        parts[:, place] = 48 + bits + 32 * more
        used[:, place] = going
        going = going & more
        if not going.any():
            break
    return parts[used].tobytes().decode("ascii")


def encode_coco(description: str, version: str, classes: Sequence[str], pictures: Iterable[Picture]) -> bytes:
    """A COCO file: categories are numbered from 1 in the order of `classes`, pictures and regions as they come."""
    images, annotations = list[str](), list[str]()
    for number, picture in enumerate(pictures, 1):
        size = {"height": picture.height, "width": picture.width}
        images.append(json.dumps({"id": number, "file_name": picture.name, **size}))
        annotations += (json.dumps(entry) for entry in _make_annotations(picture, number, len(annotations) + 1))
    info = {"description": description, "version": version}
    categories = [
        json.dumps({"id": number, "name": name, "supercategory": ""}) for number, name in enumerate(classes, 1)
    ]
    parts = {"images": images, "categories": categories, "annotations": annotations}
    lists = ",\n".join(f'"{name}": [\n{_join_entries(entries)}]' for name, entries in parts.items())
    return f'{{"info": {json.dumps(info)},\n"licenses": [],\n{lists}}}\n'.encode("ascii")


def _make_annotations(picture: Picture, image: int, first: int) -> Iterator[dict[str, Any]]:
    for number, region in enumerate(picture.regions, first):
        yield {
            "id": number,
            "image_id": image,
            "category_id": region.label + 1,
            "iscrowd": 1,
            "area": region.area,
            "bbox": list(region.box),
            "segmentation": {"size": [picture.height, picture.width], "counts": region.counts},
        }


def _join_entries(entries: Sequence[str]) -> str:
    """One entry a line."""
    return ",\n".join(entries) + ("\n" if entries else "")
