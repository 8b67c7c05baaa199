"""A run folder that is opened again: what has changed since the run began, and what has been damaged.

A change of settings or data is taken over only if the user says so. It is then written down in `changes.jsonl` and in
the report; from there on the run is no longer the one that its first settings and data would have given.

A file that is damaged is made again from the run's last state:

| file | made again from |
| --- | --- |
| config.json, environment.json, rounds.jsonl, timings.jsonl, changes.jsonl | the facts of the generation |
| labels/round-NNN, basis/round-NNN, gallery/round-NNN | the network and labeller of that round, if they are there: |
| | those of the round that is kept, and of the best one |
| backbone.safetensors, rows/… | the backbone and the rows that the command has read |

Whatever is made is compared with the hash that the generation has of the file, so a repaired file is the old one, bit
for bit. A file that cannot be made again is an error of the folder, unless the user has deleted it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from embasis.config import Config
from embasis.engine.calibration import drop_reference
from embasis.engine.features import extract, sample_features
from embasis.engine.label_chunks import label_maps
from embasis.engine.labels import BoundSelector, MapLabels, label_rows
from embasis.engine.scores import summarise_basis
from embasis.engine.state import TrainState, strip_prefix
from embasis.errors import CheckpointError, ConfigError, CorruptError, InputDataError, quote, require
from embasis.inputs import FROZEN_WEIGHTS
from embasis.report.collect import pack_basis
from embasis.runs.checkpoint import read_run, rows_name
from embasis.runs.model import label_columns
from embasis.storage import SealedFiles
from embasis.storage.atomic import encode_json, encode_table, read_bytes
from embasis.storage.label_map_folder import open_stored_maps
from embasis.types import BY_ROW, LabelStore, Plan, PseudoLabels, record_to_json

if TYPE_CHECKING:
    from embasis.runs.run import TrainingRun

FREE = ("save_seconds", "data.")
"""How often a run saves may always change; the data have a hash of their own."""
NEWER = {"plan.schedule": "poly", "plan.augment": 0.0, "plan.sum": "exact", "plan.harm_limit": 0.0}
"""Settings that runs of older versions do not have, and the values that do what those did."""
MOST_ROWS_NAMED = 10
"""Rows that are named."""
LOST = (
    "and cannot be made again: the network of its round is gone; delete the file to go on without it, "
    "or train again in another folder"
)


def stored_same_domain(config: Config, path: Path) -> bool | None:
    """Whether the folder's run has found its sides to be of one domain; None where nobody has asked yet. It is asked
    when a run begins, and never again; runs by older versions did not ask, and stay as they are."""
    if config.standardise == "auto":
        with suppress(CheckpointError):  # no generation yet, or a damaged one: opening the folder explains more
            return read_run(path).facts.get("same_domain") is True
    return None


def compare_settings(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Setting → `old → new` for each that differs."""
    changes: dict[str, str] = {}
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            changes |= compare_settings(before, after, f"{prefix}{key}.")
        elif before != after and not (key not in old and NEWER.get(f"{prefix}{key}") == after):
            changes[f"{prefix}{key}"] = f"{quote(before, 500)} → {quote(after, 500)}"
    return changes


def refuse_changed_config(
    old: Mapping[str, Any], new: Mapping[str, Any], allowed: Collection[str] = ()
) -> tuple[str, ...]:
    """A run folder belongs to one config; the changes that are allowed, as `key: old → new`."""
    changed = {key: words for key, words in compare_settings(old, new).items() if not key.startswith(FREE)}
    lines = [f"{key}: {words}" for key, words in changed.items() if key not in allowed]
    flags = " ".join(f"--allow-change {key}" for key in changed if key not in allowed)
    require(
        not lines,
        f"the run folder was begun with other settings: {'; '.join(lines)}; "
        f"use another folder, the old settings, or {flags}",
        ConfigError,
    )
    return tuple(f"{key}: {words}" for key, words in changed.items())


def extend_rounds(progress: TrainState, plan: Plan, changes: Sequence[str]) -> None:
    """A run that had ended goes on if it is allowed more rounds than it had."""
    more = any(line.startswith("plan.rounds: ") for line in changes) and plan.rounds >= progress.round
    if progress.status != "finished" or not more:
        return
    brought_back = f"the run had ended and brought round {progress.kept_round} back, so no round can follow"
    require(progress.kept_round is None, f"plan.rounds cannot change: {brought_back}; use another folder", ConfigError)
    progress.status = "running"


@dataclass(frozen=True)
class Shift:
    """What happened to the rows of one side."""

    side: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()

    @classmethod
    def between(cls, side: str, old: Mapping[int, tuple[str, int]], new: Mapping[int, tuple[str, int]]) -> Shift:
        """Added, removed and edited rows; nothing where the old rows are not known."""
        if not old:
            return cls(side)
        added = tuple(name for id_, (name, _) in new.items() if id_ not in old)
        removed = tuple(name for id_, (name, _) in old.items() if id_ not in new)
        edited = tuple(name for id_, (name, mark) in new.items() if id_ in old and old[id_][1] != mark)
        return cls(side, added, removed, edited)

    def __str__(self) -> str:
        names = [*self.added, *self.removed, *self.edited]
        if not names:
            return self.side
        counts = f"{len(self.added):,} added, {len(self.removed):,} removed, {len(self.edited):,} edited"
        rest = f" and {len(names) - MOST_ROWS_NAMED:,} more" if len(names) > MOST_ROWS_NAMED else ""
        return f"{self.side} ({counts}: {', '.join(map(repr, names[:MOST_ROWS_NAMED]))}{rest})"


def diff_rows(
    old: Mapping[str, str],
    new: Mapping[str, str],
    before: Mapping[str, Sequence[Any]],
    now: Mapping[str, Sequence[Any]],
) -> list[Shift]:
    """The sides whose hashes differ, each with its rows as far as the tables know them."""
    changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return [Shift.between(side, rows_on(before, side), rows_on(now, side)) for side in changed]


def known_rows(table: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """The table if it is one of rows; an empty one if it is anything else."""
    whole = set(table) == {"side", "id", "name", "mark"}
    plain = whole and all(type(value) is int for name in ("id", "mark") for value in table[name])
    return dict(table) if plain else {}


def rows_on(table: Mapping[str, Sequence[Any]], side: str) -> dict[int, tuple[str, int]]:
    """id → (name, mark) of the rows on one side."""
    columns = (table.get(name, ()) for name in ("side", "id", "name", "mark"))
    rows = (row for row in zip(*columns, strict=True) if row[0] == side)
    return {int(id_): (str(name) or f"row {id_}", int(mark)) for _, id_, name, mark in rows}


def refuse_changed_data(shifts: Sequence[Shift], accepted: bool) -> tuple[str, ...]:
    """A run goes on with the data it began with; the changes that are accepted, as sentences."""
    what = ", ".join(map(str, shifts))
    advice = "use another folder, the old data, or --accept-data-change"
    require(not shifts or accepted, f"the data have changed since the run began: {what}; {advice}", InputDataError)
    return tuple(f"data: {shift}" for shift in shifts)


def refuse_other_kind(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Rows may come and go; classes, features and the shape of an input may not."""
    for key, what in (("classes", "classes"), ("columns", "feature columns"), ("shape", "shape of an input")):
        rule = f"the {what} cannot change within a run: {old.get(key)} → {new[key]}; use another folder"
        require(old.get(key) == new[key], rule, InputDataError)


def adopt_rows(progress: TrainState, before: Mapping[str, Sequence[Any]], now: Mapping[str, Sequence[Any]]) -> None:
    """Labels of the last round for the rows that are as they were; any other is not trusted until it is labelled."""
    pseudo, ended = progress.pseudo, f"the run had ended ({progress.status}) with the old data; use another folder"
    require(progress.status == "running", ended, InputDataError)
    maps = "label maps of other pictures cannot be taken over; use another folder"
    require(progress.counts is None, maps, InputDataError)
    # What the labeller knows of single rows is of the old ones; the next round finds it again.
    progress.labeller, progress.best = drop_reference(progress.labeller), drop_reference(progress.best)
    if not isinstance(pseudo, PseudoLabels):
        return
    old, new = rows_on(before, "unlabelled"), rows_on(now, "unlabelled")
    rule = "the table of the run's rows is missing or damaged, so other rows cannot be taken over; use another folder"
    require(len(old) == len(pseudo), rule, InputDataError)
    places = {id_: place for place, id_ in enumerate(old) if id_ in new and old[id_][1] == new[id_][1]}
    where = torch.tensor([places.get(id_, len(old)) for id_ in new], dtype=torch.int64)

    def moved(values: Tensor, fill: float) -> Tensor:
        """Row by row, with one more row of `fill` for those that are not there."""
        return torch.cat([values, values.new_full((1, *values.shape[1:]), fill)])[where]

    target = None if pseudo.target is None else moved(pseudo.target, 1 / pseudo.target.shape[1])
    progress.pseudo = PseudoLabels(moved(pseudo.label, -1), moved(pseudo.weight, 0), target)
    if progress.labels is not None:
        progress.labels = moved(progress.labels, -1)
    for named in (progress.restored_extra, progress.best):
        named.update({name: moved(value, -1) for name, value in named.items() if name.endswith("." + BY_ROW)})


def restore_files(run: TrainingRun, progress: TrainState) -> list[str]:
    """What was made again in the folder of a run that has ended, in words; CorruptError if something could not be."""
    assert run.resumed is not None
    sealed, done, lost = run.resumed.sealed, list[str](), list[str]()
    if sealed is None:  # a run by 0.1.0: nothing is known of its files
        return []
    files = SealedFiles(run.folder.path, sealed)
    for name, data in encode_plain_copies(run, progress).items():
        with suppress(CheckpointError):
            if read_bytes(run.folder.path / name) == data:
                continue
        run.folder.write_bytes(name, data)
        done.append(name)
    damaged = find_damaged(files, sealed)
    for name in damaged:
        if not find_damaged(files, [name]):  # made again together with another one
            continue
        if make_again(run, progress, files, name):
            done.append(name)
        elif (run.folder.path / name).exists():
            lost.append(f"{run.folder.path / name} is damaged ({damaged[name]}) {LOST}")
    if lost:
        raise CorruptError("; ".join(lost))
    return [f"{name} was damaged or missing, and has been made again: it is bit for bit as it was" for name in done]


def name_damage(run: TrainingRun) -> list[str]:
    """What is damaged in the folder of a run that goes on, in words: its next rounds do not need it."""
    if run.resumed is None or run.resumed.sealed is None:
        return []
    damaged = find_damaged(SealedFiles(run.folder.path, run.resumed.sealed), run.resumed.sealed)
    return [f"{name} is damaged ({why}); the run goes on without it" for name, why in damaged.items()]


def encode_plain_copies(run: TrainingRun, progress: TrainState) -> dict[str, bytes]:
    """The files for people and other tools whose content is in the facts too."""
    lines: dict[str, list[Any]] = {
        "rounds.jsonl": [record_to_json(record) for record in progress.records],
        "timings.jsonl": run.timings,
    }
    if run.changes:
        lines["changes.jsonl"] = run.changes
    copies = {name: b"".join(encode_json(row, name, indent=None) for row in rows) for name, rows in lines.items()}
    for name, value in (("config.json", run.prepare().resolved), ("environment.json", run.environment)):
        copies[name] = encode_json(value, name)
    return copies


def find_damaged(files: SealedFiles, names: Iterable[str]) -> dict[str, str]:
    """Name → what is wrong, of each sealed file; the stores of sites are checked when they are read."""
    damaged = {}
    for name in names:
        if not name.startswith("sites/"):
            try:
                check_file(files, name)
            except CheckpointError as error:
                damaged[name] = str(error).partition("; ")[0].removeprefix(f"{files.path / name}: ")
    return damaged


def check_file(files: SealedFiles, name: str) -> None:
    """CorruptError unless the file, and with a folder of maps each of its files, is what was written."""
    if maps := re.fullmatch(r"labels/round-([0-9]+)/maps\.json", name):
        open_stored_maps(files, int(maps[1])).check()
    else:
        files.read(name)


def make_again(run: TrainingRun, progress: TrainState, files: SealedFiles, name: str) -> bool:
    """Whether the file is as it was, because its content could be made again."""
    maps = re.fullmatch(r"(?:labels|gallery)/round-([0-9]+)/.*", name)
    if maps and (store := run.prepare().inputs.label_store(run.folder)) is not None:
        for state in iter_states(progress):
            write_maps_again(run, state, int(maps[1]), store)
            if not find_damaged(files, [name]):
                return True
        return False
    for data in remake(run, progress, name):
        if data is not None and files.fits(name, data):
            run.folder.write_bytes(name, data)
            return True
    return False


def remake(run: TrainingRun, progress: TrainState, name: str) -> Iterator[bytes | None]:
    """What a file may have held, one guess after the other; whether one is right is seen afterwards."""
    parts = run.prepare()
    of_round = re.fullmatch(r"(labels|basis)/round-([0-9]+)\.(?:parquet|json)", name)
    if of_round and len(parts.problem.unlabelled):
        make = label_bytes if of_round[1] == "labels" else basis_bytes
        for state in iter_states(progress):
            yield make(run, state, int(of_round[2]))
    elif name == FROZEN_WEIGHTS and (weights := parts.inputs.frozen_weights()) is not None:
        yield run.folder.tensor_bytes(weights)
    elif name == rows_name(run.resumed.facts["data"] if run.resumed else {}):
        yield encode_table(run.row_table(), ".parquet")


def iter_states(progress: TrainState) -> Iterator[TrainState]:
    """The run as it has ended; and as its best round left it, if that is another one."""
    yield progress
    if progress.best:
        network = copy.deepcopy(progress.network)
        network.load_state_dict(dict(strip_prefix("network", progress.best)))
        labeller, selector = (dict(strip_prefix(part, progress.best)) for part in ("labeller", "selector"))
        yield replace(progress, network=network, labeller=labeller, selector=selector)


def label_bytes(run: TrainingRun, state: TrainState, number: int) -> bytes:
    """The table of labels that a round with this state has written."""
    parts = run.prepare()
    labels = label_rows(parts.problem.unlabelled, parts.method, parts.plan, state, number)
    ids = run.problem.row_names or run.problem.unlabelled.ids.tolist()
    return encode_table(label_columns(labels, ids, run.problem.schema), ".parquet")


def basis_bytes(run: TrainingRun, state: TrainState, number: int) -> bytes | None:
    """The basis that a round with this state has written."""
    parts = run.prepare()
    sample = sample_features(state.network, parts.problem.unlabelled, parts.plan, False, number)
    many_sites = parts.inputs.label_store(run.folder) is not None
    summary = summarise_basis(parts.method.labeller, sample.chunks, state.labeller, many_sites)
    return None if summary is None else encode_json(pack_basis(summary, run.problem), "basis")


def write_maps_again(run: TrainingRun, state: TrainState, number: int, store: LabelStore) -> None:
    """The maps and the gallery of a round, in their places."""
    parts, samples = run.prepare(), run.prepare().problem.unlabelled
    chunks = extract(state.network, samples, parts.plan, labelled=False)
    rows = store.write(number, label_maps(chunks, 0, parts.method, state))
    choice = BoundSelector(parts.method.selector, state.selector, parts.plan.seed, number)
    run.write_maps(number, MapLabels(rows, samples.ids, choice), is_kept=True)
