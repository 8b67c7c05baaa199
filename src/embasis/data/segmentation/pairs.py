"""Pictures in images/ and label maps in labels/: which belong together, which way up, and whether a folder is meant so.

A map has the path of its picture but for the ending: labels/a/1.png belongs to images/a/1.jpg. Where a picture has an
EXIF orientation, both are used upright:

| the map | is taken as |
| --- | --- |
| has an EXIF orientation of its own | turned by that |
| has the size of the picture upright, and not that of the picture as stored | upright, drawn on what viewers show |
| has the size of the picture as stored, and not upright | as stored: turned like the picture |
| has both sizes: a square, mirrored, or half a turn | as those maps of the side whose sizes tell, if they all agree |
| the same, and no size tells | nothing: an error; of corrections: upright, as `embasis export` writes them |
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from embasis.data.class_labels import NO_LABEL, quote_names
from embasis.data.images.files import (
    ImageFile,
    Scan,
    describe_os_error,
    is_hidden,
    lower_suffix,
    printable_path,
    read_part,
)
from embasis.data.images.folders import ImageOptions
from embasis.data.images.header import SUFFIXES, UnreadableImage, read_header
from embasis.data.images.pixels import is_swapped
from embasis.data.images.samples import ImageSide
from embasis.data.images.saved_images import scan_saved_images
from embasis.data.images.scan import scan_folder
from embasis.data.images.tar_shards import open_tar_shards
from embasis.data.saved_dataset import find_saved_dataset
from embasis.data.segmentation.labels import BadMap, WrongKind, iter_numbers, read_map_header
from embasis.data.shards import TAR, find_shards, shard_kind
from embasis.errors import InputDataError, require
from embasis.types import PathLike, RejectedFile

IMAGES, LABELS, CLASS_FILE = "images", "labels", "classes.toml"
"""The folders of pictures and of label maps, and the file that names the classes."""
MOST_COLOURS = 256
"""A picture with more colours is a photo, not a label map."""
_TRIED = 3  # files that are read to find out what a folder has


@dataclass(frozen=True, slots=True)
class MapFile:
    """One row: a picture and, where there is one, its label map."""

    image: ImageFile
    label: ImageFile | None
    size: tuple[int, int]
    """Height and width of the picture as decoded, turned as its EXIF says."""
    turn: int = 1
    """How the map is turned to fit it, as EXIF has it."""

    @property
    def name(self) -> str:
        """The picture's path below the root: the row's name in every table."""
        return self.image.name

    @property
    def id(self) -> int:
        """63 bits of the name's hash: the same whatever other files there are."""
        return self.image.id


def orient_maps(files: Sequence[MapFile]) -> tuple[tuple[MapFile, ...], tuple[str, ...], str]:
    """The files with their maps turned; the names of those that fit both ways; and how those are taken, if they are."""
    turns = {file.name: infer_turn(file.image, file.label) for file in files if file.label is not None}
    ways = {turns[file.name] == file.image.turn for file in files if _tells_orientation(file, turns.get(file.name))}
    ambiguous = tuple(name for name, turn in turns.items() if turn is None)
    as_stored = ways == {True}
    turned = tuple(
        file if file.label is None else replace(file, turn=turns[file.name] or (file.image.turn if as_stored else 1))
        for file in files
    )
    if len(ways) != 1:
        return turned, ambiguous, ""
    taken_as = "turned like their pictures" if as_stored else "upright"
    return turned, (), taken_as if ambiguous else ""


def infer_turn(picture: ImageFile, label: ImageFile) -> int | None:
    """How a map is turned to fit its picture; None where its size does not tell."""
    if label.turn != 1 or picture.turn == 1:
        return label.turn
    stored = turned_map_size(picture.size, picture.turn)
    if label.size != stored:
        return 1  # upright, or of another size, which is an error that others find
    return None if stored == picture.size else picture.turn


def _tells_orientation(file: MapFile, turn: int | None) -> bool:
    """Whether the sizes of a picture and its map tell how the maps of this side are drawn."""
    if file.label is None or turn is None or file.image.turn == 1 or file.label.turn != 1:
        return False
    return file.label.size in (file.image.size, file.image.size[::-1])


def turned_map_size(size: tuple[int, int], turn: int) -> tuple[int, int]:
    """Height and width of a map that is turned so."""
    return size[::-1] if is_swapped(turn) else size


@dataclass(frozen=True)
class MapSide:
    """The pictures of one side, each with its map if there is one; what could not be used is refused."""

    root: str
    pictures: ImageSide
    files: tuple[MapFile, ...]
    """In the order of `pictures.scan.files`, and as many."""
    rejected: tuple[RejectedFile, ...] = ()
    """Maps that could not be used, where their pictures can; those of pictures are in their scan."""
    unlabelled: tuple[RejectedFile, ...] = ()
    """Pictures that were left out because no pixel of their map has a class; no fault of the files."""
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Pictures without a map, and maps without a picture."""
    extra: tuple[str, ...] = ()
    twins: tuple[str, ...] = ()
    """Pictures that share a map: a.jpg and a.png."""
    ambiguous: tuple[str, ...] = ()
    """Pictures with an EXIF orientation whose maps would fit both ways up."""

    @property
    def name(self) -> str:
        """How messages call this side."""
        return printable_path(self.root)

    @property
    def labels(self) -> list[ImageFile]:
        """The label maps that there are."""
        return [file.label for file in self.files if file.label is not None]

    @property
    def all_rejected(self) -> list[RejectedFile]:
        """Pictures and maps that cannot be read, the pictures first."""
        return [*self.pictures.scan.rejected, *self.rejected]

    def with_pictures(self, pictures: ImageSide) -> MapSide:
        """The side with these of its pictures alone, each with its map."""
        names = {file.name for file in pictures.scan.files}
        return replace(self, pictures=pictures, files=tuple(file for file in self.files if file.name in names))

    def without_maps(self, reasons: dict[str, str], phase: str) -> MapSide:
        """The side when the pictures are refused whose maps cannot be used for these reasons."""
        texts = {name: f"its label map: {text}" for name, text in reasons.items()}
        return self.with_pictures(self.pictures.without(texts, phase))

    def without(self, names: Collection[str]) -> MapSide:
        """The side without these pictures, which are not refused."""
        scan = self.pictures.scan
        kept = tuple(file for file in scan.files if file.name not in names)
        return self.with_pictures(replace(self.pictures, scan=replace(scan, files=kept)))


def gather_maps(root: PathLike, options: ImageOptions, *, labelled: bool) -> MapSide:
    """Pictures and maps of a folder; a side that is not labelled may have pictures alone, and anywhere."""
    top, images, labels = os.fspath(root), os.path.join(root, IMAGES), os.path.join(root, LABELS)
    if labelled:
        lacking = [f"{name}/" for name in (IMAGES, LABELS) if not os.path.isdir(os.path.join(top, name))]
        require(os.path.isdir(top), f"{printable_path(top)}: no such folder")
        text = f"no folder {' and '.join(lacking)}; expected are images/ and labels/"
        require(not lacking, f"{printable_path(top)}: {text}")
    is_split = os.path.isdir(images)
    place = images if is_split else top
    dataset = None if labelled else find_saved_dataset(place)
    if dataset is not None:
        pictures = scan_saved_images(dataset, NO_LABEL)[0]
    elif not labelled and shard_kind(place) == TAR:
        pictures = open_tar_shards(find_shards(place, options.follow_links)).scan()
    else:
        pictures = scan_folder(place, follow_links=options.follow_links)
    if labelled or (is_split and any(True for _ in _iter_images(labels))):
        maps = scan_folder(labels, follow_links=options.follow_links)
        return _pair_scans(top, pictures, maps, labelled)
    notes = (*pictures.notes, *(_describe_unread(top) if is_split else ()))
    return MapSide(top, ImageSide(pictures), pair_files(pictures.files, {}), notes=notes)


def _pair_scans(top: str, pictures: Scan, maps: Scan, labelled: bool) -> MapSide:
    """Pictures and maps of the same stem."""
    usable = {stem(file.name): file for file in sorted(maps.files, key=lambda file: lower_suffix(file.name) == ".png")}
    broken = {stem(item.name): item for item in maps.rejected if stem(item.name) not in usable}
    here = {stem(file.name) for file in pictures.files} | {stem(item.name) for item in pictures.rejected}
    names = [file.name for file in pictures.files]
    used = {file.name for mark, file in usable.items() if mark in here}
    files, ambiguous, taken_as = orient_maps(pair_files(pictures.files, usable))
    notes = [*pictures.notes, *maps.notes, *_describe_unread(top)]
    if taken_as:
        what = "maps of mirrored, square or upside-down pictures with an EXIF orientation are taken as the others are"
        notes.append(f"{printable_path(top)}: {what}: {taken_as}")
    stems = Counter(map(stem, names))
    side = MapSide(
        top,
        ImageSide(pictures),
        files,
        notes=tuple(notes),
        missing=tuple(name for name in names if stem(name) not in usable and stem(name) not in broken),
        extra=tuple(file.name for file in maps.files if file.name not in used),
        twins=tuple(name for name in names if stems[stem(name)] > 1),
        ambiguous=ambiguous,
    )
    if not labelled:
        lost = (replace(item, name=f"{LABELS}/{item.name}", kind="unscored") for item in broken.values())
        return replace(side, rejected=tuple(lost))
    return side.without_maps({name: broken[stem(name)].reason for name in names if stem(name) in broken}, "scan")


def pair_files(pictures: Sequence[ImageFile], maps: dict[str, ImageFile]) -> tuple[MapFile, ...]:
    """Each picture with the map of its stem."""
    return tuple(MapFile(file, maps.get(stem(file.name)), file.size) for file in pictures)


def stem(name: str) -> str:
    """A path without its ending: what a picture and its map have in common."""
    return os.path.splitext(name)[0]


def _describe_unread(top: str) -> list[str]:
    """A note on what lies beside images/ and labels/ and is not read."""
    names = [
        f"{entry.name}/" if is_folder(entry) else entry.name
        for entry in _list_entries(top)
        if is_folder(entry) or lower_suffix(entry.name) in SUFFIXES
    ]
    others = [printable_path(name) for name in names if name not in (f"{IMAGES}/", f"{LABELS}/")]
    return [f"{printable_path(top)}: beside images/ and labels/, not read: {quote_names(others)}"] if others else []


def are_map_folders(labelled: PathLike, unlabelled: PathLike, test: PathLike | None = None) -> bool:
    """Whether the sides are folders with label maps; refused when one is and another is not."""
    maps, where = is_map_folder(labelled), printable_path(labelled)
    inside = f"{printable_path(unlabelled)}: lies in {where}; give the folder of the unlabelled pictures"
    require(not (maps and _is_below(unlabelled, labelled)), inside)
    for path in (labelled, test):
        text = "" if path is None else describe_mispairing(path)
        require(not text, text)
    if maps and test is not None:
        kind = "has label maps in labels/, so the test side needs images/ and labels/, too"
        lacking = f"{printable_path(test)}: no label maps of the pictures in images/; {where} {kind}"
        require(is_map_folder(test), lacking)
    for path in (unlabelled, test):
        if not maps and path is not None and is_map_folder(path):
            kind = f"{where} has none: a folder with label maps cannot be used with one of class folders; swapped?"
            what = "has pictures in images/ and label maps in labels/"
            raise InputDataError(f"{printable_path(path)}: {what}, but {kind}")
    return maps


def _is_below(path: PathLike, folder: PathLike) -> bool:
    one, two = os.path.realpath(path), os.path.realpath(folder)
    return one != two and os.path.commonpath([one, two]) == two


def is_map_folder(path: PathLike) -> bool:
    """Whether a folder has pictures in images/ and label maps of the same names in labels/.

    Classes that happen to be called so are no such folder: a file that pairs up must have the form of a label map.
    """
    pairs = _iter_pairs(path)
    if os.path.isfile(os.path.join(path, CLASS_FILE)):
        return any(True for _ in pairs)
    return any(_is_map(label, picture) for picture, label in islice(pairs, _TRIED))


def describe_mispairing(path: PathLike) -> str:
    """A sentence if a folder has pictures in images/ but no label map, or none of the same name; or nothing."""
    folders = {entry.name for entry in _list_entries(path) if is_folder(entry)}
    if text := _describe_misnamed(path, folders) or _describe_unreadable(path, folders):
        return text
    if folders not in ({IMAGES}, {IMAGES, LABELS}) or any(True for _ in _iter_pairs(path)):
        return ""
    pictures, maps = (sorted(islice(_iter_images(os.path.join(path, name)), _TRIED)) for name in (IMAGES, LABELS))
    if pictures and not maps:
        hint = f"a PNG of class numbers or colours is expected, as {LABELS}/{stem(pictures[0])}.png"
        return f"{printable_path(path)}: pictures in images/, but no label map in labels/; for each picture {hint}"
    if not pictures or not any(_is_map(os.path.join(path, LABELS, name)) for name in maps):
        return ""
    names = f"as {LABELS}/{stem(pictures[0])}.png for {IMAGES}/{pictures[0]}; there is {LABELS}/{maps[0]}"
    return f"{printable_path(path)}: no label map has the name of a picture; expected is the same name, {names}"


def _describe_unreadable(path: PathLike, folders: set[str]) -> str:
    """A sentence if images/ or labels/ cannot be opened; or nothing."""
    for name in sorted(folders) if folders <= {IMAGES, LABELS} else ():
        try:
            os.scandir(os.path.join(path, name)).close()
        except OSError as error:
            return f"{printable_path(os.path.join(path, name))}: cannot be read: {describe_os_error(error)}"
    return ""


def _describe_misnamed(path: PathLike, folders: set[str]) -> str:
    """A sentence if a folder is meant to have label maps, and they lie elsewhere than in labels/; or nothing."""
    named = os.path.isfile(os.path.join(path, CLASS_FILE))
    if LABELS in folders or not (named or IMAGES in folders):
        return ""
    pictures = {stem(name) for name in _iter_images(os.path.join(path, IMAGES))} if IMAGES in folders else set()
    other = next((name for name in sorted(folders - {IMAGES}) if _has_map_of(path, name, pictures)), None)
    if other is not None:
        return f"{printable_path(path)}: label maps are expected in {LABELS}/, there is {other}/; rename it to {LABELS}"
    missing = f"pictures are expected in {IMAGES}/ and their label maps in {LABELS}/"
    text = f"{printable_path(path)}: has a {CLASS_FILE}, so {missing}; there is neither"
    return text if named and not pictures else ""


def _has_map_of(path: PathLike, name: str, pictures: set[str]) -> bool:
    """Whether a folder has a PNG that looks like a label map for one of the pictures."""
    maps = (file for file in _iter_images(os.path.join(path, name)) if stem(file) in pictures)
    return any(_is_map(os.path.join(path, name, file)) for file in islice(maps, _TRIED))


def _iter_pairs(path: PathLike) -> Iterator[tuple[str, str]]:
    """Paths of pictures and of the files in labels/ that have their names."""
    images, labels = os.path.join(path, IMAGES), os.path.join(path, LABELS)
    if not (os.path.isdir(images) and os.path.isdir(labels)):
        return
    maps = {stem(name): name for name in _iter_images(labels)}
    for name in sorted(_iter_images(images)):
        if stem(name) in maps:
            yield os.path.join(images, name), os.path.join(labels, maps[stem(name)])


def _iter_images(folder: str, below: str = "") -> Iterator[str]:
    """Names of the files below a folder that end like images; nothing is opened."""
    for entry in sorted(_list_entries(os.path.join(folder, below)), key=lambda entry: entry.name):
        name = os.path.join(below, entry.name)
        if entry.is_dir(follow_symlinks=False):
            yield from _iter_images(folder, name)
        elif lower_suffix(entry.name) in SUFFIXES and os.path.isfile(entry.path):
            yield name


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder or a link to one; a link that leads in a circle is none."""
    return entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry.path))


def _list_entries(folder: PathLike) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not is_hidden(entry.name)]
    except OSError:
        return []


def _is_map(path: str, picture: str | None = None) -> bool:
    """Whether a file looks like a label map: numbers, a palette, few colours; a JPEG if it has its picture's size."""
    try:
        data = read_part(path)
        head = read_map_header(data)
        if not head.is_coloured:
            return True
        step, seen, colours = max(1, head.width * head.height // 4096), 0, set[int]()
        for part in iter_numbers(data, "colours"):
            colours.update(part.reshape(-1)[-seen % step :: step].tolist())
            seen += part.size
        return len(colours) <= MOST_COLOURS
    except WrongKind:
        return picture is not None and _read_size(picture) == _read_size(path) is not None
    except (OSError, BadMap):
        return False


def _read_size(path: str) -> tuple[int, int] | None:
    try:
        head = read_header(read_part(path))
    except (OSError, UnreadableImage):
        return None
    return head.height, head.width
