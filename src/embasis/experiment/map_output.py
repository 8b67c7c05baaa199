"""Label maps as people use them: pictures of labels, of confidence, of variance and of trust, and a table of all.

Every pixel is read off the label distribution between the sites around it, so edges follow the distribution and not
the grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from embasis.engine.verdict import Labelled
from embasis.storage import MapFolder, confidence_values, map_names, variance_values
from embasis.types import LabelSchema


@dataclass(frozen=True, eq=False)
class LabelMap:
    """One picture's labels at its own size, uint8 (H, W) each, and its line of the table."""

    row: int
    labels: Tensor
    confidence: Tensor
    variance: Tensor
    trusted: Tensor
    line: dict[str, Any]


def label_maps(parts: Iterable[Labelled], sizes: Tensor, schema: LabelSchema) -> Iterator[LabelMap]:
    """The maps of all rows; `sizes` (N, 2) are those of the pictures, by number of the row."""
    for part in parts:
        for number, row in enumerate(part.rows.tolist()):
            height, width = (int(size) for size in sizes[row])
            yield label_map(part.enlarged(number, (height, width)), row, schema)


def label_map(wide: Labelled, row: int, schema: LabelSchema) -> LabelMap:
    """The maps of a row that has a site at each pixel."""
    mean, size, classes = wide.distribution.mean, wide.grid, len(schema)
    confidence, label = mean.max(1)
    variance = (1 - mean.square().sum(1)).clamp_min(0)
    trusted = wide.pseudo.trusted
    labels = torch.bincount(label, minlength=classes).tolist()
    kept = torch.bincount(label[trusted], minlength=classes).tolist()
    count = len(label)
    line: dict[str, Any] = {
        "width": size[1],
        "height": size[0],
        "mean_confidence": float(confidence.double().mean()),
        "mean_variance": float(variance.double().mean()),
        "trusted": float(trusted.double().mean()),
    }
    for name, share, sure in zip(schema.names, labels, kept, strict=True):
        line[name_of_column(name, line)] = share / count
        line[name_of_column(f"{name} trusted", line)] = sure / share if share else None
    return LabelMap(
        row,
        label.to(torch.uint8).view(size),
        confidence_values(confidence).view(size),
        variance_values(variance, classes).view(size),
        trusted.to(torch.uint8).mul(255).view(size),
        line,
    )


def name_of_column(name: str, line: dict[str, Any]) -> str:
    """A class's name as that of a column; one that is taken gets a stroke."""
    return name if name not in line and name not in ("id", "file") else name_of_column(f"{name}'", line)


def write_maps(
    folder: MapFolder, maps: Iterable[LabelMap], names: Sequence[str], suffix: str = ".csv"
) -> Iterator[LabelMap]:
    """Write all maps and their table; each map is handed on once it is written."""
    files, lines = map_names(names), list[dict[str, Any]]()
    with folder:
        for found in maps:
            folder.write(files[found.row], found.labels, found.confidence, found.variance, found.trusted)
            lines.append({"id": names[found.row], "file": files[found.row], **found.line})
            yield found
        lines.sort(key=lambda line: str(line["id"]))
        columns = {key: [line[key] for line in lines] for key in lines[0]} if lines else {"id": list[Any]()}
        folder.write_table(columns, suffix)
