"""`embasis check`: what could go wrong with two sides before training."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from embasis import config as settings
from embasis.cli.console import echo, format_count
from embasis.data.problem import Finding
from embasis.errors import EmbasisError
from embasis.inputs.load import find_problems, load_problem
from embasis.runs.suggest_learner import suggest_learner
from embasis.storage import require_apart, write_output


def check_sides(
    labelled: str,
    unlabelled: str,
    label: str,
    id_: str | None,
    drop: tuple[str, ...],
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
    data: dict[str, Any] = {
        "labelled": labelled,
        "unlabelled": unlabelled,
        "label": label,
        "id": id_,
        "classes": classes,
    }
    data |= {"drop": list(drop)} if drop else {}
    kind, findings = find_problems({**data, **flags, "budget": budget}, workers, output is not None)
    for finding in findings:
        echo(f"{finding.level}: {finding.text}")
    if output is not None:
        write_rejected(Path(output), findings)
    if kind == "tables" and (sentence := find_learner(data, findings)) is not None:
        echo(f"note: {sentence}")
    levels = [finding.level for finding in findings]
    errors = levels.count("error")
    counts = f"{format_count(errors, 'error')}, {format_count(levels.count('warning'), 'warning')}"
    echo(f"{counts}: embasis fit {'would refuse' if errors else 'can use'} these {kind}")
    if errors:
        raise click.exceptions.Exit(3)


def find_learner(data: Mapping[str, Any], findings: Sequence[Finding]) -> str | None:
    """A sentence where another learner suits the tables better; None where they cannot be used as they are."""
    if any(finding.level == "error" for finding in findings):
        return None
    given = {key: value for key, value in data.items() if value is not None}
    with warnings.catch_warnings(), suppress(EmbasisError):  # what is to be said of the data has been said
        warnings.simplefilter("ignore")
        return suggest_learner(load_problem(settings.make_config({"data": given}))[0])
    return None


def write_rejected(path: Path, findings: Sequence[Finding]) -> None:
    """Write every file that cannot be used, with its reason, one JSON object a line."""
    rejected = [item for finding in findings for item in finding.rejected]
    write_output(path, "".join(json.dumps(asdict(item), sort_keys=True) + "\n" for item in rejected))
    echo(f"wrote {path}: {format_count(len(rejected), 'file')} that cannot be used")
