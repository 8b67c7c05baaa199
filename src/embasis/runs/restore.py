"""What a run has handed out is checked when the run is opened again; what is damaged is made again from its last state.

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from embasis.engine.basis_summary import summarise_basis
from embasis.engine.features import extract
from embasis.engine.labels import BoundSelector, MapLabels, label_maps, label_rows
from embasis.engine.sampling import sample_features
from embasis.engine.state import TrainState, strip_prefix
from embasis.errors import CheckpointError, CorruptError
from embasis.inputs.base import FROZEN_WEIGHTS
from embasis.report.collect import pack_basis
from embasis.runs.checkpoint import rows_name
from embasis.runs.model import label_columns
from embasis.storage import SealedFiles
from embasis.storage.atomic import encode_json, read_bytes
from embasis.storage.label_map_folder import open_stored_maps
from embasis.storage.tables import encode_table
from embasis.types import record_to_json

if TYPE_CHECKING:
    from embasis.runs.run import TrainingRun

LOST = (
    "and cannot be made again: the network of its round is gone; delete the file to go on without it, "
    "or train again in another folder"
)


def restore_files(run: TrainingRun, progress: TrainState) -> list[str]:
    """What was made again in the folder of a run that has ended, in words; CorruptError if something could not be."""
    assert run.resumed is not None
    sealed, done, lost = run.resumed.sealed, list[str](), list[str]()
    if sealed is None:  # a run by 0.1.0: nothing is known of its files
        return []
    files = SealedFiles(run.folder.path, sealed)
    for name, data in plain_copies(run, progress).items():
        if not _holds(run, name, data):
            run.folder.write_bytes(name, data)
            done.append(name)
    damaged = damaged_files(files, sealed)
    for name in damaged:
        if is_whole(files, name):  # made again together with another one
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
    damaged = damaged_files(SealedFiles(run.folder.path, run.resumed.sealed), run.resumed.sealed)
    return [f"{name} is damaged ({why}); the run goes on without it" for name, why in damaged.items()]


def plain_copies(run: TrainingRun, progress: TrainState) -> dict[str, bytes]:
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


def _holds(run: TrainingRun, name: str, data: bytes) -> bool:
    with suppress(CheckpointError):
        return read_bytes(run.folder.path / name) == data
    return False


def damaged_files(files: SealedFiles, names: dict[str, Any]) -> dict[str, str]:
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


def is_whole(files: SealedFiles, name: str) -> bool:
    """Whether a file is what was written."""
    with suppress(CheckpointError):
        check_file(files, name)
        return True
    return False


def make_again(run: TrainingRun, progress: TrainState, files: SealedFiles, name: str) -> bool:
    """Whether the file is as it was, because its content could be made again."""
    maps = re.fullmatch(r"(?:labels|gallery)/round-([0-9]+)/.*", name)
    if maps and run.prepare().inputs.kind.has_maps:
        for state in states_of(progress):
            write_maps_again(run, state, int(maps[1]))
            if is_whole(files, name):
                return True
        return False
    for make in makers(run, progress, name):
        data = make()
        if data is not None and files.fits(name, data):
            run.folder.write_bytes(name, data)
            return True
    return False


def makers(run: TrainingRun, progress: TrainState, name: str) -> Iterator[Callable[[], bytes | None]]:
    """Ways to make a file; whether one gives the right bytes is seen afterwards."""
    parts = run.prepare()
    of_round = re.fullmatch(r"(labels|basis)/round-([0-9]+)\.(?:parquet|json)", name)
    if of_round and len(parts.problem.unlabelled):
        make = label_bytes if of_round[1] == "labels" else basis_bytes
        for state in states_of(progress):
            yield lambda state=state: make(run, state, int(of_round[2]))  # type: ignore[misc]
    elif name == FROZEN_WEIGHTS and (weights := parts.inputs.frozen_weights()) is not None:
        yield lambda: run.folder.tensor_bytes(weights)
    elif name == rows_name(run.resumed.facts["data"] if run.resumed else {}):
        yield lambda: encode_table(run.row_table(), ".parquet")


def states_of(progress: TrainState) -> Iterator[TrainState]:
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
    summary = summarise_basis(parts.method.labeller, sample.chunks, state.labeller, parts.inputs.kind.has_maps)
    return None if summary is None else encode_json(pack_basis(summary, run.problem), "basis")


def write_maps_again(run: TrainingRun, state: TrainState, number: int) -> None:
    """The maps and the gallery of a round, in their places."""
    parts, samples = run.prepare(), run.prepare().problem.unlabelled
    chunks = extract(state.network, samples, parts.plan, labelled=False)
    rows = run.folder.label_store().write(number, label_maps(chunks, parts.method, state))
    choice = BoundSelector(parts.method.selector, state.selector, parts.plan.seed, number)
    run.write_maps(number, MapLabels(rows, samples.ids, choice), is_kept=True)
