"""The labeller of this project, as a labeller: fit on the stream, apply on the batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from embasis.data.datasets.digit_sets import blobs
from embasis.errors import ConfigError, CorruptError, InputDataError
from embasis.functional import moments
from embasis.functional.basis import class_means
from embasis.functional.sites import unit_rows
from embasis.methods import METHODS
from embasis.methods.em_basis import (
    ClassMeans,
    CountHead,
    EMBasisLabeller,
    EMBasisState,
    Fusion,
    LinearHead,
    Mixture,
    Neighbours,
)
from embasis.methods.em_basis.features import PreparedSites, domain_statistics, prepare_all
from embasis.methods.em_basis.neighbours import MOST_KEPT
from embasis.methods.em_basis.state import LEGACY_NAMES
from embasis.types import Features

GUIDED, FREE = Mixture(guided=True), Mixture(guided=False)
CAREFUL = METHODS["em_basis"](3).labeller
assert isinstance(CAREFUL, EMBasisLabeller)
ALONE = replace(CAREFUL, fusion=None)
LABELLER = replace(CAREFUL, fusion=Fusion(min_kappa=0.0))
"""Of a network whose scores are three of the features, nothing more: its word is no measure of the basis."""


def stream(extra: int = 0) -> list[Features]:
    """Both sides of a toy problem, with `extra` columns of zeros."""
    problem = blobs(count=60)
    parts = []
    for side in (problem.labelled, problem.unlabelled):
        x = torch.nn.functional.pad(side.inputs(torch.arange(len(side))), (0, extra))
        parts.append(Features(x, x[:, :3].clone(), side.labels, side.ids))
    return parts


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_features_that_have_not_changed_give_the_old_state_bit_for_bit() -> None:
    first = dict(LABELLER.fit(stream(), {}, 0, 0))
    assert same(first, dict(LABELLER.fit(stream(), first, 0, 1)))
    assert same(first, dict(LABELLER.fit(stream(), {}, 0, 1)))


def test_one_changed_value_is_learned_anew() -> None:
    first = dict(LABELLER.fit(stream(), {}, 0, 0))
    changed = stream()
    changed[1].x[0, 0] += 1.0
    again = dict(LABELLER.fit(changed, first, 0, 1))
    assert not torch.equal(first["digest"], again["digest"])
    assert not torch.equal(first["mu"], again["mu"])


@pytest.mark.parametrize("joint", [False, True])
def test_the_tempering_follows_the_network_and_the_basis_does_where_it_hears_it(joint: bool) -> None:
    labeller = replace(LABELLER, mixture=Mixture(guided=joint))
    first = dict(labeller.fit(stream(), {}, 0, 0))
    surer = [replace(part, scores=50 * part.scores) for part in stream()]
    again = dict(labeller.fit(surer, first, 0, 1))
    assert torch.equal(first["mu"], again["mu"]) != joint
    assert float(again["tempering"]) < float(first["tempering"])


def test_the_basis_alone_hears_no_network_but_labels() -> None:
    labeller = ALONE
    other = [replace(part, scores=part.scores.flip(1)) for part in stream()]
    first, second = dict(labeller.fit(stream(), {}, 0, 0)), dict(labeller.fit(other, {}, 0, 0))
    assert torch.equal(first["mu"], second["mu"])
    deaf = dict(replace(ALONE, mixture=FREE).fit(stream(), {}, 0, 0))
    assert not torch.equal(first["mu"], deaf["mu"])


def test_a_network_that_knows_the_unlabelled_side_draws_the_basis_there() -> None:
    """Two classes that lie across each other on the unlabelled side: features alone take one for the other."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(200) % 2
    left = torch.stack([2.0 * y - 1, torch.zeros(200)], 1) + 0.2 * torch.randn(200, 2, generator=draw)
    turn = torch.tensor([[0.17, 0.98], [-0.98, 0.17]])  # by 80 degrees
    right = left[torch.randperm(200, generator=draw)] @ turn
    truth = (right @ turn.T)[:, 0] > 0
    scores = torch.stack([~truth, truth], 1).float() * 3.0
    parts = [
        Features(left, torch.zeros(200, 2), y, torch.arange(200)),
        Features(right, scores, torch.full((200,), -1), torch.arange(200, 400)),
    ]
    found = {}
    for joint in (False, True):
        labeller = EMBasisLabeller(2, ClassMeans(2), Mixture(guided=joint), fusion=Fusion(soften=False))
        state = labeller.fit(parts, {}, 0, 0)
        alone = replace(labeller, fusion=None).label(parts[1], state)
        found[joint] = float((alone.label == truth.long()).double().mean())
    assert found[True] > 0.95 > found[False]


def test_a_basis_without_names_has_those_of_the_labelled_rows_it_stands_for() -> None:
    parts = stream()
    centre, scale = domain_statistics(parts, "domain")
    data = PreparedSites(parts, prepare_all(parts, centre, scale), 3)
    mu, component_class = class_means(data.rows[0], parts[0].y, 3, 1)
    order = torch.tensor([2, 0, 1])
    found = FREE.assign_component_classes(data, unit_rows(mu)[order], 20.0)
    assert found.tolist() == component_class[order].tolist()


def nonsense() -> list[Features]:
    """The toy problem with features that say nothing of the classes."""
    draw = torch.Generator().manual_seed(0)
    return [replace(part, x=torch.randn(part.x.shape, generator=draw)) for part in stream()]


def test_where_the_basis_knows_nothing_the_network_labels_alone() -> None:
    labelled, unlabelled = nonsense()
    labelled = replace(labelled, scores=torch.nn.functional.one_hot(labelled.y, 3) * 3.0)
    state = CAREFUL.fit([labelled, unlabelled], {}, 0, 0)
    assert float(state["agreement"]) < 0.35
    assert float(state["sound"]) == 0.0
    found = CAREFUL.label(unlabelled, state)
    torch.testing.assert_close(found.mean, unlabelled.scores.softmax(1))
    assert float(found.between.abs().max()) < 1e-6
    believing = LABELLER
    assert not torch.equal(
        believing.label(unlabelled, believing.fit([labelled, unlabelled], {}, 0, 0)).label, found.label
    )


def test_a_network_that_does_not_know_its_own_labelled_rows_convicts_no_basis() -> None:
    parts = [replace(part, scores=torch.tensor([1.0, 0.0, 0.0]).expand(len(part), 3).clone()) for part in stream()]
    state = CAREFUL.fit(parts, {}, 0, 0)
    assert float(state["agreement"]) < 0.35  # it names one class for all
    assert float(state["sound"]) == 1.0


def test_a_basis_that_agrees_with_the_network_is_believed() -> None:
    parts = stream()
    named = torch.nn.functional.one_hot(blobs(count=60).hidden_labels, 3) * 3.0  # a network that is always right
    parts[1] = replace(parts[1], scores=named)
    state = CAREFUL.fit(parts, {}, 0, 0)
    assert float(state["agreement"]) > 0.6
    assert float(state["sound"]) == 1.0


def test_the_basis_alone_is_not_measured_by_a_network_that_it_does_not_hear() -> None:
    state = ALONE.fit(nonsense(), {}, 0, 0)
    assert (float(state["agreement"]), float(state["sound"])) == (1.0, 1.0)


def test_tempered_evidence_is_no_surer_than_the_basis() -> None:
    surer = [replace(part, scores=50 * part.scores) for part in stream()]
    state = LABELLER.fit(surer, {}, 0, 0)
    alone = ALONE.label(surer[1], state).mean
    network = (float(state["tempering"]) * surer[1].scores).softmax(1)
    assert float(torch.special.entr(network).sum(1).mean()) >= float(torch.special.entr(alone).sum(1).mean()) - 1e-3


def test_weights_of_another_number_of_sites_are_refused() -> None:
    with pytest.raises(InputDataError) as caught:
        replace(stream()[0], weight=torch.ones(59))
    assert str(caught.value) == "features: x, scores, y, ids and weight must have one length, got [59, 60]"


@pytest.mark.parametrize("head", [LinearHead(variance_weight=0.3), CountHead()], ids=["linear", "counts"])
def test_a_weighted_site_counts_as_often_as_it_stands_for(head: LinearHead | CountHead) -> None:
    # Without EM the basis is the class means, which do not change where all sites of a class are repeated alike.
    mixture = Mixture(sharpness=9.0, iterations=0, centring="none", guided=True)
    labeller = EMBasisLabeller(3, ClassMeans(1), mixture, head, Fusion(class_priors="labelled"))
    times, parts = torch.tensor([7, 1, 3]), stream()
    classes = [parts[0].y, parts[1].scores.argmax(1)]
    weighted = [replace(part, weight=times[c].float()) for part, c in zip(parts, classes, strict=True)]
    rows = [torch.arange(len(c)).repeat_interleave(times[c]) for c in classes]
    repeated = [
        Features(part.x[r], part.scores[r], part.y[r], part.ids[r]) for part, r in zip(parts, rows, strict=True)
    ]
    plain, one, other = (labeller.fit(given, {}, 0, 0) for given in (parts, weighted, repeated))
    torch.testing.assert_close(one["p"], other["p"], atol=2e-3, rtol=0)
    assert float(one["tempering"]) == pytest.approx(float(other["tempering"]), rel=1e-2)
    assert float((one["p"] - plain["p"]).abs().max()) > 0.02
    assert not torch.equal(one["digest"], plain["digest"])


def shifted(seed: int, shares: list[float], count: int, labelled: bool) -> tuple[Features, Tensor]:
    """Rows of three clouds that overlap, in these shares; the network was trained with even ones."""
    draw = torch.Generator().manual_seed(seed)
    label = torch.multinomial(torch.tensor(shares), count, replacement=True, generator=draw)
    x = torch.nn.functional.one_hot(label, 3) * 2.0 + torch.randn(count, 3, generator=draw)
    y = label if labelled else torch.full((count,), -1)
    return Features(x, 2.0 * x, y, torch.arange(count) + 10_000 * labelled), label


@pytest.mark.parametrize(("joint", "near"), [(False, 0.1), (True, 0.12)])  # decision 0024, doubt
def test_estimated_shares_are_those_of_the_unlabelled_side_and_make_its_labels_better(joint: bool, near: float) -> None:
    left, _ = shifted(0, [1 / 3, 1 / 3, 1 / 3], 3000, True)
    right, truth = shifted(1, [0.9, 0.05, 0.05], 3000, False)
    accuracy = {}
    for prior in ("labelled", "estimated"):
        labeller = EMBasisLabeller(
            3,
            mixture=Mixture(centring="none", guided=joint),
            fusion=Fusion(class_priors=prior, prior_strength=0.1),
        )
        state = labeller.fit([left, right], {}, 0, 0)
        accuracy[prior] = float((labeller.label(right, state).label == truth).double().mean())
        assert ("shares" in state) == (prior == "estimated")
    assert state["shares"][0].tolist() == pytest.approx([1 / 3] * 3, abs=0.03)
    assert state["shares"][1].tolist() == pytest.approx([0.9, 0.05, 0.05], abs=near)
    assert accuracy["estimated"] > accuracy["labelled"] + 0.02


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_what_a_network_was_taught_is_taken_off_its_word(joint: bool, weight: float) -> None:
    sides = shifted(0, [1 / 3, 1 / 3, 1 / 3], 3000, True)[0], shifted(1, [0.7, 0.2, 0.1], 3000, False)[0]
    counts = torch.bincount(sides[0].y).double() + 0.5
    known, taught = counts / counts.sum(), torch.tensor([700, 0, 99])
    share = (taught + 0.5) / (taught + 0.5).sum()
    trained = (known + weight * share) / (1 + weight)
    moved = [replace(part, scores=part.scores + (trained / known).log().float()) for part in sides]
    labeller = EMBasisLabeller(
        3,
        mixture=Mixture(centring="none", guided=joint),
        fusion=Fusion(class_priors="estimated", soften=False, unlabelled_weight=weight),
    )
    before, unsaid = labeller.fit(sides, {}, 0, 0), labeller.fit(moved, {}, 0, 1)
    state = labeller.fit(moved, {"taught": taught}, 0, 1)
    assert state["shares"][0].tolist() == pytest.approx(trained.tolist())
    mean = labeller.label(sides[1], before).mean
    assert torch.allclose(labeller.label(moved[1], state).mean, mean, atol=1e-4)
    assert float((labeller.label(moved[1], unsaid).mean - mean).abs().mean()) > 0.01


def test_shares_are_estimated_by_themselves_where_the_sample_has_others_than_its_side() -> None:
    parts = stream()
    assert "shares" not in CAREFUL.fit(parts, {}, 0, 0)
    weighted = [replace(part, weight=torch.ones(len(part))) for part in parts]
    assert "shares" in CAREFUL.fit(weighted, {}, 0, 0)
    assert "shares" not in replace(CAREFUL, fusion=Fusion(class_priors="labelled")).fit(weighted, {}, 0, 0)


def test_columns_that_say_nothing_change_nothing() -> None:
    # With 8 features and 9 components the head is sought in all of space, with 40 columns in the span of the basis.
    narrow, wide = LABELLER.fit(stream(), {}, 0, 0), LABELLER.fit(stream(extra=32), {}, 0, 0)
    torch.testing.assert_close(narrow["mu"], wide["mu"][:, :8], atol=1e-5, rtol=0)
    torch.testing.assert_close(narrow["p"], wide["p"], atol=2e-3, rtol=0)


def test_the_stored_head_gives_the_stored_probabilities() -> None:
    for extra in (0, 32):
        state = LABELLER.fit(stream(extra), {}, 0, 0)
        p = moments.component_probabilities(state["mu"], state["weight"], state["bias"])
        torch.testing.assert_close(p, state["p"], atol=1e-5, rtol=0)


# --- the state, by name


def test_a_state_goes_to_its_stored_names_and_back() -> None:
    stored = dict(CAREFUL.fit(stream(), {"taught": torch.tensor([3, 2, 1])}, 0, 1))
    again = dict(EMBasisState.from_tensors(stored).to_tensors())
    assert list(again) == list(stored)
    assert same(stored, again)
    assert {"mu", "p", "sound", "agreement", "tempering", "taught"} <= stored.keys() & {*LEGACY_NAMES.values()}


def test_a_state_that_lacks_a_tensor_is_refused_by_its_name() -> None:
    stored = dict(CAREFUL.fit(stream(), {}, 0, 0))
    del stored["mu"], stored["bias"]
    with pytest.raises(CorruptError) as caught:
        CAREFUL.label(stream()[1], stored)
    assert str(caught.value) == "the labeller's state lacks mu, bias"


def test_what_calibration_keeps_is_read_and_not_stored_by_a_fit() -> None:
    first = dict(CAREFUL.fit(stream(), {}, 0, 0))
    plain, raised = (CAREFUL.label(stream()[1], state).mean for state in (first, {**first, "power": torch.tensor(3.0)}))
    assert float(raised.amax(1).mean()) > float(plain.amax(1).mean())
    assert "power" not in CAREFUL.fit(stream(), {**first, "power": torch.tensor(3.0)}, 0, 1)


# --- neighbours


def test_without_neighbours_a_label_is_that_of_basis_and_network_bit_for_bit() -> None:
    without, silent = replace(LABELLER, neighbours=None), replace(LABELLER, neighbours=Neighbours(share=0.0))
    old, new = without.fit(stream(), {}, 0, 0), silent.fit(stream(), {}, 0, 0)
    assert "neighbour_rows" not in old
    assert same(dict(old), {name: value for name, value in new.items() if not name.startswith("neighbour")})
    for side in stream():
        one, other = without.label(side, old), silent.label(side, new)
        for name in ("mean", "between", "within", "uncertainty"):
            assert torch.equal(getattr(one, name), getattr(other, name))


def test_a_site_that_its_neighbours_contradict_is_less_sure_and_the_disagreement_is_between() -> None:
    parts, place = stream(), 5
    state = LABELLER.fit(parts, {}, 0, 0)
    odd = parts[1].scores.clone()
    odd[place] = 20 * (-parts[1].scores[place]).softmax(0)  # it alone is called something else
    for labeller, least in ((LABELLER, 0.2), (replace(LABELLER, neighbours=None), 0.0)):
        before, after = (labeller.label(replace(parts[1], scores=s), state) for s in (parts[1].scores, odd))
        if int(after.label[place]) == int(before.label[place]):
            continue
        assert float(after.between[place].sum()) >= least
    heard = LABELLER.label(replace(parts[1], scores=odd), state)
    alone = replace(LABELLER, neighbours=None).label(replace(parts[1], scores=odd), state)
    assert float(heard.uncertainty[place]) > float(alone.uncertainty[place])
    assert float(heard.between[place].sum()) > float(alone.between[place].sum())


def test_the_kept_sites_are_few_and_do_not_depend_on_how_rows_come_in_parts() -> None:
    parts = stream()
    ids = torch.arange(3000)
    many = Features(torch.randn(3000, 4), torch.randn(3000, 3), torch.full((3000,), -1), ids)
    whole = Neighbours().draw_sites([parts[0], many], 0)
    halves = [
        Features(*(column[s] for column in (many.x, many.scores, many.y, many.ids)))
        for s in (slice(0, 700), slice(700, None))
    ]
    split = Neighbours().draw_sites(halves, 0)
    assert whole is not None
    assert split is not None
    assert len(whole) == MOST_KEPT
    assert torch.equal(whole.x, split.x)
    assert Neighbours().draw_sites(parts[:1], 0) is None


def test_sites_of_pictures_and_samples_in_other_shares_have_no_neighbours() -> None:
    labelled, others = stream()
    assert Neighbours().draw_sites([labelled, others], 0) is not None
    assert Neighbours().draw_sites([labelled, replace(others, weight=torch.ones(len(others)))], 0) is None
    assert Neighbours().draw_sites([labelled, replace(others, grid=(2, 3))], 0) is None


def test_a_basis_that_is_not_believed_has_no_neighbours_either() -> None:
    parts = stream()
    shuffled = [
        replace(part, x=torch.randn(part.x.shape, generator=torch.Generator().manual_seed(7))) for part in parts
    ]
    state = CAREFUL.fit(shuffled, {}, 0, 0)
    assert float(state["sound"]) == float("neighbour_rows" in state)


def test_a_share_or_count_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="share must be at most 1, got 2"):
        Neighbours(share=2)
    with pytest.raises(ConfigError, match="count must be 1 or more, got 0"):
        Neighbours(count=0)
