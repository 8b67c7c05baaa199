"""From settings to a problem, and from a problem to its kind of input: the places where the kind is decided.

| what is given | kind |
| --- | --- |
| tables (.csv, .npy, .npz, .parquet) | table |
| folders of images, or .csv lists with a column path | images |
| folders with images/ and labels/ | maps |
| folders that `save_to_disk` of Hugging Face has written | images if a column holds them, else table |
| a named data set | as the set says |
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from embasis import config as settings
from embasis.config import IMAGE_DATA, Config
from embasis.data.datasets.domain_sets import find_data_folder
from embasis.data.images.folders import ImageOptions, check_images, load_images, strip_folders
from embasis.data.images.samples import Images
from embasis.data.problem import SIDE_NAMES, Finding, to_findings
from embasis.data.reader import Reader
from embasis.data.segmentation.folders import MapFolders, check_maps, load_maps
from embasis.data.segmentation.pairs import are_map_folders
from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.data.table_pair import TableColumns, check_pair, load_pair
from embasis.errors import ConfigError, InputDataError, refuse_unknown, require
from embasis.inputs import IMAGE_KIND, MAP_KIND, Inputs, kind_of_run
from embasis.inputs.correction_table import apply_corrections
from embasis.inputs.image_inputs import open_image_inputs, stored_image_inputs
from embasis.inputs.image_rows import is_image_side, require_cache_place
from embasis.inputs.map_inputs import open_map_inputs, stored_map_inputs
from embasis.inputs.swapped import describe_swap, explain_swap
from embasis.inputs.table_inputs import TableInputs
from embasis.networks.backbone import Backbone
from embasis.storage import SealedFiles
from embasis.types import Problem


def open_inputs(problem: Problem, config: Config, backbone: Backbone | None = None) -> Inputs:
    """The kind of input that a problem has; `backbone`: a module of the user's own, for images."""
    if isinstance(problem.labelled, MapFiles | MapArrays):
        return open_map_inputs(problem, config)
    if isinstance(problem.labelled, Images) and problem.labelled.preparation is None:
        return open_image_inputs(config, backbone)
    return TableInputs()


def stored_inputs(
    metadata: Mapping[str, Any], config: Config, files: SealedFiles, backbone: Backbone | None
) -> tuple[Inputs, Config]:
    """The inputs of a run folder, and its config as its network is made again from it."""
    kind = kind_of_run(metadata)
    if kind is MAP_KIND:
        return stored_map_inputs(metadata, config)
    if kind is IMAGE_KIND:
        return stored_image_inputs(metadata, config, files, backbone), config
    return TableInputs(), config


def load_problem(config: Config, kind: str | None = None) -> tuple[Problem, Config]:
    """The problem that [data] names, and the config with names of files in place of their paths; the paths decide which
    kind it is, unless one is given."""
    begun = time.monotonic()
    problem, config = _load_named(config, kind)
    return replace(problem, read_seconds=time.monotonic() - begun), config


def _load_named(config: Config, kind: str | None) -> tuple[Problem, Config]:
    data = dict(config.data)
    if "dataset" in data and "labelled" not in data:
        rule = "corrections are for data of your own, LABELLED and UNLABELLED, not for a named data set"
        require("corrections" not in data, rule, ConfigError)
        _, problem = load_dataset(str(data["dataset"]), config.seed, None, data)
        problem = strip_folders(problem, find_data_folder(data.pop("root", None)))
        return problem, msgspec.structs.replace(config, data=data)
    names = (*SIDE_NAMES, "label", "id", "drop", "classes", "corrections", *IMAGE_DATA)
    for key in data:
        if key not in names:
            refuse_unknown(key, names, "data setting")
    require(
        "labelled" in data and "unlabelled" in data,
        "name two tables or folders, LABELLED and UNLABELLED, or --dataset",
        ConfigError,
    )
    paths = (*SIDE_NAMES, "classes", "corrections")
    data |= {"drop": list(table_columns(data).dropped)} if "drop" in data else {}
    plain = {**data, **{key: os.path.basename(os.path.realpath(str(data[key]))) or "/" for key in paths if key in data}}
    sides = {key: str(data[key]) for key in SIDE_NAMES if key in data}
    kind = kind or kind_of_sides(sides)
    with explain_swap(sides["labelled"], sides["unlabelled"], str(data.get("label", "label"))):
        problem = load_sides(kind, data, sides, config)
    problem = strip_folders(problem, *sides.values(), data.get("corrections"))
    return problem, msgspec.structs.replace(config, data=plain)


def kind_of_sides(sides: dict[str, str]) -> str:
    """Whether the paths are tables, images or pictures with label maps; an InputDataError if they are mixed."""
    images = {key: is_image_side(path) for key, path in sides.items()}
    if not any(images.values()):
        return "table"
    odd = [sides[key] for key, is_image in images.items() if not is_image and os.path.exists(sides[key])]
    rule = f"images and tables cannot be mixed; no folder or list of images: {', '.join(odd)}"
    require(not odd, rule, InputDataError)
    return "maps" if are_map_folders(**sides) else "images"


def load_sides(kind: str, data: Mapping[str, Any], sides: dict[str, str], config: Config) -> Problem:
    """The problem of two tables, of two folders or lists of images, or of two folders with label maps."""
    if kind == "maps":
        odd = [name for name in ("label", "id", "drop") if name in data]
        require(not odd, f"label maps have no columns, so none can be named: {', '.join(odd)}", ConfigError)
        given = {name: str(data[name]) for name in ("classes", "corrections") if name in data}
        with Reader() as reader:
            return load_maps(MapFolders(**sides, **given), image_options(data), reader)
    columns = table_columns(data)
    label, id_ = columns.label, columns.id
    if kind == "table":
        odd = [name for name in data if name in IMAGE_DATA and name != "forbid_leakage"]
        require(not odd, f"data settings for images, but the data are tables: {', '.join(odd)}", ConfigError)
        refuse_classes(data, "tables")
        forbid = image_options(data).forbid_leakage
        problem = load_pair(**sides, columns=columns, forbid_leakage=forbid)
    else:
        refuse_drop(data)
        refuse_classes(data, "images")
        require_cache_place(config)
        problem = load_images(**sides, label=label, options=image_options(data))
    if "corrections" not in data:
        return problem
    return apply_corrections(problem, str(data["corrections"]), str(data["unlabelled"]), label, id_)


def find_problems(data: Mapping[str, Any], workers: int, has_output: bool) -> tuple[str, list[Finding]]:
    """What the two sides are, in words, and all that could go wrong with them; [data] as `fit` takes it."""
    kind, findings = _check_sides(data, workers, has_output)
    if any(finding.level == "error" for finding in findings):
        text = describe_swap(str(data["labelled"]), str(data["unlabelled"]), str(data.get("label", "label")))
        findings = [*to_findings("error", text), *findings]
    return kind, findings


def _check_sides(data: Mapping[str, Any], workers: int, has_output: bool) -> tuple[str, list[Finding]]:
    labelled, unlabelled, label = str(data["labelled"]), str(data["unlabelled"]), str(data.get("label", "label"))
    if not (is_image_side(labelled) or is_image_side(unlabelled)):
        refuse_classes(data, "tables")
        require(not has_output, "--output is for images, the tables have no files of their own", ConfigError)
        return "tables", check_pair(labelled, unlabelled, columns=table_columns(data))
    refuse_drop(data)
    options = image_options(data)
    with Reader(workers) as reader:
        if are_map_folders(labelled, unlabelled):
            folders = MapFolders(labelled, unlabelled, classes=data.get("classes"))
            return "pictures and label maps", check_maps(folders, options, reader)
        refuse_classes(data, "images")
        return "images", check_images(labelled, unlabelled, label=label, options=options, reader=reader)


def table_columns(data: Mapping[str, Any]) -> TableColumns:
    """The columns that [data] names."""
    drop = data.get("drop") or ()
    names = tuple(drop.split(",") if isinstance(drop, str) else (str(name) for name in drop))
    return TableColumns(str(data.get("label") or "label"), None if data.get("id") is None else str(data["id"]), names)


def refuse_drop(data: Mapping[str, Any]) -> None:
    """Only tables have columns to leave out."""
    require(not data.get("drop"), "drop is for columns of tables, the data are images", ConfigError)


def refuse_classes(data: Mapping[str, Any], what: str) -> None:
    """Only label maps have a file that names their classes."""
    require(data.get("classes") is None, f"classes are for label maps, the {what} have none", ConfigError)


def image_options(data: Mapping[str, Any]) -> ImageOptions:
    """The image options among the settings of [data]."""
    given = {name: value for name, value in data.items() if name in IMAGE_DATA}
    return ImageOptions(**settings.bind_settings("data", ImageOptions, given, IMAGE_DATA))


def load_dataset(dataset: str, seed: int, root: str | None, given: Mapping[str, Any]) -> tuple[str, Problem]:
    """A data set with these settings, checked, and the name of its pair; a pair that is not given is its default."""
    entry = settings.find_entry("data", dataset)
    names = tuple(inspect.signature(entry).parameters)
    arguments = {key: value for key, value in given.items() if key != "dataset"}
    if "seed" in names:
        arguments.setdefault("seed", seed)
    if root is not None and "root" in names:
        arguments["root"] = root
    bound = settings.bind_settings("data", entry, arguments, names)
    try:
        return f"{bound.get('source', '')}→{bound.get('target', '')}".strip("→"), entry(**bound)
    except PermissionError as error:
        closed = f"{dataset}: {error.filename}: cannot be read: {error.strerror}"
        raise InputDataError(f"{closed}; set --root or EMBASIS_DATA") from error
