"""Label maps that a person has corrected: their pictures move from the unlabelled side to the labelled one.

A map has the path of its picture but for the ending, a/1.png for a/1.jpg, or its whole path and an ending of its own,
a/1.jpg.png. It is coded as those of the labelled side.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import replace

import torch

from embasis.data.class_labels import quote_names
from embasis.data.corrections import rename_taken, require_known_ids, require_rest
from embasis.data.images.files import ImageFile, Scan, describe_first, printable_path
from embasis.data.images.folders import ImageOptions
from embasis.data.images.samples import ImageSide
from embasis.data.images.scan import scan_folder
from embasis.data.segmentation.audit import Audit, audit_side
from embasis.data.segmentation.classes import find_class_file, read_first_header
from embasis.data.segmentation.pairs import CLASS_FILE, LABELS, MapSide, orient_maps, stem
from embasis.errors import InputDataError, quote, require
from embasis.types import ClassTable, PathLike


def split_corrected(side: MapSide, place: PathLike, options: ImageOptions) -> tuple[MapSide, MapSide]:
    """The unlabelled side without the pictures that have a map in the folder `place`, and those with their maps."""
    where = printable_path(place)
    rule = f"{where}: a folder of label maps is expected, a PNG with the name of each corrected picture"
    require(os.path.isdir(place), rule)
    below = os.path.join(place, LABELS)
    maps = scan_folder(below if os.path.isdir(below) else place, follow_links=options.follow_links)
    require(not maps.rejected, f"{where}: a label map cannot be read: {describe_first(maps.rejected)}")
    pairs = _match_maps(side, maps, where)
    files, _, _ = orient_maps([replace(file, label=pairs[file.name]) for file in side.files if file.name in pairs])
    require_rest(len(files), len(side.files), where, side.name)
    stay = replace(
        side.select(lambda name: name not in pairs), missing=tuple(name for name in side.missing if name not in pairs)
    )
    return stay, MapSide(os.fspath(place), ImageSide(Scan(os.fspath(place), tuple(f.image for f in files))), files)


def _match_maps(side: MapSide, maps: Scan, where: str) -> dict[str, ImageFile]:
    """The map of each picture that has one."""
    stems = defaultdict[str, list[str]](list)
    for file in side.files:
        stems[stem(file.name)].append(file.name)
    names, pairs, strays = {file.name for file in side.files}, dict[str, ImageFile](), list[str]()
    for map_ in maps.files:
        mark = stem(map_.name)
        meant = [mark] if mark in names else stems.get(mark, [])
        whole = f"give it the whole name, as {''.join(meant[:1])}.png"
        require(len(meant) < 2, f"{where}: {map_.name} may belong to {quote_names(meant)}; {whole}")
        if not meant:
            strays.append(map_.name)
            continue
        first = pairs.setdefault(meant[0], map_)
        require(first is map_, f"{where}: two label maps of one picture: {quote(first.name)} and {quote(map_.name)}")
    require_known_ids(strays, where, side.name)
    return pairs


def audit_corrected(moved: MapSide, table: ClassTable) -> Audit:
    """The moved pictures with the pixels of each class; one that cannot be used, or its map, is an error here."""
    lost = moved.pictures.scan.rejected
    require(not lost, f"{moved.name}: a corrected picture cannot be read: {describe_first(lost)}")
    own = find_class_file(moved.root)
    rule = f"{moved.name}: its {CLASS_FILE} differs from that of the labelled side; corrections are coded as that says"
    require(own is None or own.table(read_first_header(moved)) == table, rule)
    audit = audit_side(moved, moved.count_values(table.coded), table, required=True)
    for finding in audit.findings:
        if finding.level == "error":
            raise InputDataError(finding.text)
    rejected = audit.side.pictures.scan.rejected
    require(not rejected, f"{moved.name}: a label map cannot be read: {describe_first(rejected)}")
    empty = [item.name for item in audit.side.unlabelled]
    require(not empty, f"{moved.name}: label maps without a labelled pixel: {quote_names(empty)}")
    return audit


def add_corrected(first: Audit, moved: Audit) -> Audit:
    """The labelled side with the moved pictures."""
    scan = first.side.pictures.scan
    images = rename_taken([file.image for file in moved.side.files], [file.name for file in scan.files])
    files = [replace(file, image=image) for file, image in zip(moved.side.files, images, strict=True)]
    pictures = replace(first.side.pictures, scan=replace(scan, files=(*scan.files, *images)))
    side = replace(first.side, pictures=pictures, files=(*first.side.files, *files))
    return replace(first, side=side, counts=torch.cat([first.counts, moved.counts]))
