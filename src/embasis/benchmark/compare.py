"""A comparison and its page: the same data, network and seed for every method or variant of one.

There is one score per (data set, pair, method, seed).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import msgspec
from torch import nn

from embasis import config as settings
from embasis.benchmark.scores import (
    RunScore,
)
from embasis.config import Config
from embasis.data.datasets.domain_sets import PAIRS
from embasis.data.datasets.street_sets import STARRED
from embasis.data.images.folders import ImageOptions
from embasis.engine.alignment import acting_aligner
from embasis.engine.domain_norm import init_domain_norm
from embasis.engine.holdout import split_holdout
from embasis.engine.restyling import acting_restyler
from embasis.engine.self_train import train_rounds
from embasis.engine.state import TrainState
from embasis.engine.train import train_round
from embasis.errors import ConfigError, InputDataError, refuse_unknown, require
from embasis.inputs.load import load_dataset, open_inputs
from embasis.methods import ALIGNMENT
from embasis.runs.parts import RunParts, build
from embasis.types import Evaluation, Problem, RoundRecord


class RunKey(NamedTuple):
    """What tells the runs of a comparison apart."""

    dataset: str
    pair: str
    method: str
    seed: int


@dataclass(frozen=True)
class Outcome:
    """One finished run of a comparison."""

    score: RunScore
    records: tuple[RoundRecord, ...]
    built: RunParts
    kept: int
    """The round that is scored."""
    learned: frozenset[str]
    """Names of what the labeller knew at the end."""
    progress: TrainState
    """The run at its end: the network, the labeller and the thresholds that are kept."""


@dataclass(frozen=True)
class Variant:
    """A method under a name of its own, with parts of its own."""

    name: str
    method: str
    parts: Mapping[str, Any] = field(default_factory=dict)
    """Changes of the method's parts (methods/parts.py)."""
    needs: str = ""
    """What the first variant's labeller must have learned; else this one would not differ from it and is left out."""


def run_comparison(
    dataset: str, methods: Sequence[str], seeds: Sequence[int], config: Config, root: str | None = None
) -> Iterator[Outcome]:
    """Every method on every pair with every seed."""
    require(len(methods) > 0, "compare needs at least one method", ConfigError)
    yield from run_variants(dataset, [Variant(name_row(name, config), name) for name in methods], seeds, config, root)


def name_row(method: str, config: Config) -> str:
    """What a table calls a method: `cbst with dann` where the settings set an aligner beside it."""
    aligner = config.align.get("name")
    return method if aligner is None or method in ALIGNMENT else f"{method} with {aligner}"


def run_variants(
    dataset: str, variants: Sequence[Variant], seeds: Sequence[int], config: Config, root: str | None = None
) -> Iterator[Outcome]:
    """Every variant on every pair with every seed. Those without Stage I share the source model of a (pair, seed)."""
    given = {key: value for key, value in config.method.items() if key != "name"}
    names = {key for variant in variants for key in known_settings(variant.method)}
    for key in given:
        if key not in names:
            settings.refuse_old_name(key, "method")
            refuse_unknown(key, names, "method setting")
    for seed in seeds:
        for pair, loaded in iter_problems(dataset, seed, root, config.data):
            inputs = open_inputs(loaded, msgspec.structs.replace(config, seed=seed))
            problem = inputs.read(loaded, ImageOptions().budget)
            sources: dict[bool, tuple[nn.Module, TrainState, float]] = {}
            learned: frozenset[str] | None = None
            for variant in variants:
                if variant.needs and learned is not None and variant.needs not in learned:
                    continue
                own = {key: value for key, value in given.items() if key in known_settings(variant.method)}
                method = {"name": variant.method, **own}
                run = msgspec.structs.replace(
                    config, seed=seed, data={}, method=method, parts={**config.parts, **variant.parts},
                    align={} if variant.method in ALIGNMENT else config.align,
                )  # fmt: skip
                run_key = RunKey(dataset, pair, variant.name, seed)
                outcome = run_one(run_key, build(problem, run, inputs), sources)
                learned = outcome.learned if learned is None else learned
                yield outcome


def known_settings(method: str) -> tuple[str, ...]:
    """The settings of one method."""
    return settings.setting_names(settings.find_entry("method", method))


def iter_problems(dataset: str, seed: int, root: str | None, given: Mapping[str, Any]) -> Iterator[tuple[str, Problem]]:
    """All pairs of a data set by name, or the one that is given; a data set that is drawn is drawn with the seed."""
    if dataset not in PAIRS or {"source", "target"} & {*given}:
        yield load_dataset(dataset, seed, root, given)
        return
    for source, target in PAIRS[dataset]:
        yield load_dataset(dataset, seed, root, {**given, "source": source, "target": target})


def count_pairs(dataset: str, given: Mapping[str, Any]) -> int:
    """How many problems that will be."""
    return 1 if dataset not in PAIRS or {"source", "target"} & {*given} else len(PAIRS[dataset])


def run_one(run: RunKey, built: RunParts, sources: dict[bool, tuple[nn.Module, TrainState, float]]) -> Outcome:
    """One run in memory, from the shared source model if its training does not depend on the method."""
    before, progress, start = 0.0, None, time.perf_counter()
    if can_share_source(built):
        if True not in sources:
            sources[True] = train_source(built)
        trained, done, before = sources[True]
        start = time.perf_counter()
        built.network.load_state_dict(trained.state_dict())
        progress = copy.copy(done)
        progress.network, progress.records = built.network, []
    records = []
    for event in train_rounds(built.problem, built.network, built.method, built.plan, progress):
        if event.record is not None:
            records.append(event.record)
            progress = event.state
    seconds = before + time.perf_counter() - start
    assert progress is not None
    kept = records[progress.best_round] if progress.status == "collapsed" else progress.final_record
    score = score_run(run, kept, seconds, built.problem.schema.names)
    return Outcome(score, tuple(records), built, kept.round, frozenset(progress.labeller), progress)


def can_share_source(built: RunParts) -> bool:
    """Whether nothing of the method takes part in source training."""
    aligned = acting_aligner(built.method, built.problem, 0) is not None
    restyled = acting_restyler(built.method, built.problem) is not None
    return built.method.basis is None and not aligned and not restyled


def train_source(built: RunParts) -> tuple[nn.Module, TrainState, float]:
    """The network after source training, with the cursor at its end."""
    start, network = time.perf_counter(), copy.deepcopy(built.network)
    progress = TrainState(network)
    training, _ = split_holdout(built.problem, built.plan)
    init_domain_norm(network, training, built.plan)
    for _ in train_round(training, built.method, built.plan, progress):
        pass
    progress.optimisers = {}
    return network, progress, time.perf_counter() - start


def score_run(run: RunKey, record: RoundRecord, seconds: float, classes: tuple[str, ...] = ()) -> RunScore:
    """The row of the table: on the test rows if there are any, else on the hidden labels of the unlabelled rows."""
    judged: Evaluation | None = record.test or record.evaluation
    if judged is None:
        raise InputDataError(f"compare needs true labels of the unlabelled side to score with; {run.dataset} has none")
    shared = {each.name for each in fields(RunScore)} & {each.name for each in fields(Evaluation)}
    return RunScore(
        *run,
        seconds=seconds,
        class_names=classes,
        class_accuracy=class_accuracy(judged) if classes else (),
        starred_iou=starred_iou(run.dataset, judged, classes),
        coverage_95=dict(judged.coverage).get(0.95),
        **{name: getattr(judged, name) for name in shared},
    )


def starred_iou(dataset: str, judged: Evaluation, classes: tuple[str, ...]) -> float | None:
    """The mean over those classes that some published tables count alone; None where there are no such tables."""
    counted = STARRED.get(dataset)
    if counted is None or not judged.class_iou:
        return None
    values = [iou for name, iou in zip(classes, judged.class_iou, strict=True) if name in counted and iou is not None]
    return sum(values) / len(values) if values else None


def class_accuracy(judged: Evaluation) -> tuple[float | None, ...]:
    """The share of each class's rows that got their own label; None for a class without rows."""
    return tuple(line[number] / sum(line) if any(line) else None for number, line in enumerate(judged.confusion))
