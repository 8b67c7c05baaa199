"""Which way up a label map is, when its picture has an EXIF orientation: both are used upright.

| the map | is taken as |
| --- | --- |
| has an EXIF orientation of its own | turned by that |
| has the size of the picture upright, and not that of the picture as stored | upright, drawn on what viewers show |
| has the size of the picture as stored, and not upright | as stored: turned like the picture |
| has both sizes: a square, mirrored, or half a turn | as those maps of the side that can be told, if they all agree |
| the same, and nobody can tell | nothing: an error; of corrections: upright, as `embasis export` writes them |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from embasis.data.images.decode import is_swapped
from embasis.data.images.files import ImageFile
from embasis.data.segmentation.files import MapFile

CURE = "save these pictures upright, without the orientation, or give each map the orientation of its picture"


def oriented(files: Sequence[MapFile]) -> tuple[tuple[MapFile, ...], tuple[str, ...], str]:
    """The files with their maps turned; the names of those that nobody can tell; and how others were told, if any."""
    turns = {file.name: turn_of(file.image, file.label) for file in files if file.label is not None}
    ways = {turns[file.name] == file.image.turn for file in files if _is_sign(file, turns.get(file.name))}
    doubtful = [file.name for file in files if turns.get(file.name, 1) is None]
    if len(ways) != 1:
        return _turned(files, turns), tuple(doubtful), ""
    as_stored = ways == {True}
    turns |= {file.name: file.image.turn if as_stored else 1 for file in files if turns.get(file.name, 1) is None}
    return _turned(files, turns), (), ("turned like their pictures" if as_stored else "upright") if doubtful else ""


def turn_of(picture: ImageFile, label: ImageFile) -> int | None:
    """How a map is turned to fit its picture; None where its size does not tell."""
    if label.turn != 1 or picture.turn == 1:
        return label.turn
    height, width = picture.size
    stored = (width, height) if is_swapped(picture.turn) else (height, width)
    if label.size != stored:
        return 1  # upright, or of another size, which is an error that others find
    return None if stored == picture.size else picture.turn


def _is_sign(file: MapFile, turn: int | None) -> bool:
    """Whether the sizes of a picture and its map tell how the maps of this side are drawn."""
    if file.label is None or turn is None or file.image.turn == 1 or file.label.turn != 1:
        return False
    return file.label.size in (file.image.size, file.image.size[::-1])


def _turned(files: Sequence[MapFile], turns: dict[str, int | None]) -> tuple[MapFile, ...]:
    return tuple(replace(file, turn=turns[file.name] or 1) if file.name in turns else file for file in files)


def upright_size(size: tuple[int, int], turn: int) -> tuple[int, int]:
    """Height and width of a map that is turned so."""
    return size[::-1] if is_swapped(turn) else size
