"""The parts of em_basis, each with the change that takes it away or adds it, and the runs that say what it is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from embasis.benchmark.ablation_table import DEFAULT_RUNS, AblatedPart, run_name
from embasis.benchmark.compare import Outcome, Variant, run_variants
from embasis.config import Config
from embasis.errors import ConfigError, lookup, quoted, require

ABLATED_PARTS: Mapping[str, AblatedPart] = {
    "centring": AblatedPart("features of both sides are standardised before EM", {"labeller.mixture.centring": "none"}),
    "stage1": AblatedPart(
        "the source network proposes the first basis by terms of its own", {"labeller.start": "StageOne"}, adds=True
    ),
    "em": AblatedPart(
        "the basis follows the rows of both sides, not the labelled class means alone",
        {"labeller.mixture.iterations": 0},
    ),
    "joint": AblatedPart("labels and the network guide EM, not features alone", {"labeller.mixture.guided": False}),
    "head": AblatedPart(
        "a learned head gives each component its class probabilities, not counts", {"labeller.head": "CountHead"}
    ),
    "variance": AblatedPart(
        "the head is also to give low variance and all classes", {"labeller.head.variance_weight": 0.1}, adds=True
    ),
    "selection": AblatedPart(
        "each class has a threshold of its own; without: one for all", {"selector.selects": "all"}
    ),
    "weights": AblatedPart(
        "trusted labels weigh by their inverse variance", {"selector.weights": "inverse_variance"}, adds=True
    ),
    "draw": AblatedPart(
        "pseudo-labels are drawn from their distribution, not its mode", {"selector.labels": "draw"}, adds=True
    ),
    "recalibration": AblatedPart(
        "probabilities are fitted to a witness that no round has taught", {"recalibration": "none"}, needs="power"
    ),
    "evidence": AblatedPart(
        "the network's own prediction enters the label distribution", {"labeller.fusion.weight": 0.0}
    ),
    "temper": AblatedPart(
        "the network's prediction is softened until no surer than the basis", {"labeller.fusion.soften": False}
    ),
    "shares": AblatedPart(
        "class shares of the unlabelled side are estimated",
        {"labeller.fusion.class_priors": "labelled"},
        needs="shares",
    ),
    "basis": AblatedPart("all of it; without: class-balanced self-training", {}, method="cbst"),
}
"""By the name that --only takes."""


def select_parts(names: Sequence[str] | None) -> dict[str, AblatedPart]:
    """The parts of these names, or all."""
    found = {name: lookup(ABLATED_PARTS, name, "part") for name in (ABLATED_PARTS if names is None else names)}
    require(found, "ablate needs at least one part", ConfigError)
    return found


def run_ablation(
    dataset: str, parts: Mapping[str, AblatedPart], seeds: Sequence[int], config: Config, root: str | None = None
) -> Iterator[Outcome]:
    """The default, then one part changed at a time, on every pair with every seed; what is given holds for all."""
    name = config.method.get("name", DEFAULT_RUNS)
    require(
        name == DEFAULT_RUNS,
        f"ablate is about {DEFAULT_RUNS}; method.name must be left out, got {quoted(name)}",
        ConfigError,
    )
    changed = [Variant(run_name(name, part), part.method, part.changes, part.needs) for name, part in parts.items()]
    yield from run_variants(dataset, [Variant(DEFAULT_RUNS, DEFAULT_RUNS), *changed], seeds, config, root)
