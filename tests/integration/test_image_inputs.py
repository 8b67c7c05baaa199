"""Images before the loop: features are those of the stem, kept once, and whatever cannot be read is named."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from embasis import fit_images
from embasis.benchmark.compare import run_comparison
from embasis.data.images.samples import Images
from embasis.errors import ConfigError, InputDataError, NumericalError
from embasis.inputs.image_rows import STEM_BATCH, CachedFeatures
from embasis.storage import read_newest
from embasis.types import Arrays, Problem
from folder_runs import digests
from image_runs import CLASSES, DEPTHS, begun, counting, folder_run, picture, read, settings, sides, whole_run
from image_trees import plant

pytestmark = pytest.mark.usefixtures("fast_runs_in_module")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sides that no test changes."""
    return sides(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def finished(home: Path) -> Callable[[str], Path]:
    """A finished run of each depth."""

    @functools.cache
    def of(depth: str) -> Path:
        whole_run(home / f"run-{depth}", home, settings(home / "cache", depth))
        return home / f"run-{depth}"

    return of


def many(root: Path, count: int = 75) -> Path:
    """More pictures than a piece holds."""
    plant(root / "photos", {f"{CLASSES[n % 3]}/{n}.png": picture(n % 3, n) for n in range(count)})
    return Path(plant(root, {f"paintings/{n}.png": picture(n % 3, n, 40) for n in range(3)}))


def rows_of(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    side = problem.labelled
    return side.ids, side.inputs(torch.arange(len(side)))


# --- depths


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_run_of_each_depth_ends_with_a_label_for_each_image(finished: Any, depth: str) -> None:
    facts = read_newest(finished(depth)).facts
    assert [(record["round"], record["status"]) for record in facts["records"]] == [(0, "ok"), (1, "ok")]
    assert sum(facts["records"][1]["class_counts"]) == 18
    assert facts["config"]["images"]["depth"] == depth
    assert (finished(depth) / "backbone.safetensors").exists() == (depth != "full")


@pytest.mark.parametrize("depth", DEPTHS)
def test_stage_one_works_at_each_depth(home: Path, tmp_path: Path, depth: str) -> None:
    run = whole_run(tmp_path / "run", home, settings(home / "cache", depth, "method.name=em_basis_paper"))
    assert run.model is not None
    assert "network/basis.weight" in read_newest(tmp_path / "run").tensors
    assert all(bool(value.isfinite().all()) for value in run.model.progress.network.state_dict().values())


def test_what_is_trained_on_are_features_maps_or_files(home: Path) -> None:
    kinds = {"frozen": Arrays, "partial": CachedFeatures, "full": Images}
    for depth, kind in kinds.items():
        problem, front = begun(home, settings(home / "cache", depth))
        ready = read(problem, front)
        assert isinstance(ready.labelled, kind)
        assert isinstance(ready.unlabelled, kind)
        assert len(ready.unlabelled.inputs(torch.tensor([0])).shape) == (2 if depth == "frozen" else 4)
        assert ready.row_names == problem.row_names


@pytest.mark.parametrize("depth", ["partial", "full"])
def test_training_leaves_the_backbone_as_it_was(home: Path, tmp_path: Path, depth: str) -> None:
    config = settings(home / "cache", depth)
    problem, front = begun(home, config)
    before = {name: value.clone() for name, value in front.backbone.state().items()}
    run = folder_run(tmp_path / "first", config, read(problem, front), front)
    assert all(torch.equal(value, before[name]) for name, value in front.backbone.state().items())
    again = folder_run(tmp_path / "second", config, front.feature_problem(problem), front)
    assert run.model is not None
    assert again.model is not None
    assert digests(tmp_path / "first") == digests(tmp_path / "second")


def test_a_comparison_gives_each_method_and_pair_a_fresh_backbone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = begun(home, settings(home / "cache", "partial"))
    judged = replace(problem, hidden_labels=torch.zeros(18, dtype=torch.int64))
    monkeypatch.setattr("embasis.benchmark.compare.iter_problems", lambda *_: iter([("one", judged), ("two", judged)]))
    config = settings(home / "cache", "partial")
    outcomes = list(run_comparison("any", ["source_only", "em_basis_paper"], [0], config))
    for left, right in zip(outcomes[:2], outcomes[2:], strict=True):
        weights = right.built.network.state_dict()
        assert all(torch.equal(value, weights[name]) for name, value in left.built.network.state_dict().items())


# --- the cache


@pytest.mark.parametrize("depth", ["frozen", "partial"])
def test_features_are_those_of_the_stem_whatever_the_order_and_the_interruption(tmp_path: Path, depth: str) -> None:
    many(tmp_path)
    problem, front = begun(tmp_path, settings(tmp_path / "one", depth))
    ids, whole = rows_of(read(problem, front))
    backwards, other = begun(tmp_path, settings(tmp_path / "two", depth))
    assert isinstance(backwards.labelled, Images)
    late = backwards.labelled.take(torch.arange(70, 75))
    pieces = other.cache_features(replace(backwards, labelled=late, test=backwards.labelled))
    assert [next(pieces), next(pieces), next(pieces)] == [(0, 78), (STEM_BATCH, 78), (2 * STEM_BATCH, 78)]
    pieces.close()  # type: ignore[attr-defined]
    third, last = begun(tmp_path, settings(tmp_path / "two", depth))
    assert last.cache is not None
    assert len(last.cache) == 2 * STEM_BATCH
    found, rows = rows_of(read(third, last))
    assert torch.equal(found, ids)
    assert torch.equal(rows, whole)
    files, stem = problem.labelled.files[:2], front.stem  # type: ignore[attr-defined]
    pixels, _ = next(iter(front.reader.batches(files, [range(2)], front.backbone.preparation)))
    assert stem is not None
    with torch.no_grad():
        assert torch.allclose(stem(pixels), whole[:2], atol=1e-2 if depth == "partial" else 1e-5)


def test_nothing_is_decoded_twice_and_a_changed_image_is_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides(tmp_path)
    seen = counting(monkeypatch)
    whole_run(tmp_path / "one", tmp_path, settings(tmp_path / "cache"))
    assert len(seen) == 36
    seen.clear()
    whole_run(tmp_path / "two", tmp_path, settings(tmp_path / "cache"))
    assert seen == []
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    (tmp_path / "photos" / CLASSES[2] / "bild 4.png").write_bytes(picture(2, 99))
    whole_run(tmp_path / "three", tmp_path, settings(tmp_path / "cache"))
    assert seen == [f"{CLASSES[2]}/bild 4.png"]
    seen.clear()
    whole_run(tmp_path / "four", tmp_path, settings(tmp_path / "cache", "partial"))
    assert len(seen) == 36
    (tmp_path / "paintings" / "0ä 0.png").rename(tmp_path / "paintings" / "moved.png")
    seen.clear()
    whole_run(tmp_path / "five", tmp_path, settings(tmp_path / "cache"))
    assert seen == []


def test_a_full_run_reads_every_image_before_it_trains(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, front = begun(home, settings(home / "cache", "full"))
    seen = counting(monkeypatch)
    read(problem, front)
    assert len(seen) == 36


# --- what cannot be read


def garbled(data: bytes) -> bytes:
    """A picture whose header is right and whose pixels are not."""
    middle = len(data) // 2
    return data[:middle] + bytes(40) + data[middle + 40 :]


def spoil(root: Path) -> dict[str, str]:
    """Three files of the unlabelled side that are whole when they are scanned, and their ends."""
    for number in range(3):
        plant(root / "judged", {f"{CLASSES[number]}/{n}.png": picture(number, n, 40) for n in range(5)})
    (root / "judged" / CLASSES[1] / "3.png").write_bytes(garbled(picture(1, 3, 40)))
    return {f"{CLASSES[0]}/2.png": "changed", f"{CLASSES[1]}/3.png": "garbage", f"{CLASSES[2]}/0.png": "gone"}


@pytest.mark.parametrize("depth", DEPTHS)
def test_files_that_cannot_be_read_are_named_and_the_rest_is_as_it_was(tmp_path: Path, depth: str) -> None:
    sides(tmp_path)
    bad = spoil(tmp_path)
    config = settings(tmp_path / "cache", depth)
    problem, front = begun(tmp_path, config, hidden=True)
    assert len(problem.unlabelled) == 15
    data = (tmp_path / "judged" / CLASSES[0] / "2.png").read_bytes()
    (tmp_path / "judged" / CLASSES[0] / "2.png").write_bytes(data[: len(data) // 2])
    (tmp_path / "judged" / CLASSES[2] / "0.png").unlink()
    ready = read(problem, front)
    assert {item.name for item in ready.rejected} == bad.keys()
    assert {item.phase for item in ready.rejected} == {"read"}
    reasons = {item.name: item.reason for item in ready.rejected}
    assert reasons[f"{CLASSES[0]}/2.png"] == "changed since the scan"
    assert reasons[f"{CLASSES[2]}/0.png"] == "cannot be read: No such file or directory (ENOENT)"
    assert ready.row_names is not None
    assert ready.hidden_labels is not None
    assert set(ready.row_names) == {*(problem.row_names or ())} - bad.keys()
    assert [problem.schema.names[label] for label in ready.hidden_labels.tolist()] == [
        name.split("/")[0] for name in ready.row_names
    ]
    where = dict(zip(problem.row_names or (), problem.unlabelled.ids.tolist(), strict=True))
    assert ready.unlabelled.ids.tolist() == [where[name] for name in ready.row_names]
    folder_run(tmp_path / "run", config, ready, front)
    lines = (tmp_path / "run" / "quarantine.jsonl").read_text().splitlines()
    assert {json.loads(line)["name"] for line in lines} == bad.keys()


def test_more_unreadable_images_than_the_budget_allows_end_the_run_before_training(tmp_path: Path) -> None:
    sides(tmp_path)
    for path in sorted((tmp_path / "paintings").rglob("*.png"))[:12]:
        path.write_bytes(garbled(path.read_bytes()))
    words = {"network.pretrained": False, "network.size": 32, "images.cache": str(tmp_path / "cache"), "workers": 0}
    with pytest.raises(InputDataError) as caught:
        fit_images(tmp_path / "photos", tmp_path / "paintings", backbone="timm:test_efficientnet", **words)
    assert str(caught.value).startswith("12 of 36 files unreadable (33.3 %), 10 are tolerated; first: ")
    assert str(caught.value).endswith(
        "; `embasis check -o FILE` lists all, data.budget=0.3334 (check: --budget) allows more"
    )


def test_a_comparison_has_the_same_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides(tmp_path)
    for path in sorted((tmp_path / "paintings").rglob("*.png"))[:12]:
        path.write_bytes(garbled(path.read_bytes()))
    config = settings(tmp_path / "cache")
    problem, _ = begun(tmp_path, config)
    monkeypatch.setattr("embasis.benchmark.compare.iter_problems", lambda *_: iter([("one", problem)]))
    with pytest.raises(InputDataError, match=r"^12 of 36 files unreadable \(33\.3 %\), 10 are tolerated; first: "):
        next(run_comparison("any", ["source_only"], [0], config))


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_class_of_which_nothing_can_be_read_is_refused(tmp_path: Path, depth: str) -> None:
    sides(tmp_path)
    for path in (tmp_path / "photos" / CLASSES[1]).iterdir():
        path.write_bytes(garbled(path.read_bytes()))
    problem, front = begun(tmp_path, settings(tmp_path / "cache", depth))
    with pytest.raises(InputDataError) as caught:
        read(problem, front)
    assert str(caught.value) == (
        "labelled: classes without an image that can be read: 'buntes Tuch'; repair their images, or take these "
        "classes out"
    )


@pytest.mark.parametrize("depth", ["partial", "full"])
def test_only_rows_in_memory_are_standardised(home: Path, depth: str) -> None:
    with pytest.raises(ConfigError) as caught:
        begun(home, settings(home / "cache", depth, "standardise=domain"))
    assert str(caught.value) == (
        "standardise = domain is for rows in memory; at depth partial and full the network scales by itself: leave "
        "standardise out"
    )


def test_maps_that_half_precision_cannot_hold_are_not_kept(home: Path, tmp_path: Path) -> None:
    problem, front = begun(home, settings(tmp_path / "cache", "partial"))
    stem = front.stem
    assert stem is not None
    stem.register_forward_hook(lambda module, given, found: found * 1e9)
    with pytest.raises(NumericalError) as caught:
        read(problem, front)
    assert str(caught.value) == (
        "timm:test_efficientnet: features of an image are not finite in half precision; choose another depth or "
        "backbone"
    )
    assert front.cache is not None
    assert len(front.cache) == 0


def test_a_side_of_which_nothing_can_be_read_is_refused(tmp_path: Path) -> None:
    sides(tmp_path)
    problem, front = begun(tmp_path, settings(tmp_path / "cache"))
    shutil.rmtree(tmp_path / "paintings")
    with pytest.raises(InputDataError) as caught:
        read(problem, front)
    assert str(caught.value) == "none of 18 images can be read"


# --- what results do not depend on


@pytest.mark.parametrize(("depth", "workers"), [("frozen", 2), ("partial", 1), ("full", 1), ("full", 2)])
def test_workers_and_the_place_of_the_cache_change_nothing(
    home: Path, tmp_path: Path, finished: Any, depth: str, workers: int
) -> None:
    whole_run(tmp_path / "run", home, settings(tmp_path / "cache", depth, workers=workers))
    assert digests(tmp_path / "run") == digests(finished(depth))


@pytest.mark.parametrize("depth", DEPTHS)
def test_shuffled_hidden_labels_change_nothing_but_scores(
    home: Path, tmp_path: Path, finished: Any, depth: str
) -> None:
    config = settings(home / "cache", depth)
    problem, front = begun(home, config)
    judged = replace(problem, hidden_labels=torch.arange(18) % 3)
    folder_run(tmp_path / "run", config, read(judged, front), front)
    found, expected = digests(tmp_path / "run"), digests(finished(depth))
    # the gallery says where a label is known to be wrong; the seals name the table of rows
    shown = {"facts", "rounds.jsonl", "gallery/rows-001.json", "sealed"}
    rows = {name for name in found if name.startswith("rows/")}  # named by the data's hash, hidden labels and all
    assert len(rows) == 1
    assert {name for name in found if found[name] != expected.get(name)} - rows == shown


def test_augmentation_matters_and_depends_on_the_seed(home: Path, tmp_path: Path, finished: Any) -> None:
    expected = digests(finished("full"))
    whole_run(tmp_path / "again", home, settings(home / "cache", "full"))
    assert digests(tmp_path / "again") == expected
    for words in (["images.augment=none"], ["seed=4"]):
        whole_run(tmp_path / words[0], home, settings(home / "cache", "full", *words))
        found = digests(tmp_path / words[0])
        assert any(found[name] != expected[name] for name in expected if name.startswith("tensor network/"))


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_run_that_is_left_after_any_moment_ends_as_the_undisturbed_one(
    home: Path, tmp_path: Path, finished: Any, depth: str
) -> None:
    config = settings(home / "cache", depth, "save_seconds=0")
    whole_run(tmp_path / "whole", home, config)
    for stop in (2, 6):
        for end in (stop, None):
            problem, front = begun(home, config)
            folder_run(tmp_path / str(stop), config, read(problem, front), front, end)
        assert digests(tmp_path / str(stop)) == digests(tmp_path / "whole"), stop
