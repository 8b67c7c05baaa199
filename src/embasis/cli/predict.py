"""`embasis predict`: labels of new rows, images or pictures from the model of a run folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from embasis.cli.console import echo, progress_bar, warn
from embasis.errors import CorruptError, require
from embasis.inputs.base import SourceOptions
from embasis.report.collect import kept_round
from embasis.runs.checkpoint_schema import read_run
from embasis.runs.model import load_model
from embasis.runs.predict import PredictionSummary, PredictOptions, Show, check_output, first_reasons, predict_into
from embasis.storage import require_apart

TABLE_SUFFIXES = (".csv", ".parquet")


def predict_labels(
    run: str,
    input_: str,
    output: str,
    sort: str | None,
    precision: float | None,
    label: str | None,
    id_: str | None,
    workers: int | None,
    follow_links: bool,
    generation: int | None,
    scales: tuple[float, ...],
    flip: bool,
) -> None:
    """Label the input with the run's model, write a table or a folder of maps, and print how many are trusted."""
    options = PredictOptions(precision, sort, scales, flip)
    is_folder = Path(output).suffix not in TABLE_SUFFIXES
    require_apart(output, {"the run folder": run, "the input": input_}, folder=is_folder)
    stored = read_run(run, generation)
    require(stored.facts.get("records"), f"{run}: no round has ended yet; go on with embasis fit", CorruptError)
    warn(describe_collapse(run, stored.facts))
    many_sites = bool(stored.facts.get("maps"))
    check_output(output, options, many_sites)
    model = load_model(stored.facts, stored.tensors, Path(run), sealed=stored.sealed)
    model.inputs.set_workers(1 if workers is None else workers)
    reading = SourceOptions(label, id_, run=run, follow_links=follow_links)
    with progress_bars() as show:
        summary = predict_into(model, input_, output, options, reading, show)
    if summary.rejected:
        count = "1 file" if len(summary.rejected) == 1 else f"{len(summary.rejected):,} files"
        what = f"{count} could not be read and got no label{'s' if many_sites else ''}"
        echo(f"warning: {what}: {first_reasons(summary.rejected)}", err=True)
    print_map_summary(output, summary, precision) if many_sites else print_row_summary(output, summary, precision)


def print_row_summary(output: str, summary: PredictionSummary, precision: float | None) -> None:
    """How many rows are trusted."""
    if summary.target is not None and precision is not None:
        echo(f"wrote {output}: {summary.target.sentence(precision)}")
        warn(summary.target.warnings)
        return
    rows, trusted = summary.rows, int(summary.trusted)
    echo(f"wrote {output}: {rows:,} row{'' if rows == 1 else 's'}, {trusted:,} of them trusted ({trusted / rows:.0%})")


def print_map_summary(output: str, summary: PredictionSummary, precision: float | None) -> None:
    """How much of the pictures is trusted."""
    pictures = "1 picture" if summary.rows == 1 else f"{summary.rows:,} pictures"
    echo(f"wrote {output}: labels, confidence, variance and trust of {pictures}, {summary.trusted:.0%} trusted")
    if summary.target is not None and precision is not None:
        echo(f"at the sites of the network {summary.target.sentence(precision)}")
        warn(summary.target.warnings)
    if summary.stale:
        echo(f"note: {summary.stale:,} maps of earlier pictures are still in {output}")


@contextmanager
def progress_bars() -> Iterator[Show]:
    """A bar for each thing that is done, one after the other."""
    with ExitStack() as stack:
        bars: dict[str, Callable[[float, str], None]] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in bars:
                stack.close()
                bars[what] = stack.enter_context(progress_bar(what, total))
            bars[what](done, f"{what}: {done:,} of {total:,}")

        yield show


def describe_collapse(run: str, facts: dict[str, Any]) -> list[str]:
    """A warning for a run whose training failed: which model labels here, and what to do."""
    if facts["progress"]["status"] != "collapsed":
        return []
    last, kept = len(facts["records"]) - 1, kept_round(facts)
    model = f"the run {run} collapsed in round {last}; its model is that of round {kept}, the best one before"
    return [f"{model}; see its report, and train again with fewer rounds or a smaller plan.lr"]
