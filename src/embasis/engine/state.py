"""What a run is given (`TrainSetup`), and where it stands (`TrainState`): all that is needed to go on from any step as
if nothing had happened.

`TrainState` is the one mutable value of a run. Two places write it: each step of training moves the cursor (train.py),
and the end of a round takes over what the round has computed (`TrainState.after_round`).

Randomness is a function of (seed, purpose, round, epoch, step or sample id), so the cursor is the position of all
generators.

| tensors | meaning |
| --- | --- |
| network/…, optimiser/… | weights and buffers; the optimiser's state, lists and numbers included; with an aligner
  each of its groups of weights has an optimiser, optimiser/group/… |
| extra/… | the modules of the aligner |
| restyle/… | what the restyler has learned |
| labeller/…, selector/… | the basis, the head, thresholds |
| pseudo/label, weight, target | what this round trains on |
| pseudo/counts | the same where rows have grids: trusted sites by row and class; the labels are in the label store |
| labels | the last round's labels, of rows with one site each |
| source/network/…, source/labeller/… | the source model, while a guard may bring it back (harm.py) |
| best/network/…, best/labeller/…, best/selector/…, best/extra/… | the best round by the label-free score: for the
  collapse guard, and for the end of a run that is to keep its best round |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from embasis.errors import CorruptError, require
from embasis.types import (
    LabelStore,
    Method,
    Plan,
    Problem,
    PseudoLabels,
    RoundRecord,
    Samples,
    State,
    TrainingTargets,
)

COUNTERS = ("round", "epoch", "step", "loss_sum", "loss_count", "status", "best_round")
"""Fields of a run's state that a checkpoint stores as they are."""
BROUGHT_BACK = ("collapsed", "source_kept")
"""What a round's status is where an earlier model stands in the place of its own."""
PLAIN = ""
"""The name of the one group of weights of training without an aligner: the whole network."""


@dataclass(frozen=True, eq=False)
class TrainSetup:
    """What stays the same throughout a run."""

    problem: Problem
    """without the labelled rows that are held out"""
    held_out: Samples | None
    """labelled rows that no training sees; None = there are to be none"""
    method: Method
    plan: Plan
    store: LabelStore
    """keeps the labels of rows with many sites between rounds"""

    @property
    def classes(self) -> int:
        """How many there are."""
        return len(self.problem.schema)

    @property
    def last_round(self) -> int:
        """The number of the last round, if nothing ends the run before; 0 without unlabelled rows."""
        return find_last_round(self.problem, self.method, self.plan)


def find_last_round(problem: Problem, method: Method, plan: Plan) -> int:
    """The number of the last round, if nothing ends the run before; 0 without unlabelled rows."""
    if not len(problem.unlabelled):
        return 0
    return plan.rounds if method.rounds is None else min(plan.rounds, method.rounds)


class LabelModel(Protocol):
    """What labels rows and selects among them; a `TrainState` is one, too."""

    @property
    def network(self) -> nn.Module:
        """Gives features and scores."""

    @property
    def labeller(self) -> State:
        """What the labeller has learned."""

    @property
    def selector(self) -> State:
        """What the selector has learned: its thresholds."""


@dataclass(frozen=True, eq=False)
class LearnedModel:
    """What a round has learned; the selector has learned nothing before labels have been selected."""

    network: nn.Module
    labeller: State
    selector: State = field(default_factory=dict)


@dataclass
class TrainState:
    """Where a run stands."""

    network: nn.Module
    round: int = 0
    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    status: str = "running"
    """"running", "finished", "no_change", "source_kept", "collapsed"."""
    best_round: int = 0
    best_score: float = float("-inf")
    kept_round: int | None = None
    """After the end: the round whose model was brought back because it was chosen; None = the last one's is here."""
    labeller: State = field(default_factory=dict)
    selector: State = field(default_factory=dict)
    pseudo: TrainingTargets | None = None
    labels: Tensor | None = None
    counts: Tensor | None = None
    """Restored with a run whose labels are in a label store, until they are taken from there."""
    best: dict[str, Tensor] = field(default_factory=dict)
    source: dict[str, Tensor] = field(default_factory=dict)
    """The source model's network and labeller, as long as they may be brought back."""
    optimisers: dict[str, torch.optim.Optimizer] = field(default_factory=dict)
    """One for each group of weights, by name; without an aligner one for the network, PLAIN."""
    restored_optimisers: dict[str, dict[int, Any]] = field(default_factory=dict)
    extra: nn.ModuleDict | None = None
    """The modules of the aligner, from the round on that it begins in."""
    restored_extra: dict[str, Tensor] = field(default_factory=dict)
    restyle: State = field(default_factory=dict)
    """What the restyler has learned, wholly or up to now."""
    alignment_sums: dict[str, list[float]] = field(default_factory=dict)
    """Sum and count of each number that the aligner has noted in this round."""
    records: list[RoundRecord] = field(default_factory=list)

    def at_start(self) -> bool:
        """Whether nothing has been done yet."""
        return (self.round, self.epoch, self.step) == (0, 0, 0) and self.status == "running"

    @property
    def model_round(self) -> int:
        """The round whose model is here, with its thresholds."""
        return max(self.round - 1, 0) if self.kept_round is None else self.kept_round

    @property
    def final_record(self) -> RoundRecord:
        """The record of what is here."""
        return self.records[self.model_round]

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, detached."""
        named = add_prefix("network", self.network.state_dict())
        extra = self.restored_extra if self.extra is None else self.extra.state_dict()
        for prefix, values in (
            ("labeller", self.labeller), ("selector", self.selector), ("best", self.best), ("source", self.source),
            ("extra", extra), ("restyle", self.restyle),
        ):  # fmt: skip
            named.update(add_prefix(prefix, values))
        if self.pseudo is not None:
            named.update(add_prefix("pseudo", self.pseudo.tensors()))
        elif self.counts is not None:
            named["pseudo/counts"] = self.counts
        if self.labels is not None:
            named["labels"] = self.labels
        named.update({name: value for name, value in self._optimiser().items() if isinstance(value, Tensor)})
        return {name: value.detach() for name, value in named.items()}

    def facts(self) -> dict[str, Any]:
        """All numbers and words; records are left to the caller, who knows how to write them."""
        return {
            **{name: getattr(self, name) for name in COUNTERS},
            "best_score": None if self.best_score == float("-inf") else self.best_score,
            "kept": self.kept_round,
            "optimiser": {name: value for name, value in self._optimiser().items() if not isinstance(value, Tensor)},
            **({"alignment_sums": self.alignment_sums} if self.alignment_sums else {}),
        }

    def _optimiser(self) -> dict[str, Any]:
        """The state of all optimisers, flat; what was restored and not yet taken up counts."""
        flat: dict[str, Any] = {}
        states = {name: optimiser.state_dict()["state"] for name, optimiser in self.optimisers.items()}
        for name, state in (states or self.restored_optimisers).items():
            flatten(f"optimiser/{name}" if name else "optimiser", state, flat)
        return flat

    @classmethod
    def restore(
        cls, network: nn.Module, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], records: list[RoundRecord]
    ) -> TrainState:
        """The run as `tensors` and `facts` left it."""
        try:
            network.load_state_dict(strip_prefix("network", tensors))
            leaves = strip_prefix("optimiser", tensors) | strip_prefix("optimiser", facts["optimiser"])
            score, sums = facts["best_score"], facts.get("alignment_sums", {})
            pseudo = strip_prefix("pseudo", tensors)
            return cls(
                network,
                round=int(facts["round"]),
                epoch=int(facts["epoch"]),
                step=int(facts["step"]),
                loss_sum=float(facts["loss_sum"]),
                loss_count=int(facts["loss_count"]),
                status=str(facts["status"]),
                best_round=int(facts["best_round"]),
                best_score=float("-inf") if score is None else float(score),
                kept_round=None if facts.get("kept") is None else int(facts["kept"]),
                labeller=strip_prefix("labeller", tensors),
                selector=strip_prefix("selector", tensors),
                pseudo=None
                if "label" not in pseudo
                else PseudoLabels(pseudo["label"], pseudo["weight"], pseudo.get("target")),
                counts=pseudo.get("counts"),
                labels=tensors.get("labels"),
                best=strip_prefix("best", tensors),
                source=strip_prefix("source", tensors),
                restored_optimisers=group_optimisers(unflatten(leaves)),
                restored_extra=strip_prefix("extra", tensors),
                restyle=strip_prefix("restyle", tensors),
                alignment_sums={name: [float(part) for part in pair] for name, pair in sums.items()},
                records=records,
            )
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CorruptError(f"the saved progress does not fit this run: {error}") from error

    def after_round(
        self,
        setup: TrainSetup,
        learned: LearnedModel,
        targets: tuple[TrainingTargets, Tensor | None],
        record: RoundRecord,
    ) -> bool:
        """Take over what a round has computed and move the cursor to the next one; whether this round would be kept
        if it were the last one. `targets`: what the next round trains on, and the labels that it is compared with."""
        plan = setup.plan
        self.labeller, self.selector = learned.labeller, learned.selector
        self.pseudo, self.labels = targets
        if record.status not in BROUGHT_BACK:
            self.remember_best(record.scores[plan.score_to_keep], later=plan.keeps_best)
        self.records.append(record)
        if record.status != "ok":
            self.status = record.status
        elif self.round >= setup.last_round:
            self.status = "finished"
        is_kept = not plan.keeps_best or record.status in BROUGHT_BACK or self.best_round == self.round
        if self.status in ("finished", "no_change") and not is_kept:
            self.keep_best()
        self.round, self.epoch, self.step = self.round + 1, 0, 0
        self.loss_sum, self.loss_count, self.optimisers, self.alignment_sums = 0.0, 0, {}, {}
        if setup.method.align is None or not setup.method.align.acts(self.round):
            self.extra = None
        return is_kept

    def remember_best(self, score: float, later: bool = False) -> None:
        """Keep this round's network, labeller and selector if its score is the best so far; of equal ones the first,
        or the `later` one."""
        if score > self.best_score or (later and score == self.best_score):
            self.best_score, self.best_round = score, self.round
            self.best = {
                name: value.detach().clone()
                for name, value in self.tensors().items()
                if name.startswith(("network/", "labeller/", "selector/", "extra/"))
            }

    def remember_source(self) -> None:
        """Keep the network and the labeller of round 0, so that they can be brought back."""
        named = add_prefix("network", self.network.state_dict()) | add_prefix("labeller", self.labeller)
        self.source = {name: value.detach().clone() for name, value in named.items()}

    def restore_source(self) -> LearnedModel:
        """The source model; the network gets its weights back, in place."""
        require(self.source, "there is no source model to go back to", CorruptError)
        self.network.load_state_dict(strip_prefix("network", self.source))
        return LearnedModel(self.network, strip_prefix("labeller", self.source))

    def keep_best(self) -> None:
        """The end of a run whose last round is not the best one."""
        best = self.restore_best()
        self.labeller, self.selector, self.kept_round = best.labeller, best.selector, self.best_round

    def restore_best(self) -> LearnedModel:
        """The model of the best round; the network gets its weights back, in place."""
        require(self.best, "there is no round to roll back to", CorruptError)
        self.network.load_state_dict(strip_prefix("network", self.best))
        if self.extra is not None and (extra := strip_prefix("extra", self.best)):
            self.extra.load_state_dict(extra)
        return LearnedModel(self.network, strip_prefix("labeller", self.best), strip_prefix("selector", self.best))


def group_optimisers(tree: Mapping[str, Any]) -> dict[str, dict[int, Any]]:
    """Restored states of optimisers by group: that of PLAIN stands without a name, its keys are numbers of weights."""
    groups = {PLAIN: tree} if all(key.isdigit() for key in tree) else tree
    return {name: {int(key): value for key, value in state.items()} for name, state in groups.items() if state}


def add_prefix(prefix: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values, each under prefix/name."""
    return {f"{prefix}/{name}": value for name, value in values.items()}


def strip_prefix(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those under prefix/name, each under name."""
    start = prefix + "/"
    return {name[len(start) :]: value for name, value in values.items() if name.startswith(start)}


def flatten(path: str, tree: Any, out: dict[str, Any]) -> None:
    """Nested dicts and lists as path -> leaf; a list's length is a leaf of its own, so that empty lists survive."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            flatten(f"{path}/{key}", value, out)
    elif isinstance(tree, list):
        out[f"{path}/#"] = len(tree)
        for index, value in enumerate(tree):
            flatten(f"{path}/{index}", value, out)
    else:
        out[path] = tree


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The tree that `flatten` made flat."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, leaf = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return {key: _lists(value) for key, value in tree.items()}


def _lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if "#" in node:
        return [_lists(node[str(index)]) for index in range(int(node["#"]))]
    return {key: _lists(value) for key, value in node.items()}
