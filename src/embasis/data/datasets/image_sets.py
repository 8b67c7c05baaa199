"""Published sets of images, read where they lie: an official folder, or a tar that is never extracted.

| set | official layout | domains |
| --- | --- | --- |
| Office-31 | `<domain>/images/<class>/frame_NNNN.jpg` | amazon, webcam, dslr |
| Office-Caltech-10 | `<domain>/<class>/<file>` | amazon, caltech10, dslr, webcam |
| PACS | `<domain>/<class>/<file>` | photo, art_painting, cartoon, sketch |
| VisDA-2017 | `<domain>/<class>/<file>`, `<domain>/image_list.txt` | train (rendered), validation (photographs) |

None of them is ours to ship: `root`, else the variable EMBASIS_DATA, else `../shared/data` names their folder.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from embasis.data.datasets.domain_sets import OFFICE_CALTECH_CLASSES, SURF, find_data_folder, require_domains
from embasis.data.images.files import Scan, describe_other_kinds, escape_name, read_part
from embasis.data.images.folders import ImageOptions, describe_repeats, require_budget, top_folder
from embasis.data.images.samples import ImageSide, build_image_problem
from embasis.data.images.scan import has_members, iter_tar_members, scan_folder, scan_tar
from embasis.errors import InputDataError, known, quoted, require
from embasis.types import PathLike, Problem, RejectedFile

TABLE_METRIC = {"visda17": "mean_class_accuracy"}
"""What published tables of a set report where it is not plain accuracy."""
VISDA_LIST = "image_list.txt"
VISDA_CLASSES = (
    "aeroplane", "bicycle", "bus", "car", "horse", "knife",
    "motorcycle", "person", "plant", "skateboard", "train", "truck",
)  # fmt: skip
"""In the order of their numbers in VISDA_LIST, which has a line for each image: its path and that number."""


@dataclass(frozen=True)
class ImageSet:
    """Where the images of a published set lie, and what must be there."""

    name: str
    packs: tuple[str, ...]
    """Folders and tars that may hold the set; the root itself may, too."""
    classes: tuple[str, ...]
    counts: dict[str, int | None] = field(default_factory=dict)
    """Published number of images of each domain, None where it is not checked."""
    inside: str = ""
    """Folder between the domain and the classes."""

    def below(self, domain: str) -> str:
        """The folder that holds the classes of a domain."""
        return f"{domain}/{self.inside}" if self.inside else domain


OFFICE31 = ImageSet(
    "office31",
    ("office31", "office-31", "Office31"),
    (
        "back_pack",
        "bike",
        "bike_helmet",
        "bookcase",
        "bottle",
        "calculator",
        "desk_chair",
        "desk_lamp",
        "desktop_computer",
        "file_cabinet",
        "headphones",
        "keyboard",
        "laptop_computer",
        "letter_tray",
        "mobile_phone",
        "monitor",
        "mouse",
        "mug",
        "paper_notebook",
        "pen",
        "phone",
        "printer",
        "projector",
        "punchers",
        "ring_binder",
        "ruler",
        "scissors",
        "speaker",
        "stapler",
        "tape_dispenser",
        "trash_can",
    ),
    {"amazon": 2817, "webcam": 795, "dslr": 498},
    inside="images",
)
OFFICE_CALTECH10 = ImageSet("office_caltech10", ("office_caltech10",), OFFICE_CALTECH_CLASSES, dict.fromkeys(SURF))
PACS = ImageSet(
    "pacs",
    ("pacs_photo_art_128", "pacs", "PACS"),
    ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
    {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929},
)
VISDA17 = ImageSet(
    "visda17",
    ("visda17", "visda", "visda-2017", "VisDA2017"),
    VISDA_CLASSES,
    {"train": 152_397, "validation": 55_388},
)


def office31(root: PathLike | None = None, source: str = "amazon", target: str = "webcam") -> Problem:
    """Office-31: photographs of 31 kinds of office things from a shop, a webcam and a camera."""
    return _image_problem(OFFICE31, find_data_folder(root), source, target)


def office_caltech10(root: PathLike | None = None, source: str = "amazon", target: str = "webcam") -> Problem:
    """Office-Caltech-10 as images: four domains, ten classes."""
    return _image_problem(OFFICE_CALTECH10, find_data_folder(root), source, target)


def pacs(root: PathLike | None = None, source: str = "photo", target: str = "art_painting") -> Problem:
    """PACS: seven classes as photographs, paintings, cartoons and sketches, as far as they are there."""
    return _image_problem(PACS, find_data_folder(root), source, target)


def visda17(root: PathLike | None = None) -> Problem:
    """VisDA-2017: rendered objects -> photographs of 12 classes; tables report the mean accuracy of the classes."""
    return _image_problem(VISDA17, find_data_folder(root), "train", "validation")


def _image_problem(kind: ImageSet, root: Path, source: str, target: str) -> Problem:
    """All images of the source are labelled, all of the target are not; its true labels are hidden."""
    require_domains(kind.name, kind.counts, source, target)
    sides = _domain_side(kind, root, source), _domain_side(kind, root, target)
    rejected = [item for side in sides for item in side.scan.rejected]
    require_budget(rejected, sum(side.seen for side in sides), ImageOptions().budget)
    notes = [text for side in sides if (text := describe_repeats(side))]
    for side, domain in zip(sides, (source, target), strict=True):
        expected, images = kind.counts[domain], len(side.scan.files)
        if expected is not None and expected != images:
            notes.append(f"{kind.name}: {domain} has {images:,} images here, {expected:,} as published")
    return build_image_problem(*sides, kind.classes, notes=notes)


def _domain_side(kind: ImageSet, root: Path, domain: str) -> ImageSide:
    """One domain with the class of each image; the classes must be those of the set."""
    place, scan = _find_domain(kind, root, domain)
    if kind is VISDA17:
        scan = _keep_listed(scan, place, domain)
    loose = {file.name: "lies in no class folder" for file in scan.files if "/" not in file.name}
    side = ImageSide(scan).without(loose, "scan")
    side = replace(side, labels=tuple(top_folder(file) for file in side.scan.files))
    here, there = side.named.classes, set(kind.classes)
    extra = f"; not of the set: {known(here - there)}" if here - there else ""
    lacking = f"; missing: {known(there - here)}" if there - here else ""
    text = f"{kind.name}: {domain} in {place} must have the {len(there)} classes of the set"
    require(here == there, f"{text}{lacking}{extra}")
    return side


def _find_domain(kind: ImageSet, root: Path, domain: str) -> tuple[Path, Scan]:
    """The first place that holds the domain, and its images: a folder or tar of the set, else the root itself."""
    below = kind.below(domain)
    folders = [path for pack in kind.packs if _has_a_class(path := root / pack, below, kind)]
    if folders:
        return folders[0], scan_folder(folders[0] / below)
    # The tars of VisDA have the name of the domain.
    names = (*kind.packs, domain) if kind is VISDA17 else kind.packs
    tars = [path for name in names if (path := root / f"{name}.tar").is_file()]
    for path in tars:
        for prefix in ("", f"{path.stem}/"):
            if has_members(path, f"{prefix}{below}"):
                return path, scan_tar(path, f"{prefix}{below}")
    if _has_a_class(root, below, kind):
        return root, scan_folder(root / below)
    layout = f"{below}/<class>/<image> in {kind.packs[0]}/ or {kind.packs[0]}.tar"
    missing = f"{tars[0].name} has no {below}" if tars else f"no folder {below}/<class> in {root}"
    raise InputDataError(f"{kind.name}: {missing}; expected in {root}: {layout}; set --root or EMBASIS_DATA")


def _has_a_class(folder: Path, below: str, kind: ImageSet) -> bool:
    """Whether a folder has the domain; sets share names of domains, so one class of this set must be there."""
    return any((folder / below / name).is_dir() for name in kind.classes)


def _keep_listed(scan: Scan, place: Path, domain: str) -> Scan:
    """The images that the list of the domain names; others are counted in a note, missing ones are rejected."""
    names = _parse_visda_list(_read_visda_list(place, domain), f"{place}: {domain}/{VISDA_LIST}")
    present = {file.name for file in scan.files} | {item.name for item in scan.rejected}
    missing = tuple(RejectedFile(name, f"in {VISDA_LIST}, but not there", "scan") for name in sorted(names - present))
    kept = tuple(file for file in scan.files if file.name in names)
    extra = len(scan.files) - len(kept)
    require(kept, f"{place}: no image of {domain}/{VISDA_LIST} is there")
    notes = [note for note in scan.notes if not note.endswith(describe_other_kinds(Counter({".txt": 1})))]
    if extra:
        files = "1 image is" if extra == 1 else f"{extra:,} images are"
        notes.append(f"{place}: {files} not in {domain}/{VISDA_LIST} and not used")
    return replace(scan, files=kept, rejected=(*scan.rejected, *missing), notes=tuple(notes), seen=-1)


def _parse_visda_list(text: bytes, what: str) -> set[str]:
    """The listed paths; each number must be that of the class in the path."""
    names = set()
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            path, _, mark = line.strip().rpartition(b" ")
            name = escape_name(path.strip())
            is_intact = mark.isdigit() and name.partition("/")[0] in VISDA_CLASSES[int(mark) :][:1]
            rule = "must be <class>/<file> and the number of the class"
            require(is_intact, f"{what}: line {number} {rule}, got {quoted(escape_name(line[:200]))}")
            names.add(name)
    require(names, f"{what}: no lines")
    return names


def _read_visda_list(place: Path, domain: str) -> bytes:
    """The bytes of the list, from a folder or from a tar."""
    try:
        if place.is_dir():
            return read_part(str(place / domain / VISDA_LIST))
        for member, parts in iter_tar_members(place):
            if parts[-2:] == [domain, VISDA_LIST] and member.isreg():
                return read_part(str(place.resolve()), member.offset_data, member.size)
    except OSError as error:
        raise InputDataError(f"visda17: {domain}/{VISDA_LIST} in {place} cannot be read: {error.strerror}") from error
    raise InputDataError(f"visda17: no file {domain}/{VISDA_LIST} in {place}; it says which images belong to the set")
