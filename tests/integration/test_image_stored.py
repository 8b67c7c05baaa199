"""A run folder of images is all that labelling needs, and it goes on with its own data and weights only."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from embasis.errors import CheckpointError, ConfigError, CorruptError, InputDataError
from embasis.runs.model import TrainedModel, load_model
from embasis.runs.run import TrainingRun
from embasis.storage import RunFolder, read_newest
from image_runs import CLASSES, DEPTHS, begun, folder_run, picture, read, settings, sides, whole_run
from storage_runs import tree

pytestmark = pytest.mark.usefixtures("fast_runs_in_module")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sides, weights in a file, and a finished run of each depth; then weights and cache are gone."""
    root = sides(tmp_path_factory.mktemp("stored"))
    _, front = begun(root, settings(root / "cache"))
    weights = front.backbone.state()
    save_file({**weights, "conv_stem.weight": weights["conv_stem.weight"] * 1.1}, root / "mine.safetensors")
    for depth in DEPTHS:
        config = settings(root / "cache", depth, network={"weights": str(root / "mine.safetensors")})
        run = whole_run(root / depth, root, config)
        assert run.model is not None
        torch.save(means(run.model, root), root / f"{depth}.pt")
    (root / "mine.safetensors").rename(root / "kept.safetensors")
    shutil.rmtree(root / "cache")
    return root


def means(model: TrainedModel, root: Path) -> torch.Tensor:
    """What the model says of the unlabelled pictures."""
    problem, _ = begun(root, settings(root / "cache"))
    files = problem.unlabelled.files  # type: ignore[attr-defined]
    (batch,) = model.inputs.iter_rows(files)  # type: ignore[attr-defined]
    assert batch.names == [file.name for file in files]
    assert batch.rejected == {}
    return model.label(batch.x, batch.ids).distribution.mean


def loaded(path: Path) -> TrainedModel:
    found = read_newest(path)
    model = load_model(found.facts, found.tensors, path)
    model.inputs.set_workers(0)
    return model


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_run_labels_images_when_cache_and_weights_file_are_gone(home: Path, depth: str) -> None:
    before = tree(home / depth)
    assert torch.equal(means(loaded(home / depth), home), torch.load(home / f"{depth}.pt"))
    assert tree(home / depth) == before
    assert not (home / "cache").exists()


@pytest.mark.parametrize("depth", DEPTHS)
def test_no_path_of_this_machine_is_in_a_run(home: Path, depth: str) -> None:
    for name, data in tree(home / depth).items():
        assert str(home).encode() not in data, name
        assert b"/tmp" not in data, name


@pytest.mark.parametrize("depth", ["frozen", "partial"])
def test_other_weights_in_a_run_are_found_out(home: Path, tmp_path: Path, depth: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(home / depth, run)
    weights = load_file(run / "backbone.safetensors")
    weights["conv_stem.weight"][0, 0, 0, 0] += 1e-3
    save_file(weights, run / "backbone.safetensors")
    with pytest.raises(CorruptError) as caught:
        loaded(run)
    assert str(caught.value) == (f"{run / 'backbone.safetensors'} holds other weights than the run was trained with")
    assert caught.value.exit_code == 4


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def poorer(path: Path) -> None:
    weights = load_file(path)
    del weights["conv_stem.weight"]
    save_file(weights, path)


@pytest.mark.parametrize("damage", [cut, poorer, Path.unlink])
def test_a_damaged_or_missing_backbone_is_said_with_code_4(home: Path, tmp_path: Path, damage: Any) -> None:
    shutil.copytree(home / "frozen", run := tmp_path / "run")
    damage(run / "backbone.safetensors")
    with pytest.raises(CheckpointError) as caught:
        loaded(run)
    assert caught.value.exit_code == 4
    assert str(run / "backbone.safetensors") in str(caught.value)


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_run_goes_on_with_its_own_weights_only(home: Path, tmp_path: Path, depth: str) -> None:
    weights, other = tmp_path / "mine.safetensors", load_file(home / "kept.safetensors")
    config = settings(tmp_path / "cache", depth, network={"weights": str(weights)})
    shutil.copy(home / "kept.safetensors", weights)
    problem, front = begun(home, config)
    folder_run(tmp_path / "run", config, read(problem, front), front, 1 if depth != "frozen" else 3)
    other["conv_stem.weight"] *= 2
    save_file(other, weights)
    problem, front = begun(home, config)
    before = tree(tmp_path / "run")
    with pytest.raises(ConfigError) as caught:
        folder_run(tmp_path / "run", config, read(problem, front), front)
    assert str(caught.value) == (
        "the run folder was begun with other weights of the backbone; use another folder, or the old weights"
    )
    assert tree(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("words", "change"),
    [
        (["images.depth=partial"], "images.depth: 'frozen' → 'partial'"),
        (["images.head=mlp"], "images.head: 'linear' → 'mlp'"),
        (["images.augment=none"], "images.augment: 'light' → 'none'"),
        (["network.name=timm:test_resnet"], "network.model: 'test_efficientnet' → 'test_resnet'"),
        (["network.size=48"], "network.size: 32 → 48"),
    ],
)
def test_other_settings_of_images_are_refused(tmp_path: Path, words: list[str], change: str) -> None:
    sides(tmp_path)
    config = settings(tmp_path / "cache")
    problem, front = begun(tmp_path, config)
    folder_run(tmp_path / "run", config, read(problem, front), front, 2)
    plan = {"optimiser": "lbfgs", "batch_size": 0, "source_epochs": 4, "epochs": 2, "weight_decay": 0.1}
    other = settings(tmp_path / "cache", "frozen", *words, plan={} if "depth" not in words[0] else plan)
    problem, front = begun(tmp_path, other)
    with pytest.raises(ConfigError) as caught:
        folder_run(tmp_path / "run", other, read(problem, front), front)
    assert str(caught.value).startswith("the run folder was begun with other settings: ")
    assert change in str(caught.value)


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_changed_image_is_other_data(tmp_path: Path, depth: str) -> None:
    sides(tmp_path)
    config = settings(tmp_path / "cache", depth)
    problem, front = begun(tmp_path, config)
    folder_run(tmp_path / "run", config, read(problem, front), front, 3)
    (tmp_path / "photos" / CLASSES[0] / "bild 0.png").write_bytes(picture(0, 77))
    problem, front = begun(tmp_path, config)
    with pytest.raises(InputDataError) as caught:
        folder_run(tmp_path / "run", config, read(problem, front), front)
    name = f"{CLASSES[0]}/bild 0.png"
    assert str(caught.value) == (
        f"the data have changed since the run began: labelled (0 added, 0 removed, 1 edited: '{name}'); "
        "use another folder, the old data, or --accept-data-change"
    )


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_run_that_was_trained_on_a_gpu_labels_without_one(home: Path, depth: str) -> None:
    found = read_newest(home / depth)
    found.facts["config"]["plan"]["device"] = "cuda"
    model = load_model(found.facts, found.tensors, home / depth)
    model.inputs.set_workers(0)
    if not torch.cuda.is_available():
        assert torch.equal(means(model, home), torch.load(home / f"{depth}.pt", weights_only=True))


@pytest.mark.parametrize("depth", ["partial", "full"])
def test_a_run_in_half_precision_labels_an_image_as_its_last_round_did(tmp_path: Path, depth: str) -> None:
    sides(tmp_path)
    config = settings(tmp_path / "cache", depth, plan={"precision": "bfloat16"})
    problem, front = begun(tmp_path, config)
    ready = read(problem, front)
    run = TrainingRun(ready, config, RunFolder(tmp_path / "run"), front)
    with front.reader, run.folder:
        *_, last = run.events()
    assert last.labels is not None
    assert torch.equal(means(loaded(tmp_path / "run"), tmp_path), last.labels.distribution.mean)
