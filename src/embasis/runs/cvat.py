"""Label maps of a run for CVAT, and what people have corrected there as maps that `fit --corrections` takes."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from embasis.data.class_labels import quote_names
from embasis.data.segmentation.cvat import (
    LABEL_MAP,
    MASKS,
    PICTURE_LIST,
    MaskArchive,
    cvat_table,
    format_label_map,
    open_masks,
)
from embasis.data.segmentation.pairs import stem
from embasis.errors import ConfigError, InputDataError, require
from embasis.inputs import MAP_KIND, class_colours
from embasis.inputs.map_inputs import stored_class_table
from embasis.runs.checkpoint import read_run
from embasis.runs.finished_run import (
    NO_CLASS,
    NONE_TRUSTED,
    ExportSummary,
    Finished,
    iter_class_maps,
    read_finished_run,
)
from embasis.storage import require_apart, write_output
from embasis.storage.correction_files import CorrectionMaps
from embasis.storage.picture_formats import UNKNOWN_VALUE, encode_label_png, encode_rgb_png
from embasis.types import ClassTable

FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The date of every file in an archive: the same labels give the same bytes."""
AMBIGUOUS_NAMES = "pictures whose names differ in their endings alone cannot be told apart in CVAT"


@dataclass(frozen=True)
class ImportedMaps:
    """What became of the maps of an archive."""

    taken: int
    unchanged: int
    """Left out, because they are those of the run."""
    empty: int
    """Left out, because no pixel has a class."""


def write_cvat(run: Finished, out: Path, everything: bool, show: Callable[[int, int], None]) -> ExportSummary:
    """The maps of all pictures as an archive for CVAT; pixels that are not trusted have no label in it."""
    table = cvat_table(run.classes, class_colours(read_run(run.files.path).facts))
    palette = np.array([*table.colours, (0, 0, 0)], np.uint8)
    stems, labelled, buffer = list[str](), 0, io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number, (id, _, classes) in enumerate(iter_class_maps(run, everything), 1):
            pixels = torch.from_numpy(palette[classes]).permute(2, 0, 1)  # no class is -1, the last colour
            archive.writestr(zipfile.ZipInfo(f"{MASKS}{stem(id)}.png", FIRST_DAY), encode_rgb_png(pixels))
            stems.append(stem(id))
            labelled += bool((classes != NO_CLASS).any())
            show(number, run.pictures)
        twice = [name for name, count in Counter(stems).items() if count > 1]
        require(not twice, f"{AMBIGUOUS_NAMES}: {quote_names(twice, 3)}", InputDataError)
        require(labelled, NONE_TRUSTED, InputDataError)
        archive.writestr(zipfile.ZipInfo(LABEL_MAP, FIRST_DAY), format_label_map(table))
        archive.writestr(zipfile.ZipInfo(PICTURE_LIST, FIRST_DAY), "\n".join([*stems, ""]))
    write_output(out, buffer.getvalue())
    return ExportSummary(run.round, labelled, pictures=len(stems))


def import_cvat(run: str, file: str, output: str, keep_unchanged: bool = False) -> ImportedMaps:
    """Write the maps that people have corrected in CVAT as corrections, coded as those of the labelled side."""
    require_apart(output, {"the run folder": run, "the archive": file}, folder=True)
    finished = read_finished_run(Path(run))
    rule = f"{run}: label maps are imported for runs with label maps, this one has labelled {finished.kind.words}"
    require(finished.kind is MAP_KIND, rule, ConfigError)
    table = stored_class_table(read_run(Path(run)).facts)
    with open_masks(Path(file), finished.classes) as archive:
        taken, counts = choose_maps(finished, archive, table, keep_unchanged)
    rule = f"{file}: no map differs from those of the run; --unchanged takes them, too, if people have looked at them"
    require(taken, rule, InputDataError)
    folder = CorrectionMaps(Path(output))
    for name, data in taken.items():
        folder.put(name, data, folder.find(name))
    return counts


def choose_maps(
    run: Finished, archive: MaskArchive, table: ClassTable, keep_unchanged: bool
) -> tuple[dict[str, bytes], ImportedMaps]:
    """The maps of an archive that are corrections, coded as the table says, and what became of the others."""
    taken, there, known = dict[str, bytes](), set[str](), list[str]()
    unchanged = empty = 0
    for id, name, whole, trusted in pair_maps(run):
        known.append(id)
        if (member := stem(id)) not in archive.members:
            continue
        there.add(member)
        plane = archive.read(member, (whole.shape[0], whole.shape[1]))
        classes = plane.numpy().astype(np.int64)
        classes[classes == UNKNOWN_VALUE] = NO_CLASS
        is_same = any(np.array_equal(classes, each) for each in (whole, trusted))
        if (classes == NO_CLASS).all():
            empty += 1
        elif is_same and not keep_unchanged:
            unchanged += 1
        else:
            taken[name] = encode_label_png(plane, table)
    twice = [name for name, count in Counter(stem(id) for id in known).items() if count > 1 and name in there]
    require(not twice, f"{archive.where}: {AMBIGUOUS_NAMES}: {quote_names(twice, 3)}", InputDataError)
    unknown = {*archive.members} - there
    require(not unknown, f"{archive.where}: the run has no such pictures: {quote_names(unknown, 3)}", InputDataError)
    return taken, ImportedMaps(len(taken), unchanged, empty)


def pair_maps(run: Finished) -> Iterator[tuple[str, str, NDArray[np.int64], NDArray[np.int64]]]:
    """The id of each picture, the name of its map, all of its labels, and the trusted ones."""
    both = zip(iter_class_maps(run, everything=True), iter_class_maps(run, everything=False), strict=True)
    for (id, name, whole), (_, _, trusted) in both:
        yield id, name, whole, trusted
