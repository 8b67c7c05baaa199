"""Labelled pictures before and after a restyler, and an unlabelled one: made when a run ends, read with its page.

They lie in gallery/restyled.json: `restyler`, `summary` and `share` of the new style, `count` of the labelled pictures,
`examples` (name, label, before, after), `other` (name, picture) and `style`, the hash of what the restyler had learned.
Pictures are small copies in base64, at most 2 · 7 + 1 of them, however large the data are.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from torch import Tensor

from embasis.errors import CorruptError, require
from embasis.report import MOST_RESTYLED, RestyledExample, RestyledPictures
from embasis.report.collect import PixelReader, encode_thumbnail, explain_malformed
from embasis.storage import SealedFiles, read_sealed
from embasis.types import RowChange

RESTYLED_NAME = "gallery/restyled.json"
RESTYLED_SIDE = 160
"""Pixels of the long side of a copy."""
LARGEST_RESTYLED_FILE = 2**21
PicturePair = tuple[int, Tensor, Tensor]
"""A labelled row, and uint8 (3, H, W) of it before and after."""
PairReader = Callable[[Iterator[int]], Iterator[PicturePair]]
"""From rows to those of them that can be read."""


def hash_style(learned: Mapping[str, Tensor]) -> str:
    """sha256 of what a restyler has learned."""
    digest = hashlib.sha256()
    for name, value in sorted(learned.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode() + value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def choose_rows(labels: Sequence[int]) -> Iterator[int]:
    """The first row of each class, then the second ones …"""
    by_class: dict[int, list[int]] = {}
    for row, label in enumerate(labels):
        by_class.setdefault(label, []).append(row)
    rows = [by_class[label] for label in sorted(by_class)]
    for rank in range(max(map(len, rows), default=0)):
        yield from (of_class[rank] for of_class in rows if rank < len(of_class))


def make_restyled_gallery(
    change: RowChange, names: Sequence[str], labels: Sequence[int], classes: Sequence[str], read: PairReader
) -> dict[str, Any] | None:
    """What is stored of the labelled rows, without the unlabelled one; None where no row can be read.

    `classes` are the names of the labels; there are none where a picture has many."""
    examples = list[dict[str, str]]()
    for row, before, after in islice(read(choose_rows(labels)), MOST_RESTYLED):
        copies = {"before": encode_copy(before), "after": encode_copy(after)}
        examples.append({"name": names[row], "label": classes[labels[row]] if classes else "", **copies})
    restyler = change.restyler
    facts = {"restyler": restyler.name, "summary": restyler.summary, "share": restyler.weight, "count": len(labels)}
    return {**facts, "examples": examples, "style": hash_style(change.state)} if examples else None


def make_other_picture(names: Sequence[str], read: PixelReader) -> dict[str, str] | None:
    """The first unlabelled picture that can be read."""
    for row, name in enumerate(names):
        if (pixels := read(row)) is not None:
            return {"name": name, "picture": encode_copy(pixels)}
    return None


def encode_copy(pixels: Tensor) -> str:
    """A small copy as JSON holds it."""
    return base64.b64encode(encode_thumbnail(pixels, RESTYLED_SIDE)).decode()


def read_restyled(files: SealedFiles, tensors: Mapping[str, Tensor]) -> RestyledPictures | None:
    """The pictures of a run with these tensors; None where none are stored."""
    file = files.path / RESTYLED_NAME
    if not os.path.lexists(file):
        return None
    stored = read_sealed(file, LARGEST_RESTYLED_FILE)
    learned = {name.removeprefix("restyle/"): value for name, value in tensors.items() if name.startswith("restyle/")}
    rule = f"{file} shows another style than that of the run; the fit command that made the run makes it again"
    require(stored.get("style") == hash_style(learned), rule, CorruptError)
    with explain_malformed(f"{file} is not a gallery"):
        examples = tuple(parse_restyled(row) for row in stored["examples"][:MOST_RESTYLED])
        other = stored["other"]
        return RestyledPictures(
            str(stored["restyler"]),
            str(stored["summary"]),
            float(stored["share"]),
            int(stored["count"]),
            examples,
            "" if other is None else str(other["name"]),
            None if other is None else base64.b64decode(other["picture"], validate=True),
        )


def parse_restyled(row: Mapping[str, Any]) -> RestyledExample:
    """One labelled picture."""
    before, after = (base64.b64decode(row[key], validate=True) for key in ("before", "after"))
    return RestyledExample(str(row["name"]), str(row["label"]), before, after)
