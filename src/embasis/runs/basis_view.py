"""The basis of each round in the run folder, for the report.

`basis/round-003.json` has the components of round 3 in their order: for each its likeliest classes with their
probabilities, its share of the unlabelled side, and the names of the rows nearest to it (none for label maps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from embasis.engine.basis_summary import BasisSummary
from embasis.errors import CorruptError
from embasis.report.run_view import Component
from embasis.storage import SealedFiles
from embasis.types import Problem

BASIS_CLASSES = 3
"""The likeliest classes of a component that are written down."""
LARGEST_BASIS_FILE = 2**24
"""Bytes of such a file that are read."""


def basis_name(number: int) -> str:
    """Where the basis of a round lies in the run folder."""
    return f"basis/round-{number:03d}.json"


def row_ids(problem: Problem) -> list[str]:
    """What the unlabelled rows are called in the tables of a run, as text."""
    return [str(name) for name in problem.row_names or problem.unlabelled.ids.tolist()]


def pack_basis(summary: BasisSummary, problem: Problem) -> dict[str, Any]:
    """The components as they are written."""
    wanted = {int(number) for number in summary.nearest.flatten()}
    called = {
        number: name
        for number, name in zip(problem.unlabelled.ids.tolist(), row_ids(problem), strict=True)
        if number in wanted
    }
    top = summary.p.sort(dim=1, descending=True, stable=True)
    lines = zip(
        top.values.tolist(), top.indices.tolist(), summary.share.tolist(), summary.nearest.tolist(), strict=True
    )
    return {
        "components": [
            {
                "classes": [
                    [problem.schema.names[c], p]
                    for p, c in zip(values[:BASIS_CLASSES], order[:BASIS_CLASSES], strict=True)
                ],
                "share": share,
                "nearest": [called[number] for number in near],
            }
            for values, order, share, near in lines
        ]
    }


def read_basis(files: SealedFiles, number: int, pictures: Mapping[str, bytes]) -> tuple[Component, ...]:
    """The components of a round of a run folder, with small pictures of their nearest rows; none where none are."""
    name = basis_name(number)
    if name not in files or not (files.path / name).exists():  # a user may have deleted it
        return ()
    try:
        return tuple(parse_component(row, pictures) for row in files.json(name, LARGEST_BASIS_FILE)["components"])
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptError(f"{files.path / name} is not a basis: {error}") from error


def parse_component(row: Mapping[str, Any], pictures: Mapping[str, bytes]) -> Component:
    """One component as the report sees it."""
    names: Sequence[str] = [str(name) for name in row["nearest"]]
    return Component(
        tuple((str(name), float(p)) for name, p in row["classes"]),
        float(row["share"]),
        tuple((name, pictures.get(name)) for name in names),
    )
