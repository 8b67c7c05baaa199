"""Published sets of several domains, read where they lie: an official folder, or a tar that is never extracted.

| set of images | official layout | domains |
| --- | --- | --- |
| Office-31 | `<domain>/images/<class>/frame_NNNN.jpg` | amazon, webcam, dslr |
| Office-Caltech-10 | `<domain>/<class>/<file>` | amazon, caltech10, dslr, webcam |
| PACS | `<domain>/<class>/<file>` | photo, art_painting, cartoon, sketch |
| VisDA-2017 | `<domain>/<class>/<file>`, `<domain>/image_list.txt` | train (rendered), validation (photographs) |

| set of features | features | preparation |
| --- | --- | --- |
| Office-Caltech-10, SURF | N × 800 counts, 4 domains | rows to unit sum, then columns of a domain to unit scores |
| Office-Caltech-10, GoogLeNet | N × 1024, 3 domains (no caltech10) | as they are |

The features are in MATLAB files of version 5, which have a reader of our own here, for scipy's crashes on damaged ones:

| bytes | meaning |
| --- | --- |
| 128 | words, the version 0x0100 and "IM" (little endian) |
| element | type and length (4 bytes each), content, filled up to 8 bytes; up to 4 bytes fit into the tag itself |
| element of type 15 | a compressed element |
| element of type 14 | a matrix: flags, dimensions, name, values column by column |

Only real matrices of numbers are read; cells, structures, text and sparse ones are passed over. None of the
sets is ours to ship: `root`, else the variable EMBASIS_DATA, else `../shared/data` names their folder.
"""

from __future__ import annotations

import itertools
import math
import os
import struct
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from embasis.data.images.files import Scan, describe_other_kinds, escape_name, read_part
from embasis.data.images.folders import ImageOptions, describe_repeats, require_budget
from embasis.data.images.samples import ImageSide, build_image_problem
from embasis.data.images.scan import has_members, iter_tar_members, scan_folder, scan_tar
from embasis.data.images.sides import top_folder
from embasis.errors import ConfigError, InputDataError, join_names, lookup, quote, require
from embasis.types import Arrays, LabelSchema, PathLike, Problem, RejectedFile

FeatureArray = NDArray[np.float32]

PACK = "office_caltech10_surf_googlenet"
# The files number the classes 1 … 10. The counts of each class in each domain agree with the image folders of the
# same set in alphabetical order, so that is the order of the names.
OFFICE_CALTECH_CLASSES = (
    "backpack", "bike", "calculator", "headphones", "keyboard", "laptop", "monitor", "mouse", "mug", "projector",
)  # fmt: skip
SURF = {name: f"surf/{name}.mat" for name in ("amazon", "caltech10", "dslr", "webcam")}
GOOGLENET = {name: f"GoogleNet1024/{name}.mat" for name in ("amazon", "dslr", "webcam")}
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
GOODS = ("books", "dvd", "elec", "kitchen")
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
PEOPLE = ((7, 18), (20, 30), (35, 31), (17, 23), (6, 19), (2, 11), (33, 12), (5, 26), (28, 4), (23, 32))
PAIRS = {
    "office_caltech10_surf": tuple(itertools.permutations(SURF, 2)),
    "office_caltech10_googlenet": tuple(itertools.permutations(GOOGLENET, 2)),
    # The order of the columns in published tables.
    "office31": (
        ("amazon", "webcam"), ("dslr", "webcam"), ("webcam", "dslr"),
        ("amazon", "dslr"), ("dslr", "amazon"), ("webcam", "amazon"),
    ),
    "office_caltech10": tuple(itertools.permutations(SURF, 2)),
    "pacs": (("photo", "art_painting"), ("art_painting", "photo")),
    "wisdm": tuple((f"s{source:02}", f"s{target:02}") for source, target in PEOPLE),
    "gas_drift": tuple(("batch01", f"batch{later:02}") for later in (2, 3, 4, 5, 6, 8, 9)),
    "heart_disease": tuple(itertools.permutations(HOSPITALS, 2)),
    "amazon_reviews": tuple(itertools.permutations(GOODS, 2)),
    "spoken_digits": tuple(zip(SPEAKERS, (*SPEAKERS[1:], SPEAKERS[0]), strict=True)),
}  # fmt: skip
"""The ordered pairs (source, target) of each set that a table has columns for."""
TABLE_METRIC = {"visda17": "mean_class_accuracy", "heart_disease": "mean_class_accuracy"}
"""What tables of a set report where it is not plain accuracy."""
VISDA_LIST = "image_list.txt"
VISDA_CLASSES = (
    "aeroplane", "bicycle", "bus", "car", "horse", "knife",
    "motorcycle", "person", "plant", "skateboard", "train", "truck",
)  # fmt: skip
"""In the order of their numbers in VISDA_LIST, which has a line for each image: its path and that number."""
LARGEST_MAT_FILE = 64 * 2**20
"""Bytes of one .mat file that we read; the largest published one has 4 MB."""
MAT_TYPES = {1: "<i1", 2: "<u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
"""numpy's name of each type of numbers."""
MAT_MATRIX, MAT_PACKED, MAT_COMPLEX = 14, 15, 0x0800
MAT_NUMERIC = range(6, 16)
"""Classes of matrices that hold plain numbers."""
Matrix = NDArray[np.float64]


def require_domains(name: str, domains: Mapping[str, object], source: str, target: str) -> None:
    """Source and target are two different domains of the set."""
    for domain in (source, target):
        lookup(domains, domain, f"domain of {name}")
    require(source != target, f"{name}: source and target must differ, got {quote(source)} twice", ConfigError)


def find_data_folder(root: PathLike | None) -> Path:
    """The folder of data packs: what the caller says, else EMBASIS_DATA, else ../shared/data."""
    return Path(root if root is not None else os.environ.get("EMBASIS_DATA") or Path("..") / "shared" / "data")


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
        "back_pack", "bike", "bike_helmet", "bookcase", "bottle", "calculator", "desk_chair", "desk_lamp",
        "desktop_computer", "file_cabinet", "headphones", "keyboard", "laptop_computer", "letter_tray", "mobile_phone",
        "monitor", "mouse", "mug", "paper_notebook", "pen", "phone", "printer", "projector", "punchers", "ring_binder",
        "ruler", "scissors", "speaker", "stapler", "tape_dispenser", "trash_can",
    ),
    {"amazon": 2817, "webcam": 795, "dslr": 498},
    inside="images",
)  # fmt: skip
OFFICE_CALTECH10 = ImageSet("office_caltech10", ("office_caltech10",), OFFICE_CALTECH_CLASSES, dict.fromkeys(SURF))
PACS = ImageSet(
    "pacs",
    ("pacs_photo_art_128", "pacs", "PACS"),
    ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
    {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929},
)
VISDA_PACKS = ("visda17", "visda", "visda-2017", "VisDA2017")
VISDA17 = ImageSet("visda17", VISDA_PACKS, VISDA_CLASSES, {"train": 152_397, "validation": 55_388})


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
    extra = f"; not of the set: {join_names(here - there)}" if here - there else ""
    lacking = f"; missing: {join_names(there - here)}" if there - here else ""
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
            require(is_intact, f"{what}: line {number} {rule}, got {quote(escape_name(line[:200]))}")
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


def office_caltech10_surf(root: PathLike | None = None, source: str = "amazon", target: str = "webcam") -> Problem:
    """Office-Caltech-10 as SURF bags of words (800): four domains, ten classes."""
    return _feature_problem("office_caltech10_surf", SURF, root, source, target, prepare=True)


def office_caltech10_googlenet(root: PathLike | None = None, source: str = "amazon", target: str = "webcam") -> Problem:
    """Office-Caltech-10 as GoogLeNet features (1024): three domains, ten classes."""
    return _feature_problem("office_caltech10_googlenet", GOOGLENET, root, source, target, prepare=False)


def _feature_problem(
    name: str, domains: dict[str, str], root: PathLike | None, source: str, target: str, prepare: bool
) -> Problem:
    require_domains(name, domains, source, target)
    sides = [read_features(name, find_data_folder(root), domains[domain]) for domain in (source, target)]
    (x_source, y_source), (x_target, y_target) = ((unit_scores(x) if prepare else x, y) for x, y in sides)
    return Problem(
        labelled=Arrays.of(torch.from_numpy(x_source), torch.from_numpy(y_source)),
        unlabelled=Arrays.of(torch.from_numpy(x_target)),
        schema=LabelSchema(OFFICE_CALTECH_CLASSES),
        hidden_labels=torch.from_numpy(y_target),
    )


def unit_scores(counts: FeatureArray) -> FeatureArray:
    """Rows to unit sum, then columns to mean 0 and deviation 1; constant columns and empty rows stay finite."""
    x = counts.astype(np.float64)
    x /= np.maximum(x.sum(1, keepdims=True), np.finfo(np.float32).tiny)
    x -= x.mean(0)
    deviation = x.std(0)
    return (x / np.where(deviation > 1e-12, deviation, 1.0)).astype(np.float32)


def read_features(name: str, root: Path, member: str) -> tuple[FeatureArray, NDArray[np.int64]]:
    """x (N, d) and y (N) in 0 … 9 of one .mat file."""
    stored = _read_member(name, root, member)
    begins = stored.startswith(b"MATLAB 5.0 MAT-file")  # the format before it has no mark that it could be known by
    require(begins, f"{name}: {member} in {root} is not a .mat file with fts and labels: it does not begin like one")
    try:
        content = read_mat(stored, LARGEST_MAT_FILE)
        with np.errstate(over="ignore", invalid="ignore"):  # what does not fit is refused below
            x, y = content["fts"].astype(np.float32), content["labels"].ravel().astype(np.int64) - 1
    except (KeyError, ValueError, zlib.error) as error:
        raise InputDataError(f"{name}: {member} in {root} is not a .mat file with fts and labels: {error}") from error
    require(
        x.ndim == 2 and len(x) == len(y) > 0 and np.isfinite(x).all(),
        f"{name}: {member} in {root} must hold finite fts (N, d) and N labels, got {x.shape} and {y.shape}",
    )
    low, high = int(y.min()) + 1, int(y.max()) + 1
    require(
        low >= 1 and high <= len(OFFICE_CALTECH_CLASSES),
        f"{name}: labels of {member} must be in 1..10, got {low}..{high}",
    )
    return x, y


def _read_member(name: str, root: Path, member: str) -> bytes:
    """The bytes of one file of the pack: from an extracted folder (the root, or one named as the pack) or the tar."""
    for folder in (root / PACK, root):
        if (folder / member).is_file():
            return (folder / member).read_bytes()
    pack = root / f"{PACK}.tar"
    require(pack.is_file(), f"{name}: no file {pack.name} in {root}; set --root or EMBASIS_DATA")
    try:
        with tarfile.open(pack, "r:") as archive:
            info = archive.getmember(member)
            require(
                info.size <= LARGEST_MAT_FILE,
                f"{name}: {member} in {pack} has {info.size} bytes, over {LARGEST_MAT_FILE}",
            )
            stream = archive.extractfile(info)
            require(stream is not None, f"{name}: {member} in {pack} is not a file")
            return stream.read() if stream is not None else b""
    except (KeyError, tarfile.TarError) as error:
        raise InputDataError(f"{name}: {pack} cannot be read: {error}") from error


def read_mat(data: bytes, largest: int) -> dict[str, Matrix]:
    """Every matrix of numbers by its name, float64; ValueError says what is wrong with the file."""
    if len(data) < 128 or data[124:128] != b"\x00\x01IM":
        raise ValueError("it is no MATLAB file of version 5")
    matrices: dict[str, Matrix] = {}
    for kind, content in _mat_elements(memoryview(data)[128:], filled=False):
        if kind == MAT_PACKED:
            inflater = zlib.decompressobj()
            unpacked = memoryview(inflater.decompress(content, largest))
            if inflater.unconsumed_tail:
                raise ValueError(f"a part takes more than {largest} bytes unpacked")
            kind, content = next(_mat_elements(unpacked), (0, content))
        if kind == MAT_MATRIX:
            matrices |= _mat_matrix(content)
    return matrices


def _mat_elements(data: memoryview, filled: bool = True) -> Iterator[tuple[int, memoryview]]:
    """(type, content) one after the other; on the first level only matrices are filled up to 8 bytes."""
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack("<II", data[at : at + 8])
        start, step = at + 8, 8 + size
        if kind >> 16:
            kind, size, start, step = kind & 0xFFFF, kind >> 16, at + 4, 8
        elif filled or kind != MAT_PACKED:
            step = 8 + -(-size // 8) * 8
        if size > len(data) - start or (step == 8 and size > 4 and start == at + 4):
            raise ValueError(f"it ends within a part of {size} bytes")
        yield kind, data[start : start + size]
        at += step


def _mat_matrix(content: memoryview) -> dict[str, Matrix]:
    parts = list(_mat_elements(content))
    if len(parts) < 4 or len(parts[0][1]) < 8:
        return {}
    (flags,) = struct.unpack("<I", parts[0][1][:4])
    kind, values = parts[3]
    if flags & 0xFF not in MAT_NUMERIC or flags & MAT_COMPLEX or kind not in MAT_TYPES:
        return {}
    shape = tuple(np.frombuffer(parts[1][1][: len(parts[1][1]) // 4 * 4], "<i4").tolist())
    dtype = np.dtype(MAT_TYPES[kind])
    if len(shape) != 2 or min(shape) < 0 or math.prod(shape) * dtype.itemsize != len(values):
        raise ValueError(f"a matrix of shape {shape} has {len(values)} bytes of {dtype.name}")
    name = bytes(parts[2][1]).decode("latin-1")
    return {name: np.frombuffer(values, dtype).reshape(shape, order="F").astype(np.float64)}
