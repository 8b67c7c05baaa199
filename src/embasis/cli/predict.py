"""`embasis predict`: labels of new rows, images or pictures from the model of a run folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from embasis.cli.console import echo, warn
from embasis.cli.progress import progress_bar
from embasis.distributed import current_world
from embasis.errors import CorruptError, require
from embasis.inputs import SourceOptions, kind_of_run
from embasis.report.collect import kept_round
from embasis.runs.model import load_model
from embasis.runs.predict import check_output, is_table_path, predict_into
from embasis.runs.prediction import PredictOptions, first_reasons
from embasis.runs.row_labels import Show
from embasis.runs.same_everywhere import compare_facts, hash_generation, read_same_run
from embasis.runs.shared_run import describe_hosts
from embasis.storage import require_apart


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
    part: str | None,
) -> None:
    """Label the input with the run's model, write a table or a folder of maps, and print how many are trusted."""
    options = PredictOptions(precision, sort, scales, flip, part)
    require_apart(output, {"the run folder": run, "the input": input_}, folder=not is_table_path(output))
    note_output(output)
    stored = read_same_run(run, generation)
    require(stored.facts.get("records"), f"{run}: no round has ended yet; go on with embasis fit", CorruptError)
    warn(describe_collapse(run, stored.facts))
    check_output(output, options, kind_of_run(stored.facts))
    compare_facts(json.dumps([sort, precision, part]), {"the run": hash_generation(stored)})
    model = load_model(stored.facts, stored.tensors, Path(run), sealed=stored.sealed)
    model.inputs.set_workers(1 if workers is None else workers)
    reading = SourceOptions(label, id_, run=run, follow_links=follow_links)
    with progress_bars() as show:
        summary = predict_into(model, input_, output, options, reading, show)
    if summary.rejected:
        count = "1 file" if len(summary.rejected) == 1 else f"{len(summary.rejected):,} files"
        what = f"{count} could not be read and got no {summary.label_words}"
        echo(f"warning: {what}: {first_reasons(summary.rejected)}", err=True)
    for sentence in [*summary.sentences(output, precision), *describe_sharing()]:
        echo(sentence)
    warn(summary.target.warnings if summary.target is not None else ())
    if summary.stale:
        echo(f"note: {summary.stale:,} maps of earlier pictures are still in {output}")


def note_output(output: str) -> None:
    """Keep, for the case that another process is lost, what is to be said then."""
    if (peers := current_world().peers) is not None:
        whole = f"{output} was not written" if is_table_path(output) else f"the maps in {output} are not all there"
        peers.position = f"before all rows were labelled: {whole}"
        peers.advice = "give the same command again"


def describe_sharing() -> list[str]:
    """Who has labelled, where it was more than one process."""
    hosts = describe_hosts()
    return [f"{hosts} labelled it; results do not depend on their number"] if hosts else []


@contextmanager
def progress_bars() -> Iterator[Show]:
    """A bar for each thing that is done, one after the other."""
    with ExitStack() as stack:
        bars: dict[str, Callable[[float, str], None]] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in bars:
                stack.close()
                bars[what] = stack.enter_context(progress_bar(what, total, lines=True))
            bars[what](done, f"{what}: {done:,} of {total:,}")

        yield show


def describe_collapse(run: str, facts: dict[str, Any]) -> list[str]:
    """A warning for a run whose training failed: which model labels here, and what to do."""
    if facts["progress"]["status"] != "collapsed":
        return []
    last, kept = len(facts["records"]) - 1, kept_round(facts)
    model = f"the run {run} collapsed in round {last}; its model is that of round {kept}, the best one before"
    return [f"{model}; see its report, and train again with fewer rounds or a smaller plan.lr"]
