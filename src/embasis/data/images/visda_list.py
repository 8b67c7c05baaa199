"""VisDA-2017's `image_list.txt`: one line for each image, its path and the number of its class."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from embasis.data.images.files import Scan, other_kinds, read_part
from embasis.data.images.scan import name_of, tar_members
from embasis.errors import InputDataError, quoted, require
from embasis.types import RejectedFile

LIST = "image_list.txt"
VISDA_CLASSES = (
    "aeroplane",
    "bicycle",
    "bus",
    "car",
    "horse",
    "knife",
    "motorcycle",
    "person",
    "plant",
    "skateboard",
    "train",
    "truck",
)
"""In the official order of their numbers."""


def listed_only(scan: Scan, place: Path, domain: str) -> Scan:
    """The images that the list of the domain names; others are counted in a note, missing ones are refused."""
    listed = _names(_text(place, domain), f"{place}: {domain}/{LIST}")
    there = {file.name for file in scan.files} | {item.name for item in scan.refused}
    gone = tuple(RejectedFile(name, f"in {LIST}, but not there", "scan") for name in sorted(listed - there))
    kept = tuple(file for file in scan.files if file.name in listed)
    extra = len(scan.files) - len(kept)
    require(kept, f"{place}: no image of {domain}/{LIST} is there")
    notes = [note for note in scan.notes if not note.endswith(other_kinds(Counter({".txt": 1})))]
    if extra:
        files = "1 image is" if extra == 1 else f"{extra:,} images are"
        notes.append(f"{place}: {files} not in {domain}/{LIST} and not used")
    return replace(scan, files=kept, refused=(*scan.refused, *gone), notes=tuple(notes), seen=-1)


def _names(text: bytes, what: str) -> set[str]:
    """The listed paths; each number must be that of the class in the path."""
    names = set()
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            path, _, mark = line.strip().rpartition(b" ")
            name = name_of(path.strip())
            is_intact = mark.isdigit() and name.partition("/")[0] in VISDA_CLASSES[int(mark) :][:1]
            rule = "must be <class>/<file> and the number of the class"
            require(is_intact, f"{what}: line {number} {rule}, got {quoted(name_of(line[:200]))}")
            names.add(name)
    require(names, f"{what}: no lines")
    return names


def _text(place: Path, domain: str) -> bytes:
    """The bytes of the list, from a folder or from a tar."""
    try:
        if place.is_dir():
            return read_part(str(place / domain / LIST))
        for member, parts in tar_members(place):
            if parts[-2:] == [domain, LIST] and member.isreg():
                return read_part(str(place.resolve()), member.offset_data, member.size)
    except OSError as error:
        raise InputDataError(f"visda17: {domain}/{LIST} in {place} cannot be read: {error.strerror}") from error
    raise InputDataError(f"visda17: no file {domain}/{LIST} in {place}; it says which images belong to the set")
