"""What true labels say of machine-made ones: every figure is a function of sums over parts, in any order."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from embasis.engine import evaluate as module
from embasis.engine.evaluate import EXACT, Ranks, Tally, evaluate
from embasis.engine.labels import BoundSelector, LabelBatch
from embasis.functional.calibration import FINE
from embasis.functional.metrics import CALIBRATION, RANKING, RANKS
from embasis.methods.selectors import ClassBalanced
from embasis.types import Evaluation, LabelDistribution, RoundRecord, record_from_json, record_to_json

CLASSES, ROWS = 4, 120
NEW = ("adaptive_ece", "classwise_ece", "brier", "brier_parts", "aupr", "aurc", "coverage", "spread", "confidence")
SUMS = ("rows", "accuracy", "auroc", "risk_coverage", "confusion", "trusted_share")
"""Figures of whole numbers, which are the same to the last bit in any order, as the new ones but for one are."""


def labelled(seed: int = 0, rows: int = ROWS) -> tuple[LabelBatch, torch.Tensor]:
    """Labels of which most are right, the surer the likelier; a tenth of the true classes are not known."""
    draw = torch.Generator().manual_seed(seed)
    truth = torch.randint(0, CLASSES, (rows,), generator=draw)
    scores = 2 * torch.randn(rows, CLASSES, generator=draw)
    scores[torch.arange(rows), truth] += 4
    mean = scores.softmax(1)
    within = mean - mean.square()
    found = LabelDistribution(mean, torch.zeros_like(mean), within, within.sum(1))
    selector = ClassBalanced(keep_first=0.5)
    truth = torch.where(torch.rand(rows, generator=draw) < 0.1, -1, truth)
    choice = BoundSelector(selector, selector.fit([found], 0), 0, 0)
    return LabelBatch(torch.arange(rows), (), found, scores.argmax(1), torch.arange(rows), choice), truth


def taken(part: LabelBatch, rows: torch.Tensor) -> LabelBatch:
    kept = part.distribution
    some = LabelDistribution(kept.mean[rows], kept.between[rows], kept.within[rows], kept.uncertainty[rows])
    return replace(part, rows=part.rows[rows], distribution=some, network=part.network[rows], ids=part.ids[rows])


def judged(part: LabelBatch, truth: torch.Tensor) -> Evaluation:
    found = evaluate([part], truth, CLASSES)
    assert found is not None
    return found


@given(seed=st.integers(0, 99))
def test_new_figures_equal_their_slow_twins(seed: int) -> None:
    part, truth = labelled(seed, 40)
    found, known = judged(part, truth), truth >= 0
    mean, y = part.distribution.mean[known], truth[known]
    confidence, right, uncertainty = mean.amax(1), mean.argmax(1) == y, part.distribution.uncertainty[known]
    assert found.confidence == pytest.approx(float(confidence.double().mean()))
    assert found.adaptive_ece == pytest.approx(reference.adaptive_calibration_error(confidence, right), abs=1e-6)
    assert found.classwise_ece == pytest.approx(reference.classwise_calibration_error(mean, y), abs=1e-6)
    assert found.brier == pytest.approx(reference.brier_sum(mean, y) / len(y), abs=1e-6)
    assert found.brier_parts == pytest.approx(reference.brier_parts(mean, y)[:3], abs=1e-6)
    assert found.aupr == pytest.approx(reference.average_precision(uncertainty, right))
    assert found.aurc == pytest.approx(reference.risk_area(uncertainty, right))
    assert [share for share, _ in found.coverage] == [0.9, 0.95, 0.99]
    for share, coverage in found.coverage:
        assert coverage == reference.coverage_at(uncertainty, right, share)
    assert [pair for _, *pair in found.spread] == reference.spread_counts(uncertainty, right).tolist()
    assert [edge for edge, *_ in found.spread] == [pytest.approx(k / 20) for k in range(1, 21)]


@given(seed=st.integers(0, 99), cuts=st.lists(st.integers(0, ROWS), max_size=4), exact=st.sampled_from([0, 50, EXACT]))
def test_parts_in_any_order_are_judged_as_the_whole(seed: int, cuts: list[int], exact: int) -> None:
    part, truth = labelled(seed)
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EXACT", exact)
        whole = judged(part, truth)
        pieces = [taken(part, rows) for rows in order.tensor_split(sorted(cuts))]
        streamed = evaluate(pieces, truth, CLASSES)
        merged = Tally(CLASSES)
        for piece in pieces:
            own = Tally(CLASSES)
            own.add(piece, truth[piece.rows])
            merged.merge(own)
    for found in (streamed, merged.evaluation()):
        for name in (*SUMS, *NEW[:-1]):
            assert getattr(found, name) == getattr(whole, name), name
        for name in ("ece", "nll", "confidence"):
            assert getattr(found, name) == pytest.approx(getattr(whole, name), abs=1e-12), name


@given(seed=st.integers(0, 99))
def test_sites_without_a_true_label_change_no_figure(seed: int) -> None:
    part, truth = labelled(seed)
    known = torch.nonzero(truth >= 0).squeeze(1)
    alone = replace(taken(part, known), rows=torch.arange(len(known)))
    assert judged(part, truth) == judged(alone, truth[known])


def test_perfect_labels_are_best_in_every_figure() -> None:
    part, truth = labelled()
    sure = torch.eye(CLASSES)[truth.clamp_min(0)]
    none = torch.zeros_like(sure)
    found = judged(replace(part, distribution=LabelDistribution(sure, none, none, none.sum(1))), truth)
    assert (found.ece, found.adaptive_ece, found.classwise_ece, found.brier, found.aurc) == (0, 0, 0, 0, 0)
    assert (found.auroc, found.aupr, found.confidence) == (None, None, 1)
    assert found.coverage == ((0.9, 1.0), (0.95, 1.0), (0.99, 1.0))
    assert found.spread[0] == (0.05, found.rows, 0)
    assert found.brier_parts is not None
    assert found.brier_parts[0] == 0


def test_wrong_certainty_is_worst_and_no_share_reaches_a_precision() -> None:
    part, truth = labelled()
    false = torch.eye(CLASSES)[(truth + 1) % CLASSES]
    none = torch.zeros_like(false)
    found = judged(replace(part, distribution=LabelDistribution(false, none, none, none.sum(1))), truth)
    assert (found.ece, found.adaptive_ece, found.brier, found.aurc) == (1, 1, 2, 1)
    assert found.coverage == ((0.9, None), (0.95, None), (0.99, None))
    assert found.spread[0] == (0.05, 0, found.rows)


def test_the_parts_of_the_brier_score_are_nearly_all_of_it() -> None:
    found = judged(*labelled(rows=5000))
    assert found.brier is not None
    assert found.brier_parts is not None
    reliability, resolution, uncertainty = found.brier_parts
    assert abs(found.brier - (reliability - resolution + uncertainty)) < 0.01
    assert resolution > 0.1


def test_sites_are_exact_up_to_a_number_and_then_counted_and_never_held_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EXACT", 100)
    ranks, draw = Ranks(), torch.Generator().manual_seed(0)
    for number in range(1, 31):
        values = torch.rand(10, generator=draw)
        ranks.add(values, 1 - values, torch.rand(10, generator=draw) < 0.5)
        assert (ranks.counted is None) == (number <= 10)
        assert sum(len(part) for part, *_ in ranks.held) <= 100
        counts, fine = ranks.tables()
        assert int(counts.sum()) == int(fine[:, 0].sum()) == 10 * number
    assert (counts.shape, fine.shape) == ((RANKS, 2), (FINE, 3))


def test_counting_in_bins_changes_figures_of_many_sites_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    part, truth = labelled(rows=20_000)
    exact = judged(part, truth)
    monkeypatch.setattr(module, "EXACT", 100)
    binned = judged(part, truth)
    assert exact != binned
    for name, most in (("auroc", 1e-4), ("aupr", 1e-3), ("aurc", 1e-4), ("adaptive_ece", 1e-4)):
        assert getattr(exact, name) == pytest.approx(getattr(binned, name), abs=most), name
    pairs = [(kept or 0, coarse or 0) for (_, kept), (_, coarse) in zip(exact.coverage, binned.coverage, strict=True)]
    assert pairs[0][1] > 0.1
    assert all(coarse <= kept <= coarse + 0.005 for kept, coarse in pairs)


def record(found: Evaluation | None) -> RoundRecord:
    return RoundRecord(1, "ok", 0.5, ROWS, 60, (30,) * 4, (15,) * 4, 0.1, {"information": 1.0}, evaluation=found)


def test_a_record_with_all_figures_travels_through_json_unchanged() -> None:
    kept = record(judged(*labelled()))
    text = json.dumps(record_to_json(kept), allow_nan=False)
    assert record_from_json(json.loads(text)) == kept


def test_a_record_of_an_older_release_is_read_without_the_new_figures() -> None:
    plain = record_to_json(record(judged(*labelled())))
    for name in NEW:
        del plain["evaluation"][name]
    older = record_from_json(plain).evaluation
    assert older is not None
    defaults = {part.name: part.default for part in dataclasses.fields(Evaluation)}
    assert {name: getattr(older, name) for name in NEW} == {name: defaults[name] for name in NEW}
    assert {defaults[name] for name in NEW} == {None, ()}


def test_every_metric_that_is_listed_beside_those_of_labels_is_in_a_record() -> None:
    found = judged(*labelled())
    for name in (*CALIBRATION, *RANKING):
        assert getattr(found, name) not in (None, ()), name
