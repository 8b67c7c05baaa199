"""Finished runs of all three kinds whose files are changed one by one: what a command makes of each change.

| what | expected |
| --- | --- |
| a file replaced by one of ten VALUES, or a value in its JSON replaced by one of ten LIES and sealed anew | no crash |
| one flipped bit in a file that a run hands out | seen by whoever reads the file, and by the fit command |
"""

from __future__ import annotations

import json
import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import image_runs
import map_folder_runs
from cli_tables import write_tables
from embasis.cli import main
from embasis.data.reader import Reader
from embasis.errors import CheckpointError, EmbasisWarning
from embasis.runs.checkpoint import read_run, read_run_view
from embasis.runs.export import read_labelled_pictures
from embasis.runs.finished_run import label_table, read_finished_run
from embasis.runs.resume import check_file
from embasis.storage import SealedFiles
from resealed import newest, reseal, unsealed
from storage_runs import forge_file, make_runs_fast, sealed

TABLE = ("labelled.csv", "judged.csv", "-o", "run", "rounds=1")
IMAGES = ("photos", "paintings", "-o", "run", *image_runs.WORDS, "rounds=1", "images.cache=cache", "images.workers=0")
MAPS = ("drawn", "streets", "-o", "run", *map_folder_runs.WORDS, "rounds=1")
FITS: dict[str, tuple[str, ...]] = {"table": TABLE, "images": IMAGES, "maps": MAPS}
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "table": (("report", "run"), ("export", "run", "-o", "e.csv", "--as", "csv", "--all"),
              ("export", "run", "-o", "e.json", "--as", "label-studio", "--table", "judged.csv"),
              ("predict", "run", "judged.csv", "-o", "l.csv"), ("fit", *TABLE)),
    "images": (("report", "run"), ("export", "run", "-o", "e.csv", "--as", "csv", "--all"),
               ("predict", "run", "paintings", "-o", "l.csv", "--workers", "0"), ("fit", *IMAGES)),
    "maps": (("report", "run"), ("export", "run", "-o", "e.json", "--as", "coco", "--all"), ("fit", *MAPS),
             ("export", "run", "-o", "e.zip", "--as", "cvat", "--all")),
}  # fmt: skip
VALUES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "twice": lambda data: data + data,
    "null": lambda data: b"null\n",
    "list": lambda data: b"[]\n",
    "object": lambda data: b"{}\n",
    "number": lambda data: b"7\n",
    "text": lambda data: b'"text"\n',
    "deep": lambda data: b"[" * 100_000 + b"\n",
    "noise": lambda data: random.Random(len(data)).randbytes(64),
}
LIES: tuple[Any, ...] = (None, -1, 10**9, 0.5, "", "text", True, [], {}, [[{"a": [None]}]])
Change = tuple[str, Callable[[], object], tuple[str, ...]]
"""What is changed, how, and the command that meets it."""
CODES = (0, 2, 3, 4)
"""A report or a fit may do well all the same, because what was changed is not read or is made again; a fit may find
other settings than its own."""


def call(*words: str) -> tuple[int, str]:
    """A command in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmbasisWarning)
        result = CliRunner().invoke(main, words)
    return result.exit_code, result.output


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk, no figures, no worker to check label maps."""
    make_runs_fast(monkeypatch)
    whole = Reader.__init__
    monkeypatch.setattr(
        Reader, "__init__", lambda self, workers=0, *more, **named: whole(self, workers, *more, **named)
    )


def finish_run(place: Path, kind: str) -> Path:
    """A finished run in place/run, beside its data; the current folder is the place from then on."""
    place.mkdir(parents=True)
    os.chdir(place)
    if kind == "table":
        write_tables(place)
        mix_columns(place)
    else:
        image_runs.sides(place, 4) if kind == "images" else map_folder_runs.sides(place, 3)
    code, said = call("fit", *FITS[kind])
    assert code == 0, said
    return place


def mix_columns(place: Path) -> None:
    """A category, a date and gaps in both tables, so that the run keeps an encoding."""
    for name in ("labelled.csv", "judged.csv"):
        header, *lines = (place / name).read_text().splitlines()
        cells = [f"{('red', 'blue', '')[row % 3]},2026-0{row % 9 + 1}-05" for row in range(len(lines))]
        rows = [f"{cell},{line}" for cell, line in zip(cells, lines, strict=True)]
        (place / name).write_text("\n".join([f"colour,seen,{header}", *rows, ""]))


def files_of(run: Path) -> list[str]:
    """All files but the lock."""
    names = (path.relative_to(run).as_posix() for path in sorted(run.rglob("*")) if path.is_file())
    return [name for name in names if name != "lock"]


def handed_out(run: Path) -> list[str]:
    """The files that a run is for, every map of its rounds among them."""
    kinds = ("labels/", "basis/", "gallery/", "rows/")
    return [name for name in files_of(run) if name.startswith(kinds) or name == "backbone.safetensors"]


# --- whole files


def changed_files(run: Path, kind: str) -> Iterator[Change]:
    """Each file with each of ten values in its place; commands take turns."""
    number = 0
    for name in files_of(run):
        whole = (run / name).read_bytes()
        for value, change in VALUES.items():
            words = COMMANDS[kind][number % len(COMMANDS[kind])]
            yield f"{name} {value}", partial((run / name).write_bytes, change(whole)), words
            number += 1


def crashes(run: Path, kind: str, every: int = 1, first: int = 0) -> tuple[int, list[str]]:
    """How many changes were tried, and those on which a command crashed; every so many, from the first on."""
    spare, tried, found = Path("spare"), 0, list[str]()
    shutil.copytree(run, spare)
    for changes in (changed_files, changed_values):
        for what, plant, words in list(changes(run, kind))[first::every]:
            plant()
            code, said = call(*words)
            tried += 1
            if code not in CODES:
                found.append(f"{kind}: {what}: {words[0]} ended with {code}: {said[-200:]}")
            shutil.rmtree(run)
            shutil.copytree(spare, run)
    shutil.rmtree(spare)
    return tried, found


# --- values in JSON files


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a JSON value, itself included."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from leaves(item, (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value there."""
    if not path:
        return new
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return copy


def changed_values(run: Path, kind: str, most: int = 6) -> Iterator[Change]:
    """JSON files of the run with one value replaced, and sealed anew so that the value is read: `most` ways a file."""
    draw = random.Random(7)
    names = [name for name in files_of(run) if name.endswith((".json", ".jsonl"))]
    for name in names:
        rows = name.endswith(".jsonl")
        data = (run / name).read_bytes()
        value = [json.loads(line) for line in data.splitlines()] if rows else json.loads(data)
        ways = [*leaves(value)]
        for way in draw.sample(ways, min(most, len(ways))):
            for lie in LIES:
                words = COMMANDS[kind][draw.randrange(len(COMMANDS[kind]))]
                plant = partial(write_value, run, name, put(value, way, lie), rows)
                yield f"{name} {'.'.join(map(str, way))} = {lie!r}", plant, words


def write_value(run: Path, name: str, value: Any, rows: bool) -> None:
    """The value in its file, and every seal above it made anew."""
    if rows:
        lines = value if isinstance(value, list) else [value]
        (run / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif name.endswith("facts.json"):
        forge_file(run, int(Path(name).parent.name), "facts.json", json.dumps(value).encode())
    elif isinstance(value, dict) and "seal" in value:
        (run / name).write_bytes(sealed({key: item for key, item in value.items() if key != "seal"}))
    else:
        (run / name).write_text(json.dumps(value))
    if name.split("/")[0] in ("labels", "basis", "gallery") and "sealed" in unsealed(newest(run) / "manifest.json"):
        with suppress(KeyError, TypeError, ValueError, OSError):
            reseal(run)


# --- bits


def flip(path: Path, bit: int) -> bytes:
    """One bit of a file turned over; what it was before."""
    before = path.read_bytes()
    data = bytearray(before)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    return before


def is_seen(run: Path, name: str) -> bool:
    """Whether the reader of this file refuses it; what no command reads is seen by the fit command's check."""
    found = read_run(run)
    marker = f"labels/{Path(name).parts[1]}/maps.json" if "/" in name else name
    sealing = next((at for at in (name, marker) if at in (found.sealed or {})), None)
    readers: list[Callable[[], object]] = []
    if sealing is not None:
        readers.append(lambda: check_file(SealedFiles(run, found.sealed), sealing))
    if name.startswith("gallery/rows-"):
        readers.append(lambda: read_run_view(run))
    ended = read_finished_run(run)
    if name.startswith(f"labels/round-{ended.round:03d}.parquet"):
        readers.append(lambda: label_table(ended, True))
        readers.append(lambda: read_run_view(run))
    if name.startswith((f"labels/round-{ended.round:03d}/labels/", f"labels/round-{ended.round:03d}/maps")):
        readers.append(lambda: list(read_labelled_pictures(ended, True)))
    if name.startswith((f"basis/round-{ended.round:03d}", f"gallery/round-{ended.round:03d}")):
        readers.append(lambda: read_run_view(run))
    return bool(readers) and all(map(refuses, readers))


def refuses(read: Callable[[], object]) -> bool:
    try:
        read()
    except CheckpointError:
        return True
    return False


def unseen_flips(run: Path, count: int, seed: int = 0) -> list[str]:
    """So many single bits of what the run hands out, file by file: those that nobody saw."""
    draw, names, found = random.Random(seed), handed_out(run), list[str]()
    for number in range(count):
        name = names[number % len(names)]
        bit = draw.randrange(8 * (run / name).stat().st_size)
        before = flip(run / name, bit)
        if not is_seen(run, name):
            found.append(f"{name} bit {bit}")
        (run / name).write_bytes(before)
    return found
