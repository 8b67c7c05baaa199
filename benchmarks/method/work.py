"""One unit of work: all candidates of a stage on one pair with one seed, from one source model; a row after each."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from benchmarks.method.candidates import Candidate
from benchmarks.method.peers import PEERS, Vectors
from benchmarks.method.rows import Row, keep, packed, read_rows, unit_file
from benchmarks.method.sets import StudySet
from benchmarks.method.shares import thin_classes
from embasis.benchmark.compare import Outcome, RunKey, can_share_source, run_one, score_run, train_source
from embasis.benchmark.scores import RunScore
from embasis.config import Config
from embasis.data.images.folders import ImageOptions
from embasis.engine.evaluate import evaluate
from embasis.engine.labels import BoundSelector, RowLabels, label_rows
from embasis.engine.state import TrainState
from embasis.errors import EmbasisError
from embasis.functional.metrics import auroc, exact_counts
from embasis.inputs import Inputs
from embasis.inputs.load import load_dataset, open_inputs
from embasis.methods.baselines import SoftmaxLabeller
from embasis.methods.selectors import SelectNone
from embasis.runs.parts import RunParts, build
from embasis.types import Features, Problem, RoundRecord, Samples

ROWS = Candidate("rows", "methods")
"""For peers: the rows as em_basis gets them."""


@dataclass
class Source:
    """A source model that many candidates begin with, and the processor time of its training."""

    trained: dict[bool, tuple[nn.Module, TrainState, float]] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Unit:
    """What one process does in one go."""

    set: StudySet
    pair: Mapping[str, str]
    """Settings of the data set."""
    seed: int
    stage: str
    candidates: tuple[Candidate, ...]

    @property
    def pair_name(self) -> str:
        """As tables show it."""
        return "→".join(self.pair.values())

    def file(self, folder: Path) -> Path:
        """Where its rows are."""
        return unit_file(folder, self.set.name, self.pair_name, self.seed, self.stage)

    def left(self, folder: Path, root: str | None) -> list[Candidate]:
        """What is not finished yet, or was finished with other settings."""
        done = {(row["variant"], row["mark"]) for row in read_rows(self.file(folder))}
        return [each for each in self.candidates if (each.name, each.mark(self.set, root)) not in done]


def alone() -> None:
    """The start of a process that has one core."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


def work(unit: Unit, folder: Path, root: str | None) -> tuple[int, list[str]]:
    """Run what is left of a unit: how many rows are new, and a sentence for each candidate that failed."""
    left = unit.left(folder, root)
    if not left:
        return 0, []
    try:
        problem, inputs = ready(unit, root)
    except EmbasisError as error:
        return 0, [f"{unit.set.name} {unit.pair_name} seed {unit.seed} failed: {error}"]
    sources: dict[str, Source] = {}
    new, failed = 0, list[str]()
    for candidate in left:
        try:
            row = run(candidate, unit, problem, inputs, sources, root)
        except (EmbasisError, ArithmeticError, RuntimeError, ValueError) as error:  # one must not end hours of others
            failed.append(f"{unit.set.name} {unit.pair_name} seed {unit.seed}: {candidate.name} failed: {error}")
            continue
        keep(unit.file(folder), row)
        new += 1
        where = f"{row['set']} {row['pair']} seed {row['seed']}"
        print(f"{where}: {row['variant']} {row['accuracy']:.3f}, {row['seconds']:.1f} s", flush=True)
    return new, failed


def ready(unit: Unit, root: str | None) -> tuple[Problem, Inputs]:
    """The data of a unit, features in place of images, with the class shares of its set."""
    _, problem = load_dataset(unit.set.dataset, unit.seed, root, unit.pair)
    if unit.set.share < 1:
        problem = thin_classes(problem, unit.set.share, unit.seed, unit.pair_name)
    inputs = open_inputs(problem, msgspec.structs.replace(ROWS.config(unit.set, root), seed=unit.seed))
    return inputs.read(problem, ImageOptions().budget), inputs


def run(
    candidate: Candidate,
    unit: Unit,
    problem: Problem,
    inputs: Inputs,
    sources: dict[str, Source],
    root: str | None,
) -> Row:
    """One candidate's row; those that differ in nothing but the method share the source model."""
    peer = candidate.method == "peer"
    settings = msgspec.structs.replace((ROWS if peer else candidate).config(unit.set, root), seed=unit.seed)
    built = build(problem, settings, inputs)
    label = (unit.set.name, unit.pair_name, candidate.name, unit.seed)
    if peer:
        score, more = run_peer(candidate, built, label)
    else:
        score, more = run_method(built, sources.setdefault(shared(settings), Source()), label)
    cells = {name: value for name, value in score.cells().items() if " of " not in name}
    place = {"set": unit.set.name, "pair": unit.pair_name, "seed": unit.seed, "stage": candidate.stage}
    named = {"variant": candidate.name, "method": candidate.method, "mark": candidate.mark(unit.set, root)}
    figures = {name: value for name, value in cells.items() if name not in ("dataset", "pair", "method", "seed")}
    return {**place, **named, "words": list(candidate.words), **figures, **more}


def run_method(built: RunParts, source: Source, label: tuple[str, str, str, int]) -> tuple[RunScore, Row]:
    """A method of embasis; the seconds of the shared source model are part of its own."""
    shares = can_share_source(built)
    if shares and not source.trained:
        start = time.process_time()
        source.trained[True] = train_source(built)
        source.seconds = time.process_time() - start
    start = time.process_time()
    outcome = run_one(RunKey(*label), built, source.trained)
    seconds = time.process_time() - start + (source.seconds if shares else 0.0)
    return outcome.score, {"cpu_seconds": seconds, **facts_of(outcome)}


def shared(settings: Config) -> str:
    """What the source model depends on."""
    return repr(msgspec.structs.replace(settings, method={}))


def judged_rows(problem: Problem) -> tuple[Samples, Any]:
    """The rows that scores are of, with their true labels: test rows if there are any, else the unlabelled ones."""
    if problem.test is not None and len(problem.test):
        return problem.test, problem.test.truth
    return problem.unlabelled, problem.hidden_labels


def facts_of(outcome: Outcome) -> Row:
    """What a run says beside its score: label-free scores, what the labeller chose, and the softmax confidence's AUROC
    against the network's own errors and against the errors of the labels that the user gets."""
    record = outcome.records[outcome.kept]
    found: Row = {"kept": outcome.kept, "status": outcome.records[-1].status}
    found |= {f"score {name}": value for name, value in record.scores.items()}
    found |= {f"fact {name}": value for name, value in record.facts.items()}
    samples, truth = judged_rows(outcome.built.problem)
    if not isinstance(truth, Tensor):
        return found
    built, progress = outcome.built, outcome.progress
    labels = label_rows(samples, built.method, built.plan, progress, outcome.kept)
    known = truth >= 0
    right, own = (label[known] == truth[known] for label in (labels.distribution.label, labels.scores.argmax(1)))
    unsure = 1 - labels.scores.double().softmax(1).amax(1)[known]
    return found | {
        "rows": int(known.sum()),
        "right": packed(right.numpy()),
        "confidence_auroc": auroc(exact_counts(unsure, own)),
        "confidence_auroc_same_errors": auroc(exact_counts(unsure, right)),
    }


def run_peer(candidate: Candidate, built: RunParts, label: tuple[str, str, str, int]) -> tuple[RunScore, Row]:
    """A peer on the rows that the network gets, judged as the comparison methods are."""
    samples, truth = judged_rows(built.problem)
    rows = vectors(built.problem, samples)
    PEERS[candidate.name].load()
    start, cpu = time.perf_counter(), time.process_time()
    probability = torch.from_numpy(PEERS[candidate.name](rows))
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    scores, ids = probability.clamp_min(1e-12).log().float(), torch.arange(len(probability))
    distribution = SoftmaxLabeller().label(Features(scores, scores, torch.full_like(ids, -1), ids), {})
    labels = RowLabels.of(distribution, scores, ids, BoundSelector(SelectNone(), {}, 0, 0))
    evaluation = evaluate(labels.parts(), truth, len(built.problem.schema))
    record = RoundRecord(0, "ok", 0.0, len(ids), 0, (), (), 0.0, {}, evaluation=evaluation)
    right = (distribution.label == truth)[truth >= 0]
    return score_run(RunKey(*label), record, seconds), {
        "cpu_seconds": cpu,
        "rows": len(right),
        "right": packed(right.numpy()),
    }


def vectors(problem: Problem, judged: Samples) -> Vectors:
    """Both sides as numpy's rows of numbers."""
    unlabelled, same = flat(problem.unlabelled), judged is problem.unlabelled
    return Vectors(
        flat(problem.labelled), problem.labelled.labels.numpy(), unlabelled, unlabelled if same else flat(judged)
    )


def flat(samples: Samples) -> Any:
    """All rows (n, d)."""
    return samples.inputs(torch.arange(len(samples))).flatten(1).double().numpy()
