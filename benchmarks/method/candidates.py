"""Everything that is run, in five stages: methods and peers; alignment methods; em_basis after an aligned first round;
one change at a time from the default; a full factorial.

No candidate needs `plan.holdout`: all labelled rows are trained on. Settings are never chosen by the figures of a run;
they show what one fixed default, the same for all sets, gains or loses by each choice.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.method.peers import PEERS
from benchmarks.method.sets import StudySet
from embasis import config
from embasis.config import Config, bind_entry
from embasis.errors import ConfigError, join_names, require
from embasis.methods import ALIGNMENT, METHODS, SELF_TRAINING
from embasis.methods.parts import replace_parts
from embasis.types import Plan

OF_PARTS = ("labeller.", "selector.")
DEFAULT, SOURCE = "em_basis", "source_only"
STAGES = ("methods", "alignment", "starts", "variants", "factorial")
LONGER = "source_only for longer"
"""The source model with as many passes as all rounds of the others have."""

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "joint false": ("labeller.mixture.guided=false",),
    "recalibration none": ("method.recalibration=none",),
    "no tempering": ("labeller.fusion.soften=false",),
    "evidence 0 (basis alone)": ("labeller.fusion.weight=0",),
    "evidence 2": ("labeller.fusion.weight=2",),
    "no neighbours": ("labeller.neighbours.share=0",),
    "neighbours one half": ("labeller.neighbours.share=0.5",),
    "no EM": ("method.iterations=0",),
    "per_class 1": ("method.components_per_class=1",),
    "per_class 2": ("method.components_per_class=2",),
    "per_class 5": ("method.components_per_class=5",),
    "per_class 8": ("method.components_per_class=8",),
    "sharpness 10": ("method.sharpness=10",),
    "sharpness 20": ("method.sharpness=20",),
    "sharpness 40": ("method.sharpness=40",),
    "perplexity 2": ("labeller.mixture.perplexity=2",),
    "perplexity 5": ("labeller.mixture.perplexity=5",),
    "kernel gaussian": ("labeller.mixture.kernel=gaussian",),
    "centring joint": ("labeller.mixture.centring=joint",),
    "centring none": ("labeller.mixture.centring=none",),
    "standardise joint": ("standardise=joint", "labeller.mixture.centring=joint"),
    "start stage1": ("labeller.start=StageOne",),
    "head counts": ("labeller.head=CountHead",),
    "variance_weight 0.1": ("labeller.head.variance_weight=0.1",),
    "variance_weight 1": ("labeller.head.variance_weight=1.0",),
    "sigma 0.3 with 64 draws": ("labeller.head.sigma=0.3", "labeller.head.draws=64"),
    "ranked by between": ("labeller.rank_by=between",),
    "labels draw": ("selector.labels=draw",),
    "labels draw at temperature 0.3": ("selector.labels=draw", "selector.temperature=0.3"),
    "labels soft": ("selector.labels=soft",),
    "weights inverse_variance": ("selector.weights=inverse_variance",),
    "cap 0.5 by steps of 0.05": ("method.keep_max=0.5", "method.keep_step=0.05"),
    "cap 0.8 by steps of 0.1": ("method.keep_max=0.8", "method.keep_step=0.1"),
    "cap 1 by steps of 0.15": ("method.keep_max=1.0", "method.keep_step=0.15"),
    "carry the basis": ("labeller.start=WarmStart",),
}
"""One change at a time from the default, of settings or, where a word begins with `labeller.` or `selector.`, of parts;
no name has a comma, because --only is a list with commas."""

FACTORS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "joint": {"off": ("labeller.mixture.guided=false",), "on": ("labeller.mixture.guided=true",)},
    "temper": {"off": ("labeller.fusion.soften=false",), "on": ("labeller.fusion.soften=true",)},
    "evidence": {"0": ("labeller.fusion.weight=0",), "1": ("labeller.fusion.weight=1",)},
    "per_class": {
        "1": ("method.components_per_class=1",),
        "3": ("method.components_per_class=3",),
        "8": ("method.components_per_class=8",),
    },
    # Six rounds of 0.05 end at 0.5 whatever the cap: a larger one is seen only with larger steps.
    "cap": {
        "0.5": ("method.keep_max=0.5", "method.keep_step=0.05"),
        "expected": ("method.keep_max=0", "method.keep_step=0.1"),
    },
}
"""The settings that matter most, with their levels."""


@dataclass(frozen=True)
class Candidate:
    """One thing to run under a name of its own."""

    name: str
    stage: str
    method: str = DEFAULT
    """Of METHODS, or "peer"."""
    words: tuple[str, ...] = ()
    levels: tuple[str, ...] = field(default=())
    """Of the factors, in their order; of cells of the factorial alone."""

    def config(self, each: StudySet, root: str | None) -> Config:
        """The settings on a set."""
        settings = [word for word in self.words if not word.startswith(OF_PARTS)]
        longer = [f"plan.source_epochs={each.all_epochs}"] if self.name == LONGER else []
        words = (*each.settings(root), *longer, *settings, f"method.name={self.method}")
        return config.load(None, words, top={"parts": self.parts}, preset=each.preset)

    @property
    def alignment(self) -> str:
        """The alignment method that it needs, "" for none."""
        named = [word.partition("=")[2] for word in self.words if word.startswith("align.name=")]
        return self.method if self.method in ALIGNMENT else "".join(named)

    @property
    def parts(self) -> dict[str, Any]:
        """What is changed of the method's parts."""
        changes = [word.partition("=") for word in self.words if word.startswith(OF_PARTS)]
        return {path: config.parse_value(text) for path, _, text in changes}

    @functools.cache  # noqa: B019 — a study has some hundred of them
    def mark(self, each: StudySet, root: str | None) -> str:
        """A hash of all settings, defaults included: a row is up to date while it is the same."""
        facts: Any = (each.data_mark, self.name, self.words)
        if self.method != "peer":
            made = self.config(each, root)
            plan = {**{key: value.default for key, value in Plan.__dataclass_fields__.items()}, **made.plan}
            network = {key: str(value).rpartition("/")[2] for key, value in made.network.items()}
            own = bind_entry("method", self.method, made.method)
            method = repr(replace_parts(METHODS[self.method](2, **own), made.parts))
            aligned = repr(ALIGNMENT[self.alignment](2)) if self.alignment and self.method not in ALIGNMENT else ""
            facts = (each.data_mark, method, plan, network, made.images, made.maps, made.standardise, aligned)
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def cells() -> list[Candidate]:
    """The cells of the factorial; where the network is not heard (evidence 0) tempering it does nothing: one cell."""
    found = []
    for levels in itertools.product(*FACTORS.values()):
        named = dict(zip(FACTORS, levels, strict=True))
        if named["evidence"] == "0" and named["temper"] == "off":
            continue
        words = tuple(word for factor, level in named.items() for word in FACTORS[factor][level])
        found.append(Candidate(cell_name(levels), "factorial", words=words, levels=levels))
    return found


def cell_name(levels: Sequence[str]) -> str:
    """A cell's name; those that are the same run have the same name."""
    named = dict(zip(FACTORS, levels, strict=True))
    if named["evidence"] == "0":
        named["temper"] = "on"
    return " · ".join(f"{factor} {level}" for factor, level in named.items())


def all_candidates() -> list[Candidate]:
    """Everything there is, stage after stage."""
    methods = [Candidate(name, "methods", name) for name in SELF_TRAINING]
    peers = [Candidate(name, "methods", "peer", peer.words) for name, peer in PEERS.items()]
    variants = [Candidate(name, "variants", words=words) for name, words in VARIANTS.items()]
    aligned = [Candidate(LONGER, "alignment", SOURCE), *(Candidate(name, "alignment", name) for name in ALIGNMENT)]
    starts = [Candidate(f"{DEFAULT} after {name}", "starts", words=(f"align.name={name}",)) for name in ALIGNMENT]
    return [*methods, *peers, *aligned, *starts, *variants, *cells()]


def candidates_of(each: StudySet, stage: str, only: Sequence[str]) -> list[Candidate]:
    """What is run on a set in a stage: what `only` names, else all that is meant for the set."""
    known_names = [candidate.name for candidate in all_candidates()]
    for name in only:
        require(name in known_names, f"unknown variant {name!r}; known: {join_names(known_names)}", ConfigError)
    found = [candidate for candidate in all_candidates() if candidate.stage == stage]
    found = [candidate for candidate in found if each.peers or candidate.method != "peer"]
    found = [candidate for candidate in found if each.all_epochs or stage not in ("alignment", "starts")]
    return [candidate for candidate in found if not only or candidate.name in only]
