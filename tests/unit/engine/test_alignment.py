"""What an aligner is refused for, in whole sentences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from torch import Tensor, nn

from embasis.engine.alignment import refuse_unalignable
from embasis.engine.self_train import train_rounds
from embasis.errors import ConfigError, CorruptError
from embasis.methods import METHODS
from embasis.methods.alignment.parts import encoder_of
from embasis.networks.network import Network
from embasis.runs.parts import refuse_fixed_features
from embasis.types import Aligner, Phase, Plan, Sizes
from training_runs import Saved, built_for, toy

ROWS, MAPS = Sizes((9,), 6, 4), Sizes((3, 32, 32), 6, 4, (8, 8))


@dataclass(frozen=True, kw_only=True)
class Whole(Aligner):
    """Compares the rows of a batch."""

    name: ClassVar[str] = "whole"

    def phases(self, tau: float) -> tuple[Phase, ...]:
        return (Phase("align", ("network",), whole=True),)


def network(*layers: nn.Module) -> Network:
    return Network(nn.Sequential(*layers), 6, 4)


def aligner_of(name: str) -> Aligner:
    aligner = METHODS[name](4).align
    assert aligner is not None
    return aligner


TRAINED = network(nn.Linear(9, 6))


@pytest.mark.parametrize(
    ("aligner", "module", "sizes", "plan", "sentence"),
    [
        (aligner_of("dan"), TRAINED, MAPS, Plan(),
         "dan aligns rows with one label each, and these data have label maps; "
         "`embasis list methods` says what takes them"),
        (aligner_of("advent"), TRAINED, ROWS, Plan(),
         "advent aligns label maps, and these data have rows with one label each; "
         "`embasis list methods` says what takes them"),
        (aligner_of("dan"), network(nn.Flatten()), ROWS, Plan(),
         "dan needs features that can be trained, and no layer before this network's classifier can be"),
        (aligner_of("dann"), TRAINED, ROWS, Plan(optimiser="lbfgs", batch_size=0),
         "dann plays against itself: plan.optimiser must be adam or sgd, got lbfgs"),
        (Whole(), network(nn.Linear(9, 6), nn.BatchNorm1d(6)), ROWS, Plan(accumulate_steps=2),
         "whole compares the rows of a batch, which batch norm does not allow in parts: plan.accumulate_steps=1"),
    ],
)  # fmt: skip
def test_what_cannot_be_aligned_is_refused(
    aligner: Aligner, module: Network, sizes: Sizes, plan: Plan, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_unalignable(aligner, module, sizes, plan)
    assert str(caught.value) == sentence


def test_batch_norm_is_fine_where_a_batch_is_one_part() -> None:
    refuse_unalignable(Whole(), network(nn.Linear(9, 6), nn.BatchNorm1d(6)), ROWS, Plan())


def test_fixed_features_are_refused_with_the_settings_that_train_some() -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_fixed_features(METHODS["dann"](4), network(nn.Flatten()))
    assert str(caught.value) == (
        "dann needs features that can be trained, and this network has none; network.name=adapter adds a layer to "
        "tables, images.head=adapter or images.depth=partial trains one for images"
    )
    refuse_fixed_features(METHODS["mcc"](4), network(nn.Flatten()))


def test_a_module_without_an_extractor_is_refused_where_one_is_needed() -> None:
    with pytest.raises(ConfigError) as caught:
        encoder_of(nn.Linear(3, 2))
    assert str(caught.value) == (
        "this method needs a network with an extractor and a classifier, got Linear; "
        "embasis.networks.network.Network(extractor, …) is one"
    )


def test_a_phase_is_whole_or_held() -> None:
    with pytest.raises(ConfigError) as caught:
        Phase("align", ("network",), whole=True, held=True)
    assert str(caught.value) == ("phase align cannot be both whole and held: what is held is of the parts of a batch")


def test_an_optimiser_that_this_run_does_not_have_is_damage() -> None:
    made = built_for(toy(), "mlp", "dann")
    events = train_rounds(made.problem, made.network, made.method, made.plan)
    saved = Saved.of(next(iter(events)).state)
    tensors: dict[str, Tensor] = {
        name.replace("optimiser/domain/", "optimiser/judge/"): value for name, value in saved.tensors.items()
    }
    again = built_for(toy(), "mlp", "dann")
    state = replace(saved, tensors=tensors).restore(again)
    with pytest.raises(CorruptError) as caught:
        next(iter(train_rounds(again.problem, again.network, again.method, again.plan, state)))
    assert str(caught.value) == "the saved progress has an optimiser 'judge' that this run has not"
