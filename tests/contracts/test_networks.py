"""What every backbone keeps: a new line in BACKBONES is tested by being there."""

from __future__ import annotations

import pytest
import torch

from embasis.methods.losses import labelled_loss
from embasis.networks import BACKBONES
from embasis.networks.network import Network
from embasis.randomness import seeded
from embasis.runs.parts import PLANS
from embasis.types import Output

SHAPES = {"linear": (9,), "mlp": (9,), "adapter": (9,), "small_cnn": (1, 8, 8), "small_fcn": (3, 32, 48)}
GRIDS = {"small_fcn": (8, 12)}
"""Sites of those that say something of each part of a picture; they take bytes."""
CLASSES, ROWS = 5, 6


def network(name: str, seed: int = 0) -> Network:
    with seeded(seed, "network"):
        return BACKBONES[name](SHAPES[name], CLASSES)


def inputs(name: str) -> torch.Tensor:
    draw = torch.Generator().manual_seed(1)
    if name in GRIDS:
        return torch.randint(0, 256, (ROWS, *SHAPES[name]), dtype=torch.uint8, generator=draw)
    return torch.randn(ROWS, *SHAPES[name], generator=draw)


@pytest.fixture(params=list(BACKBONES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_backbone_has_a_plan_that_it_trains_well_with() -> None:
    """Those for image files, trained in part or in full, share one; so do those for label maps."""
    assert PLANS.keys() == {*BACKBONES, "images", "maps", "learner"}
    assert BACKBONES.keys() == SHAPES.keys()


def test_an_output_has_features_and_one_logit_a_class(name: str) -> None:
    made = network(name)
    output = made(inputs(name))
    assert isinstance(output, Output)
    assert output.features.shape == (ROWS, made.classifier.in_features, *GRIDS.get(name, ()))
    assert output.logits.shape == (ROWS, CLASSES, *GRIDS.get(name, ()))


def test_a_grid_has_a_site_for_each_square_of_the_stride(name: str) -> None:
    made, sides = network(name), SHAPES[name][1:] if name in GRIDS else ()
    assert tuple(side // made.stride for side in sides) == GRIDS.get(name, ())
    assert all(side % made.multiple == 0 for side in sides)
    assert made.multiple % made.stride == 0
    assert name in GRIDS or (made.stride, made.multiple) == (1, 1)


def test_logits_are_the_classifier_of_the_features(name: str) -> None:
    made = network(name).eval()
    torch.nn.init.normal_(made.classifier.weight)
    output = made(inputs(name))
    expected = made.classifier(output.features.movedim(1, -1)).movedim(-1, 1)
    assert torch.allclose(output.logits, expected, atol=1e-5)


def test_sites_keep_their_places() -> None:
    made = Network(torch.nn.Identity(), 4, CLASSES)
    grid = torch.randn(2, 4, 3, 5)
    logits = made(grid).logits
    assert logits.shape == (2, CLASSES, 3, 5)
    assert torch.allclose(logits[1, :, 2, 3], made.classifier(grid[1, :, 2, 3]), atol=1e-6)


def test_gradients_reach_every_parameter(name: str) -> None:
    made = network(name).eval()
    torch.nn.init.normal_(made.classifier.weight)
    output, classes = made(inputs(name)), torch.arange(ROWS) % CLASSES
    y = classes.view(ROWS, *[1 for _ in output.logits.shape[2:]]).expand(ROWS, *output.logits.shape[2:])
    labelled_loss(output, y.flatten()).backward()
    for key, parameter in made.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key


def test_a_network_that_is_not_training_says_the_same_twice(name: str) -> None:
    made, x = network(name).eval(), inputs(name)
    torch.nn.init.normal_(made.classifier.weight)
    assert torch.equal(made(x).logits, made(x).logits)
    assert torch.equal(made(x).features, made(x).features)


def test_weights_survive_being_taken_out_and_put_back(name: str) -> None:
    made, other, x = network(name, 0).eval(), network(name, 1).eval(), inputs(name)
    torch.nn.init.normal_(made.classifier.weight)
    assert not torch.equal(made(x).logits, other(x).logits)
    other.load_state_dict({key: value.clone() for key, value in made.state_dict().items()})
    assert torch.equal(made(x).logits, other(x).logits)


def test_the_same_seed_makes_the_same_network(name: str) -> None:
    left, right = network(name).state_dict(), network(name).state_dict()
    assert all(torch.equal(left[key], right[key]) for key in left)


def test_a_basis_block_proposes_orthonormal_rows_of_feature_size(name: str) -> None:
    made = network(name)
    with seeded(0, "basis block"):
        weight = made.add_basis(4).weight
    assert weight.shape == (4, made.classifier.in_features)
    assert torch.allclose(weight @ weight.T, torch.eye(4), atol=1e-5)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: BACKBONES["mlp"]((4,), 2, hidden=0), "hidden must be at least 1, got 0"),
        (lambda: BACKBONES["mlp"]((4,), 2, layers=0), "layers must be at least 1, got 0"),
        (lambda: BACKBONES["mlp"]((4,), 2, dropout=1.0), "dropout must be in [0, 1), got 1.0"),
        (
            lambda: BACKBONES["small_cnn"]((4,), 2),
            "small_cnn needs images (channels, height, width), got shape (4,)",
        ),
        (lambda: BACKBONES["small_cnn"]((1, 3, 8), 2), "small_cnn needs images of at least 4×4, got 3×8"),
        (lambda: BACKBONES["small_cnn"]((1, 8, 8), 2, width=0), "width must be at least 1, got 0"),
        (lambda: BACKBONES["small_cnn"]((1, 8, 8), 2, features=0), "features must be at least 1, got 0"),
        (lambda: BACKBONES["small_cnn"]((1, 8, 8), 2, dropout=-0.1), "dropout must be in [0, 1), got -0.1"),
    ],
)
def test_a_setting_out_of_its_range_is_refused_in_one_sentence(make: object, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        make()  # type: ignore[operator]
    assert str(caught.value) == sentence


def test_a_small_cnn_does_not_see_the_light_and_the_contrast_of_a_picture() -> None:
    made, x = network("small_cnn").eval(), inputs("small_cnn")
    inside = torch.nn.functional.pad(x[:, :, 2:-2, 2:-2], (2, 2, 2, 2))  # a border of zeros stays one under a factor
    with torch.no_grad():
        made.extractor[0].bias.zero_()  # type: ignore[index]
        left, right = made(inside).logits, made(3 * inside).logits
    torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-3)
    plain = BACKBONES["small_cnn"](SHAPES["small_cnn"], CLASSES, norm=False)
    assert not torch.allclose(plain(inside).logits, plain(3 * inside).logits, atol=1e-3)


def test_a_small_cnn_without_norm_is_the_one_of_older_releases() -> None:
    names = {*BACKBONES["small_cnn"](SHAPES["small_cnn"], CLASSES, norm=False).state_dict()}
    layers = {f"extractor.{number}.{kind}" for number in (0, 2, 6) for kind in ("weight", "bias")}
    assert names == layers | {"classifier.weight", "classifier.bias"}
