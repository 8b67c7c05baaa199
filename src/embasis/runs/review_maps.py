"""A review of label maps: a person sees a picture beside its map, and gives its parts their right classes.

A part is a connected piece of one class. Parts are numbered from 1 on, those with the most variance in them first; the
page gets a grey picture in which every pixel has the number of its part, 0 where it belongs to none that can be chosen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage

from embasis.data.segmentation.classes import choose_colours
from embasis.data.segmentation.labels import BadMap, read_png_numbers
from embasis.errors import ConfigError, CorruptError, InputDataError, quote, require
from embasis.runs.finished_run import NO_CLASS, STRANGE, class_numbers, read_plane
from embasis.runs.review import Review, ReviewItem
from embasis.runs.review_sources import ShownPicture
from embasis.storage.checkpoints import sha256
from embasis.storage.correction_files import CorrectionMaps
from embasis.storage.label_map_folder import StoredMaps
from embasis.storage.picture_formats import UNKNOWN_VALUE, encode_grey_png, encode_label_png, encode_rgb_png
from embasis.types import ClassTable

MOST_PARTS = 120
"""Parts of a map that can be chosen: their numbers are those of a grey picture."""
UNKNOWN_COLOUR = (128, 128, 128)


@dataclass(frozen=True)
class MapFileInfo:
    """Where the run has the map of a picture."""

    name: str
    height: int
    width: int


def split_map(classes: NDArray[np.int64], variance: NDArray[Any]) -> tuple[NDArray[np.uint8], list[dict[str, Any]]]:
    """The number of each pixel's part, and the class, the share of the picture and the mean variance of each part."""
    pieces, count = np.zeros(classes.shape, np.int64), 0
    for number in np.unique(classes):
        found, more = ndimage.label(classes == number)
        pieces[found > 0] = found[found > 0] + count
        count += more
    sizes = np.bincount(pieces.ravel(), minlength=count + 1)[1:]
    sums = np.bincount(pieces.ravel(), variance.ravel().astype(np.float64), count + 1)[1:]
    firsts = np.unique(pieces, return_index=True)[1]
    order = np.lexsort((np.arange(count), -sizes, -sums))[:MOST_PARTS]
    numbers = np.zeros(count + 1, np.uint8)
    numbers[order + 1] = np.arange(1, len(order) + 1)
    parts = [
        {
            "class": int(classes.ravel()[firsts[piece]]),
            "share": float(sizes[piece] / classes.size),
            "variance": float(sums[piece] / sizes[piece] / 255),
        }
        for piece in order
    ]
    return numbers[pieces], parts


class MapReview(Review):
    """A review of label maps: an answer has the right class of each part that has another one, None = unknown."""

    has_maps = True
    what = "pictures"

    def __init__(
        self,
        title: str,
        maps: StoredMaps,
        table: ClassTable,
        items: Sequence[tuple[ReviewItem, MapFileInfo]],
        folder: CorrectionMaps,
        pictures: Callable[[str], ShownPicture],
    ) -> None:
        super().__init__(title, table.names, [item for item, _ in items], folder.path)
        self.maps, self.table, self.folder, self.pictures = maps, table, folder, pictures
        self.places = [place for _, place in items]
        self.numbers = class_numbers(maps, tuple(table.names))
        self.colours = table.colours or choose_colours(len(table.names))

    def is_decided(self, place: int) -> bool:
        """Whether there is a corrected map."""
        return self.places[place].name in self.folder

    def read_classes(self, place: int, stored: bytes | None) -> NDArray[np.int64]:
        """The class of each pixel: as it was corrected and stored, or else as the run has it."""
        file = self.places[place]
        if stored is None:
            numbers = read_plane(self.maps, "labels", file.name, (file.height, file.width))
        else:
            where = f"{self.folder.path / file.name}"
            try:
                numbers = read_png_numbers(stored)
            except BadMap as error:
                raise InputDataError(f"{where}: {error}") from error
            require(numbers.shape == (file.height, file.width), f"{where}: has another size than its picture")
        classes: NDArray[np.int64] = self.numbers[numbers]
        require((classes != STRANGE).all(), f"{file.name}: a number that is no class", CorruptError)
        return classes

    def split(
        self, place: int, stored: bytes | None
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8], list[dict[str, Any]]]:
        """The classes of an item as it is stored, the number of each pixel's part, and the parts."""
        file, classes = self.places[place], self.read_classes(place, stored)
        variance = read_plane(self.maps, "variance", file.name, (file.height, file.width))
        return classes, *split_map(classes, variance)

    def describe(self, place: int) -> dict[str, Any]:
        """The item, its parts, and whether it was decided."""
        file, stored = self.places[place], self._stored(place)
        _, _, parts = self.split(place, stored)
        named = [{**part, "class": self.classes[part["class"]] if part["class"] >= 0 else None} for part in parts]
        decision = None if stored is None else {"label": "", "unusable": False}
        facts = {"place": place, **vars(self.items[place]), "values": None, "decision": decision, "parts": named}
        shown = {"pictures": ["picture", "map"], "size": [file.width, file.height]}
        return {**facts, **shown, "version": describe_version(stored)}

    def picture(self, kind: str, place: int) -> ShownPicture:
        """The picture, its map in colours, or the numbers of the map's parts."""
        if kind == "picture":
            return self.pictures(self.items[place].id)
        classes, numbers, _ = self.split(place, self._stored(place))
        if kind == "parts":
            return ShownPicture("png", encode_grey_png(torch.from_numpy(numbers), flat=True))
        require(kind == "map", "there is no such picture")
        colours = np.array([*self.colours, UNKNOWN_COLOUR], np.uint8)[classes]  # unknown is -1, the last one
        return ShownPicture("png", encode_rgb_png(torch.from_numpy(colours).permute(2, 0, 1)))

    def _stored(self, place: int) -> bytes | None:
        return self.folder.find(self.places[place].name)

    def _restore(self, place: int, stored: Any, known: Any) -> None:
        self.folder.put(self.places[place].name, stored, known)

    def _save(self, place: int, answer: Mapping[str, Any]) -> bytes:
        stored = self._stored(place)
        rule = "the map was saved elsewhere since it was shown here: go on and back (→ ←) to see it as it is now"
        require(answer.get("version") == describe_version(stored), rule, ConfigError)
        classes, numbers, parts = self.split(place, stored)
        given = answer.get("parts", {})
        require(isinstance(given, dict), f"parts must be an object, got {quote(given)}", ConfigError)
        for number, name in given.items():
            known = re.fullmatch("[1-9][0-9]{0,2}", number) and int(number) <= len(parts)
            require(known, f"no part {quote(number)} of {len(parts)}", ConfigError)
            value = NO_CLASS if name is None else self.classes.index(self.require_class(name))
            classes[numbers == int(number)] = value
        silent = bool(self.table.ignore) or self.table.others
        hint = "the label maps have no number for unknown pixels; classes.toml can name one: ignore = [255]"
        require(silent or None not in given.values(), hint, ConfigError)
        rule = "nothing of the map is left: a picture without a labelled pixel cannot be trained on; skip it"
        require((classes != NO_CLASS).any(), rule, ConfigError)
        plane = torch.from_numpy(np.where(classes == NO_CLASS, UNKNOWN_VALUE, classes).astype(np.uint8))
        data = encode_label_png(plane, self.table)
        self.folder.put(self.places[place].name, data, stored)
        return data


def describe_version(stored: bytes | None) -> str:
    """Which corrected map it is, so that an answer can say what it was given to; nothing where there is none."""
    return "" if stored is None else sha256(stored)
