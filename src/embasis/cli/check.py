"""`embasis check`: what could go wrong with two sides before training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from embasis.cli.console import counted, echo
from embasis.cli.image_options import is_image_side
from embasis.data.images.folders import ImageOptions, check_images
from embasis.data.segmentation.folders import MapFolders, are_map_folders, check_maps
from embasis.data.tables.pair import Finding, check_pair
from embasis.data.workers.reader import Reader
from embasis.errors import ConfigError, require
from embasis.storage import require_apart, write_output


def check_sides(
    labelled: str,
    unlabelled: str,
    label: str,
    id_: str | None,
    workers: int,
    budget: float,
    classes: str | None,
    output: str | None,
    **flags: bool,
) -> None:
    """Print the findings and their count; code 3 if one of them is an error."""
    if output is not None:
        inputs = {"the labelled side": labelled, "the unlabelled side": unlabelled, "the classes": classes}
        require_apart(output, inputs)
    kind = "images" if is_image_side(labelled) or is_image_side(unlabelled) else "tables"
    if kind == "images":
        options = ImageOptions(**flags, budget=budget)
        with Reader(workers) as reader:
            if are_map_folders(labelled, unlabelled):
                kind = "pictures and label maps"
                findings = check_maps(MapFolders(labelled, unlabelled, classes=classes), options, reader)
            else:
                require(classes is None, "classes are for label maps, the images have none", ConfigError)
                findings = check_images(labelled, unlabelled, label=label, options=options, reader=reader)
    else:
        require(classes is None, "classes are for label maps, the tables have none", ConfigError)
        require(output is None, "--output is for images, the tables have no files of their own", ConfigError)
        findings = check_pair(labelled, unlabelled, label=label, id=id_)
    for finding in findings:
        echo(f"{finding.level}: {finding.text}")
    if output is not None:
        write_rejected(Path(output), findings)
    levels = [finding.level for finding in findings]
    errors, warnings = levels.count("error"), levels.count("warning")
    counts = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    echo(f"{counts}: embasis fit {'would refuse' if errors else 'can use'} these {kind}")
    if errors:
        raise click.exceptions.Exit(3)


def write_rejected(path: Path, findings: Sequence[Finding]) -> None:
    """Write every file that cannot be used, with its reason, one JSON object a line."""
    rejected = [item for finding in findings for item in finding.rejected]
    write_output(path, "".join(json.dumps(asdict(item), sort_keys=True) + "\n" for item in rejected))
    echo(f"wrote {path}: {counted(len(rejected), 'file')} that cannot be used")
