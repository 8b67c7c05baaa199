"""Images in Python: the same picture has the same label whatever form it comes in, before and after saving."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from cli_tables import embasis
from embasis import ImageModel, fit_images
from embasis.api.models import Labels
from embasis.data.images.folders import ImageOptions
from embasis.errors import ConfigError, InputDataError
from embasis.networks.pretrained import custom_backbone
from embasis.types import Preparation
from image_runs import CLASSES, DEPTHS, PLANS, WORDS, picture, sides
from image_trees import plant

pytestmark = pytest.mark.usefixtures("fast_runs_in_module")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = sides(tmp_path_factory.mktemp("model"))
    return plant(root, {f"new/{number}.png": picture(number % 3, 60 + number, 40, side=50) for number in range(5)})


def fitted(home: Path, depth: str = "frozen", **more: Any) -> ImageModel:
    words: dict[str, Any] = {"images.cache": str(home / "cache"), "workers": 0}
    words |= {f"plan.{name}": value for name, value in PLANS[depth].items()}
    if "backbone" not in more:
        words |= {"backbone": "timm:test_efficientnet", "network.pretrained": False, "network.size": 32}
    return fit_images(home / "photos", home / "paintings", depth=depth, **{**words, **more})


@pytest.fixture(scope="module")
def model(home: Path) -> Callable[[str], ImageModel]:
    return cache(lambda depth: fitted(home, depth))


def loaded(path: Path, **more: Any) -> ImageModel:
    """The stored model, reading in this process: a worker takes a second to start."""
    found = ImageModel.load(path, **more)
    found.model.inputs.set_workers(0)
    return found


def same(left: Labels, right: Labels) -> bool:
    numbers = ("probability", "between", "within", "uncertainty", "trusted")
    return left.label == right.label and all(
        np.array_equal(getattr(left, name), getattr(right, name), equal_nan=name != "trusted") for name in numbers
    )


def paths(home: Path) -> list[Path]:
    return [home / "new" / f"{number}.png" for number in range(5)]


@pytest.mark.parametrize("depth", DEPTHS)
def test_fit_images_labels_the_unlabelled_side(home: Path, model: Any, depth: str) -> None:
    found = model(depth)
    assert found.classes == ("Möwe", "amsel", "buntes Tuch")
    assert [record.round for record in found.records] == [0, 1]
    assert found.unlabelled is not None
    assert len(found.unlabelled) == 18
    again = found.predict(home / "paintings")
    before = dict(zip(found.unlabelled.names, found.unlabelled.probability, strict=True))
    assert again.names == sorted(before)
    assert [before[name] for name in again.names] == again.probability.tolist()


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_picture_has_one_label_in_every_form(home: Path, model: Any, depth: str) -> None:
    expected = model(depth).predict(home / "new")
    assert expected.names == [f"{number}.png" for number in range(5)]
    images = [Image.open(io.BytesIO(path.read_bytes())) for path in paths(home)]
    arrays = [np.array(image) for image in images]
    tensors = [torch.from_numpy(array).permute(2, 0, 1) for array in arrays]
    for given in (paths(home), [str(path) for path in paths(home)], images, arrays, tensors):
        assert same(model(depth).predict(given), expected)
    for one in (paths(home)[2], str(paths(home)[2]), images[2], arrays[2], tensors[2]):
        found = model(depth).predict(one)
        assert found.label == expected.label[2:3]
        assert found.probability.tolist() == expected.probability[2:3].tolist()
    assert same(model(depth).predict(np.stack(arrays)), expected)
    assert same(model(depth).predict(torch.stack(tensors)), expected)


def test_pictures_are_labelled_chunk_by_chunk_as_all_at_once(
    home: Path, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = [np.array(Image.open(path)) for path in paths(home)]
    expected = model("frozen").predict(arrays)
    monkeypatch.setattr("embasis.inputs.image_inputs.CHUNK_ROWS", 2)
    found = model("frozen").predict(arrays)
    assert found.names == expected.names
    assert same(found, expected)


def test_order_and_repeats_of_paths_are_kept(home: Path, model: Any) -> None:
    order = [3, 0, 3, 4, 1, 0]
    expected = model("frozen").predict(home / "new")
    found = model("frozen").predict([paths(home)[number] for number in order])
    assert found.names == [str(paths(home)[number]) for number in order]
    assert found.label == [expected.label[number] for number in order]
    assert found.probability.tolist() == expected.probability[order].tolist()


def test_a_path_that_cannot_be_read_has_no_label_and_a_reason(home: Path, tmp_path: Path, model: Any) -> None:
    (broken := tmp_path / "broken.png").write_bytes(picture(0, 0)[:200])
    (garbage := tmp_path / "garbage.png").write_bytes(picture(0, 1)[:900] + bytes(60) + picture(0, 1)[960:])
    given = [broken, paths(home)[0], tmp_path / "gone.png", garbage, paths(home)[1]]
    found = model("frozen").predict(given)
    assert found.names == [str(path) for path in given]
    assert [label is None for label in found.label] == [True, False, True, True, False]
    assert np.isnan(found.probability).tolist() == [True, False, True, True, False]
    assert not found.trusted[[0, 2, 3]].any()
    assert found.reasons.keys() == {str(broken), str(tmp_path / "gone.png"), str(garbage)}
    assert all(found.reasons.values())
    nothing = model("frozen").predict([broken])
    assert nothing.label == [None]


def test_labels_are_a_table(home: Path, model: Any) -> None:
    columns = model("frozen").predict(home / "new").columns()
    assert list(columns) == ["id", "label", "probability", "between", "within", "uncertainty", "trusted"]
    assert {len(column) for column in columns.values()} == {5}


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_saved_model_says_the_same_and_can_be_saved_again(home: Path, tmp_path: Path, model: Any, depth: str) -> None:
    expected = model(depth).predict(home / "new")
    model(depth).save(tmp_path / "one")
    again = loaded(tmp_path / "one")
    assert same(again.predict(home / "new"), expected)
    again.save(tmp_path / "two")
    assert same(loaded(tmp_path / "two").predict(home / "new"), expected)
    with pytest.raises(ConfigError, match=r"one exists and is not an empty folder$"):
        again.save(tmp_path / "one")
    result = embasis("predict", tmp_path / "one", home / "new", "-o", tmp_path / "labels.csv", "--workers", 0)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("depth", ["frozen", "partial"])
def test_python_and_the_command_line_make_the_same_run(home: Path, tmp_path: Path, depth: str) -> None:
    plan = [f"plan.{name}={value}" for name, value in PLANS[depth].items()]
    words = (*WORDS, f"depth={depth}", f"images.cache={home / 'cache'}", "workers=0", *plan)
    result = embasis("fit", home / "photos", home / "paintings", "-o", tmp_path / "cli", *words)
    assert result.exit_code == 0, result.output
    mine = fitted(home, depth, output=tmp_path / "python")
    theirs = loaded(tmp_path / "cli")
    assert same(theirs.predict(home / "new"), mine.predict(home / "new"))
    assert (tmp_path / "cli" / "rounds.jsonl").read_bytes() == (tmp_path / "python" / "rounds.jsonl").read_bytes()
    again = fitted(home, depth, output=tmp_path / "python")
    assert same(again.predict(home / "new"), mine.predict(home / "new"))


# --- a module of one's own


class Mine(nn.Module):
    """Mean colours of four quarters, mixed."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.pool, self.mix = nn.AdaptiveAvgPool2d(2), nn.Linear(12, 6)
        self.mix.weight.data = torch.randn(6, 12, generator=torch.Generator().manual_seed(seed))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.mix(self.pool(x).flatten(1)))


def mine(seed: int = 0) -> Any:
    torch.manual_seed(0)
    return custom_backbone(Mine(seed), 6, Preparation(size=32), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@pytest.mark.parametrize("depth", ["frozen", "full"])
def test_a_module_of_ones_own_is_trained_saved_and_given_again(home: Path, tmp_path: Path, depth: str) -> None:
    found = fitted(home, depth, backbone=mine())
    expected = found.predict(home / "new")
    found.save(path := tmp_path / "saved")
    assert same(loaded(path, backbone=mine()).predict(home / "new"), expected)
    with pytest.raises(InputDataError) as caught:
        ImageModel.load(path)
    assert str(caught.value) == (
        f"{path}: the run was made with a module of your own; give it again: load({str(path)!r}, backbone=…)"
    )


def test_a_module_without_weights_is_a_backbone_too(home: Path, tmp_path: Path) -> None:
    def quarters() -> Any:
        body = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())
        return custom_backbone(body, 12, Preparation(size=32), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

    found = fitted(home, backbone=quarters())
    found.save(path := tmp_path / "saved")
    assert same(loaded(path, backbone=quarters()).predict(home / "new"), found.predict(home / "new"))


def test_another_module_than_the_frozen_one_is_refused(home: Path, tmp_path: Path) -> None:
    fitted(home, backbone=mine()).save(path := tmp_path / "saved")
    with pytest.raises(InputDataError) as caught:
        ImageModel.load(path, backbone=mine(seed=1))
    assert str(caught.value) == (
        f"{path}: the module that is given is not the one the run was made with: its weights differ"
    )


def test_a_module_that_cannot_be_cut_is_not_trained_in_part(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"^own module cannot be trained in part"):
        fitted(home, "partial", backbone=mine())


# --- mistakes


def test_an_unknown_keyword_is_answered_with_the_known_ones(home: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        fitted(home, round=3)
    assert str(caught.value).startswith(
        "unknown key 'round'; did you mean plan.rounds? known keys: save_seconds, seed, standardise; data: "
    )
    with pytest.raises(ConfigError, match=r"^unknown timm model 'resnet49'; close: "):
        fitted(home, backbone="timm:resnet49")
    with pytest.raises(ConfigError, match=r"^images\.depth must be one of auto, frozen, partial, full, got 'deep'$"):
        fit_images(home / "photos", home / "paintings", depth="deep", backbone="timm:test_resnet")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "images: at least one is needed, got none"),
        (["a.png", np.zeros((4, 4, 3), np.uint8)], "images: paths and pictures cannot be mixed in one call"),
        ([np.zeros((4, 4))], "an array must be uint8 (H, W), (H, W, 3) or (H, W, 4), got float64 of shape (4, 4)"),
        (
            [np.ma.array(np.zeros((4, 4, 3), np.uint8), mask=[[[0, 0, 1]] * 4] * 4)],
            "an array must have no masked pixels, which would count as what lies below the mask: "
            "fill them with a colour",
        ),
    ],
)  # fmt: skip
def test_what_is_no_image_is_refused_in_one_sentence(model: Any, given: list[Any], sentence: str) -> None:
    with pytest.raises(InputDataError) as caught:
        model("frozen").predict(given)
    assert str(caught.value) == sentence


def test_classes_without_images_can_be_allowed(home: Path, tmp_path: Path) -> None:
    root = sides(tmp_path)
    (root / "photos" / "leer").mkdir()
    with pytest.raises(InputDataError, match="class folders without a readable image: 'leer'"):
        fitted(root)
    assert fitted(root, options=ImageOptions(allow_empty_class=True)).classes == tuple(sorted(CLASSES))
