"""Class-share shift of benchmarks/method: which rows stay, and that nothing but the target side changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.method import __main__ as study
from benchmarks.method.candidates import Candidate
from benchmarks.method.sets import MAPS, PLAIN, SETS
from benchmarks.method.shares import thin_classes

from embasis.data import DATASETS
from embasis.data.datasets.domain_sets import PACS
from embasis.errors import InputDataError
from embasis.storage.atomic import read_stored_table
from embasis.types import Arrays, LabelSchema, Problem
from image_trees import domain, plant


def toy(counts: tuple[int, ...], test: bool = False) -> Problem:
    """A row's only number is its id; ids are not row numbers."""
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    ids = torch.arange(len(y)) * 3 + 1
    x = ids.float()[:, None]
    judged = Arrays.of(x, y, ids) if test else None
    schema = LabelSchema(tuple(str(number) for number in range(len(counts))))
    names = tuple(f"row {number}" for number in ids.tolist())
    return Problem(
        Arrays.of(x, y, ids), Arrays.of(x, None, ids), schema, judged, hidden_labels=y, row_names=names
    )  # fmt: skip


def test_half_of_the_classes_keep_the_share_and_the_others_keep_all() -> None:
    for seed in range(20):
        found = torch.bincount(thin_classes(toy((10, 20, 30, 41, 7)), 0.3, seed, "").hidden_labels)
        whole, few = torch.tensor([10, 20, 30, 41, 7]), torch.tensor([3, 6, 9, 13, 3])
        thinned = found == few
        assert int(thinned.sum()) == 2
        assert torch.equal(found[~thinned], whole[~thinned])


def test_every_class_is_thinned_by_some_seed_and_pairs_differ() -> None:
    def rare(seed: int, pair: str) -> frozenset[int]:
        counts = torch.bincount(thin_classes(toy((10,) * 6), 0.3, seed, pair).hidden_labels)
        return frozenset((counts < 10).nonzero().flatten().tolist())

    assert {number for seed in range(20) for number in rare(seed, "a→b")} == set(range(6))
    assert len({rare(0, pair) for pair in ("a→b", "a→c", "a→d", "b→a", "b→c")}) > 1
    assert rare(3, "a→b") == rare(3, "a→b")


def test_rows_keep_their_ids_labels_and_names_and_the_labelled_side_stays() -> None:
    whole = toy((30, 30, 30), test=True)
    found = thin_classes(whole, 0.3, 1, "")
    assert found.labelled is whole.labelled
    assert (found.unlabelled.labels == -1).all()
    for side in (found.unlabelled, found.test):
        assert torch.equal(side.x[:, 0].long(), side.ids)
        assert torch.equal(side.ids, found.unlabelled.ids)  # test rows with the same ids stay, too
    assert torch.equal(found.hidden_labels, (found.unlabelled.ids - 1) // 3 // 30)
    assert torch.equal(found.test.labels, found.hidden_labels)
    assert found.row_names == tuple(f"row {number}" for number in found.unlabelled.ids.tolist())


def test_image_files_are_thinned_like_rows(tmp_path: Path) -> None:
    whole = DATASETS["pacs"](plant(tmp_path, domain(PACS, "photo") | domain(PACS, "art_painting", 10)))
    found = thin_classes(whole, 0.3, 0, "")
    assert sorted(torch.bincount(found.hidden_labels).tolist()) == [3, 3, 3, 10, 10, 10, 10]
    kept = {
        file.name: number for file, number in zip(found.unlabelled.files, found.hidden_labels.tolist(), strict=True)
    }
    assert all(name.startswith(PACS.classes[number]) for name, number in kept.items())
    assert found.row_names == tuple(kept)


def test_a_class_is_never_emptied_and_classes_that_are_not_there_are_not_drawn() -> None:
    assert torch.bincount(thin_classes(toy((1, 1)), 0.3, 0, "").hidden_labels).tolist() == [1, 1]
    for seed in range(8):
        y = torch.tensor([0] * 10 + [4] * 10)
        problem = replace(toy((5, 5, 5, 5)), unlabelled=Arrays.of(torch.zeros(20, 1)), hidden_labels=y, row_names=None)
        assert sorted(thin_classes(problem, 0.3, seed, "").hidden_labels.unique(return_counts=True)[1].tolist()) == [
            3,
            10,
        ]


def test_rows_without_a_known_class_stay_and_problems_without_classes_are_refused() -> None:
    problem = toy((10, 10))
    y = problem.hidden_labels.clone()
    y[::2] = -1
    assert int((thin_classes(replace(problem, hidden_labels=y), 0.3, 0, "").hidden_labels == -1).sum()) == 10
    with pytest.raises(InputDataError, match=r"^class shares need two classes on the unlabelled side, got 1$"):
        thin_classes(replace(problem, hidden_labels=torch.zeros(20, dtype=torch.int64)), 0.3, 0, "")
    with pytest.raises(
        InputDataError, match=r"^class shares can be changed where each unlabelled row has one true label$"
    ):
        thin_classes(DATASETS["scenes"](labelled_rows=2, unlabelled_rows=2, test_rows=1), 0.3, 0, "")


def test_every_set_but_those_of_label_maps_has_the_variation_when_it_is_named() -> None:
    moved = {name.removesuffix("_shares") for name in SETS if name.endswith("_shares")}
    assert moved == PLAIN.keys() - set(MAPS)
    assert all(SETS[f"{name}_shares"].asked and SETS[f"{name}_shares"].dataset == PLAIN[name].dataset for name in moved)
    assert SETS["pacs"].seeds(5) == range(1)
    assert SETS["pacs_shares"].seeds(5) == range(5)  # the seed draws what is thinned
    method = Candidate("cbst", "methods", "cbst")
    assert method.mark(SETS["blobs"], None) != method.mark(SETS["blobs_shares"], None)


def test_a_study_judges_the_rows_that_are_left(tmp_path: Path) -> None:
    only = ("source_only", "sklearn logistic regression")
    assert study.study([SETS["blobs"], SETS["blobs_shares"]], tmp_path, seeds=2, only=only) == (8, [])
    table = read_stored_table(tmp_path / "results.parquet")
    rows = {(name, seed): rows for name, seed, rows in zip(table["set"], table["seed"], table["rows"], strict=True)}
    whole, few = 150, 50 + 50 + 15
    assert rows == {("blobs", 0): whole, ("blobs", 1): whole, ("blobs_shares", 0): few, ("blobs_shares", 1): few}
