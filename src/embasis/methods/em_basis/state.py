"""What the labeller has learned of a round, by name; and the names under which a run folder stores it.

No other module reads or writes one of these stored names; others call the functions at the end of this file. Keys
that calibration keeps beside them (engine/calibration.py) pass through a fit untouched; labellers read one of them,
`inverse_temperature`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from embasis.errors import CorruptError, require
from embasis.types import State

LEGACY_NAMES = {
    "basis": "mu",
    "head_weight": "weight",
    "head_bias": "bias",
    "component_probability": "p",
    "kappa": "agreement",
    "basis_accepted": "sound",
    "network_inverse_temperature": "tempering",
    "class_priors": "shares",
    "pseudo_label_counts": "taught",
    "inverse_temperature": "power",
}
"""Field → stored name, where they differ: the names of version 0.1.0, so that its run folders load."""
PROPOSAL = "proposal"
"""The stored name of Stage I's basis, which the engine passes in round 0; it is not part of a state."""
INVERSE_TEMPERATURE, CLASS_PRIORS = LEGACY_NAMES["inverse_temperature"], LEGACY_NAMES["class_priors"]
"""Stored names by which others see whether labels were calibrated, and whether class priors were estimated."""
NEIGHBOUR_ROWS = "neighbour_rows"
"""The stored name by which others see whether neighbours have a part in labels."""
GIVEN = ("inverse_temperature",)
"""Fields that others write: they are read here and never stored."""


@dataclass(frozen=True, eq=False)
class EMBasisState:
    """The basis of a round, its head, and how far network and basis are trusted.

    K components, C classes, d features. Side 0 is the labelled one, side 1 the unlabelled one.
    """

    centre: Tensor
    """(2, d) mean of the features of each side"""
    scale: Tensor
    """(2, d) their standard deviation"""
    basis: Tensor
    """(K, d) the means μ_k, unit rows"""
    sharpness: Tensor
    """() the λ of the E step"""
    pseudo_label_counts: Tensor | None
    """(C) from round 1 on: selected labels of each class that the network was trained on beside the labelled side"""
    head_weight: Tensor
    """(C, d) weights of the linear head f"""
    head_bias: Tensor
    """(C)"""
    component_probability: Tensor
    """(K, C) class probabilities p_k of each component"""
    alive: Tensor
    """() components with mass"""
    effective: Tensor
    """() exp entropy of the mass"""
    digest: Tensor
    """(32) sha256 of the features and labels that all this was learned from"""
    kappa: Tensor | None = None
    """() Cohen's κ of basis and network on the unlabelled side"""
    basis_accepted: Tensor | None = None
    """() 1 where κ is large enough, else 0: then the network labels alone"""
    network_inverse_temperature: Tensor | None = None
    """() power ≤ 1 of the network's probabilities that makes it no surer than the basis"""
    class_priors: Tensor | None = None
    """(2, C) where they are estimated: class priors of the network's training, and of the unlabelled side"""
    neighbour_rows: Tensor | None = None
    """(m, d) unlabelled sites that labels of near ones rest on, prepared"""
    neighbour_probability: Tensor | None = None
    """(m, C) the network's probabilities of these"""
    inverse_temperature: Tensor | None = None
    """() what calibration raises the labels' probabilities to (engine/calibration.py); None = nothing"""

    @property
    def is_accepted(self) -> bool:
        """Whether the basis labels beside the network."""
        return self.basis_accepted is None or bool(float(self.basis_accepted))

    @property
    def network_power(self) -> float:
        """`network_inverse_temperature` as a number; 1 where nothing was learned."""
        return 1.0 if self.network_inverse_temperature is None else float(self.network_inverse_temperature)

    @property
    def neighbours(self) -> tuple[Tensor, Tensor] | None:
        """`neighbour_rows` and `neighbour_probability`, where they are kept."""
        if self.neighbour_rows is None or self.neighbour_probability is None:
            return None
        return self.neighbour_rows, self.neighbour_probability

    @classmethod
    def from_tensors(cls, stored: State) -> EMBasisState:
        """A state as a run folder keeps it; a CorruptError names what is missing."""
        values: dict[str, Any] = {name: stored.get(stored_name(name)) for name in FIELDS}
        missing = [stored_name(name) for name in REQUIRED if values[name] is None]
        require(not missing, f"the labeller's state lacks {', '.join(missing)}", CorruptError)
        return cls(**values)

    def to_tensors(self) -> State:
        """The tensors of a run folder, by their stored names."""
        values = ((name, getattr(self, name)) for name in FIELDS if name not in GIVEN)
        return {stored_name(name): value for name, value in values if value is not None}


FIELDS = tuple(field.name for field in fields(EMBasisState))
REQUIRED = (
    "centre", "scale", "basis", "sharpness", "head_weight", "head_bias", "component_probability", "alive", "effective",
    "digest",
)  # fmt: skip


def stored_name(field: str) -> str:
    """The name of a field in a run folder."""
    return LEGACY_NAMES.get(field, field)


def read_previous(start: State) -> EMBasisState | None:
    """The last round's state; None in the first round."""
    return EMBasisState.from_tensors(start) if stored_name("digest") in start else None


def read_proposal(start: State) -> Tensor | None:
    """(K, d) Stage I's basis, if the engine passes one."""
    return start.get(PROPOSAL)


def read_counts(start: State) -> Tensor | None:
    """(C) the selected labels that the network was trained on last, if it was."""
    return start.get(stored_name("pseudo_label_counts"))


def read_basis(state: State) -> Tensor | None:
    """(K, d) the basis in a labeller's state; None where the labeller has none."""
    return state.get(stored_name("basis"))


def read_inverse_temperature(state: State) -> float | None:
    """What calibration raises the labels' probabilities to; None = nothing."""
    value = state.get(INVERSE_TEMPERATURE)
    return None if value is None else float(value)


def start_of_round(previous: State, proposal: Tensor | None, counts: Tensor | None) -> State:
    """What a labeller starts a round from: its state after the last round, and what the engine knows beside it.

    `proposal` (K, d) is Stage I's basis; `counts` (C) are the selected labels that this round has trained on."""
    extra = {PROPOSAL: proposal, stored_name("pseudo_label_counts"): counts}
    return {**previous, **{name: value for name, value in extra.items() if value is not None}}
