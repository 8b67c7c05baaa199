"""Domain classifiers have the published sizes for what they judge: one head for the family of DANN, ADDA's its own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from embasis.methods.alignment.adda import EncoderMapping
from embasis.methods.alignment.bsp import SpectralAdversary
from embasis.methods.alignment.cdan import ConditionalAdversary
from embasis.methods.alignment.dann import DomainAdversary
from embasis.methods.alignment.parts import DomainClassifier
from embasis.methods.alignment.simnet import PrototypeSimilarity
from embasis.networks.network import Network
from embasis.types import Aligner, Sizes

FAMILY = (DomainAdversary(), SpectralAdversary(), ConditionalAdversary(), PrototypeSimilarity())
VECTORS, SMALL, LARGE = (9,), (1, 28, 28), (3, 224, 224)


def layers_of(aligner: Aligner, inputs: tuple[int, ...]) -> tuple[list[tuple[int, int]], set[float]]:
    """(in, out) of each linear layer of D, and its shares of dropout."""
    domain = aligner.build(Network(nn.Linear(7, 7), 7, 3), Sizes(inputs, 7, 3))["domain"]
    linear = [(each.in_features, each.out_features) for each in domain.modules() if isinstance(each, nn.Linear)]
    return linear, {each.p for each in domain.modules() if isinstance(each, nn.Dropout)}


@pytest.mark.parametrize("aligner", FAMILY, ids=lambda each: each.name)
def test_the_family_of_dann_has_one_head_for_each_kind_of_input(aligner: Aligner) -> None:
    width = 21 if aligner.name == "cdan" else 7
    assert layers_of(aligner, VECTORS) == ([(width, 128), (128, 128), (128, 1)], {0.5})
    assert layers_of(aligner, SMALL) == ([(width, 100), (100, 1)], {0.0})
    assert layers_of(aligner, (3, 64, 64)) == layers_of(aligner, SMALL)
    assert layers_of(aligner, (3, 64, 65)) == layers_of(aligner, LARGE)
    assert layers_of(aligner, LARGE) == ([(width, 1024), (1024, 1024), (1024, 1)], {0.5})


@pytest.mark.parametrize(("inputs", "hidden"), [(VECTORS, 128), (SMALL, 500), (LARGE, 1024)])
def test_adda_keeps_its_own_two_layers_without_dropout(inputs: tuple[int, ...], hidden: int) -> None:
    assert layers_of(EncoderMapping(), inputs) == ([(7, hidden), (hidden, hidden), (hidden, 1)], {0.0})


def test_a_domain_classifier_gives_a_score_a_row() -> None:
    assert DomainClassifier(5, (4, 3, 2))(torch.randn(6, 5)).shape == (6,)
