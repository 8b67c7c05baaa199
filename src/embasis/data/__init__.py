"""Where problems come from: embedded sets, published packs, the user's tables and arrays."""

from embasis.data.domain_sets import office_caltech10_googlenet, office_caltech10_surf
from embasis.data.virtual import blobs, digits, moons

DATASETS = {
    "digits": digits,
    "blobs": blobs,
    "moons": moons,
    "office_caltech10_surf": office_caltech10_surf,
    "office_caltech10_googlenet": office_caltech10_googlenet,
}
"""Every named data set: a function that returns a Problem; its settings are its signature."""
