"""Probabilities of labels that say how often they are right.

In round 0 some unlabelled sites get reference labels: the class of the nearest labelled site, by the features before
self-training. Each round fits one inverse temperature, which makes the labels' probabilities true of these reference
labels. They are kept: later features have learned the labels that are to be checked, and believe them. But where
self-training helps, the first features are too modest. So where features are learned, a later round asks both: the
reference labels of round 0, and those by its own features (decision 0036).

| name here | stored as | shape | meaning |
| --- | --- | --- | --- |
| REFERENCE_ROWS | witness_rows | r | numbers of the unlabelled rows with reference labels, rising |
| REFERENCE_PLACES | witness_places | w | which of all sites of these rows, in order, rising |
| REFERENCE_LABELS | witness | w | the reference labels |
| INVERSE_TEMPERATURE | power | () | what the probabilities of labels are raised to |
| TEMPERATURE | temperature | () | one divided by it |
| EXPECTED_ACCURACY | expected_accuracy | () | the mean probability of those labels after that |
| SUPPORT | support | b 3 | reliability bins of those labels: sites, Σ probability, Σ agreeing with the reference |

method.recalibration = "weighted" takes labelled rows that are held out in place of reference labels, each
weighted by how much likelier the unlabelled side is to have it (holdout.py):
inverse temperature = argmin_b Σ_n w_n · −log softmax(b · log mean_n) at y_n.
Its bins count by these weights, scaled to the number of equal ones that would say as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from embasis.engine.features import FeatureSample, draw_in_shares, extract, join_features, sites_of_a_row, take_features
from embasis.engine.holdout import HeldOut, RoundFeatures
from embasis.engine.label_chunks import label_chunk
from embasis.engine.state import TrainSetup
from embasis.errors import ConfigError, require
from embasis.functional import calibration
from embasis.functional.calibration import (
    apply_inverse_temperature,
    confirmed_shares,
    fit_inverse_temperature,
    nearest_labels,
)
from embasis.functional.validation import effective_weights
from embasis.methods.em_basis.features import domain_statistics, prepare
from embasis.methods.em_basis.state import INVERSE_TEMPERATURE
from embasis.networks.network import has_fixed_features
from embasis.randomness import permutation, uniforms
from embasis.types import Features, Labeller, Method, Plan, Problem, State

REFERENCE_ROWS, REFERENCE_PLACES, REFERENCE_LABELS = "witness_rows", "witness_places", "witness"
TEMPERATURE, EXPECTED_ACCURACY, SUPPORT = "temperature", "expected_accuracy", "support"
"""Names of tensors in a labeller's state. They are stored with every run, so they stay."""
REFERENCE = (REFERENCE_ROWS, REFERENCE_PLACES, REFERENCE_LABELS)
FITTED = (INVERSE_TEMPERATURE, TEMPERATURE, EXPECTED_ACCURACY, SUPPORT)

ROWS, PICTURES, PLACES = 4096, 64, 256
"""The most rows with reference labels; pictures, where rows have many sites; sites of a picture."""
BANK = 16_384
"""The most labelled sites that reference labels are taken from."""
LEAST_REFERENCE = 20
"""With fewer reference labels nothing is calibrated."""


@dataclass(frozen=True, eq=False)
class CalibrationEvidence:
    """What the calibration of a labeller rests on."""

    by_reference: bool
    """by reference labels; else by held-out rows"""
    sites: int
    """how many there were of them; of held-out rows, the number of equal ones that would say as much"""
    expected_accuracy: float
    support: Tensor
    """(b, 3) reliability bins"""


def read_calibration(state: State) -> CalibrationEvidence | None:
    """What a labeller's state says of its calibration; None where nothing was calibrated."""
    if INVERSE_TEMPERATURE not in state:
        return None
    by_reference, bins = REFERENCE_LABELS in state, state[SUPPORT]
    sites = len(state[REFERENCE_LABELS]) if by_reference else round(float(bins[:, 0].sum()))
    return CalibrationEvidence(by_reference, sites, float(state[EXPECTED_ACCURACY]), bins)


def read_confirmed(state: State, label: Tensor, classes: int) -> Tensor | None:
    """(C) which share of the labels of each class reference labels confirm; None where there are too few of these.

    `label` are those of all unlabelled rows, with one site each."""
    if REFERENCE_LABELS not in state or len(state[REFERENCE_LABELS]) < LEAST_REFERENCE:
        return None
    return confirmed_shares(label[state[REFERENCE_ROWS]], state[REFERENCE_LABELS], classes)


def drop_reference(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by name or path/name without reference labels: those of other rows do not hold any more."""
    return {name: value for name, value in tensors.items() if name.rpartition("/")[2] not in REFERENCE}


def calibrate(setup: TrainSetup, network: nn.Module, fitted: State, before: State, features: RoundFeatures) -> State:
    """`fitted`, the new labeller's state, with the inverse temperature that makes its probabilities true.

    `before` is the state of the last round, from which the reference labels come."""
    state = {name: value for name, value in fitted.items() if name not in FITTED}
    labeller, kind = setup.method.labeller, setup.method.recalibration
    if kind == "none" or not features.unlabelled.chunks or not features.labelled.chunks:
        return state
    if kind == "weighted":
        return calibrate_by_holdout(labeller, state, features.held_out)
    reference, sites = reference_labels(setup, network, before, features)
    state, truth = {**state, **reference}, reference[REFERENCE_LABELS]
    if len(truth) < LEAST_REFERENCE:
        return state
    mean = torch.cat([label_chunk(labeller, part, state).mean for part in sites])
    if (renewed := renewed_labels(setup, network, before, features, sites)) is not None:
        mean, truth = torch.cat([mean, mean]), torch.cat([truth, renewed])
    fitted_temperature = temperature_state(fit_inverse_temperature(mean, truth))
    inverse_temperature = float(fitted_temperature[INVERSE_TEMPERATURE])
    confidence, label = apply_inverse_temperature(mean, mean, mean, inverse_temperature)[0].max(1)
    bins = calibration.reliability_bins(confidence, label == truth)
    return {**state, **fitted_temperature, EXPECTED_ACCURACY: confidence.double().mean(), SUPPORT: bins}


def reference_labels(
    setup: TrainSetup, network: nn.Module, before: State, features: RoundFeatures
) -> tuple[State, list[Features]]:
    """The reference labels, computed in round 0 and taken over in later ones; and their sites as the network sees them
    now."""
    if REFERENCE_LABELS in before:
        known = {name: before[name] for name in REFERENCE}
        chunks = chunks_of(setup, network, features.unlabelled, known[REFERENCE_ROWS])
        return known, take_sites(chunks, known[REFERENCE_PLACES])
    rows = reference_rows(setup.problem, setup.plan)
    sites, places = sample_sites(chunks_of(setup, network, features.unlabelled, rows), setup.plan)
    labels = query_reference(sites, setup, features)
    return {REFERENCE_ROWS: rows, REFERENCE_PLACES: places, REFERENCE_LABELS: labels}, sites


def renewed_labels(
    setup: TrainSetup, network: nn.Module, before: State, features: RoundFeatures, sites: list[Features]
) -> Tensor | None:
    """(w) reference labels by this round's features, beside those of round 0; None where they are the same."""
    if REFERENCE_LABELS not in before or has_fixed_features(network):
        return None
    return query_reference(sites, setup, features)


def temperature_state(inverse_temperature: float) -> State:
    """The inverse temperature, and as people know it: the temperature that scores are divided by."""
    return {
        INVERSE_TEMPERATURE: torch.tensor(inverse_temperature),
        TEMPERATURE: torch.tensor(1 / inverse_temperature),
    }


def refuse_unheld(method: Method, plan: Plan) -> None:
    """Recalibration by held-out rows needs some."""
    rule = "method.recalibration = weighted needs plan.holdout > 0 (labelled rows to check by)"
    require(method.recalibration != "weighted" or plan.holdout > 0, f"{rule}, got {plan.holdout}", ConfigError)


def calibrate_by_holdout(labeller: Labeller, state: State, held: HeldOut | None) -> State:
    """The state with the inverse temperature that held-out rows give, where they stand for the unlabelled side."""
    if held is None or held.others is None or len(held.sites) < LEAST_REFERENCE:
        return state
    truth, weight = held.sites.y, effective_weights(held.weight)
    mean = label_chunk(labeller, held.sites, state).mean
    state = {**state, **temperature_state(fit_inverse_temperature(mean, truth, weight))}
    confidence, label = label_chunk(labeller, held.sites, state).mean.max(1)
    expected = label_chunk(labeller, held.others, state).mean.amax(1).double().mean()
    bins = calibration.reliability_bins(confidence, label == truth, weight=weight)
    return {**state, EXPECTED_ACCURACY: expected, SUPPORT: bins}


def reference_rows(problem: Problem, plan: Plan) -> Tensor:
    """Numbers of the rows that get reference labels."""
    most = ROWS if sites_of_a_row(problem.unlabelled) == 1 else PICTURES
    return permutation(len(problem.unlabelled), plan.seed, "witness rows")[:most].sort().values


def query_reference(sites: list[Features], setup: TrainSetup, features: RoundFeatures) -> Tensor:
    """(w) the class of the nearest labelled site of each."""
    centre, scale = domain_statistics(features.stream, "joint" if setup.problem.same_domain else "domain")
    bank = draw_in_shares(join_features(features.labelled.chunks), BANK, setup.plan.seed, "witness bank")
    known = prepare(bank, centre, scale)
    return torch.cat([nearest_labels(prepare(part, centre, scale), known, bank.y) for part in sites])


def chunks_of(setup: TrainSetup, network: nn.Module, unlabelled: FeatureSample, rows: Tensor) -> Iterator[Features]:
    """All sites of these rows; not computed again where they are all there."""
    if unlabelled.whole and not unlabelled.chunks[0].grid:
        if len(rows) == sum(len(chunk) for chunk in unlabelled.chunks):
            return iter(unlabelled.chunks)
        return iter([take_features(join_features(unlabelled.chunks), rows)])
    return extract(network, setup.problem.unlabelled, setup.plan, labelled=False, rows=rows)


def sample_sites(chunks: Iterator[Features], plan: Plan) -> tuple[list[Features], Tensor]:
    """The sites that get reference labels, at most PLACES of each row: those of the smallest keys; and which of all
    they are."""
    taken, places, start = list[Features](), list[Tensor](), 0
    for part in chunks:
        size = len(part) // (len(part.rows) if part.rows is not None and part.grid else len(part))
        here = torch.arange(len(part))
        if size > PLACES:
            keys = uniforms(part.ids, plan.seed, "witness places").split(size)
            first = [torch.argsort(key, stable=True)[:PLACES].sort().values for key in keys]
            here = torch.cat([number * size + sites for number, sites in enumerate(first)])
        taken.append(take_some(part, here))
        places.append(start + here)
        start += len(part)
    return taken, torch.cat(places)


def take_sites(chunks: Iterator[Features], places: Tensor) -> list[Features]:
    """The sites at these places among all."""
    taken, start = list[Features](), 0
    for part in chunks:
        here = places[(places >= start) & (places < start + len(part))] - start
        taken.append(take_some(part, here))
        start += len(part)
    return taken


def take_some(part: Features, sites: Tensor) -> Features:
    """These sites of a chunk, which rise; all of them are not copied."""
    return part if len(sites) == len(part) and not part.grid else take_features(part, sites)
