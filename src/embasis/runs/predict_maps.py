"""Labels of new pictures with many sites each: label maps, from Python and the command line.

Several processes label pictures in turn, draw and encode their maps, and hand them in to the first one, which writes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

import torch
from torch import Tensor

from embasis.data.parts import WHOLE
from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.distributed import current_world, iterate_alone
from embasis.engine.labels import LabelBatch
from embasis.errors import InputDataError
from embasis.inputs import PictureSource, SourceOptions
from embasis.inputs.map_inputs import unread_pictures
from embasis.methods.selectors import ConfidenceThreshold, SelectNone
from embasis.runs.label_maps import (
    EncodedMaps,
    LabelMap,
    draw_label_map,
    encode_all_maps,
    label_at_scales,
    name_maps,
    pack_files,
    unpack_files,
    write_maps,
)
from embasis.runs.model import TrainedModel
from embasis.runs.precision import PrecisionTarget, threshold_for_precision
from embasis.runs.prediction import MapPredictionSummary, PredictionSummary, PredictOptions, first_reasons, show_nothing
from embasis.runs.row_labels import Show
from embasis.runs.same_everywhere import compare_facts
from embasis.storage.label_map_folder import LabelMapFolder

CONFIDENCE_STEPS = 2**14
"""Bins between 0 and 1 in which the probabilities of sites are counted; each is rounded down to its bin."""


def write_label_maps(
    model: TrainedModel, source: str, output: str, options: PredictOptions, source_options: SourceOptions, show: Show
) -> PredictionSummary:
    """Maps of all pictures in a folder, and their table; nothing is written where no picture can be read."""
    pictures, world = model.inputs.open_pictures(source, source_options), current_world()
    compare_facts(repr((options, replace(source_options, run=""))), {"the input": pictures.fingerprint})
    folder = LabelMapFolder(output, pictures.inputs.table) if world.is_first else None
    model, target = with_precision(model, pictures, options, show)
    shares = list[float]()
    with pictures.inputs.reader:
        encoded = world.hand_in(encode_pictures(model, pictures, source, options), pack_files, unpack_files)
        first = list(islice(encoded, 1))  # where no picture can be read, no folder is made
        for line in write_maps(folder, chain(first, encoded), model.schema) if folder is not None else ():
            shares.append(line["trusted"])
            show("labelling pictures", len(shares), pictures.total)
    share_unread(pictures)
    trusted, stale = math.fsum(shares) / max(len(shares), 1), 0 if folder is None else folder.stale
    return MapPredictionSummary(len(shares), trusted, pictures.rejected, target, stale=stale)


def encode_pictures(
    model: TrainedModel, pictures: PictureSource, source: str, options: PredictOptions
) -> Iterator[EncodedMaps]:
    """The maps of the pictures of this process that can be read; an InputDataError where no process can read one."""
    (samples,) = pictures.samples()  # the files of a path are one set of samples
    parts = iterate_alone(label_pictures(model, pictures, samples, options))
    first = next(parts, None)
    if not current_world().agree(int(first is not None)) and options.rows == WHOLE:
        share_unread(pictures)
        none = f"{source}: no picture can be read: {first_reasons(pictures.rejected)}"
        raise InputDataError(none)
    parts = parts if first is None else chain([first], parts)
    files, table = name_maps(samples.names, pictures.names), pictures.inputs.table
    yield from encode_all_maps(parts, samples.sizes, model.schema, table, files)


def share_unread(pictures: PictureSource) -> None:
    """Put the pictures that any process could not read into the list of every process, in the order of one process."""
    world, found = current_world(), dict(pictures.rejected)
    if world.size == 1:
        return
    for text in world.collect_texts(json.dumps(found)):
        found |= json.loads(text)
    places = {name: place for place, name in enumerate(pictures.names)}
    pictures.rejected.clear()
    pictures.rejected.update(sorted(found.items(), key=lambda item: places.get(item[0], -1)))


def predict_label_maps(
    model: TrainedModel, source: PictureSource, options: PredictOptions, show: Show = show_nothing
) -> Iterator[tuple[str, LabelMap]]:
    """The name and the maps of each picture that can be read, one by one, in the order of their ids."""
    model, _ = with_precision(model, source, options, show)
    for name, part in enlarge_labels(model, source, options):
        yield name, draw_label_map(part, model.schema)


def predict_probability_maps(
    model: TrainedModel, source: PictureSource, options: PredictOptions
) -> Iterator[tuple[str, Tensor]]:
    """The name and the probabilities (C, H, W) of each picture that can be read, as `predict_label_maps` has them."""
    for name, part in enlarge_labels(model, source, options):
        mean = part.distribution.mean.float()
        yield name, (mean / mean.sum(1, keepdim=True)).T.unflatten(1, part.grid).contiguous()


def enlarge_labels(
    model: TrainedModel, source: PictureSource, options: PredictOptions
) -> Iterator[tuple[str, LabelBatch]]:
    """The name and the labels at each pixel of each picture that can be read."""
    with source.inputs.reader:
        for samples in source.samples():
            for part in label_pictures(model, source, samples, options):
                row = int(part.rows[0])
                height, width = (int(size) for size in samples.sizes[row])
                yield samples.names[row], part.enlarged(0, (height, width))


def with_precision(
    model: TrainedModel, source: PictureSource, options: PredictOptions, show: Show
) -> tuple[TrainedModel, PrecisionTarget | None]:
    """The model that trusts the sites which keep the precision, by a first pass over all pictures."""
    if options.precision is None:
        return model, None
    counts, done = torch.zeros(CONFIDENCE_STEPS + 1, dtype=torch.int64), 0
    with source.inputs.reader:
        for samples in source.samples():
            for part in iterate_alone(label_pictures(model, replace(source, rejected={}), samples, options)):
                steps = (part.distribution.mean.amax(1).double() * CONFIDENCE_STEPS).floor().long()
                counts += torch.bincount(steps, minlength=CONFIDENCE_STEPS + 1)
                done += 1
                show("looking at pictures", done, source.total)
    counts = current_world().add_up(counts)
    values = [step / CONFIDENCE_STEPS for step in range(CONFIDENCE_STEPS + 1)]
    target = threshold_for_precision(values, counts.tolist(), options.precision, model.progress)
    selector = ConfidenceThreshold(min(target.threshold, 1.0)) if target.labels else SelectNone()
    return replace(model, method=replace(model.method, selector=selector)), target


def label_pictures(
    model: TrainedModel, source: PictureSource, samples: MapFiles | MapArrays, options: PredictOptions
) -> Iterator[LabelBatch]:
    """The labels of the pictures that can be read, one by one; why others cannot goes to `source.rejected`."""
    parts = label_at_scales(model, source.inputs, samples, options.scales, options.flip, source.short_side)
    for part in parts:
        unread = unread_pictures(samples)
        source.rejected.update(unread)
        if samples.names[int(part.rows[0])] not in unread:
            yield part
