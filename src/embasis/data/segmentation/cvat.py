"""Label maps as CVAT gives and takes them: a .zip file in the format "Segmentation mask 1.1".

| file in the archive | content |
| --- | --- |
| labelmap.txt | a line for each class, `name:red,green,blue::`; `background` is what has no label |
| ImageSets/Segmentation/default.txt | the names of the pictures, without their endings |
| SegmentationClass/NAME.png | the colour of each pixel's class |

Of CVAT's formats this one gives a map back exactly, whatever a person has drawn with: polygons and brush strokes are
pixels in it, drawn by CVAT itself. Names in an archive are compared with those of pictures and never used as paths.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from embasis.data.class_labels import quote_names
from embasis.data.formats import LARGEST_TEXT, ZIP_METHODS, open_regular, refuse_unreadable
from embasis.data.segmentation.classes import choose_colours, pack_colour
from embasis.data.segmentation.labels import BadMap, decode_classes, read_map_header
from embasis.errors import ConfigError, InputDataError, quote, require
from embasis.types import ClassTable

LABEL_MAP, PICTURE_LIST, MASKS = "labelmap.txt", "ImageSets/Segmentation/default.txt", "SegmentationClass/"
BACKGROUND, BACKGROUND_COLOUR = "background", (0, 0, 0)
LARGEST_MASK = 2**27
"""Bytes of one map, packed and unpacked."""
_LABEL_LINE = re.compile(r"(?P<name>[^:]+):(?P<colour>[0-9]{1,3},[0-9]{1,3},[0-9]{1,3}):[^:]*:[^:]*", re.ASCII)


def cvat_table(names: Sequence[str], colours: Sequence[tuple[int, int, int]]) -> ClassTable:
    """The classes of a run as CVAT codes them, in their own colours where all differ and none is the background's."""
    odd = [name for name in names if name.lower() == BACKGROUND or re.search(r"[:\r\n#]|^\s|\s$", name)]
    hint = f"CVAT has no class of that name ({BACKGROUND} is what has no label; no colon, # or line end)"
    require(not odd, f"{hint}: {quote_names(odd)}; rename it in classes.toml", ConfigError)
    own = tuple(colours)
    if len({*own, BACKGROUND_COLOUR}) <= len(names):
        spare = [colour for colour in choose_colours(len(names) + 1) if colour != BACKGROUND_COLOUR]
        own = tuple(spare[: len(names)])
    return make_cvat_table(tuple(names), own, BACKGROUND_COLOUR)


def make_cvat_table(
    names: tuple[str, ...], colours: tuple[tuple[int, int, int], ...], background: tuple[int, int, int]
) -> ClassTable:
    """A table of colours in which that of the background says nothing."""
    ids = tuple((pack_colour(colour),) for colour in colours)
    return ClassTable(names, ids, colours, (pack_colour(background),), coded="colours")


def format_label_map(table: ClassTable) -> str:
    """labelmap.txt of the table."""
    entries = [(BACKGROUND, BACKGROUND_COLOUR), *zip(table.names, table.colours, strict=True)]
    lines = [f"{name}:{','.join(map(str, colour))}::" for name, colour in entries]
    return "\n".join(["# label:color_rgb:parts:actions", *lines, ""])


def parse_label_map(text: str, names: tuple[str, ...], where: str) -> ClassTable:
    """The colours of the run's classes in an archive; a class that it does not name has no pixel there."""
    colours: dict[str, tuple[int, int, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _LABEL_LINE.fullmatch(line.strip())
        require(found, f"{where}: {LABEL_MAP}, line {number} is not name:red,green,blue::, got {quote(line)}")
        assert found is not None
        red, green, blue = (int(part) for part in found["colour"].split(","))
        require(max(red, green, blue) < 256, f"{where}: {LABEL_MAP}, line {number}: a colour has parts up to 255")
        require(found["name"] not in colours, f"{where}: {LABEL_MAP} names {quote(found['name'])} twice")
        colours[found["name"]] = (red, green, blue)
    unknown = {*colours} - {*names, BACKGROUND}
    require(not unknown, f"{where}: unknown classes: {quote_names(unknown)}; the run has: {quote_names(names, 50)}")
    twice = len({*colours.values()}) < len(colours)
    require(not twice, f"{where}: {LABEL_MAP} has two classes of one colour")
    background = colours.get(BACKGROUND, BACKGROUND_COLOUR)
    used = {*colours.values(), background}
    free = (colour for colour in choose_colours(len(names) + len(used) + 1) if colour not in used)
    own = tuple(colours[name] if name in colours else next(free) for name in names)
    return make_cvat_table(names, own, background)


@dataclass(frozen=True, eq=False)
class MaskArchive:
    """An open archive: the table of its colours, and the names of its maps without their endings."""

    where: str
    archive: zipfile.ZipFile
    table: ClassTable
    members: dict[str, zipfile.ZipInfo]

    def read(self, name: str, size: tuple[int, int]) -> Tensor:
        """uint8 (H, W): the class of each pixel, 255 where there is none; the picture has that height and width."""
        data = read_member(self.archive, self.members[name], self.where, LARGEST_MASK)
        what = f"{self.where}: {MASKS}{name}.png"
        try:
            head = read_map_header(data)
            shape = f"{head.width}×{head.height} pixels, its picture {size[1]}×{size[0]}"
            require((head.height, head.width) == size, f"{what}: has {shape}")
            return decode_classes(data, self.table)
        except BadMap as error:
            raise InputDataError(f"{what}: {error}") from error


def read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, where: str, most: int) -> bytes:
    """The bytes of one file of an archive, never more than it may have."""
    too_large = f"{where}: {quote(entry.filename)} has {entry.file_size:,} bytes, at most {most:,} are read"
    require(entry.file_size <= most, too_large)
    packed = f"{where}: {quote(entry.filename)} is packed in another way than deflate"
    require(entry.compress_type in ZIP_METHODS, packed)
    with archive.open(entry) as stream:
        data = stream.read(most + 1)
    require(len(data) == entry.file_size, f"{where}: {quote(entry.filename)} has another size than the archive says")
    return data


@contextmanager
def open_masks(path: Path, names: tuple[str, ...]) -> Iterator[MaskArchive]:
    """The archive that CVAT has exported, whose classes are those of the run."""
    where, hint = str(path), "export from CVAT as 'Segmentation mask 1.1'"
    try:
        with refuse_unreadable(path), open_regular(path) as file, zipfile.ZipFile(file) as archive:
            entries = [entry for entry in archive.infolist() if not entry.filename.endswith("/")]
            label_maps = [entry for entry in entries if entry.filename == LABEL_MAP]
            require(label_maps, f"{where}: no {LABEL_MAP}; {hint}")
            require(len(label_maps) == 1, f"{where}: {len(label_maps)} files are called {LABEL_MAP}; {hint}")
            text = read_member(archive, label_maps[0], where, LARGEST_TEXT).decode("utf-8-sig")
            masks = [entry for entry in entries if entry.filename.startswith(MASKS) and entry.filename.endswith(".png")]
            members = {entry.filename[len(MASKS) : -len(".png")]: entry for entry in masks}
            require(len(members) == len(masks), f"{where}: two maps have one name")
            require(members, f"{where}: no map in {MASKS}; {hint}")
            yield MaskArchive(where, archive, parse_label_map(text, names, where), members)
    except InputDataError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise InputDataError(f"{where}: not a readable .zip file: {error}; {hint}") from error
