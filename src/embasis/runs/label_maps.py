"""Label maps of pictures: labelled at several scales and turned over, drawn at the pictures' own size, and written.

| symbol | meaning |
| --- | --- |
| scale | the picture's short side is so many times that of training |
| flip | each scale is also seen from the other side, left for right |

A mixture of V views with equal shares: mean' = Σ mean / V; where they disagree the variance grows (functional.maps).
Every pixel is read off the label distribution between the sites around it, so edges follow the distribution and not
the grid.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.data.segmentation.views import place_sites
from embasis.engine.labels import LabelBatch, labelled_parts
from embasis.engine.pixels import PixelLabels, mix_labels
from embasis.errors import ConfigError, require
from embasis.functional import interpolation
from embasis.inputs.map_inputs import MapInputs
from embasis.runs.model import TrainedModel
from embasis.storage.label_map_folder import LabelMapFolder, encode_maps, make_map_names
from embasis.storage.picture_formats import quantise_confidence, quantise_variance
from embasis.types import AugmentKey, ClassTable, LabelDistribution, LabelSchema, MapPreparation, Samples, View

T = TypeVar("T")
THREADS = 2
"""That draw and encode maps."""


@dataclass(frozen=True, eq=False)
class FlippedSamples:
    """Samples whose whole views are turned over, left for right; all else is as theirs."""

    samples: Samples

    def __getattr__(self, name: str) -> Any:
        return getattr(self.samples, name)

    def __len__(self) -> int:
        return len(self.samples)

    def inputs(self, rows: Tensor) -> Tensor:
        """Turned."""
        return self.samples.inputs(rows).flip(-1)

    def stream(self, batches: Sequence[Tensor], draw: AugmentKey | None = None, aim: object = None) -> Iterator[View]:
        """Turned."""
        for view in self.samples.stream(batches, draw):
            places = None if view.places is None else view.places.flip(2)
            yield View(view.inputs.flip(-1), view.y.flip(-1), places)


def label_at_scales(
    model: TrainedModel,
    inputs: MapInputs,
    samples: MapFiles | MapArrays,
    scales: Sequence[float],
    flip: bool,
    short_side: int = 0,
) -> Iterator[LabelBatch]:
    """The labels of pictures, each the mixture over all scales; the first scale's grid is that of the result.

    `short_side` is that of a typical picture, where these are a part of all; 0 = of these."""
    check_scales(scales)
    progress, network = model.progress, model.progress.network
    views: list[tuple[Samples, bool]] = []
    for scale in scales:
        typical = short_side or int(samples.sizes.amin(1).median()) if len(samples) else 1
        prepared = inputs.prepare_at(samples, scale_preparation(inputs.preparation(network), typical, scale))
        views += [(prepared, False), *([(cast("Samples", FlippedSamples(prepared)), True)] if flip else [])]
    streams = [labelled_parts(side, model.method, model.plan, progress, progress.model_round) for side, _ in views]
    for parts in zip(*streams, strict=True):
        yield parts[0] if len(parts) == 1 else mix_views(parts, [is_flipped for _, is_flipped in views])


def check_scales(scales: Sequence[float]) -> None:
    """Refuse what is no scale."""
    rule = f"scales must be numbers in [0.1, 10], got {list(scales)}"
    require(scales and all(0.1 <= scale <= 10 for scale in scales), rule, ConfigError)


def scale_preparation(preparation: MapPreparation, short_side: int, scale: float) -> MapPreparation:
    """The preparation at another scale; pictures that keep their size are scaled from their typical short side."""
    if scale == 1.0:
        return preparation
    size = preparation.plan.size or short_side
    plan = replace(preparation.plan, size=max(round(size * scale), 16))
    return replace(preparation, plan=plan)


def mix_views(parts: Sequence[LabelBatch], flipped: Sequence[bool]) -> LabelBatch:
    """One row's views as one: on the grid of the first, with equal shares."""
    first = parts[0]
    height, width = first.grid
    places = place_sites((height, width)).reshape(-1, 2)
    turned = torch.stack([places[:, 0], 1 - places[:, 1]], 1)
    views = []
    for part, is_flipped in zip(parts, flipped, strict=True):
        rows, columns = part.grid
        at = interpolation.corners(turned if is_flipped else places, (rows, columns))
        views.append(mix_labels(part.distribution, *at))
    count, sites = len(views), len(places)
    whole = LabelDistribution(
        *(torch.cat([getattr(part, name) for part in views]) for name in ("mean", "between", "within", "uncertainty"))
    )
    index = torch.arange(count * sites).view(count, sites).T
    return replace(first, distribution=mix_labels(whole, index, torch.full((sites, count), 1 / count)))


@dataclass(frozen=True, eq=False)
class LabelMap:
    """One picture's labels at its own size, uint8 (H, W) each, and its line of the table."""

    labels: Tensor
    confidence: Tensor
    variance: Tensor
    trusted: Tensor
    line: dict[str, Any]


def draw_label_map(wide: LabelBatch, schema: LabelSchema) -> LabelMap:
    """The maps of a row that has a site at each pixel."""
    pixels, size, classes = wide.distribution, wide.grid, len(schema)
    assert isinstance(pixels, PixelLabels)
    trusted, label = wide.pseudo.trusted, pixels.label.to(torch.uint8)
    both = torch.bincount(label.short().mul_(2).add_(trusted), minlength=2 * classes).view(classes, 2)
    line = describe_shares(schema, both.sum(1).tolist(), both[:, 1].tolist(), (size[0], size[1]))
    line["mean_confidence"] = float(pixels.confidence.double().mean())
    line["mean_variance"] = float(pixels.total.double().mean())
    return LabelMap(
        label.view(size),
        quantise_confidence(pixels.confidence).view(size),
        quantise_variance(pixels.total, classes).view(size),
        trusted.to(torch.uint8).mul_(255).view(size),
        line,
    )


def describe_shares(
    schema: LabelSchema, labels: Sequence[int], kept: Sequence[int], size: tuple[int, int]
) -> dict[str, Any]:
    """A picture's line of the table, by the pixels of each class and how many of them are trusted; the means of
    confidence and variance are still to come."""
    count = max(sum(labels), 1)
    line: dict[str, Any] = {
        "width": size[1], "height": size[0], "mean_confidence": None, "mean_variance": None,
        "trusted": sum(kept) / count,
    }  # fmt: skip
    for name, share, sure in zip(schema.names, labels, kept, strict=True):
        line[name_of_column(name, line)] = share / count
        line[name_of_column(f"{name} trusted", line)] = sure / share if share else None
    return line


def name_of_column(name: str, line: dict[str, Any]) -> str:
    """A class's name as that of a column; one that is taken gets a stroke."""
    return name if name not in line and name not in ("id", "file") else name_of_column(f"{name}'", line)


@dataclass(frozen=True, eq=False)
class EncodedMaps:
    """One picture's maps as the files that they become, in the order of MAP_KINDS, and its line of the table."""

    line: dict[str, Any]
    files: tuple[bytes, ...]


def encode_all_maps(
    parts: Iterable[LabelBatch], sizes: Tensor, schema: LabelSchema, table: ClassTable, names: Mapping[str, str]
) -> Iterator[EncodedMaps]:
    """The maps of all rows, drawn and encoded by two threads beside the one that labels.

    `sizes` (N, 2) are those of the pictures, `names` their names with those of the files of their maps."""
    pictures = list(names)

    def encode(part: LabelBatch, number: int, row: int) -> EncodedMaps:
        height, width = (int(size) for size in sizes[row])
        maps = draw_label_map(part.enlarged(number, (height, width)), schema)
        line = {"id": pictures[row], "file": names[pictures[row]], **maps.line}
        return EncodedMaps(line, encode_maps(table, maps.labels, maps.confidence, maps.variance, maps.trusted))

    return run_in_order(
        partial(encode, part, number, row) for part in parts for number, row in enumerate(part.rows.tolist())
    )


def pack_files(maps: EncodedMaps) -> list[Tensor]:
    """Maps as columns that another process can be sent."""
    texts = (json.dumps(maps.line).encode(), *maps.files)
    return [torch.frombuffer(bytearray(text), dtype=torch.uint8) for text in texts]


def unpack_files(columns: list[Tensor]) -> EncodedMaps:
    """The maps that the columns were."""
    line, *files = (column.numpy().tobytes() for column in columns)
    return EncodedMaps(json.loads(line), tuple(files))


def write_maps(
    folder: LabelMapFolder, encoded: Iterable[EncodedMaps], schema: LabelSchema, suffix: str = ".csv"
) -> Iterator[dict[str, Any]]:
    """Write the maps of all rows, and their table; each row's line is handed on once its maps are written."""
    lines = list[dict[str, Any]]()
    with folder:
        for maps in encoded:
            folder.write_encoded(maps.line["file"], maps.files)
            lines.append(maps.line)
            yield maps.line
        lines.sort(key=lambda line: str(line["id"]))
        keys = ["id", "file", *describe_shares(schema, [0] * len(schema), [0] * len(schema), (0, 0))]
        folder.write_table({key: [line[key] for line in lines] for key in keys}, suffix)


def name_maps(names: Sequence[str], whole: Sequence[str] = ()) -> dict[str, str]:
    """The file of each picture's maps, by the picture's name; `whole`: all pictures of an input of which these are a
    part, so that a file has the same name whatever part it is in."""
    files = dict(zip(whole or names, make_map_names(whole or names), strict=True))
    return {name: files[name] for name in names}


def run_in_order(jobs: Iterable[Callable[[], T]]) -> Iterator[T]:
    """What the jobs give, in their order; a few are under way at once."""
    with ThreadPoolExecutor(THREADS) as pool:
        waiting: deque[Future[T]] = deque()
        for job in jobs:
            waiting.append(pool.submit(job))
            if len(waiting) > 2 * THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
