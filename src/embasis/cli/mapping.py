"""What the commands do with pictures that have label maps: read two folders, write maps of new pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from embasis.cli.console import echo, progress_bar, warn
from embasis.cli.image_options import MOST_NAMED, files_of, options_of
from embasis.data.images.folders import strip_folders
from embasis.data.segmentation.folders import MapFolders, load_maps
from embasis.data.segmentation.pairs import MapFile
from embasis.data.segmentation.samples import MapFiles
from embasis.data.workers.reader import Reader
from embasis.engine.labels import LabelBatch
from embasis.errors import ConfigError, InputDataError, quoted, require
from embasis.methods.selectors import ConfidenceThreshold, SelectNone
from embasis.runs.map_output import write_maps
from embasis.runs.model import Model
from embasis.runs.precision import PrecisionTarget, threshold_for_precision
from embasis.storage import LabelMapFolder
from embasis.types import Problem

SIDES = ("labelled", "unlabelled", "test")
STEPS = 2**14
"""In which probabilities are counted, rounded down."""


def load_mapped(data: dict[str, Any], sides: dict[str, str]) -> Problem:
    """The problem of folders of pictures and label maps."""
    given = {name: str(data[name]) for name in ("classes", "corrections") if name in data}
    with Reader() as reader:
        problem = load_maps(MapFolders(**sides, **given), options_of(data), reader)
    return strip_folders(problem, *sides.values(), given.get("corrections"))


def write_predictions(
    model: Model,
    path: str,
    output: str,
    scales: Sequence[float],
    flip: bool,
    follow_links: bool,
    precision: float | None = None,
) -> None:
    """Maps of all pictures of `path` in the folder `output`, and their table."""
    rule = f"the run has label maps: output must be a folder for them, got {quoted(output)}"
    require(Path(output).suffix not in (".csv", ".parquet"), rule, ConfigError)
    assert model.maps is not None
    folder = LabelMapFolder(output, model.maps.table)
    files, rejected = pictures_of(path, follow_links)
    trusted, written, kept = 0.0, 0, None
    if precision is not None:
        kept = promised(model, files, scales, flip, precision)
        trusting = ConfidenceThreshold(min(kept.threshold, 1.0)) if kept.labels else SelectNone()
        model = replace(model, method=replace(model.method, selector=trusting))
    assert model.maps is not None
    with progress_bar("labelling pictures", len(files)) as show, model.maps.reader:
        samples = model.picture_samples(files)
        parts = predicted(model, samples, scales, flip, rejected)
        first = next(parts, None)  # nothing is written where no picture can be read
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(rejected.items())[:MOST_NAMED])
        require(first is not None, f"{path}: no picture can be read: {reasons}", InputDataError)
        assert first is not None
        for line in write_maps(folder, chain([first], parts), samples.sizes, model.schema, samples.names):
            written += 1
            trusted += line["trusted"]
            show(written, f"labelling pictures: {written:,} of {len(files):,}")
    if rejected:
        named = "; ".join(f"{name}: {reason}" for name, reason in list(rejected.items())[:MOST_NAMED])
        count = "1 file" if len(rejected) == 1 else f"{len(rejected):,} files"
        echo(f"warning: {count} could not be read and got no labels: {named}", err=True)
    pictures = "1 picture" if written == 1 else f"{written:,} pictures"
    echo(f"wrote {output}: labels, confidence, variance and trust of {pictures}, {trusted / written:.0%} trusted")
    if kept is not None and precision is not None:
        echo(f"at the sites of the network {kept.sentence(precision)}")
        warn(kept.warnings)
    if folder.stale:
        echo(f"note: {folder.stale:,} maps of earlier pictures are still in {output}")


def promised(
    model: Model, files: list[MapFile], scales: Sequence[float], flip: bool, precision: float
) -> PrecisionTarget:
    """How sure a label must be, from a first look at all pictures."""
    counts = torch.zeros(STEPS + 1, dtype=torch.int64)
    assert model.maps is not None
    with progress_bar("looking at pictures", len(files)) as show, model.maps.reader:
        for done, part in enumerate(predicted(model, model.picture_samples(files), scales, flip, {}), 1):
            steps = (part.distribution.mean.amax(1).double() * STEPS).floor().long()
            counts += torch.bincount(steps, minlength=STEPS + 1)
            show(done, f"looking at pictures: {done:,} of {len(files):,}")
    values = [step / STEPS for step in range(STEPS + 1)]
    return threshold_for_precision(values, counts.tolist(), precision, model.progress)


def pictures_of(path: str, follow_links: bool) -> tuple[list[MapFile], dict[str, str]]:
    """The pictures of a folder (of its images/, as in training), of a list, or the one that is named."""
    images = Path(path) / "images"
    place = str(images) if images.is_dir() else path
    files, rejected = files_of(place, follow_links)
    rows = sorted((MapFile(file, None, file.size) for file in files), key=lambda file: file.id)
    return rows, rejected


def predicted(
    model: Model, samples: MapFiles, scales: Sequence[float], flip: bool, rejected: dict[str, str]
) -> Iterator[LabelBatch]:
    """The labels of the pictures that can be read, one by one; why others cannot goes to `refused`."""
    for found in model.pictures(samples, scales, flip):
        late = {item.name: item.reason for item in samples.rejected}
        rejected.update(late)
        if samples.files[int(found.rows[0])].name not in late:
            yield found
