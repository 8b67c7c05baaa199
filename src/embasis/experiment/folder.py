"""A run in its folder: it can be killed at any instant, and the same command goes on where it was.

Every artefact is a function of data, config and seed and is written before the generation that contains its round, so
that going on writes the same bytes again. Times are apart, in timings.jsonl.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from embasis.config import Config
from embasis.data.image.folders import DEFAULTS, require_budget
from embasis.data.image.samples import Images
from embasis.data.image.sides import tolerated
from embasis.data.ledger import Account, ledger
from embasis.data.maps.samples import MapArrays, MapFiles
from embasis.engine.holdout import parted
from embasis.engine.progress import Progress
from embasis.engine.rounds import Moment, begin, walk
from embasis.engine.validate import SELECTION_SCORE
from embasis.engine.verdict import Shelved
from embasis.errors import CheckpointError, ConfigError, CorruptError, EmbasisError, ReportError, ResourceError, require
from embasis.experiment.basis_view import basis_facts, basis_name, basis_of
from embasis.experiment.build import Built, build
from embasis.experiment.changes import (
    known_rows,
    refuse_changed_config,
    refuse_changed_data,
    refuse_other_kind,
    reopen,
    shifts,
    take_over,
)
from embasis.experiment.facts import check_facts, read_run
from embasis.experiment.fingerprint import Marks, fingerprint, marks_of, rows_of
from embasis.experiment.front import Front
from embasis.experiment.gallery import gallery_files, gallery_of, map_row_names, palette_of
from embasis.experiment.generation import backbone_of, begin_folder, contents, restored, rows_name
from embasis.experiment.map_output import write_maps
from embasis.experiment.model import Model, finished, label_columns
from embasis.experiment.thumbnails import ROW_GALLERY, row_gallery, stored_gallery
from embasis.methods.em_basis import EMBasisLabeller
from embasis.report.page import run_page
from embasis.report.records import RunView, record_from_json, record_to_json
from embasis.storage import Generation, RunFolder, read_json, read_jsonl, read_table
from embasis.types import Problem, Refusal

Changed = tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]


@dataclass
class FolderRun:
    """A run and its folder. Iterate over `moments`; `model` is there when they have ended."""

    problem: Problem
    config: Config
    folder: RunFolder
    front: Front | None = None
    allow_change: tuple[str, ...] = ()
    """Settings that may differ from those the run was begun with."""
    accept_data: bool = False
    """Whether rows may differ from those the run was begun with."""
    resumed: Generation | None = None
    model: Model | None = None
    timings: list[dict[str, Any]] = field(default_factory=list)
    saved: int = 0
    """Number of the last generation that is on disk."""
    changes: list[str] = field(default_factory=list)
    """What was changed since the run began, in words."""
    _built: Built | None = None
    _data: dict[str, str] = field(default_factory=dict)
    _marks: dict[str, Marks] = field(default_factory=dict)
    _progress: Progress | None = None

    def prepare(self) -> Built:
        """Build everything; what is wrong with config or data is said here, before the folder is touched."""
        if self._built is None:
            self._built = build(self.problem, self.config, self.front)
            self._data, self._marks = fingerprint(self.problem), marks_of(self.problem)
            training, _ = parted(self.problem, self._built.plan)
            labeller = self._built.method.labeller
            if isinstance(labeller, EMBasisLabeller) and self._built.maps is None:  # refuses more components than rows
                labeller.centres_of_a_class(len(training.labelled) + len(training.unlabelled))
            self.problem = self._built.problem  # the rows as they came are not needed any more
            ledger(self.problem, {}, None)  # a file that nobody accounts for is found before hours of training
        return self._built

    def open(self) -> Progress:
        """Where the run stands: at its start, or where the folder's newest generation is."""
        if self._progress is None:
            self._progress = self._open(self.prepare(), self._data)
            self._marks = {}
        return self._progress

    def moments(self) -> Iterator[Moment]:
        """The whole run, saved after every round and every `save_seconds`; ends at once if it had ended before."""
        built, progress = self.prepare(), self.open()
        last_save = last_moment = time.monotonic()
        shelf = self.folder.shelf() if built.maps is not None else None
        for moment in walk(built.problem, built.network, built.method, built.plan, progress, shelf):
            now = time.monotonic()
            self._count(moment, now - last_moment)
            last_moment = now
            progress = moment.progress
            self._refuse_losses()
            if moment.record is not None:
                self._write_round(moment)
            if moment.record is not None or now - last_save >= self.config.save_seconds:
                self.save(progress)
                last_save = time.monotonic()
            yield moment
        self.model = finished(built, progress)
        if built.maps is not None:
            built.maps.reader.close()
        self._write_report(progress)

    def save(self, progress: Progress) -> None:
        """Publish everything that is needed to go on; callers may do so at any moment."""
        built = self._built
        require(built is not None, "nothing has been built yet: iterate over moments() first", EmbasisError)
        assert built is not None
        tensors, facts = contents(built, self.problem, self._data, progress, self.timings, self.changes)
        self.saved = self.folder.publish(tensors, facts)

    def _open(self, built: Built, data: dict[str, str]) -> Progress:
        """A fresh start, or where the newest generation stands."""
        progress = begin(built.network, built.method, built.plan)
        self.resumed = self.folder.newest()
        if self.resumed is None:
            begin_folder(self.folder, built)
            self.folder.write_table(rows_name(data), rows_of(self.problem, self._marks))
            return progress
        facts = self.resumed.facts
        check_facts(facts, self.folder.path)
        settings = refuse_changed_config(facts["config"], built.resolved, self.allow_change)
        same = backbone_of(built) == facts["backbone"]
        rule = "the run folder was begun with other weights of the backbone; use another folder, or the old weights"
        require(same, rule, ConfigError)
        before, now, shifted = self._refuse_data(built, facts, data) if data != facts["data"] else ({}, {}, ())
        self.timings, self.changes = list(facts["timings"]), list(facts.get("changes", ()))
        self.saved = self.resumed.number
        progress = restored(progress, self.resumed, settings)
        reopen(progress, built.plan, settings)
        if shifted:
            take_over(progress, before, now)
            self.folder.write_table(rows_name(data), now)
        if settings or shifted:
            self._note_changes(built, [*settings, *shifted], progress)
        return progress

    def _refuse_data(self, built: Built, facts: dict[str, Any], data: dict[str, str]) -> Changed:
        """The rows before, the rows now, and what has changed, unless the user does not accept it."""
        before: dict[str, Any] = {}
        with suppress(CheckpointError):  # a folder of an older release has no such table
            before = known_rows(read_table(self.folder.path / rows_name(facts["data"])))
        now = rows_of(self.problem, self._marks)
        changed = refuse_changed_data(shifts(facts["data"], data, before, now), self.accept_data)
        columns = None if self.problem.columns is None else list(self.problem.columns)
        names, shape = list(self.problem.schema.names), list(built.shape)
        refuse_other_kind(facts, {"classes": names, "columns": columns, "shape": shape})
        return before, now, changed

    def _note_changes(self, built: Built, changes: list[str], progress: Progress) -> None:
        """From here on the folder belongs to the new settings and data."""
        self.changes += [f"from generation {self.saved + 1} on, {change}" for change in changes]
        self.folder.write_json("config.json", built.resolved)
        self.folder.write_jsonl("changes.jsonl", self.changes)
        self.save(progress)

    def _count(self, moment: Moment, seconds: float) -> None:
        """Add the time to its stage: a pause with a record ends labelling, any other one a training step."""
        number = moment.record.round if moment.record is not None else moment.progress.round
        stage = "train" if moment.record is None else "label"
        for row in self.timings:
            if row["round"] == number and row["stage"] == stage:
                row["seconds"] += seconds
                return
        self.timings.append({"round": number, "stage": stage, "seconds": seconds})

    def _write_round(self, moment: Moment) -> None:
        record, verdict = moment.record, moment.verdict
        if record is None or verdict is None:
            return
        if isinstance(verdict, Shelved):
            self._write_maps(record.round, verdict, moment.stands)
        else:
            ids = self.problem.row_names or self.problem.unlabelled.ids.tolist()
            name = f"labels/round-{record.round:03d}.parquet"
            self.folder.write_table(name, label_columns(verdict, ids, self.problem.schema))
        if moment.basis is not None:
            self.folder.write_json(basis_name(record.round), basis_facts(moment.basis, self.problem))
        self.folder.write_jsonl("rounds.jsonl", [record_to_json(row) for row in moment.progress.records])
        self.folder.write_jsonl("timings.jsonl", self.timings)
        self._write_ledger(record.trusted)

    def _write_maps(self, number: int, verdict: Shelved, stands: bool) -> None:
        """The label maps of a round; small copies of a few with their pictures, if the report is to show this one."""
        built, samples = self.prepare(), self.problem.unlabelled
        assert built.maps is not None
        assert isinstance(samples, MapFiles | MapArrays)
        folder, names = self.folder.maps(number, built.maps.table), map_row_names(self.problem)
        grey = {item.name for item in samples.refused} if isinstance(samples, MapFiles) else set()
        parts = (part for part in verdict.parts() if names[int(part.rows[0])] not in grey)  # a row each
        written = write_maps(folder, parts, samples.sizes, self.problem.schema, names, ".parquet")
        if not stands:
            return
        variance = {str(line["id"]): float(line["mean_variance"]) for line in written}
        for name, data in gallery_files(self.problem, verdict, built.maps.table, variance, names).items():
            self.folder.write_bytes(name, data)

    def _write_report(self, progress: Progress) -> None:
        """The page; where it cannot be written, model and labels are there all the same."""
        path = self.folder.path
        try:
            self._write_ledger(progress.records[min(progress.judging, len(progress.records) - 1)].trusted)
            view = view_of(path)
            if (pictures := row_gallery(self.problem, self.front, view.labels, view.basis)) is not None:
                self.folder.write_json(ROW_GALLERY, pictures)
            self.folder.write_text("report.html", run_page(view_of(path) if pictures else view))
        except ResourceError as error:
            rest = "model and labels are kept; the same command, or embasis report, writes the report again"
            raise ReportError(f"{str(error).partition('; ')[0]}; {rest}") from error

    def _write_ledger(self, trusted: int) -> None:
        """Every file that could not be used, and what became of all the others."""
        self.folder.write_jsonl("quarantine.jsonl", [asdict(item) for item in self.refused()])
        accounts = {name: asdict(account) for name, account in self.accounts(trusted).items()}
        self.folder.write_json("ledger.json", accounts)

    def accounts(self, trusted: int) -> dict[str, Account]:
        """What became of every file that was met; pictures with label maps are used whole, by their trusted sites."""
        maps = self.prepare().maps is not None
        return ledger(self.problem, self._late(), None if maps else trusted)

    def refused(self) -> list[Refusal]:
        """What could not be used, up to now."""
        return [*self.problem.refused, *(item for items in self._late().values() for item in items)]

    def _late(self) -> dict[str, list[Refusal]]:
        """Rows that were lost while training, on each side."""
        sides = {"labelled": self.problem.labelled, "unlabelled": self.problem.unlabelled, "test": self.problem.test}
        files = {name: side for name, side in sides.items() if isinstance(side, Images | MapFiles)}
        return {name: [replace(item, side=name) for item in side.refused] for name, side in files.items()}

    def _refuse_losses(self) -> None:
        """Files that vanish while training have the same budget as those that were damaged before."""
        late = sum(len(items) for items in self._late().values())
        if not late:
            return
        rows = sum(len(side) for side in (self.problem.labelled, self.problem.unlabelled, self.problem.test or ()))
        seen = rows + len(self.problem.refused)
        budget = float(self.config.data.get("budget", DEFAULTS.budget))
        if late + len(self.problem.refused) > tolerated(seen, budget):
            self.folder.write_jsonl("quarantine.jsonl", [asdict(item) for item in self.refused()])
        require_budget(self.refused(), seen, budget)


def view_of(path: Path) -> RunView:
    """A run folder as the report reads it."""
    facts = read_run(path).facts
    rounds = tuple(record_from_json(row) for row in facts["records"])
    scored = all(SELECTION_SCORE in record.scores for record in rounds)
    require(scored, f"{path}: the run's facts are damaged: a round has no score {SELECTION_SCORE!r}", CorruptError)
    timings = read_jsonl(path / "timings.jsonl") if (path / "timings.jsonl").exists() else facts["timings"]
    items, pictures = stored_gallery(path)
    number = len(rounds) - 1 if facts["progress"].get("kept") is None else int(facts["progress"]["kept"])
    last = path / "labels" / f"round-{number:03d}.parquet"  # there is none for label maps
    return RunView(
        config=facts["config"],
        environment=read_json(path / "environment.json"),
        rounds=rounds,
        timings=timings,
        labels=read_table(last) if last.exists() else None,
        status=str(facts["progress"]["status"]),
        best_round=kept_round(facts),
        classes=tuple(facts["classes"]),
        notes=tuple(str(note) for note in facts.get("notes", ())),
        corrected=int(facts.get("corrected", 0)),
        gallery=gallery_of(path),
        palette=palette_of(facts),
        pictures=int((facts.get("maps") or {}).get("pictures", 0)),
        items=items,
        basis=basis_of(path, kept_round(facts), pictures),
        refused=tuple(read_jsonl(path / "quarantine.jsonl")) if (path / "quarantine.jsonl").exists() else (),
    )


def kept_round(facts: dict[str, Any]) -> int:
    """The round whose model is kept: the last one, the one that was chosen, or the best one after a collapse."""
    if facts["progress"].get("kept") is not None:
        return int(facts["progress"]["kept"])
    if facts["progress"]["status"] == "collapsed":
        return int(facts["progress"]["best_round"])
    return max(len(facts["records"]) - 1, 0)
