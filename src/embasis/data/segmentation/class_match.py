"""The class tables of three sides: from a classes.toml, from the numbers in the maps, and matched by name.

| side | its table |
| --- | --- |
| labelled | the given classes.toml, else its own, else the numbers that its maps have |
| unlabelled, test | its own classes.toml, else that of the labelled side, else the numbers that its maps have |
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from embasis.data.images.files import ImageFile, PathLike
from embasis.data.problem import listed
from embasis.data.segmentation.audit import Found
from embasis.data.segmentation.classes import FILE, ClassFile, class_file, table_of_numbers, unnamed_colours
from embasis.data.segmentation.labels import BadMap, map_header, numbers_of, spans
from embasis.data.segmentation.pairs import MapSide
from embasis.data.segmentation.png import PALETTE, RGB, RGBA, Png, png_palette
from embasis.data.segmentation.value_counts import tallies, together
from embasis.types import ClassTable


@dataclass(frozen=True)
class SideClasses:
    """The table of a side, what its maps hold, and how its classes differ from those of the labelled side."""

    table: ClassTable
    found: Found
    file: ClassFile | None = None
    extra: tuple[str, ...] = ()
    """Classes of this side alone; their pixels are ignored."""
    lacking: tuple[str, ...] = ()
    """Classes that this side's classes.toml does not know."""
    note: str = ""


def name_labelled(side: MapSide, given: PathLike | None = None) -> SideClasses:
    """The table of the labelled side; its maps are decoded here, once."""
    file, head = class_file(side.root, given), first_header(side)
    if file is not None:
        table = file.table(head)
        return SideClasses(table, _found(side, table.coded), file)
    coded = _guessed(head)
    found = _found(side, coded)
    numbers = together(found)
    if coded == "colours" and numbers:
        raise unnamed_colours(numbers, side.name)
    table = table_of_numbers(numbers, side.name, _palette(side))
    span = spans(sorted(map(int, table.names)), "ids")
    named = f"the {len(table.names)} classes are called by their numbers {span}; 255 is ignored"
    note = f"{side.name}: no {FILE}; {named}"
    return SideClasses(table, found, None, note=note)


def name_other(side: MapSide, like: SideClasses) -> SideClasses:
    """The table of another side, with the classes of the labelled side in its order."""
    own = class_file(side.root)
    head = first_header(side)
    file = own or like.file
    if file is not None:
        table = file.table(head)
        return matched(like.table, SideClasses(table, _found(side, table.coded), file))
    found = _found(side, like.table.coded)
    numbers = set(together(found)) | {number for numbers in like.table.ids for number in numbers}
    return matched(like.table, SideClasses(table_of_numbers(numbers, side.name), found))


def matched(table: ClassTable, own: SideClasses) -> SideClasses:
    """`own` with the classes of `table`, matched by name; the numbers of all other classes are ignored."""
    place = {name: number for number, name in enumerate(own.table.names)}
    extra = tuple(name for name in own.table.names if name not in table.names)
    lacking = tuple(name for name in table.names if name not in place)
    none = (-1, -1, -1)  # a colour that no map has
    colours = tuple(own.table.colours[place[name]] if name in place else none for name in table.names)
    numbers = numbers_of(own.table)
    ignored = tuple(number for name in extra for number in numbers[place[name]])
    aligned = ClassTable(
        names=table.names,
        ids=tuple(own.table.ids[place[name]] if name in place else () for name in table.names),
        colours=colours if own.table.coded == "colours" else table.colours,
        ignore=(*own.table.ignore, *ignored),
        others=own.table.others,
        coded=own.table.coded,
    )
    return replace(own, table=aligned, extra=extra, lacking=lacking)


def difference(extra: tuple[str, ...], lacking: tuple[str, ...]) -> str:
    """Both differences of two class sets, for a sentence."""
    parts = [f"classes that the labelled side lacks: {listed(extra)}"] if extra else []
    parts += [f"classes only on the labelled side: {listed(lacking)}"] if lacking else []
    return "; ".join(parts)


def first_header(side: MapSide) -> Png | None:
    """The header of the first map that can be read; all maps of a side are coded alike, or it is refused."""
    for file in _maps(side):
        try:
            return map_header(file.read())
        except (OSError, BadMap):
            continue
    return None


def _maps(side: MapSide) -> list[ImageFile]:
    return [file.label for file in side.files if file.label is not None]


def _found(side: MapSide, coded: str) -> Found:
    return tallies([file.label for file in side.files], coded)


def _guessed(head: Png | None) -> str:
    return "colours" if head is not None and head.kind in (RGB, RGBA) and head.depth == 8 else "ids"


def _palette(side: MapSide) -> list[tuple[int, int, int]] | None:
    """The colours of the first map that has a palette."""
    for file in _maps(side)[:1]:
        try:
            data = file.read()
            if map_header(data).kind == PALETTE:
                return [(red, green, blue) for red, green, blue in png_palette(data)[0].tolist()]
        except (OSError, ValueError):
            return None
    return None
