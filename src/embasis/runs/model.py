"""A trained model: labels with their uncertainty for any rows of the unlabelled side's kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from embasis.config import Config, upgrade_config
from embasis.data.standardise import Standardiser
from embasis.engine.labels import RowLabels, label_rows
from embasis.engine.self_train import begin
from embasis.engine.state import TrainState
from embasis.errors import CorruptError, InputDataError, require
from embasis.inputs import Inputs
from embasis.inputs.load import stored_inputs
from embasis.networks.backbone import Backbone
from embasis.networks.network import Network
from embasis.runs.checkpoint import refuse_large_basis, refuse_other_network, refuse_sizes, unpack_encoding
from embasis.runs.parts import RunParts, resolve_settings
from embasis.storage import SealedFiles
from embasis.types import Arrays, LabelSchema, Method, Plan, TableEncoding


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """Network, labeller and selector as the round that is kept left them, and the inputs they take."""

    progress: TrainState
    method: Method
    plan: Plan
    schema: LabelSchema
    standardiser: Standardiser | None
    shape: tuple[int, ...]
    inputs: Inputs
    resolved: Mapping[str, Any]
    """The settings of the run, with no default left out."""
    columns: tuple[str, ...] | None = None
    """Names of the features, where the data have names."""
    encoding: TableEncoding | None = None
    """How a table's own columns become the features, where they have names."""

    @property
    def needs_float64(self) -> bool:
        """Whether a column must come in float64, because float32 loses its differences."""
        return self.standardiser is not None and bool(self.standardiser.wide(1).any())

    def label(self, x: Tensor, ids: Tensor | None = None) -> RowLabels:
        """Label distribution, trust and scores of the rows of x, in their order; float64 if it `needs_float64`."""
        shape = tuple(x.shape[1:])
        rule = f"input has {describe_shape(shape)}, the model was trained on {describe_shape(self.shape)}"
        require(shape == self.shape, rule, InputDataError)
        prepared = x if self.standardiser is None else self.standardiser.apply(x, 1)
        order = torch.arange(len(x)) if ids is None else torch.argsort(ids)
        samples = Arrays.of(prepared[order], ids=None if ids is None else ids[order])
        labels = label_rows(samples, self.method, self.plan, self.progress, self.progress.model_round)
        return labels.rows(torch.argsort(order))


def model_of_run(parts: RunParts, progress: TrainState) -> TrainedModel:
    """The model of a run that has just ended."""
    problem = parts.problem
    return TrainedModel(
        progress, parts.method, parts.plan, problem.schema, parts.standardiser, parts.shape, parts.inputs,
        parts.resolved, problem.columns, problem.encoding,
    )  # fmt: skip


def load_model(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    home: Path,
    backbone: Backbone | None = None,
    sealed: Mapping[str, Any] | None = None,
) -> TrainedModel:
    """The model of a run folder's generation; `home` is the folder, for the backbone's weights, whose file must be the
    one that is `sealed`."""
    try:
        schema = LabelSchema(tuple(str(name) for name in metadata["classes"]))
        shape = tuple(int(size) for size in metadata["shape"])
        resolved = upgrade_config(metadata["config"])
        plan = dict(resolved["plan"])
        if not torch.cuda.is_available():  # a model that was trained on a GPU labels without one, too
            plan["device"] = "auto"
        config = Config(**{**resolved, "data": {}, "plan": plan})
        refuse_sizes(shape, tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"the run's facts do not describe a model: {error}") from error
    inputs, config = stored_inputs(metadata, config, SealedFiles(home, sealed), backbone)
    chosen = resolve_settings(config, inputs, shape, len(schema), same_domain=False)
    if inputs.identity is None:
        with torch.device("meta"):  # shapes and no numbers, so no memory is taken yet
            refuse_other_network(inputs.make_network(config, shape, len(schema)), tensors)
    network = inputs.make_network(config, shape, len(schema)).to(chosen.device)
    if isinstance(network, Network):  # no other one gets a basis block
        refuse_large_basis(chosen.method, tensors)
    progress = begin(network, chosen.method, chosen.plan)
    progress = TrainState.restore(progress.network, tensors, metadata["progress"], [])
    standardiser = None
    if "input/centre" in tensors:
        standardiser = Standardiser(tensors["input/centre"], tensors["input/scale"])
    columns = metadata.get("columns")
    columns = None if columns is None else tuple(str(name) for name in columns)
    return TrainedModel(
        progress, chosen.method, chosen.plan, schema, standardiser, shape, inputs, resolved, columns,
        unpack_encoding(metadata, shape),
    )  # fmt: skip


def describe_shape(shape: Sequence[int]) -> str:
    """A shape for a sentence."""
    return f"{shape[0]} features" if len(shape) == 1 else f"shape {'×'.join(str(size) for size in shape)}"


def label_columns(labels: RowLabels, ids: Sequence[object], schema: LabelSchema) -> dict[str, list[object]]:
    """The table that users get: id, label, probability, between, within, trusted, drawn."""
    label = labels.distribution.label
    at = label.unsqueeze(1)
    drawn = [schema.names[value] if value >= 0 else None for value in labels.pseudo.label.tolist()]
    return {
        "id": list(ids),
        "label": [schema.names[value] for value in label.tolist()],
        "probability": labels.distribution.mean.gather(1, at).squeeze(1).tolist(),
        "between": labels.distribution.between.gather(1, at).squeeze(1).tolist(),
        "within": labels.distribution.within.gather(1, at).squeeze(1).tolist(),
        "uncertainty": labels.distribution.uncertainty.tolist(),
        "trusted": labels.pseudo.trusted.tolist(),
        "drawn": drawn,
    }
