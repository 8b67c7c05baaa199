"""SHOT's own truths: centroid labels, and what moves after source training."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from embasis.config import load
from embasis.data.datasets.digit_sets import moons
from embasis.engine.self_train import self_train, train_rounds
from embasis.errors import ConfigError
from embasis.functional.em import mean_perplexity
from embasis.functional.sites import unit_rows
from embasis.methods import METHODS
from embasis.methods.alignment.shot import CentroidLabeller
from embasis.runs.parts import build
from embasis.types import Arrays, Features
from training_runs import built_for, toy


def unlabelled(x: Tensor, scores: Tensor) -> Features:
    return Features(x, scores, torch.full((len(x),), -1), torch.arange(len(x)))


def two_directions(count: int = 40) -> tuple[Features, Tensor]:
    """Rows around two directions; the scores are right for three in four, and never sure."""
    draw = torch.Generator().manual_seed(0)
    truth = torch.arange(count) % 2
    x = torch.eye(3)[truth] + 0.1 * torch.randn(count, 3, generator=draw)
    shown = torch.where(torch.arange(count) % 8 < 2, 1 - truth, truth)
    return unlabelled(x, torch.nn.functional.one_hot(shown, 3).float()), truth


def test_the_nearest_centroid_is_right_where_single_scores_are_wrong() -> None:
    features, truth = two_directions()
    labeller = CentroidLabeller()
    state = labeller.fit([features], {}, 0, 0)
    assert torch.equal(labeller.label(features, state).label, truth)
    assert not torch.equal(features.scores.argmax(1), truth)


def test_centroids_are_directions_and_ignore_the_length_of_features_and_how_rows_are_cut() -> None:
    features, _ = two_directions()
    labeller = CentroidLabeller()
    state = labeller.fit([features], {}, 0, 0)
    assert torch.allclose(state["centroid"].norm(dim=1), torch.ones(3), atol=1e-6)
    longer = replace(features, x=features.x * torch.linspace(1, 9, len(features)).unsqueeze(1))
    parts = [unlabelled(features.x[part], features.scores[part]) for part in (slice(13), slice(13, None))]
    for other in ([longer], parts):
        again = labeller.fit(other, {}, 0, 0)
        assert torch.allclose(again["centroid"], state["centroid"], atol=1e-5)
        assert torch.allclose(again["sharpness"], state["sharpness"], rtol=1e-3)


def test_labels_are_as_sure_as_the_network_on_average_and_labelled_rows_do_not_matter() -> None:
    features, _ = two_directions()
    labeller = CentroidLabeller()
    labelled = replace(features, x=-features.x, y=torch.zeros(len(features), dtype=torch.int64))
    state = labeller.fit([labelled, features], {}, 0, 0)
    assert torch.equal(state["centroid"], labeller.fit([features], {}, 0, 0)["centroid"])
    mean = labeller.label(features, state).mean
    assert torch.allclose(mean_perplexity(mean), mean_perplexity(features.scores.softmax(1)), rtol=1e-3)


def test_a_class_that_gets_no_row_keeps_its_first_centroid() -> None:
    features, _ = two_directions()
    state = CentroidLabeller().fit([features], {}, 0, 0)
    p = features.scores.softmax(1)
    first = unit_rows(p.T @ unit_rows(features.x))
    assert torch.allclose(state["centroid"][2], first[2], atol=1e-5)


def test_after_source_training_the_classifier_and_the_labelled_rows_have_no_say() -> None:
    """Other labelled rows in round 1 change no bit, and the classifier is that of round 0."""
    ends = []
    for shift in (0.0, 5.0):
        made = built_for(toy(), "mlp", "shot", plan={"rounds": 1, "batch_size": 32})
        labelled, source = made.problem.labelled, dict[str, Tensor]()
        assert isinstance(labelled, Arrays)
        events = train_rounds(made.problem, made.network, made.method, made.plan)
        for event in events:
            if event.record is not None and event.state.round == 1:
                source = {name: value.clone() for name, value in made.network.state_dict().items()}
                labelled.x.add_(shift)
        end = made.network.state_dict()
        labelled.x.sub_(shift)
        for name in ("classifier.weight", "classifier.bias"):
            assert torch.equal(end[name], source[name])
        assert not torch.equal(end["extractor.1.weight"], source["extractor.1.weight"])
        ends.append(end)
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_the_weight_multiplies_all_of_the_adaptation_and_bad_settings_are_refused() -> None:
    assert METHODS["shot"](3, weight=2.0).loss.unlabelled_weight == pytest.approx(0.6)  # type: ignore[attr-defined]
    assert METHODS["shot"](3, weight=0.0).rounds == 0
    with pytest.raises(ConfigError, match=r"unlabelled_weight must be at least 0, got -1\.0"):
        METHODS["shot"](3, unlabelled_weight=-1.0)


def test_information_alone_improves_two_moons_and_centroids_which_no_moon_has_spoil_them() -> None:
    """The noted exception of the contract test: what fails on moons is the labels, not the alignment."""
    ends = {}
    for share in (0.0, 0.3):
        made = build(
            moons(seed=0),
            load(
                top={"standardise": "none"},
                method={"name": "shot", "unlabelled_weight": share},
                network={"name": "mlp", "hidden": 64, "layers": 2, "dropout": 0.0},
                plan={"source_epochs": 60, "epochs": 60, "rounds": 1, "source_lr": 5e-3, "lr": 5e-3},
            ),
        )
        records = list(self_train(made.problem, made.network, made.method, made.plan))
        ends[share] = [record.evaluation.accuracy for record in records if record.evaluation is not None]
    assert ends[0.0][1] > 0.9 > 0.7 > ends[0.3][1]
    assert ends[0.0][0] == ends[0.3][0] < 0.7
