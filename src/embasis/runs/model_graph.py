"""A trained model as one torch module, from inputs that are read to label distributions: what leaves embasis as a file.

| step | tables, pictures in arrays | images | label maps |
| --- | --- | --- | --- |
| input | (n, …) features after their encoding | (n, 3, S, S) uint8 pixels | (n, 3, H, W) uint8 pixels |
| `inputs` | standardised as the unlabelled side | the frozen part of the backbone | – |
| `network` | features and scores | features and scores | those of a grid of sites |
| `labels` | label distribution of each row | of each image | of each site |

All of it is arithmetic of tensors: no number is read, no chunk is filled up, nothing is decided by a value. A row's
result may differ from that of `predict` by rounding, because here rows are computed in the shape that they come in.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from embasis.data.standardise import Standardiser
from embasis.engine.batch import forward
from embasis.errors import ConfigError, require
from embasis.functional import em, interpolation, moments, neighbours, sites
from embasis.functional.calibration import apply_inverse_temperature
from embasis.inputs.image_inputs import ImageInputs
from embasis.methods.baselines import SoftmaxLabeller
from embasis.methods.em_basis.labeller import EMBasisLabeller
from embasis.methods.em_basis.state import EMBasisState, read_inverse_temperature
from embasis.networks.network import Network
from embasis.runs.model import TrainedModel
from embasis.types import State

UNLABELLED_SIDE = 1
"""New rows are of the unlabelled side's kind."""


class GraphLabels(NamedTuple):
    """What the module returns; C follows n, sites of a picture are the last two: mean is (n, C) or (n, C, h, w)."""

    mean: Tensor
    between: Tensor
    within: Tensor
    uncertainty: Tensor
    label: Tensor
    scores: Tensor


class StandardisedRows(nn.Module):
    """(x − centre) / scale of the unlabelled side, in float64; columns that float32 would lose come in float64."""

    centre: Tensor
    scale: Tensor
    wide: Tensor

    def __init__(self, standardiser: Standardiser) -> None:
        super().__init__()
        self.register_buffer("centre", standardiser.centre[UNLABELLED_SIDE])
        self.register_buffer("scale", standardiser.scale[UNLABELLED_SIDE])
        self.register_buffer("wide", standardiser.wide(UNLABELLED_SIDE))
        self.needs_float64 = bool(self.wide.any())

    def forward(self, x: Tensor) -> Tensor:
        """float32 in the shape of x."""
        rows = x.flatten(1)
        values = rows.float().double()
        if self.needs_float64:
            values = torch.where(self.wide, rows.double(), values)
        return ((values - self.centre) / self.scale).float().view(x.shape)


class FrozenPart(nn.Module):
    """The part of a backbone that was not trained, its output rounded as the feature cache keeps it."""

    def __init__(self, stem: nn.Module, half: bool) -> None:
        super().__init__()
        self.stem, self.half_precision = stem, half

    def forward(self, x: Tensor) -> Tensor:
        """Features or maps of pixels."""
        out: Tensor = self.stem(x)
        return out.half().float() if self.half_precision else out


class SoftmaxLabels(nn.Module):
    """The label distribution of methods without a basis."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.inverse_temperature = read_inverse_temperature(state) or 1.0

    def forward(self, features: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """mean, between, within and uncertainty of rows (n, d) with scores (n, C)."""
        mean = (self.inverse_temperature * scores).softmax(1)
        return mean, torch.zeros_like(mean), mean * (1 - mean), 1 - mean.amax(1)


class BasisLabels(nn.Module):
    """The label distribution of `EMBasisLabeller.label`, with all that it has learned as buffers and numbers."""

    centre: Tensor
    scale: Tensor
    basis: Tensor
    p: Tensor
    priors: Tensor
    bank: Tensor
    bank_probability: Tensor

    def __init__(self, labeller: EMBasisLabeller, state: State) -> None:
        super().__init__()
        learned, p = EMBasisState.from_tensors(state), labeller.component_probability(state)
        assert p is not None
        p = p if learned.is_accepted else torch.full_like(p, 1 / labeller.classes)
        self.labeller, self.sharpness = labeller, float(learned.sharpness)
        self.power, self.has_priors = learned.network_power, learned.class_priors is not None
        self.inverse_temperature = read_inverse_temperature(state)
        buffers = {"centre": learned.centre[UNLABELLED_SIDE], "scale": learned.scale[UNLABELLED_SIDE]}
        buffers |= {"basis": learned.basis, "p": p}
        if learned.class_priors is not None:
            buffers["priors"] = learned.class_priors
        pools = labeller.neighbours is not None and labeller.neighbours.share > 0 and labeller.fusion is not None
        self.has_neighbours = pools and learned.neighbours is not None
        if learned.neighbours is not None and self.has_neighbours:
            buffers["bank"], buffers["bank_probability"] = learned.neighbours
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor)

    def forward(self, features: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """mean, between, within and uncertainty of rows (n, d) with scores (n, C)."""
        parts, q = self.labeller, None
        x = sites.unit_rows(sites.standardise(features, self.centre, self.scale))
        z = em.responsibilities(x, self.basis, self.sharpness, parts.mixture.kernel)
        if parts.fusion is not None:
            q = parts.fusion.network_probability(scores, self.power, self.priors if self.has_priors else None)
        mean, between, within = moments.label_moments(z, self.p, q)
        if self.has_neighbours and q is not None and parts.neighbours is not None:
            near = neighbours.nearest_moments(x, self.bank, self.bank_probability, parts.neighbours.count)
            mean, between, within = neighbours.pool_moments((mean, between, within), *near, parts.neighbours.share)
        if self.inverse_temperature is not None:
            mean, between, within = apply_inverse_temperature(mean, between, within, self.inverse_temperature)
        return mean, between, within, moments.scalar_uncertainty(mean, between, within, parts.rank_by)


class ModelGraph(nn.Module):
    """Inputs, network and labels one after the other."""

    def __init__(self, inputs: nn.Module, network: Network, labels: nn.Module) -> None:
        super().__init__()
        self.inputs, self.network, self.labels = inputs, network, labels

    def forward(self, x: Tensor) -> GraphLabels:
        """The labels of inputs (n, …)."""
        output = forward(self.network, self.inputs(x), UNLABELLED_SIDE)
        features, scores = sites.to_sites(output.features).float(), sites.to_sites(output.logits).float()
        mean, between, within, uncertainty = self.labels(features, scores)
        if output.logits.ndim == 2:
            return GraphLabels(mean, between, within, uncertainty, mean.argmax(1), scores)
        # as precise as what a round keeps of a site
        mean, between = interpolation.unpack_moments(*interpolation.pack_moments(mean, between))
        within, grid = mean - mean.square() - between, (x.shape[0], *output.logits.shape[2:])
        mean, between, within = (column.unflatten(0, grid).movedim(-1, 1) for column in (mean, between, within))
        uncertainty = uncertainty.unflatten(0, grid)
        return GraphLabels(mean, between, within, uncertainty, mean.argmax(1), output.logits.float())


def build_graph(model: TrainedModel) -> ModelGraph:
    """The module of a trained model, on the processor; a ConfigError for a network or a labeller that is no graph."""
    network, labeller, state = model.progress.network, model.method.labeller, model.progress.labeller
    kind = type(network).__name__
    rule = f"a model leaves embasis as a file only if its network is embasis's own, and this one is a {kind}"
    require(isinstance(network, Network), f"{rule}; embasis predict labels new data with it", ConfigError)
    assert isinstance(network, Network)
    inputs: nn.Module = nn.Identity()
    if isinstance(model.inputs, ImageInputs) and model.inputs.stem is not None:
        inputs = FrozenPart(copy.deepcopy(model.inputs.stem), bool(model.inputs.trained))
    if model.standardiser is not None:
        inputs = nn.Sequential(inputs, StandardisedRows(model.standardiser))
    labels = make_labels(labeller, state)
    own = copy.deepcopy(network)
    if model.inputs.kind.has_maps:
        fix_padding(own)
    return ModelGraph(inputs, own, labels).cpu().eval().requires_grad_(False)


def fix_padding(network: nn.Module) -> None:
    """Convolutions that pad by the size of their input ("same" of TensorFlow) pad by fixed numbers, in place.

    Sides of inputs are multiples of all strides, so these numbers are always the same: (kernel − 1) · dilation + 1 −
    stride in all, half of them before. A graph that computes them anew from every size takes minutes to make."""
    for module in list(network.modules()):
        for name, layer in list(module.named_children()):
            if not isinstance(layer, nn.Conv2d) or type(layer).__name__ != "Conv2dSame":
                continue
            forms = zip(layer.kernel_size, layer.dilation, layer.stride, strict=True)
            high, wide = (max((kernel - 1) * dilation + 1 - stride, 0) for kernel, dilation, stride in forms)
            plain = copy.deepcopy(layer)
            plain.__class__ = nn.Conv2d
            pad = nn.ZeroPad2d((wide // 2, wide - wide // 2, high // 2, high - high // 2))
            setattr(module, name, nn.Sequential(pad, plain))


def make_labels(labeller: object, state: State) -> nn.Module:
    """The label distribution of a labeller that has learned this."""
    if isinstance(labeller, EMBasisLabeller):
        return BasisLabels(labeller, state)
    rule = "a model leaves embasis as a file only with a labeller of embasis's own, and this one is a"
    cure = "embasis predict labels new data with it"
    require(isinstance(labeller, SoftmaxLabeller), f"{rule} {type(labeller).__name__}; {cure}", ConfigError)
    return SoftmaxLabels(state)
