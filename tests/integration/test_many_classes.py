"""A thousand classes: what is counted, class by class, takes no more memory than some of them do."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from embasis import EMBasisClassifier
from embasis.errors import ResourceError
from embasis.functional import selection
from embasis.methods import selectors
from embasis.methods.selectors import ClassBalanced
from embasis.types import LabelDistribution
from estimator_rows import sides
from reference import threshold_of

PEAK = """
import resource, sys, warnings
import numpy as np
import torch
from embasis.config import load
from embasis.engine.self_train import train_rounds
from embasis.runs.parts import build
from embasis.types import Arrays, LabelSchema, Problem
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
def fitted(classes, rows):
    draw = np.random.default_rng(0)
    centres, y = draw.normal(size=(classes, 8)) * 3, np.arange(rows) % classes
    x, other = (centres[y] + draw.normal(size=(rows, 8)) for _ in range(2))
    sides = Arrays.of(torch.from_numpy(x).float(), torch.from_numpy(y)), Arrays.of(torch.from_numpy(other).float())
    problem = Problem(*sides, LabelSchema(tuple(map(str, range(classes)))))
    quick = ["iterations=1", "plan.source_epochs=1", "plan.rounds=0"]
    built = build(problem, load(None, quick, top={"parts": {"labeller.head": "CountHead"}}))
    *_, end = train_rounds(built.problem, built.network, built.method, built.plan)
    return tuple(end.state.labeller["mu"].shape)
fitted(3, 30)
before = peak()
print(fitted(1000, 3000), peak() - before)
"""


def test_a_fit_of_a_thousand_classes_on_three_thousand_rows_takes_little_memory() -> None:
    """Beyond what a small fit takes, in MB. Two histograms of all classes at once would be 1,049."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", PEAK]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=280).stdout
    shape, megabytes = told.rsplit(" ", 1)
    assert shape == "(3000, 8)"
    assert int(megabytes) < 600


def labelled(classes: int, count: int, seed: int, parts: int = 3) -> list[LabelDistribution]:
    """Labels of some rows, some of which are equally sure."""
    draw = torch.Generator().manual_seed(seed)
    mean = (4 * torch.randn(count, classes, generator=draw)).softmax(1)
    between, within = torch.zeros_like(mean), mean * (1 - mean)
    sure = (within.sum(1) * 40).round() / 40
    columns = (column.split(-(-count // parts)) for column in (mean, between, within, sure))
    return [LabelDistribution(*each) for each in zip(*columns, strict=True)]


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("selects", ["class", "all"])
@pytest.mark.parametrize("cap", [0.0, 0.5])
def test_thresholds_do_not_depend_on_how_many_classes_are_counted_together(
    cap: float, selects: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = labelled(7, 200, seed=1)
    selector = ClassBalanced(keep_first=0.3, keep_max=cap, selects=selects, weights="inverse_variance")
    whole = selector.fit(stream, 1)
    monkeypatch.setattr(selectors, "AT_ONCE", at_once)
    found = selector.fit(stream, 1)
    assert whole.keys() == found.keys()
    assert all(torch.equal(whole[name], found[name]) for name in whole)


def test_of_many_classes_each_has_the_threshold_that_sorting_gives() -> None:
    classes = 2 * selectors.AT_ONCE + 3
    stream = labelled(classes, 2000, seed=2)
    state = ClassBalanced(keep_first=0.4, keep_step=0.0, keep_max=0.4).fit(stream, 0)
    score, label = (torch.cat([getattr(part, name) for part in stream]) for name in ("uncertainty", "label"))
    for number, (limit, rank, at) in enumerate(threshold_of(score, label, classes, 0.4)):
        assert float(state["threshold"][number]) == limit
        ties = int(((score == limit) & (label == number)).sum())
        assert float(state["share"][number]) == pytest.approx(at / ties if rank else 0.0)


def test_a_rank_is_found_in_every_row_of_a_long_table() -> None:
    count = 2 * selection.CLASSES_AT_ONCE + 1
    counts = torch.randint(0, 5, (count, 30), generator=torch.Generator().manual_seed(0))
    rank = torch.arange(count) % 20
    found, before = selection.rank_bin(counts, rank)
    for row in range(count):
        assert (found[row], before[row]) == tuple(
            part[0] for part in selection.rank_bin(counts[row : row + 1], rank[row : row + 1])
        )


def test_a_basis_that_memory_cannot_hold_is_refused_before_it_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, other, _ = sides(count=600)
    options: dict[str, Any] = {"components_per_class": 100, "rounds": 0, "random_state": 0}
    monkeypatch.setattr("embasis.resources.free_memory", lambda: 2_879_999)
    with pytest.raises(ResourceError) as caught:
        EMBasisClassifier(**options).fit(x, y, unlabelled=other)
    assert str(caught.value) == (
        "a basis of 300 components on 1,200 rows needs 2.9 MB of memory, 2.9 MB is there; "
        "method.components_per_class=1 takes fewer components, plan.max_sites=10000 learns them from fewer rows"
    )
    assert caught.value.exit_code == 5
    monkeypatch.setattr("embasis.resources.free_memory", lambda: 2_880_000)  # 8 bytes for each row and component
    assert EMBasisClassifier(**options).fit(x, y, unlabelled=other).basis_.shape == (300, 8)
