"""What every embedded data set keeps, and what published ones keep on miniatures of their official files.

SURF and GoogLeNet features are files of their own: see test_domain_sets.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from embasis.data import DATASETS
from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.inputs.fingerprint import fingerprint
from embasis.types import GroundTruth, MapPlan, MapPreparation, Problem, Samples
from image_trees import ARRAY_SETS, SETS, array_pack, digit_packs, plant, whole
from street_trees import SETS as STREETS
from street_trees import grow

EMBEDDED: Mapping[str, Callable[..., Problem]] = {
    name: entry for name, entry in DATASETS.items() if "root" not in inspect.signature(entry).parameters
}
ROWS = {"scenes": {"labelled_rows": 12, "unlabelled_rows": 14, "test_rows": 3}}
"""Those that are not small by `count`."""


def small(name: str, **settings: int) -> Problem:
    return EMBEDDED[name](**{**ROWS.get(name, {"count": 60}), **settings})


def classes_in(truth: GroundTruth) -> set[int]:
    """Classes that occur in any row, whatever its shape."""
    return {int(number) for row in range(len(truth)) for number in truth[row].unique()}


def readable(side: Samples) -> Samples:
    """The side as a network gets it: pictures with label maps need to know for which one."""
    return side.prepared(MapPreparation(MapPlan(size=0), 4, 4)) if isinstance(side, MapArrays) else side


@pytest.fixture(params=list(EMBEDDED))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_some_data_sets_are_embedded() -> None:
    assert {"digits", "blobs", "moons"} <= EMBEDDED.keys()


def test_labels_are_in_the_schema_and_every_class_occurs(name: str) -> None:
    problem = small(name)
    assert problem.hidden_labels is not None
    for truth in (problem.labelled.truth, problem.hidden_labels):
        assert classes_in(truth) == set(range(len(problem.schema)))
        assert truth[0].dtype == torch.int64
    assert problem.labelled.labels.dtype == torch.int64
    assert int((problem.labelled.counts(len(problem.schema)) > 0).sum()) == len(problem.schema)


def test_the_label_of_a_row_is_the_commonest_class_of_its_truth(name: str) -> None:
    problem = small(name)
    for row, label in enumerate(problem.labelled.labels.tolist()):
        counts = torch.bincount(problem.labelled.truth[row].flatten())
        assert int(counts[label]) == int(counts.max())


def test_ids_are_unique_and_in_order(name: str) -> None:
    problem = small(name)
    for side in (problem.labelled, problem.unlabelled):
        assert (side.ids[1:] > side.ids[:-1]).all()


def test_labels_of_the_unlabelled_side_are_hidden(name: str) -> None:
    problem = small(name)
    assert (problem.unlabelled.labels == -1).all()
    assert int(problem.unlabelled.counts(len(problem.schema)).sum()) == 0
    views = list(readable(problem.unlabelled).stream([torch.arange(3)]))
    assert all(bool((view.y == -1).all()) for view in views)
    assert problem.hidden_labels is not None
    assert len(problem.hidden_labels) == len(problem.unlabelled)


def test_both_sides_hold_finite_inputs_of_one_shape(name: str) -> None:
    problem = small(name)
    sides = (readable(problem.labelled), readable(problem.unlabelled))
    left, right = (side.inputs(torch.arange(len(side))) for side in sides)
    assert left.shape[1:] == right.shape[1:]
    assert left.dtype == right.dtype == (torch.uint8 if isinstance(sides[0], MapArrays) else torch.float32)
    assert torch.isfinite(left).all()
    assert torch.isfinite(right).all()


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(name: str) -> None:
    first, again, other = (fingerprint(small(name, seed=seed)) for seed in (3, 3, 4))
    assert first == again
    assert first["labelled"] != other["labelled"]


def test_data_do_not_read_or_move_the_global_generator(name: str) -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = fingerprint(small(name))
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert fingerprint(small(name)) == first


PUBLISHED = [*SETS, *ARRAY_SETS, "mnist_usps"]


@pytest.fixture(params=PUBLISHED)
def published(request: pytest.FixtureRequest, tmp_path: Path) -> Problem:
    """A published set with a class for each row, from a miniature of its official files."""
    if request.param in ARRAY_SETS:
        return DATASETS[request.param](array_pack(tmp_path, ARRAY_SETS[request.param]))
    if request.param == "mnist_usps":
        return DATASETS["mnist_usps"](digit_packs(tmp_path), 20, 20)
    return DATASETS[request.param](plant(tmp_path, whole(SETS[request.param])))


def test_every_data_set_is_embedded_or_has_a_miniature() -> None:
    features = {"office_caltech10_surf", "office_caltech10_googlenet"}
    assert DATASETS.keys() == EMBEDDED.keys() | {*PUBLISHED, *STREETS} | features


def test_published_rows_have_labels_in_the_schema_and_none_on_the_unlabelled_side(published: Problem) -> None:
    assert published.hidden_labels is not None
    assert published.labelled.labels.dtype == published.hidden_labels.dtype == torch.int64
    assert published.labelled.labels.unique().tolist() == list(range(len(published.schema)))
    assert set(published.hidden_labels.tolist()) <= set(range(len(published.schema)))
    assert len(published.hidden_labels) == len(published.unlabelled)
    assert (published.unlabelled.labels == -1).all()


def test_published_rows_have_unique_ids_in_order(published: Problem) -> None:
    for side in (published.labelled, published.unlabelled):
        assert (side.ids[1:] > side.ids[:-1]).all()


@pytest.fixture(params=list(STREETS))
def maps(request: pytest.FixtureRequest, tmp_path: Path) -> Problem:
    """A published set of street scenes, from a miniature of its official files."""
    return DATASETS[request.param](grow(tmp_path, request.param))


def test_published_maps_have_classes_of_the_schema_and_none_on_the_unlabelled_side(maps: Problem) -> None:
    known = set(range(len(maps.schema)))
    assert maps.hidden_labels is None  # they are judged by a test side of its own
    assert maps.test is not None
    for truth in (maps.labelled.truth, maps.test.truth):
        assert classes_in(truth) <= known | {-1}
        assert truth[0].dtype == torch.int64
        assert truth[0].ndim == 2
    assert set(maps.labelled.labels.tolist()) <= known
    assert (maps.unlabelled.labels == -1).all()
    assert int(maps.unlabelled.counts(len(known)).sum()) == 0


def test_published_maps_have_unique_ids_in_order_and_names(maps: Problem) -> None:
    for side in (maps.labelled, maps.unlabelled, maps.test):
        assert isinstance(side, MapFiles)
        assert (side.ids[1:] > side.ids[:-1]).all()
        assert len(set(side.names)) == len(side)
