"""SHOT's own truths: centroid labels, batch norm that folds, and what moves after source training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from embasis.config import load
from embasis.data.datasets.digit_sets import moons
from embasis.engine.self_train import self_train, train_rounds
from embasis.engine.train import RoundTrainer
from embasis.errors import ConfigError
from embasis.functional.consistency import nearest_centroids
from embasis.methods import METHODS
from embasis.methods.alignment.shot import InformationMaximisation, NormedClassifier
from embasis.networks.network import Network
from embasis.runs.parts import build
from embasis.types import Arrays, Sizes
from seen_rows import draw_seen
from training_runs import built_for, toy


def two_directions(count: int = 40) -> tuple[Tensor, Tensor, Tensor]:
    """Rows around two directions with their classes; probabilities are right for three in four, and never sure."""
    draw = torch.Generator().manual_seed(0)
    truth = torch.arange(count) % 2
    x = torch.eye(3)[truth] + 0.1 * torch.randn(count, 3, generator=draw)
    shown = torch.where(torch.arange(count) % 8 < 2, 1 - truth, truth)
    return x, nn.functional.one_hot(shown, 3).float().softmax(1), truth


def normed(features: int = 5, classes: int = 3) -> tuple[NormedClassifier, nn.Linear]:
    torch.manual_seed(0)
    classifier = nn.Linear(features, classes)
    return NormedClassifier(classifier), classifier


def draw_rows(count: int, seed: int = 0) -> Tensor:
    """Rows of five features that differ in mean and deviation."""
    x = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed))
    return x * torch.linspace(0.2, 3, 5) + torch.linspace(-2, 4, 5)


def test_the_nearest_centroid_is_right_where_single_predictions_are_wrong_whatever_the_length_of_rows() -> None:
    x, p, truth = two_directions()
    assert not torch.equal(p.argmax(1), truth)
    assert torch.equal(nearest_centroids(x, p), truth)
    assert torch.equal(nearest_centroids(x * torch.linspace(1, 9, len(x)).unsqueeze(1), p), truth)


def test_a_class_that_gets_no_row_does_not_disturb_the_others() -> None:
    x, p, truth = two_directions()
    assert torch.equal(nearest_centroids(torch.cat([x, torch.zeros(len(x), 1)], 1), p), truth)
    assert int(nearest_centroids(x, p).max()) == 1


@torch.no_grad()
def test_batch_norm_begins_as_the_identity_of_the_labelled_side() -> None:
    scorer, classifier = normed()
    rows = draw_rows(200)
    rows[:, 2] = 7.0  # a feature that does not vary
    scorer.start_as_identity(rows)
    assert torch.allclose(scorer.normalise(rows), rows, atol=1e-4)
    before = classifier.weight.clone()
    scorer.fold_into(classifier)
    assert torch.allclose(classifier.weight, before, atol=1e-6)


@torch.no_grad()
def test_the_folded_classifier_says_what_batch_norm_and_the_first_one_say() -> None:
    scorer, classifier = normed()
    scorer.start_as_identity(draw_rows(200))
    for seed in range(5):
        scorer(2 * draw_rows(50, seed) + 1)
    rows = draw_rows(30, 9)
    expected = scorer.normalise(rows) @ scorer.weight.T + scorer.bias
    assert not torch.allclose(classifier(rows), expected, atol=1e-2)
    scorer.fold_into(classifier)
    assert torch.allclose(classifier(rows), expected, atol=1e-4)


def test_scores_of_a_batch_do_not_depend_on_the_scale_of_its_features_and_one_row_has_scores_too() -> None:
    scorer, _ = normed()
    rows = draw_rows(64)
    assert torch.allclose(scorer(rows), scorer(3 * rows - 5), atol=1e-3)
    assert bool(torch.isfinite(scorer(rows[:1])).all())


def test_rows_without_a_label_have_information_alone() -> None:
    aligner, network = InformationMaximisation(), Network(nn.Flatten(), 5, 3)
    seen, extra = draw_seen(), aligner.build(network, Sizes((5,), 5, 3, unlabelled=9))
    unknown = aligner.loss("adapt", network, extra, seen, 0.0)
    assert float(unknown.detach()) == pytest.approx(-seen.noted["information"])
    extra["labels"].by_row.copy_(torch.arange(9) % 3)  # type: ignore[operator]
    assert float(aligner.loss("adapt", network, extra, seen, 0.0).detach()) > float(unknown.detach())


def test_a_network_with_scales_by_domain_gets_no_other_norm() -> None:
    aligner = InformationMaximisation()
    assert [*aligner.build(Network(nn.Flatten(), 5, 3, by_domain=True), Sizes((5,), 5, 3))] == ["labels"]
    assert [*aligner.build(Network(nn.Flatten(), 5, 3), Sizes((5,), 5, 3))] == ["labels", "scorer"]


def test_labels_are_renewed_before_every_epoch_and_for_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, survey = list[tuple[int, int]](), RoundTrainer.survey

    def watch(trainer: RoundTrainer, steps: int) -> None:
        survey(trainer, steps)
        if trainer.aligner is not None:
            seen.append(trainer.cursor[:2])
            assert int(trainer.extra["labels"].by_row.min()) >= 0  # type: ignore[operator, union-attr]

    monkeypatch.setattr(RoundTrainer, "survey", watch)
    made = built_for(toy(), "mlp", "shot", plan={"rounds": 2, "epochs": 3, "source_epochs": 1})
    list(self_train(made.problem, made.network, made.method, made.plan))
    assert seen == [(number, epoch) for number in (1, 2) for epoch in range(3)]


def test_after_source_training_labelled_rows_have_no_say_and_the_classifier_is_the_sources_folded() -> None:
    """Labelled rows that change after the first step of round 1 change no bit."""
    ends = []
    for shift in (0.0, 5.0):
        made = built_for(toy(), "mlp", "shot", plan={"rounds": 1, "batch_size": 32})
        labelled, source = made.problem.labelled, dict[str, Tensor]()
        assert isinstance(labelled, Arrays)
        state, before = None, labelled.x.clone()
        for event in train_rounds(made.problem, made.network, made.method, made.plan):
            state = event.state
            if event.record is not None and state.round == 1:
                source = {name: value.clone() for name, value in made.network.state_dict().items()}
            if event.record is None and (state.round, state.epoch, state.step) == (1, 0, 1):
                labelled.x.add_(shift)
        labelled.x.copy_(before)
        end = made.network.state_dict()
        assert state is not None
        ends.append(end)
        kept = state.tensors()
        for name in ("weight", "bias"):
            assert torch.equal(kept[f"extra/scorer.{name}"], source[f"classifier.{name}"])
        assert not torch.equal(end["extractor.1.weight"], source["extractor.1.weight"])
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_weight_zero_builds_nothing_and_bad_settings_are_refused() -> None:
    aligner = METHODS["shot"](3, weight=0.0).align
    assert aligner is not None
    assert not aligner.acts(1)
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
    assert ends[0.0][0] == ends[0.3][0]
