"""Rows with grids of sites: surveys, labels between sites, rare classes, judging, windows, going on, and memory."""

from __future__ import annotations

import functools
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import reference
from embasis.data.segmentation.samples import MapArrays
from embasis.data.segmentation.views import place_sites
from embasis.engine import features as extraction
from embasis.engine import round as round_module
from embasis.engine import train
from embasis.engine.epoch import aim_at, class_sampling_weights
from embasis.engine.evaluate import Tally, evaluate, pair_with_truth
from embasis.engine.features import extract, forward_by_window, forward_windowed, sample_features, window_starts
from embasis.engine.labels import (
    BoundSelector,
    LabelBatch,
    MapLabels,
    MapPseudoLabels,
    MemoryLabelStore,
    UnpackedLabels,
    labelled_parts,
)
from embasis.engine.pixels import PixelLabels, pack, unpack
from embasis.engine.self_train import train_rounds
from embasis.engine.state import TrainState
from embasis.errors import CorruptError
from embasis.functional.metrics import class_counts
from embasis.methods.selectors import ClassBalanced
from embasis.networks.network import Network, SiteGrid
from embasis.storage.label_store import DiskLabelStore
from embasis.types import Features, LabelDistribution, Labeller, Plan, Problem, PseudoLabels, State, View
from map_runs import (
    CLASSES,
    HEIGHT,
    NOTHING,
    SITES,
    WIDTH,
    Kept,
    MapRun,
    built_maps,
    kept_moments,
    little_streets,
    run_built_maps,
    run_maps,
    shelf_of,
    spread_of,
    streets,
)
from paths import SUPPORT
from training_runs import Saved, same

GRID = (HEIGHT // 4, WIDTH // 4)


def spread_labels(
    rows: int = 4, classes: int = CLASSES, seed: int = 0, keep: float = 0.5, **settings: str
) -> MapLabels:
    """Made-up labels of rows with grids, selected as a round would."""
    shelf = shelf_of([
        pack(row, GRID, (found := spread_of(SITES, classes, seed + row)), found.label) for row in range(rows)
    ])  # fmt: skip
    selector = ClassBalanced(keep_first=keep, **settings)  # type: ignore[arg-type]
    parts = shelf.read(0)
    return MapLabels(
        parts, 7 * torch.arange(rows) + 3, BoundSelector(selector, selector.fit(UnpackedLabels(parts), 0), 0, 0)
    )


def labels_for(map_labels: MapLabels) -> MapPseudoLabels:
    return map_labels.training_targets([class_counts(part.pseudo.label, CLASSES) for part in map_labels.parts()])[0]


# --- going on from any step, with the same shelf


GOING = {"rounds": 2, "source_epochs": 1, "epochs": 2, "lr_power": 0.9}
RUNS: dict[str, dict[str, object]] = {
    "em_basis": {"method": "em_basis", "parts": {"selector.labels": "draw"}, "plan": GOING},
    "cbst by sgd": {"method": "cbst", "plan": {**GOING, "optimiser": "sgd", "lr": 0.05, "accumulate_steps": 2}},
}


def fresh(name: str):  # type: ignore[no-untyped-def]
    return built_maps(None, **RUNS[name])  # type: ignore[arg-type]


@functools.cache
def undisturbed(name: str) -> tuple[Kept, ...]:
    return tuple(kept_moments(fresh(name)))


@pytest.mark.parametrize("name", list(RUNS))
def test_a_run_that_goes_on_after_any_step_ends_bit_for_bit_as_the_undisturbed_one(name: str) -> None:
    moments = undisturbed(name)
    assert len(moments) >= 15
    for number in (0, 2, 3, 5, 8, 9, len(moments) - 2) if name == "em_basis" else (4, 10):
        assert moments[number].end(fresh(name)).same(moments[-1].saved), f"moment {number} of {len(moments)}"


def test_what_was_just_restored_can_be_saved_again_unchanged() -> None:
    for kept in undisturbed("em_basis"):
        assert Saved.of(kept.saved.restore(fresh("em_basis"))).same(kept.saved)


def test_the_labels_of_this_round_and_of_the_last_one_are_kept_until_the_round_is_saved() -> None:
    """When a round has ended but is not saved, the run goes on from before its end: from the labels before."""
    ended = [kept for kept in undisturbed("em_basis") if kept.saved.cursor[1:] == (0, 0)]
    assert [sorted(kept.shelf._rounds) for kept in ended] == [[0], [0, 1], [1, 2]]
    before = [kept for kept in undisturbed("em_basis") if kept.saved.cursor[0] == 2][-1]
    assert Kept(before.saved, ended[-1].shelf).end(fresh("em_basis")).same(ended[-1].saved)


def drop_counts(progress: TrainState, shelf: MemoryLabelStore) -> None:
    progress.counts = None


def other_counts(progress: TrainState, shelf: MemoryLabelStore) -> None:
    assert progress.counts is not None
    progress.counts = progress.counts.flip(1)


def other_selector(progress: TrainState, shelf: MemoryLabelStore) -> None:
    progress.selector = {**progress.selector, "threshold": progress.selector["threshold"] / 2}


def other_labels(progress: TrainState, shelf: MemoryLabelStore) -> None:
    shelf._rounds = {number: parts[::-1] for number, parts in shelf._rounds.items()}


@pytest.mark.parametrize("spoil", [drop_counts, other_counts, other_selector, other_labels])
def test_without_a_part_of_what_is_kept_the_end_is_another_or_there_is_none(spoil) -> None:  # type: ignore[no-untyped-def]
    kept = next(kept for kept in undisturbed("em_basis") if kept.saved.cursor == (1, 1, 1))
    if spoil is drop_counts:
        assert not kept.end(fresh("em_basis"), spoil).same(undisturbed("em_basis")[-1].saved)
        return
    with pytest.raises(CorruptError, match=r"^the labels of row \d are not those that were counted$"):
        kept.end(fresh("em_basis"), spoil)


def test_labels_that_are_gone_from_the_shelf_are_said_to_be_gone() -> None:
    kept = next(kept for kept in undisturbed("em_basis") if kept.saved.cursor == (1, 1, 1))
    with pytest.raises(CorruptError, match=r"^the labels of round 0 are not there any more$"):
        Kept(kept.saved, MemoryLabelStore()).end(fresh("em_basis"))


def test_a_run_that_has_ended_needs_no_labels_any_more() -> None:
    built, kept = fresh("em_basis"), undisturbed("em_basis")[-1]
    assert list(train_rounds(built.problem, built.network, built.method, built.plan, kept.saved.restore(built))) == []


def test_labels_on_disk_and_in_memory_give_the_same_run_bit_for_bit(tmp_path: Path) -> None:
    first = run_built_maps(fresh("em_basis"))
    disk = run_built_maps(fresh("em_basis"), shelf=DiskLabelStore(tmp_path))
    assert Saved.of(first.progress).same(Saved.of(disk.progress))
    assert all(same(left, right) for left, right in zip(first.sites, disk.sites, strict=True))
    assert sorted(path.name for path in (tmp_path / "sites").iterdir()) == ["round-001", "round-002"]


def test_a_run_from_disk_goes_on_from_the_middle_of_a_round(tmp_path: Path) -> None:
    built, shelf = fresh("em_basis"), DiskLabelStore(tmp_path)
    for event in train_rounds(built.problem, built.network, built.method, built.plan, None, shelf):
        saved = Saved.of(event.state)
        if saved.cursor == (2, 1, 1):
            break
    built = fresh("em_basis")
    again = run_built_maps(built, saved.restore(built), DiskLabelStore(tmp_path))
    assert Saved.of(again.progress).same(undisturbed("em_basis")[-1].saved)


# --- surveys


@functools.cache
def many() -> Problem:
    built = built_maps(streets(labelled=60, unlabelled=55, test=0), "source_only")
    return built.problem


@functools.cache
def seeing() -> Network:
    network = built_maps(None, "source_only").network
    assert isinstance(network, Network)
    with torch.no_grad():
        nn.init.normal_(network.classifier.weight, generator=torch.Generator().manual_seed(3))
    return network


def sites_of(chunks: list[Features]) -> dict[str, Tensor]:
    return {name: torch.cat([getattr(part, name) for part in chunks]) for name in ("x", "scores", "y", "ids")}


def test_few_sites_are_all_seen_in_order() -> None:
    problem = many()
    for limit in (0, 2000):
        found = sample_features(seeing(), problem.unlabelled, Plan(max_sites=limit), False, 1)
        assert found.whole
        assert all(part.weight is None for part in found.chunks)
        expected = sites_of(list(extract(seeing(), problem.unlabelled, Plan(), labelled=False)))
        assert same(sites_of(found.chunks), expected)
        assert len(expected["ids"]) == 55 * SITES


@pytest.mark.parametrize("labelled", [True, False])
def test_a_survey_holds_the_smallest_keys_of_each_class_and_no_more_than_it_may(labelled: bool) -> None:
    from embasis.randomness import uniforms

    problem, plan = many(), Plan(max_sites=1024, seed=4)
    side = problem.labelled if labelled else problem.unlabelled
    found = sample_features(seeing(), side, plan, labelled, 1)
    every = sites_of(list(extract(seeing(), side, plan, labelled)))
    label = every["y"] if labelled else every["scores"].argmax(1)
    key, quota = uniforms(every["ids"], 4, "reservoir", 1), 1024 // CLASSES
    expected: list[int] = []
    for number in range(CLASSES):
        mine = sorted(torch.nonzero(label == number).squeeze(1).tolist(), key=lambda site: float(key[site]))
        expected += mine[:quota]
    rows = torch.tensor(sorted(expected))
    assert not found.whole
    assert len(rows) <= 1024
    assert int(class_counts(label[rows], CLASSES).max()) == quota < len(every["ids"]) // CLASSES
    assert same(sites_of(found.chunks), {name: value[rows] for name, value in every.items()})
    seen, kept = class_counts(label, CLASSES), class_counts(label[rows], CLASSES)
    weight = torch.cat([part.site_weight for part in found.chunks])
    assert torch.equal(weight, (seen / kept)[label[rows]])  # so a sample speaks for every class as often as it is there
    assert float(weight.sum()) == pytest.approx(len(label))


@pytest.mark.parametrize("labelled", [True, False])
def test_a_survey_is_the_same_whatever_the_chunks(labelled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, plan = many(), Plan(max_sites=1024)
    side = problem.labelled if labelled else problem.unlabelled
    chunks = sample_features(seeing(), side, plan, labelled, 1).chunks
    whole, weight = sites_of(chunks), torch.cat([part.site_weight for part in chunks])
    every = list(extract(seeing(), side, plan, labelled))
    for size in (1, 100, 700):
        parts = sites_of(every)
        cut = [Features(*columns) for columns in zip(*(parts[n].split(size) for n in parts), strict=True)]
        monkeypatch.setattr(extraction, "extract", lambda *_, cut=cut: iter(cut))
        found = sample_features(seeing(), side, plan, labelled, 1).chunks
        assert same(sites_of(found), whole)
        assert torch.equal(torch.cat([part.site_weight for part in found]), weight)


def test_only_some_pictures_of_a_long_street_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "LEAST_ROWS", 20)
    problem, plan = many(), Plan(max_sites=1024)
    found = sites_of(sample_features(seeing(), problem.unlabelled, plan, False, 1).chunks)
    other = sites_of(sample_features(seeing(), problem.unlabelled, plan, False, 2).chunks)
    every = sites_of(list(extract(seeing(), problem.unlabelled, plan, False)))
    row_of = {site: number // SITES for number, site in enumerate(every["ids"].tolist())}
    rows = {row_of[site] for site in found["ids"].tolist()}
    assert len(rows) == math.ceil(1024 / SITES)
    assert rows != {row_of[site] for site in other["ids"].tolist()}


def test_pictures_with_more_sites_than_the_first_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "sites_of_a_row", lambda _: 1)
    found = sample_features(seeing(), many().unlabelled, Plan(max_sites=1024), False, 1)
    assert not found.whole
    assert sum(len(chunk) for chunk in found.chunks) <= 1024


def test_sites_without_a_class_are_never_part_of_the_labelled_side() -> None:
    problem = many()
    assert isinstance(problem.labelled, MapArrays)
    y = torch.cat([view.y.flatten() for view in problem.labelled.stream([torch.arange(60)])])
    assert int((y == -1).sum()) > 20
    for plan in (Plan(max_sites=0), Plan(max_sites=1024)):
        found = sites_of(sample_features(seeing(), problem.labelled, plan, True, 0).chunks)
        assert int(found["y"].min()) == 0
    assert len(sites_of(sample_features(seeing(), problem.labelled, Plan(), True, 0).chunks)["y"]) == int(
        (y >= 0).sum()
    )


def test_a_labelled_picture_whose_sites_have_no_class_is_no_trouble() -> None:
    problem = streets(labelled=6, unlabelled=3, test=0)
    assert isinstance(problem.labelled, MapArrays)
    maps = problem.labelled.maps.clone()  # type: ignore[union-attr]
    maps[2] = NOTHING
    maps[2, 0, 0] = 1
    done = run_maps(
        replace(problem, labelled=MapArrays.of(problem.labelled.pictures, maps)), parts={"labeller.start": "StageOne"}
    )
    assert done.progress.status == "finished"


class Spy(Labeller):
    """A labeller that writes down what it is shown."""

    def __init__(self, inner) -> None:  # type: ignore[no-untyped-def]
        self.inner, self.seen = inner, list[Features]()

    def fit(self, stream: list[Features], start: State, seed: int, round_number: int) -> State:
        self.seen += stream
        state: State = self.inner.fit(stream, start, seed, round_number)
        return state

    def label(self, features: Features, state: State) -> LabelDistribution:
        self.seen.append(features)
        found: LabelDistribution = self.inner.label(features, state)
        return found


def test_a_labeller_sees_no_class_of_the_unlabelled_side_even_if_its_pictures_had_maps() -> None:
    built = built_maps(None)
    spy = Spy(built.method.labeller)
    # A side that shows its classes, in spite of its labels.
    open_side = built.problem.unlabelled
    assert isinstance(open_side, MapArrays)
    hidden = built.problem.hidden_labels
    assert hidden is not None
    truth = torch.stack([hidden[row] for row in range(9)]).clamp_min(0).to(torch.uint8)
    labelled_side = built.problem.labelled
    assert isinstance(labelled_side, MapArrays)
    problem = replace(built.problem, labelled=replace(labelled_side, ids=labelled_side.ids + 1000))
    object.__setattr__(problem, "unlabelled", replace(open_side, maps=truth))
    assert int(next(iter(problem.unlabelled.stream([torch.arange(9)]))).y.max()) > 0
    built = replace(built, problem=problem, method=replace(built.method, labeller=spy))
    done = run_built_maps(built)
    ids = set(done.sites[0]["ids"].tolist())
    labelled = {site for part in spy.seen for site in part.ids[part.y >= 0].tolist()}
    assert len(ids) == 9 * SITES
    assert not ids & labelled


# --- chunks


def test_every_picture_is_labelled_by_itself_in_one_shape() -> None:
    """A product may round a row differently in another shape, so no picture may be labelled together with others."""
    done = judged()
    spy = Spy(done.built.method.labeller)
    method = replace(done.built.method, labeller=spy)
    list(labelled_parts(many().unlabelled, method, done.built.plan, done.progress, 1))
    assert [len(features) for features in spy.seen] == [extraction.CHUNK_ROWS] * 55
    assert not any(bool(features.x[SITES:].any()) for features in spy.seen)


def test_a_picture_has_the_same_features_and_labels_alone_and_among_others() -> None:
    samples, plan = many().unlabelled, Plan()
    assert isinstance(samples, MapArrays)
    every = sites_of(list(extract(seeing(), samples, plan, labelled=False)))
    for row in (0, 31, 54):
        alone = sites_of(list(extract(seeing(), samples.take(torch.tensor([row])), plan, labelled=False)))
        assert same(alone, {name: value[row * SITES : (row + 1) * SITES] for name, value in every.items()})


def test_a_chunk_ends_with_the_pass_that_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "LARGE", 1)
    chunks = list(extract(seeing(), many().unlabelled, Plan(), labelled=False))
    rows = [len(chunk.rows) for chunk in chunks if chunk.rows is not None]
    assert rows == [32, 23]  # two passes of 16 pictures have at least 512 sites
    assert all(chunk.grid == GRID and len(chunk) == SITES * len(chunk.rows) for chunk in chunks)  # type: ignore[arg-type]
    monkeypatch.setattr(MapArrays, "has_mixed_shapes", True)
    alone = list(extract(seeing(), many().unlabelled, Plan(), labelled=False))
    assert [len(chunk) for chunk in alone] == [SITES] * 55


# --- pseudo-labels at places


def view_at(places: Tensor) -> View:
    return View(torch.zeros(len(places), 3, 1, 1), torch.full(places.shape[:-1], -1), places)


@pytest.mark.parametrize("settings", [{}, {"labels": "draw"}, {"labels": "soft"}, {"weights": "inverse_variance"}])
def test_at_the_places_of_a_whole_view_the_labels_are_those_of_the_grid(settings: dict[str, str]) -> None:
    map_labels = spread_labels(4, **settings)
    labels, places = labels_for(map_labels), place_sites(GRID).expand(4, *GRID, 2)
    found = labels.seen(torch.tensor([2, 0, 3, 1]), view_at(places))
    expected = [map_labels.part(row).pseudo for row in (2, 0, 3, 1)]
    assert torch.equal(found.label, torch.cat([part.label for part in expected]))
    assert torch.equal(found.weight, torch.cat([part.weight for part in expected]))
    assert (found.target is None) == (settings.get("labels") != "soft")
    if found.target is not None:
        assert torch.equal(found.target, torch.cat([part.target for part in expected]))  # type: ignore[misc]
    assert 0 < int(found.trusted.sum()) < len(found)


def test_a_view_that_is_turned_over_sees_turned_labels() -> None:
    labels, places = labels_for(spread_labels(2)), place_sites(GRID).expand(2, *GRID, 2)
    rows = torch.arange(2)
    straight, turned = labels.seen(rows, view_at(places)), labels.seen(rows, view_at(places.flip(2)))
    assert torch.equal(turned.label.view(2, *GRID), straight.label.view(2, *GRID).flip(2))
    assert not torch.equal(turned.label, straight.label)


def test_outside_of_the_picture_nothing_is_trusted() -> None:
    labels, places = labels_for(spread_labels(2, keep=0.5, labels="soft")), place_sites(GRID).repeat(2, 1, 1, 1)
    places[0, :, 3:] = math.nan
    places[1] = math.nan
    found = labels.seen(torch.arange(2), view_at(places))
    label, weight = found.label.view(2, *GRID), found.weight.view(2, *GRID)
    assert (label[0, :, 3:] == -1).all()
    assert (label[1] == -1).all()
    assert (weight[1] == 0).all()
    inside = labels.labels.part(0).pseudo.label.view(GRID)[:, :3]
    assert torch.equal(label[0, :, :3], inside)
    assert found.target is not None
    assert not found.target.view(2, SITES, CLASSES)[1].any()


def test_labels_between_sites_are_selected_from_the_mixture_of_distributions() -> None:
    map_labels = spread_labels(1)
    place = torch.rand(200, 2, generator=torch.Generator().manual_seed(1))
    found = map_labels.at(0, place)
    grid = unpack(map_labels.packed_rows[0])
    index, share = reference.corners(place, GRID)
    mean, _, score = reference.mixtures(grid.mean, grid.between, grid.uncertainty, index, share)
    threshold = map_labels.choice.state["threshold"].numpy()
    for n in range(200):
        label = int(mean[n].argmax())
        if abs(score[n] - threshold[label]) > 1e-4:
            assert int(found.label[n]) == (label if score[n] < threshold[label] else -1)
    assert 20 < int(found.trusted.sum()) < 180


def test_a_view_without_places_is_refused() -> None:
    with pytest.raises(CorruptError, match=r"^a view of rows with grids must say where its sites lie$"):
        labels_for(spread_labels(1)).seen(torch.arange(1), View(torch.zeros(1, 3, 4, 4), torch.zeros(1, 1, 1)))


# --- rare classes


def test_a_wanted_place_has_the_drawn_class_as_its_pseudo_label() -> None:
    map_labels = spread_labels(6)
    labels = labels_for(map_labels)
    for number in range(CLASSES):
        only = torch.zeros(CLASSES)
        only[number] = 1
        places = labels.crop_targets(torch.arange(6), only, (0, 1, 0))
        for row in range(6):
            has = bool((map_labels.part(row).pseudo.label == number).any())
            assert has == (not bool(places[row].isnan().any()))
            if has:
                assert map_labels.at(row, places[row : row + 1]).label.tolist() == [number]


def test_wanted_places_are_drawn_by_seed_round_epoch_and_id_alone() -> None:
    labels, rows = labels_for(spread_labels(6)), torch.arange(6)
    first = labels.crop_targets(rows, torch.ones(CLASSES), (0, 1, 0))
    assert torch.equal(first, labels.crop_targets(rows, torch.ones(CLASSES), (0, 1, 0)))
    assert torch.equal(first[[4, 1]], labels.crop_targets(torch.tensor([4, 1]), torch.ones(CLASSES), (0, 1, 0)))
    for key in ((1, 1, 0), (0, 2, 0), (0, 1, 1)):
        assert not torch.equal(first, labels.crop_targets(rows, torch.ones(CLASSES), key))


def test_a_row_without_trusted_sites_has_no_wanted_place_and_is_not_useful() -> None:
    labels = labels_for(spread_labels(3))
    labels = MapPseudoLabels(labels.labels, labels.counts * torch.tensor([[1], [0], [1]]))
    assert labels.useful.tolist() == [0, 2]
    places = labels.crop_targets(torch.arange(3), torch.ones(CLASSES), (0, 1, 0))
    assert places.isnan().any(1).tolist() == [False, True, False]


def test_classes_that_were_seldom_labelled_are_drawn_more_often() -> None:
    done = run_maps(None, "cbst")
    record = done.records[-1]
    progress = replace(done.progress, records=[replace(record, class_counts=(9000, 900, 100))])
    rare = class_sampling_weights(done.built.problem, progress)
    assert torch.allclose(rare / rare[0], torch.tensor([1.0, math.sqrt(10), math.sqrt(90)]))
    progress = replace(progress, records=[replace(record, class_counts=(10000, 0, 0))])
    rare = class_sampling_weights(done.built.problem, progress)
    assert torch.allclose(rare / rare[0], torch.tensor([1.0, math.sqrt(300), math.sqrt(300)]))
    first = class_sampling_weights(done.built.problem, TrainState(done.progress.network))
    counts = done.built.problem.labelled.counts(CLASSES)
    assert torch.equal(first.argsort(descending=True), counts.argsort())
    labels, rows = labels_for(spread_labels(8)), torch.arange(8)
    drawn = [
        labels.labels.at(row, place.unsqueeze(0)).label
        for epoch in range(40)
        for row, place in enumerate(labels.crop_targets(rows, torch.tensor([1.0, 4.0, 16.0]), (0, 1, epoch)))
    ]
    often = class_counts(torch.cat(drawn), CLASSES)
    assert often[0] < often[1] < often[2]


def test_training_aims_at_places_of_maps_and_at_nothing_in_rows() -> None:
    labels, batches = labels_for(spread_labels(4)), [torch.tensor([1, 3]), torch.tensor([0])]
    aim = aim_at(labels, batches, torch.ones(CLASSES), (0, 1, 0))
    assert aim is not None
    assert aim.places is not None
    assert [tuple(place.shape) for place in aim.places] == [(2, 2), (1, 2)]
    rows = PseudoLabels(torch.tensor([0, -1]), torch.tensor([1.0, 0.0]))
    assert aim_at(rows, [torch.tensor([0])], torch.ones(CLASSES), (0, 1, 0)) is None
    assert aim_at(None, batches, torch.ones(CLASSES), (0, 1, 0)) is None


# --- judging


@functools.cache
def judged() -> MapRun:
    return run_maps(None, "em_basis")


def by_hand(
    parts: Iterator[LabelBatch], problem: Problem, size: tuple[int, int] = (HEIGHT, WIDTH)
) -> dict[str, object]:
    """All figures, pixel by pixel."""
    truths, guesses, confidences, trusted, network, nll = [], [], [], [], [], 0.0
    for row, part in enumerate(parts):
        assert problem.hidden_labels is not None
        truth = problem.hidden_labels[row]
        grid = part.distribution
        mean, score = reference.enlarge_means(grid.mean, grid.uncertainty, GRID, size)
        for pixel, right in enumerate(truth.flatten().tolist()):
            if right < 0:
                continue
            label = int(mean[pixel].argmax())
            truths.append(right)
            guesses.append(label)
            confidences.append(float(mean[pixel, label]))
            trusted.append(score[pixel] < float(part.choice.state["threshold"][label]))
            at = (pixel // size[1]) * GRID[0] // size[0] * GRID[1] + (pixel % size[1]) * GRID[1] // size[1]
            network.append(int(part.network[at]) == right)
            nll -= math.log(max(float(mean[pixel, right]), 1e-12))
    hits = [t == g for t, g in zip(truths, guesses, strict=True)]
    found: dict[str, object] = {"rows": len(truths), "confusion": reference.confusion_matrix(truths, guesses, CLASSES)}
    found |= {"accuracy": sum(hits) / len(hits), "network_accuracy": sum(network) / len(network)}
    found |= {"nll": nll / len(hits), "trusted_share": sum(trusted) / len(hits)}
    found["trusted_precision"] = sum(a and b for a, b in zip(hits, trusted, strict=True)) / max(sum(trusted), 1)
    found["ece"] = reference.expected_calibration_error(confidences, hits)
    found["mean_iou"] = reference.mean_dataset_iou(found["confusion"])
    return found


def test_maps_are_judged_at_the_resolution_of_the_truth_as_by_hand() -> None:
    done = judged()
    record, found = done.records[-1], done.records[-1].evaluation
    assert found is not None
    kept = done.shelf.read(record.round)
    choice = BoundSelector(done.built.method.selector, done.progress.selector, 0, record.round)
    hand = by_hand(MapLabels(kept, done.built.problem.unlabelled.ids, choice).parts(), little_streets())
    assert found.rows == hand["rows"] < 9 * HEIGHT * WIDTH
    few = 4 / found.rows  # pixels whose two best classes are equal to the last bit, or whose score is the threshold
    for name in ("accuracy", "network_accuracy", "trusted_share", "mean_iou"):
        assert abs(getattr(found, name) - hand[name]) <= 3 * few, name  # type: ignore[operator]
    for name in ("nll", "ece", "trusted_precision"):
        assert abs(getattr(found, name) - hand[name]) < 0.01, name  # type: ignore[operator]
    assert (torch.tensor(found.confusion) - torch.from_numpy(hand["confusion"])).abs().max() <= 2  # type: ignore[arg-type]
    assert len(found.class_iou) == CLASSES
    assert found.mean_iou == pytest.approx(sum(value for value in found.class_iou if value is not None) / CLASSES)


def test_ignored_pixels_change_no_figure() -> None:
    done = judged()
    parts = list(labelled_parts(done.built.problem.test, *settings_of(done)))  # type: ignore[arg-type]
    test = done.built.problem.test
    assert isinstance(test, MapArrays)
    assert test.maps is not None
    half = test.maps.clone()
    half[:, :, : WIDTH // 2] = NOTHING
    found = evaluate(parts, MapArrays.of(test.pictures, half).truth, CLASSES)
    assert found is not None
    assert found.rows == int((half != NOTHING).sum())
    tally = Tally(CLASSES)
    for part in parts:
        for labels, truth in pair_with_truth(part, test.truth):
            keep = (torch.arange(HEIGHT * WIDTH) % WIDTH >= WIDTH // 2) & (truth >= 0)
            cut = replace(labels, network=labels.network[keep], ids=labels.ids[keep],
                          distribution=LabelDistribution(*(getattr(labels.distribution, name)[keep] for name in
                                                           ("mean", "between", "within", "uncertainty"))))  # fmt: skip
            tally.add(cut, truth[keep])
    assert tally.evaluation() == found
    assert evaluate(parts, MapArrays.of(test.pictures, torch.full_like(half, NOTHING)).truth, CLASSES) is None


def settings_of(done: MapRun) -> tuple:  # type: ignore[type-arg]
    return done.built.method, done.built.plan, done.progress, done.progress.round - 1


def test_pictures_judged_one_by_one_are_those_judged_together() -> None:
    done, test = judged(), judged().built.problem.test
    assert isinstance(test, MapArrays)
    together = list(labelled_parts(test, *settings_of(done)))
    alone = [
        replace(part, rows=torch.tensor([row]))
        for row in range(len(test))
        for part in labelled_parts(test.take(torch.tensor([row])), *settings_of(done))
    ]
    assert len(alone) == 3 > len(together)
    found = evaluate(together, test.truth, CLASSES)
    assert found is not None
    assert found == evaluate(alone, test.truth, CLASSES) == done.records[-1].test
    sums = [evaluate([part], MapArrays.of(test.pictures, test.maps).truth, CLASSES) for part in alone]
    assert sum(torch.tensor(one.confusion) for one in sums if one).tolist() == [list(row) for row in found.confusion]  # type: ignore[union-attr, misc]


def test_perfect_labels_are_judged_perfect_and_the_network_beside_them_by_itself() -> None:
    truth = torch.randint(-1, CLASSES, GRID, generator=torch.Generator().manual_seed(2))
    mean = nn.functional.one_hot(truth.clamp_min(0).flatten(), CLASSES).float()
    sure = LabelDistribution(mean, torch.zeros_like(mean), torch.zeros_like(mean), torch.zeros(SITES))
    selector = ClassBalanced(keep_first=1.0, keep_max=1.0)
    choice = BoundSelector(selector, selector.fit([sure], 0), 0, 0)
    part = LabelBatch(torch.tensor([0]), GRID, sure, torch.zeros(SITES, dtype=torch.int64), torch.arange(SITES), choice)
    found = evaluate([part], [truth], CLASSES)  # type: ignore[arg-type]
    assert found is not None
    assert (found.accuracy, found.mean_iou, found.ece, found.nll, found.trusted_share) == (1, 1, 0, 0, 1)
    assert found.network_accuracy == int((truth == 0).sum()) / found.rows


def test_the_networks_own_label_at_a_pixel_is_that_of_the_site_it_lies_in() -> None:
    map_labels = spread_labels(1)
    part = map_labels.part(0)
    for size in ((4, 6), (16, 24), (5, 7), (3, 4), (9, 40)):
        wide = part.enlarged(0, size)
        for pixel in range(math.prod(size)):
            row, column = (pixel // size[1] + 0.5) / size[0], (pixel % size[1] + 0.5) / size[1]
            site = int(row * GRID[0]) * GRID[1] + int(column * GRID[1])
            assert int(wide.network[pixel]) == int(part.network[site])
            assert int(wide.ids[pixel]) == int(part.ids[site])


def test_pixels_compute_their_means_only_when_asked_and_these_agree_with_their_labels() -> None:
    part = spread_labels(1).part(0)
    wide = part.enlarged(0, (16, 24))
    found = wide.distribution
    assert isinstance(found, PixelLabels)
    assert len(wide.pseudo) == len(found) == 16 * 24
    assert "mean" not in vars(found)
    assert torch.equal(found.label, found.mean.argmax(1))
    assert torch.equal(found.confidence, found.mean.amax(1))
    assert torch.allclose(found.variance.sum(1), found.total, atol=1e-6)
    assert not found.between.any()


# --- windows


class Pointwise(nn.Module):
    """Each site sees its own pixels alone."""

    def __init__(self, width: int = 5, stride: int = 4) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, stride, stride), nn.Conv2d(8, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.second(torch.relu(self.first(x.float() / 255)))
        return found


@pytest.mark.parametrize("shape", [(64, 64), (64, 96), (100, 72), (256, 68), (68, 132)])
def test_stitched_windows_of_a_network_that_sees_one_site_are_the_whole(shape: tuple[int, int]) -> None:
    network = Network(Pointwise(), 5, 3, grid=SiteGrid(4, 4)).eval()
    nn.init.normal_(network.classifier.weight)
    x = torch.randint(0, 256, (2, 3, *shape), dtype=torch.uint8)
    with torch.no_grad():
        whole, found = network(x), forward_by_window(network, x, 1, 64)
        network.window = 64
        seen = forward_windowed(network, x, 1)
    for name in ("features", "logits"):
        assert torch.allclose(getattr(found, name), getattr(whole, name), atol=1e-5)
        assert torch.equal(getattr(seen, name), getattr(whole if max(shape) <= 64 else found, name))


@pytest.mark.parametrize("multiple", [4, 32])
@pytest.mark.parametrize("window", [64, 96, 256])
def test_windows_cover_a_side_and_the_last_one_ends_at_its_end(window: int, multiple: int) -> None:
    for length in range(multiple, 1100, multiple):
        found = window_starts(length, window, multiple)
        assert found[0] == 0
        assert found == sorted(set(found))
        assert all(start % multiple == 0 for start in found)
        assert found[-1] + window == length or (length <= window and found == [0])
        assert all(later - start <= window * 3 // 4 for start, later in pairwise(found))


def test_features_and_labels_of_a_run_come_through_windows() -> None:
    built = built_maps(streets(labelled=3, unlabelled=2, test=0, size=(72, 100)), "source_only", maps={"window": 64})
    assert isinstance(built.network, Network)
    assert built.network.window == 64
    chunk = next(extract(built.network, built.problem.unlabelled, built.plan, labelled=False))
    assert chunk.grid == (18, 25)
    built.network.window = 0
    assert not torch.equal(next(extract(built.network, built.problem.unlabelled, built.plan, False)).x, chunk.x)


# --- the rate


def rates_of(
    plan: dict[str, object], restored: Kept | None = None, monkeypatch: pytest.MonkeyPatch | None = None
) -> list[float]:
    built, found = fresh("em_basis") if restored else built_maps(None, "cbst", plan=plan), list[float]()
    inner = train.take_step

    def take_step(trainer, batch):  # type: ignore[no-untyped-def]
        found.extend(group["lr"] for each in trainer.optimisers.values() for group in each.param_groups)
        return inner(trainer, batch)

    assert monkeypatch is not None
    with monkeypatch.context() as patch:
        patch.setattr(train, "take_step", take_step)
        if restored is None:
            run_built_maps(built)
        else:
            restored.end(built)
    return found


def test_the_rate_falls_to_nearly_nothing_within_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"rounds": 1, "source_epochs": 2, "epochs": 2, "lr_power": 0.9, "source_lr": 0.02, "lr": 0.01}
    steps = 3  # ten pictures, four at a time
    expected = [rate * (1 - n / (2 * steps)) ** 0.9 for rate in (0.02, 0.01) for n in range(2 * steps)]
    assert rates_of(plan, None, monkeypatch) == pytest.approx(expected, rel=1e-12)
    assert rates_of({**plan, "lr_power": 0.0}, None, monkeypatch) == [0.02] * 6 + [0.01] * 6
    lbfgs = {**plan, "optimiser": "lbfgs", "batch_size": 0}
    assert rates_of(lbfgs, None, monkeypatch) == pytest.approx([1.0, 0.5**0.9] * 2)


def test_a_run_that_goes_on_has_the_rates_of_the_undisturbed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = undisturbed("em_basis")
    start = next(number for number, kept in enumerate(moments) if kept.saved.cursor == (1, 0, 2))
    whole = rates_of({}, moments[0], monkeypatch)
    rest = rates_of({}, moments[start], monkeypatch)
    assert whole[-len(rest) :] == rest
    assert len({*whole}) >= 8


# --- ends


def test_a_collapse_brings_back_the_best_round_and_its_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    def falling(seen, labelled):  # type: ignore[no-untyped-def]
        falling.count += 1
        return {"information": 1 / 4**falling.count, "agreement": 1.0, "labelled_accuracy": 1.0}

    falling.count = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(round_module, "label_free_scores", falling)
    done = run_maps(None, "cbst")
    first = run_maps(None, "cbst", plan={"rounds": 0})
    assert [record.status for record in done.records] == ["ok", "collapsed"]
    assert done.records[-1].notes == (
        "collapsed in round 1: the label-free score fell to 0.062 (best 0.250 in round 0); round 0 is kept",
    )
    assert same(done.weights, first.weights)
    assert torch.equal(done.sites[1]["mean"], first.sites[0]["mean"])
    assert torch.equal(done.sites[1]["uncertainty"], first.sites[0]["uncertainty"])
    assert done.progress.pseudo is not None
    assert isinstance(done.progress.pseudo, MapPseudoLabels)
    expected = torch.stack([class_counts(part, CLASSES) for part in done.sites[1]["label"].split(SITES)])
    assert torch.equal(done.progress.pseudo.counts, expected)


def test_when_nothing_is_trusted_training_stops() -> None:
    done = run_maps(None, "pseudo_label", threshold=1.0)
    assert [record.status for record in done.records] == ["no_change"]
    assert done.records[0].notes == ("nothing was trusted after round 0; training stops",)
    assert done.progress.status == "no_change"


def test_an_empty_unlabelled_side_is_no_trouble_and_nothing_is_put_on_the_shelf(tmp_path: Path) -> None:
    problem = little_streets()
    assert isinstance(problem.unlabelled, MapArrays)
    nothing = replace(problem, unlabelled=problem.unlabelled.take(torch.arange(0)), hidden_labels=None)
    done = run_built_maps(built_maps(nothing), shelf=DiskLabelStore(tmp_path))
    assert done.progress.status == "finished"
    assert [(record.unlabelled, record.trusted, record.changed) for record in done.records] == [(0, 0, 1.0)]
    assert done.records[0].test is not None
    assert not (tmp_path / "sites").exists()


def test_the_share_of_changed_labels_is_counted_over_all_sites() -> None:
    done = judged()
    for number in (1, 2):
        before, after = (done.sites[at]["mean"].argmax(1) for at in (number - 1, number))
        assert done.records[number].changed == float((before != after).double().mean())
    assert done.records[0].changed == 1.0


# --- memory


CODE = """
import resource, sys
sys.path.insert(0, {tests!r})
import torch
from map_runs import built_maps, streets
from embasis.engine.self_train import train_rounds
from embasis.storage.label_store import DiskLabelStore
count = int(sys.argv[1])
problem = streets(labelled=8, unlabelled=count, test=0, size=(128, 128))
built = built_maps(problem, "em_basis", plan={{"rounds": 1, "source_epochs": 1, "max_sites": 4096, "batch_size": 4}})
for moment in train_rounds(built.problem, built.network, built.method, built.plan, None, DiskLabelStore(sys.argv[2])):
    pass
pictures = problem.unlabelled.pictures.numel() * 4 / 3 / 2**20  # here they and their hidden maps are in memory
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - pictures)
"""


@pytest.mark.slow
def test_the_peak_of_memory_does_not_grow_with_the_number_of_pictures(tmp_path: Path) -> None:
    """1,024 sites a picture: at 500 bytes each that would be 50 MB for every 100 pictures."""
    code, peaks = CODE.format(tests=str(SUPPORT)), []
    for count in (64, 256):
        args = [sys.executable, "-c", code, str(count), str(tmp_path / str(count))]
        done = subprocess.run(args, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        peaks.append(float(done.stdout))
    assert peaks[1] < 1.1 * peaks[0], peaks
