"""The values that travel between the floors: frozen, checked once, at birth."""

from embasis.types.alignment import BY_ROW, LABELLED, UNLABELLED, Aligner, Group, Passes, Phase, Seen, Sizes, trainable
from embasis.types.encoding import ColumnEncoding, TableEncoding
from embasis.types.methods import BasisTerms, Labeller, Method, Recipe, RoundLoss, Selector
from embasis.types.plans import AUGMENTATIONS, OPTIMISERS, SELECTION_SCORE, ImagePlan, MapPlan, MapPreparation, Plan
from embasis.types.problem import (
    Arrays,
    AugmentKey,
    ClassTable,
    CropTarget,
    Fine,
    GroundTruth,
    LabelSchema,
    PathLike,
    Preparation,
    Problem,
    RejectedFile,
    RowSamples,
    Samples,
    ShardRecord,
    View,
    fine_of,
)
from embasis.types.records import Evaluation, RoundRecord, record_from_json, record_to_json
from embasis.types.restyling import RestyledStore, Restyler, RowChange
from embasis.types.values import (
    EMStats,
    Features,
    LabelDistribution,
    LabelStore,
    Output,
    PackedLabels,
    PseudoLabels,
    State,
    Stream,
    TrainingTargets,
)

__all__ = [
    "AUGMENTATIONS", "BY_ROW", "LABELLED", "OPTIMISERS", "SELECTION_SCORE", "UNLABELLED", "Aligner", "Arrays",
    "AugmentKey", "BasisTerms", "ClassTable", "ColumnEncoding", "CropTarget", "EMStats", "Evaluation", "Features",
    "Fine", "GroundTruth", "Group", "ImagePlan", "LabelDistribution", "LabelSchema", "LabelStore", "Labeller",
    "MapPlan", "MapPreparation", "Method", "Output", "PackedLabels", "Passes", "PathLike", "Phase", "Plan",
    "Preparation", "Problem", "PseudoLabels", "Recipe", "RejectedFile", "RestyledStore", "Restyler", "RoundLoss",
    "RoundRecord", "RowChange", "RowSamples", "Samples", "Seen", "Selector", "ShardRecord", "Sizes", "State",
    "Stream", "TableEncoding", "TrainingTargets", "View", "fine_of", "record_from_json", "record_to_json", "trainable",
]  # fmt: skip
