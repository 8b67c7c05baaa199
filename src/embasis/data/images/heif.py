"""HEIC and HEIF images, where the optional package pillow-heif is installed.

The size comes from our own walk over the boxes of the file, so that a scan of strange files runs none of the decoder's
code; pixels are decoded as those of all other formats, by a worker. The decoder takes no more memory than the size that
is stored allows, whatever the compressed picture itself says.

| box | what is taken from it |
| --- | --- |
| `meta` / `pitm` | the number of the picture that the file shows |
| `meta` / `iprp` / `ipma` | which properties that picture has |
| `meta` / `iprp` / `ipco` | the properties: `ispe` size, `clap` the part that is shown, `irot` quarter turns |

The decoder turns and cuts the picture by these; the orientation in an EXIF block says it once more, and is ignored.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from PIL import Image

HEIF, HEIF_SUFFIXES = "HEIF", (".heic", ".heif")
MOST_BOXES = 10_000
"""Boxes, or pictures with properties, that are walked over; a picture in a thousand tiles has some three."""


class BadBoxes(ValueError):  # noqa: N818 — a reason, like UnreadableImage
    """Why the boxes of a file cannot be read."""


def has_heif() -> bool:
    """Whether pillow-heif is installed; it is not imported yet."""
    return find_spec("pillow_heif") is not None


def open_heif(stream: io.BytesIO) -> Image.Image:
    """The picture as Pillow sees it, without changing what Pillow opens elsewhere in this process."""
    from pillow_heif import HeifImageFile

    image: Image.Image = HeifImageFile(stream)
    return image


class _Box(NamedTuple):
    kind: bytes
    start: int
    end: int


class HeifSizes(NamedTuple):
    """Width and height of a picture as it is stored, which decides what it costs, and as it is shown."""

    stored: tuple[int, int]
    shown: tuple[int, int]


def read_heif_sizes(data: bytes) -> HeifSizes:
    """The sizes of the picture that a file shows; BadBoxes where it does not say."""
    meta = _find(data, b"meta", 0, len(data))
    inside = meta.start + 4  # version and flags
    number = _primary(data, _find(data, b"pitm", inside, meta.end))
    properties = _find(data, b"iprp", inside, meta.end)
    held = _find(data, b"ipco", properties.start, properties.end)
    known = list(_iter_boxes(data, held.start, held.end))
    sizes: HeifSizes | None = None
    for box in (box for box in _iter_boxes(data, properties.start, properties.end) if box.kind == b"ipma"):
        for place in _places_of(data, box, number):
            if not 0 < place <= len(known):
                raise BadBoxes("a property is not there")
            sizes = _apply(data, known[place - 1], sizes)
    if sizes is None:
        raise BadBoxes("its size is not there")
    return sizes


def _iter_boxes(data: bytes, start: int, end: int) -> Iterator[_Box]:
    """The boxes of a part of the file; those that reach over its end are refused."""
    at = start
    for _ in range(MOST_BOXES):
        if at + 8 > end:
            return
        size, kind = struct.unpack_from(">I4s", data, at)
        begin = at + 8
        if size == 1:
            size, begin = _box_number(data, ">Q", at + 8, end), at + 16
        stop = end if size == 0 else at + size
        if stop > end or stop < begin:
            raise BadBoxes("a box reaches over its end")
        yield _Box(kind, begin, stop)
        at = stop
    raise BadBoxes(f"has more than {MOST_BOXES:,} boxes")


def _find(data: bytes, kind: bytes, start: int, end: int) -> _Box:
    box = next((box for box in _iter_boxes(data, start, end) if box.kind == kind), None)
    if box is None:
        raise BadBoxes(f"has no box {kind.decode()}")
    return box


def _box_number(data: bytes, form: str, at: int, end: int) -> int:
    if at < 0 or at + struct.calcsize(form) > end:
        raise BadBoxes("a box reaches over its end")
    return int(struct.unpack_from(form, data, at)[0])


def _primary(data: bytes, box: _Box) -> int:
    """The number of the picture that is shown."""
    return _box_number(data, ">I" if _box_number(data, ">B", box.start, box.end) else ">H", box.start + 4, box.end)


def _places_of(data: bytes, box: _Box, wanted: int) -> list[int]:
    """The properties of a picture in their order, counted from 1."""
    head = _box_number(data, ">I", box.start, box.end)
    item, place = (">I" if head >> 24 else ">H"), (">H" if head & 1 else ">B")
    count, at = _box_number(data, ">I", box.start + 4, box.end), box.start + 8
    if count > MOST_BOXES:
        raise BadBoxes(f"has more than {MOST_BOXES:,} pictures")
    for _ in range(count):
        number = _box_number(data, item, at, box.end)
        at += struct.calcsize(item)
        several = _box_number(data, ">B", at, box.end)
        width = struct.calcsize(place)
        if number == wanted:
            mask = 0x7FFF if width == 2 else 0x7F  # the first bit says that a property matters
            return [_box_number(data, place, at + 1 + width * i, box.end) & mask for i in range(several)]
        at += 1 + width * several
    return []


def _apply(data: bytes, box: _Box, sizes: HeifSizes | None) -> HeifSizes | None:
    """The sizes after one property."""
    if box.kind == b"ispe" and sizes is None:
        size = _box_number(data, ">I", box.start + 4, box.end), _box_number(data, ">I", box.start + 8, box.end)
        return HeifSizes(size, size)
    if sizes is None:
        return None
    width, height = sizes.shown
    if box.kind == b"irot" and _box_number(data, ">B", box.start, box.end) & 1:
        return sizes._replace(shown=(height, width))
    if box.kind == b"clap":
        wide, below, high, under = (_box_number(data, ">I", box.start + 4 * i, box.end) for i in range(4))
        if not below or not under:
            raise BadBoxes("the part that is shown has no size")
        return sizes._replace(shown=(min(width, round(wide / below)), min(height, round(high / under))))
    return sizes
