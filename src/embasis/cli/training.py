"""The command that trains in a run folder: fit. A signal is noted, the step ends, the run is saved."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from embasis.cli.looking import counted, round_line
from embasis.cli.terminal import failure, progress_bar, say
from embasis.errors import ConfigError, EmbasisError, Interrupted, NumericalError, require

if TYPE_CHECKING:
    from embasis.config import Config
    from embasis.engine.progress import Progress
    from embasis.experiment.folder import FolderRun
    from embasis.types import Plan, Problem

TABLES = ("labelled", "unlabelled", "test")


@click.command()
@click.argument("labelled", required=False)
@click.argument("unlabelled", required=False)
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-o", "--output", required=True, metavar="RUN", help="The run folder: a new one, or one to go on with.")
@click.option("--test", metavar="FILE", help="A labelled table to score on; never used for training.")
@click.option("--dataset", metavar="NAME", help="A named data set instead of two tables.")
@click.option("--method", metavar="NAME", help="See `embasis list methods`.  [default: em_basis]")
@click.option("--backbone", metavar="NAME", help="See `embasis list backbones`.  [default: linear; images: small_cnn]")
@click.option("--config", "config_file", metavar="FILE", help="Settings as .toml, or a run's config.json.")
@click.option("--label", metavar="COLUMN", help="The column of classes.  [default: label]")
@click.option("--id", "id_", metavar="COLUMN", help="The column of row ids.  [default: id, if there is one]")
@click.option("--seed", type=int, help="[default: 0]")
def fit(
    labelled: str | None,
    unlabelled: str | None,
    words: tuple[str, ...],
    output: str,
    test: str | None,
    dataset: str | None,
    method: str | None,
    backbone: str | None,
    config_file: str | None,
    label: str | None,
    id_: str | None,
    seed: int | None,
) -> None:
    """Train on LABELLED, adapt to UNLABELLED, round by round.

    The same command again goes on where the run was. Labels in UNLABELLED, if
    there are any, are used for scores only. Settings are key=value words; they
    win over options, and options over the file of --config.

    \b
    Examples:
      embasis fit labelled.csv unlabelled.csv -o run
      embasis fit labelled.npz unlabelled.npz -o run --method cbst rounds=3
      embasis fit a.csv b.csv -o run --test c.csv --backbone mlp hidden=64
      embasis fit --dataset digits -o run
    """
    from embasis import config as settings

    given = tuple(word for word in (labelled, unlabelled) if word is not None)
    tables: dict[str, Any] = {"dataset": dataset}
    if dataset is not None:
        words = (*given, *words)
    elif len(given) == 1:
        raise click.UsageError(f"two tables are needed, LABELLED and UNLABELLED; got one: {labelled!r}")
    else:
        tables |= {"labelled": labelled, "unlabelled": unlabelled}
    tables |= {"test": test, "label": label, "id": id_}
    config = settings.load(
        config_file,
        words,
        top={} if seed is None else {"seed": seed},
        method={"name": method},
        network={"name": backbone},
        data=tables,
    )
    problem, config = load_data(config)
    run, progress = train(problem, config, Path(output))
    conclude(run, progress)


def load_data(config: Config) -> tuple[Problem, Config]:
    """The problem that [data] names, and the config with names of files in place of their paths."""
    import msgspec

    from embasis.data.tables import load_pair
    from embasis.errors import known
    from embasis.experiment.compare import one_problem

    data = dict(config.data)
    if "dataset" in data and "labelled" not in data:
        _, problem = one_problem(str(data["dataset"]), config.seed, None, data)
        data.pop("root", None)
        return problem, msgspec.structs.replace(config, data=data)
    names = (*TABLES, "label", "id")
    for key in data:
        require(key in names, f"unknown data setting {key!r}; known: {known(names)}", ConfigError)
    require(
        "labelled" in data and "unlabelled" in data,
        "name two tables, LABELLED and UNLABELLED, or --dataset",
        ConfigError,
    )
    data = {key: str(value) for key, value in data.items()}
    label, id_ = data.get("label", "label"), data.get("id")
    problem = load_pair(data["labelled"], data["unlabelled"], test=data.get("test"), label=label, id=id_)
    plain = {key: Path(value).name if key in TABLES else value for key, value in data.items()}
    return problem, msgspec.structs.replace(config, data=plain)


def train(problem: Problem, config: Config, path: Path) -> tuple[FolderRun, Progress]:
    """The run in its folder, from wherever it stands to its end; a signal stops it after the step, saved."""
    from embasis.experiment.folder import FolderRun
    from embasis.storage import RunFolder

    run = FolderRun(problem, config, RunFolder(path))
    built = run.prepare()
    refuse_foreign(path)
    with Stop() as stop, run.folder:
        progress = run.open()
        say(opening(run, progress))
        try:
            with progress_bar("training", epochs_of(built.plan, built.plan.rounds + 1)) as show:
                for moment in run.moments():
                    progress = moment.progress
                    words = f"round {progress.round}" if progress.status == "running" else "writing the report"
                    show(epochs_of(built.plan, progress.round) + progress.epoch, words)
                    if moment.record is not None:
                        say(round_line(moment.record))
                    if stop.code:
                        if moment.record is None:
                            run.save(progress)
                        where = f"round {progress.round} epoch {progress.epoch} step {progress.step} in {path}"
                        raise Interrupted(f"interrupted; saved {where}; the same command goes on", stop.code)
            refuse_collapse(progress, path)
        except Interrupted:
            raise
        except Exception as error:
            note_error(run, error, progress)
            raise
        settle_error(run)
    return run, progress


class Stop:
    """SIGINT, SIGTERM and SIGHUP only set `code`; a second one leaves at once, with the last saved state on disk."""

    def __init__(self) -> None:
        self.code = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup and the shell's & want it so
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: object) -> None:
        if self.code:
            os._exit(self.code)
        self.code = 130 if number == signal.SIGINT else 143


def refuse_foreign(path: Path) -> None:
    """A run folder is new, empty, or one of ours."""
    if path.exists():
        require(path.is_dir(), f"output {path} is a file; name a folder for the run", ConfigError)
        names = {entry.name for entry in os.scandir(path)}
        ours = not names or names & {"HEAD", "lock", "generations"}
        require(ours, f"output {path} holds files and is not a run folder; name a new one", ConfigError)


def epochs_of(plan: Plan, rounds: int) -> int:
    """Epochs before that round begins."""
    return plan.source_epochs + (rounds - 1) * plan.epochs if rounds else 0


def opening(run: FolderRun, progress: Progress) -> str:
    """What goes in, or where the run goes on."""
    path, found = run.folder.path, run.resumed
    built = run.prepare()
    removed = run.folder.ignored
    ignored = f"; ignored {removed} incomplete publish{'' if removed == 1 else 'es'}" if removed else ""
    if found is None:
        rows = f"{len(run.problem.labelled):,} labelled and {len(run.problem.unlabelled):,} unlabelled rows"
        names = f"{built.resolved['method']['name']} with {built.resolved['network']['name']}"
        return f"{rows}, {len(run.problem.schema)} classes\n{names}, seed {built.plan.seed}{ignored}"
    if progress.status != "running":
        return f"{path} had ended ({progress.status}) with generation {found.number}; nothing is left to train{ignored}"
    at = f"epoch {progress.epoch}, step {progress.step}"
    return f"resumed round {progress.round} from generation {found.number}; {at}{ignored}"


def conclude(run: FolderRun, progress: Progress) -> None:
    """What was written, and how to go on."""
    path, last = run.folder.path, progress.records[-1]
    for note in last.notes:
        say(note)
    say(f"done: {counted(last.round, 'round')}, {last.trusted:,} of {last.unlabelled:,} labels trusted")
    say(f"wrote {path / 'report.html'} and {path / 'labels' / f'round-{last.round:03d}.parquet'}")
    say(f"label other rows with: embasis predict {path} INPUT -o labels.csv")


def refuse_collapse(progress: Progress, path: Path) -> None:
    """A collapsed run is kept and reported, and is not a success."""
    if progress.status == "collapsed":
        notes = "; ".join(progress.records[-1].notes)
        raise NumericalError(f"{notes}; everything is in {path}, its report says more")


def note_error(run: FolderRun, error: Exception, progress: Progress) -> None:
    """The same facts as on stderr, for machines, if the disk still allows it."""
    sentence, code = failure(error)
    facts = {"kind": type(error).__name__, "message": sentence, "exit_code": code, "resolved": False}
    at = {"round": progress.round, "epoch": progress.epoch, "step": progress.step, "generation": run.saved}
    with suppress(OSError, EmbasisError):
        run.folder.write_json("error.json", {**facts, **at})


def settle_error(run: FolderRun) -> None:
    """An error that an earlier attempt noted is no longer in the way."""
    from embasis.storage import read_json

    path = run.folder.path / "error.json"
    with suppress(EmbasisError):
        if path.exists() and isinstance(facts := read_json(path), dict):
            run.folder.write_json("error.json", {**facts, "resolved": True})
