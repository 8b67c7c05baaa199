"""`select = all`: one exact threshold over all classes, at the same share."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embasis.errors import ConfigError
from embasis.methods import METHODS
from embasis.methods.parts import replace_parts
from embasis.methods.selectors import ClassBalanced
from embasis.randomness import generator
from embasis.types import LabelDistribution


def distribution(count: int, classes: int = 3, seed: int = 0) -> LabelDistribution:
    """Labels in which later classes are rarer and less sure."""
    draw = generator(seed, "select")
    mean = torch.softmax(3 * torch.randn(count, classes, generator=draw) - torch.arange(classes), 1)
    within = mean * (1 - mean)
    return LabelDistribution(mean, torch.zeros_like(mean), within, within.sum(1) * (1 + mean.argmax(1)) / classes)


def parts_of(whole: LabelDistribution, size: int) -> list[LabelDistribution]:
    columns = (column.split(size) for column in (whole.mean, whole.between, whole.within, whole.uncertainty))
    return [LabelDistribution(*part) for part in zip(*columns, strict=True)]


@given(count=st.integers(1, 60), keep=st.sampled_from([0.05, 0.2, 0.5, 1.0]), size=st.integers(1, 60))
def test_the_surest_share_of_all_sites_is_trusted_whatever_their_class(count: int, keep: float, size: int) -> None:
    whole, selector = distribution(count), ClassBalanced(keep, 0.0, 1.0, selects="all")
    state = selector.fit(parts_of(whole, size), 0)
    found = selector.select(whole, state, torch.arange(count), 0, 0)
    surest = sorted(range(count), key=lambda site: float(whole.uncertainty[site]))[: math.ceil(keep * count - 1e-9)]
    assert torch.nonzero(found.weight).squeeze(1).tolist() == sorted(surest)
    assert (found.label[surest] == whole.label[surest]).all()
    assert torch.equal(state["threshold"], whole.uncertainty[surest[-1]].expand(3))


def test_ties_at_the_threshold_are_shared_by_their_ids_over_all_classes() -> None:
    mean = torch.eye(2).repeat(500, 1) * 0.8 + 0.1
    whole = LabelDistribution(mean, torch.zeros_like(mean), mean * (1 - mean), torch.full((1000,), 0.5))
    selector = ClassBalanced(0.3, 0.0, 0.3, selects="all")
    found = selector.select(whole, selector.fit([whole], 0), torch.arange(1000), 0, 0)
    assert int((found.weight > 0).sum()) == pytest.approx(300, abs=45)
    assert int((found.weight[::2] > 0).sum()) == pytest.approx(150, abs=35)


def test_one_threshold_trusts_few_of_an_unsure_class_and_a_threshold_each_does_not() -> None:
    whole, ids = distribution(3000), torch.arange(3000)
    counts = torch.bincount(whole.label, minlength=3)
    shares = {}
    for selects in ("class", "all"):
        selector = ClassBalanced(0.3, 0.0, 0.3, selects=selects)
        found = selector.select(whole, selector.fit([whole], 0), ids, 0, 0)
        shares[selects] = torch.bincount(found.label[found.label >= 0], minlength=3) / counts
        assert int((found.weight > 0).sum()) == pytest.approx(900, abs=2)
    assert shares["class"].tolist() == pytest.approx([0.3] * 3, abs=0.01)
    assert shares["all"][2] < 0.2 < 0.4 < shares["all"][0]


def test_weights_by_variance_are_still_one_on_average() -> None:
    whole, selector = distribution(500), ClassBalanced(0.3, 0.0, 0.3, weights="inverse_variance", selects="all")
    found = selector.select(whole, selector.fit(parts_of(whole, 70), 0), torch.arange(500), 0, 0)
    assert float(found.weight[found.weight > 0].mean()) == pytest.approx(1.0, rel=1e-5)


def test_with_one_class_both_ways_are_the_same() -> None:
    whole, ids = distribution(200, classes=1), torch.arange(200)
    labels = []
    for selects in ("class", "all"):
        selector = ClassBalanced(selects=selects)
        labels.append(selector.select(whole, selector.fit([whole], 0), ids, 0, 0).label)
    assert torch.equal(*labels)


def test_a_changed_part_reaches_the_selector_and_is_checked() -> None:
    assert METHODS["em_basis"](3).selector == ClassBalanced(0.2, 0.1, 0.0)
    changed = replace_parts(METHODS["em_basis"](3), {"selector.selects": "all"})
    assert changed.selector == ClassBalanced(0.2, 0.1, 0.0, selects="all")
    with pytest.raises(ConfigError) as error:
        replace_parts(METHODS["em_basis"](3), {"selector.selects": "every"})
    assert str(error.value) == "selects must be one of class, all, got 'every'"


@given(
    count=st.integers(1, 60),
    size=st.integers(1, 60),
    number=st.integers(0, 9),
    selects=st.sampled_from(["class", "all"]),
)
def test_no_larger_share_of_a_class_is_trusted_than_is_expected_to_be_right(
    count: int, size: int, number: int, selects: str
) -> None:
    whole, selector = distribution(count), ClassBalanced(0.2, 0.1, 0.0, selects=selects)
    state = selector.fit(parts_of(whole, size), number)
    found = selector.select(whole, state, torch.arange(count), 0, number)
    sure, group = whole.mean.amax(1).double(), whole.label if selects == "class" else torch.zeros_like(whole.label)
    for each in group.unique().tolist():
        rows = torch.nonzero(group == each).squeeze(1)
        share = min(0.2 + 0.1 * number, float(sure[rows].mean()))
        surest = sorted(rows.tolist(), key=lambda site: float(whole.uncertainty[site]))
        surest = surest[: math.ceil(share * len(rows) - 1e-9)]
        assert torch.nonzero((found.weight > 0) & (group == each)).squeeze(1).tolist() == sorted(surest)
