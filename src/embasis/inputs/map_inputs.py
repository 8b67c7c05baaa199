"""Pictures with label maps before the training loop: which network sees them, at which size, and what its labels mean.

Nothing is kept on disk between the pictures and the loop: training views are drawn anew each time, and a frozen part of
a backbone costs a forward pass without its gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from embasis import config as settings
from embasis.config import OF_BACKBONE, Config
from embasis.data.segmentation.classes import choose_colours
from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.data.workers.reader import Reader
from embasis.errors import ConfigError, CorruptError, known, quoted, require
from embasis.inputs.image_inputs import backbone_settings, make_backbone
from embasis.networks import BACKBONES, SEGMENTERS
from embasis.networks.network import Network
from embasis.randomness import seeded
from embasis.types import ClassTable, LabelSchema, MapPlan, MapPreparation, Problem, Samples

DEFAULT = "fast_segment"
BACKBONE = "efficientnet_lite0"
SMALL = "small_fcn"
"""For pictures in memory."""


@dataclass(eq=False)
class MapInputs:
    """How pictures become inputs of the network that is trained."""

    plan: MapPlan
    table: ClassTable
    shape: tuple[int, ...]
    """Of the first picture."""
    network: dict[str, Any]
    """Name and settings, resolved."""
    reader: Reader
    identity: str = "scratch"
    """Of the backbone's first weights."""

    def resolved(self) -> dict[str, Any]:
        """The settings that results depend on."""
        return {name: value for name, value in asdict(self.plan).items() if name != "workers"}

    def preparation(self, network: Network) -> MapPreparation:
        """How pictures are shown to this network."""
        return MapPreparation(self.plan, network.stride, network.multiple)

    def ready(self, problem: Problem, network: Network) -> Problem:
        """The problem with its sides made ready for the network."""
        return replace(
            problem,
            labelled=self.side(problem.labelled, network),
            unlabelled=self.side(problem.unlabelled, network),
            test=None if problem.test is None else self.side(problem.test, network),
        )

    def side(self, samples: Samples, network: Network) -> Samples:
        """One side made ready."""
        if isinstance(samples, MapFiles):
            return samples.prepared(self.preparation(network), self.reader)
        assert isinstance(samples, MapArrays)
        return samples.prepared(self.preparation(network))

    def facts(self) -> dict[str, Any]:
        """What a run folder has to know beside the settings."""
        return {"table": asdict(self.table), "shape": list(self.shape)}


def is_maps(problem: Problem) -> bool:
    """Whether rows are pictures with label maps."""
    return isinstance(problem.labelled, MapFiles | MapArrays)


def table_of(problem: Problem) -> ClassTable:
    """How the labelled side's maps say which class a pixel has; maps in memory hold the class numbers themselves."""
    if not isinstance(problem.labelled, MapFiles):
        return plain_table(problem.schema)
    table = problem.labelled.table
    return table if table.colours else replace(table, colours=choose_colours(len(table.names)))


def plain_table(schema: LabelSchema) -> ClassTable:
    """Class numbers as they are, with colours to tell them apart."""
    return ClassTable(schema.names, tuple((number,) for number in range(len(schema))), choose_colours(len(schema)))


def open_map_inputs(problem: Problem, config: Config) -> tuple[MapInputs, Network]:
    """The front and the network that [network] and [maps] ask for."""
    labelled = problem.labelled
    assert isinstance(labelled, MapFiles | MapArrays)
    shape = (3, *(int(size) for size in labelled.sizes[0]))
    usual = {"size": 0, "crop_height": shape[1], "crop_width": shape[2], "flip": False}
    plan = plan_of({**(usual if isinstance(labelled, MapArrays) else {}), **config.maps})
    front = MapInputs(plan, table_of(problem), shape, {}, Reader(plan.workers))
    return front, network_for(front, len(problem.schema), config, isinstance(labelled, MapArrays))


def plan_of(given: Mapping[str, Any]) -> MapPlan:
    """The plan of these settings. Pictures in memory are small and may be of signs, so they are not resized or turned
    over unless that is asked for."""
    return MapPlan(**settings.bind("maps", MapPlan, given, tuple(MapPlan.__dataclass_fields__)))


def network_for(front: MapInputs, classes: int, config: Config, in_memory: bool) -> Network:
    """The network by its name; its settings, resolved, and its backbone's identity go to the front."""
    name = str(config.network.get("name", SMALL if in_memory else DEFAULT))
    entry = settings.entry_of("network", name)
    rule = f"network {quoted(name)} is not for label maps; known for them: {known((SMALL, *SEGMENTERS))}"
    require(name in SEGMENTERS or name == SMALL, rule, ConfigError)
    given = {key: value for key, value in config.network.items() if key != "name"}
    base = {key: given.pop(key) for key in OF_BACKBONE if key in given} if name in SEGMENTERS else {}
    own = settings.bind("network", entry, given, settings.settings_of(entry))
    front.network = {"name": name, **own}
    if name == SMALL:
        with seeded(config.seed, "network"):
            return BACKBONES[SMALL](front.shape, classes, **own)
    wanted = {"name": base.pop("backbone", BACKBONE), **base}
    chosen = backbone_settings(msgspec.structs.replace(config, network=wanted))
    with seeded(config.seed, "backbone"):
        backbone = make_backbone(chosen)
    weights = Path(str(chosen["weights"])).name  # no path of this machine goes into a run
    front.network |= {"backbone": chosen["name"], "weights": weights}
    front.network |= {"pretrained": chosen["pretrained"]} if "pretrained" in chosen else {}
    front.identity = backbone.identity
    with seeded(config.seed, "network"):
        return SEGMENTERS[name](backbone, classes, **own)


def stored_mapped(facts: Mapping[str, Any], config: Config, schema: LabelSchema) -> tuple[MapInputs, Network]:
    """The front and the network of a run folder; its weights come from the folder's tensors."""
    try:
        raw = facts["maps"]
        table = ClassTable(
            tuple(raw["table"]["names"]),
            tuple(tuple(int(number) for number in ids) for ids in raw["table"]["ids"]),
            tuple((int(red), int(green), int(blue)) for red, green, blue in raw["table"]["colours"]),
            tuple(int(number) for number in raw["table"]["ignore"]),
            bool(raw["table"]["others"]),
            str(raw["table"]["coded"]),
        )
        shape = tuple(int(size) for size in raw["shape"])
        plan = plan_of(config.maps)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"the run's facts do not describe a model of label maps: {error}") from error
    given = {**config.network, **({"weights": ""} if "weights" in config.network else {})}
    given |= {"pretrained": False} if "pretrained" in given else {}
    front = MapInputs(plan, table, shape, {}, Reader(plan.workers))
    bare = msgspec.structs.replace(config, network=given)
    return front, network_for(front, len(schema), bare, in_memory=False)
