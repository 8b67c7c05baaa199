"""A folder that an export writes: images by class, OUT/<class>/<name>, links or copies; or the files of a model.

It is built beside its place and put there in one step, so that there is never a half of one. `.embasis-export.json`
says which files we made: a folder with any other file in it, or with one of ours changed, is somebody's and is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embasis.errors import CheckpointError, ConfigError, InputDataError, require
from embasis.storage import atomic
from embasis.storage.checkpoints import encode_sealed, installed_version, read_sealed

ExportEntries = dict[str, dict[str, str]]
"""What each file of an export is known by, by its path in the folder."""
EXPORT_MARKER, EXPORT_KIND = ".embasis-export.json", "embasis export"
LARGEST_EXPORT_MARKER = 1 << 30
LONGEST_STEM = 100
"""Bytes that stay of a name that is made safe, beside its hash and its ending."""
COPY_CHUNK_BYTES = 1 << 20
_UNSAFE = re.compile(r'[/\\<>:"|?*]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?|__macosx|@eadir|thumbs\.db|desktop\.ini", re.I)
"""Names that other systems cannot have, or that readers of image folders skip."""


@dataclass(frozen=True)
class ExportedImage:
    """One image: what the run calls it, its class, and the file."""

    id: str
    label: str
    path: str


def write_class_folder(
    out: Path, items: Sequence[ExportedImage], classes: Sequence[str], copy: bool
) -> dict[str, Path]:
    """The folder of these items, all or nothing; the sub-folder of each class that has one."""
    folders = dict(zip(classes, make_safe_names(classes, classes), strict=True))
    places = _choose_places(items, folders)

    def fill(temp: Path, entries: ExportEntries) -> None:
        for folder in dict.fromkeys(folders[item.label] for item in items):
            atomic.disk.mkdir(temp / folder)
        for item, place in zip(items, places, strict=True):
            entries[place] = {}  # it may be there from here on
            entries[place] = {"id": item.id, **_link_or_copy(temp / place, item.path, copy)}

    build_export(out, fill)
    return {name: out / folders[name] for name in dict.fromkeys(item.label for item in items)}


def write_model_folder(out: Path, files: Mapping[str, bytes]) -> None:
    """A folder of these files, by their names, all or nothing."""

    def fill(temp: Path, entries: ExportEntries) -> None:
        for name, data in files.items():
            entries[name] = {}
            atomic.disk.create(temp / name, data)
            entries[name] = {"sha256": hashlib.sha256(data).hexdigest()}

    build_export(out, fill)


def build_export(out: Path, fill: Callable[[Path, ExportEntries], None]) -> None:
    """A folder whose files `fill` makes, and notes by their paths in it; built beside its place and put there whole."""
    require_replaceable(out)
    with atomic.explain_write_errors(out):
        atomic.disk.make(out.parent)
        temp = atomic.temp_path(out.parent)
        entries: ExportEntries = {}
        try:
            atomic.disk.mkdir(temp)
            fill(temp, entries)
            marker = {"what": EXPORT_KIND, "version": installed_version(), "files": entries}
            atomic.disk.create(temp / EXPORT_MARKER, encode_sealed(marker))
            os.sync()  # once: to wait for each of thousands of links takes minutes
            _install(temp, out)
        except BaseException:
            with suppress(OSError):
                _remove(temp, entries)
            raise


def _link_or_copy(path: Path, source: str, copy: bool) -> dict[str, str]:
    """A link or a copy, and what it can be known by."""
    if not copy:
        atomic.disk.symlink(source, path)
        return {"link": source}
    digest = hashlib.sha256()
    target = atomic.disk.open(path, atomic.CREATE_FLAGS, 0o666)
    try:
        with open(os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            regular = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
            require(regular, f"{source}: not a regular file; it cannot be copied", InputDataError)
            while data := stream.read(COPY_CHUNK_BYTES):
                digest.update(data)
                atomic.disk.write_all(target, data)
    finally:
        atomic.disk.close(target)
    return {"sha256": digest.hexdigest()}


def _install(temp: Path, out: Path) -> None:
    """The new folder in its place; an older one of ours is moved aside first, and back if that is in vain."""
    if not out.is_dir() or not os.listdir(out):
        atomic.disk.rename(temp, out)  # also onto an empty folder
        atomic.disk.sync(out.parent)
        return
    old = _read_marker(out)
    atomic.disk.rename(out, aside := atomic.temp_path(out.parent))
    try:
        atomic.disk.rename(temp, out)
    except BaseException:
        with suppress(OSError):
            atomic.disk.rename(aside, out)
        raise
    atomic.disk.sync(out.parent)
    _remove(aside, old)


def _remove(folder: Path, entries: Iterable[str]) -> None:
    """A folder and what we put there, nothing else."""
    for name in [*entries, EXPORT_MARKER]:
        with suppress(FileNotFoundError):
            atomic.disk.unlink(folder / name)
    for path in [*sorted(path for path in folder.iterdir() if path.is_dir()), folder]:
        atomic.disk.rmdir(path)


def require_replaceable(out: Path) -> None:
    """Refuse a place that is not free, empty, or as an earlier export left it."""
    atomic.refuse_lost_link(out)
    free = not os.path.lexists(out) or (out.is_dir() and not out.is_symlink())
    require(free, f"output {out} is a file or a link; name a folder", ConfigError)
    if not out.is_dir() or not os.listdir(out):
        return
    try:
        entries = _read_marker(out)
    except CheckpointError:
        rule = f"output {out} is not empty and was not made by export; name a new or an empty folder"
        raise ConfigError(rule) from None
    foreign = _list_foreign(out, entries)
    first = f"{', '.join(map(repr, foreign[:3]))}{', …' if len(foreign) > 3 else ''}"
    rule = f"output {out} holds what export did not make: {first}; name another folder"
    require(not foreign, rule, ConfigError)


def _read_marker(out: Path) -> dict[str, Mapping[str, Any]]:
    """What the marker says of each file."""
    facts = read_sealed(out / EXPORT_MARKER, LARGEST_EXPORT_MARKER)
    entries: Any = facts.get("files")
    known = isinstance(entries, dict) and all(isinstance(entry, dict) for entry in entries.values())
    safe = known and all(re.fullmatch(r"[^/]+(/[^/]+)?", name) and ".." not in name.split("/") for name in entries)
    require(safe and facts.get("what") == EXPORT_KIND, f"{out / EXPORT_MARKER} is malformed", CheckpointError)
    return dict(entries)


def _list_foreign(out: Path, entries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Names below a folder that are not ours, or not any more as we made them."""
    folders = {name.partition("/")[0] for name in entries}
    foreign = []
    for top, subs, plain in os.walk(out):
        for name in subs + plain:
            path = Path(top, name)
            below = path.relative_to(out).as_posix()
            ours = below == EXPORT_MARKER or (below in folders and path.is_dir() and not path.is_symlink())
            if not ours and not (below in entries and _is_as_made(path, entries[below])):
                foreign.append(below)
    return sorted(foreign)


def _is_as_made(path: Path, entry: Mapping[str, Any]) -> bool:
    if "link" in entry:
        return path.is_symlink() and os.readlink(path) == entry["link"]
    return path.is_file() and not path.is_symlink() and atomic.hash_file(path) == entry.get("sha256")


def _choose_places(items: Sequence[ExportedImage], folders: Mapping[str, str]) -> list[str]:
    """<class>/<name> of each item, all different."""
    rows = defaultdict[str, list[int]](list)
    for row, item in enumerate(items):
        rows[item.label].append(row)
    places = [""] * len(items)
    for label, chosen in rows.items():
        ids = [items[row].id for row in chosen]
        for row, name in zip(chosen, make_safe_names([id.rpartition("/")[2] for id in ids], ids), strict=True):
            places[row] = f"{folders[label]}/{name}"
    return places


def make_safe_names(names: Sequence[str], wholes: Sequence[str]) -> list[str]:
    """A file name for each of these names, all different on every system; `wholes` are the paths they come from.

    What can be a name stays as it is; what cannot, and what others would share, gets a hash of the whole."""
    keys = [_fold_name(name) for name in names]
    alike = Counter(keys)
    good = [_is_plain(name) and alike[key] == 1 for name, key in zip(names, keys, strict=True)]
    used = {key for key, kept in zip(keys, good, strict=True) if kept}
    rows = zip(names, wholes, good, strict=True)
    return [name if kept else _make_safe(name, whole, used) for name, whole, kept in rows]


def _fold_name(name: str) -> str:
    """What file systems that ignore case, or write letters otherwise, take for the same name."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _is_plain(name: str) -> bool:
    """Whether a name can be that of a file or folder that every system and every reader of image folders takes."""
    printable = name.isprintable() and not _UNSAFE.search(name) and not _RESERVED.fullmatch(name)
    return printable and 0 < len(name.encode()) <= 200 and name[0] not in ". " and name[-1] not in ". "


def _make_safe(name: str, whole: str, used: set[str]) -> str:
    """Its printable part, a hash of the whole, and its ending; now it is used."""
    stem, ending = os.path.splitext(name)
    ending = ending if re.fullmatch(r"\.[A-Za-z0-9]{1,8}", ending) else ""
    letters = "".join(letter if letter.isprintable() and not _UNSAFE.match(letter) else "_" for letter in stem)
    short = letters.encode()[:LONGEST_STEM].decode(errors="ignore").strip(". ")
    names = (f"{short}-{digest}{ending}".lstrip("-") for digest in atomic.iter_name_hashes(whole, 6))
    safe = next(name for name in names if _fold_name(name) not in used)
    used.add(_fold_name(safe))
    return safe
