"""The folder of one run: its lock, its publishes, its log, and every other file in it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from embasis.errors import (
    CheckpointError,
    CorruptError,
    NumericalError,
    ResourceError,
    RunLockedError,
    UntrustedError,
    quote,
    require,
)
from embasis.storage import atomic
from embasis.storage.checkpoints import (
    CHECKPOINT_SCHEMA,
    FACTS,
    MANIFEST,
    SEALED_PATHS,
    SITES_FOLDER,
    TENSORS,
    Generation,
    encode_sealed,
    find_newest,
    generation_folder,
    installed_version,
    is_checkpoint_part,
    is_label_store,
    list_generations,
    load_generation,
    make_seal,
    read_head,
)

if TYPE_CHECKING:
    from torch import Tensor

    from embasis.storage.atomic import Column
    from embasis.storage.label_map_folder import LabelMapFolder
    from embasis.storage.label_store import DiskLabelStore
    from embasis.types import ClassTable

KEPT_GENERATIONS = 2  # whole generations that stay after a publish
LOG_NAME = "log.txt"
LOG_BYTES, LOG_LINE_CHARACTERS = 2**20, 2000
"""Bytes of the file, and characters of a line. A log that is full keeps the newest quarter of its lines."""


class RunFolder:
    """The folder of one run. Inside `with`, this process is the only one that writes there."""

    writes: ClassVar[bool] = True
    """False where another process has the lock (followed_folder.py)."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.ignored = 0
        """Unfinished writes of earlier crashes that were removed."""
        self.taken_over: int | None = None
        """The pid of the process that died with the lock."""
        self._lock: int | None = None
        self._last = 0
        self.seals: dict[str, dict[str, Any]] = {}
        """Name → size and hash of each sealed file, as it was written last; every generation keeps a copy."""
        self._log: LogFile | None = None

    def describe_kept(self, which: str = "the last good ") -> str:
        """The end of a sentence about a failed write: which generation is still there."""
        return f"; {which}generation {self._last} is kept" if self._last else "; no generation exists yet"

    def require_lock(self) -> None:
        """Refuse to write in a folder that this process has not locked, or that is not there any more."""
        message = f"run folder {self.path} is not locked by this process; use it in a with statement"
        require(self._lock is not None, message, RunLockedError)
        if (error := self.gone()) is not None:
            raise error

    def gone(self) -> ResourceError | None:
        """The error to raise when the folder, or its lock, is not the one any more that this process has locked."""
        if self._lock is None:
            return None
        try:
            if os.path.samestat(os.fstat(self._lock), os.lstat(self.path / "lock")):
                return None
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            return None  # nothing is known; the next write will tell
        message = f"run folder {self.path} is gone: it or its lock was deleted, moved or replaced during the run"
        cure = "nothing is written at its old place; move it back and the same command goes on"
        return ResourceError(f"{message}; {cure}")

    def __enter__(self) -> RunFolder:
        self._last = read_head(self.path) or max(list_generations(self.path), default=0)
        with atomic.explain_write_errors(self.path, self.describe_kept()):
            atomic.disk.make(self.path)
            self._take_lock()
            try:
                atomic.disk.make(self.path / "generations")
                self._clean()
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._lock is not None:
            with suppress(OSError):  # an empty lock file: its process ended in peace
                atomic.disk.truncate(self._lock, 0)
            _held.discard(self)
            with suppress(OSError):  # a worker forked just now may still have a copy
                fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = None

    def _take_lock(self) -> None:
        path = self.path / "lock"
        atomic.refuse_link(path)
        handle = atomic.disk.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        holder = re.match(rb'{"pid": ([0-9]+), "since": "([-0-9T:+]+)"}', os.pread(handle, 4096, 0))
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the system frees it when its process dies
            atomic.disk.truncate(handle, 0)
            since = datetime.now(UTC)
            entry = {"pid": os.getpid(), "since": since.isoformat(timespec="seconds")}
            atomic.disk.write(handle, json.dumps(entry).encode())
        except BaseException as error:
            os.close(handle)
            if not isinstance(error, BlockingIOError):
                raise
            by = f"pid {int(holder[1])} since {holder[2].decode()}" if holder else "another process"
            message = f"run folder {self.path} is locked by {by}; wait for it or choose another folder"
            raise RunLockedError(message) from None
        self._lock, self.taken_over = handle, int(holder[1]) if holder else None
        self._log = LogFile(self.path, since)
        _held.add(self)

    def _clean(self) -> None:
        """Remove what crashes left: temp files, and generations that HEAD never came to name."""
        head, numbers = read_head(self.path), list_generations(self.path)
        self.ignored, self._last = 0, max(numbers, default=0) if head is None else head
        walk = [Path(top, name) for top, subs, plain in os.walk(self.path) for name in subs + plain]
        leftovers = [path for path in walk if atomic.TEMP_NAME.fullmatch(path.name)]
        leftovers += [generation_folder(self.path, number) for number in numbers if head is not None and number > head]
        for path in (path for path in leftovers if is_checkpoint_part(path) or is_label_store(path)):
            atomic.disk.delete(path)
            self.ignored += 1
        if not numbers and not os.path.lexists(self.path / "HEAD"):
            atomic.disk.put(self.path / "HEAD", encode_sealed({"generation": 0}))

    def publish(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> int:
        """A new generation, on the disk and read back when its number is returned; the newest two stay.

        Its manifest names every sealed file of the folder (SEALED_PATHS) with the hash of what was written."""
        self.require_lock()
        contents = {TENSORS: self.tensor_bytes(tensors), FACTS: atomic.encode_json(dict(facts), FACTS)}
        number = max([self._last, *list_generations(self.path)]) + 1
        seals = {name: make_seal(data) for name, data in contents.items()}
        writer = {"schema": CHECKPOINT_SCHEMA, "version": installed_version()}
        manifest = {**writer, "generation": number, "tensors": len(tensors), "files": seals, "sealed": self.seals}
        contents[MANIFEST] = encode_sealed(manifest)
        home = generation_folder(self.path, number)
        temp = atomic.temp_path(home.parent)
        with atomic.explain_write_errors(home, self.describe_kept()):
            atomic.disk.expect_room(home.parent, sum(map(len, contents.values())))
            try:
                atomic.disk.mkdir(temp)
                for name, data in contents.items():
                    atomic.disk.create(temp / name, data)
                atomic.disk.sync(temp)
                atomic.disk.rename(temp, home)
                atomic.disk.sync(home.parent)
                try:
                    load_generation(self.path, number)
                except CorruptError as error:
                    raise OSError(errno.EIO, f"read back wrong ({error})") from error
                atomic.disk.put(self.path / "HEAD", encode_sealed({"generation": number}))
            except BaseException:
                atomic.disk.discard(temp)
                if read_head(self.path) != number:
                    atomic.disk.discard(home)
                raise
        self._last = number
        self._rotate()
        return number

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor]) -> Path:
        """Named tensors as safetensors."""
        return self.write_bytes(name, self.tensor_bytes(tensors))

    def tensor_bytes(self, tensors: Mapping[str, Tensor]) -> bytes:
        """Named tensors as safetensors; copies, because it refuses views and shared storage."""
        import torch
        from safetensors.torch import save

        for name, tensor in tensors.items():
            bad = int((~torch.isfinite(tensor)).sum())
            values = "value" if bad == 1 else "values"
            message = f"tensor {quote(name)} holds {bad} non-finite {values}{self.describe_kept('')}"
            require(not bad, message, NumericalError)
        copies = {k: v.detach().cpu().clone(memory_format=torch.contiguous_format) for k, v in tensors.items()}
        return bytes(save(copies))

    def _rotate(self) -> None:
        """Keep the newest whole generations; a damaged one does not count, a foreign one is left alone."""
        whole = 1
        for number in reversed([number for number in list_generations(self.path) if number < self._last]):
            home = generation_folder(self.path, number)
            try:
                if whole < KEPT_GENERATIONS and load_generation(self.path, number):
                    whole += 1
                    continue
            except CorruptError:
                pass
            except CheckpointError:
                continue
            if is_checkpoint_part(home):
                with atomic.explain_write_errors(home, self.describe_kept()):
                    atomic.disk.delete(home)

    def newest(self) -> Generation | None:
        """The newest whole generation; None before the first."""
        newest = find_newest(self.path)
        self._last, self.seals = newest.number if newest else 0, {}
        if newest is not None:
            self.seals = self._hash_files() if newest.sealed is None else dict(newest.sealed)
        return newest

    def _hash_files(self) -> dict[str, dict[str, Any]]:
        """The sealed files of a run that was begun by 0.1.0, which knew no seals: as they are now."""
        kinds = ("*/round-*", "labels/*/maps.json", "sites/*/index.json", "gallery/*", "rows/*.parquet", *SEALED_PATHS)
        paths = {path for kind in kinds for path in self.path.glob(kind) if path.is_file() and not path.is_symlink()}
        return {path.relative_to(self.path).as_posix(): make_seal(atomic.read_bytes(path)) for path in sorted(paths)}

    def label_store(self) -> DiskLabelStore:
        """Where the label distributions of the rounds lie."""
        from embasis.storage.label_store import DiskLabelStore

        return DiskLabelStore(self)

    def maps(self, number: int, table: ClassTable) -> LabelMapFolder:
        """Where the label maps of a round go: labels/round-003."""
        from embasis.storage.label_map_folder import LabelMapFolder

        return LabelMapFolder(self.path / f"labels/round-{number:03d}", table, self)

    def write_bytes(self, name: str, data: bytes, sealed: bool = True) -> Path:
        """A file, whole or not at all; its hash goes into all generations from now on if it is one of SEALED_PATHS."""
        self.require_lock()
        target, parts = self.path / name, Path(name).parts
        links = any(self.path.joinpath(*parts[:n]).is_symlink() for n in range(1, len(parts)))
        inside = parts and not Path(name).is_absolute() and ".." not in parts and "\0" not in name and not links
        require(inside, f"path escapes run folder: {quote(name)}", UntrustedError)
        reserved = parts[0] in ("HEAD", "lock", "generations", LOG_NAME, SITES_FOLDER)
        reserved = reserved or any(map(atomic.TEMP_NAME.fullmatch, parts))
        require(not reserved, f"path is reserved in a run folder: {quote(name)}", UntrustedError)
        with atomic.explain_write_errors(target, self.describe_kept()):
            atomic.disk.make(target.parent, self.path)
            atomic.disk.put(target, data)
        if sealed and parts[0] in SEALED_PATHS:
            self.seals[Path(name).as_posix()] = make_seal(data)
        return target

    def log(self, text: str) -> None:
        """Lines of `log.txt`, as far as the disk allows; nothing fails for want of a log."""
        if self.gone() is None:
            self.require_lock()
            assert self._log is not None
            self._log.write(text)

    def write_text(self, name: str, text: str) -> Path:
        """A text file inside the run folder, whole or not at all; so are the other three."""
        return self.write_bytes(name, atomic.encode_text(text))

    def write_json(self, name: str, value: object) -> Path:
        """One JSON value, keys sorted."""
        return self.write_bytes(name, atomic.encode_json(value, name))

    def write_sealed_json(self, name: str, value: Mapping[str, Any]) -> Path:
        """A JSON object with the hash of its own content, for what no generation follows."""
        return self.write_bytes(name, encode_sealed({"version": installed_version(), **value}), sealed=False)

    def write_jsonl(self, name: str, rows: Iterable[object]) -> Path:
        """One JSON value a line."""
        return self.write_bytes(name, b"".join(atomic.encode_json(row, name, indent=None) for row in rows))

    def write_table(self, name: str, columns: Mapping[str, Column]) -> Path:
        """A `.parquet` or `.csv` table."""
        return self.write_bytes(name, atomic.encode_table(columns, Path(name).suffix))


class LogFile:
    """What a process printed while it had a run folder: `log.txt`, each line with its time.

    Appended to, so that it survives kills and goes on with the run; not synced, and of a bounded size. A log is no part
    of what a run promises: where it cannot be written it is shorter, and the run goes on. `began` is the time by the
    clock, from which a steady one counts."""

    def __init__(self, folder: Path, began: datetime) -> None:
        self._path, self._began, self._zero = folder / LOG_NAME, began, time.monotonic()
        self._handle: int | None = None

    def write(self, text: str) -> None:
        """Append all lines of the text; none, if the disk takes none."""
        # A clock that jumps would put later lines before earlier ones.
        now = self._began + timedelta(seconds=time.monotonic() - self._zero)
        stamp = now.isoformat(timespec="milliseconds")
        lines = [f"{stamp} {line[:LOG_LINE_CHARACTERS]}\n" for line in text.split("\n") if line]
        data = atomic.encode_text("".join(lines))
        with suppress(OSError):
            if self._handle is not None and os.fstat(self._handle).st_size + len(data) > LOG_BYTES:
                self.close()
            if self._handle is None:
                self._handle = self._open(len(data))
            atomic.disk.write_all(self._handle, data)

    def _open(self, room: int) -> int:
        """With room for so many bytes. Only a file of our own is written to: no link, no pipe that nobody reads."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = atomic.disk.open(self._path, flags, 0o666)
        try:
            state = os.fstat(handle)
            if not stat.S_ISREG(state.st_mode) or state.st_nlink != 1:
                raise OSError
            if state.st_size > LOG_BYTES - room:
                tail = os.pread(handle, LOG_BYTES // 4, max(0, state.st_size - LOG_BYTES // 4))
                lines = tail.partition(b"\n")[2].rpartition(b"\n")[0] + b"\n"  # from the beginning of one on
                atomic.disk.put(self._path, lines)
                os.close(handle)
                handle = atomic.disk.open(self._path, flags, 0o666)
            elif state.st_size and os.pread(handle, 1, state.st_size - 1) != b"\n":
                atomic.disk.write_all(handle, b"\n")  # the process before was killed within a line
        except OSError:
            os.close(handle)
            raise
        return handle

    def close(self) -> None:
        """Nothing more is to come."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(OSError):
                atomic.disk.close(handle)


_held: set[RunFolder] = set()


def _forget_locks() -> None:
    """A forked worker gives up its copy of the lock: else it would hold it when its parent is killed."""
    for folder in _held:
        if folder._lock is not None:
            os.close(folder._lock)
            folder._lock = None
    _held.clear()


os.register_at_fork(after_in_child=_forget_locks)
