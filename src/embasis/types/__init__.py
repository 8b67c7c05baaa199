"""The values that travel between the floors: frozen, checked once, at birth."""

from embasis.types.images import AUGMENTATIONS, ImagePlan
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
from embasis.types.records import (
    Evaluation,
    RoundRecord,
)
from embasis.types.values import (
    Arrays,
    Draw,
    EMStats,
    Features,
    LabelDistribution,
    LabelSchema,
    Output,
    Preparation,
    Problem,
    PseudoLabels,
    Refusal,
    Samples,
    State,
    Stream,
)

__all__ = [
    "AUGMENTATIONS",
    "OPTIMISERS",
    "Arrays",
    "BasisTerms",
    "Draw",
    "EMStats",
    "Evaluation",
    "Features",
    "ImagePlan",
    "LabelDistribution",
    "LabelSchema",
    "Labeller",
    "Method",
    "Output",
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
    "State",
    "Stream",
]
