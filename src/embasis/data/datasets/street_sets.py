"""Published street scenes, read where they lie: official folders, or tars that are never extracted.

| problem | labelled | unlabelled | test | classes |
| --- | --- | --- | --- | --- |
| gta5_cityscapes | GTA5 | Cityscapes train | Cityscapes val | 19 |
| synthia_cityscapes | SYNTHIA-RAND-CITYSCAPES | Cityscapes train | Cityscapes val | 16 or 13 |
| carla_camvid | CARLA pack | CamVid train | CamVid val | 9 |

| set | pictures | label maps | numbers in the maps |
| --- | --- | --- | --- |
| GTA5 | `images/NNNNN.png` | `labels/NNNNN.png` | label ids of Cityscapes, as a palette's indices |
| SYNTHIA-RAND-CITYSCAPES | `RGB/NNNNNNN.png` | `GT/LABELS/NNNNNNN.png` | its own, first channel of 16-bit RGB |
| Cityscapes | `leftImg8bit/<split>/<city>/*_leftImg8bit.png` | `gtFine/…/*_gtFine_labelIds.png` | label ids |
| CARLA pack | `images/*.jpg` | `labels/*.png` | train ids |
| CamVid pack | `<split>/images/*.jpg` | `<split>/labels/*.png` | train ids |

A train id is the position of a class in STREET_CLASSES; every table keeps that order. Label maps of an unlabelled side
are never opened. None of the sets is ours to ship: `root`, else the variable EMBASIS_DATA, else `../shared/data` names
their folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from embasis.data.class_labels import quote_names
from embasis.data.datasets.domain_sets import find_data_folder
from embasis.data.images.files import Scan, printable_path
from embasis.data.images.folders import ImageOptions, describe_repeats, require_budget
from embasis.data.images.samples import ImageSide
from embasis.data.images.scan import has_members, scan_folder, scan_tar
from embasis.data.images.sides import top_folder
from embasis.data.segmentation.audit import NO_PIXEL, count_noun, first_few
from embasis.data.segmentation.folders import PairedSide, make_map_problem
from embasis.data.segmentation.pairs import MapFile, stem
from embasis.errors import ConfigError, InputDataError, lookup, require
from embasis.types import ClassTable, PathLike, Problem


class StreetClass(NamedTuple):
    """One of the 19 classes that are scored; its numbers in maps of Cityscapes and GTA5, and in those of SYNTHIA."""

    name: str
    colour: tuple[int, int, int]
    label_id: int
    synthia_id: int


_STREET = (
    StreetClass("road", (128, 64, 128), 7, 3),
    StreetClass("sidewalk", (244, 35, 232), 8, 4),
    StreetClass("building", (70, 70, 70), 11, 2),
    StreetClass("wall", (102, 102, 156), 12, 21),
    StreetClass("fence", (190, 153, 153), 13, 5),
    StreetClass("pole", (153, 153, 153), 17, 7),
    StreetClass("traffic light", (250, 170, 30), 19, 15),
    StreetClass("traffic sign", (220, 220, 0), 20, 9),
    StreetClass("vegetation", (107, 142, 35), 21, 6),
    StreetClass("terrain", (152, 251, 152), 22, 16),
    StreetClass("sky", (70, 130, 180), 23, 1),
    StreetClass("person", (220, 20, 60), 24, 10),
    StreetClass("rider", (255, 0, 0), 25, 17),
    StreetClass("car", (0, 0, 142), 26, 8),
    StreetClass("truck", (0, 0, 70), 27, 18),
    StreetClass("bus", (0, 60, 100), 28, 19),
    StreetClass("train", (0, 80, 100), 31, 20),
    StreetClass("motorcycle", (0, 0, 230), 32, 12),
    StreetClass("bicycle", (119, 11, 32), 33, 11),
)
"""In the order of their train ids."""
STREET_CLASSES = tuple(street.name for street in _STREET)
LABEL_IDS = tuple(street.label_id for street in _STREET)
SYNTHIA_IDS = tuple(street.synthia_id for street in _STREET)
ALL_19 = tuple(range(len(STREET_CLASSES)))
"""Train ids of all classes."""
SYNTHIA_16 = tuple(number for number in ALL_19 if STREET_CLASSES[number] not in ("terrain", "truck", "train"))
"""Train ids of the classes that tables of SYNTHIA → Cityscapes score."""
SYNTHIA_13 = tuple(number for number in SYNTHIA_16 if STREET_CLASSES[number] not in ("wall", "fence", "pole"))
"""Train ids of the classes of mIoU*."""
CARLA_CAMVID_9 = (0, 1, 2, 4, 5, 7, 8, 10, 13)
"""Train ids of the classes that both the CARLA and the CamVid pack have."""
STARRED = {"synthia_cityscapes": tuple(STREET_CLASSES[number] for number in SYNTHIA_13)}
"""The classes that mIoU* averages over, of the sets whose tables have one."""


@dataclass(frozen=True)
class StreetSet:
    """Where the pictures and maps of a published set lie, and how maps are numbered; `{split}` is a part of the set."""

    name: str
    packs: tuple[str, ...]
    """Folders and tars that may hold the set; the root itself may, too."""
    images: str
    labels: str
    counts: dict[str, int]
    """Published number of pictures of each split; "" where there are none."""
    numbers: tuple[int, ...] = ALL_19
    """What a map has for each of the 19 classes."""
    coded: str = "ids"
    image_end: str = ""
    label_end: str = ""
    """How names end, before .png; what stands before that is the same for a picture and its map."""
    kind: str = ".png"
    """How the pictures' names end; any other image is read as well."""
    cities: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The folders of each split, where they are published."""

    def folders(self, split: str) -> tuple[str, str]:
        """The folders of the pictures and of the label maps of a split."""
        return self.images.format(split=split), self.labels.format(split=split)

    def expected(self, split: str) -> str:
        """Where files of a split should lie, for a sentence."""
        images, labels = (f"{folder}/<city>" if self.cities else folder for folder in self.folders(split))
        return f"{images}/*{self.image_end}{self.kind} and {labels}/*{self.label_end}.png"

    def table(self, train_ids: Sequence[int] = ALL_19) -> ClassTable:
        """How its maps are coded; classes that are left out are ignored.

        A number that is no train id is an error. Of label ids and of SYNTHIA's numbers all others are ignored, as the
        evaluation of Cityscapes does.
        """
        has_train_ids = self.numbers == ALL_19
        left_out = tuple(number for number in ALL_19 if number not in train_ids) if has_train_ids else ()
        return ClassTable(
            names=tuple(STREET_CLASSES[number] for number in train_ids),
            ids=tuple((self.numbers[number],) for number in train_ids),
            colours=tuple(_STREET[number].colour for number in train_ids),
            ignore=(255, *left_out),
            others=not has_train_ids,
            coded=self.coded,
        )


_TRAIN_CITIES = """
aachen bochum bremen cologne darmstadt dusseldorf erfurt hamburg hanover jena
krefeld monchengladbach strasbourg stuttgart tubingen ulm weimar zurich
"""
GTA5 = StreetSet("gta5", ("gta5", "GTA5"), "images", "labels", {"": 24_966}, LABEL_IDS)
"""Richter et al., 2016."""
SYNTHIA = StreetSet(
    "synthia",
    ("synthia", "SYNTHIA", "RAND_CITYSCAPES", "SYNTHIA_RAND_CITYSCAPES", "SYNTHIA-RAND-CITYSCAPES"),
    "RGB",
    "GT/LABELS",
    {"": 9_400},
    SYNTHIA_IDS,
    coded="first",
)
"""Ros et al., 2016."""
CITYSCAPES = StreetSet(
    "cityscapes",
    ("cityscapes", "Cityscapes", "leftImg8bit_trainvaltest", "gtFine_trainvaltest"),
    "leftImg8bit/{split}",
    "gtFine/{split}",
    {"train": 2_975, "val": 500},
    LABEL_IDS,
    image_end="_leftImg8bit",
    label_end="_gtFine_labelIds",
    cities={"train": tuple(_TRAIN_CITIES.split()), "val": ("frankfurt", "lindau", "munster")},
)
"""Cordts et al., 2016."""
CARLA = StreetSet("carla", ("carla_512x256", "carla", "CARLA"), "images", "labels", {"": 603}, kind=".jpg")
CAMVID = StreetSet(
    "camvid",
    ("camvid_trainval_480x360", "camvid", "CamVid"),
    "{split}/images",
    "{split}/labels",
    {"train": 367, "val": 101},
    kind=".jpg",
)
"""Brostow et al., 2009."""


def gta5_cityscapes(root: PathLike | None = None) -> Problem:
    """GTA5 -> Cityscapes: scenes of a game, labelled, and photographs of German and Swiss streets; 19 classes."""
    return _street_problem(GTA5, CITYSCAPES, root, ALL_19)


def synthia_cityscapes(root: PathLike | None = None, classes: int = 16) -> Problem:
    """SYNTHIA-RAND-CITYSCAPES -> Cityscapes: rendered scenes and photographs; 16 classes, or the 13 of mIoU*."""
    known = {16: SYNTHIA_16, 13: SYNTHIA_13}
    require(classes in known, f"synthia_cityscapes: classes must be 16 or 13, got {classes}", ConfigError)
    return _street_problem(SYNTHIA, CITYSCAPES, root, known[classes])


def carla_camvid(root: PathLike | None = None) -> Problem:
    """CARLA -> CamVid: scenes of a simulator, labelled, and photographs from a car in Cambridge; 9 shared classes."""
    return _street_problem(CARLA, CAMVID, root, CARLA_CAMVID_9)


def _street_problem(source: StreetSet, target: StreetSet, root: PathLike | None, train_ids: Sequence[int]) -> Problem:
    """The source, labelled, and train and val of the target; maps of the source and of val are decoded once."""
    sides = {
        "labelled": read_street_side(source, root, "", train_ids),
        "unlabelled": read_street_side(target, root, "train", train_ids, labelled=False),
        "test": read_street_side(target, root, "val", train_ids),
    }
    bad = [replace(item, side=name) for name, side in sides.items() for item in side.rejected]
    seen = sum(len(side.files) + len(side.rejected) for side in sides.values())
    require_budget(bad, seen, ImageOptions().budget)
    problem = make_map_problem(**sides)
    # A map without a labelled pixel is no fault of its file.
    require_budget([item for item in problem.rejected if item.reason != NO_PIXEL], seen, ImageOptions().budget)
    return problem


def read_street_side(
    kind: StreetSet,
    root: PathLike | None = None,
    split: str = "",
    train_ids: Sequence[int] = ALL_19,
    *,
    labelled: bool = True,
) -> PairedSide:
    """One split of a set; where it is not labelled, its maps are not searched for."""
    lookup(kind.counts, split, f"split of {kind.name}")
    name = f"{kind.name} {split}".strip()
    images, labels = kind.folders(split)
    side = ImageSide(_scan_split(kind, find_data_folder(root), images, split, kind.image_end))
    maps = Scan("", ())
    if labelled:
        maps = _scan_split(kind, find_data_folder(root), labels, split, kind.label_end)
        side = side.without(_find_bad_maps(name, side.scan, maps, kind), "scan")
    by_stem = {_common_stem(file.name, kind.label_end): file for file in maps.files}
    files = tuple(
        MapFile(file, by_stem.get(_common_stem(file.name, kind.image_end)), file.size) for file in side.scan.files
    )
    notes = tuple(_describe_street_side(name, kind, split, side))
    return PairedSide(name, files, kind.table(train_ids), side.scan.rejected, notes)


def _scan_split(kind: StreetSet, root: Path, below: str, split: str, end: str) -> Scan:
    """The images in a folder of a split whose names end so; other maps and previews lie beside them."""
    scan = _scan_first_place(kind, root, below, split)
    files = tuple(file for file in scan.files if stem(file.name).endswith(end))
    rejected = tuple(item for item in scan.rejected if stem(item.name).endswith(end))
    text = f"{kind.name}: {printable_path(scan.root)} has no *{end}.png, but {count_noun(scan.files, 'other image')}"
    require(files, f"{text}; first: {scan.files[0].name}; the official names are needed")
    return replace(scan, files=files, rejected=rejected)


def _scan_first_place(kind: StreetSet, root: Path, below: str, split: str) -> Scan:
    """The images in a folder of the set, in the first place that has it: its folder or tar, else the root itself."""
    for path in (root / pack for pack in kind.packs):
        if (path / below).is_dir():
            return scan_folder(path / below)
    tars = [path for pack in kind.packs if (path := root / f"{pack}.tar").is_file()]
    for path in tars:
        for prefix in ("", *(f"{pack}/" for pack in kind.packs)):
            if has_members(path, f"{prefix}{below}"):
                return scan_tar(path, f"{prefix}{below}")
    if (root / below).is_dir():
        return scan_folder(root / below)
    missing = f"{tars[0].name} has no {below}" if tars else f"no folder {below} in {root}"
    packs = f"{kind.packs[0]}/ or {kind.packs[0]}.tar"
    expected = f"expected in {root}: {packs} with {kind.expected(split)}"
    raise InputDataError(f"{kind.name}: {missing}; {expected}; set --root or EMBASIS_DATA")


def _common_stem(name: str, end: str) -> str:
    """What the names of a picture and of its map have in common."""
    return stem(name).removesuffix(end)


def _find_bad_maps(name: str, pictures: Scan, maps: Scan, kind: StreetSet) -> dict[str, str]:
    """Why pictures cannot be used: their maps are unreadable or of another size."""
    usable = {_common_stem(file.name, kind.label_end): file for file in maps.files}
    broken = {_common_stem(item.name, kind.label_end): item.reason for item in maps.rejected}
    marks = {_common_stem(file.name, kind.image_end): file for file in pictures.files}
    seen = marks.keys() | {_common_stem(item.name, kind.image_end) for item in pictures.rejected}
    alone = [file.name for mark, file in marks.items() if mark not in usable and mark not in broken]
    extra = [file.name for mark, file in usable.items() if mark not in seen]
    parts = [(alone, "picture", "without a label map"), (extra, "label map", "without a picture")]
    texts = [f"{count_noun(names, what)} {lack}: {first_few(names)}" for names, what, lack in parts if names]
    require(not texts, f"{name}: {'; '.join(texts)}; unpack the set anew")
    for mark in marks.keys() & usable.keys():
        (height, width), (rows, columns) = marks[mark].size, usable[mark].size
        if (height, width) != (rows, columns):
            broken[mark] = f"{columns}×{rows} pixels, its picture has {width}×{height}"
    return {file.name: f"its label map: {broken[mark]}" for mark, file in marks.items() if mark in broken}


def _describe_street_side(name: str, kind: StreetSet, split: str, side: ImageSide) -> Iterator[str]:
    """What the scan says, and how the side differs from what was published."""
    yield from side.scan.notes
    pictures, published = side.scan.files, kind.counts[split]
    if len(pictures) != published:
        yield f"{name}: {count_noun(pictures, 'picture')} here, {published:,} as published"
    cities = {top_folder(file) for file in pictures} - set(kind.cities.get(split, ()))
    if kind.cities and cities:
        yield f"{name}: cities that are not of this split: {quote_names(cities)}"
    if text := describe_repeats(side):
        yield text
