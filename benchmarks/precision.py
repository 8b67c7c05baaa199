"""Does `predict --precision P` keep its promise? What is trusted for a precision, and how much of it is right.

    python -m benchmarks.precision digits --seeds 5
    python -m benchmarks.precision office_caltech10_surf office_caltech10_googlenet pacs --root ../shared/data

A run of the default on every pair; then, of the labels of its unlabelled side, those that `embasis predict --precision`
would trust (the same function), and how many of them are right by the hidden labels. A pair *holds* where that share is
within two points of what was asked for, or above it: where all labels together are better than P, more than P is right.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import torch

from embasis import config
from embasis.benchmark.compare import iter_problems
from embasis.config import Config
from embasis.data.images.folders import ImageOptions
from embasis.engine.labels import RowLabels
from embasis.engine.self_train import train_rounds
from embasis.inputs.load import open_inputs
from embasis.runs.parts import RunParts, build
from embasis.runs.precision import threshold_for_precision

POINTS = 0.02


@dataclass(frozen=True)
class Kept:
    """One promise, and what became of it."""

    dataset: str
    pair: str
    asked: float
    accuracy: float
    ece: float
    trusted: float
    right: float | None
    warned: bool

    @property
    def holds(self) -> bool:
        return self.right is None or self.right >= self.asked - POINTS

    @property
    def near(self) -> bool:
        return self.right is not None and abs(self.right - self.asked) <= POINTS


def runs(dataset: str, seed: int, settings: Config, root: str | None) -> Iterator[tuple[str, RunParts]]:
    """Every pair, ready to be run."""
    settings = msgspec.structs.replace(settings, seed=seed, method={"name": "em_basis", **settings.method})
    for pair, problem in iter_problems(dataset, seed, root, {}):
        inputs = open_inputs(problem, settings)
        yield pair or f"seed {seed}", build(inputs.read(problem, ImageOptions().budget), settings, inputs)


def kept(dataset: str, pair: str, built: RunParts, asked: list[float]) -> Iterator[Kept]:
    """The promises of one run."""
    *_, last = (m for m in train_rounds(built.problem, built.network, built.method, built.plan) if m.record is not None)
    record, labels, truth = last.record, last.labels, built.problem.hidden_labels
    assert record is not None
    assert record.evaluation is not None
    assert isinstance(labels, RowLabels)
    confidence, label = labels.distribution.mean.max(1)
    right = (label == truth)[truth >= 0] if isinstance(truth, torch.Tensor) else label == label
    confidence = confidence[truth >= 0] if isinstance(truth, torch.Tensor) else confidence
    for precision in asked:
        found = threshold_for_precision(confidence.double().tolist(), None, precision, last.state)
        chosen = confidence.double() >= found.threshold
        share = float(right[chosen].double().mean()) if bool(chosen.any()) else None
        judged = record.evaluation
        trusted = float(chosen.double().mean())
        yield Kept(dataset, pair, precision, judged.accuracy, judged.ece, trusted, share, bool(found.warnings))


def table(found: list[Kept]) -> str:
    lines = ["| set | pair | asked | accuracy | ECE | trusted | right among them | warned |", "| --- " * 8 + "|"]
    for one in found:
        right = "–" if one.right is None else f"{one.right:.3f}"
        figures = f"{one.asked:g} | {one.accuracy:.3f} | {one.ece:.3f} | {one.trusted:.3f} | {right}"
        lines.append(f"| {one.dataset} | {one.pair} | {figures} | {'yes' if one.warned else 'no'} |")
    return "\n".join(lines)


def summary(found: list[Kept]) -> str:
    lines = list[str]()
    for asked in sorted({one.asked for one in found}):
        here = [one for one in found if one.asked == asked]
        some = [one for one in here if one.right is not None]
        mean = statistics.mean(one.right or 0.0 for one in some) if some else float("nan")
        lines.append(
            f"{asked:g}: within two points or above {sum(one.holds for one in here)} of {len(here)}, within two points "
            f"{sum(one.near for one in here)}, nothing trusted {len(here) - len(some)}; mean precision {mean:.3f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--asked", default="0.95")
    parser.add_argument("--root")
    parser.add_argument("--words", default="", help="settings key=value, with spaces between them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    settings, asked = config.load(None, arguments.words.split()), [float(part) for part in arguments.asked.split(",")]
    found = list[Kept]()
    for dataset in arguments.datasets:
        for seed in range(arguments.seeds):
            for pair, built in runs(dataset, seed, settings, arguments.root):
                found += kept(dataset, pair, built, asked)
                print(table(found[-len(asked) :]).splitlines()[-1], flush=True)
    print(f"\n{table(found)}\n\n{summary(found)}")


if __name__ == "__main__":
    main()
