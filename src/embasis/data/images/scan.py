"""The images of a folder, an uncompressed tar or a list file; nothing is ever written, waited for or extracted.

| entry | what happens |
| --- | --- |
| hidden or system name, file with another ending | ignored, counted in a note |
| link | rejected; with `follow_links` its target is used once |
| FIFO, socket, device | rejected, never opened |
| file with an image's ending | read once: hash and header; rejected with the reason when it is none |

A list is a .csv or .parquet file with a column `path` and maybe one of labels. Paths are relative to the folder of the
list, or absolute; `\\xNN` stands for a byte that is not UTF-8.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

from embasis.data.class_labels import decode_text, label_names, quote_names
from embasis.data.formats import (
    open_parquet,
    read_column_names,
    read_columns,
    read_csv_header,
    read_csv_rows,
    refuse_unreadable,
)
from embasis.data.images.files import (
    IS_LINK,
    LEADS_NOWHERE,
    NOT_REGULAR,
    Collector,
    Scan,
    describe_os_error,
    is_hidden,
    path_name,
    printable_path,
    unescape_name,
)
from embasis.data.tables import require_different
from embasis.errors import InputDataError, quote, require
from embasis.types import PathLike

NO_SUCH_FILE = "no such file"
PATH_COLUMN = "path"
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
"""How https://…, s3://… and the like begin."""
ListRow = tuple[str, str | None, object]
"""Where it stands ("line 3"), the path as written, the label as written."""


def scan_folder(root: PathLike, *, follow_links: bool = False) -> Scan:
    """All images below a folder, at any depth."""
    top = os.fspath(root)
    try:
        state = os.stat(top)
        os.scandir(top).close()
    except FileNotFoundError as error:
        raise InputDataError(f"{printable_path(top)}: no such folder") from error
    except NotADirectoryError as error:
        raise InputDataError(f"{printable_path(top)}: is no folder") from error
    except OSError as error:
        reason = LEADS_NOWHERE if error.errno == errno.ELOOP else f"cannot be read: {describe_os_error(error)}"
        raise InputDataError(f"{printable_path(top)}: {reason}") from error
    collector = Collector(top, os.path.join(os.path.abspath(top), ""))
    walk = _FolderWalk(collector, follow_links, {(state.st_dev, state.st_ino)})
    walk.examine_below(os.path.abspath(top), "")
    walk.finish_links()
    return collector.scan()


def scan_file(path: PathLike) -> Scan:
    """One image that was named by its path, which is its name, too; or why it cannot be read. A link is followed."""
    text = os.fspath(path)
    collector, real = Collector(text, seen=1), os.path.realpath(text)
    if reason := _why_unopenable(real, follow_links=True):
        collector.reject(path_name(text), reason, "refused" if reason == NOT_REGULAR else "quarantined")
    else:
        collector.examine(path_name(text), real)
    return collector.scan(empty=True)


class _FolderWalk:
    """One walk over a folder: files are examined where they are met, links after all that is no link.

    `visited` holds (device, inode) of the folders and files that were met, where links are followed.
    """

    def __init__(self, collector: Collector, follows: bool, visited: set[tuple[int, int]]) -> None:
        self.collector, self.follows, self.visited = collector, follows, visited
        self.links: list[tuple[str, str]] = []
        """(path, name) of the links that were met."""

    def examine_below(self, folder: str, below: str, *, is_linked: bool = False) -> None:
        """Examine all files below `folder`, whose own name is `below`."""
        stack = [(folder, below)]
        while stack:
            path, prefix = stack.pop()
            try:
                with os.scandir(path) as entries:
                    for entry in entries:
                        if self._enter(entry, prefix, is_linked):
                            stack.append((entry.path, prefix + entry.name + "/"))
            except OSError as error:
                self.collector.seen += 1
                self.collector.reject(path_name(prefix), describe_os_error(error))

    def _enter(self, entry: os.DirEntry[str], prefix: str, is_linked: bool) -> bool:
        """Take one entry by its kind; what is no folder and no regular file is never opened. True: go into it."""
        collector, name = self.collector, prefix + entry.name
        if is_hidden(entry.name):
            collector.hidden[path_name(entry.name)] += 1
        elif entry.is_symlink():
            self.links.append((entry.path, name))
        elif entry.is_dir(follow_symlinks=False):
            if not prefix:
                collector.folders.add(path_name(name))
            return not self.follows or self._is_new(entry.stat(follow_symlinks=False))
        elif not entry.is_file(follow_symlinks=False):
            collector.skip(name, NOT_REGULAR)
        # Hard links are files of their own; only what is reached through a link is compared with what was met.
        elif not self.follows or self._is_new(entry.stat(follow_symlinks=False)) or not is_linked:
            collector.add_file(name, entry.path)
        return False

    def _is_new(self, state: os.stat_result) -> bool:
        """Whether this file or folder is met for the first time."""
        count = len(self.visited)
        self.visited.add((state.st_dev, state.st_ino))
        return len(self.visited) > count

    def finish_links(self) -> None:
        """Follow the links in the order of their names, or skip them; loops end at what was met before."""
        while self.links:
            links, self.links = sorted(self.links, key=lambda link: link[1]), []
            for path, name in links:
                if self.follows:
                    self._follow(os.path.realpath(path), name)
                else:
                    self.collector.skip(name, IS_LINK)

    def _follow(self, real: str, name: str) -> None:
        try:
            state = os.stat(real)
        except OSError:
            return self.collector.skip(name, LEADS_NOWHERE)
        if os.path.isdir(real) and "/" not in name:
            self.collector.folders.add(path_name(name))
        if not self._is_new(state):
            self.collector.again += 1
        elif os.path.isdir(real):
            self.examine_below(real, name + "/", is_linked=True)
        elif not os.path.isfile(real):
            self.collector.skip(name, NOT_REGULAR)
        else:
            self.collector.add_file(name, real)
        return None


def scan_tar(path: PathLike, under: str = "") -> Scan:
    """The images in an uncompressed tar below the folder `under`, where they lie; names are relative to it."""
    collector = Collector("/".join([os.fspath(path), under.strip("/")]).rstrip("/"))
    real, shown = os.path.realpath(path), printable_path(path)
    for member, parts in iter_tar_members(path, under):
        _enter_member(collector, real, member, parts)
    names = {file.name for file in collector.files}
    require(len(names) == len(collector.files), f"{shown}: holds two files of one name; make the archive anew")
    return collector.scan()


def has_members(path: PathLike, under: str) -> bool:
    """Whether an uncompressed tar has anything below the folder `under`."""
    return any(True for _ in iter_tar_members(path, under))


def iter_tar_members(path: PathLike, under: str = "") -> Iterator[tuple[tarfile.TarInfo, list[str]]]:
    """Members of an uncompressed tar below a folder, with the parts of their path relative to it."""
    top = [part for part in under.split("/") if part]
    try:
        with tarfile.open(path, "r:", encoding="utf-8", errors="surrogateescape") as archive:
            for member in archive:
                parts = [part for part in member.name.split("/") if part not in ("", ".")]
                if parts[: len(top)] == top and len(parts) > len(top):
                    yield member, parts[len(top) :]
    except FileNotFoundError as error:
        raise InputDataError(f"{printable_path(path)}: no such file") from error
    except (OSError, tarfile.TarError) as error:
        raise InputDataError(f"{printable_path(path)}: not a readable uncompressed tar: {error}") from error


def _enter_member(collector: Collector, path: str, member: tarfile.TarInfo, parts: list[str]) -> None:
    """Take one member of an archive by its kind."""
    if member.name.startswith("/") or ".." in parts:
        return collector.skip(member.name, "leads out of the archive")
    if hidden := next((part for part in parts if is_hidden(part)), None):
        collector.hidden[path_name(hidden)] += 1
        return None
    if len(parts) > 1 or member.isdir():
        collector.folders.add(path_name(parts[0]))
    if member.isdir():
        return None
    if not member.isreg() or member.issparse():
        return collector.skip("/".join(parts), NOT_REGULAR)
    return collector.add_file("/".join(parts), path, member.offset_data, member.size)


def is_list(path: PathLike) -> bool:
    """Whether this is a .csv or .parquet file with a column `path`."""
    path = Path(path)
    try:
        regular = path.suffix.lower() in (".csv", ".parquet") and path.is_file()
        return regular and PATH_COLUMN in _list_columns(path)
    except (InputDataError, OSError):
        return False


def scan_list(path: PathLike, *, label: str = "label", follow_links: bool = False) -> tuple[Scan, list[str] | None]:
    """The images that a list names, and their labels in the order of `Scan.files`, if it has a column of labels."""
    path = Path(path)
    with refuse_unreadable(path):
        require(path.stat().st_size > 0, f"{path}: the file is empty")
        columns = _list_columns(path)
        require(PATH_COLUMN in columns, f"{path}: no column {PATH_COLUMN!r}; columns: {quote_names(columns)}")
        require_different(columns, path)
        collector, labels = _collect_listed(path, label, follow_links)
    scan = collector.scan()
    if label not in columns:
        return scan, None
    return scan, label_names([labels[file.name] for file in scan.files], str(path))


def iter_listed(path: PathLike) -> Iterator[tuple[str, str | None]]:
    """Where each path of a list stands ("line 3"), and the path as written; nothing is opened."""
    return ((where, written) for where, written, _ in _list_rows(Path(path), ""))


def resolve_list(path: PathLike) -> dict[str, str]:
    """Where each path of a list leads, by the path as written; nothing is opened."""
    path = Path(path)
    try:
        columns = _list_columns(path)
        require(PATH_COLUMN in columns, f"{path}: no column {PATH_COLUMN!r}; columns: {quote_names(columns)}")
        return {written: _resolve_path(path, written) for _, written, _ in _list_rows(path, "") if written}
    except OSError as error:
        raise InputDataError(f"{path}: cannot be read: {error.strerror or error}") from error


def require_no_address(written: str, where: str) -> None:
    """A path of a list, and no address of something elsewhere; `where` begins the sentence."""
    rule = f"{where}: {quote(written)} is an address; embasis opens no connection"
    require(not ADDRESS.match(written), f"{rule}: download the files, and name their paths")


def _resolve_path(path: Path, written: str) -> str:
    return os.path.normpath(os.path.join(path.parent.absolute(), os.fsdecode(unescape_name(written))))


def _collect_listed(path: Path, label: str, follow_links: bool) -> tuple[Collector, dict[str, object]]:
    collector, labels = Collector(os.fspath(path)), dict[str, object]()
    met, targets = set[str](), dict[str, str]()  # a text of many rows is worked on once
    for where, written, mark in _list_rows(path, label):
        collector.seen += 1
        if not written:
            collector.reject(where, "has no path", "refused")
            continue
        require_no_address(written, f"{printable_path(path)}: {where}")
        target = targets[written] if written in targets else targets.setdefault(written, _resolve_path(path, written))
        if target in met:
            collector.reject(written, f"is listed twice, again in {where}", "refused")
        elif reason := _why_unopenable(target, follow_links):
            kind = "refused" if reason in (IS_LINK, LEADS_NOWHERE, NOT_REGULAR) else "quarantined"
            collector.reject(written, f"{reason} ({where})" if reason == NO_SUCH_FILE else reason, kind)
        else:
            collector.examine(written, os.path.realpath(target) if follow_links else target)
            labels[written] = mark
        met.add(target)
    require(met or collector.rejected, f"{path}: no rows")
    return collector, labels


def _why_unopenable(target: str, follow_links: bool) -> str:
    """Why there is no regular file at a path, or nothing."""
    try:
        mode = (os.stat if follow_links else os.lstat)(target).st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return NO_SUCH_FILE
    except OSError as error:
        return LEADS_NOWHERE if error.errno == errno.ELOOP else describe_os_error(error)
    if stat.S_ISLNK(mode):
        return IS_LINK
    return "" if stat.S_ISREG(mode) else NOT_REGULAR


def _list_columns(path: Path) -> list[str]:
    return read_csv_header(path) if path.suffix.lower() == ".csv" else read_column_names(path)


def _list_rows(path: Path, label: str) -> Iterator[ListRow]:
    if path.suffix.lower() == ".parquet":
        yield from _parquet_rows(path, label)
        return
    rows = read_csv_rows(path)
    _, header = next(rows)
    at, marked = header.index(PATH_COLUMN), header.index(label) if label in header else None
    for line, cells in rows:
        require(len(cells) == len(header), f"{path}: line {line} has {len(cells)} fields, the header has {len(header)}")
        yield f"line {line}", cells[at], None if marked is None else cells[marked]


def _parquet_rows(path: Path, label: str) -> Iterator[ListRow]:
    with open_parquet(path) as file:
        kinds = file.types
    kind, names = str(kinds[PATH_COLUMN]), [PATH_COLUMN, label] if label in kinds else [PATH_COLUMN]
    require(kind in ("string", "large_string"), f"{path}: column {PATH_COLUMN!r} must be text, got {kind}")
    columns = read_columns(path, names)
    for row, written in enumerate(columns[PATH_COLUMN]):
        mark = columns[label][row] if label in columns else None
        yield f"row {row + 1}", written and decode_text(written, str(path), row), mark
