"""The images of a folder, an uncompressed tar or a list file; nothing is ever written, waited for or extracted.

| entry | what happens |
| --- | --- |
| hidden or system name, file with another ending | ignored, counted in a note |
| link | refused; with `follow_links` its target is seen once |
| FIFO, socket, device | refused, never opened |
| file with an image's ending | read once: hash and header; refused with the reason when it is none |
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Iterator

from embasis.data.images.decode import SUFFIXES
from embasis.data.images.files import (
    IS_LINK,
    LEADS_NOWHERE,
    NOT_REGULAR,
    Collector,
    ImageFile,
    PathLike,
    Scan,
    ending,
    is_hidden,
    name_bytes,
    name_of,
    shown,
    why,
)
from embasis.data.images.lists import is_list, scan_list
from embasis.errors import InputDataError, require

__all__ = ["ImageFile", "Scan", "is_list", "name_bytes", "name_of", "scan_file", "scan_folder", "scan_list", "scan_tar"]

Seen = set[tuple[int, int]]
"""(device, inode) of folders and files."""


def scan_folder(root: PathLike, *, follow_links: bool = False) -> Scan:
    """All images below a folder, at any depth."""
    top = os.fspath(root)
    try:
        state = os.stat(top)
        os.scandir(top).close()
    except FileNotFoundError as error:
        raise InputDataError(f"{shown(top)}: no such folder") from error
    except NotADirectoryError as error:
        raise InputDataError(f"{shown(top)}: is no folder") from error
    except OSError as error:
        reason = LEADS_NOWHERE if error.errno == errno.ELOOP else f"cannot be read: {why(error)}"
        raise InputDataError(f"{shown(top)}: {reason}") from error
    collector = Collector(top, os.path.join(os.path.abspath(top), ""))
    seen: Seen | None = {(state.st_dev, state.st_ino)} if follow_links else None
    links = _walk(collector, os.path.abspath(top), "", seen, first=True)
    if seen is None:
        for _, name in links:
            collector.seen += 1
            collector.refuse(_name(name), IS_LINK, "refused")
    else:
        _follow(collector, links, seen)
    return collector.scan()


def scan_file(path: PathLike) -> Scan:
    """One image that was named by its path, which is its name, too; or why it cannot be read. A link is followed."""
    text = os.fspath(path)
    collector = Collector(text, seen=1)
    real = os.path.realpath(text)
    try:
        if stat.S_ISREG(os.stat(real).st_mode):
            collector.examine(_name(text), real)
        else:
            collector.refuse(_name(text), NOT_REGULAR, "refused")
    except (FileNotFoundError, NotADirectoryError):
        collector.refuse(_name(text), "no such file")
    except OSError as error:
        collector.refuse(_name(text), LEADS_NOWHERE if error.errno == errno.ELOOP else why(error))
    return collector.scan(empty=True)


def _name(relative: str) -> str:
    """The name of a path below the root."""
    return relative if relative.isascii() and "\\" not in relative else name_of(os.fsencode(relative))


def _walk(collector: Collector, folder: str, below: str, seen: Seen | None, first: bool) -> list[tuple[str, str]]:
    """Examine all files below `folder`; the links on the way are returned as (path, name), not followed."""
    links: list[tuple[str, str]] = []
    stack = [(folder, below)]
    while stack:
        path, prefix = stack.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    _enter(collector, entry, prefix, stack, links, seen, first)
        except OSError as error:
            collector.seen += 1
            collector.refuse(_name(prefix), why(error))
    return links


def _enter(
    collector: Collector,
    entry: os.DirEntry[str],
    prefix: str,
    stack: list[tuple[str, str]],
    links: list[tuple[str, str]],
    seen: Seen | None,
    first: bool,
) -> None:
    """One entry of a folder, by its kind; what is no folder and no regular file is never opened."""
    name = prefix + entry.name
    if is_hidden(entry.name):
        collector.hidden[_name(entry.name)] += 1
    elif entry.is_symlink():
        links.append((entry.path, name))
    elif entry.is_dir(follow_symlinks=False):
        if not prefix:
            collector.folders.add(_name(name))
        if seen is None or _is_new(entry.stat(follow_symlinks=False), seen):
            stack.append((entry.path, name + "/"))
    elif not entry.is_file(follow_symlinks=False):
        collector.seen += 1
        collector.refuse(_name(name), NOT_REGULAR, "refused")
    elif (kind := ending(entry.name)) not in SUFFIXES:
        collector.others[kind] += 1
    # Hard links are files of their own; only what is reached through a link is compared with what was seen.
    elif seen is None or _is_new(entry.stat(follow_symlinks=False), seen) or first:
        collector.seen += 1
        collector.examine(_name(name), entry.path)


def _is_new(state: os.stat_result, seen: Seen) -> bool:
    """Whether this file or folder is met for the first time."""
    key = (state.st_dev, state.st_ino)
    known = key in seen
    seen.add(key)
    return not known


def _follow(collector: Collector, links: list[tuple[str, str]], seen: Seen) -> None:
    """Follow links, after all that is no link, in the order of their names; loops end at what was seen."""
    while links:
        found: list[tuple[str, str]] = []
        for path, name in sorted(links, key=lambda link: link[1]):
            real = os.path.realpath(path)
            try:
                state = os.stat(real)
            except OSError:
                collector.seen += 1
                collector.refuse(_name(name), LEADS_NOWHERE, "refused")
                continue
            if os.path.isdir(real) and "/" not in name:
                collector.folders.add(_name(name))
            if not _is_new(state, seen):
                collector.again += 1
            elif os.path.isdir(real):
                found += _walk(collector, real, name + "/", seen, first=False)
            elif not os.path.isfile(real):
                collector.seen += 1
                collector.refuse(_name(name), NOT_REGULAR, "refused")
            elif (kind := ending(name)) in SUFFIXES:
                collector.seen += 1
                collector.examine(_name(name), real)
            else:
                collector.others[kind] += 1
        links = found


def scan_tar(path: PathLike, under: str = "") -> Scan:
    """The images in an uncompressed tar below the folder `under`, where they lie; names are relative to it."""
    collector = Collector("/".join([os.fspath(path), under.strip("/")]).rstrip("/"))
    real = os.path.realpath(path)
    for member, parts in tar_members(path, under):
        _enter_member(collector, real, member, parts)
    names = {file.name for file in collector.files}
    require(len(names) == len(collector.files), f"{shown(path)}: holds two files of one name; make the archive anew")
    return collector.scan()


def has_members(path: PathLike, under: str) -> bool:
    """Whether an uncompressed tar has anything below the folder `under`."""
    return any(True for _ in tar_members(path, under))


def tar_members(path: PathLike, under: str = "") -> Iterator[tuple[tarfile.TarInfo, list[str]]]:
    """Members of an uncompressed tar below a folder, with the parts of their path relative to it."""
    top = [part for part in under.split("/") if part]
    try:
        with tarfile.open(path, "r:", encoding="utf-8", errors="surrogateescape") as archive:
            for member in archive:
                parts = [part for part in member.name.split("/") if part not in ("", ".")]
                if parts[: len(top)] == top and len(parts) > len(top):
                    yield member, parts[len(top) :]
    except FileNotFoundError as error:
        raise InputDataError(f"{shown(path)}: no such file") from error
    except (OSError, tarfile.TarError) as error:
        raise InputDataError(f"{shown(path)}: not a readable uncompressed tar: {error}") from error


def _enter_member(collector: Collector, path: str, member: tarfile.TarInfo, parts: list[str]) -> None:
    """One member of an archive, by its kind."""
    name = _name("/".join(parts))
    if member.name.startswith("/") or ".." in parts:
        collector.seen += 1
        return collector.refuse(_name(member.name), "leads out of the archive", "refused")
    if hidden := next((part for part in parts if is_hidden(part)), None):
        collector.hidden[_name(hidden)] += 1
        return None
    if len(parts) > 1 or member.isdir():
        collector.folders.add(_name(parts[0]))
    if member.isdir():
        return None
    if not member.isreg() or member.issparse():
        collector.seen += 1
        return collector.refuse(name, NOT_REGULAR, "refused")
    if (kind := ending(parts[-1])) not in SUFFIXES:
        collector.others[kind] += 1
        return None
    collector.seen += 1
    return collector.examine(name, path, member.offset_data, member.size)
