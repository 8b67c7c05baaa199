"""Labels that say how often they are right: recalibrated by a witness that no round has taught, or by held-out rows.

| state | shape | meaning |
| --- | --- | --- |
| witness_rows | r | numbers of the unlabelled rows that the witness is asked about, rising |
| witness_places | w | which of all their sites, in order, rising |
| witness | w | class of the labelled site nearest to each, by the features before self-training |
| power, temperature | () | what the probabilities of labels are raised to; one divided by it |
| expected_accuracy | () | the mean probability of those labels after that |
| support | b 3 | reliability bins of those labels against the witness: sites, Σ probability, Σ agreeing |

The witness is heard once, after source training: later features have learned the labels that it is to judge.
"weighted" asks labelled rows that are held out (engine/holdout.py) instead, each weighted by how much likelier the
unlabelled side is to have it (engine/reweigh.py): power = argmin Σ_n w_n · −log softmax(power · log mean_n) at y_n. Its
bins count by these weights, scaled to the number of equal ones that would say as much.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from embasis.engine.extract import extract
from embasis.engine.label import label_chunk
from embasis.engine.progress import Progress
from embasis.engine.reweigh import HeldOut
from embasis.engine.survey import Survey, chosen, in_shares, sites_of_a_row, together
from embasis.errors import ConfigError, require
from embasis.functional import calibration
from embasis.functional.validation import effective
from embasis.functional.witness import nearest_labels, power_for, powered
from embasis.methods.fitting import domain_statistics, prepare
from embasis.randomness import permutation, uniforms
from embasis.types import Features, Method, Plan, Problem, State

ROWS, PICTURES, PLACES = 4096, 64, 256
"""The most rows that the witness is asked about; pictures, where rows have many sites; sites of a picture."""
BANK = 16_384
"""The most labelled sites that are looked through."""
LEAST = 20
"""With fewer answers nothing is recalibrated."""
WITNESS = ("witness_rows", "witness_places", "witness")
FITTED = ("power", "temperature", "expected_accuracy", "support")


def recalibrated(
    problem: Problem,
    method: Method,
    plan: Plan,
    progress: Progress,
    sides: tuple[Survey, Survey],
    held: HeldOut | None,
    before: State,
) -> State:
    """The new labeller's state, with the power that makes its probabilities true.

    `sides`: the labelled one, the unlabelled one. `before`: the last round's state; the witness is heard in round 0."""
    state = {name: value for name, value in progress.labeller.items() if name not in FITTED}
    labelled, unlabelled = sides
    if method.recalibration == "none" or not unlabelled.chunks or not labelled.chunks:
        return state
    if method.recalibration == "weighted":
        return weighted(method, state, held)
    if "witness" in before:
        state |= {name: before[name] for name in WITNESS}
        asked = picked(chunks_of(problem, plan, progress, unlabelled, before["witness_rows"]), before["witness_places"])
    else:
        rows = rows_to_ask(problem, plan)
        asked, places = first_picked(chunks_of(problem, plan, progress, unlabelled, rows), plan)
        state |= {"witness_rows": rows, "witness_places": places, "witness": heard(asked, problem, plan, sides)}
    if len(state["witness"]) < LEAST:
        return state
    mean = torch.cat([label_chunk(method.labeller, part, state).mean for part in asked])
    state |= raised(power_for(mean, state["witness"]))
    confidence, label = powered(mean, mean, mean, float(state["power"]))[0].max(1)
    state["expected_accuracy"] = confidence.double().mean()
    state["support"] = calibration.reliability_bins(confidence, label == state["witness"])
    return state


def raised(power: float) -> State:
    """The power, and as people know it: the temperature that scores are divided by."""
    return {"power": torch.tensor(power), "temperature": torch.tensor(1 / power)}


def refuse_unheld(method: Method, plan: Plan) -> None:
    """Recalibration by held-out rows needs some."""
    rule = "method.recalibration = weighted needs plan.holdout > 0 (labelled rows to check by)"
    require(method.recalibration != "weighted" or plan.holdout > 0, f"{rule}, got {plan.holdout}", ConfigError)


def weighted(method: Method, state: State, held: HeldOut | None) -> State:
    """The state with the power that held-out rows ask for, where they stand for the unlabelled side."""
    if held is None or held.others is None or len(held.sites) < LEAST:
        return state
    truth, weight = held.sites.y, effective(held.weight)
    mean = label_chunk(method.labeller, held.sites, state).mean
    state = {**state, **raised(power_for(mean, truth, weight))}
    confidence, label = label_chunk(method.labeller, held.sites, state).mean.max(1)
    expected = label_chunk(method.labeller, held.others, state).mean.amax(1).double().mean()
    bins = calibration.reliability_bins(confidence, label == truth, weight=weight)
    return {**state, "expected_accuracy": expected, "support": bins}


def rows_to_ask(problem: Problem, plan: Plan) -> Tensor:
    """Numbers of the rows that the witness is asked about."""
    most = ROWS if sites_of_a_row(problem.unlabelled) == 1 else PICTURES
    return permutation(len(problem.unlabelled), plan.seed, "witness rows")[:most].sort().values


def heard(asked: list[Features], problem: Problem, plan: Plan, sides: tuple[Survey, Survey]) -> Tensor:
    """(w) the class of the nearest labelled site of each."""
    labelled, unlabelled = sides
    centre, scale = domain_statistics([*labelled.chunks, *unlabelled.chunks], "joint" if problem.shared else "domain")
    bank = in_shares(together(labelled.chunks), BANK, plan.seed, "witness bank")
    known = prepare(bank, centre, scale)
    return torch.cat([nearest_labels(prepare(part, centre, scale), known, bank.y) for part in asked])


def chunks_of(problem: Problem, plan: Plan, progress: Progress, unlabelled: Survey, rows: Tensor) -> Iterator[Features]:
    """All sites of these rows; not computed again where they are all there."""
    if unlabelled.whole and not unlabelled.chunks[0].grid:
        return iter([chosen(together(unlabelled.chunks), rows)])
    return extract(progress.network, problem.unlabelled, plan, labelled=False, rows=rows)


def first_picked(chunks: Iterator[Features], plan: Plan) -> tuple[list[Features], Tensor]:
    """The sites to ask about: at most PLACES of each row, those of the smallest keys; and which of all they are."""
    found, places, start = list[Features](), list[Tensor](), 0
    for part in chunks:
        size = len(part) // (len(part.rows) if part.rows is not None and part.grid else len(part))
        keys = uniforms(part.ids, plan.seed, "witness places").split(size)
        first = [torch.argsort(key, stable=True)[:PLACES].sort().values for key in keys]
        here = torch.cat([number * size + sites for number, sites in enumerate(first)])
        found.append(chosen(part, here))
        places.append(start + here)
        start += len(part)
    return found, torch.cat(places)


def picked(chunks: Iterator[Features], places: Tensor) -> list[Features]:
    """The sites at these places among all."""
    found, start = list[Features](), 0
    for part in chunks:
        here = places[(places >= start) & (places < start + len(part))] - start
        found.append(chosen(part, here))
        start += len(part)
    return found
