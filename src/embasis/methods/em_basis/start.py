"""The part `start`: the basis that EM begins with (docs/method.md, Stage I).

| part | the first basis is |
| --- | --- |
| ClassMeans | centres of each labelled class, by k-means |
| StageOne | the weights of a block that is trained beside the source network (the paper's eq. 3 to 6) |
| WarmStart | the last round's basis; in the first round that of another part |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from embasis.errors import check_not_negative, require
from embasis.functional import basis, sites
from embasis.functional.remembered import remember_memory
from embasis.methods.em_basis.features import PreparedSites, rows_of_side
from embasis.methods.em_basis.state import EMBasisState
from embasis.types import BasisTerms

FirstBasis = tuple[Tensor, Tensor | None]
"""(K, d) the basis, and (K) the class of each component where that is known"""
FIRST_COMPONENTS = 3
"""Components of each class that Stage I proposes by default."""


class Start(ABC):
    """Where the first basis of a round comes from."""

    repeats: ClassVar[bool] = False
    """Whether the same sites give the same basis in every round; else a round begins where the last one ended."""

    def stage_one(self, classes: int) -> BasisTerms | None:
        """The block that source training is to have; None = it knows nothing of a basis."""
        return None

    @abstractmethod
    def components_per_class_for(self, rows: int, classes: int) -> int:
        """Components of each class for so many rows; an InputDataError for fewer rows than components."""

    @abstractmethod
    def first_basis(
        self, data: PreparedSites, previous: EMBasisState | None, proposal: Tensor | None, per_class: int
    ) -> FirstBasis:
        """The basis that EM begins with: `previous` is the last round's state, `proposal` Stage I's block."""

    def as_stage_one(self, classes: int) -> StageOne:
        """Stage I in place of this part."""
        return StageOne()

    def as_warm_start(self) -> WarmStart:
        """This part for the first round alone."""
        return WarmStart(self)


@dataclass(frozen=True)
class ClassMeans(Start):
    """μ(0): the means of the labelled classes, each cut in several by k-means without a draw (decision 0018).

    Parameters
    ----------
    components_per_class : 0 = three, more with many rows, fewer with fewer rows than that
    """

    components_per_class: int = 0
    repeats: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_not_negative(self, "components_per_class")

    def components_per_class_for(self, rows: int, classes: int) -> int:
        """The setting, or as many as the rows allow."""
        most, wanted = rows // classes, self.components_per_class
        require(
            wanted <= most or wanted == 0,
            f"components_per_class = {wanted} asks for {wanted * classes} components, but there are only {rows} rows",
        )
        return wanted or max(1, min(most, components_for(most)))

    def first_basis(
        self, data: PreparedSites, previous: EMBasisState | None, proposal: Tensor | None, per_class: int
    ) -> FirstBasis:
        """`per_class` unit centres of each class."""
        y = torch.cat([part.y for part in data.stream])
        rows = (rows_of_side(row, part.y, False) for row, part in zip(data.rows, data.stream, strict=True))
        x = sites.join_rows(*(row for row in rows if len(row)))
        mu, component_class = basis.class_means(x, y[y >= 0], data.classes, per_class)
        return unit_means(mu), component_class

    def as_stage_one(self, classes: int) -> StageOne:
        """Stage I with as many components."""
        return StageOne(self.components_per_class * classes)


unit_means = remember_memory(sites.unit_rows)
"""Class means that are the same memory have the same unit rows: what is known of these is not computed again."""


@dataclass(frozen=True)
class StageOne(Start):
    """μ(0) of the first round: the basis-extraction network of the paper's Stage I; then the last round's basis.

    Its block W (K, d) is trained on the labelled side beside the network, with Z = X Wᵀ (eq. 3 to 6):

        L = NLL + a·‖W Wᵀ − I‖² + b·‖X − Z W‖² + c·‖Z Zᵀ − Y Yᵀ‖²,   each term divided by the number of its entries.

    Parameters
    ----------
    components : K; 0 = three a class
    orthogonal : a
    reconstruction : b
    affinity : c, which keeps the block from collapsing
    """

    components: int = 0
    orthogonal: float = 1.0
    reconstruction: float = 1.0
    affinity: float = 1.0

    def __post_init__(self) -> None:
        check_not_negative(self, "components", "orthogonal", "reconstruction", "affinity")

    def stage_one(self, classes: int) -> BasisTerms | None:
        """The block, and the weights of its terms."""
        components = self.components or FIRST_COMPONENTS * classes
        return BasisTerms(components, self.orthogonal, self.reconstruction, self.affinity)

    def components_per_class_for(self, rows: int, classes: int) -> int:
        """By the setting, or as class means would have: the sharpness follows from it."""
        wanted = self.components
        require(wanted <= rows, f"components = {wanted}, but there are only {rows} rows")
        return max(1, wanted // classes) if wanted else ClassMeans().components_per_class_for(rows, classes)

    def first_basis(
        self, data: PreparedSites, previous: EMBasisState | None, proposal: Tensor | None, per_class: int
    ) -> FirstBasis:
        """The block's weights, else the last basis; a network without a block begins with class means."""
        if proposal is not None:
            return sites.unit_rows(proposal), None
        if previous is not None:
            return previous.basis, None
        return ClassMeans().first_basis(data, None, None, per_class)


@dataclass(frozen=True)
class WarmStart(Start):
    """Each round's EM begins with the last round's basis.

    Parameters
    ----------
    first : the start of the first round
    """

    first: Start = field(default_factory=ClassMeans)

    def stage_one(self, classes: int) -> BasisTerms | None:
        """That of the first round."""
        return self.first.stage_one(classes)

    def components_per_class_for(self, rows: int, classes: int) -> int:
        """That of the first round."""
        return self.first.components_per_class_for(rows, classes)

    def first_basis(
        self, data: PreparedSites, previous: EMBasisState | None, proposal: Tensor | None, per_class: int
    ) -> FirstBasis:
        """The last basis, where there is one."""
        if previous is not None and proposal is None:
            return previous.basis, None
        return self.first.first_basis(data, previous, proposal, per_class)

    def as_warm_start(self) -> WarmStart:
        """It is one."""
        return self


def components_for(rows: int) -> int:
    """How finely a class of so many rows is cut: in three; from 1,024 rows on in four, and so on, up to eight."""
    return max(3, min(8, rows.bit_length() - 7))
