"""Alignment of two domains while a network is trained: the seam between the training loop and methods such as DANN.

An aligner owns its extra modules (a domain classifier, a second head, a teacher) and says what one step of training is:
one phase or several, each with a loss and with the weights that it moves. The loop stays the engine's, and after
training the network alone predicts.

| symbol | meaning |
| --- | --- |
| labelled side, 0 | rows with labels y, as training sees them |
| unlabelled side, 1 | rows without |
| tau | part of the aligner's training that is done, 0 … 1 |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from embasis.errors import ConfigError, check_not_negative, require
from embasis.types.values import Output

LABELLED, UNLABELLED = 0, 1
"""The two sides, as a network's `side` names them."""
BY_ROW = "by_row"
"""A buffer of an extra module by this name has a value for each unlabelled row, −1 = not known: where a run goes on
with other rows, each keeps its own."""
Passes = Callable[[nn.Module], Iterator[tuple[Any, Tensor]]]
"""A module → its outputs for one side in chunks, in the order of its rows, each with the labels y of its sites."""


@dataclass(frozen=True)
class Sizes:
    """What extra modules are built for: the shape of an input, the width of a feature, classes, the sites of a training
    view (empty where a row is one site), and how many rows the unlabelled side has."""

    inputs: tuple[int, ...]
    features: int
    classes: int
    sites: tuple[int, ...] = ()
    unlabelled: int = 0


@dataclass(frozen=True, eq=False)
class Group:
    """Weights that move together, and by what.

    Parameters
    ----------
    weights : each in one group only
    optimiser : "plan" = the plan's; or "adam", "sgd"
    rate : learning rate, in units of the plan's
    betas : of adam
    """

    weights: Sequence[nn.Parameter]
    optimiser: str = "plan"
    rate: float = 1.0
    betas: tuple[float, float] = (0.9, 0.999)


@dataclass(frozen=True)
class Phase:
    """One step of an optimiser inside a training step.

    Parameters
    ----------
    name : what `Aligner.loss` is called with
    moves : names of the groups that move; every other weight is frozen meanwhile
    labelled : the engine adds the labelled cross-entropy; False also where the aligner has one of its own
    pseudo : the engine adds the pseudo-label loss of the round, if there is one; None = as `labelled`
    stage_one : the engine adds Stage I's terms, if the method has any; None = as `labelled`
    times : how often it is taken
    whole : its loss compares rows with each other, so that it is computed of the whole batch
    held : it reads the detached outputs of the phase before; nothing is computed again
    """

    name: str
    moves: tuple[str, ...]
    labelled: bool = True
    pseudo: bool | None = None
    stage_one: bool | None = None
    times: int = 1
    whole: bool = False
    held: bool = False

    def __post_init__(self) -> None:
        rule = f"phase {self.name} cannot be both whole and held: what is held is of the parts of a batch"
        require(not (self.whole and self.held), rule, ConfigError)

    @property
    def uses_pseudo_labels(self) -> bool:
        """Whether the engine adds the pseudo-label loss."""
        return self.labelled if self.pseudo is None else self.pseudo

    @property
    def uses_stage_one(self) -> bool:
        """Whether the engine adds Stage I's terms."""
        return self.labelled if self.stage_one is None else self.stage_one


class Seen(Protocol):
    """What a phase sees of a step: rows of both sides, and what the network makes of them when that is first read.

    | value | shape | meaning |
    | --- | --- | --- |
    | inputs, others | B … | what goes into the network: the labelled and the unlabelled rows |
    | view | B … | the unlabelled rows in a second view, of `Aligner.second_view` |
    | other_rows | B | the numbers of the unlabelled rows on their side |
    | y | n | labels of the labelled sites, −1 = none |
    | kept | by name | what a phase leaves, detached, to the phases that hold it |
    | labelled_share | () | these rows' share of a mean over the batch's sites with a label |
    """

    inputs: Tensor
    others: Tensor
    view: Tensor
    other_rows: Tensor
    y: Tensor
    kept: dict[str, Tensor]

    @property
    def labelled_share(self) -> float:
        """What a mean over these sites with a label counts in the batch's."""

    @property
    def labelled(self) -> Output:
        """Features and logits of the labelled rows."""

    @property
    def other(self) -> Output:
        """Features and logits of the unlabelled rows."""

    def rows(self, side: int) -> Tensor:
        """(n, d) float32: what the classifier reads of each site of a side."""

    def logits(self, side: int) -> Tensor:
        """(n, C) float32: the scores of each site of a side."""

    def run(self, module: nn.Module, inputs: Tensor, side: int) -> Output:
        """Another pass, of any network: with other draws of its dropout, or of other inputs."""

    def mean(self, values: Tensor, side: int) -> Tensor:
        """The mean of a value for each site (or row) of a side, as these rows' share of the mean over the batch."""

    def note(self, name: str, value: Tensor | float) -> None:
        """Keep a number for the round's record, as its mean over the round."""


@dataclass(frozen=True, kw_only=True)
class Aligner:
    """Draws the two sides together while the network is trained. A method overrides what it needs.

    Parameters
    ----------
    weight : of the alignment loss; 0 = plain training, to the bit: no extra module is built, no draw is made
    begins : the first round that it acts in: 0 = beside source training, 1 = after it
    ends : the last round that it acts in; None = the run's last
    """

    weight: float = 1.0
    begins: int = 0
    ends: int | None = None

    name: ClassVar[str] = ""
    takes: ClassVar[tuple[str, ...]] = ("rows",)
    """"rows": one site each; "maps": grids of sites."""
    trains_features: ClassVar[bool] = True
    """Whether it can do nothing where the features are fixed."""
    is_game: ClassVar[bool] = False
    """Whether it plays against itself or draws, so that no line search can be made."""
    second_view: ClassVar[float] = 0.0
    """Strength of a second view of the unlabelled rows, in units of the plan's; 0 = there is none."""

    def __post_init__(self) -> None:
        check_not_negative(self, "weight", "begins")

    def acts(self, round_number: int) -> bool:
        """Whether it takes part in this round."""
        return self.weight > 0 and self.begins <= round_number and (self.ends is None or round_number <= self.ends)

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """Its extra modules, none by default; called when the first round that it acts in begins."""
        return nn.ModuleDict()

    def groups(self, network: nn.Module, extra: nn.ModuleDict) -> Mapping[str, Group]:
        """The groups of weights by name; by default the network is one, and each extra module is one."""
        modules = {"network": network, **extra}
        return {name: Group(trainable(module)) for name, module in modules.items()}

    def phases(self, tau: float) -> Sequence[Phase]:
        """What a step consists of; by default one phase that moves everything."""
        return (Phase("align", ("network",)),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """What a phase minimises beside what the engine adds, weight included."""
        raise NotImplementedError

    def survey(self, network: nn.Module, extra: nn.ModuleDict, labelled: Passes, unlabelled: Passes, step: int) -> None:
        """Before each epoch: what is learned of all rows of a side, such as their labels; no gradients.

        `step`: how many have been taken since the aligner began."""

    def settle(self, network: nn.Module, extra: nn.ModuleDict, when: str, labelled: Passes, step: int) -> None:
        """After each "step", "epoch" and at the "end" of the last round: averages, prototypes, folding; no gradients.

        `step`: how many have been taken since the aligner began."""


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """The weights of a module that are not frozen."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]
