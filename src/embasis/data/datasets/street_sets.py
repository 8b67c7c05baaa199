"""Published street scenes, read where they lie: official folders, or tars that are never extracted.

| problem | labelled | unlabelled | test | classes |
| --- | --- | --- | --- | --- |
| gta5_cityscapes | GTA5 | Cityscapes train | Cityscapes val | 19 |
| synthia_cityscapes | SYNTHIA-RAND-CITYSCAPES | Cityscapes train | Cityscapes val | 16 or 13 |
| carla_camvid | CARLA pack | CamVid train | CamVid val | 9 |

Label maps of an unlabelled side are never opened. None of the sets is ours to ship: `root`, else the variable
EMBASIS_DATA, else `../shared/data` names their folder; layouts are in segmentation/street_layouts.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from embasis.data.class_labels import listed
from embasis.data.datasets.domain_sets import find_data_folder
from embasis.data.images.files import ImageFile, Scan, printable_path
from embasis.data.images.folders import ImageOptions, describe_repeats, require_budget, top_folder
from embasis.data.images.samples import ImageSide
from embasis.data.images.scan import has_members, scan_folder, scan_tar
from embasis.data.segmentation.audit import NO_PIXEL
from embasis.data.segmentation.folders import PairedSide, make_map_problem
from embasis.data.segmentation.pairs import MapFile, stem
from embasis.data.segmentation.street_layouts import (
    ALL_19,
    CAMVID,
    CARLA,
    CARLA_CAMVID_9,
    CITYSCAPES,
    GTA5,
    SYNTHIA,
    SYNTHIA_13,
    SYNTHIA_16,
    Layout,
    class_names,
    label_id_table,
    synthia_table,
    train_id_table,
)
from embasis.errors import ConfigError, InputDataError, lookup, require
from embasis.types import ClassTable, PathLike, Problem, RejectedFile

STARRED = {"synthia_cityscapes": class_names(SYNTHIA_13)}
"""The classes that mIoU* averages over, of the sets whose tables have one."""


def gta5_cityscapes(root: PathLike | None = None) -> Problem:
    """GTA5 -> Cityscapes: scenes of a game, labelled, and photographs of German and Swiss streets; 19 classes."""
    return _street_problem(gta5_side(root), *_cityscapes(root, ALL_19))


def synthia_cityscapes(root: PathLike | None = None, classes: int = 16) -> Problem:
    """SYNTHIA-RAND-CITYSCAPES -> Cityscapes: rendered scenes and photographs; 16 classes, or the 13 of mIoU*."""
    known = {16: SYNTHIA_16, 13: SYNTHIA_13}
    require(classes in known, f"synthia_cityscapes: classes must be 16 or 13, got {classes}", ConfigError)
    return _street_problem(synthia_side(root, known[classes]), *_cityscapes(root, known[classes]))


def carla_camvid(root: PathLike | None = None) -> Problem:
    """CARLA -> CamVid: scenes of a simulator, labelled, and photographs from a car in Cambridge; 9 shared classes."""
    return _street_problem(carla_side(root), camvid_side(root, "train", labelled=False), camvid_side(root, "val"))


def gta5_side(root: PathLike | None = None, train_ids: Sequence[int] = ALL_19) -> PairedSide:
    """GTA5 (Richter et al., 2016)."""
    return _street_side(GTA5, root, "", label_id_table(train_ids), True)


def synthia_side(root: PathLike | None = None, train_ids: Sequence[int] = SYNTHIA_16) -> PairedSide:
    """SYNTHIA-RAND-CITYSCAPES (Ros et al., 2016)."""
    return _street_side(SYNTHIA, root, "", synthia_table(train_ids), True)


def cityscapes_side(
    root: PathLike | None = None, split: str = "train", train_ids: Sequence[int] = ALL_19, *, labelled: bool = True
) -> PairedSide:
    """Cityscapes (Cordts et al., 2016), train or val."""
    return _street_side(CITYSCAPES, root, split, label_id_table(train_ids), labelled)


def carla_side(root: PathLike | None = None, train_ids: Sequence[int] = CARLA_CAMVID_9) -> PairedSide:
    """The CARLA pack."""
    return _street_side(CARLA, root, "", train_id_table(train_ids), True)


def camvid_side(
    root: PathLike | None = None,
    split: str = "train",
    train_ids: Sequence[int] = CARLA_CAMVID_9,
    *,
    labelled: bool = True,
) -> PairedSide:
    """The CamVid pack (Brostow et al., 2009), train or val."""
    return _street_side(CAMVID, root, split, train_id_table(train_ids), labelled)


def _cityscapes(root: PathLike | None, train_ids: Sequence[int]) -> tuple[PairedSide, PairedSide]:
    """The pictures of train, and val to score on."""
    return cityscapes_side(root, "train", train_ids, labelled=False), cityscapes_side(root, "val", train_ids)


def _street_side(layout: Layout, given: PathLike | None, split: str, table: ClassTable, labelled: bool) -> PairedSide:
    """One split of a set; where it is not labelled, its maps are not searched for."""
    lookup(layout.counts, split, f"split of {layout.name}")
    root, name = find_data_folder(given), f"{layout.name} {split}".strip()
    images, labels = layout.folders(split)
    side = ImageSide(_files_ending_in(_scan_split(layout, root, images, split), layout, layout.image_end))
    maps: dict[str, ImageFile] = {}
    if labelled:
        scan = _files_ending_in(_scan_split(layout, root, labels, split), layout, layout.label_end)
        maps = {_common_stem(file.name, layout.label_end): file for file in scan.files}
        side = side.without(_find_bad_maps(name, side.scan, maps, scan.rejected, layout), "scan")
    pairs = [(file, maps.get(_common_stem(file.name, layout.image_end))) for file in side.scan.files]
    files = tuple(MapFile(picture, label, picture.size) for picture, label in pairs)
    return PairedSide(name, files, table, side.scan.rejected, tuple(_street_notes(name, layout, split, side)))


def _scan_split(layout: Layout, root: Path, below: str, split: str) -> Scan:
    """The images in a folder of the set, in the first place that has it: its folder or tar, else the root itself."""
    for path in (root / pack for pack in layout.packs):
        if (path / below).is_dir():
            return scan_folder(path / below)
    tars = [path for pack in layout.packs if (path := root / f"{pack}.tar").is_file()]
    for path in tars:
        for prefix in ("", *(f"{pack}/" for pack in layout.packs)):
            if has_members(path, f"{prefix}{below}"):
                return scan_tar(path, f"{prefix}{below}")
    if (root / below).is_dir():
        return scan_folder(root / below)
    missing = f"{tars[0].name} has no {below}" if tars else f"no folder {below} in {root}"
    packs = f"{layout.packs[0]}/ or {layout.packs[0]}.tar"
    expected = f"expected in {root}: {packs} with {layout.expected(split)}"
    raise InputDataError(f"{layout.name}: {missing}; {expected}; set --root or EMBASIS_DATA")


def _files_ending_in(scan: Scan, layout: Layout, end: str) -> Scan:
    """The files whose names end as those of the set do; other maps and previews lie beside them."""
    files = tuple(file for file in scan.files if stem(file.name).endswith(end))
    rejected = tuple(item for item in scan.rejected if stem(item.name).endswith(end))
    others = _count_files(len(scan.files), "other image")
    text = f"{layout.name}: {printable_path(scan.root)} has no *{end}.png, but {others}"
    require(files, f"{text}; first: {scan.files[0].name}; the official names are needed")
    return replace(scan, files=files, rejected=rejected)


def _common_stem(name: str, end: str) -> str:
    """What the names of a picture and of its map have in common."""
    return stem(name).removesuffix(end)


def _find_bad_maps(
    name: str, pictures: Scan, maps: dict[str, ImageFile], rejected: Sequence[RejectedFile], layout: Layout
) -> dict[str, str]:
    """Why pictures cannot be used: their maps are unreadable or of another size."""
    broken = {_common_stem(item.name, layout.label_end): item.reason for item in rejected}
    marks = {_common_stem(file.name, layout.image_end): file for file in pictures.files}
    seen = marks.keys() | {_common_stem(item.name, layout.image_end) for item in pictures.rejected}
    alone = [file.name for mark, file in marks.items() if mark not in maps and mark not in broken]
    _require_pairs(name, alone, [file.name for mark, file in maps.items() if mark not in seen])
    for mark in marks.keys() & maps.keys():
        (height, width), (rows, columns) = marks[mark].size, maps[mark].size
        if (height, width) != (rows, columns):
            broken[mark] = f"{columns}×{rows} pixels, its picture has {width}×{height}"
    return {file.name: f"its label map: {broken[mark]}" for mark, file in marks.items() if mark in broken}


def _require_pairs(name: str, alone: list[str], extra: list[str]) -> None:
    """Every picture has a map, every map a picture."""
    parts = [(alone, "picture", "without a label map"), (extra, "label map", "without a picture")]
    texts = [
        f"{_count_files(len(names), what)} {lack}: {', '.join(names[:3])}{', …' if len(names) > 3 else ''}"
        for names, what, lack in parts
        if names
    ]
    require(not texts, f"{name}: {'; '.join(texts)}; unpack the set anew")


def _street_notes(name: str, layout: Layout, split: str, side: ImageSide) -> Iterator[str]:
    """What the scan says, and how the side differs from what was published."""
    yield from side.scan.notes
    pictures, published = len(side.scan.files), layout.counts[split]
    if pictures != published:
        yield f"{name}: {_count_files(pictures, 'picture')} here, {published:,} as published"
    cities = {top_folder(file) for file in side.scan.files} - set(layout.cities.get(split, ()))
    if layout.cities and cities:
        yield f"{name}: cities that are not of this split: {listed(cities)}"
    if text := describe_repeats(side):
        yield text


def _count_files(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def _street_problem(labelled: PairedSide, unlabelled: PairedSide, test: PairedSide) -> Problem:
    """The sides as one problem; every label map of the labelled and of the test side is decoded once."""
    sides = {"labelled": labelled, "unlabelled": unlabelled, "test": test}
    bad = [replace(item, side=name) for name, side in sides.items() for item in side.rejected]
    seen = sum(len(side.files) + len(side.rejected) for side in sides.values())
    require_budget(bad, seen, ImageOptions().budget)
    problem = make_map_problem(labelled, unlabelled, test)
    # A map without a labelled pixel is no fault of its file.
    require_budget([item for item in problem.rejected if item.reason != NO_PIXEL], seen, ImageOptions().budget)
    return problem
