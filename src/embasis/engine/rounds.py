"""The method, told once: train on the labelled side, then label, select, retrain, and judge — round after round.

`self_train` is a generator of records: logging, progress, early stop and checkpoints are code in the caller's loop.
`walk` is the same story with a pause after every training step, for callers that save or show progress.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from embasis.engine.domains import begin_scales, matched
from embasis.engine.evaluate import evaluate, join
from embasis.engine.extract import extract, label_chunk
from embasis.engine.progress import Progress
from embasis.engine.train import train_round
from embasis.engine.validate import SELECTION_SCORE, label_free_scores
from embasis.functional.metrics import class_counts
from embasis.networks.model import Network
from embasis.randomness import seeded
from embasis.types import (
    Evaluation,
    Features,
    LabelDistribution,
    Method,
    Plan,
    Problem,
    PseudoLabels,
    RoundRecord,
    Samples,
)


@dataclass(frozen=True, eq=False)
class Verdict:
    """The labels of the unlabelled side: what a round hands to the next one, and the last one to the user."""

    distribution: LabelDistribution
    pseudo: PseudoLabels
    scores: Tensor

    def rows(self, order: Tensor) -> Verdict:
        """These rows, in this order."""
        parts = self.distribution
        chosen = LabelDistribution(
            parts.mean[order], parts.between[order], parts.within[order], parts.uncertainty[order]
        )
        return Verdict(chosen, self.pseudo[order], self.scores[order])


@dataclass(frozen=True)
class Moment:
    """A pause: the run as it stands, and the record and labels if a round has just ended."""

    progress: Progress
    record: RoundRecord | None = None
    verdict: Verdict | None = None


def self_train(problem: Problem, network: nn.Module, method: Method, plan: Plan) -> Iterator[RoundRecord]:
    """One record for the source model (round 0) and one for each round of self-training; `network` is trained."""
    for moment in walk(problem, network, method, plan):
        if moment.record is not None:
            yield moment.record


def walk(
    problem: Problem, network: nn.Module, method: Method, plan: Plan, progress: Progress | None = None
) -> Iterator[Moment]:
    """The whole run from `progress` (or the start) on, with a pause after every step and every round."""
    progress = progress or begin(network, method, plan)
    last = plan.rounds if method.rounds is None else min(plan.rounds, method.rounds)
    last = last if len(problem.unlabelled) else 0
    if progress.at_start():
        begin_scales(progress.network, problem, plan)
    while progress.status == "running":
        for _ in train_round(problem, method, plan, progress):
            yield Moment(progress)
        record, verdict = close_round(problem, method, plan, progress)
        progress.records.append(record)
        if record.status != "ok":
            progress.status = record.status
        elif progress.round >= last:
            progress.status = "finished"
        progress.round, progress.epoch, progress.step = progress.round + 1, 0, 0
        progress.loss_sum, progress.loss_count, progress.optimiser = 0.0, 0, None
        yield Moment(progress, record, verdict)


def begin(network: nn.Module, method: Method, plan: Plan) -> Progress:
    """A run that has not done anything yet; the network gets its basis block if the method wants one."""
    if method.basis is not None and isinstance(network, Network):
        with seeded(plan.seed, "basis block"):
            network.add_basis(method.basis.components)
    return Progress(network)


def close_round(problem: Problem, method: Method, plan: Plan, progress: Progress) -> tuple[RoundRecord, Verdict]:
    """Features → label distribution → selection → record; the collapse guard has the last word."""
    labelled = extract(progress.network, problem.labelled, plan, labelled=True)
    unlabelled = extract(progress.network, problem.unlabelled, plan, labelled=False)
    unlabelled = matched(progress.network, labelled, unlabelled, problem, plan)
    start = dict(progress.labeller)
    block = getattr(progress.network, "basis", None)
    if block is not None and progress.round == 0:
        start["proposal"] = block.weight.detach().cpu().clone()
    progress.labeller = method.labeller.fit([*labelled, *unlabelled], start, plan.seed, progress.round)
    verdict = decide(unlabelled, method, plan, progress, len(problem.schema))
    scores = label_free_scores(verdict.distribution, unlabelled, labelled)
    notes, status = guard(problem, plan, progress, verdict, scores)
    if status == "ok" and len(verdict.pseudo) and not bool(verdict.pseudo.trusted.any()) and can_starve(method):
        status, notes = "no_change", [f"nothing was trusted after round {progress.round}; training stops"]
    changed = 1.0 if progress.labels is None else mean_of(progress.labels != verdict.distribution.label)
    progress.pseudo, progress.labels = verdict.pseudo, verdict.distribution.label
    if status == "collapsed":
        progress.roll_back()
        verdict = decide(
            extract(progress.network, problem.unlabelled, plan, False), method, plan, progress, len(problem.schema)
        )
        progress.pseudo, progress.labels = verdict.pseudo, verdict.distribution.label
    else:
        progress.remember_best(scores[SELECTION_SCORE])
    record = RoundRecord(
        round=progress.round,
        status=status,
        loss=progress.loss_sum / max(progress.loss_count, 1),
        unlabelled=len(problem.unlabelled),
        trusted=int(verdict.pseudo.trusted.sum()),
        class_counts=counts(verdict.distribution.label, len(problem.schema)),
        trusted_counts=counts(verdict.pseudo.label, len(problem.schema)),
        changed=changed,
        scores=scores,
        facts={name: float(value) for name, value in progress.labeller.items() if value.ndim == 0},
        evaluation=judge(verdict, problem.hidden),
        test=judge_samples(problem.test, method, plan, progress),
        notes=tuple(notes),
    )
    return record, verdict


def decide(unlabelled: list[Features], method: Method, plan: Plan, progress: Progress, classes: int) -> Verdict:
    """Label all unlabelled sites, set the thresholds, select."""
    if not unlabelled:
        empty = torch.empty(0, classes)
        nothing = PseudoLabels(torch.empty(0, dtype=torch.int64), torch.empty(0))
        verdict = Verdict(LabelDistribution(empty, empty, empty, torch.empty(0)), nothing, empty)
        progress.selector = method.selector.fit([verdict.distribution], progress.round)
        return verdict
    parts = [label_chunk(method.labeller, chunk, progress.labeller) for chunk in unlabelled]
    progress.selector = method.selector.fit(parts, progress.round)
    distribution = join(parts)
    ids = torch.cat([chunk.ids for chunk in unlabelled])
    pseudo = method.selector.select(distribution, progress.selector, ids, plan.seed, progress.round)
    return Verdict(distribution, pseudo, torch.cat([chunk.scores for chunk in unlabelled]))


def verdict_on(samples: Samples, method: Method, plan: Plan, progress: Progress, round_number: int) -> Verdict:
    """Labels of any samples of the unlabelled side's kind, by what that round has learned; nothing is fitted."""
    chunks = extract(progress.network, samples, plan, labelled=False)
    parts = [label_chunk(method.labeller, chunk, progress.labeller) for chunk in chunks]
    distribution, ids = join(parts), torch.cat([chunk.ids for chunk in chunks])
    pseudo = method.selector.select(distribution, progress.selector, ids, plan.seed, round_number)
    return Verdict(distribution, pseudo, torch.cat([chunk.scores for chunk in chunks]))


def guard(
    problem: Problem, plan: Plan, progress: Progress, verdict: Verdict, scores: dict[str, float]
) -> tuple[list[str], str]:
    """ "collapsed" when one class swallows the unlabelled side although the labelled side does not look like that,
    and the label-free score has fallen; or when that score has fallen below half of the best."""
    if progress.round == 0 or not len(verdict.pseudo):
        return [], "ok"
    share = float(class_counts(verdict.distribution.label, len(problem.schema)).max()) / len(verdict.pseudo)
    usual = float(class_counts(problem.labelled.labels, len(problem.schema)).max()) / len(problem.labelled)
    score, best = scores[SELECTION_SCORE], progress.best_score
    swallowed = share > plan.collapse_share and usual <= plan.collapse_share and score < best
    if not swallowed and not score < best / 2:
        return [], "ok"
    why = f"one class took {share:.0%} of the labels" if swallowed else f"the label-free score fell to {score:.3f}"
    return [
        f"collapsed in round {progress.round}: {why} (best {best:.3f} in round {progress.best_round}); "
        f"round {progress.best_round} is kept"
    ], "collapsed"


def can_starve(method: Method) -> bool:
    """Whether a round without trusted labels would change nothing."""
    return not method.loss.reads_untrusted and method.rounds != 0


def judge(verdict: Verdict, truth: Tensor | None) -> Evaluation | None:
    """Evaluation against hidden labels, if there are any."""
    if truth is None or not len(truth):
        return None
    return evaluate(verdict.distribution, verdict.scores, verdict.pseudo.trusted, truth)


def judge_samples(samples: Samples | None, method: Method, plan: Plan, progress: Progress) -> Evaluation | None:
    """Evaluation on a labelled test set, if there is one."""
    if samples is None or not len(samples):
        return None
    return judge(verdict_on(samples, method, plan, progress, progress.round), samples.labels)


def counts(label: Tensor, classes: int) -> tuple[int, ...]:
    """Rows of each class."""
    return tuple(int(value) for value in class_counts(label, classes))


def mean_of(flags: Tensor) -> float:
    """Share of true flags; 0 without any."""
    return float(flags.double().mean()) if len(flags) else 0.0
