"""A trained model: labels with their uncertainty for any rows of the unlabelled side's kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from embasis.config import Config, upgrade
from embasis.data.images.files import ImageFile
from embasis.data.segmentation.pairs import MapFile
from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.data.standardise import Standardiser
from embasis.engine.features import CHUNK_ROWS
from embasis.engine.labels import LabelBatch, RowLabels, label_rows
from embasis.engine.self_train import begin
from embasis.engine.state import TrainState
from embasis.errors import CorruptError, InputDataError, require
from embasis.inputs.image_inputs import PIECE, ImageInputs, open_image_inputs
from embasis.inputs.map_inputs import MapInputs, stored_mapped
from embasis.networks.backbone import Backbone
from embasis.networks.network import Network
from embasis.runs.checkpoint_schema import refuse_large_basis, refuse_other_network, refuse_sizes, without_memory
from embasis.runs.parts import RunParts, build, finished_mapped, make_method_and_plan, make_network
from embasis.runs.test_time_views import label_at_scales
from embasis.storage import SealedFiles
from embasis.types import Arrays, LabelSchema, Method, Plan, Problem

BACKBONE = "backbone.safetensors"
"""The weights of the frozen part, in the run folder: a run needs nothing else to label images."""


@dataclass(frozen=True, eq=False)
class Model:
    """Network, labeller and selector as the round that is kept left them."""

    progress: TrainState
    method: Method
    plan: Plan
    schema: LabelSchema
    standardiser: Standardiser | None
    shape: tuple[int, ...]
    front: ImageInputs | None = None
    maps: MapInputs | None = None

    def picture_samples(self, files: Sequence[MapFile]) -> MapFiles:
        """Pictures as this model reads them; what cannot be read is written down there."""
        require(self.maps is not None, "the run was trained without label maps", InputDataError)
        assert self.maps is not None
        return MapFiles.of(files, self.maps.table, labelled=False)

    def pictures(self, samples: MapFiles, scales: Sequence[float] = (1.0,), flip: bool = False) -> Iterator[LabelBatch]:
        """Labels of all sites of pictures, one by one; each is seen at all scales, and turned over if `flip`."""
        assert self.maps is not None
        return label_at_scales(
            self.maps, samples, self.method, self.plan, self.progress, self.progress.model_round, scales, flip
        )

    @property
    def wide(self) -> bool:
        """Whether a column must come in float64, because float32 loses its differences."""
        return self.standardiser is not None and bool(self.standardiser.wide(1).any())

    def verdict(self, x: Tensor, ids: Tensor | None = None) -> RowLabels:
        """Label distribution, trust and scores of the rows of x, in their order; float64 rows if it is `wide`."""
        shape = tuple(x.shape[1:])
        require(
            shape == self.shape,
            f"input has {describe(shape)}, the model was trained on {describe(self.shape)}",
            InputDataError,
        )
        prepared = x if self.standardiser is None else self.standardiser.apply(x, 1)
        order = torch.arange(len(x)) if ids is None else torch.argsort(ids)
        samples = Arrays.of(prepared[order], ids=None if ids is None else ids[order])
        verdict = label_rows(samples, self.method, self.plan, self.progress, self.progress.model_round)
        return verdict.rows(torch.argsort(order))

    def files(self, files: Sequence[ImageFile]) -> Iterator[tuple[list[ImageFile], RowLabels | None, dict[str, str]]]:
        """Labels of image files, chunk by chunk: those that could be read, their verdict, and why not the others."""
        require(self.front is not None, "the run was trained on arrays, not on images", InputDataError)
        assert self.front is not None
        rows, good, broken = list[Tensor](), list[ImageFile](), dict[str, str]()
        for number, (part, bad) in enumerate(self.front.iter_features(files)):
            piece = files[number * PIECE : (number + 1) * PIECE]
            broken.update({piece[at].name: reason for at, reason in bad.items()})
            kept = [at for at in range(len(piece)) if at not in bad]
            good += [piece[at] for at in kept]
            rows.append(part[kept])
            if len(good) >= CHUNK_ROWS or (number + 1) * PIECE >= len(files):
                ids = torch.tensor([file.id for file in good], dtype=torch.int64)
                yield good, self.verdict(torch.cat(rows), ids) if good else None, broken
                rows, good, broken = [], [], {}


def model_of_run(built: RunParts, progress: TrainState) -> Model:
    """The model of a run that has just ended."""
    schema = built.problem.schema
    return Model(progress, built.method, built.plan, schema, built.standardiser, built.shape, built.front, built.maps)


def load_model(
    facts: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    home: Path,
    backbone: Backbone | None = None,
    sealed: Mapping[str, Any] | None = None,
) -> Model:
    """The model of a run folder's generation; `home` is the folder, for the backbone's weights, whose file must be the
    one that is `sealed`."""
    files = SealedFiles(home, sealed)
    try:
        schema = LabelSchema(tuple(str(name) for name in facts["classes"]))
        shape = tuple(int(size) for size in facts["shape"])
        resolved = upgrade(facts["config"])
        resolved["data"] = {}
        if not torch.cuda.is_available():  # a model that was trained on a GPU labels without one, too
            resolved["plan"] = {**resolved["plan"], "device": "auto"}
        config = Config(**resolved)
        refuse_sizes(shape, tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"the run's facts do not describe a model: {error}") from error
    built = (
        stored_maps(facts, config, schema)
        if facts.get("maps")
        else stored_rows(facts, config, schema, shape, files, backbone, tensors)
    )
    if isinstance(built.network, Network):  # no other one gets a basis block
        refuse_large_basis(built.method, tensors)
    progress = begin(built.network, built.method, built.plan)
    progress = TrainState.restore(progress.network, tensors, facts["progress"], [])
    standardiser = None
    if "input/centre" in tensors:
        standardiser = Standardiser(tensors["input/centre"], tensors["input/scale"])
    return Model(progress, built.method, built.plan, schema, standardiser, shape, built.front, built.maps)


def stored_rows(
    facts: Mapping[str, Any],
    config: Config,
    schema: LabelSchema,
    shape: tuple[int, ...],
    files: SealedFiles,
    backbone: Backbone | None,
    tensors: Mapping[str, Tensor],
) -> RunParts:
    """An empty problem of the right shape gives the same objects as the run had; weights come from the tensors."""
    if not facts.get("backbone"):
        with without_memory():
            refuse_other_network(make_network(shape, len(schema), config, None)[1], tensors)
    side = Arrays.of(torch.zeros(1, *shape), torch.zeros(1, dtype=torch.int64))
    problem = Problem(side, Arrays.of(torch.zeros(0, *shape)), schema)
    front = stored_front(facts, config, files, backbone) if facts.get("backbone") else None
    return build(problem, config, front)


def stored_maps(facts: Mapping[str, Any], config: Config, schema: LabelSchema) -> RunParts:
    """The same of a run on label maps."""
    front, network = stored_mapped(facts, config, schema)
    picture = torch.zeros(1, *front.shape, dtype=torch.uint8)
    side = MapArrays.of(picture, torch.zeros(1, *front.shape[1:], dtype=torch.uint8))
    problem = Problem(side, MapArrays.of(picture[:0]), schema)
    method, plan, resolved = make_method_and_plan(problem, config, "maps")
    return finished_mapped(problem, front, network, method, plan, resolved)


def stored_front(
    facts: Mapping[str, Any], config: Config, files: SealedFiles, backbone: Backbone | None
) -> ImageInputs:
    """The front of a stored run. A frozen part has its first weights; those of full depth are in the tensors."""
    home = files.path
    frozen = config.images.get("depth") != "full"
    if config.network.get("name") == "own module":
        rule = f"{home}: the run was made with a module of your own; give it again: load({str(home)!r}, backbone=…)"
        require(backbone is not None, rule, InputDataError)
        front = open_image_inputs(config, backbone, kept=False)
        other = f"{home}: the module that is given is not the one the run was made with: its weights differ"
        require(not frozen or front.backbone.identity == facts["backbone"], other, InputDataError)
        return front
    if frozen:
        files.check(BACKBONE)
    given = {**config.network, "weights": str(home / BACKBONE) if frozen else ""}
    if not frozen and "pretrained" in given:
        given["pretrained"] = False
    front = open_image_inputs(msgspec.structs.replace(config, network=given), kept=False)
    same = front.backbone.identity == facts["backbone"] or not frozen
    require(same, f"{home / BACKBONE} holds other weights than the run was trained with", CorruptError)
    return front


def describe(shape: Sequence[int]) -> str:
    """A shape for a sentence."""
    return f"{shape[0]} features" if len(shape) == 1 else f"shape {'×'.join(str(size) for size in shape)}"


def label_columns(verdict: RowLabels, ids: Sequence[object], schema: LabelSchema) -> dict[str, list[object]]:
    """The table that users get: id, label, probability, between, within, trusted, drawn."""
    label = verdict.distribution.label
    at = label.unsqueeze(1)
    drawn = [schema.names[value] if value >= 0 else None for value in verdict.pseudo.label.tolist()]
    return {
        "id": list(ids),
        "label": [schema.names[value] for value in label.tolist()],
        "probability": verdict.distribution.mean.gather(1, at).squeeze(1).tolist(),
        "between": verdict.distribution.between.gather(1, at).squeeze(1).tolist(),
        "within": verdict.distribution.within.gather(1, at).squeeze(1).tolist(),
        "uncertainty": verdict.distribution.uncertainty.tolist(),
        "trusted": verdict.pseudo.trusted.tolist(),
        "drawn": drawn,
    }
