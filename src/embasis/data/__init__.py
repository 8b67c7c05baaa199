"""Where problems come from: embedded sets, published packs, the user's tables, arrays and images."""

from embasis.data.datasets.array_sets import amazon_reviews, gas_drift, heart_disease, spoken_digits, wisdm
from embasis.data.datasets.digit_sets import blobs, digits, mnist_usps, moons
from embasis.data.datasets.domain_sets import (
    office31,
    office_caltech10,
    office_caltech10_googlenet,
    office_caltech10_surf,
    pacs,
    visda17,
)
from embasis.data.datasets.scenes import scenes
from embasis.data.datasets.street_sets import carla_camvid, gta5_cityscapes, synthia_cityscapes

DATASETS = {
    "digits": digits,
    "blobs": blobs,
    "moons": moons,
    "scenes": scenes,
    "office_caltech10_surf": office_caltech10_surf,
    "office_caltech10_googlenet": office_caltech10_googlenet,
    "office31": office31,
    "office_caltech10": office_caltech10,
    "pacs": pacs,
    "visda17": visda17,
    "mnist_usps": mnist_usps,
    "wisdm": wisdm,
    "gas_drift": gas_drift,
    "heart_disease": heart_disease,
    "amazon_reviews": amazon_reviews,
    "spoken_digits": spoken_digits,
    "gta5_cityscapes": gta5_cityscapes,
    "synthia_cityscapes": synthia_cityscapes,
    "carla_camvid": carla_camvid,
}
"""Every named data set: a function that returns a Problem; its settings are its signature."""
