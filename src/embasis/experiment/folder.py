"""A run in its folder: it can be killed at any instant, and the same command goes on where it was.

Every artefact is a function of data, config and seed and is written before the generation that contains its round, so
that going on writes the same bytes again. Times are apart, in timings.jsonl.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from embasis.config import Config
from embasis.data.image.samples import Images
from embasis.data.maps.samples import MapArrays, MapFiles
from embasis.engine.batch import device_of
from embasis.engine.holdout import parted
from embasis.engine.progress import Progress
from embasis.engine.rounds import Moment, begin, walk
from embasis.engine.validate import SELECTION_SCORE
from embasis.engine.verdict import Shelved
from embasis.errors import ConfigError, CorruptError, EmbasisError, InputDataError, require
from embasis.experiment.basis_view import basis_facts, basis_name, basis_of
from embasis.experiment.build import Built, build, fingerprint, refuse_changed_config
from embasis.experiment.environment import environment
from embasis.experiment.facts import check_facts, read_run
from embasis.experiment.front import Front
from embasis.experiment.gallery import gallery_files, gallery_of, map_row_names, palette_of
from embasis.experiment.map_output import write_maps
from embasis.experiment.model import BACKBONE, Model, finished, label_columns
from embasis.experiment.thumbnails import ROW_GALLERY, row_gallery, stored_gallery
from embasis.methods.em_basis import EMBasisLabeller
from embasis.report.page import run_page
from embasis.report.records import RunView, record_from_json, record_to_json
from embasis.storage import Generation, RunFolder, read_json, read_jsonl, read_table
from embasis.types import Problem, Refusal


@dataclass
class FolderRun:
    """A run and its folder. Iterate over `moments`; `model` is there when they have ended."""

    problem: Problem
    config: Config
    folder: RunFolder
    front: Front | None = None
    resumed: Generation | None = None
    model: Model | None = None
    timings: list[dict[str, Any]] = field(default_factory=list)
    saved: int = 0
    """Number of the last generation that is on disk."""
    _built: Built | None = None
    _data: dict[str, str] = field(default_factory=dict)
    _progress: Progress | None = None

    def prepare(self) -> Built:
        """Build everything; what is wrong with config or data is said here, before the folder is touched."""
        if self._built is None:
            self._built, self._data = build(self.problem, self.config, self.front), fingerprint(self.problem)
            training, _ = parted(self.problem, self._built.plan)
            labeller = self._built.method.labeller
            if isinstance(labeller, EMBasisLabeller) and self._built.maps is None:  # refuses more components than rows
                labeller.centres_of_a_class(len(training.labelled) + len(training.unlabelled))
            self.problem = self._built.problem  # the rows as they came are not needed any more
        return self._built

    def open(self) -> Progress:
        """Where the run stands: at its start, or where the folder's newest generation is."""
        if self._progress is None:
            self._progress = self._open(self.prepare(), self._data)
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
        tensors, facts = contents(built, self.problem, self._data, progress, self.timings)
        self.saved = self.folder.publish(tensors, facts)

    def _open(self, built: Built, data: dict[str, str]) -> Progress:
        """A fresh start, or where the newest generation stands."""
        progress = begin(built.network, built.method, built.plan)
        self.resumed = self.folder.newest()
        if self.resumed is None:
            begin_folder(self.folder, built)
            return progress
        facts = self.resumed.facts
        check_facts(facts, self.folder.path)
        refuse_changed_config(facts["config"], built.resolved)
        same = backbone_of(built) == facts["backbone"]
        rule = "the run folder was begun with other weights of the backbone; use another folder, or the old weights"
        require(same, rule, ConfigError)
        changed = sorted(name for name in {*facts["data"], *data} if facts["data"].get(name) != data.get(name))
        require(
            not changed,
            f"the data have changed since the run began: {', '.join(changed)}; use another folder, or the old data",
            InputDataError,
        )
        self.timings = list(facts["timings"])
        self.saved = self.resumed.number
        records = [record_from_json(row) for row in facts["records"]]
        return Progress.restore(progress.network, self.resumed.tensors, facts["progress"], records)

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
        self._write_ledger()

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
        self._write_ledger()
        view = view_of(self.folder.path)
        if (pictures := row_gallery(self.problem, self.front, view.labels, view.basis)) is not None:
            self.folder.write_json(ROW_GALLERY, pictures)
        self.folder.write_text("report.html", run_page(view_of(self.folder.path) if pictures else view))

    def _write_ledger(self) -> None:
        self.folder.write_jsonl("quarantine.jsonl", [asdict(item) for item in self.refused()])

    def refused(self) -> list[Refusal]:
        """The ledger of what could not be used, up to now."""
        sides = {"labelled": self.problem.labelled, "unlabelled": self.problem.unlabelled, "test": self.problem.test}
        late = [
            replace(item, side=name)
            for name, side in sides.items()
            if isinstance(side, Images | MapFiles)
            for item in side.refused
        ]
        return [*self.problem.refused, *late]


def contents(
    built: Built, problem: Problem, data: dict[str, str], progress: Progress, timings: list[dict[str, Any]]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a generation: everything that is needed to go on, or to label other rows."""
    tensors = progress.tensors()
    if built.standardiser is not None:
        tensors |= {"input/centre": built.standardiser.centre, "input/scale": built.standardiser.scale}
    return tensors, {
        "classes": list(built.problem.schema.names),
        "shape": list(built.shape),
        "columns": None if problem.columns is None else list(problem.columns),
        "config": built.resolved,
        "data": data,
        "notes": [*problem.notes, *refused_note(problem)],
        "corrected": problem.corrected,
        "backbone": backbone_of(built),
        "maps": None if built.maps is None else {**built.maps.facts(), "pictures": len(problem.unlabelled)},
        "progress": progress.facts(),
        "records": [record_to_json(record) for record in progress.records],
        "timings": timings,
    }


def backbone_of(built: Built) -> str | None:
    """What a run's pretrained part is known by; None where there is none."""
    if built.maps is not None:
        return built.maps.identity
    return None if built.front is None else built.front.backbone.identity


def refused_note(problem: Problem) -> list[str]:
    """One sentence about files that are not used."""
    count = len(problem.refused)
    what = "1 file is" if count == 1 else f"{count:,} files are"
    return [f"{what} not used; quarantine.jsonl names each with its reason"] if count else []


def begin_folder(folder: RunFolder, built: Built) -> None:
    """What a run folder has before its first generation."""
    folder.write_json("config.json", built.resolved)
    folder.write_json("environment.json", environment(built.plan.seed, device_of(built.network).type))
    if built.front is not None and built.front.stem is not None:
        folder.write_tensors(BACKBONE, built.front.backbone.state())


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
