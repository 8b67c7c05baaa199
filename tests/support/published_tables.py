"""A small published table, and scores of runs to hold against it."""

from __future__ import annotations

import dataclasses

from embasis.benchmark.published import PublishedRow, PublishedTable
from embasis.benchmark.scores import RunScore


def small_table(**changes: object) -> PublishedTable:
    """Two pairs, one row of the paper whose mean is checked, one from elsewhere."""
    table = PublishedTable(
        dataset="set",
        title="A set",
        source="A paper, table 1",
        averaged="Five runs",
        measure="accuracy in per cent; of what is not said",
        kind="pairs",
        columns=("A→B", "B→A"),
        short=("A→B", "B→A"),
        keys=("a→b", "b→a"),
        means=("Mean",),
        without=(),
        rows=(PublishedRow("Ours", (92.2, 100.0), (96.1,), (0.5, 0.0), check="it is printed so"),),
        elsewhere=(PublishedRow("MIC", (None, 80.0), (90.0,), backbone="ViT", source="https://a.example"),),
    )
    return dataclasses.replace(table, **changes)  # type: ignore[arg-type]


def make_score(dataset: str, pair: str, method: str, seed: int, accuracy: float) -> RunScore:
    """The score of a run, of which the accuracy alone matters."""
    return RunScore(dataset, pair, method, seed, accuracy, accuracy, 0.1, 0.5, 0.8, 0.6, 0.95, accuracy, 12.0)
