"""Where a run stands: everything that is needed to go on from any step as if nothing had happened.

Randomness is a function of (seed, purpose, round, epoch, step, id), so the position of all generators is the cursor.

| tensors | meaning |
| --- | --- |
| network/…, optimiser/… | weights and buffers; the optimiser's state, lists and numbers included |
| labeller/…, selector/… | the basis, the head, thresholds |
| pseudo/label, weight, target | what this round trains on |
| pseudo/counts | the same where rows have grids: trusted sites by row and class; the labels are on the shelf |
| labels | the last round's labels, of rows with one site each |
| best/network/…, best/labeller/…, best/selector/… | the best round by the label-free score: for the collapse guard,
  and for the end of a run that is to keep its best round |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from embasis.engine.verdict import MapLabels
from embasis.errors import CorruptError, require
from embasis.types import PseudoLabels, RoundRecord, State

Pseudo = PseudoLabels | MapLabels
"""What a round trains on."""


@dataclass
class Progress:
    """The one mutable value of a run."""

    network: nn.Module
    round: int = 0
    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    status: str = "running"
    """"running", "finished", "no_change", "collapsed"."""
    best_round: int = 0
    best_score: float = float("-inf")
    kept: int | None = None
    """After the end: the round whose model was brought back because it was chosen; None = the last one's is here."""
    labeller: State = field(default_factory=dict)
    selector: State = field(default_factory=dict)
    pseudo: Pseudo | None = None
    labels: Tensor | None = None
    counts: Tensor | None = None
    """Restored with a run whose labels are on a shelf, until they are taken from there."""
    best: dict[str, Tensor] = field(default_factory=dict)
    optimiser: torch.optim.Optimizer | None = None
    restored_optimiser: dict[int, Any] | None = None
    records: list[RoundRecord] = field(default_factory=list)

    def at_start(self) -> bool:
        """Whether nothing has been done yet."""
        return (self.round, self.epoch, self.step) == (0, 0, 0) and self.status == "running"

    @property
    def judging(self) -> int:
        """The round whose model is here, with its thresholds."""
        return max(self.round - 1, 0) if self.kept is None else self.kept

    @property
    def outcome(self) -> RoundRecord:
        """The record of what is here."""
        return self.records[self.judging]

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, detached."""
        named = {**dict(prefixed("network", self.network.state_dict())), **dict(prefixed("labeller", self.labeller))}
        named.update(prefixed("selector", self.selector))
        named.update({f"best/{name}": value for name, value in self.best.items()})
        if isinstance(self.pseudo, PseudoLabels):
            named.update({"pseudo/label": self.pseudo.label, "pseudo/weight": self.pseudo.weight})
            if self.pseudo.target is not None:
                named["pseudo/target"] = self.pseudo.target
        counts = self.pseudo.counts if isinstance(self.pseudo, MapLabels) else self.counts
        if counts is not None:
            named["pseudo/counts"] = counts
        if self.labels is not None:
            named["labels"] = self.labels
        named.update({name: value for name, value in self._optimiser().items() if isinstance(value, Tensor)})
        return {name: value.detach() for name, value in named.items()}

    def facts(self) -> dict[str, Any]:
        """All numbers and words; records are left to the caller, who knows how to write them."""
        return {
            "round": self.round,
            "epoch": self.epoch,
            "step": self.step,
            "loss_sum": self.loss_sum,
            "loss_count": self.loss_count,
            "status": self.status,
            "best_round": self.best_round,
            "best_score": None if self.best_score == float("-inf") else self.best_score,
            "kept": self.kept,
            "optimiser": {name: value for name, value in self._optimiser().items() if not isinstance(value, Tensor)},
        }

    def _optimiser(self) -> dict[str, Any]:
        """The optimiser's state, flat; what was restored and not yet taken up counts."""
        flat: dict[str, Any] = {}
        state = self.restored_optimiser if self.optimiser is None else self.optimiser.state_dict()["state"]
        flatten("optimiser", state or {}, flat)
        return flat

    @classmethod
    def restore(
        cls, network: nn.Module, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], records: list[RoundRecord]
    ) -> Progress:
        """The run as `tensors` and `facts` left it."""
        try:
            network.load_state_dict(dict(below("network", tensors)))
            optimiser = unflatten({**dict(below("optimiser", tensors)), **dict(below("optimiser", facts["optimiser"]))})
            score = facts["best_score"]
            pseudo = dict(below("pseudo", tensors))
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
                kept=None if facts.get("kept") is None else int(facts["kept"]),
                labeller=dict(below("labeller", tensors)),
                selector=dict(below("selector", tensors)),
                pseudo=None
                if "label" not in pseudo
                else PseudoLabels(pseudo["label"], pseudo["weight"], pseudo.get("target")),
                counts=pseudo.get("counts"),
                labels=tensors.get("labels"),
                best=dict(below("best", tensors)),
                restored_optimiser={int(key): value for key, value in optimiser.items()} or None,
                records=records,
            )
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CorruptError(f"the saved progress does not fit this run: {error}") from error

    def remember_best(self, score: float, later: bool = False) -> None:
        """Keep this round's network, labeller and selector if its score is the best so far; of equal ones the first,
        or the `later` one."""
        if score > self.best_score or (later and score == self.best_score):
            self.best_score, self.best_round = score, self.round
            self.best = {
                name: value.detach().clone()
                for name, value in self.tensors().items()
                if name.startswith(("network/", "labeller/", "selector/"))
            }

    def keep_best(self) -> None:
        """The end of a run whose last round is not the best one."""
        self.roll_back()
        self.kept = self.best_round

    def roll_back(self) -> None:
        """The best round's network, labeller and selector again."""
        require(self.best, "there is no round to roll back to", CorruptError)
        self.network.load_state_dict(dict(below("network", self.best)))
        self.labeller = dict(below("labeller", self.best))
        self.selector = dict(below("selector", self.best))


def prefixed(prefix: str, values: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """prefix/name for each name."""
    return ((f"{prefix}/{name}", value) for name, value in values.items())


def below(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """name for each prefix/name."""
    start = prefix + "/"
    return ((name[len(start) :], value) for name, value in values.items() if name.startswith(start))


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
