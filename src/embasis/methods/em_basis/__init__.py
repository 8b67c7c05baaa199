"""EM-basis self-training (Wang et al. 2022): a labeller made of parts, and the recipes that compose it."""

from embasis.methods.em_basis.fusion import Fusion
from embasis.methods.em_basis.head import CountHead, LinearHead
from embasis.methods.em_basis.labeller import EMBasisLabeller
from embasis.methods.em_basis.mixture import Mixture
from embasis.methods.em_basis.neighbours import Neighbours
from embasis.methods.em_basis.start import ClassMeans, StageOne, WarmStart
from embasis.methods.em_basis.state import EMBasisState

__all__ = [
    "ClassMeans",
    "CountHead",
    "EMBasisLabeller",
    "EMBasisState",
    "Fusion",
    "LinearHead",
    "Mixture",
    "Neighbours",
    "StageOne",
    "WarmStart",
]
