"""From settings to a problem, and from a problem to its kind of input: the places where the kind is decided.

| what is given | kind |
| --- | --- |
| tables (.csv, .npy, .npz, .parquet) | table |
| folders of images, or .csv lists with a column path | images |
| folders with images/ and labels/ | maps |
| a named data set | as the set says |

A table of corrections holds labels that a person has corrected, as predict or export wrote it and a spreadsheet saved
it. All other columns are ignored. Cells of a .csv file that begin with an apostrophe and the sign of a formula lose the
apostrophe.

| column | meaning |
| --- | --- |
| id, or path | the row of the unlabelled side |
| label | its class |
| corrected | the right class, or a mark (x, yes, true, 1) that the one in `label` is right; only filled rows count |
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from embasis import config as settings
from embasis.config import IMAGE_DATA, Config
from embasis.data.class_labels import decode_text, label_names, quote_names
from embasis.data.corrections import with_corrections
from embasis.data.datasets.domain_sets import find_data_folder
from embasis.data.formats import LARGEST_TABLE, read_column_names, read_columns, read_csv_rows
from embasis.data.images.files import printable_path
from embasis.data.images.folders import ImageOptions, check_images, load_images, strip_folders
from embasis.data.images.samples import Images
from embasis.data.problem import SIDE_NAMES, Finding, to_findings
from embasis.data.reader import Reader
from embasis.data.segmentation.folders import MapFolders, check_maps, load_maps
from embasis.data.segmentation.pairs import are_map_folders
from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.data.table_pair import check_pair, load_pair
from embasis.data.tables import require_different
from embasis.errors import ConfigError, InputDataError, ResourceError, quote, refuse_unknown, require
from embasis.inputs import IMAGE_KIND, MAP_KIND, Inputs, kind_of_run
from embasis.inputs.image_inputs import open_image_inputs, stored_image_inputs
from embasis.inputs.image_rows import is_image_side, require_cache_place
from embasis.inputs.map_inputs import open_map_inputs, stored_map_inputs
from embasis.inputs.swapped import describe_swap, explain_swap
from embasis.inputs.table_inputs import TableInputs
from embasis.networks.backbone import Backbone
from embasis.resources import require_memory
from embasis.storage import SealedFiles, unescape_formula
from embasis.types import Problem

ID, PATH, LABEL, CORRECTED = "id", "path", "label", "corrected"
YES, NO = frozenset({"x", "y", "yes", "true", "1", "✓", "✔"}), frozenset({"n", "no", "false", "0"})
WHOLE_NUMBER = re.compile(r"(-?[0-9]+)\.0+")

Columns = dict[str, list[Any]]


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
    data = dict(config.data)
    if "dataset" in data and "labelled" not in data:
        rule = "corrections are for data of your own, LABELLED and UNLABELLED, not for a named data set"
        require("corrections" not in data, rule, ConfigError)
        _, problem = load_dataset(str(data["dataset"]), config.seed, None, data)
        problem = strip_folders(problem, find_data_folder(data.pop("root", None)))
        return problem, msgspec.structs.replace(config, data=data)
    names = (*SIDE_NAMES, "label", "id", "classes", "corrections", *IMAGE_DATA)
    for key in data:
        if key not in names:
            refuse_unknown(key, names, "data setting")
    require(
        "labelled" in data and "unlabelled" in data,
        "name two tables or folders, LABELLED and UNLABELLED, or --dataset",
        ConfigError,
    )
    paths = (*SIDE_NAMES, "classes", "corrections")
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
        odd = [name for name in ("label", "id") if name in data]
        require(not odd, f"label maps have no columns, so none can be named: {', '.join(odd)}", ConfigError)
        given = {name: str(data[name]) for name in ("classes", "corrections") if name in data}
        with Reader() as reader:
            return load_maps(MapFolders(**sides, **given), image_options(data), reader)
    label, id_ = str(data.get("label", "label")), None if data.get("id") is None else str(data["id"])
    if kind == "table":
        odd = [name for name in data if name in IMAGE_DATA and name != "forbid_leakage"]
        require(not odd, f"data settings for images, but the data are tables: {', '.join(odd)}", ConfigError)
        refuse_classes(data, "tables")
        forbid = image_options(data).forbid_leakage
        problem = load_pair(**sides, label=label, id=id_, forbid_leakage=forbid)
    else:
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
        return "tables", check_pair(labelled, unlabelled, label=label, id=data.get("id"))
    options = image_options(data)
    with Reader(workers) as reader:
        if are_map_folders(labelled, unlabelled):
            folders = MapFolders(labelled, unlabelled, classes=data.get("classes"))
            return "pictures and label maps", check_maps(folders, options, reader)
        refuse_classes(data, "images")
        return "images", check_images(labelled, unlabelled, label=label, options=options, reader=reader)


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


def apply_corrections(
    problem: Problem, path: str, unlabelled: str, label: str = LABEL, id: str | None = None
) -> Problem:
    """The problem after the rows that the table names have moved to the labelled side."""
    labels = read_corrections(path, problem.schema.names, label, id, numbered=problem.row_names is None)
    return with_corrections(problem, labels, printable_path(path), printable_path(unlabelled))


def read_corrections(
    path: str, classes: Sequence[str], label: str = LABEL, id: str | None = None, *, numbered: bool
) -> dict[str, str]:
    """The class of each row that the table names; `numbered`: ids are numbers, which may be written as 12.0, too."""
    where, columns = printable_path(path), read_correction_table(Path(path))
    semicolons = "; separate its cells by commas" if len(columns) == 1 and ";" in next(iter(columns)) else ""
    there = f"columns: {quote_names(columns)}{semicolons}"
    key = next((name for name in (id, ID, PATH) if name in columns), None)
    require(key is not None, f"{where}: no column {ID!r} or {PATH!r}; {there}")
    assert key is not None
    own = label if label in columns else LABEL
    require(own in columns or CORRECTED in columns, f"{where}: no column {LABEL!r}; {there}")
    labels = name_classes(columns.get(own, [None] * len(columns[key])), classes, where)
    if CORRECTED in columns:
        labels = choose_labels(columns[CORRECTED], labels, classes, where)
    ids = read_cells(columns[key], where)
    ids = [WHOLE_NUMBER.sub(r"\1", name.strip()) for name in ids] if numbered else ids
    filled = [(name, mark) for name, mark in zip(ids, labels, strict=True) if mark]
    what = f"no row has column {CORRECTED!r} filled" if CORRECTED in columns else "no row has a label"
    require(filled, f"{where}: {what}; there is nothing to correct")
    require(all(name for name, _ in filled), f"{where}: a row has a label and no id")
    unknown = {mark for _, mark in filled} - {*classes}
    rule = f"{where}: unknown classes: {quote_names(unknown)}; the labelled side has: {quote_names(classes, 50)}"
    require(not unknown, rule)
    return require_one_label(filled, where)


def name_classes(cells: list[Any], classes: Sequence[str], where: str) -> list[str]:
    """Cells as names of classes; one that is a class as it stands stays so."""
    known = {*classes}
    return [
        text if text in known else name
        for text, name in zip(read_cells(cells, where), label_names(list(cells), where), strict=True)
    ]


def choose_labels(cells: list[Any], labels: list[str], classes: Sequence[str], where: str) -> list[str]:
    """The label of each row by its cell in the column `corrected`, "" where that is empty."""
    marks = [text.strip().lower() for text in read_cells(cells, where)]
    given, known = {*marks} - {""}, {name.lower() for name in classes}
    if not given <= YES | NO:
        return name_classes(cells, classes, where)
    what = f"column {CORRECTED!r} may name classes or mark rows: {quote_names(given)}"
    hint = "mark rows with x, or leave the column out and keep corrected rows only"
    require(not given or not given <= known, f"{where}: {what}; {hint}")
    for row, (mark, label) in enumerate(zip(marks, labels, strict=True), 1):
        require(mark not in YES or label, f"{where}: row {row} is marked as corrected and has no label")
    return [label if mark in YES else "" for mark, label in zip(marks, labels, strict=True)]


def require_one_label(rows: list[tuple[str, str]], where: str) -> dict[str, str]:
    """One label for each id."""
    labels: dict[str, str] = {}
    for name, label in rows:
        other = labels.setdefault(name, label)
        require(other == label, f"{where}: {quote(name)} has two labels, {quote(other)} and {quote(label)}")
    return labels


def read_cells(cells: list[Any], where: str) -> list[str]:
    """Cells as text; nothing for None and NaN, 12 for 12.0."""
    plain = (decode_text(cell, where, row) if isinstance(cell, bytes) else cell for row, cell in enumerate(cells))
    whole = (int(cell) if isinstance(cell, float) and cell.is_integer() else cell for cell in plain)
    return ["" if cell is None or cell != cell else str(cell) for cell in whole]


def read_correction_table(path: Path) -> Columns:
    """All columns of the table."""
    where, kind = printable_path(path), path.suffix.lower()
    rule = f"{where}: corrections must be a .csv or .parquet file with columns {ID} and {LABEL}"
    require(kind in (".csv", ".parquet") and not os.path.isdir(path), rule)
    try:
        size = path.stat().st_size
        require(size > 0, f"{where}: the file is empty")
        require(size <= LARGEST_TABLE, f"{where}: has {size} bytes, at most {LARGEST_TABLE} are read")
        require_memory(size, where, "keep the rows that were corrected")
        if kind == ".parquet":
            require_different(read_column_names(path), path)
        columns = read_correction_csv(path) if kind == ".csv" else read_columns(path)
    except ResourceError:  # is an OSError, too
        raise
    except FileNotFoundError as error:
        raise InputDataError(f"{where}: no such file") from error
    except OSError as error:
        raise InputDataError(f"{where}: cannot be read: {error.strerror or error}") from error
    require(any(columns.values()), f"{where}: no rows")
    return columns


def read_correction_csv(path: Path) -> Columns:
    """All columns of a .csv file; every line has as many cells as the header."""
    rows = list(read_csv_rows(path))
    require(rows, f"{printable_path(path)}: no rows")
    (_, header), *body = rows
    require_different(header, path)
    for line, cells in body:
        rule = f"{printable_path(path)}: line {line} has {len(cells)} fields, the header has {len(header)}"
        require(len(cells) == len(header), rule)
    return {name: [unescape_formula(cells[at]) for _, cells in body] for at, name in enumerate(header)}
