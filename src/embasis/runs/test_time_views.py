"""Pictures seen at several scales, and turned over: the label distribution of a site is the mixture of what each says.

| symbol | meaning |
| --- | --- |
| scale | the picture's short side is so many times that of training |
| flip | each scale is also seen from the other side, left for right |

A mixture of V views with equal shares: mean' = Σ mean / V; where they disagree the variance grows (functional.maps).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.data.segmentation.views import place_sites
from embasis.engine.labels import LabelBatch, labelled_parts
from embasis.engine.pixels import mix_labels
from embasis.errors import ConfigError, require
from embasis.functional import interpolation
from embasis.inputs.map_inputs import MapInputs
from embasis.runs.model import TrainedModel
from embasis.types import AugmentKey, GroundTruth, LabelDistribution, MapPreparation, Samples, View


@dataclass(frozen=True, eq=False)
class FlippedSamples:
    """Samples whose whole views are turned over, left for right."""

    samples: Samples

    @property
    def ids(self) -> Tensor:
        """Those of the samples."""
        return self.samples.ids

    @property
    def labels(self) -> Tensor:
        """Those of the samples."""
        return self.samples.labels

    @property
    def truth(self) -> GroundTruth:
        """As it was given, not turned."""
        return self.samples.truth

    @property
    def has_mixed_shapes(self) -> bool:
        """As the samples."""
        return self.samples.has_mixed_shapes

    def counts(self, classes: int, rows: Tensor | None = None) -> Tensor:
        """Those of the samples."""
        return self.samples.counts(classes, rows)

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
    model: TrainedModel, inputs: MapInputs, samples: MapFiles | MapArrays, scales: Sequence[float], flip: bool
) -> Iterator[LabelBatch]:
    """The labels of pictures, each the mixture over all scales; the first scale's grid is that of the result."""
    check_scales(scales)
    progress, network = model.progress, model.progress.network
    views: list[tuple[Samples, bool]] = []
    for scale in scales:
        prepared = inputs.prepare_at(samples, scaled(inputs.preparation(network), samples, scale))
        views += [(prepared, False), *([(FlippedSamples(prepared), True)] if flip else [])]
    streams = [labelled_parts(side, model.method, model.plan, progress, progress.model_round) for side, _ in views]
    for parts in zip(*streams, strict=True):
        yield parts[0] if len(parts) == 1 else mix_views(parts, [is_flipped for _, is_flipped in views])


def check_scales(scales: Sequence[float]) -> None:
    """Refuse what is no scale."""
    rule = f"scales must be numbers in [0.1, 10], got {list(scales)}"
    require(scales and all(0.1 <= scale <= 10 for scale in scales), rule, ConfigError)


def scaled(preparation: MapPreparation, samples: MapFiles | MapArrays, scale: float) -> MapPreparation:
    """The preparation at another scale; pictures that keep their size are scaled from their typical one."""
    if scale == 1.0:
        return preparation
    size = preparation.plan.size or int(samples.sizes.amin(1).median())
    plan = replace(preparation.plan, size=max(round(size * scale), 16))
    return replace(preparation, plan=plan)


def mix_views(parts: Sequence[LabelBatch], flipped: Sequence[bool]) -> LabelBatch:
    """One row's views as one: on the grid of the first, with equal shares."""
    first = parts[0]
    height, width = first.grid
    places = place_sites((height, width)).reshape(-1, 2)
    views = [read_at(part, places, is_flipped) for part, is_flipped in zip(parts, flipped, strict=True)]
    count, sites = len(views), len(places)
    whole = LabelDistribution(
        *(torch.cat([getattr(part, name) for part in views]) for name in ("mean", "between", "within", "uncertainty"))
    )
    index = torch.arange(count * sites).view(count, sites).T
    return replace(first, distribution=mix_labels(whole, index, torch.full((sites, count), 1 / count)))


def read_at(part: LabelBatch, places: Tensor, is_flipped: bool) -> LabelDistribution:
    """A view's label distributions at places of the picture."""
    at = torch.stack([places[:, 0], 1 - places[:, 1]], 1) if is_flipped else places
    height, width = part.grid
    return mix_labels(part.distribution, *interpolation.corners(at, (height, width)))
