"""The method, told once: train on the labelled side, then label, select, retrain, and judge — round after round.

`self_train` is a generator of records: logging, progress, early stop and checkpoints are code in the caller's loop.
`walk` is the same story with a pause after every training step, for callers that save or show progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from embasis.engine.basis_look import BasisLook, look_at_basis
from embasis.engine.domains import begin_scales, matched
from embasis.engine.doubts import Doubts
from embasis.engine.evaluate import evaluate
from embasis.engine.holdout import parted
from embasis.engine.label import decide, labelled_parts
from embasis.engine.progress import Progress
from embasis.engine.recalibrate import recalibrated, refuse_unheld
from embasis.engine.reweigh import held_out
from embasis.engine.survey import survey
from embasis.engine.train import train_round
from embasis.engine.validate import SELECTION_SCORE, Look, held_out_scores, label_free_scores, score_to_keep
from embasis.engine.verdict import Choice, Labelled, MapLabels, MemoryShelf, Shelved, Verdict
from embasis.networks.model import Network
from embasis.randomness import seeded
from embasis.types import Evaluation, Method, Plan, Problem, RoundRecord, Samples, Shelf, Truth


@dataclass(frozen=True)
class Moment:
    """A pause: the run as it stands, and the record, labels and basis if a round has just ended."""

    progress: Progress
    record: RoundRecord | None = None
    verdict: Verdict | Shelved | None = None
    basis: BasisLook | None = None
    stands: bool = True
    """Of a round that has just ended: whether it would be kept if it were the last one."""


def self_train(problem: Problem, network: nn.Module, method: Method, plan: Plan) -> Iterator[RoundRecord]:
    """One record for the source model (round 0) and one for each round of self-training; `network` is trained."""
    for moment in walk(problem, network, method, plan):
        if moment.record is not None:
            yield moment.record


def walk(
    problem: Problem,
    network: nn.Module,
    method: Method,
    plan: Plan,
    progress: Progress | None = None,
    shelf: Shelf | None = None,
) -> Iterator[Moment]:
    """The whole run from `progress` (or the start) on, with a pause after every step and every round.

    `shelf` keeps the labels of rows with many sites between rounds; without one they are kept in memory. Labelled rows
    that the plan holds out are labelled and scored, and take no part in anything else."""
    problem, held = parted(problem, plan)
    progress, shelf = progress or begin(network, method, plan), shelf or MemoryShelf()
    last = plan.rounds if method.rounds is None else min(plan.rounds, method.rounds)
    last = last if len(problem.unlabelled) else 0
    if progress.at_start():
        begin_scales(progress.network, problem, plan)
    if progress.status == "running" and progress.pseudo is None and progress.counts is not None:
        choice = Choice(method.selector, progress.selector, plan.seed, progress.round - 1)
        kept = Shelved(shelf.read(progress.round - 1), problem.unlabelled.ids, choice)
        progress.pseudo = MapLabels(kept, progress.counts)
    while progress.status == "running":
        for _ in train_round(problem, method, plan, progress):
            yield Moment(progress)
        record, verdict, basis = close_round(problem, method, plan, progress, shelf, held)
        progress.records.append(record)
        if record.status != "ok":
            progress.status = record.status
        elif progress.round >= last:
            progress.status = "finished"
        stands = plan.choose == "last" or record.status == "collapsed" or progress.best_round == progress.round
        if progress.status in ("finished", "no_change") and not stands:
            progress.keep_best()
        progress.round, progress.epoch, progress.step = progress.round + 1, 0, 0
        progress.loss_sum, progress.loss_count, progress.optimiser = 0.0, 0, None
        yield Moment(progress, record, verdict, basis, stands)


def begin(network: nn.Module, method: Method, plan: Plan) -> Progress:
    """A run that has not done anything yet; the network gets its basis block if the method wants one."""
    refuse_unheld(method, plan)
    if method.basis is not None and isinstance(network, Network):
        with seeded(plan.seed, "basis block"):
            network.add_basis(method.basis.components)
    return Progress(network)


def close_round(
    problem: Problem, method: Method, plan: Plan, progress: Progress, shelf: Shelf, held: Samples | None = None
) -> tuple[RoundRecord, Verdict | Shelved, BasisLook | None]:
    """Features → label distribution → selection → record; the collapse guard has the last word."""
    labelled = survey(progress.network, problem.labelled, plan, True, progress.round)
    unlabelled = survey(progress.network, problem.unlabelled, plan, False, progress.round)
    unlabelled = matched(progress.network, labelled, unlabelled, problem, plan)
    apart = held_out(progress.network, held, problem, plan, progress.round, (labelled, unlabelled))
    start = dict(progress.labeller)
    block = getattr(progress.network, "basis", None)
    if block is not None and progress.round == 0:
        start["proposal"] = block.weight.detach().cpu().clone()
    if progress.records:
        start["taught"] = torch.tensor(progress.records[-1].trusted_counts)
    stream = [*labelled.chunks, *unlabelled.chunks]
    progress.labeller = method.labeller.fit(stream, start, plan.seed, progress.round)
    progress.labeller = recalibrated(problem, method, plan, progress, (labelled, unlabelled), apart, start)
    verdict = decide(problem, unlabelled, method, plan, progress, shelf)
    doubts = Doubts(progress.round)
    seen = look_at(doubts.passing(verdict.parts()), len(problem.schema), plan.seed)
    scores = label_free_scores(seen, labelled.chunks) | held_out_scores(apart, method.labeller, progress.labeller)
    notes, status = guard(problem, plan, progress, seen, scores)
    if status == "ok" and seen.sites and not int(seen.trusted.sum()) and can_starve(method):
        status, notes = "no_change", [f"nothing was trusted after round {progress.round}; training stops"]
    notes += doubts.notes(progress.labeller) if status == "ok" else []
    basis = look_at_basis(method.labeller, unlabelled.chunks, progress.labeller, isinstance(verdict, Shelved))
    changed = verdict.changed(progress.pseudo, progress.labels)
    progress.pseudo, progress.labels = verdict.handed_on(seen.by_part)
    if status == "collapsed":
        basis = None  # that of the round that is kept has been seen when it ended
        progress.roll_back()
        verdict = decide(problem, None, method, plan, progress, shelf)
        seen = look_at(verdict.parts(), len(problem.schema))
        progress.pseudo, progress.labels = verdict.handed_on(seen.by_part)
    else:
        progress.remember_best(scores[score_to_keep(plan)], later=plan.choose != "last")
    shelf.keep({progress.round - 1, progress.round})  # the caller has not saved this round yet: it may go back
    record = RoundRecord(
        round=progress.round,
        status=status,
        loss=progress.loss_sum / max(progress.loss_count, 1),
        unlabelled=seen.sites,
        trusted=int(seen.trusted.sum()),
        class_counts=tuple(seen.counts.tolist()),
        trusted_counts=tuple(seen.trusted.tolist()),
        changed=changed,
        scores=scores,
        facts={name: float(value) for name, value in progress.labeller.items() if value.ndim == 0},
        evaluation=judge(verdict.parts(), problem.hidden, len(problem.schema)),
        test=judge_samples(problem.test, method, plan, progress, len(problem.schema)),
        notes=tuple(notes),
    )
    return record, verdict, basis


def look_at(parts: Iterable[Labelled], classes: int, seed: int = 0) -> Look:
    """Sums over all unlabelled sites."""
    seen = Look(classes, seed)
    for part in parts:
        seen.add(part)
    return seen


def guard(
    problem: Problem, plan: Plan, progress: Progress, seen: Look, scores: dict[str, float]
) -> tuple[list[str], str]:
    """ "collapsed" when one class swallows the unlabelled side although the labelled side does not look like that,
    and the label-free score has fallen; or when that score has fallen below half of the best."""
    if progress.round == 0 or not seen.sites:
        return [], "ok"
    share = float(seen.counts.max()) / seen.sites
    counts = problem.labelled.counts(len(problem.schema))
    usual = float(counts.max()) / max(int(counts.sum()), 1)
    score, (best, top) = scores[SELECTION_SCORE], best_of(progress)
    swallowed = share > plan.collapse_share and usual <= plan.collapse_share and score < best
    if not swallowed and not score < best / 2:
        return [], "ok"
    why = f"one class took {share:.0%} of the labels" if swallowed else f"the label-free score fell to {score:.3f}"
    return [
        f"collapsed in round {progress.round}: {why} (best {best:.3f} in round {top}); "
        f"round {progress.best_round} is kept"
    ], "collapsed"


def best_of(progress: Progress) -> tuple[float, int]:
    """The guard's best score so far and the first round that has it, whatever score a round is kept by."""
    found = [(record.scores[SELECTION_SCORE], -record.round) for record in progress.records]
    best, number = max(found, default=(progress.best_score, -progress.best_round))
    return best, -number


def can_starve(method: Method) -> bool:
    """Whether a round without trusted labels would change nothing."""
    return not method.loss.reads_untrusted and method.rounds != 0


def judge(parts: Iterable[Labelled], truth: Truth | None, classes: int) -> Evaluation | None:
    """Evaluation against hidden labels, if there are any."""
    return None if truth is None or not len(truth) else evaluate(parts, truth, classes)


def judge_samples(
    samples: Samples | None, method: Method, plan: Plan, progress: Progress, classes: int
) -> Evaluation | None:
    """Evaluation on a labelled test set, if there is one."""
    if samples is None or not len(samples):
        return None
    return judge(labelled_parts(samples, method, plan, progress, progress.round), samples.truth, classes)
