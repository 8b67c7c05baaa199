"""Pictures, label maps and regions as the bytes of PNG and COCO files.

| map | PNG | value |
| --- | --- | --- |
| labels | palette, 8 bits; 16-bit grey if an id is above 255 | the class's first id, in the class's colour |
| confidence | grey, 8 bits | round(255·p) of the label's probability p |
| variance | grey, 8 bits | round(255·v / (1 − 1/C)), v = Σ_c mean_c (1 − mean_c), which lies in [0, 1 − 1/C] |
| trusted | grey, 8 bits | 255 = trusted, 0 = not |

Where nothing is known a label map has 255; a number of the table's `ignore` where 255 would be an error or a class.
PNGs are made here, every line filtered by the one above ("up"): as small as Pillow's at its quickest level and made in
half the time, for Pillow tries all five filters on every line. Maps with few values are compressed by runs alone.

| symbol of COCO | meaning |
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
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embasis.data.segmentation.classes import choose_colours, unpack_colour
from embasis.errors import require
from embasis.types import ClassTable

Lines = np.ndarray[Any, np.dtype[np.uint8]]
RunPlaces = np.ndarray[Any, np.dtype[np.int64]]

UNKNOWN_VALUE = 255
"""Of class maps in memory, and of written ones as a rule."""
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, RGB, PALETTE = 0, 2, 3
_UP = 2
MOST_DIGITS = 13
"""Parts of 5 bits in 64."""


def encode_label_png(classes: Tensor, table: ClassTable) -> bytes:
    """A class map, uint8 (H, W) with 255 = unknown, as a label map: the original ids in the colours of the classes."""
    plane, count = _to_lines(classes, "label map"), len(table.names)
    raw = plane.tobytes()
    stray = raw.translate(None, bytes([*range(count), UNKNOWN_VALUE]))
    require(not stray, f"label map: class {max(stray, default=0)} of {count}")
    ids, unknown = choose_written_ids(table)
    numbers = [*ids, *[unknown] * (256 - count)]
    if max(numbers) > 255:
        wide = np.take(np.array(numbers, ">u2"), plane)
        return encode_png(wide.view(np.uint8), plane.shape, GREY, depth=16, flat=True)
    lines = np.frombuffer(raw.translate(bytes(numbers)), np.uint8).reshape(plane.shape)
    return encode_png(lines, plane.shape, PALETTE, palette=make_palette(table), flat=True)


def encode_grey_png(values: Tensor, flat: bool = False) -> bytes:
    """Values, uint8 (H, W), as a grey picture; `flat` is quicker and smaller where neighbours are mostly the same."""
    lines = _to_lines(values, "grey picture")
    return encode_png(lines, lines.shape, GREY, flat=flat)


def encode_rgb_png(picture: Tensor) -> bytes:
    """A picture, uint8 (3, H, W), in colour."""
    right = picture.ndim == 3 and picture.shape[0] == 3 and picture.dtype == torch.uint8 and picture.numel() > 0
    require(right, f"picture must be uint8 (3, H, W), got {_describe_tensor(picture)}")
    height, width = picture.shape[1:]
    return encode_png(picture.permute(1, 2, 0).reshape(height, 3 * width).cpu().numpy(), (height, width), RGB)


def quantise_confidence(probability: Tensor) -> Tensor:
    """round(255·p)."""
    return (probability * 255).round_().clamp_(0, 255).to(torch.int32).to(torch.uint8)  # at once is slow


def quantise_variance(variance: Tensor, classes: int) -> Tensor:
    """round(255·v / (1 − 1/C)): 255 stands for the variance of an even distribution over all classes."""
    return quantise_confidence(variance / (1 - 1 / classes))


def choose_written_ids(table: ClassTable) -> tuple[list[int], int]:
    """The number that is written for each class, and the one for pixels of which nothing is known.

    Those of the table; class numbers where these cannot be in a PNG (for maps coded by colours: in a palette)."""
    ids = [numbers[0] for numbers in table.ids]
    most = 255 if table.coded == "colours" else 2**16 - 1
    if len({*ids}) < len(ids) or min(ids) < 0 or max(ids) > most:
        ids = list(range(len(ids)))
    known = () if table.coded == "colours" or table.others else table.ignore
    choice = chain(sorted(known, key=lambda number: number != UNKNOWN_VALUE), [UNKNOWN_VALUE], range(2**16))
    taken = {*ids} if table.coded == "colours" else {*ids}.union(*table.ids)
    return ids, next((number for number in choice if number not in taken and 0 <= number < 2**16), UNKNOWN_VALUE)


@lru_cache(8)
def make_palette(table: ClassTable) -> bytes:
    """256 colours: each class's at its id; for unknown pixels one that is ignored, or else that no class has."""
    colours = table.colours or choose_colours(len(table.names))
    ids, unknown = choose_written_ids(table)
    ignored = [unpack_colour(number) for number in table.ignore if number >= 0] if table.coded == "colours" else []
    free = next(colour for colour in [*ignored, *map(unpack_colour, range(0, 2**24, 255))] if colour not in colours)
    entries = dict(zip(ids, colours, strict=True)) | {unknown: free}
    return b"".join(bytes(entries.get(number, (0, 0, 0))) for number in range(256))


def encode_png(
    lines: Lines, size: tuple[int, int], kind: int, *, depth: int = 8, palette: bytes = b"", flat: bool = False
) -> bytes:
    """A PNG file; `lines` (H, bytes of a line), `size` (H, W)."""
    height, width = size
    filtered = np.empty((height, lines.shape[1] + 1), np.uint8)
    filtered[:, 0] = _UP
    filtered[0, 1:] = lines[0]
    np.subtract(lines[1:], lines[:-1], out=filtered[1:, 1:])
    packer = zlib.compressobj(1, zlib.DEFLATED, 15, 8, zlib.Z_RLE if flat else zlib.Z_DEFAULT_STRATEGY)
    data = packer.compress(filtered.data) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    chunks = [(b"IHDR", header), *([(b"PLTE", palette)] if palette else []), (b"IDAT", data), (b"IEND", b"")]
    return PNG_SIGNATURE + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


def _to_lines(values: Tensor, what: str) -> Lines:
    """The values (H, W) as bytes."""
    right = values.ndim == 2 and values.dtype == torch.uint8 and values.numel() > 0
    require(right, f"{what} must be uint8 (H, W), got {_describe_tensor(values)}")
    lines: Lines = values.detach().cpu().contiguous().numpy()
    return lines


def _describe_tensor(values: Tensor) -> str:
    return f"{str(values.dtype).removeprefix('torch.')} {tuple(values.shape)}"


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
    edges = np.column_stack([starts, ends]).ravel()
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
    for image, picture in enumerate(pictures, 1):
        size = {"height": picture.height, "width": picture.width}
        images.append(json.dumps({"id": image, "file_name": picture.name, **size}))
        for region in picture.regions:
            runs = {"size": [picture.height, picture.width], "counts": region.counts}
            place = {"iscrowd": 1, "area": region.area, "bbox": list(region.box), "segmentation": runs}
            whose = {"id": len(annotations) + 1, "image_id": image, "category_id": region.label + 1}
            annotations.append(json.dumps({**whose, **place}))
    info = {"description": description, "version": version}
    categories = [json.dumps({"id": n, "name": name, "supercategory": ""}) for n, name in enumerate(classes, 1)]
    parts = {"images": images, "categories": categories, "annotations": annotations}
    lists = ",\n".join(f'"{name}": [\n{_join_entries(entries)}]' for name, entries in parts.items())
    return f'{{"info": {json.dumps(info)},\n"licenses": [],\n{lists}}}\n'.encode("ascii")


def _join_entries(entries: Sequence[str]) -> str:
    """One entry a line."""
    return ",\n".join(entries) + ("\n" if entries else "")
