"""A run of two or three processes is that of one, to the bit: rows and label maps, every optimiser, every stage.

The ranks are threads of this process (support/thread_world.py); real processes are in tests/reliability. Each test of
equality has its mutants: the same work with a reduction left out or a denominator of its own must fail it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import image_runs
import map_folder_runs
from embasis import config
from embasis.data import DATASETS
from embasis.distributed import World, current_world
from embasis.distributed import world as world_module
from embasis.engine import label_chunks, step_parts
from embasis.engine import train as training
from embasis.engine.self_train import train_rounds
from embasis.errors import ConfigError, NumericalError
from embasis.inputs.image_inputs import ImageInputs
from embasis.inputs.load import load_problem, open_inputs
from embasis.runs.parts import build
from embasis.storage.label_store import DiskLabelStore
from embasis.types import record_to_json
from process_runs import hash_tensor
from thread_world import run_world

ROWS = ("blobs", {"count": 700, "seed": 0})
MAPS = ("scenes", {"labelled_rows": 6, "unlabelled_rows": 5, "test_rows": 3, "seed": 0})
COMMON = ("plan.rounds=1", "plan.epochs=1", "plan.source_epochs=1", "plan.max_sites=1024", "plan.holdout=0.1")
CASES = {
    "mlp, adam, dropout": (ROWS, ("network.name=mlp", "plan.accumulate_steps=5", "method.name=cbst")),
    "linear, lbfgs, EM over all rows": (ROWS, ("network.name=linear", "plan.accumulate_steps=4", "plan.max_sites=0")),
    "mlp, sgd, one part": (
        ROWS,
        ("network.name=mlp", "plan.optimiser=sgd", "plan.batch_size=256", "plan.accumulate_steps=1"),
    ),
    "label maps": (MAPS, ("plan.accumulate_steps=2", "plan.batch_size=3")),
}


def work_for(name: str, path: Path | None = None) -> Callable[[World], dict[str, Any]]:
    """What a rank ends with: the hash of each tensor of its state, and all records."""
    (dataset, settings), words = CASES[name]

    def work(world: World) -> dict[str, Any]:
        problem = DATASETS[dataset](**settings)
        built = build(problem, config.load(None, (*COMMON, *words)))
        for event in train_rounds(built.problem, built.network, built.method, built.plan):
            state = event.state
        prints: dict[str, Any] = {key: hash_tensor(value) for key, value in state.tensors().items()}
        return {**prints, "records": [record_to_json(record) for record in state.records]}

    return work


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    return {}


def result_alone(name: str, known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if name not in known:
        (known[name],) = run_world(1, work_for(name))
    return known[name]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_every_rank_ends_with_the_bits_of_one_process(name: str, size: int, alone: dict[str, dict[str, Any]]) -> None:
    for ended in run_world(size, work_for(name)):
        assert ended == result_alone(name, alone)


@pytest.mark.parametrize("depth", ["frozen", "partial", "full"])
def test_images_are_read_once_by_all_ranks_together_and_end_with_the_bits_of_one(
    depth: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = image_runs.sides(tmp_path, each=8)
    names = image_runs.counting(monkeypatch)

    def work(world: World) -> dict[str, Any]:
        chosen = image_runs.settings(tmp_path / f"cache {world.size}", depth, plan={"accumulate_steps": 3})
        problem, front = image_runs.begun(root, chosen)
        with front.reader:
            ready = image_runs.read(problem, front)
            read = len(names)
            built = build(ready, chosen, front)
            for event in train_rounds(built.problem, built.network, built.method, built.plan):
                state = event.state
        prints: dict[str, Any] = {key: hash_tensor(value) for key, value in state.tensors().items()}
        return {**prints, "records": [record_to_json(record) for record in state.records], "read": read}

    (alone,) = run_world(1, work)
    names.clear()
    both = run_world(2, work)
    reads = [each.pop("read") for each in both]
    assert both == [{key: value for key, value in alone.items() if key != "read"}] * 2
    assert depth == "full" or reads == [alone["read"]] * 2  # at full depth training reads them again


def fit_pictures(root: Path) -> dict[str, Any]:
    """What a rank ends with of picture files; their features lie in memory as one pass gives them."""
    words = (*(f"plan.{word}" for word in ("rounds=0", "source_epochs=1", "batch_size=6", "accumulate_steps=3")),
             "network.name=small_fcn", "network.width=16", "maps.size=32", "maps.crop_height=32", "maps.crop_width=48",
             "maps.workers=0")  # fmt: skip
    data = {"labelled": str(root / "drawn"), "unlabelled": str(root / "streets")}
    problem, chosen = load_problem(config.load(None, words, data=data))
    built = build(problem, chosen, open_inputs(problem, chosen))
    for event in train_rounds(built.problem, built.network, built.method, built.plan):
        state = event.state
    prints: dict[str, Any] = {key: hash_tensor(value) for key, value in state.tensors().items()}
    return {**prints, "records": [record_to_json(record) for record in state.records]}


def test_picture_files_end_with_the_bits_of_one_and_copies_of_their_features_would_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    map_folder_runs.sides(tmp_path, 6)
    (alone,) = run_world(1, lambda world: fit_pictures(tmp_path))
    assert run_world(2, lambda world: fit_pictures(tmp_path)) == [alone] * 2
    monkeypatch.setattr(world_module, "is_turned", lambda column: False)
    assert run_world(2, lambda world: fit_pictures(tmp_path))[0] != alone


def test_an_image_that_one_rank_cannot_read_is_none_of_anybodys_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, whole = image_runs.sides(tmp_path, each=8), ImageInputs.iter_features

    def work(world: World) -> tuple[int, list[str]]:
        problem, front = image_runs.begun(root, image_runs.settings(tmp_path / "cache"))
        with front.reader:
            ready = image_runs.read(problem, front)
        return len(ready.labelled) + len(ready.unlabelled), sorted(item.name for item in ready.rejected)

    def iter_some(self: ImageInputs, files: Any) -> Iterator[Any]:
        for good, rows, reasons in whole(self, files):
            if current_world().rank == 1 and good:
                yield good[1:], rows[1:], {**reasons, good[0]: "took over 10 s to decode"}
            else:
                yield good, rows, reasons

    monkeypatch.setattr(ImageInputs, "iter_features", iter_some)
    (rows, lost), other = run_world(2, work)
    assert (rows, lost) == other
    assert rows + len(lost) == 48
    assert len(lost) >= 1


def drop_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of the own parts alone."""
    monkeypatch.setattr(step_parts, "exact_sum", lambda world, *rest: exact_alone(*rest))


def exact_alone(*rest: Any) -> list[torch.Tensor]:
    from embasis.distributed import exact_sum

    return exact_sum(World(), *rest)


def take_local_denominators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank divides by what its own parts have."""
    fill = World.fill
    monkeypatch.setattr(World, "fill", lambda self, values: values if values.ndim == 2 else fill(self, values))


def decay_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weight decay in the first part of each rank."""
    iterate = step_parts.iter_steps

    def renumber(*arguments: Any) -> Iterator[step_parts.StepParts]:
        for step in iterate(*arguments):
            parts = dict(enumerate(step.parts.values()))
            yield step_parts.StepParts(parts, step.count, step.rows)

    monkeypatch.setattr(training, "iter_steps", renumber)


def plain_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float32 sums, each rank its own parts first."""
    monkeypatch.setattr(step_parts, "exact_sum", float_sum)


def float_sum(world: World, parts: Any, like: Any, count: int) -> list[torch.Tensor]:
    own = [sum((part[place] for part in parts), torch.zeros_like(value)) for place, value in enumerate(like)]
    return [world.add_up(value.detach()) for value in own]


@pytest.mark.parametrize("mutate", [drop_sum, take_local_denominators, decay_everywhere, plain_sum])
def test_a_mutant_of_training_fails_the_test_above(
    mutate: Callable[[pytest.MonkeyPatch], None], alone: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "linear, lbfgs, EM over all rows" if mutate is not take_local_denominators else "mlp, adam, dropout"
    expected = result_alone(name, alone)
    mutate(monkeypatch)
    try:
        ended = run_world(2, work_for(name))[0]
    except (NumericalError, RuntimeError):  # each rank has other gradients: L-BFGS runs away, or asks once more
        return
    assert ended != expected


def test_a_mutant_that_labels_in_another_order_fails_it(
    alone: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "mlp, sgd, one part"
    expected = result_alone(name, alone)
    monkeypatch.setattr(label_chunks, "unpack_labels", lambda columns: unpack_turned(columns))
    assert run_world(2, work_for(name))[0] != expected


def unpack_turned(columns: list[torch.Tensor]) -> Any:
    mean, between, within, uncertainty, scores = columns
    from embasis.types import LabelDistribution

    return LabelDistribution(mean.flip(0), between.flip(0), within.flip(0), uncertainty.flip(0)), scores.flip(0)


def test_fast_sums_are_within_a_millionth_of_exact_ones() -> None:
    """One step of gradient descent with very unequal parts, by float32 sums and in whole numbers."""

    def weights(world: World) -> list[torch.Tensor]:
        problem = DATASETS["blobs"](count=300, seed=1)
        words = ("plan.rounds=0", "plan.source_epochs=1", "network.name=mlp", "plan.batch_size=0", "plan.optimiser=sgd",
                 "plan.momentum=0", "plan.source_lr=1.0", "plan.accumulate_steps=7", f"plan.sum={kind}")  # fmt: skip
        built = build(problem, config.load(None, words))
        before = [value.detach().clone() for value in built.network.parameters()]
        for _ in train_rounds(built.problem, built.network, built.method, built.plan):
            break
        return [after.detach() - first for after, first in zip(built.network.parameters(), before, strict=True)]

    kind = "exact"
    exact = run_world(3, weights)[0]
    kind = "fast"
    for fast in run_world(3, weights):
        for left, right in zip(fast, exact, strict=True):
            assert float((left - right).norm()) <= 1e-6 * float(right.norm())


def test_a_number_that_is_not_finite_on_one_rank_ends_all_with_the_same_sentence() -> None:
    sentences = []

    def work(world: World) -> None:
        problem = DATASETS["blobs"](count=60, seed=0)
        words = ("plan.rounds=0", "plan.source_epochs=1", "network.name=linear", "plan.accumulate_steps=4")
        built = build(problem, config.load(None, words))
        if world.rank == 1:
            built.problem.labelled.x[20] = torch.inf  # type: ignore[attr-defined]
        try:
            list(train_rounds(built.problem, built.network, built.method, built.plan))
        except NumericalError as error:
            sentences.append(str(error))

    run_world(2, work)
    assert len(sentences) == 2
    assert sentences[0] == sentences[1]
    assert sentences[0].startswith("the loss is nan in round 0 epoch 0 step 0; the last saved state is kept; ")


def test_batch_norm_that_learns_is_refused_in_parts_of_several_processes() -> None:
    def work(world: World) -> None:
        problem = DATASETS["blobs"](count=60, seed=0)
        built = build(problem, config.load(None, ("plan.rounds=0", "network.name=linear", "plan.accumulate_steps=2")))
        width = built.shape[0]
        network = torch.nn.Sequential(torch.nn.BatchNorm1d(width), torch.nn.Linear(width, len(problem.schema)))
        list(train_rounds(built.problem, network, built.method, built.plan))

    rule = "a network whose batch norm learns from its batches cannot be trained in parts by several processes"
    with pytest.raises(ConfigError, match=f"^{rule}: plan.accumulate_steps=1$"):
        run_world(2, work)


def test_a_restyler_is_refused_and_an_aligner_keeps_its_batch_whole() -> None:
    def settings(world: World) -> int:
        problem = DATASETS["blobs"](count=60, seed=0)
        built = build(problem, config.load(None, ("network.name=mlp", "align.name=dann")))
        return built.plan.accumulate_steps

    assert run_world(2, settings) == [1, 1]


def test_the_default_of_several_processes_is_eight_parts() -> None:
    def settings(world: World) -> tuple[int, int]:
        built = build(DATASETS["blobs"](count=60, seed=0), config.load(None, ()))
        return built.plan.accumulate_steps, built.resolved["plan"]["accumulate_steps"]

    assert run_world(1, settings) == [(1, 1)]
    assert run_world(2, settings) == [(8, 8)] * 2


def test_label_maps_are_written_by_one_rank_and_read_by_all(tmp_path: Path) -> None:
    from embasis.storage.followed_folder import FollowedFolder
    from embasis.storage.run_folder import RunFolder

    (dataset, settings), words = CASES["label maps"]

    def work(world: World) -> list[int]:
        folder = RunFolder(tmp_path / "run") if world.is_first else FollowedFolder(tmp_path / "run")
        built = build(DATASETS[dataset](**settings), config.load(None, (*COMMON, *words, "plan.rounds=0")))
        with folder:
            store = folder.label_store()
            assert isinstance(store, DiskLabelStore)
            for event in train_rounds(built.problem, built.network, built.method, built.plan, None, store):
                labels = event.labels
            assert labels is not None
            current_world().agree(0)
            return [hash_tensor(part.distribution.mean) for part in labels.parts()]  # type: ignore[misc]

    first, second = run_world(2, work)
    assert first == second
    assert len(first) == 5
