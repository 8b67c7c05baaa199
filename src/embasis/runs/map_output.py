"""Label maps as people use them: pictures of labels, of confidence, of variance and of trust, and a table of all.

Every pixel is read off the label distribution between the sites around it, so edges follow the distribution and not
the grid.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from embasis.engine.labels import LabelBatch
from embasis.engine.pixels import PixelLabels
from embasis.storage.label_map_folder import LabelMapFolder, make_map_names
from embasis.storage.png import quantise_confidence, quantise_variance
from embasis.types import LabelSchema

T = TypeVar("T")
THREADS = 2
"""That draw and write maps."""


@dataclass(frozen=True, eq=False)
class LabelMap:
    """One picture's labels at its own size, uint8 (H, W) each, and its line of the table."""

    row: int
    labels: Tensor
    confidence: Tensor
    variance: Tensor
    trusted: Tensor
    line: dict[str, Any]


def label_map(wide: LabelBatch, row: int, schema: LabelSchema) -> LabelMap:
    """The maps of a row that has a site at each pixel."""
    pixels, size, classes = wide.distribution, wide.grid, len(schema)
    assert isinstance(pixels, PixelLabels)
    trusted, label = wide.pseudo.trusted, pixels.label.to(torch.uint8)
    both = torch.bincount(label.short().mul_(2).add_(trusted), minlength=2 * classes).view(classes, 2)
    labels, kept, count = both.sum(1).tolist(), both[:, 1].tolist(), len(pixels)
    line: dict[str, Any] = {
        "width": size[1],
        "height": size[0],
        "mean_confidence": float(pixels.confidence.double().mean()),
        "mean_variance": float(pixels.total.double().mean()),
        "trusted": sum(kept) / count,
    }
    for name, share, sure in zip(schema.names, labels, kept, strict=True):
        line[name_of_column(name, line)] = share / count
        line[name_of_column(f"{name} trusted", line)] = sure / share if share else None
    return LabelMap(
        row,
        label.view(size),
        quantise_confidence(pixels.confidence).view(size),
        quantise_variance(pixels.total, classes).view(size),
        trusted.to(torch.uint8).mul_(255).view(size),
        line,
    )


def name_of_column(name: str, line: dict[str, Any]) -> str:
    """A class's name as that of a column; one that is taken gets a stroke."""
    return name if name not in line and name not in ("id", "file") else name_of_column(f"{name}'", line)


def write_maps(
    folder: LabelMapFolder,
    parts: Iterable[LabelBatch],
    sizes: Tensor,
    schema: LabelSchema,
    names: Sequence[str],
    suffix: str = ".csv",
) -> Iterator[dict[str, Any]]:
    """Write the maps of all rows, and their table; each row's line is handed on once its maps are written.

    Maps are drawn and written by two threads beside the one that labels. `sizes` (N, 2) are those of the pictures."""
    files, lines = make_map_names(names), list[dict[str, Any]]()

    def written(part: LabelBatch, number: int, row: int) -> dict[str, Any]:
        height, width = (int(size) for size in sizes[row])
        maps = label_map(part.enlarged(number, (height, width)), row, schema)
        folder.write(files[row], maps.labels, maps.confidence, maps.variance, maps.trusted)
        return {"id": names[row], "file": files[row], **maps.line}

    jobs = (partial(written, part, number, row) for part in parts for number, row in enumerate(part.rows.tolist()))
    with folder:
        for line in run_in_order(jobs):
            lines.append(line)
            yield line
        lines.sort(key=lambda line: str(line["id"]))
        columns = {key: [line[key] for line in lines] for key in lines[0]} if lines else {"id": list[Any]()}
        folder.write_table(columns, suffix)


def run_in_order(jobs: Iterable[Callable[[], T]]) -> Iterator[T]:
    """What the jobs give, in their order; a few are under way at once."""
    with ThreadPoolExecutor(THREADS) as pool:
        waiting: deque[Future[T]] = deque()
        for job in jobs:
            waiting.append(pool.submit(job))
            if len(waiting) > 2 * THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
