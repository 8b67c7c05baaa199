"""RTN: its discrepancy contains DAN's, and each of its two classifiers is trained by its own side."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from embasis.errors import ConfigError
from embasis.functional.losses import prediction_entropy
from embasis.methods import METHODS
from embasis.methods.alignment.dan import MeanDiscrepancy
from embasis.methods.alignment.rtn import ResidualTransfer
from embasis.methods.losses import labelled_loss
from embasis.types import Output, Sizes
from seen_rows import HandmadeRows, draw_seen
from training_runs import built_for, run_built, toy

NONE = nn.Module()


def build_residual(classes: int = 3, scale: float = 1.0) -> nn.ModuleDict:
    extra = ResidualTransfer().build(NONE, Sizes((5,), 5, classes))
    with torch.no_grad():
        for weight in extra.parameters():
            weight *= scale
    return extra


def loss_of(aligner: ResidualTransfer, seen: HandmadeRows, extra: nn.ModuleDict, tau: float = 0.5) -> Tensor:
    return aligner.loss("align", NONE, extra, seen, tau)


def test_products_with_one_output_that_is_one_have_the_discrepancy_of_dan() -> None:
    seen = draw_seen()
    ones = HandmadeRows(seen.both_rows, (torch.ones(12, 1), torch.ones(9, 1)))
    loss = loss_of(ResidualTransfer(), ones, build_residual(1))  # one class: neither cross-entropy nor entropy
    assert torch.allclose(loss, MeanDiscrepancy().loss("align", NONE, nn.ModuleDict(), ones, 0.5), atol=1e-6)


def test_without_a_residual_the_labelled_rows_train_the_classifier_that_predicts() -> None:
    seen = draw_seen()
    loss = loss_of(ResidualTransfer(weight=0.0), seen, build_residual(scale=0.0), tau=0.0)
    assert torch.allclose(loss, labelled_loss(Output(seen.logits(0), seen.logits(0)), seen.y), atol=1e-6)
    assert float(build_residual()["residual"](seen.logits(0)).detach().abs().max()) < 0.01


def test_entropy_is_of_the_unlabelled_side_alone_and_sets_in_slowly() -> None:
    seen, extra = draw_seen(), build_residual()
    without, with_entropy = (
        loss_of(ResidualTransfer(entropy_weight=weight), seen, extra, tau=1.0) for weight in (0.0, 2.0)
    )
    entropy = prediction_entropy(seen.logits(1)).mean()
    assert torch.allclose(with_entropy - without, 2 * entropy, atol=1e-3)
    begun = (loss_of(ResidualTransfer(entropy_weight=weight), seen, extra, tau=0.0) for weight in (0.0, 2.0))
    assert torch.equal(*begun)


def test_large_scores_weigh_less_as_probabilities() -> None:
    """An outlier among the scores owns the distances; as a probability it is at most one."""
    seen = draw_seen()
    with torch.no_grad():
        seen.both_logits[0][0] *= 100
    found = {}
    for softmax in (False, True):
        loss_of(ResidualTransfer(softmax=softmax), seen, build_residual())
        found[softmax] = seen.noted["discrepancy"]
    assert found[False] < 0.01 < found[True]


def test_stage_one_keeps_its_basis_beside_it() -> None:
    """The phase has a labelled loss of its own; em_basis' terms are added all the same."""
    (phase,) = ResidualTransfer().phases(0.0)
    assert not phase.labelled
    assert phase.uses_pseudo_labels
    assert phase.uses_stage_one


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^entropy_weight must be at least 0, got -1$"):
        METHODS["rtn"](3, entropy_weight=-1)


def test_the_residual_is_trained_and_kept() -> None:
    run = run_built(built_for(toy(), "mlp", "rtn", plan={"rounds": 1, "source_epochs": 2, "epochs": 1}))
    assert run.progress.extra is not None
    assert any(float(weight.detach().abs().max()) > 0.05 for weight in run.progress.extra.parameters())
