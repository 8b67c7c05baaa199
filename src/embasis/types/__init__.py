"""The values that travel between the floors: frozen, checked once, at birth."""

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
    EMStats,
    Features,
    LabelDistribution,
    LabelSchema,
    Output,
    Problem,
    PseudoLabels,
    Samples,
    State,
    Stream,
)

__all__ = [
    "OPTIMISERS",
    "Arrays",
    "BasisTerms",
    "EMStats",
    "Evaluation",
    "Features",
    "LabelDistribution",
    "LabelSchema",
    "Labeller",
    "Method",
    "Output",
    "Plan",
    "Problem",
    "PseudoLabels",
    "Recipe",
    "RoundLoss",
    "RoundRecord",
    "Samples",
    "Selector",
    "State",
    "Stream",
]
