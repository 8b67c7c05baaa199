"""Pictures with label maps before the training loop: which network sees them, at which size, and what its labels mean.

Nothing is kept on disk between the pictures and the loop: training views are drawn anew each time, and a frozen part of
a backbone costs a forward pass without its gradients.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import torch
from torch import Tensor, nn

from embasis import config as settings
from embasis.config import OF_BACKBONE, Config
from embasis.data.images.pixels import convert_picture
from embasis.data.parts import own_pieces
from embasis.data.reader import Reader
from embasis.data.segmentation.classes import choose_colours
from embasis.data.segmentation.pairs import MapFile
from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.errors import ConfigError, CorruptError, InputDataError, join_names, quote, require
from embasis.inputs import (
    MAP_KIND,
    InputKind,
    Inputs,
    InputSettings,
    PictureSource,
    RowSource,
    SourceOptions,
    refuse_settings,
    sides_of,
)
from embasis.inputs.image_backbone import backbone_settings, make_backbone
from embasis.inputs.image_rows import find_images
from embasis.networks import BACKBONES, SEGMENTERS
from embasis.networks.network import Network
from embasis.randomness import seeded
from embasis.storage import RunFolder
from embasis.types import ClassTable, Labeller, LabelSchema, LabelStore, MapPlan, MapPreparation, Plan, Problem, Samples

NO_MAP_MODEL = "the run's facts do not describe a model of label maps"
DEFAULT_SEGMENTER = "fast_segment"
SEGMENTER_BACKBONE = "efficientnet_lite0"
SMALL_SEGMENTER = "small_fcn"
"""For pictures in memory."""
FROM_SCRATCH = "scratch"
"""The identity of a network without a pretrained part."""


@dataclass(frozen=True)
class Segmenter:
    """The network that [network] names: its settings, and those of its backbone, if it has one."""

    name: str
    own: dict[str, Any]
    backbone: dict[str, Any] | None = None

    def resolved(self) -> dict[str, Any]:
        """The settings as a run folder has them: without a path of this machine."""
        named = {"name": self.name, **self.own}
        if self.backbone is None:
            return named
        named |= {"backbone": self.backbone["name"], "weights": Path(str(self.backbone["weights"])).name}
        return named | ({"pretrained": self.backbone["pretrained"]} if "pretrained" in self.backbone else {})


@dataclass(eq=False)
class MapInputs(Inputs):
    """How pictures become inputs of the network that is trained."""

    kind: ClassVar[InputKind] = MAP_KIND

    plan: MapPlan
    table: ClassTable
    shape: tuple[int, ...]
    """Of the first picture."""
    reader: Reader
    in_memory: bool = False
    """Whether pictures are arrays: they are small, so the usual network is, too."""
    identity: str = FROM_SCRATCH
    """The hash of the first weights of the backbone that was made last."""

    def input_shape(self, problem: Problem) -> tuple[int, ...]:
        """The shape of the first picture."""
        return self.shape

    def resolve(self, config: Config, shape: tuple[int, ...], same_domain: bool) -> InputSettings:
        """The network scales pictures by itself; one without a pretrained part trains by a plan of its own."""
        own = "images, the data have label maps, whose settings begin with maps"
        refuse_settings("images", config.images, own)
        scaled = f"standardise = {config.standardise} is for rows in memory; networks of pictures scale by themselves"
        require(config.standardise in ("auto", "none"), scaled, ConfigError)
        chosen = segmenter_of(config, self.in_memory)
        maps = {name: value for name, value in asdict(self.plan).items() if name != "workers"}
        tables = {"standardise": "none", "network": chosen.resolved(), "images": {}, "maps": maps}
        pretrained = chosen.backbone is not None
        return InputSettings("maps" if pretrained else SMALL_SEGMENTER, "none", tables, is_deep=pretrained)

    def refuse_plan(self, plan: Plan, shape: tuple[int, ...]) -> None:
        """Views of pictures are drawn by settings of their own."""
        rule = f"plan.augment = {plan.augment} is for pictures in arrays"
        require(not plan.augment, f"{rule}; pictures with label maps have views of their own", ConfigError)

    def make_network(self, config: Config, shape: tuple[int, ...], classes: int) -> Network:
        """The network by its name, with its window; its backbone's identity is noted here."""
        chosen = segmenter_of(config, self.in_memory)
        if chosen.backbone is None:
            with seeded(config.seed, "network"):
                network: Network = BACKBONES[SMALL_SEGMENTER](self.shape, classes, **chosen.own)
        else:
            with seeded(config.seed, "backbone"):
                backbone = make_backbone(chosen.backbone)
            self.identity = backbone.identity
            with seeded(config.seed, "network"):
                network = SEGMENTERS[chosen.name](backbone, classes, **chosen.own)
        network.window = self.plan.window // network.multiple * network.multiple
        return network

    def prepare(self, problem: Problem, network: nn.Module) -> Problem:
        """The problem with its sides at the size, and cut into the views, that the network is trained on."""
        at, sides = self.preparation(network), sides_of(problem)
        prepared: dict[str, Any] = {name: self.prepare_at(pictures_of(side), at) for name, side in sides.items()}
        return replace(problem, **prepared)

    def preparation(self, network: nn.Module) -> MapPreparation:
        """How pictures are shown to this network."""
        assert isinstance(network, Network)
        return MapPreparation(self.plan, network.stride, network.multiple)

    def prepare_at(self, samples: MapFiles | MapArrays, preparation: MapPreparation) -> MapFiles | MapArrays:
        """Pictures at this size."""
        if isinstance(samples, MapFiles):
            return samples.prepared(preparation, self.reader)
        return samples.prepared(preparation)

    def require_rows(self, problem: Problem, labeller: Labeller) -> None:
        """A picture has many sites; how many is known when the network has seen it."""

    def label_store(self, folder: RunFolder) -> LabelStore | None:
        """The sites of all pictures are too many for memory."""
        return folder.label_store()

    def count_used(self, trusted: int) -> int | None:
        """Each picture is used, by those of its sites that are trusted."""
        return None

    def metadata(self, problem: Problem) -> dict[str, Any] | None:
        """The classes of the maps, the shape of a picture, and how many pictures are unlabelled."""
        return {"table": asdict(self.table), "shape": list(self.shape), "pictures": len(problem.unlabelled)}

    def open_rows(self, source: Any, options: SourceOptions) -> RowSource:
        """A picture has many sites, so it is no row: see `open_pictures`."""
        raise InputDataError("the run has label maps, which are not labels of rows")

    def open_pictures(self, source: Any, options: SourceOptions) -> PictureSource:
        """The pictures of a folder (of its images/, as in training) or list, one file, files, or pictures in memory."""
        if isinstance(source, str | os.PathLike) and os.path.isdir(images := Path(source) / "images"):
            source = images
        given = find_images(source, options.follow_links)
        if given.pictures:
            pixels = [convert_picture(picture).unsqueeze(0) for picture in given.pictures]
            return PictureSource(self, partial(arrays_one_by_one, pixels), len(pixels))
        reasons = "; ".join(given.rejected.values()) or "there is none"
        named = source if isinstance(source, str | os.PathLike) else "pictures"
        require(given.files, f"{named}: no image can be read: {reasons}", InputDataError)
        rows = sorted((MapFile(file, None, file.size) for file in given.files), key=lambda file: file.id)
        names, short = [file.name for file in rows], int(torch.tensor([min(file.size) for file in rows]).median())
        chosen = given.take(options.part)
        kept = {file.name for file in chosen.files}
        rows = [file for file in rows if file.name in kept]
        own = [rows[place] for piece in own_pieces(range(len(rows)), 1) for place in piece]
        samples = partial(MapFiles.of, own, self.table, labelled=False)
        return PictureSource(
            self, lambda: [samples()], len(rows), dict(chosen.rejected), names, short, given.fingerprint
        )


def arrays_one_by_one(pixels: Sequence[Tensor]) -> list[MapArrays]:
    """Each picture (1, 3, H, W) by itself, since sizes may differ; its id is its place."""
    return [MapArrays.of(one, ids=torch.tensor([place])) for place, one in enumerate(pixels)]


def pictures_of(samples: Samples) -> MapFiles | MapArrays:
    """Samples of a run on label maps as what they are."""
    assert isinstance(samples, MapFiles | MapArrays)
    return samples


def unread_pictures(samples: Samples) -> dict[str, str]:
    """Why pictures could not be read up to now, by name."""
    return {item.name: item.reason for item in samples.rejected} if isinstance(samples, MapFiles) else {}


def table_of_maps(problem: Problem) -> ClassTable:
    """How the labelled side's maps say which class a pixel has; maps in memory hold the class numbers themselves."""
    if not isinstance(problem.labelled, MapFiles):
        return plain_table(problem.schema)
    table = problem.labelled.table
    return table if table.colours else replace(table, colours=choose_colours(len(table.names)))


def plain_table(schema: LabelSchema) -> ClassTable:
    """Class numbers as they are, with colours to tell them apart."""
    return ClassTable(schema.names, tuple((number,) for number in range(len(schema))), choose_colours(len(schema)))


def open_map_inputs(problem: Problem, config: Config) -> MapInputs:
    """The inputs that [maps] describes. Pictures in memory are small and may be of signs, so they are not resized or
    turned over unless the config says so."""
    labelled = pictures_of(problem.labelled)
    in_memory = isinstance(labelled, MapArrays)
    shape = (3, *(int(size) for size in labelled.sizes[0]))
    usual = {"size": 0, "crop_height": shape[1], "crop_width": shape[2], "flip": False} if in_memory else {}
    plan = map_plan({**usual, **config.maps})
    return MapInputs(plan, table_of_maps(problem), shape, Reader(plan.workers), in_memory)


def map_plan(given: Mapping[str, Any]) -> MapPlan:
    """The plan of these settings."""
    return MapPlan(**settings.bind_settings("maps", MapPlan, given, tuple(MapPlan.__dataclass_fields__)))


def segmenter_of(config: Config, in_memory: bool) -> Segmenter:
    """The network for label maps that [network] names, with every setting."""
    name = str(config.network.get("name", SMALL_SEGMENTER if in_memory else DEFAULT_SEGMENTER))
    settings.find_entry("network", name)
    rule = f"network {quote(name)} is not for label maps; known for them: {join_names((SMALL_SEGMENTER, *SEGMENTERS))}"
    require(name in SEGMENTERS or name == SMALL_SEGMENTER, rule, ConfigError)
    base = {key: config.network[key] for key in OF_BACKBONE if key in config.network and name in SEGMENTERS}
    own = {key: value for key, value in config.network.items() if key not in base}
    own = settings.bind_entry("network", name, own)
    if name == SMALL_SEGMENTER:
        return Segmenter(name, own)
    wanted = {"name": base.pop("backbone", SEGMENTER_BACKBONE), **base}
    return Segmenter(name, own, backbone_settings(msgspec.structs.replace(config, network=wanted)))


def stored_class_table(metadata: Mapping[str, Any]) -> ClassTable:
    """The classes of a stored run on label maps, and how its maps are coded."""
    try:
        raw = metadata["maps"]["table"]
        return ClassTable(
            tuple(raw["names"]),
            tuple(tuple(int(number) for number in ids) for ids in raw["ids"]),
            tuple((int(red), int(green), int(blue)) for red, green, blue in raw["colours"]),
            tuple(int(number) for number in raw["ignore"]),
            bool(raw["others"]),
            str(raw["coded"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"{NO_MAP_MODEL}: {error}") from error


def stored_map_inputs(metadata: Mapping[str, Any], config: Config) -> tuple[MapInputs, Config]:
    """The inputs of a stored run, and its config without weights: those come from the run folder's tensors."""
    table = stored_class_table(metadata)
    try:
        shape = tuple(int(size) for size in metadata["maps"]["shape"])
        plan = map_plan(config.maps)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"{NO_MAP_MODEL}: {error}") from error
    given = {**config.network, **({"weights": ""} if "weights" in config.network else {})}
    given |= {"pretrained": False} if "pretrained" in given else {}
    return MapInputs(plan, table, shape, Reader(plan.workers)), msgspec.structs.replace(config, network=given)
