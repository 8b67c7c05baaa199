"""The values that travel between the floors: frozen, checked once, at birth."""

from embasis.types.images import AUGMENTATIONS, ImagePlan
from embasis.types.maps import Aim, ClassTable, MapPlan, MapPreparation, Packed, Shelf, Truth, View
from embasis.types.methods import (
    OPTIMISERS,
    BasisTerms,
    Labeller,
    Method,
    Plan,
    Recipe,
    RoundLoss,
    Selector,
)
from embasis.types.problem import Arrays, Fine, Problem, Samples, fine_of
from embasis.types.records import (
    Evaluation,
    RoundRecord,
)
from embasis.types.values import (
    Draw,
    EMStats,
    Features,
    LabelDistribution,
    LabelSchema,
    Output,
    Preparation,
    PseudoLabels,
    Refusal,
    State,
    Stream,
)

__all__ = [
    "AUGMENTATIONS",
    "OPTIMISERS",
    "Aim",
    "Arrays",
    "BasisTerms",
    "ClassTable",
    "Draw",
    "EMStats",
    "Evaluation",
    "Features",
    "Fine",
    "ImagePlan",
    "LabelDistribution",
    "LabelSchema",
    "Labeller",
    "MapPlan",
    "MapPreparation",
    "Method",
    "Output",
    "Packed",
    "Plan",
    "Preparation",
    "Problem",
    "PseudoLabels",
    "Recipe",
    "Refusal",
    "RoundLoss",
    "RoundRecord",
    "Samples",
    "Selector",
    "Shelf",
    "State",
    "Stream",
    "Truth",
    "View",
    "fine_of",
]
