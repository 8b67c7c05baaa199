"""What the three kinds of input have in common: tables, images, and pictures with label maps.

| step | tables | images | label maps |
| --- | --- | --- | --- |
| load (inputs/load.py) | two tables | two folders or lists | two folders of pictures and maps |
| validate | `resolve` | `resolve` | `resolve` |
| prepare | – | `read`: the backbone's features of each image, or all images once | `prepare`: views for the network |
| label | rows | files, or pictures in memory | files, or pictures in memory |

A site is a place that gets one label: a row of a table, an image, or a cell of the grid that a network lays over a
picture. A run and its trained model keep one `Inputs` object, which knows what differs between the kinds; only
runs/predict.py asks whether labels are maps (`InputKind.has_maps`), to label and to write them. Loading is a function
outside it, since the two paths that a user names decide which kind there is. Loading finds the files and their labels,
`read` turns files into rows of numbers, and `prepare` makes of pictures the views that a network takes. `resolve` fills
in every setting before anything is read or built: a mistake in the settings is an error before hours of reading.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from embasis.config import Config
from embasis.data.images.files import ImageFile
from embasis.data.images.samples import Images
from embasis.data.parts import WHOLE, Part
from embasis.data.reader import Reader
from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.distributed import current_world
from embasis.errors import ConfigError, InputDataError, require
from embasis.storage import RunFolder
from embasis.types import Labeller, LabelStore, Plan, Problem, RejectedFile, Samples, TableEncoding

if TYPE_CHECKING:
    from embasis.inputs.map_inputs import MapInputs

FROZEN_WEIGHTS = "backbone.safetensors"
"""The weights of the frozen part, in the run folder: a run needs nothing else to label images."""


@dataclass(frozen=True)
class InputSettings:
    """What the settings of a run say of its inputs and network, with no default left out."""

    plan_name: str
    """The entry of PLANS (runs/parts.py) that the network trains well with."""
    standardise: str
    """One of `domain`, `joint`, `none`."""
    resolved: dict[str, Any]
    """The settings standardise, network, images and maps as config.json in the run folder has them."""
    is_deep: bool = False
    """Whether the network is so large that a GPU, where there is one, trains it faster than the processor."""


@dataclass(frozen=True)
class ReadProgress:
    """How far the reading of files is."""

    done: int
    total: int
    summary: str
    """What is about to be read, and what need not be read again."""
    kept: str
    """What the next run need not read again if the user stops this one now."""


Watch = Callable[[ReadProgress], None]


def watch_nothing(progress: ReadProgress) -> None:
    """For those who do not show how far the reading is."""


@dataclass(frozen=True)
class SourceOptions:
    """How new data are read that a model is to label."""

    label: str | None = None
    """Tables: a column to ignore."""
    id: str | None = None
    """Tables: the column of row ids."""
    columns: tuple[str, ...] | None = None
    """Tables: the features in the model's order."""
    encoding: TableEncoding | None = None
    """Tables: how their columns become these features."""
    run: str = "the run"
    """What the model is called in errors."""
    float64: bool = False
    """Tables: whether float32 would lose what the model needs."""
    follow_links: bool = False
    """Files: whether symbolic links are followed."""
    part: Part = WHOLE
    """Of the rows, or the files in the order of their names; for what is named by a path."""


@dataclass(frozen=True, eq=False)
class RowBatch:
    """Rows that are labelled together: names, inputs (N, …) and ids (N); and why others could not be read."""

    names: list[Any]
    x: Tensor
    ids: Tensor | None
    rejected: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What the model does not know of these rows."""
    ends_piece: bool = True
    """Whether these are the last rows of a piece, which a process reads as a whole."""


@dataclass(frozen=True, eq=False)
class RowSource:
    """New rows with one site each."""

    batches: Iterator[RowBatch]
    """Where several processes share the rows: those of the pieces that this one reads. Pieces are dealt out in turn."""
    total: int
    """Rows of all processes."""
    rejected: dict[str, str] = field(default_factory=dict)
    """Files that are no images, and why."""
    unit: str = "rows"
    order: list[str] | None = None
    """The names in the order in which their labels are wanted; None = as the batches come."""
    fingerprint: str = ""
    """A hash of what is read, where several processes must read the same."""


@dataclass(frozen=True, eq=False)
class PictureSource:
    """New pictures with many sites each. They may be read twice, so `samples` makes them anew each time.

    Where several processes share the pictures, `samples` are those of this one."""

    inputs: MapInputs
    samples: Callable[[], Sequence[MapFiles | MapArrays]]
    total: int
    """Pictures of all processes."""
    rejected: dict[str, str] = field(default_factory=dict)
    """Files that cannot be read, and why; reading adds to them."""
    names: Sequence[str] = ()
    """Of all pictures, where only a part of them is labelled."""
    short_side: int = 0
    """Of a typical one among all pictures, where only a part of them is labelled."""
    fingerprint: str = ""
    """A hash of what is read, where several processes must read the same."""


@dataclass(frozen=True)
class InputKind:
    """One of the three kinds of input: its name, the words for it in sentences, and where its labels go."""

    name: str
    """`table`, `images` or `maps`."""
    words: str
    """What a run of this kind has labelled."""
    has_maps: bool = False
    """Whether a row is a picture, which gets a label at each of many sites: a label map."""
    row_unit: str = "rows"
    label_unit: str = "labels"
    labels_suffix: str = ".parquet"
    """How the name of a round's labels in the run folder ends; a folder has no such ending."""
    predict_arguments: str = "INPUT -o labels.csv"
    """Of `embasis predict RUN`, as an example."""


TABLE_KIND = InputKind("table", "a table")
IMAGE_KIND = InputKind("images", "images")
MAP_KIND = InputKind("maps", "pictures with label maps", True, "pictures", "sites", "", "PICTURES -o maps")


def kind_of_run(facts: Mapping[str, Any]) -> InputKind:
    """The kind of input of a stored run, by the facts of its generation."""
    return MAP_KIND if facts.get("maps") else IMAGE_KIND if facts.get("backbone") else TABLE_KIND


def count_pictures(facts: Mapping[str, Any]) -> int:
    """How many unlabelled pictures a stored run on label maps has; 0 for other runs."""
    return int((facts.get("maps") or {}).get("pictures", 0))


def class_colours(facts: Mapping[str, Any]) -> tuple[tuple[int, int, int], ...]:
    """The colours of the classes of a stored run on label maps; none for other runs."""
    colours = facts["maps"]["table"]["colours"] if facts.get("maps") else ()
    return tuple((int(red), int(green), int(blue)) for red, green, blue in colours)


class Inputs(ABC):
    """What a run and its model need to know of one kind of input; a row has one site unless a kind says otherwise."""

    kind: ClassVar[InputKind]
    reader: Reader | None
    """What reads files; None where rows are in memory."""

    @property
    def identity(self) -> str | None:
        """The hash of the pretrained part's weights; None where there is no such part."""
        return None

    @property
    def files(self) -> tuple[ImageFile, ...]:
        """The image files of the unlabelled rows, where rows are image files whose features are trained on."""
        return ()

    @abstractmethod
    def input_shape(self, problem: Problem) -> tuple[int, ...]:
        """The shape of one input of the network."""

    def fill_config(self, config: Config, problem: Problem) -> Config:
        """The settings with those defaults that depend on how many rows there are; none do, unless a kind says so."""
        return config

    @abstractmethod
    def resolve(self, config: Config, shape: tuple[int, ...], same_domain: bool) -> InputSettings:
        """All settings of inputs and network; a ConfigError names a setting that these inputs cannot have."""

    @abstractmethod
    def refuse_plan(self, plan: Plan, shape: tuple[int, ...]) -> None:
        """A ConfigError for a plan that these inputs cannot be trained by."""

    def must_read(self, problem: Problem) -> bool:
        """Whether `read` has something to do: rows are in memory, or are read while training, unless a kind says so."""
        return False

    def keeps_features(self, problem: Problem) -> bool:
        """Whether `read` keeps what it reads for the next run."""
        return False

    def read(self, problem: Problem, budget: float, watch: Watch = watch_nothing) -> Problem:
        """The problem with rows in place of files; an InputDataError if a larger share of them than `budget` cannot be
        read."""
        return problem

    @abstractmethod
    def make_network(self, config: Config, shape: tuple[int, ...], classes: int) -> nn.Module:
        """What is trained."""

    def prepare(self, problem: Problem, network: nn.Module) -> Problem:
        """The problem with its sides as this network sees them."""
        return problem

    def require_rows(self, problem: Problem, labeller: Labeller) -> None:
        """An InputDataError where the labeller needs more rows; label maps have sites, which are not counted yet."""
        labeller.require_rows(len(problem.labelled) + len(problem.unlabelled))

    def label_store(self, folder: RunFolder) -> LabelStore | None:
        """Where the label distributions of rounds lie; None where they are small enough for memory."""
        return None

    def count_used(self, trusted: int) -> int | None:
        """How many unlabelled rows a round trains on that trusts so many labels; None = all of them."""
        return trusted

    def frozen_weights(self) -> Mapping[str, Tensor] | None:
        """The weights that are not trained, which a run folder keeps beside its generations."""
        return None

    def metadata(self, problem: Problem) -> dict[str, Any] | None:
        """What a run folder has to know of label maps beside the settings."""
        return None

    @abstractmethod
    def open_rows(self, source: Any, options: SourceOptions) -> RowSource:
        """New rows for a model to label: a table, or images by path or in memory; not for label maps."""

    def open_pictures(self, source: Any, options: SourceOptions) -> PictureSource:
        """New pictures for a model to label site by site, by path or in memory; for label maps only."""
        raise InputDataError("the run was trained without label maps")

    def set_workers(self, workers: int) -> None:
        """How many processes read files."""
        if self.reader is not None:
            self.reader.workers = workers

    def close(self) -> None:
        """End the processes that read files; they start again when they are needed."""
        if self.reader is not None:
            self.reader.close()


NO_MAPS = "label maps, the data have none"


def refuse_settings(table: str, given: Mapping[str, Any], purpose: str) -> None:
    """A ConfigError for settings of other data; `purpose` says of which data, and what these are."""
    require(not given, f"{table} settings are for {purpose}: {', '.join(given)}", ConfigError)


def rejected_while_training(problem: Problem) -> dict[str, list[RejectedFile]]:
    """The files of each side that could not be read when training came to them."""
    sides = sides_of(problem).items()
    return {name: side.rejected for name, side in sides if isinstance(side, Images | MapFiles)}


def share_rejected(problem: Problem) -> None:
    """Put the files that any process could not read while training into the list of every process."""
    world, lists = current_world(), rejected_while_training(problem)
    if world.size == 1:
        return
    own = {side: [asdict(item) for item in items] for side, items in lists.items()}
    for text in world.collect_texts(json.dumps(own)):
        for side, rows in json.loads(text).items():
            known = {item.name for item in lists[side]}
            lists[side] += [RejectedFile(**row) for row in rows if row["name"] not in known]


def sides_of(problem: Problem) -> dict[str, Samples]:
    """The sides that there are, by name."""
    sides = {"labelled": problem.labelled, "unlabelled": problem.unlabelled, "test": problem.test}
    return {name: side for name, side in sides.items() if side is not None}
