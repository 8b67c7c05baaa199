"""Self-training methods: labellers, selectors, losses, and every method by name.

A method is made by a recipe: a function that joins labeller, selector and loss. Its keyword arguments are the settings.
"""

from __future__ import annotations

from embasis.methods.alignment.adaptsegnet import adaptsegnet
from embasis.methods.alignment.adda import adda
from embasis.methods.alignment.adr import adr
from embasis.methods.alignment.advent import advent
from embasis.methods.alignment.afn import afn
from embasis.methods.alignment.bsp import bsp
from embasis.methods.alignment.cdan import cdan
from embasis.methods.alignment.dacs import dacs
from embasis.methods.alignment.dan import dan
from embasis.methods.alignment.dann import dann
from embasis.methods.alignment.fixmatch import fixmatch
from embasis.methods.alignment.gta import gta
from embasis.methods.alignment.jan import jan
from embasis.methods.alignment.mcc import mcc
from embasis.methods.alignment.mcd import mcd
from embasis.methods.alignment.mdd import mdd
from embasis.methods.alignment.mean_teacher import mean_teacher
from embasis.methods.alignment.minent import minent
from embasis.methods.alignment.rtn import rtn
from embasis.methods.alignment.shot import shot
from embasis.methods.alignment.simnet import simnet
from embasis.methods.baselines import (
    cbst,
    entropy,
    lrent,
    lrl2,
    mrent,
    mrkld,
    mrkld_lrent,
    mrl2,
    pseudo_label,
    source_only,
)
from embasis.methods.em_basis.recipes import em_basis, em_basis_paper
from embasis.methods.restyling.cycada import cycada
from embasis.methods.restyling.fcan import fcan
from embasis.methods.restyling.statistics import restyle
from embasis.types import Recipe

__all__ = ["ALIGNMENT", "FAMILIES", "METHODS", "SELF_TRAINING"]

SELF_TRAINING: dict[str, Recipe] = {
    "em_basis": em_basis,
    "em_basis_paper": em_basis_paper,
    "source_only": source_only,
    "pseudo_label": pseudo_label,
    "entropy": entropy,
    "cbst": cbst,
    "mrkld": mrkld,
    "mrent": mrent,
    "mrl2": mrl2,
    "lrent": lrent,
    "lrl2": lrl2,
    "mrkld_lrent": mrkld_lrent,
}
"""Methods that train on labels of their own; and the source model, which they begin with."""
DISCREPANCY: dict[str, Recipe] = {
    "dan": dan,
    "jan": jan,
    "rtn": rtn,
    "afn": afn,
    "mcc": mcc,
}
"""A number that says how far the sides, or the predictions, are from what they should be is made small, without an
adversary: MMD and its kin, norms of features, confusion of classes."""
ADVERSARIAL: dict[str, Recipe] = {
    "adda": adda,
    "cdan": cdan,
    "dann": dann,
    "simnet": simnet,
    "bsp": bsp,
    "gta": gta,
}
"""Features are trained to fool a domain classifier."""
TWO_HEADS: dict[str, Recipe] = {
    "adr": adr,
    "mcd": mcd,
    "mdd": mdd,
}
"""Two heads, or two draws of one, seek rows on which they differ; the features make them agree."""
LABEL_MAPS: dict[str, Recipe] = {
    "minent": minent,
    "advent": advent,
    "adaptsegnet": adaptsegnet,
    "dacs": dacs,
}
"""Methods made for label maps, whatever their loss. One of another family may take label maps too."""
RESTYLING: dict[str, Recipe] = {
    "cycada": cycada,
    "fcan": fcan,
    "restyle": restyle,
}
"""Labelled pictures are given the style of the unlabelled side, before or while the network is trained."""
TEACHERS: dict[str, Recipe] = {
    "fixmatch": fixmatch,
    "mean_teacher": mean_teacher,
    "shot": shot,
}
"""An averaged copy or the source model itself teaches the network on the unlabelled side: teachers and source-free."""
FAMILIES = {
    "self-training": SELF_TRAINING,
    "discrepancy": DISCREPANCY,
    "adversarial": ADVERSARIAL,
    "two-heads": TWO_HEADS,
    "label-maps": LABEL_MAPS,
    "restyling": RESTYLING,
    "teachers": TEACHERS,
}
"""Every method is in one family; `embasis list methods` and the documents group them so."""
ALIGNMENT = {**DISCREPANCY, **ADVERSARIAL, **TWO_HEADS, **LABEL_MAPS, **RESTYLING, **TEACHERS}
"""Methods that draw the two sides together while the network is trained; `--align` takes them beside any other."""
METHODS = {**SELF_TRAINING, **ALIGNMENT}
"""Name of a method → its recipe, called with the number of classes."""
