"""What every embedded data set keeps, and what published images keep on miniatures of their official layout.

Published features are files of their own: see test_domain_sets.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from embasis.data import DATASETS
from embasis.experiment.build import fingerprint
from embasis.types import Problem
from image_trees import SETS, digit_packs, plant, whole

EMBEDDED: Mapping[str, Callable[..., Problem]] = {
    name: entry for name, entry in DATASETS.items() if "root" not in inspect.signature(entry).parameters
}
SMALL = {"count": 60}


@pytest.fixture(params=list(EMBEDDED))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_some_data_sets_are_embedded() -> None:
    assert {"digits", "blobs", "moons"} <= EMBEDDED.keys()


def test_labels_are_in_the_schema_and_every_class_occurs(name: str) -> None:
    problem = EMBEDDED[name](**SMALL)
    assert problem.hidden is not None
    for labels in (problem.labelled.labels, problem.hidden):
        assert labels.unique().tolist() == list(range(len(problem.schema)))
        assert labels.dtype == torch.int64


def test_ids_are_unique_and_in_order(name: str) -> None:
    problem = EMBEDDED[name](**SMALL)
    for side in (problem.labelled, problem.unlabelled):
        assert (side.ids[1:] > side.ids[:-1]).all()


def test_labels_of_the_unlabelled_side_are_hidden(name: str) -> None:
    problem = EMBEDDED[name](**SMALL)
    assert (problem.unlabelled.labels == -1).all()
    assert problem.hidden is not None
    assert len(problem.hidden) == len(problem.unlabelled)


def test_both_sides_hold_finite_inputs_of_one_shape(name: str) -> None:
    problem = EMBEDDED[name](**SMALL)
    left, right = (side.inputs(torch.arange(len(side))) for side in (problem.labelled, problem.unlabelled))
    assert left.shape[1:] == right.shape[1:]
    assert left.dtype == right.dtype == torch.float32
    assert torch.isfinite(left).all()
    assert torch.isfinite(right).all()


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(name: str) -> None:
    first, again, other = (fingerprint(EMBEDDED[name](seed=seed, **SMALL)) for seed in (3, 3, 4))
    assert first == again
    assert first["labelled"] != other["labelled"]


def test_data_do_not_read_or_move_the_global_generator(name: str) -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = fingerprint(EMBEDDED[name](**SMALL))
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert fingerprint(EMBEDDED[name](**SMALL)) == first


PICTURES = [*SETS, "mnist_usps"]


@pytest.fixture(params=PICTURES)
def pictures(request: pytest.FixtureRequest, tmp_path: Path) -> Problem:
    """A published set of images, from a miniature of its official files."""
    if request.param == "mnist_usps":
        return DATASETS["mnist_usps"](digit_packs(tmp_path), 20, 20)
    return DATASETS[request.param](plant(tmp_path, whole(SETS[request.param])))


def test_every_data_set_is_embedded_or_has_a_miniature() -> None:
    features = {"office_caltech10_surf", "office_caltech10_googlenet"}
    assert DATASETS.keys() == EMBEDDED.keys() | {*PICTURES} | features


def test_published_images_have_labels_in_the_schema_and_none_on_the_unlabelled_side(pictures: Problem) -> None:
    assert pictures.hidden is not None
    assert pictures.labelled.labels.dtype == pictures.hidden.dtype == torch.int64
    assert pictures.labelled.labels.unique().tolist() == list(range(len(pictures.schema)))
    assert set(pictures.hidden.tolist()) <= set(range(len(pictures.schema)))
    assert len(pictures.hidden) == len(pictures.unlabelled)
    assert (pictures.unlabelled.labels == -1).all()


def test_published_images_have_unique_ids_in_order(pictures: Problem) -> None:
    for side in (pictures.labelled, pictures.unlabelled):
        assert (side.ids[1:] > side.ids[:-1]).all()
