"""Networks for label maps: grids of the right size, weights of the backbone, strides traded for dilation exactly."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embasis.errors import ConfigError
from embasis.networks import BACKBONES, SEGMENTERS, pretrained
from embasis.networks.backbone import Backbone
from embasis.networks.feature_maps import compute_maps, take_last_map, take_pyramid
from embasis.networks.network import Network
from embasis.networks.segmentation import DilatedHead, ResidualBlock
from embasis.randomness import seeded
from embasis.types import Preparation
from paths import DATA

CLASSES = 5
USUAL = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@functools.cache
def lively(model: str, **settings: Any) -> Backbone:
    """A timm model whose every weight counts: fresh ones have residual branches of zero."""
    with seeded(3, "test network"):
        made = pretrained.timm(model=model, size=64, pretrained=False, **settings)
        for name, norm in made.network.named_modules():
            if isinstance(norm, nn.BatchNorm2d):
                nn.init.uniform_(norm.weight, 0.5, 1.0)
                nn.init.normal_(norm.bias, std=0.1)
                assert norm.running_mean is not None, name
                nn.init.normal_(norm.running_mean, std=0.1)
    return made


@pytest.fixture(scope="module")
def lite0() -> Backbone:
    return pretrained.efficientnet_lite0()


@pytest.fixture
def resnet() -> Backbone:
    return lively("resnet18")


def pictures(count: int = 2, height: int = 64, width: int = 96, seed: int = 7) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=draw)


def made(name: str, backbone: Backbone, **settings: Any) -> Network:
    with seeded(0, "network"):
        network: Network = SEGMENTERS[name](backbone, CLASSES, **settings)
        if network.head is None:
            nn.init.normal_(network.classifier.weight)  # large enough that nothing hides in rounding
    return network.eval()


def loss(network: Network, x: Tensor) -> Tensor:
    logits = network(x).logits
    return nn.functional.cross_entropy(logits, torch.arange(logits[:, 0].numel()).view_as(logits[:, 0]) % CLASSES)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    return str(caught.value)


# Strides and dilations


def maps_of(backbone: Backbone, x: Tensor) -> Tensor:
    """The last map of the backbone as it is."""
    return compute_maps(backbone.network, backbone.pixels(x))[-1]


@pytest.mark.parametrize(
    ("model", "settings"),
    [("resnet18", {}), ("resnet26", {}), ("resnet26", {"stride_first": True}), ("regnetx_002", {})],
)
@pytest.mark.parametrize("stride", [8, 16])
def test_with_symmetric_padding_the_old_map_is_the_dilated_one_at_every_fth_pixel(
    model: str, settings: dict[str, Any], stride: int
) -> None:
    backbone, x = lively(model, **settings), pictures(1, 64, 96)
    with torch.no_grad():
        old, new = maps_of(backbone, x), take_last_map(backbone, 0, stride)(x)[0]
    step = 32 // stride
    assert new.shape[2:] == (64 // stride, 96 // stride)
    assert torch.allclose(new[:, :, ::step, ::step], old, atol=2e-5 * float(old.abs().max()))
    assert not torch.allclose(new[:, :, 1::step, 1::step], old, atol=0.01 * float(old.abs().max()))


@pytest.mark.parametrize("stride", [8, 16])
def test_with_the_same_padding_of_tensorflow_it_is_the_last_pixel_of_each_cell(lite0: Backbone, stride: int) -> None:
    x = pictures(1, 128, 64)
    with torch.no_grad():
        old, new = maps_of(lite0, x), take_last_map(lite0, 0, stride)(x)[0]
    step = 32 // stride
    assert new.shape[2:] == (128 // stride, 64 // stride)
    assert torch.allclose(new[:, :, step - 1 :: step, step - 1 :: step], old, atol=2e-5 * float(old.abs().max()))
    assert not torch.allclose(new[:, :, ::step, ::step], old, atol=0.01 * float(old.abs().max()))


def test_a_stride_that_the_last_map_has_is_left_alone(resnet: Backbone) -> None:
    taps = take_last_map(resnet, -1, 32)
    assert all(part.dilation == (1, 1) for part in taps.modules() if isinstance(part, nn.Conv2d))
    with torch.no_grad():
        assert torch.equal(taps(pictures())[0], maps_of(resnet, pictures()).contiguous())


def test_timm_places_dilations_as_we_do() -> None:
    from timm import create_model

    backbone, x = lively("resnet26"), pictures(1)
    theirs = create_model("resnet26", pretrained=False, num_classes=0, output_stride=8).eval()
    theirs.load_state_dict(backbone.network.state_dict())
    with torch.no_grad():
        expected, found = theirs.forward_features(backbone.pixels(x)), take_last_map(backbone, -1, 8)(x)[0]
    assert torch.allclose(found, expected, atol=2e-5 * float(expected.abs().max()))


def test_a_pyramid_has_one_map_a_stride_and_the_backbones_values(lite0: Backbone, resnet: Backbone) -> None:
    assert (take_pyramid(lite0, 0, 8).strides, take_pyramid(lite0, 0, 8).widths) == ([8, 16, 32], [40, 112, 320])
    assert (take_pyramid(resnet, 0, 4).strides, take_pyramid(resnet, 0, 4).widths) == (
        [4, 8, 16, 32],
        [64, 128, 256, 512],
    )
    x = pictures(1)
    with torch.no_grad():
        expected = compute_maps(lite0.network, lite0.pixels(x))[-3:]
        for stages in (-1, 0, 3):
            for found, wanted in zip(take_pyramid(lite0, stages, 8)(x), expected, strict=True):
                assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max()


# Grids


@pytest.mark.parametrize("name", list(SEGMENTERS))
@pytest.mark.parametrize("model", ["resnet18", "resnet26", "test_efficientnet", "regnetx_002"])
def test_a_picture_becomes_a_grid_of_sites(name: str, model: str) -> None:
    network = made(name, lively(model))
    assert (network.stride, network.multiple) == (8, {"deeplab_v2": 8, "fast_segment": 32}[name])
    with torch.no_grad():
        output = network(pictures(2, 64, 96))
    assert output.features.shape == (2, network.features, 8, 12)
    assert output.logits.shape == (2, CLASSES, 8, 12)
    assert output.features.is_contiguous(memory_format=torch.channels_last)


def test_networks_whose_stages_are_a_series_work_too() -> None:
    network = made("fast_segment", lively("test_convnext"), stride=4)
    assert network(pictures()).logits.shape == (2, CLASSES, 16, 24)


def test_other_strides_scale_the_rates(resnet: Backbone) -> None:
    network = made("deeplab_v2", resnet, stride=16)
    assert isinstance(network.head, DilatedHead)
    assert [branch.dilation for branch in network.head.branches] == [(3, 3), (6, 6), (9, 9), (12, 12)]
    assert network(pictures()).logits.shape == (2, CLASSES, 4, 6)


def test_small_pictures_of_any_multiple_of_eight_fit_deeplab(resnet: Backbone) -> None:
    assert made("deeplab_v2", resnet)(pictures(1, 8, 40)).logits.shape == (1, CLASSES, 1, 5)


def test_the_head_of_deeplab_is_the_sum_of_four_dilated_convolutions() -> None:
    """By hand, at one site: nine neighbours at each rate, those outside of the map count nothing."""
    with seeded(0, "head"):
        head, features = DilatedHead(3, 2, [6, 12, 18, 24]), torch.randn(1, 3, 40, 40)
    nn.init.constant_(head.branches[1].bias, 0.25)  # type: ignore[arg-type]
    expected = torch.tensor([0.25, 0.25])
    for branch, rate in zip(head.branches, (6, 12, 18, 24), strict=True):
        for row, column in [(row, column) for row in range(3) for column in range(3)]:
            down, right = 15 + (row - 1) * rate, 21 + (column - 1) * rate
            if 0 <= down < 40 and 0 <= right < 40:
                expected = expected + branch.weight[:, :, row, column] @ features[0, :, down, right]
    assert torch.allclose(head(features)[0, :, 15, 21], expected, atol=1e-5)


def test_the_head_of_deeplab_starts_small_and_without_bias() -> None:
    with seeded(0, "head"):
        head = DilatedHead(512, 19, [6, 12, 18, 24])
    for branch in head.branches:
        assert abs(float(branch.weight.detach().std()) - 0.01) < 2e-4  # type: ignore[union-attr, operator]
        assert not branch.bias.any()  # type: ignore[union-attr, operator]


# Weights


@pytest.mark.parametrize("name", list(SEGMENTERS))
@pytest.mark.parametrize("stages", [-1, 0, 1, 3])
def test_gradients_reach_exactly_the_trained_stages_and_the_head(name: str, stages: int, resnet: Backbone) -> None:
    network = made(name, resnet, stages=stages)
    loss(network, pictures()).backward()
    trained = {key for key, parameter in network.named_parameters() if parameter.grad is not None}
    assert all(bool(dict(network.named_parameters())[key].grad.abs().sum() > 0) for key in trained)  # type: ignore[union-attr]
    encoder = {key.split(".network.")[1].split(".")[0] for key in trained if ".network." in key}
    layers = [f"layer{number}" for number in range(1, 5)]
    assert encoder == ({"conv1", "bn1", *layers} if stages < 0 else set(layers[4 - stages :]))
    assert trained == {key for key, parameter in network.named_parameters() if parameter.requires_grad}


@pytest.mark.parametrize("name", list(SEGMENTERS))
def test_training_leaves_the_backbone_as_it_was_born(name: str, resnet: Backbone) -> None:
    before = {key: value.clone() for key, value in resnet.state().items()}
    network = made(name, resnet)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    loss(network.train(), pictures()).backward()
    optimiser.step()
    assert all(torch.equal(before[key], value) for key, value in resnet.state().items())


@pytest.mark.parametrize("name", list(SEGMENTERS))
def test_freezing_changes_no_more_than_rounding_does(name: str, lite0: Backbone) -> None:
    x = pictures()
    with torch.no_grad():
        expected = made(name, lite0, stages=-1)(x).logits
        for stages in (0, 2, lite0.stages):
            found = made(name, lite0, stages=stages)(x).logits
            assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()


def test_convolutions_that_cannot_be_folded_are_left_as_they_are() -> None:
    """A weight that is changed on its way, as standardised ones are, does not survive folding."""

    class Odd(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            return self._conv_forward(x, self.weight / self.weight.norm(), self.bias)

    odd = dataclasses.replace(lively("resnet18"), network=copy.deepcopy(lively("resnet18").network))
    odd.network.layer1[0].conv1.__class__ = Odd  # type: ignore[union-attr, index]
    x = pictures(1)
    with torch.no_grad():
        expected, found = maps_of(odd, x), take_last_map(odd, 0, 32)(x)[0]
        folded = take_last_map(lively("resnet18"), 0, 32)
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert not any(isinstance(part, nn.BatchNorm2d) for part in folded.modules())


@pytest.mark.parametrize("name", list(SEGMENTERS))
def test_training_mode_changes_nothing_and_statistics_stay(name: str, lite0: Backbone) -> None:
    network, x = made(name, lite0), pictures()
    before = copy.deepcopy(network.state_dict())
    with torch.no_grad():
        expected, found = network(x).logits, network.train()(x).logits
    assert torch.equal(found, expected)
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


@pytest.mark.parametrize("name", list(SEGMENTERS))
def test_weights_of_a_segmenter_survive_being_taken_out_and_put_back(name: str, resnet: Backbone) -> None:
    network, x = made(name, resnet, stages=1), pictures()
    with seeded(9, "network"):
        other = SEGMENTERS[name](resnet, CLASSES, stages=1).eval()
    other.load_state_dict({key: value.contiguous().clone() for key, value in network.state_dict().items()})
    with torch.no_grad():
        assert torch.equal(network(x).logits, other(x).logits)


@pytest.mark.parametrize("name", [*SEGMENTERS, "small_fcn"])
def test_what_is_said_of_a_picture_does_not_depend_on_those_beside_it(name: str, lite0: Backbone) -> None:
    if name == "small_fcn":
        with seeded(0, "network"):
            network = BACKBONES[name]((3, 64, 96), CLASSES)
    else:
        network = made(name, lite0)
    x, other = pictures(4), pictures(4, seed=8)
    mixed = torch.stack([other[0], x[2], other[1], x[0]])
    with torch.no_grad():
        first, second, again = network(x), network(mixed), network(x)
    for kind in ("features", "logits"):
        one, two = getattr(first, kind), getattr(second, kind)
        assert torch.equal(one, getattr(again, kind))
        assert torch.equal(one[2], two[1]), "another place in the batch"
        assert torch.equal(one[0], two[3])


def test_a_basis_block_fits_features_of_a_network_with_a_head(resnet: Backbone) -> None:
    network = made("deeplab_v2", resnet)
    assert network.add_basis(4).weight.shape == (4, 512)


def test_networks_of_rows_have_no_stride_and_the_names_they_had() -> None:
    network = BACKBONES["mlp"]((4,), 3, layers=1)
    assert (network.stride, network.multiple, network.head, network.features) == (1, 1, None, 128)
    assert {key.split(".")[0] for key in network.state_dict()} == {"extractor", "classifier"}
    assert {"classifier.weight", "classifier.bias"} <= network.state_dict().keys()


def test_the_residual_network_of_2015_is_read_with_its_own_strides() -> None:
    path = DATA / "resnet50_msra_fp16.safetensors"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    backbone = pretrained.timm(model="resnet50", weights=str(path), stride_first=True, size=64)
    x = pictures(1)
    with torch.no_grad():
        expected = backbone.network.forward_features(backbone.pixels(x))  # type: ignore[operator]
        found = made("deeplab_v2", backbone, stages=1)(x).features
    assert torch.allclose(found[:, :, ::4, ::4], expected, atol=1e-4 * float(expected.abs().max()))
    assert made("fast_segment", backbone)(x).logits.shape == (1, CLASSES, 8, 12)


# small_fcn


def test_the_small_network_is_small_and_takes_bytes() -> None:
    with seeded(0, "network"):
        network = BACKBONES["small_fcn"]((3, 64, 64), CLASSES)
    assert sum(parameter.numel() for parameter in network.parameters()) < 150_000
    x = pictures(2, 64, 64)
    output = network(x)
    assert (network.stride, network.multiple, output.features.shape) == (4, 4, (2, 64, 16, 16))
    assert torch.equal(output.logits, network(x.float()).logits)


def test_a_site_of_the_small_network_sees_a_whole_object_of_thirty_pixels() -> None:
    """Norms look at the whole picture, so they are taken out here."""
    with seeded(0, "network"):
        network = BACKBONES["small_fcn"]((3, 128, 128), CLASSES)
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.GroupNorm | nn.ReLU):
                setattr(module, name, nn.Identity())
    x = pictures(1, 128, 128).float().requires_grad_()
    network(x).logits[0, :, 16, 16].abs().sum().backward()
    assert x.grad is not None
    assert bool((x.grad[0].abs().sum(0)[66 - 30 : 66 + 30, 66 - 30 : 66 + 30] > 0).all())


def test_the_small_network_learns_where_squares_are() -> None:
    draw = torch.Generator().manual_seed(0)
    x, y = pictures(16, 64, 64) // 4, torch.zeros(16, 16, 16, dtype=torch.int64)
    for row, (top, left) in enumerate(torch.randint(0, 11, (16, 2), generator=draw).tolist()):
        x[row, row % 2, 4 * top : 4 * top + 20, 4 * left : 4 * left + 20] += 120
        y[row, top : top + 5, left : left + 5] = 1 + row % 2
    with seeded(0, "network"):
        network = BACKBONES["small_fcn"]((3, 64, 64), 3)
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x).logits, y).backward()
        optimiser.step()
    right = network(x).logits.argmax(1) == y
    assert right[y > 0].float().mean() > 0.95
    assert right[y == 0].float().mean() > 0.95


def test_a_block_of_the_fast_network_is_a_residual() -> None:
    block, x = ResidualBlock(16), torch.randn(1, 16, 4, 4)
    nn.init.zeros_(block.pointwise.weight)
    nn.init.constant_(block.pointwise.bias, 0.5)  # type: ignore[arg-type]
    assert torch.equal(block(x), x + 0.5)


# Refusals


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: SEGMENTERS["fast_segment"](lively("resnet18"), 5, stages=5),
            "stages must be −1 (train all of timm:resnet18) or in 0..4, got 5",
        ),
        (
            lambda: SEGMENTERS["deeplab_v2"](lively("resnet18"), 5, stages=-2),
            "stages must be −1 (train all of timm:resnet18) or in 0..4, got -2",
        ),
        (
            lambda: SEGMENTERS["deeplab_v2"](lively("resnet18"), 5, stride=12),
            "stride must be a power of two and at most 32, that of the last map of timm:resnet18, got 12",
        ),
        (
            lambda: SEGMENTERS["deeplab_v2"](lively("resnet18"), 5, stride=64),
            "stride must be a power of two and at most 32, that of the last map of timm:resnet18, got 64",
        ),
        (
            lambda: SEGMENTERS["deeplab_v2"](lively("resnet18"), 5, stride=2),
            "timm:resnet18 cannot be computed at stride 2: its strides cannot be traded for dilation; use stride 32 or "
            "another backbone",
        ),
        (
            lambda: SEGMENTERS["deeplab_v2"](lively("test_convnext"), 5),
            "timm:test_convnext cannot be computed at stride 8: its strides cannot be traded for dilation; use stride "
            "32 or another backbone",
        ),
        (
            lambda: SEGMENTERS["fast_segment"](lively("resnet18"), 5, stride=6),
            "timm:resnet18 has maps of strides 2, 4, 8, 16, 32, got stride 6",
        ),
        (lambda: SEGMENTERS["fast_segment"](lively("resnet18"), 5, width=90), "width must be a multiple of 8, got 90"),
        (
            lambda: SEGMENTERS["fast_segment"](pretrained.timm(model="test_vit", pretrained=False), 5),
            "timm:test_vit has maps of strides 16, got stride 8",
        ),
        (
            lambda: SEGMENTERS["deeplab_v2"](
                pretrained.custom_backbone(nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), 4, Preparation(8), *USUAL), 5
            ),
            "own module cannot be used for label maps: what it computes on its way are no maps that any size of "
            "picture has; use a ResNet",
        ),
        (
            lambda: BACKBONES["small_fcn"]((9,), 5),
            "small_fcn needs pictures (channels, height, width), got shape (9,)",
        ),
        (lambda: BACKBONES["small_fcn"]((1, 32, 32), 5), "small_fcn needs pictures of 3 channels, got 1"),
        (
            lambda: BACKBONES["small_fcn"]((3, 12, 40), 5),
            "small_fcn needs sides of at least 16 pixels, got 12×40",
        ),
        (
            lambda: BACKBONES["small_fcn"]((3, 32, 32), 5, width=18),
            "width must be a multiple of 4, at least 16, got 18",
        ),
    ],
)
def test_what_a_segmenter_cannot_do_is_said_in_one_sentence(call: Callable[[], object], sentence: str) -> None:
    assert refusal(call) == sentence
