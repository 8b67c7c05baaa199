"""`embasis fit`: training in a run folder, from the data to the last round; `train` is of the demo, too.

A run has a bar, a line for each round, a log, and signals that stop it after a step, saved.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from embasis import config as settings
from embasis.cli import console
from embasis.cli.console import OTHER_FOLDER, echo, format_count
from embasis.cli.progress import progress_bar
from embasis.cli.report import format_round
from embasis.config import Config, upgrade_config
from embasis.data.datasets.domain_sets import find_data_folder
from embasis.distributed import current_world
from embasis.engine.state import TrainState
from embasis.errors import (
    CheckpointError,
    ConfigError,
    EmbasisError,
    Interrupted,
    NumericalError,
    ReportError,
    quote,
    require,
)
from embasis.inputs import Inputs, ReadProgress
from embasis.inputs.load import image_options, load_problem, open_inputs
from embasis.resources import require_writable
from embasis.runs.checkpoint import read_run
from embasis.runs.parts import require_run_room, resolve_for_problem
from embasis.runs.resume import refuse_changed_config, stored_same_domain
from embasis.runs.run import TrainingRun
from embasis.runs.shared_run import (
    compare_processes,
    describe_processes,
    keep_parts,
    open_run_folder,
    open_together,
)
from embasis.storage import RunFolder, read_json, refuse_lost_link, require_apart
from embasis.terminal import Stop
from embasis.types import Plan, Problem

INPUT_NAMES = {
    "labelled": "the labelled side", "unlabelled": "the unlabelled side", "test": "the test side",
    "corrections": "the corrections", "classes": "the classes",
}  # fmt: skip
"""What a run reads and never writes to: key of [data] → its name in sentences."""
MOST_NAMED = 5
"""Files that a sentence names one by one."""
MOST_EARLY = 1000
"""Texts that are kept until there is a folder."""


def train_run(
    labelled: str | None,
    unlabelled: str | None,
    overrides: tuple[str, ...],
    output: str,
    method: str | None,
    align: str | None,
    backbone: str | None,
    learner: str | None,
    config_file: str | None,
    preset: str | None,
    seed: int | None,
    allow_change: tuple[str, ...],
    accept_data_change: bool,
    **data: Any,
) -> None:
    """Load both sides and train in the run folder until the run ends; `data` are options that are keys of [data]."""
    given = tuple(word for word in (labelled, unlabelled) if word is not None)
    if data["dataset"] is not None or (preset is not None and all("=" in word for word in given)):
        overrides = (*given, *overrides)
    elif len(given) == 1:
        raise click.UsageError(f"two are needed, LABELLED and UNLABELLED; got one: {quote(labelled)}")
    else:
        data |= {"labelled": labelled, "unlabelled": unlabelled}
    config = settings.load(
        config_file,
        overrides,
        top={} if seed is None else {"seed": seed},
        preset=preset,
        method={"name": method},
        align={"name": align},
        network={"name": backbone},
        learner={"name": learner},
        data={key: None if value is False or value == () else value for key, value in data.items()},
    )
    require_free_places(config, output)
    problem, config = load_problem(config)
    train(problem, config, Path(output), allow_change, accept_data_change, print_summary)


def require_free_places(config: Config, output: str) -> None:
    """Refuse a run folder or a feature cache in the place of the data."""
    data = config.data
    inputs = {name: str(data[key]) for key, name in INPUT_NAMES.items() if key in data}
    if "dataset" in data and "labelled" not in data:
        inputs = {"the folder of data packs": str(find_data_folder(data.get("root")))}
    require_apart(output, inputs, folder=True, run=True)
    cache = str(config.images.get("cache") or os.environ.get("EMBASIS_CACHE") or "")
    if cache:
        require_apart(cache, inputs, what="feature cache")


def print_summary(run: TrainingRun, progress: TrainState) -> None:
    """Print what was written, and how to go on."""
    path, last, kind = run.folder.path, progress.final_record, run.prepare().inputs.kind
    for note in progress.records[-1].notes:
        echo(note)
    if progress.kept_round is not None:
        kept = f"round {progress.kept_round} of {progress.records[-1].round} is kept"
        echo(f"{kept}: the best one by {run.prepare().plan.keep_round}")
    rounds = format_count(progress.records[-1].round, "round")
    echo(f"done: {rounds}, {last.trusted:,} of {last.unlabelled:,} {kind.label_unit} trusted")
    if (right := last.facts.get("expected_precision")) is not None:
        echo(f"about {right:.0%} of the trusted {kind.label_unit} are believed to be right")
    echo(f"wrote {path / 'report.html'} and {path / 'labels' / f'round-{last.round:03d}{kind.labels_suffix}'}")
    echo(f"label other {kind.row_unit} with: embasis predict {console.quote_path(path)} {kind.predict_arguments}")


def train(
    problem: Problem,
    config: Config,
    path: Path,
    allow_change: tuple[str, ...] = (),
    accept_data: bool = False,
    print_summary: Callable[[TrainingRun, TrainState], None] = lambda run, progress: None,
) -> tuple[TrainingRun, TrainState]:
    """Train in the folder from where the run stands to its end; a signal stops it after the step, saved.

    What is printed, by `print_summary` too, is in the folder's log.
    """
    require_run_folder(path)
    config = keep_parts(config, path)
    log = LogCopy(path)
    with Stop() as stop, console.copy_output(log):
        inputs = open_inputs(problem, config)
        if inputs.must_read(problem):
            known = replace(problem, same_domain=problem.same_domain or bool(stored_same_domain(config, path)))
            refuse_other_settings(path, resolve_for_problem(known, config, inputs).resolved, allow_change)
            require_writable(path, OTHER_FOLDER)
            stop.before_training()
            problem = read_images(problem, inputs, config, stop)
        print_notes(problem)
        stop.before_training()
        run = TrainingRun(problem, config, open_run_folder(path), inputs, allow_change, accept_data)
        del problem  # its features are standardised in a copy
        require_run_room(run.prepare(), path)
        compare_processes(run)
        stop.before_training()
        with run.folder, blame_missing_folder(run.folder):
            open_together(run)  # what is refused here leaves the folder as it was, its log too
            stop.before_training()
            with log.into(run.folder):
                progress = run_to_end(run, stop)
                print_summary(run, progress)
    return run, progress


def read_images(problem: Problem, inputs: Inputs, config: Config, stop: Stop) -> Problem:
    """Read the problem's files with a bar; a signal stops it, and the same command goes on."""
    with progress_bar("reading images", 1, lines=True) as show:
        started = False

        def watch(progress: ReadProgress) -> None:
            nonlocal started
            if not started:
                echo(progress.summary)
                started = True
            share = progress.done / max(progress.total, 1)
            show(share, f"reading images: {progress.done:,} of {progress.total:,}")
            if stop.code:
                left = f"interrupted while reading images; {progress.kept}; the same command goes on"
                raise Interrupted(left, stop.code)

        return inputs.read(problem, image_options(config.data).budget, watch)


def print_notes(problem: Problem) -> None:
    """Print what the user should know of the data before training."""
    for note in problem.notes:
        echo(f"note: {note}")
    if problem.rejected:
        named = "; ".join(f"{item.name}: {item.reason}" for item in problem.rejected[:MOST_NAMED])
        more = len(problem.rejected) - MOST_NAMED
        rest = f"; and {more:,} more" if more > 0 else ""
        count = "1 file is" if len(problem.rejected) == 1 else f"{len(problem.rejected):,} files are"
        echo(f"note: {count} not used (all are in quarantine.jsonl): {named}{rest}")


@contextmanager
def blame_missing_folder(folder: RunFolder) -> Iterator[None]:
    """Whatever fails in a folder that was deleted or moved, the error is that the folder is gone."""
    try:
        yield
    except Exception as error:
        gone = folder.gone()
        if gone is None or isinstance(error, Interrupted):
            raise
        raise gone from error


class LogCopy:
    """A copy of printed texts in the log of a run folder; they are kept in memory until there is a folder."""

    def __init__(self, path: Path) -> None:
        self._path, self._early = path, list[str]()
        self._folder: RunFolder | None = None

    def __call__(self, text: str) -> None:
        """Take a text that was printed."""
        shown = console.make_shareable(text, self._path)
        if self._folder is not None:
            self._folder.log(shown)
        elif len(self._early) < MOST_EARLY:
            self._early.append(shown)

    @contextmanager
    def into(self, folder: RunFolder) -> Iterator[None]:
        """The folder is ours from here on. A failure is printed later than that, so it is logged here."""
        folder.log("\n".join(self._early))
        self._folder = folder
        try:
            yield
        except Exception as error:
            self(f"embasis: {console.explain_failure(error)[0]}")
            raise
        finally:
            self._folder = None


def run_to_end(run: TrainingRun, stop: Stop) -> TrainState:
    """Train all that is left of the run; save and leave when the user wants to stop."""
    path, built = run.folder.path, run.prepare()
    progress, known = run.open(), len(run.resumed.facts.get("changes", ())) if run.resumed else 0
    echo(describe_start(run, progress))
    for note in run.side_notes if run.resumed is None else ():
        echo(f"note: {note}")
    note_position(run, progress)
    if processes := describe_processes(built.plan.accumulate_steps):
        echo(processes)
    for change in run.changes[known:]:
        echo(f"{change}; the run is no longer bit-identical to one without the change")
    try:
        with progress_bar("training", epochs_before(built.plan, built.plan.rounds + 1)) as show:
            for event in run.events():
                progress = event.state
                print_news(run)
                activity = f"round {progress.round}" if progress.status == "running" else "writing the report"
                show(epochs_before(built.plan, progress.round) + progress.epoch, activity)
                if event.record is not None:
                    echo(format_round(event.record))
                note_position(run, progress)
                if code := current_world().agree(stop.code):
                    if event.record is None:
                        run.save(progress)
                    where = f"round {progress.round} epoch {progress.epoch} step {progress.step} in {path}"
                    raise Interrupted(f"interrupted; saved {where}; the same command goes on", code)
        print_news(run)
        if progress.status == "collapsed":  # the run is kept and reported, and is not a success
            notes = "; ".join(progress.records[-1].notes)
            raise NumericalError(f"{notes}; everything is in {path}, its report says more")
    except Interrupted:
        raise
    except Exception as error:
        write_error(run, run.folder.gone() or error, progress)
        raise
    mark_error_resolved(run)
    return progress


def note_position(run: TrainingRun, progress: TrainState) -> None:
    """Keep, for the case that another process is lost now, what is to be printed and written then."""
    world = current_world()
    if world.peers is not None:
        kept = f"generation {run.saved} is kept" if world.is_first and run.saved else "the last saved state is kept"
        world.peers.position = f"in round {progress.round} epoch {progress.epoch} step {progress.step}; {kept}"
        world.peers.write_down = lambda error: write_error(run, error, progress)


def print_news(run: TrainingRun) -> None:
    """Print which files were damaged, and what need not be restyled again, once."""
    for sentences in (run.repaired, run.problem.restyled.notes if run.problem.restyled else []):
        while sentences:
            echo(sentences.pop(0))


def require_run_folder(path: Path) -> None:
    """Refuse a folder that is neither new, nor empty, nor a run folder."""
    refuse_lost_link(path)
    if path.exists():
        require(path.is_dir(), f"output {path} is a file; name a folder for the run", ConfigError)
        names = {entry.name for entry in os.scandir(path)}
        ours = not names or names & {"HEAD", "lock", "generations"}
        require(ours, f"output {path} holds files and is not a run folder; name a new one", ConfigError)


def refuse_other_settings(path: Path, resolved: dict[str, Any], allowed: tuple[str, ...]) -> None:
    """A run folder that was begun with other settings is refused before minutes of reading."""
    with suppress(CheckpointError):  # no generation yet, or a damaged one: opening the folder explains more
        refuse_changed_config(upgrade_config(read_run(path).facts["config"]), resolved, allowed)


def epochs_before(plan: Plan, rounds: int) -> int:
    """Epochs before that round begins."""
    return plan.source_epochs + (rounds - 1) * plan.epochs if rounds else 0


def describe_start(run: TrainingRun, progress: TrainState) -> str:
    """Which data and settings go in, or where the run goes on."""
    path, resumed = run.folder.path, run.resumed
    built = run.prepare()
    removed = run.folder.ignored
    ignored = f"; ignored {removed} incomplete publish{'' if removed == 1 else 'es'}" if removed else ""
    if run.folder.taken_over is not None:
        ignored += f"; process {run.folder.taken_over}, which had locked the folder, is gone"
    if resumed is None:
        labelled, unlabelled = len(run.problem.labelled), len(run.problem.unlabelled)
        rows = f"{labelled:,} labelled and {unlabelled:,} unlabelled {built.inputs.kind.row_unit}"
        names = f"{built.resolved['method']['name']} with {built.resolved['network']['name']}"
        return f"{rows}, {len(run.problem.schema)} classes\n{names}, seed {built.plan.seed}{ignored}"
    if progress.status != "running":
        ended = f"{path} had ended ({progress.status}) with generation {resumed.number}"
        return f"{ended}; nothing is left to train{ignored}"
    at = f"epoch {progress.epoch}, step {progress.step}"
    return f"resumed round {progress.round} from generation {resumed.number}; {at}{ignored}"


def write_error(run: TrainingRun, error: Exception, progress: TrainState) -> None:
    """Write the facts of an error as error.json, if the disk still allows it."""
    facts = console.failure_facts(error, run.folder.path)
    if isinstance(error, ReportError):
        facts["status"] = "report_failed"
    at = {"round": progress.round, "epoch": progress.epoch, "step": progress.step, "generation": run.saved}
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[console.RUN_ERROR] = {**facts, **at}
    with suppress(OSError, EmbasisError):
        run.folder.write_json("error.json", {**facts, **at})


def mark_error_resolved(run: TrainingRun) -> None:
    """Mark the error of an earlier attempt as resolved."""
    path = run.folder.path / "error.json"
    with suppress(EmbasisError):
        if path.exists() and isinstance(facts := read_json(path), dict):
            run.folder.write_json("error.json", {**facts, "resolved": True})
