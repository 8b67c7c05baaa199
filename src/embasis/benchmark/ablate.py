"""The parts of em_basis, each with the change that takes it away or adds it, and the runs that say what it is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from embasis.benchmark.ablation_table import PLAIN, Part, run_name
from embasis.benchmark.compare import Outcome, Variant, run_variants
from embasis.config import Config
from embasis.errors import ConfigError, lookup, quoted, require

PARTS: Mapping[str, Part] = {
    "centring": Part("features of both sides are standardised before EM", {"labeller.mixture.centring": "none"}),
    "stage1": Part(
        "the source network proposes the first basis by terms of its own", {"labeller.start": "StageOne"}, adds=True
    ),
    "em": Part(
        "the basis follows the rows of both sides, not the labelled class means alone",
        {"labeller.mixture.iterations": 0},
    ),
    "joint": Part("labels and the network guide EM, not features alone", {"labeller.mixture.guided": False}),
    "head": Part(
        "a learned head gives each component its class probabilities, not counts", {"labeller.head": "CountHead"}
    ),
    "variance": Part(
        "the head is also to give low variance and all classes", {"labeller.head.variance_weight": 0.1}, adds=True
    ),
    "selection": Part("each class has a threshold of its own; without: one for all", {"selector.selects": "all"}),
    "weights": Part(
        "trusted labels weigh by their inverse variance", {"selector.weights": "inverse_variance"}, adds=True
    ),
    "draw": Part(
        "pseudo-labels are drawn from their distribution, not its mode", {"selector.labels": "draw"}, adds=True
    ),
    "recalibration": Part(
        "probabilities are fitted to a witness that no round has taught", {"recalibration": "none"}, needs="power"
    ),
    "evidence": Part("the network's own prediction enters the label distribution", {"labeller.fusion.weight": 0.0}),
    "temper": Part(
        "the network's prediction is softened until no surer than the basis", {"labeller.fusion.soften": False}
    ),
    "shares": Part(
        "class shares of the unlabelled side are estimated",
        {"labeller.fusion.class_priors": "labelled"},
        needs="shares",
    ),
    "basis": Part("all of it; without: class-balanced self-training", {}, method="cbst"),
}
"""By the name that --only takes."""


def chosen(names: Sequence[str] | None) -> dict[str, Part]:
    """The parts of these names, or all."""
    found = {name: lookup(PARTS, name, "part") for name in (PARTS if names is None else names)}
    require(found, "ablate needs at least one part", ConfigError)
    return found


def ablate(
    dataset: str, parts: Mapping[str, Part], seeds: Sequence[int], config: Config, root: str | None = None
) -> Iterator[Outcome]:
    """The default, then one part changed at a time, on every pair with every seed; what is given holds for all."""
    name = config.method.get("name", PLAIN)
    require(name == PLAIN, f"ablate is about {PLAIN}; method.name must be left out, got {quoted(name)}", ConfigError)
    changed = [Variant(run_name(name, part), part.method, part.changes, part.needs) for name, part in parts.items()]
    yield from run_variants(dataset, [Variant(PLAIN, PLAIN), *changed], seeds, config, root)
