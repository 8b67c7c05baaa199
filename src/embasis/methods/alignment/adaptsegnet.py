"""AdaptSegNet (Tsai et al. 2018): predicted maps of the unlabelled side pass for maps of the labelled side.

    fool:   CE + weight · BCE(D(p_t), labelled)                                  moves the network
    domain: ½ BCE(D(⟦p_s⟧), labelled) + ½ BCE(D(⟦p_t⟧), unlabelled)              moves D, of the same predictions

D sees predicted probabilities, enlarged to the pixels of a training view. Deviations: one level, at the network's
output (the published second level reads a head of its own in the middle of the network); D's rate follows the plan's,
in the published ratio (1e-4 to 2.5e-4); no batch statistics anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from embasis.errors import ConfigError, require
from embasis.functional.alignment import domain_accuracy, domain_loss
from embasis.methods.alignment.parts import MapDiscriminator, make_method
from embasis.types import LABELLED, UNLABELLED, Aligner, Group, Method, Phase, Seen, Sizes, trainable


@dataclass(frozen=True, kw_only=True)
class PredictionAdversary(Aligner):
    """The network against a discriminator of predicted maps, in two phases."""

    rate: float = 0.4
    width: int = 64

    name: ClassVar[str] = "adaptsegnet"
    takes: ClassVar[tuple[str, ...]] = ("maps",)
    trains_features: ClassVar[bool] = False
    is_game: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.rate > 0, f"rate must be positive, got {self.rate}", ConfigError)
        require(self.width >= 1, f"width must be at least 1, got {self.width}", ConfigError)

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """The discriminator."""
        sides = (sizes.inputs[-2], sizes.inputs[-1])
        return nn.ModuleDict({"domain": MapDiscriminator(sizes.classes, sides, self.width)})

    def groups(self, network: nn.Module, extra: nn.ModuleDict) -> Mapping[str, Group]:
        """The network by the plan's optimiser, the discriminator by Adam."""
        domain = Group(trainable(extra["domain"]), "adam", self.rate, (0.9, 0.99))
        return {"network": Group(trainable(network)), "domain": domain}

    def phases(self, tau: float) -> Sequence[Phase]:
        """The network, then the discriminator with the same predictions."""
        return Phase("fool", ("network",)), Phase("domain", ("domain",), labelled=False, held=True)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """How badly the unlabelled side passes for the labelled one; or the discriminator's own loss."""
        unlabelled = extra["domain"](self.describe(seen.other.logits))
        if phase == "fool":
            fooled = seen.mean(domain_loss(unlabelled, True), UNLABELLED)
            seen.note("fooling_loss", fooled.detach())
            return self.weight * fooled
        labelled = extra["domain"](self.describe(seen.labelled.logits))
        left = seen.mean(domain_loss(labelled, True), LABELLED)
        right = seen.mean(domain_loss(unlabelled, False), UNLABELLED)
        seen.note("domain_accuracy", domain_accuracy(labelled, unlabelled))
        seen.note("domain_loss", (left + right).detach() / 2)
        return (left + right) / 2

    def describe(self, logits: Tensor) -> Tensor:
        """What the discriminator sees of scores (B, C, h, w), in as many maps: probabilities."""
        return logits.float().softmax(1)


def adaptsegnet(classes: int, *, weight: float = 1e-3, rate: float = 0.4, width: int = 64) -> Method:
    """AdaptSegNet: label maps of the unlabelled side that a discriminator takes for those of the labelled one.

    Parameters
    ----------
    weight : of the discriminator's answer, where the labelled cross-entropy has 1
    rate : learning rate of the discriminator, in units of the network's
    width : channels of the discriminator's first layer
    """
    return make_method(PredictionAdversary(weight=weight, rate=rate, width=width))
