"""Can a round, or a setting, be chosen without true labels? How well each score of a round ranks models by accuracy.

    python -m benchmarks.validators blobs --seeds 3
    python -m benchmarks.validators digits office_caltech10_surf --root ../shared/data --seeds 2 -o validators.csv

Every variant (GRID for em_basis and cbst) is run with `plan.holdout`, so that all scores are there. Per run: Spearman's
rank correlation of each score with the true accuracy of the unlabelled side over the rounds, and the accuracy of the
round that the score would keep. Per data set, pair, method and seed: the same over the last rounds of all variants.
"last" and "mean" are what one gets without choosing. The column "oracle" looks at true labels: it is the limit of
every choice, no method, and never a result. With `-o` one line per round is written, scores and accuracy.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from torch import nn

from embasis import config
from embasis.benchmark.compare import RunKey, iter_problems, known_settings, run_one
from embasis.engine.state import TrainState
from embasis.runs.parts import build
from embasis.types import RoundRecord

SCORES = ("information", "entropy", "density", "agreement", "labelled_accuracy", "validation", "embedded_validation")
GRID: dict[str, tuple[dict[str, float], ...]] = {
    "em_basis": (
        {},
        *({"components_per_class": value} for value in (1, 3, 5)),
        *({"sharpness": value} for value in (10.0, 20.0, 0.0)),
        *({"keep_first": value} for value in (0.2, 0.5)),
    ),
    "cbst": ({}, *({"keep_first": value} for value in (0.2, 0.5))),
}


@dataclass(frozen=True)
class Point:
    """A model that could be chosen."""

    run: tuple[str, str, str, int]
    """data set, pair, method, seed"""
    variant: str
    round: int
    last: bool
    accuracy: float
    scores: dict[str, float]


def ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal values share the mean of their ranks."""
    return [
        1 + sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2
        for value in values
    ]


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """The rank correlation; None where one side does not vary."""
    a, b = ranks(left), ranks(right)
    middle = (len(a) + 1) / 2
    parts = [sum((x - middle) ** 2 for x in side) for side in (a, b)]
    if not all(parts):
        return None
    return sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True)) / math.sqrt(parts[0] * parts[1])


def chosen(points: Sequence[Point], score: str, later: bool) -> float:
    """The accuracy of the best one by a score: of equal ones the `later`, as `plan.keep_round` does, or their mean."""
    best = max(point.scores[score] for point in points)
    found = [point.accuracy for point in points if point.scores[score] == best]
    return found[-1] if later else statistics.mean(found)


def variants(method: str) -> Iterable[tuple[str, dict[str, float]]]:
    """Names and settings, each setting once: what is the default already is not run again."""
    seen = list[dict[str, float]]()
    defaults = {"components_per_class": 0, "sharpness": 0.0, "keep_first": 0.2}
    for settings in GRID[method]:
        own = {key: value for key, value in settings.items() if value != defaults[key]}
        if own not in seen:
            seen.append(own)
            yield " ".join(f"{key} {value:g}" for key, value in own.items()) or "default", own


def points_of(
    dataset: str, method: str, seed: int, settings: config.Config, root: str | None, most: int | None
) -> Iterable[Point]:
    """Every round of every variant on every pair."""
    for number, (pair, problem) in enumerate(iter_problems(dataset, seed, root, {})):
        if most is not None and number >= most:
            return
        sources: dict[bool, tuple[nn.Module, TrainState, float]] = {}
        for name, own in variants(method):
            given = {key: value for key, value in settings.method.items() if key in known_settings(method)}
            run = msgspec.structs.replace(settings, seed=seed, method={"name": method, **given, **own})
            outcome = run_one(RunKey(dataset, pair, method, seed), build(problem, run), sources)
            yield from judged((dataset, pair, method, seed), name, outcome.records)


def judged(run: tuple[str, str, str, int], name: str, records: Sequence[RoundRecord]) -> Iterable[Point]:
    """The rounds that were judged by true labels; a round that collapsed is none to choose."""
    usable = [record for record in records if record.evaluation is not None and record.status != "collapsed"]
    for record in usable:
        assert record.evaluation is not None
        last = record is usable[-1]
        yield Point(run, name, record.round, last, record.evaluation.accuracy, dict(record.scores))


def mean_or_none(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None


def shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def table(title: str, groups: Sequence[Sequence[Point]], without: str) -> str:
    """One line per score: correlation and accuracy of what it chooses, means over groups; then the two limits."""
    correlations = {
        score: [spearman([p.scores[score] for p in points], [p.accuracy for p in points]) for points in groups]
        for score in SCORES
    }
    plain = statistics.mean(
        points[-1].accuracy if without == "last" else statistics.mean(p.accuracy for p in points) for points in groups
    )
    oracle = statistics.mean(max(p.accuracy for p in points) for points in groups)
    lines = [
        f"**{title}** ({len(groups)} choices)\n",
        f"| score | Spearman | of so many | accuracy chosen | {without} | oracle (reads true labels) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for score in SCORES:
        found = correlations[score]
        kept = statistics.mean(chosen(points, score, later=without == "last") for points in groups)
        known = sum(value is not None for value in found)
        cells = [score, shown(mean_or_none(found)), str(known), shown(kept), shown(plain), shown(oracle)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def report(points: Sequence[Point]) -> str:
    """Two tables for each data set and method: over the rounds of a run, and over variants."""
    parts = []
    for dataset, method in dict.fromkeys((point.run[0], point.run[2]) for point in points):
        here = [point for point in points if (point.run[0], point.run[2]) == (dataset, method)]
        by_run, by_pair = defaultdict[object, list[Point]](list), defaultdict[object, list[Point]](list)
        for point in here:
            by_run[(point.run, point.variant)].append(point)
            if point.last:
                by_pair[point.run].append(point)
        parts.append(table(f"{dataset}, {method}: rounds of a run", list(by_run.values()), "last"))
        if len({point.variant for point in here}) > 1:
            parts.append(table(f"{dataset}, {method}: variants", list(by_pair.values()), "mean"))
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--methods", default="em_basis,cbst")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--holdout", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--root")
    parser.add_argument("--pairs", type=int, help="only so many pairs of a data set")
    parser.add_argument("--words", default="", help="further settings key=value, with spaces between them")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    words = (f"plan.holdout={arguments.holdout}", f"plan.rounds={arguments.rounds}", *arguments.words.split())
    settings, points = config.load(None, words), list[Point]()
    for dataset in arguments.datasets:
        for method in arguments.methods.split(","):
            for seed in range(arguments.seeds):
                start = time.perf_counter()
                points += points_of(dataset, method, seed, settings, arguments.root, arguments.pairs)
                print(f"{dataset} {method} seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)
    print(f"\n{report(points)}")
    if arguments.output:
        with arguments.output.open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["dataset", "pair", "method", "seed", "variant", "round", "accuracy", *SCORES])
            for p in points:
                lines.writerow([*p.run, p.variant, p.round, p.accuracy, *(p.scores[name] for name in SCORES)])


if __name__ == "__main__":
    main()
