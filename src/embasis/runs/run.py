"""A run in its folder: it can be killed at any instant, and the same command goes on where it was.

| word | meaning |
| --- | --- |
| generation | one saved state of the run, with a number: tensors and facts |
| facts | what a generation holds beside tensors: settings, hashes of the data, records of the rounds |
| sealed | the hashes, in a generation, of the other files of the folder, by which damage is noticed |
| marks | a hash of each row, by which rows that changed between two commands are named |

Whatever a round writes is a function of data, config and seed, and is written before the generation that contains the
round, so that going on writes the same bytes again. The seconds that a round took, which differ each time, are in none
of these files but in timings.jsonl.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from embasis.config import Config, upgrade_config
from embasis.data.compare_sides import as_one_domain, compare_sides
from embasis.data.images.folders import DEFAULT_OPTIONS, require_budget, tolerated_count
from embasis.data.problem import Account, account_for_files
from embasis.distributed import work_alone
from embasis.engine.batch import device_of
from embasis.engine.holdout import split_holdout
from embasis.engine.labels import MapLabels, RowLabels
from embasis.engine.restyling import acting_restyler
from embasis.engine.self_train import TrainingEvent, begin, train_rounds
from embasis.engine.state import TrainState
from embasis.errors import CheckpointError, ConfigError, EmbasisError, ReportError, ResourceError, require
from embasis.inputs import Inputs, rejected_while_training, share_rejected
from embasis.inputs.fingerprint import Marks, fingerprint, marks_of, rows_of
from embasis.inputs.image_rows import pixel_reader
from embasis.inputs.map_inputs import pictures_of, table_of_maps, unread_pictures
from embasis.inputs.restyled_pictures import collect_restyled
from embasis.inputs.restyled_rows import keep_restyled_rows
from embasis.report import collect
from embasis.report.page import run_page
from embasis.report.restyled import RESTYLED_NAME
from embasis.runs import checkpoint, resume
from embasis.runs.label_maps import encode_all_maps, name_maps, write_maps
from embasis.runs.model import TrainedModel, label_columns, model_of_run
from embasis.runs.parts import RunParts, build
from embasis.storage import Generation, RunFolder, SealedFiles
from embasis.types import Problem, RejectedFile, RowChange, record_to_json


class RowChanges(NamedTuple):
    """The rows that the run was begun with, those it has now, and how they differ, in words."""

    before: dict[str, Any]
    now: dict[str, Any]
    sentences: tuple[str, ...]


@dataclass
class TrainingRun:
    """A run and its folder. Iterate over `events`; `model` is there when they have ended."""

    problem: Problem
    config: Config
    folder: RunFolder
    inputs: Inputs | None = None
    """Those that have read the problem's files; None = as the problem says."""
    allow_change: tuple[str, ...] = ()
    """Settings that may differ from those the run was begun with."""
    accept_data: bool = False
    """Whether rows may differ from those the run was begun with."""
    resumed: Generation | None = None
    model: TrainedModel | None = None
    timings: list[dict[str, Any]] = field(default_factory=list)
    saved: int = 0
    """Number of the last generation that is on disk."""
    changes: list[str] = field(default_factory=list)
    """What was changed since the run began, in words."""
    environment: dict[str, Any] = field(default_factory=dict)
    """What the run's bits depend on beside data, config and seed; that of its first start."""
    repaired: list[str] = field(default_factory=list)
    """Files of an earlier command that were damaged, in words: those of a run that had ended are made again."""
    side_notes: tuple[str, ...] = ()
    """What was found when the sides were compared, in words."""
    _parts: RunParts | None = None
    _data: dict[str, str] = field(default_factory=dict)
    _marks: dict[str, Marks] = field(default_factory=dict)
    _progress: TrainState | None = None

    def prepare(self) -> RunParts:
        """Build everything; what is wrong with config or data is an error here, before the folder is touched."""
        if self._parts is None:
            known = len(self.problem.notes)
            same_domain = resume.stored_same_domain(self.config, self.folder.path)
            if same_domain and not self.problem.same_domain:
                self.problem = as_one_domain(self.problem, compare_sides(self.problem))
            self._parts = build(self.problem, self.config, self.inputs, compares=same_domain is None)
            self._data, self._marks = fingerprint(self.problem), marks_of(self.problem)
            training, _ = split_holdout(self.problem, self._parts.plan)
            self._parts.inputs.require_rows(training, self._parts.method.labeller)
            kept = keep_restyled_rows(self._parts.problem, self._parts.method, self.config, in_memory=True)
            self._parts = replace(self._parts, problem=kept)
            self.problem, self.side_notes = kept, kept.notes[known:]  # the rows as they came are not needed any more
            account_for_files(self.problem, {}, None)  # a file that no account has is an error before hours of training
        return self._parts

    @property
    def data(self) -> dict[str, str]:
        """The hash of each side of the data."""
        self.prepare()
        return self._data

    def open(self) -> TrainState:
        """Where the run stands: at its start, or where the folder's newest generation is."""
        if self._progress is None:
            self._progress = self._open(self.prepare(), self._data)
            if self._progress.status == "running":
                if self.problem.read_seconds > 0:
                    self._add_time(self._progress.round, "read", self.problem.read_seconds)
                self._marks = {}  # a run that has ended may have to write the table of its rows again
        return self._progress

    def events(self) -> Iterator[TrainingEvent]:
        """The whole run, saved after every round and every `save_seconds`; ends at once if it had ended before."""
        parts, progress = self.prepare(), self.open()
        goes_on = progress.status == "running"
        if self.folder.writes:
            with work_alone():
                self.repaired = resume.name_damage(self) if goes_on else resume.restore_files(self, progress)
        last_save = last_event = time.monotonic()
        store = parts.inputs.label_store(self.folder)
        for event in train_rounds(parts.problem, parts.network, parts.method, parts.plan, progress, store):
            now = time.monotonic()
            self._count(event, now - last_event)
            last_event = now
            progress = event.state
            if event.record is not None:
                share_rejected(self.problem)
            self._require_few_lost_files()
            if event.record is not None and self.folder.writes:
                self._write_round(event)
            if event.record is not None or now - last_save >= self.config.save_seconds:
                self.save(progress)
                last_save = time.monotonic()
            yield event
        self.model = model_of_run(parts, progress)
        parts.inputs.close()
        if self.folder.writes:
            self._write_report(progress)

    def save(self, progress: TrainState) -> None:
        """Publish everything that is needed to go on; callers may do so at any moment."""
        parts = self._parts
        if parts is None:
            raise EmbasisError("nothing has been built yet: iterate over events() first")
        if not self.folder.writes:
            return
        kept = {"timings": self.timings, "changes": self.changes, "environment": self.environment}
        kept["refused"] = [asdict(item) for item in self.rejected()]
        tensors, facts = checkpoint.pack_state(parts, self.problem, self._data, progress, kept)
        self.saved = self.folder.publish(tensors, facts)

    def _open(self, parts: RunParts, data: dict[str, str]) -> TrainState:
        """A fresh start, or where the newest generation stands."""
        progress = begin(parts.network, parts.method, parts.plan)
        self.resumed = self.folder.newest()
        if self.resumed is None:
            self.environment = checkpoint.describe_environment(parts.plan.seed, device_of(parts.network).type)
            checkpoint.begin_folder(self.folder, parts.resolved, self.environment, parts.inputs)
            self.folder.write_table(checkpoint.rows_name(data), rows_of(self.problem, self._marks))
            return progress
        facts = self.resumed.facts
        checkpoint.check_facts(facts, self.folder.path)
        self.environment = checkpoint.read_environment(self.folder.path, facts)
        settings = resume.refuse_changed_config(upgrade_config(facts["config"]), parts.resolved, self.allow_change)
        same = parts.inputs.identity == facts["backbone"]
        rule = "the run folder was begun with other weights of the backbone; use another folder, or the old weights"
        require(same, rule, ConfigError)
        rows = self._accept_changes(parts, facts, data) if data != facts["data"] else RowChanges({}, {}, ())
        self.timings, self.changes = list(facts["timings"]), list(facts.get("changes", ()))
        self.saved = self.resumed.number
        progress = checkpoint.unpack_state(progress, self.resumed, settings)
        resume.extend_rounds(progress, parts.plan, settings)
        if rows.sentences:
            resume.adopt_rows(progress, rows.before, rows.now)
            self.folder.write_table(checkpoint.rows_name(data), rows.now)
        if settings or rows.sentences:
            self._note_changes(parts, [*settings, *rows.sentences], progress)
        return progress

    def _accept_changes(self, parts: RunParts, facts: dict[str, Any], data: dict[str, str]) -> RowChanges:
        """How the rows have changed; an error unless the user accepts it."""
        before: dict[str, Any] = {}
        with suppress(CheckpointError):  # a folder of an older release has no such table
            assert self.resumed is not None
            files = SealedFiles(self.folder.path, self.resumed.sealed)
            before = resume.known_rows(files.table(checkpoint.rows_name(facts["data"])))
        now = rows_of(self.problem, self._marks)
        changed = resume.refuse_changed_data(resume.diff_rows(facts["data"], data, before, now), self.accept_data)
        columns = None if self.problem.columns is None else list(self.problem.columns)
        names, shape = list(self.problem.schema.names), list(parts.shape)
        resume.refuse_other_kind(facts, {"classes": names, "columns": columns, "shape": shape})
        return RowChanges(before, now, changed)

    def _note_changes(self, parts: RunParts, changes: list[str], progress: TrainState) -> None:
        """From here on the folder belongs to the new settings and data."""
        self.changes += [f"from generation {self.saved + 1} on, {change}" for change in changes]
        self.folder.write_json("config.json", parts.resolved)
        self.folder.write_jsonl("changes.jsonl", self.changes)
        self.save(progress)

    def _count(self, event: TrainingEvent, seconds: float) -> None:
        """Add the time to its stage: a pause with a record ends labelling, any other one a training step."""
        number = event.record.round if event.record is not None else event.state.round
        self._add_time(number, "train" if event.record is None else "label", seconds)

    def _add_time(self, number: int, stage: str, seconds: float) -> None:
        for row in self.timings:
            if row["round"] == number and row["stage"] == stage:
                row["seconds"] += seconds
                return
        self.timings.append({"round": number, "stage": stage, "seconds": seconds})

    def _write_round(self, event: TrainingEvent) -> None:
        record, labels = event.record, event.labels
        if record is None or labels is None:
            return
        if isinstance(labels, MapLabels):
            self.write_maps(record.round, labels, event.is_kept)
        else:
            self.write_labels(record.round, labels)
        if event.basis is not None:
            self.folder.write_json(collect.basis_name(record.round), collect.pack_basis(event.basis, self.problem))
        self.folder.write_jsonl("rounds.jsonl", [record_to_json(row) for row in event.state.records])
        self.folder.write_jsonl("timings.jsonl", self.timings)
        self._write_ledger(record.trusted)

    def row_table(self) -> dict[str, Any]:
        """The table of the rows that the run has, with their marks."""
        return rows_of(self.problem, self._marks)

    def write_labels(self, number: int, labels: RowLabels) -> None:
        """The labels of a round, one for each row."""
        ids = self.problem.row_names or self.problem.unlabelled.ids.tolist()
        self.folder.write_table(collect.labels_name(number), label_columns(labels, ids, self.problem.schema))

    def write_maps(self, number: int, labels: MapLabels, is_kept: bool) -> None:
        """The label maps of a round; small copies of a few with their pictures, if the report is to show this one."""
        samples, table = pictures_of(self.problem.unlabelled), table_of_maps(self.problem)
        names = collect.name_rows(self.problem, digits=6)
        folder, unread = self.folder.maps(number, table), unread_pictures(samples)
        parts = (part for part in labels.parts() if names[int(part.rows[0])] not in unread)  # a row each
        schema = self.problem.schema
        encoded = encode_all_maps(parts, samples.sizes, schema, table, name_maps(names))
        written = list(write_maps(folder, encoded, schema, ".parquet"))
        if not is_kept:
            return
        variance = {str(line["id"]): float(line["mean_variance"]) for line in written}
        for name, data in collect.map_gallery_files(self.problem, samples, labels, table, variance, number).items():
            self.folder.write_bytes(name, data)

    def _write_report(self, progress: TrainState) -> None:
        """The page; where it cannot be written, model and labels are there all the same."""
        path = self.folder.path
        try:
            self._write_ledger(progress.records[min(progress.model_round, len(progress.records) - 1)].trusted)
            newest = checkpoint.read_run(path)
            facts, files, number = newest.facts, SealedFiles(path, newest.sealed), collect.shown_round(newest.facts)
            labels = collect.read_label_columns(files, number)
            basis = collect.read_components(files, collect.kept_round(facts), {})
            reader = pixel_reader(self.problem, self.prepare().inputs.files)
            if (pictures := collect.make_row_gallery(self.problem, reader, labels, basis)) is not None:
                origin = {"labels": files.seal(collect.labels_name(number))}
                self.folder.write_sealed_json(collect.row_gallery_name(number), {**pictures, **origin})
            self._write_restyled(progress)
            self.folder.write_text("report.html", run_page(checkpoint.read_run_view(path)))
        except ResourceError as error:
            rest = "model and labels are kept; the same command, or embasis report, writes the report again"
            raise ReportError(f"{str(error).partition('; ')[0]}; {rest}") from error

    def _write_restyled(self, progress: TrainState) -> None:
        """Some labelled pictures before and after the restyler, if the run has one."""
        restyler = acting_restyler(self.prepare().method, self.problem)
        if restyler is None or not progress.restyle:
            return
        if (pictures := collect_restyled(self.problem, RowChange(restyler, progress.restyle))) is not None:
            self.folder.write_sealed_json(RESTYLED_NAME, pictures)

    def _write_ledger(self, trusted: int) -> None:
        """Every file that could not be used, and what became of all the others."""
        self.folder.write_jsonl("quarantine.jsonl", [asdict(item) for item in self.rejected()])
        accounts = {name: asdict(account) for name, account in self.accounts(trusted).items()}
        self.folder.write_json("ledger.json", accounts)
        shards = [{"side": side, **asdict(shard)} for side, all_ in self.problem.shards.items() for shard in all_]
        if shards:
            self.folder.write_jsonl("shards.jsonl", shards)

    def accounts(self, trusted: int) -> dict[str, Account]:
        """What became of every file that was met; pictures with label maps are used whole, by their trusted sites."""
        return account_for_files(self.problem, self._lost_files(), self.prepare().inputs.count_used(trusted))

    def rejected(self) -> list[RejectedFile]:
        """What could not be used, up to now."""
        return [*self.problem.rejected, *(item for items in self._lost_files().values() for item in items)]

    def _lost_files(self) -> dict[str, list[RejectedFile]]:
        """Files that could not be read any more while training, on each side."""
        lost = rejected_while_training(self.problem)
        return {name: [replace(item, side=name) for item in items] for name, items in lost.items()}

    def _require_few_lost_files(self) -> None:
        """Files that vanish while training have the same budget as those that were damaged before."""
        lost = sum(len(items) for items in self._lost_files().values())
        if not lost:
            return
        rows = sum(len(side) for side in (self.problem.labelled, self.problem.unlabelled, self.problem.test or ()))
        seen = rows + len(self.problem.rejected)
        budget = float(self.config.data.get("budget", DEFAULT_OPTIONS.budget))
        if lost + len(self.problem.rejected) > tolerated_count(seen, budget):
            self.folder.write_jsonl("quarantine.jsonl", [asdict(item) for item in self.rejected()])
        require_budget(self.rejected(), seen, budget)
