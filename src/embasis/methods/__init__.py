"""Self-training methods: labellers, selectors, losses, and every method by name.

A method is made by a recipe: a function that joins labeller, selector and loss. Its keyword arguments are the settings.
"""

from __future__ import annotations

from embasis.methods.alignment.dan import dan
from embasis.methods.alignment.dann import dann
from embasis.methods.alignment.mcc import mcc
from embasis.methods.alignment.mcd import mcd
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

__all__ = ["ALIGNMENT", "METHODS", "SELF_TRAINING"]

SELF_TRAINING = {
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
ALIGNMENT = {
    "dan": dan,
    "dann": dann,
    "mcc": mcc,
    "mcd": mcd,
}
"""Methods that draw the two sides together while the network is trained; `--align` takes them beside any other."""
METHODS = {**SELF_TRAINING, **ALIGNMENT}
"""Name of a method → its recipe, called with the number of classes."""
