"""FixMatch's own truths: which view gives the label, which one learns, and what the threshold does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from embasis.engine.alignment import PartOutputs
from embasis.engine.batch import TrainingBatch
from embasis.engine.self_train import self_train
from embasis.errors import ConfigError
from embasis.methods import METHODS
from embasis.types import RoundRecord
from training_runs import built_for, same, toy


def records(method: str, **own: object) -> tuple[list[RoundRecord], dict[str, Tensor]]:
    made = built_for(toy(), "mlp", method, plan={"rounds": 1}, **own)
    ended = list(self_train(made.problem, made.network, made.method, made.plan))
    return ended, dict(made.network.state_dict())


def test_a_threshold_that_no_row_reaches_leaves_the_loss_zero_and_no_threshold_takes_all() -> None:
    made = built_for(toy(), "mlp", "fixmatch")
    inputs = toy().unlabelled.inputs(torch.arange(8))
    batch = TrainingBatch(inputs, torch.zeros(8, dtype=torch.int64), inputs, None, inputs + 0.1, True)
    network = made.network.eval()
    for threshold, is_zero in ((1.0, True), (1e-6, False)):
        aligner = METHODS["fixmatch"](3, threshold=threshold).align
        assert aligner is not None
        notes = dict[str, float]()
        seen = PartOutputs(network, made.plan, batch.as_part(), notes.__setitem__)
        loss = aligner.loss("align", network, torch.nn.ModuleDict(), seen, 0.0).detach()
        assert (float(loss) == 0) is is_zero
        assert notes["sure_share"] == float(not is_zero)
    label = network(inputs).logits.argmax(1)
    assert torch.allclose(loss, torch.nn.functional.cross_entropy(network(inputs + 0.1).logits, label), atol=1e-6)


def test_the_share_of_sure_rows_is_noted_and_falls_with_the_threshold() -> None:
    shares = [records("fixmatch", threshold=threshold)[0][-1].facts["sure_share"] for threshold in (0.5, 0.9, 1.0)]
    assert 1 >= shares[0] > shares[1] > shares[2] >= 0


def test_another_threshold_gives_another_network_and_bad_ones_are_refused() -> None:
    assert not same(records("fixmatch", threshold=0.5)[1], records("fixmatch", threshold=0.95)[1])
    for threshold in (0.0, 1.5):
        with pytest.raises(ConfigError, match=rf"threshold must be in \(0, 1\], got {threshold}"):
            METHODS["fixmatch"](3, threshold=threshold)
