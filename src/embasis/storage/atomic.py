"""Single files: the system calls, atomic writes, reads that refuse pickles and links, JSON, tables."""

from __future__ import annotations

import csv
import errno
import fcntl
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embasis.errors import ConfigError, CorruptError, NumericalError, ResourceError, UntrustedError, quote, require

if TYPE_CHECKING:
    import numpy as np

    from embasis.types.problem import PathLike

    Column = Sequence[Any] | np.ndarray[Any, Any]

TEMP_NAME = re.compile(r"\.embasis-tmp-[0-9a-f]{16}")
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
HASH_BLOCK_BYTES = 2**20
FORMULA_SIGNS = "[-=+@\\t\\r\\n\uff1d\uff0b\uff0d\uff20]"
"""Of the beginning of a formula. Spreadsheets drop a tab or a line end before it, and some read the full-width signs
(U+FF1D, U+FF0B, U+FF0D, U+FF20) as the plain ones."""


class Disk:
    """Every system call that changes the disk or asks for its room, so that a test can make the N-th fail."""

    open, close = staticmethod(os.open), staticmethod(os.close)
    write, fsync, truncate = staticmethod(os.write), staticmethod(os.fsync), staticmethod(os.ftruncate)
    rename, replace = staticmethod(os.rename), staticmethod(os.replace)
    mkdir, rmdir, unlink = staticmethod(os.mkdir), staticmethod(os.rmdir), staticmethod(os.unlink)
    symlink, statvfs = staticmethod(os.symlink), staticmethod(os.statvfs)

    @staticmethod
    def link(handle: int, path: Path) -> None:
        """Give an open file without a name this one."""
        # With the number of a folder, which an absolute path does not need, Python follows the link of /proc.
        os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle)

    def expect_room(self, folder: Path, size: int) -> None:
        """Refuse a write of so many bytes before it begins, unless there is room for them and a fifth more."""
        try:
            state = self.statvfs(folder)
        except OSError:
            return  # nothing is known, so the write itself will tell
        free, need = state.f_bavail * state.f_frsize, -(-size * 6 // 5)
        if state.f_blocks and free < need:  # a file system of 0 blocks does not know its size
            room = f"need {-(-need // 10**6):,} MB, free {free // 10**6:,} MB"
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} ({room})")

    def create(self, path: Path, data: bytes, wait: bool = True) -> None:
        """A new file with these bytes; on the disk when this returns, unless the caller does not `wait` for that."""
        handle = self.open(path, CREATE_FLAGS, 0o666)
        try:
            self.write_all(handle, data)
            if wait:
                self.fsync(handle)
        except BaseException:
            with suppress(OSError):
                self.close(handle)
            raise
        self.close(handle)  # not in a `finally`: some file systems report a full disk only here

    def write_all(self, handle: int, data: bytes) -> None:
        """All of the bytes, however few the system takes at a time."""
        rest = memoryview(data)
        while rest:
            written = self.write(handle, rest)
            if not written:
                raise OSError(errno.EIO, "the system wrote nothing")
            rest = rest[written:]

    def sync(self, folder: Path) -> None:
        """The folder's list of names, on the disk when this returns."""
        handle = self.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.fsync(handle)
        finally:
            self.close(handle)

    def put(self, path: Path, data: bytes, wait: bool = True) -> None:
        """The old file or the new one, never a part of it; on the disk when this returns if the caller waits."""
        temp = temp_path(path.parent)
        try:
            self.create(temp, data, wait)
            self.replace(temp, path)
        except BaseException:
            self.discard(temp)
            raise
        if wait:
            self.sync(path.parent)

    def make(self, folder: Path, root: Path | None = None) -> None:
        """This folder and its parents; `root` is never made: a run folder that was taken away stays away."""
        if not folder.is_dir():
            if folder == root:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            self.make(folder.parent, root)
            with suppress(FileExistsError):  # another process may be first
                self.mkdir(folder)
            if os.path.lexists(folder) and not folder.is_dir():  # a file, or a link that leads nowhere or in a circle
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            self.sync(folder.parent)

    def delete(self, path: Path) -> None:
        """A file, or a folder of files; a generation loses its name first, so that no half of it is ever seen."""
        if not path.is_dir():
            self.unlink(path)
        elif TEMP_NAME.fullmatch(path.name):
            for name in os.listdir(path):
                self.unlink(path / name)
            self.rmdir(path)
        else:
            self.rename(path, temp := temp_path(path.parent))
            try:
                self.delete(temp)
            except BaseException:
                self.discard(temp)
                raise

    def discard(self, path: Path) -> None:
        """Clean up after a failure, as far as the disk still allows."""
        with suppress(OSError):
            self.delete(path)


disk = Disk()
"""The disk of the whole package: every use looks it up here, as `atomic.disk`, so that a test can replace it."""


def temp_path(folder: Path) -> Path:
    """A new name for a write under way."""
    return folder / f".embasis-tmp-{os.urandom(8).hex()}"


@contextmanager
def explain_write_errors(path: Path, kept: str = "") -> Iterator[None]:
    """Raise a ResourceError that says what could not be written, why, and what is `kept`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ResourceError):
            raise
        raise ResourceError(f"cannot write {path}: {error.strerror or error}{kept}") from error


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Others who ask for the same lock wait meanwhile: between a look at a file and its replacement nobody comes.

    The folder itself is locked, so nothing is left behind; a folder that is not there, or a disk that knows no locks,
    has none."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def refuse_link(path: Path) -> None:
    """Refuse a symbolic link where a run or an export has a file or folder of its own."""
    require(not path.is_symlink(), f"{path} is a symbolic link; links are not followed", UntrustedError)


def refuse_lost_link(path: Path) -> None:
    """Refuse an output that lies at or behind a link which leads nowhere, or in a circle."""
    nearest = next((part for part in (path, *path.parents) if os.path.lexists(part)), None)
    lost = nearest is not None and not os.path.exists(nearest)
    rule = f"{nearest} is a link that leads nowhere; remove it or name another place"
    require(not lost, f"output {path}: {rule}", ConfigError)


def require_apart(
    output: PathLike,
    inputs: Mapping[str, PathLike | None],
    *,
    folder: bool = False,
    run: bool = False,
    what: str = "output",
) -> None:
    """Refuse an output that is one of these inputs or lies in one, and one that lies in any run folder.

    Links, hard links and other spellings of a path are seen through. `inputs` are named for the sentence; None and what
    does not exist is passed over. `folder`: the output is a folder, which must not contain an input either. `run`: it
    is to be a run folder itself.
    """
    name = os.fspath(output)
    require(name, f"{what} must be a path, got ''", ConfigError)
    parents = Path(os.path.realpath(name)).parents
    for kind, given in inputs.items():
        if given is None or not os.path.exists(given):
            continue
        source = f"{kind} {os.fspath(given)}"
        require(not is_same(name, given), f"{what} {name} is {source} itself; name another place", ConfigError)
        inside = any(is_same(place, given) for place in parents)
        require(not inside, f"{what} {name} lies in {source}; name a place outside of it", ConfigError)
        above = Path(os.path.realpath(given)).parents if folder and os.path.isdir(name) else ()
        around = any(is_same(place, name) for place in above)
        require(not around, f"{what} {name} contains {source}; name another place", ConfigError)
    require(run or not is_run_folder(name), f"{what} {name} is a run folder; name another place", ConfigError)
    around_it = next((place for place in parents if is_run_folder(place)), "")
    require(not around_it, f"{what} {name} lies in the run folder {around_it}; name a place outside of it", ConfigError)


def is_same(one: PathLike, other: PathLike) -> bool:
    """Whether two paths lead to the same file or folder."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samestat(os.stat(one), os.stat(other))
    except OSError:
        return False


def is_run_folder(path: PathLike) -> bool:
    """Whether a folder is one of a run: no other one is likely to have both."""
    return os.path.isfile(os.path.join(path, "HEAD")) and os.path.isdir(os.path.join(path, "generations"))


def write_output(path: Path | str, data: bytes | str) -> None:
    """One file outside the run folders, whole or not at all."""
    path = Path(path)
    require_output_place(path)
    with explain_write_errors(path):
        disk.put(path, data if isinstance(data, bytes) else encode_text(data))


def require_output_place(path: Path) -> None:
    """A file can be written there: the folder exists, and nothing but a regular file has the name."""
    require(path.parent.is_dir(), f"cannot write {path}: folder {path.parent} does not exist", ResourceError)
    plain = not path.is_symlink() and (path.is_file() or not path.exists())  # /dev/null must not become a file
    require(plain, f"cannot write {path}: it is not a regular file", ResourceError)


def encode_text(text: str) -> bytes:
    """Text as bytes; file names may hold what UTF-8 cannot."""
    return text.encode("utf-8", "backslashreplace")


def read_bytes(path: Path, size: range = range(1 << 62)) -> bytes:
    """All bytes of a file, refused before they are read if their number or their beginning is wrong."""
    try:
        with open(os.open(path, READ_FLAGS), "rb") as file:
            length, start = os.fstat(file.fileno()).st_size, file.read(16)
            # A safetensors header of 640 bytes begins like a pickle too, but goes on with {" after its length.
            marked = len(start) > 9 and re.match(rb"\x80[\x02-\x05]|PK\x03\x04", start)
            pickle = marked and start[8:9] != b"{" and start[9:10] != b'"'
            require(not pickle, f"{path} is a pickle; only safetensors and JSON are read", UntrustedError)
            require(length in size, f"{path}: {length:,} of {size[-1]:,} bytes", CorruptError)
            return start + file.read()
    except OSError as error:
        planted = error.errno == errno.ELOOP and path.is_symlink()  # or its folder is a link that leads in a circle
        require(not planted, f"{path} is a symbolic link; links are not followed", UntrustedError)
        damaged = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO, errno.ELOOP)
        raise (CorruptError if damaged else ResourceError)(f"cannot read {path}: {error.strerror}") from error


def iter_name_hashes(text: str, size: int) -> Iterator[str]:
    """Hashes of a text for a file name, each of `size` bytes in hex; another one where the one before is taken."""
    for attempt in count():
        yield hashlib.blake2b(f"{attempt or ''}\0{text}".encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def hash_file(path: Path) -> str:
    """sha256 of a file, block by block."""
    digest = hashlib.sha256()
    try:
        with open(os.open(path, READ_FLAGS), "rb") as stream:
            while block := stream.read(HASH_BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise CorruptError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()


def encode_json(value: object, name: str, indent: int | None = 2) -> bytes:
    """A value as JSON, keys sorted; `name` is for the message if it holds a NaN."""
    try:
        return json.dumps(value, sort_keys=True, indent=indent, allow_nan=False).encode() + b"\n"
    except ValueError as error:
        raise NumericalError(f"{name} cannot be written: {error}") from error


def parse_finite(text: str) -> float:
    """A number of a JSON text; NaN and what is larger than any number are none."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not finite")
    return value


def parse_json(data: bytes, where: object) -> Any:
    """The inverse; `where` begins the message if it fails."""
    try:
        return json.loads(data.decode(), parse_float=parse_finite, parse_constant=parse_finite)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{where} is not JSON: {error}") from error


def read_json(path: Path | str) -> Any:
    """The value in a JSON file."""
    return parse_json(read_bytes(Path(path)), path)


def read_jsonl(path: Path | str) -> list[Any]:
    """The values in a file with one JSON value a line."""
    *lines, rest = read_bytes(Path(path)).split(b"\n")
    require(not rest, f"{path}: the last line is cut off", CorruptError)
    return [parse_json(line, f"{path}, line {number},") for number, line in enumerate(lines, 1)]


def escape_formula(text: str) -> str:
    """An apostrophe before what a spreadsheet would run as a formula."""
    return "'" + text if re.match(f"'*{FORMULA_SIGNS}", text) else text


def unescape_formula(text: str) -> str:
    """The inverse of `escape_formula`."""
    return text[1:] if re.match(f"'+{FORMULA_SIGNS}", text) else text


def _format_csv_cell(value: object) -> str:
    """Nothing for None, true and false, the shortest digits that give a number back."""
    if isinstance(value, str):
        text = escape_formula(value)
        return '"' + text.replace('"', '""') + '"' if re.search('[,"\r\n]', text) else text
    text = "" if value is None else str(value)
    return text.lower() if text in ("True", "False") else text


def encode_table(columns: Mapping[str, Column], suffix: str) -> bytes:
    """A table as the bytes of a `.csv` or `.parquet` file; the same columns give the same bytes."""
    require(suffix in (".csv", ".parquet"), f"output must end in .csv or .parquet, got {quote(suffix)}", ConfigError)
    if suffix == ".csv":
        return encode_csv_rows({name: [name] for name in columns}) + encode_csv_rows(columns)
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(clean_texts(columns)), buffer := io.BytesIO(), compression="zstd")
    return buffer.getvalue()


def clean_texts(columns: Mapping[str, Column]) -> dict[str, Any]:
    """Columns whose texts are all UTF-8."""
    clean: dict[str, Any] = {}
    for name, column in columns.items():
        is_numeric = getattr(getattr(column, "dtype", None), "kind", "O") in "biuf"
        texts = (encode_text(cell).decode() if isinstance(cell, str) else cell for cell in column)
        clean[name] = column if is_numeric else list(texts)
    return clean


def encode_csv_rows(columns: Mapping[str, Column]) -> bytes:
    """The rows as lines of a .csv file, without a header."""
    rows = zip(*(map(_format_csv_cell, column) for column in clean_texts(columns).values()), strict=True)
    return encode_text("".join(f"{','.join(row)}\n" for row in rows))


def read_stored_table(path: Path | str) -> dict[str, list[Any]]:
    """The columns of a table. Parquet keeps the types; cells of a CSV file come back as text, None as ''."""
    return parse_stored_table(read_bytes(Path(path)), path)


def parse_stored_table(data: bytes, path: Path | str) -> dict[str, list[Any]]:
    """The same of bytes that were read from that path."""
    suffix = Path(path).suffix
    require(suffix in (".csv", ".parquet"), f"a table must end in .csv or .parquet, got {quote(suffix)}", ConfigError)
    try:
        if suffix == ".csv":
            *rows, rest = csv.reader(io.StringIO(data.decode() + "end", newline=""), strict=True)
            require(rows and rest == ["end"], f"{path} is not a table: the end is cut off", CorruptError)
            columns = zip(*(list(map(unescape_formula, row or [""])) for row in rows), strict=True)
            return {name: cells for name, *cells in columns}
        import pyarrow.parquet

        # Not read_table: it reads in threads of arrow, which after a damaged file may abort the process as it ends.
        with pyarrow.parquet.ParquetFile(pyarrow.BufferReader(data), pre_buffer=False) as file:
            return dict(file.read(use_threads=False).to_pydict())
    except (ValueError, OSError, LookupError, TypeError, RuntimeError, csv.Error) as error:
        raise CorruptError(f"{path} is not a table: {error}") from error
