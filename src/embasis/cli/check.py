"""`embasis check`: what could go wrong with two sides before training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from embasis.cli.console import echo, format_count
from embasis.data.problem import Finding
from embasis.inputs.load import find_problems
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
    levels = [finding.level for finding in findings]
    errors, warnings = levels.count("error"), levels.count("warning")
    counts = f"{format_count(errors, 'error')}, {format_count(warnings, 'warning')}"
    echo(f"{counts}: embasis fit {'would refuse' if errors else 'can use'} these {kind}")
    if errors:
        raise click.exceptions.Exit(3)


def write_rejected(path: Path, findings: Sequence[Finding]) -> None:
    """Write every file that cannot be used, with its reason, one JSON object a line."""
    rejected = [item for finding in findings for item in finding.rejected]
    write_output(path, "".join(json.dumps(asdict(item), sort_keys=True) + "\n" for item in rejected))
    echo(f"wrote {path}: {format_count(len(rejected), 'file')} that cannot be used")
