"""What every embedded data set keeps. Published packs are files of their own: see test_domain_sets.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import pytest
import torch

from embasis.data import DATASETS
from embasis.experiment.build import fingerprint
from embasis.types import Problem

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
