"""Small pictures of a run's rows for its report: the surest and the least sure of each class, and those of the basis.

`gallery/rows-003.json` has `items` (name, label, why, probability, trusted, and the true class where it is known) and
`pictures`, base64 by name. Pictures are decoded and encoded anew: no byte of the user's files goes into a page.
The file is sealed, and `labels` in it is the hash of the labels that it shows (those of round 3).

| limit | value |
| --- | --- |
| long side | SIDE pixels |
| rows of a class and kind | EACH |
| rows in all | MOST |
| bytes of pictures | BYTES, of which BASIS_BYTES stay free for those of the basis |
"""

from __future__ import annotations

import base64
import binascii
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 — its usual name

from embasis.data.images.decode import decode
from embasis.data.images.header import UnreadableImage
from embasis.data.workers.process import read_checked, request_for
from embasis.errors import CorruptError, require
from embasis.inputs.image_inputs import ImageInputs
from embasis.report.gallery import MOST_BASIS_BYTES, MOST_COMPONENTS, MOST_PICTURE_BYTES, THUMBNAILS_EACH
from embasis.report.run_view import Component, RowExample
from embasis.runs.basis_view import row_ids
from embasis.storage import SealedFiles, encode_rgb_png, read_sealed
from embasis.types import Arrays, Problem

OLD_ROW_GALLERY = "gallery/rows.json"
"""Of runs by 0.1.0, not sealed."""
THUMBNAIL_SIDE, PNG_SIDE = 96, 32
MOST_EXAMPLES = 800
JPEG_QUALITY = 80
LARGEST_GALLERY_FILE = 2 * MOST_PICTURE_BYTES
"""Bytes of such a file that are read."""
EXAMPLE_KINDS = ("surest", "least sure")

PixelReader = Callable[[int], Tensor | None]
"""uint8 (3, H, W) of a row; None when it cannot be read any more."""


def pixel_reader(problem: Problem, front: ImageInputs | None) -> PixelReader | None:
    """How the pictures of the unlabelled rows are had; None where rows are no pictures."""
    if front is not None and front.unlabelled:
        return lambda row: read_pixels(lambda: read_checked(request_for(front.unlabelled[row])))
    side = problem.unlabelled
    if not isinstance(side, Arrays) or side.x.ndim != 4 or side.x.shape[1] not in (1, 3) or not side.x.numel():
        return None
    low, high = float(side.x.min()), float(side.x.max())
    span = 255 / (high - low) if high > low else 0.0
    return lambda row: ((side.x[row] - low) * span).round().to(torch.uint8).expand(3, -1, -1)


def read_pixels(read: Callable[[], bytes]) -> Tensor | None:
    """The pixels, or None: whoever reads a file for training says what is wrong with it."""
    try:
        return decode(read())
    except (UnreadableImage, OSError):
        return None


def encode_thumbnail(pixels: Tensor) -> bytes:
    """A copy with a long side of at most SIDE: PNG where it is tiny, since it is shown enlarged, else JPEG."""
    height, width = pixels.shape[1:]
    factor = THUMBNAIL_SIDE / max(height, width)
    if factor < 1:
        size = (max(1, round(height * factor)), max(1, round(width * factor)))
        pixels = F.interpolate(pixels.unsqueeze(0).float(), size, mode="bilinear", antialias=True)[0]
        pixels = pixels.round().clamp(0, 255).to(torch.uint8)
    return encode_rgb_png(pixels.contiguous()) if max(pixels.shape[1:]) <= PNG_SIDE else encode_jpeg(pixels)


def encode_jpeg(pixels: Tensor) -> bytes:
    """JPEG of uint8 (3, H, W), without any other data."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()).save(out, "JPEG", quality=JPEG_QUALITY)
    return out.getvalue()


def choose_examples(labels: Mapping[str, Sequence[Any]], classes: Sequence[str]) -> Iterator[tuple[int, str]]:
    """(row, kind), the best of every class and kind first, then the second ones …; no row twice."""
    doubt = labels.get("uncertainty") or [1 - p for p in labels["probability"]]
    rows: dict[str, list[int]] = {name: [] for name in classes}
    for row in sorted(range(len(doubt)), key=lambda row: (doubt[row], row)):
        rows.setdefault(labels["label"][row], []).append(row)
    for rank in range(THUMBNAILS_EACH):
        for found in rows.values():
            if rank < (len(found) + 1) // 2:
                yield found[rank], EXAMPLE_KINDS[0]
            if rank < len(found) // 2:
                yield found[-1 - rank], EXAMPLE_KINDS[1]


def make_row_gallery(
    problem: Problem, front: ImageInputs | None, labels: Mapping[str, Sequence[Any]] | None, basis: Sequence[Component]
) -> dict[str, Any] | None:
    """What is written as gallery/rows.json; None where rows are no pictures."""
    read = pixel_reader(problem, front)
    if read is None or not labels or not labels["id"]:
        return None
    names, pictures, items = row_ids(problem), ThumbnailSet(read), list[dict[str, Any]]()
    hidden = problem.hidden_labels if isinstance(problem.hidden_labels, Tensor) else None
    for row, why in choose_examples(labels, problem.schema.names):
        if len(items) < MOST_EXAMPLES and pictures.add(names[row], row, MOST_PICTURE_BYTES - MOST_BASIS_BYTES):
            true = -1 if hidden is None else int(hidden[row])
            line = {key: labels[key][row] for key in ("label", "probability", "trusted")}
            truth = problem.schema.names[true] if true >= 0 else None
            items.append({"name": names[row], "why": why, "true": truth, **line})
    place = {name: row for row, name in enumerate(names)}
    for component in sorted(basis, key=lambda found: -found.share)[:MOST_COMPONENTS]:
        for name in (name for name, _ in component.nearest if name in place):
            pictures.add(name, place[name], MOST_PICTURE_BYTES)
    return {"items": items, "pictures": pictures.encoded()}


class ThumbnailSet:
    """Small pictures by name, up to a number of bytes."""

    def __init__(self, read: PixelReader) -> None:
        self.read, self.found, self.bytes = read, dict[str, bytes](), 0

    def add(self, name: str, row: int, most: int) -> bool:
        """Whether the picture is there now."""
        if name in self.found or self.bytes >= most:
            return name in self.found
        pixels = self.read(row)
        if pixels is None or self.bytes + len(data := encode_thumbnail(pixels)) > most:
            return False
        self.found[name], self.bytes = data, self.bytes + len(data)
        return True

    def encoded(self) -> dict[str, str]:
        """As JSON holds them."""
        return {name: base64.b64encode(data).decode() for name, data in self.found.items()}


def row_gallery_name(number: int) -> str:
    """Where the small pictures of the rows lie that round labelled."""
    return f"gallery/rows-{number:03d}.json"


def read_row_gallery(
    files: SealedFiles, number: int, labels: str | None
) -> tuple[tuple[RowExample, ...], dict[str, bytes]]:
    """The items that show a round's labels, which have that hash, and all small pictures; none where none are."""
    file = files.path / row_gallery_name(number)
    if not os.path.lexists(file):
        old = files.path / OLD_ROW_GALLERY
        return (
            parse_row_gallery(files.json(OLD_ROW_GALLERY, LARGEST_GALLERY_FILE), old)
            if OLD_ROW_GALLERY in files
            else ((), {})
        )
    facts = read_sealed(file, LARGEST_GALLERY_FILE + 1)
    rule = f"{file} shows other labels than those of the run; the fit command that made the run makes it again"
    require(facts.get("labels") == labels, rule, CorruptError)
    return parse_row_gallery(facts, file)


def parse_row_gallery(facts: Any, file: Path) -> tuple[tuple[RowExample, ...], dict[str, bytes]]:
    """The items and pictures of a gallery that was read from that file."""
    try:
        pictures = {str(name): base64.b64decode(data, validate=True) for name, data in facts["pictures"].items()}
        return tuple(parse_row_example(row, pictures) for row in facts["items"]), pictures
    except (ValueError, TypeError, KeyError, AttributeError, binascii.Error) as error:
        raise CorruptError(f"{file} is not a gallery: {error}") from error


def parse_row_example(row: Mapping[str, Any], pictures: Mapping[str, bytes]) -> RowExample:
    """One row of the gallery."""
    name, true = str(row["name"]), row["true"]
    return RowExample(
        name,
        str(row["why"]),
        str(row["label"]),
        float(row["probability"]),
        bool(row["trusted"]),
        None if true is None else str(true),
        pictures[name],
    )
