"""Which classes label maps have: from a classes.toml, from the numbers in the maps, and matched by name between sides.

```toml
ignore = [255]          # numbers (or "#rrggbb") that say nothing; 255 unless given
others = false          # true: numbers that are not named say nothing, too
coded = "ids"           # or "colours", or "first" (channel of 16-bit RGB); else as the maps are

[[class]]
name = "road"
id = 0                  # or ids = [0, 4]
colour = "#804080"      # or [128, 64, 128]; needed for colour-coded maps
```

| side | its table |
| --- | --- |
| labelled | the given classes.toml, else its own, else the numbers that its maps have |
| unlabelled, test | its own classes.toml, else that of the labelled side, else the numbers that its maps have |
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np

from embasis.data.class_labels import quote_names
from embasis.data.formats import read_text
from embasis.data.images.files import printable_path
from embasis.data.segmentation.audit import MapContents, count_side_values, sum_values
from embasis.data.segmentation.labels import PALETTE, BadMap, Png, format_ranges, read_map_header, read_png_palette
from embasis.data.segmentation.pairs import CLASS_FILE, MapSide
from embasis.errors import InputDataError, quote, require
from embasis.types import ClassTable, PathLike

LARGEST_ID = 65535
_DEFAULT_IGNORE = 255
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_LEVELS = (0, 48, 96, 144, 192, 224, 255)
_WEIGHTS = np.array([0.3, 0.59, 0.11])  # how much red, green and blue add to what the eye sees

Colour = tuple[int, int, int]


class _ClassEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    id: int | None = None
    ids: list[int] | None = None
    colour: str | list[int] | None = None


class _ClassFileContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ignore: list[int | str | list[int]] | None = None
    others: bool = False
    coded: Literal["ids", "colours", "first"] | None = None
    classes: list[_ClassEntry] = msgspec.field(default_factory=list, name="class")


@dataclass(frozen=True)
class ClassFile:
    """What a classes.toml says, before it is known how the maps are coded."""

    path: str
    names: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    colours: tuple[Colour | None, ...]
    ignore: tuple[int, ...]
    ignored_colours: tuple[Colour, ...]
    others: bool
    coded: str | None

    def table(self, head: Png | None = None) -> ClassTable:
        """The table for maps whose first one has this header."""
        coded = self.coded or self._coded(head)
        if coded == "colours":
            self._require_all(self.colours, "colour", "coded by colours", 'colour = "#rrggbb"')
            ignore = tuple(pack_colour(colour) for colour in self.ignored_colours)
        else:
            self._require_all(self.ids, "id", "coded by numbers", "id = 0")
            ignore = self.ignore
        ids = self.ids if all(self.ids) else tuple((place,) for place in range(len(self.ids)))
        return ClassTable(self.names, ids, fill_colours(self.colours), ignore, self.others, coded)

    def _coded(self, head: Png | None) -> str:
        if head is None:
            return "ids" if all(self.ids) else "colours"
        return "colours" if head.is_coloured or (head.kind == PALETTE and not any(self.ids)) else "ids"

    def _require_all(self, values: Sequence[object], what: str, how: str, write: str) -> None:
        lacking = [name for name, value in zip(self.names, values, strict=True) if value in (None, ())]
        has = f"class {quote(lacking[0])} has" if len(lacking) == 1 else f"{len(lacking)} classes have"
        text = f"{printable_path(self.path)}: {has} no {what}, but the label maps are {how}"
        first = "" if len(lacking) == 1 else f"; they are {quote_names(lacking)}"
        require(not lacking, f"{text}; write {write}{first}")


def find_class_file(root: PathLike, given: PathLike | None = None) -> ClassFile | None:
    """The classes.toml that is given, or that lies in a folder, if there is one."""
    path = os.path.join(root, CLASS_FILE) if given is None else os.fspath(given)
    return None if given is None and not os.path.lexists(path) else read_class_file(path)


def read_class_file(path: PathLike) -> ClassFile:
    """A classes.toml, checked; an error names its path."""
    where = printable_path(path)
    try:
        raw = tomllib.loads(read_text(path, "utf-8-sig"))
        file = msgspec.convert(raw, _ClassFileContent)
    except FileNotFoundError as error:
        raise InputDataError(f"{where}: no such file") from error
    except OSError as error:
        raise InputDataError(f"{where}: cannot be read: {error.strerror or error}") from error
    except msgspec.ValidationError as error:
        keys = "class, coded, ignore, others; of a class: colour, id, ids, name"
        raise InputDataError(f"{where}: {error}; known keys: {keys}") from error
    except (ValueError, RecursionError) as error:  # what is no TOML, no UTF-8, or a number of 5000 digits
        raise InputDataError(f"{where}: {error}") from error
    try:
        return _check_content(os.fspath(path), file)
    except InputDataError as error:
        raise InputDataError(f"{where}: {error}") from error


def _check_content(path: str, file: _ClassFileContent) -> ClassFile:
    count = len(file.classes)
    names = tuple(entry.name for entry in file.classes)
    require(count >= 2, f"at least 2 classes are needed, got {count}; write a [[class]] for each")
    require(count <= 254, f"at most 254 classes are possible, got {count}")
    unnamed = [place for place, name in enumerate(names, 1) if not name.strip()]
    require(not unnamed, f"class {unnamed[0] if unnamed else 0} has an empty name")
    ids = tuple(_parse_ids(entry) for entry in file.classes)
    colours = tuple(None if entry.colour is None else _parse_colour(entry.colour) for entry in file.classes)
    _require_once(names, "names of classes")
    _require_once([number for numbers in ids for number in numbers], "ids")
    _require_once([_format_colour(colour) for colour in colours if colour is not None], "colours")
    given = [_DEFAULT_IGNORE] if file.ignore is None else file.ignore
    numbers = tuple(value for value in given if isinstance(value, int))
    ignored = tuple(_parse_colour(value) for value in given if not isinstance(value, int))
    for number in numbers:
        require(0 <= number <= LARGEST_ID, f"ignore must be in 0..{LARGEST_ID}, got {number}")
    named = {number for numbers in ids for number in numbers}
    numbers = tuple(number for number in numbers if file.ignore is not None or number not in named)
    both = [str(number) for number in numbers if number in named] + [
        _format_colour(it) for it in ignored if it in colours
    ]
    require(not both, f"numbers that a class has cannot be ignored: {', '.join(both)}")
    return ClassFile(path, names, ids, colours, numbers, ignored, file.others, file.coded)


def _parse_ids(entry: _ClassEntry) -> tuple[int, ...]:
    who = f"class {quote(entry.name)}"
    require(entry.id is None or entry.ids is None, f"{who} has id and ids; write one of them")
    require(entry.ids is None or entry.ids, f"{who} has no number in ids")
    numbers = tuple(entry.ids or (() if entry.id is None else (entry.id,)))
    for number in numbers:
        require(0 <= number <= LARGEST_ID, f"{who}: ids must be in 0..{LARGEST_ID}, got {number}")
    require(numbers or entry.colour is not None, f"{who} needs an id or a colour")
    return numbers


def _parse_colour(value: str | list[int]) -> Colour:
    rule = f'colours are written "#rrggbb" or [r, g, b] with numbers in 0..255, got {quote(value)}'
    if isinstance(value, str):
        require(_COLOUR.fullmatch(value), rule)
        return unpack_colour(int(value[1:], 16))
    require(len(value) == 3 and all(0 <= part <= 255 for part in value), rule)
    return value[0], value[1], value[2]


def _require_once(values: Iterable[object], what: str) -> None:
    twice = [str(value) for value, count in Counter(values).items() if count > 1]
    require(not twice, f"{what} must be unique, twice or more: {', '.join(twice)}")


def pack_colour(colour: Colour) -> int:
    """0xRRGGBB."""
    return colour[0] << 16 | colour[1] << 8 | colour[2]


def unpack_colour(number: int) -> Colour:
    """(r, g, b) of 0xRRGGBB."""
    return number >> 16, number >> 8 & 255, number & 255


def _format_colour(colour: Colour) -> str:
    return f"#{pack_colour(colour):06x}"


def table_from_numbers(numbers: Iterable[int], where: str, palette: Sequence[Colour] | None = None) -> ClassTable:
    """A table for maps without a classes.toml: each number but 255 is a class that is called so."""
    ids = sorted(set(numbers) - {_DEFAULT_IGNORE})
    got = f"1 class: '{ids[0]}'" if len(ids) == 1 else f"{len(ids)} classes"
    require(len(ids) >= 2, f"{where}: at least 2 classes are needed, got {got}; 255 is ignored")
    hint = f"name the classes in a {CLASS_FILE} there"
    require(len(ids) <= 254, f"{where}: label maps have {len(ids)} different numbers, at most 254 are possible; {hint}")
    colours = [palette[number] if palette and number < len(palette) else None for number in ids]
    twice = {colour for colour, count in Counter(colours).items() if count > 1}
    kept = tuple(None if colour in twice else colour for colour in colours)
    return ClassTable(tuple(map(str, ids)), tuple((number,) for number in ids), fill_colours(kept))


def unnamed_colours_error(pixels: dict[int, int], where: str) -> InputDataError:
    """The error of colour-coded maps without a classes.toml: which colours there are, and what to write."""
    total = sum(pixels.values())
    first = sorted(pixels, key=lambda number: (-pixels[number], number))[:10]
    shares = ", ".join(f"#{number:06x} {100 * pixels[number] / total:.1f} %" for number in first)
    more = f" and {len(pixels) - len(first):,} more" if len(pixels) > len(first) else ""
    return InputDataError(
        f"{where}: label maps are coded by colours, and no {CLASS_FILE} says which is which; "
        f"{'1 colour' if len(pixels) == 1 else f'{len(pixels):,} colours'}: {shares}{more}; "
        f"write {where}/{CLASS_FILE} with three lines for each class: "
        f'[[class]] / name = "…" / colour = "#{first[0]:06x}"'
    )


def fill_colours(colours: Sequence[Colour | None]) -> tuple[Colour, ...]:
    """Colours for all classes: those that are given, and others for the rest."""
    used = {colour for colour in colours if colour is not None}
    free = iter(colour for colour in choose_colours(254) if colour not in used)
    return tuple(next(free) if colour is None else colour for colour in colours)


def choose_colours(count: int) -> tuple[Colour, ...]:
    """As many colours, at most 254, always the same: each far from black, white and those before."""
    require(count <= 254, f"colours: at most 254 are possible, got {count}")
    grid = np.array([(red, green, blue) for red in _LEVELS for green in _LEVELS for blue in _LEVELS])
    away, chosen = np.full(len(grid), np.inf), list[Colour]()
    for step in range(count + 2):
        place = (0, len(grid) - 1)[step] if step < 2 else int(away.argmax())
        chosen.append((int(grid[place, 0]), int(grid[place, 1]), int(grid[place, 2])))
        away = np.minimum(away, (grid - grid[place]) ** 2 @ _WEIGHTS)
    return tuple(chosen[2:])


@dataclass(frozen=True)
class SideClasses:
    """The table of a side, what its maps hold, and how its classes differ from those of the labelled side."""

    table: ClassTable
    contents: MapContents
    file: ClassFile | None = None
    extra: tuple[str, ...] = ()
    """Classes of this side alone; their pixels are ignored."""
    lacking: tuple[str, ...] = ()
    """Classes that this side's classes.toml does not know."""
    note: str = ""


def resolve_labelled_classes(side: MapSide, given: PathLike | None = None) -> SideClasses:
    """The table of the labelled side; its maps are decoded here, once."""
    file, head = find_class_file(side.root, given), read_first_header(side)
    if file is not None:
        table = file.table(head)
        return SideClasses(table, count_side_values(side, table.coded), file)
    coded = "colours" if head is not None and head.is_coloured else "ids"
    contents = count_side_values(side, coded)
    numbers = sum_values(contents)
    if coded == "colours" and numbers:
        raise unnamed_colours_error(numbers, side.name)
    table = table_from_numbers(numbers, side.name, _read_first_palette(side))
    span = format_ranges(sorted(map(int, table.names)), "ids")
    named = f"the {len(table.names)} classes are called by their numbers {span}; 255 is ignored"
    return SideClasses(table, contents, note=f"{side.name}: no {CLASS_FILE}; {named}")


def resolve_other_classes(side: MapSide, like: SideClasses) -> SideClasses:
    """The table of another side, with the classes of the labelled side in its order."""
    file = find_class_file(side.root) or like.file
    table = None if file is None else file.table(read_first_header(side))
    contents = count_side_values(side, (table or like.table).coded)
    if table is None:
        numbers = {*sum_values(contents), *(number for numbers in like.table.ids for number in numbers)}
        table = table_from_numbers(numbers, side.name)
    return match_classes(like.table, SideClasses(table, contents, file))


def match_classes(table: ClassTable, own: SideClasses) -> SideClasses:
    """`own` with the classes of `table`, matched by name; the numbers of all other classes are ignored."""
    place = {name: number for number, name in enumerate(own.table.names)}
    extra = tuple(name for name in own.table.names if name not in table.names)
    lacking = tuple(name for name in table.names if name not in place)
    none = (-1, -1, -1)  # a colour that no map has
    colours = tuple(own.table.colours[place[name]] if name in place else none for name in table.names)
    ignored = tuple(number for name in extra for number in own.table.numbers[place[name]])
    aligned = ClassTable(
        names=table.names,
        ids=tuple(own.table.ids[place[name]] if name in place else () for name in table.names),
        colours=colours if own.table.coded == "colours" else table.colours,
        ignore=(*own.table.ignore, *ignored),
        others=own.table.others,
        coded=own.table.coded,
    )
    return replace(own, table=aligned, extra=extra, lacking=lacking)


def read_first_header(side: MapSide) -> Png | None:
    """The header of the first map that can be read; all maps of a side are coded alike, or it is refused."""
    for file in side.labels:
        try:
            return read_map_header(file.read())
        except (OSError, BadMap):
            continue
    return None


def _read_first_palette(side: MapSide) -> list[Colour] | None:
    """The colours of the first map, if it has a palette and can be read."""
    try:
        data = side.labels[0].read()
        if read_map_header(data).kind == PALETTE:
            return [(red, green, blue) for red, green, blue in read_png_palette(data)[0].tolist()]
    except (IndexError, OSError, ValueError):
        pass
    return None
