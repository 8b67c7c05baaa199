"""Image files before any pixel is decoded: how they are named, opened, hashed and collected.

| name of a file | the bytes on disk |
| --- | --- |
| text | its UTF-8 bytes |
| `\\xNN` | the byte NN: one that is not UTF-8, or a backslash (`\\x5c`) |

So every name is printable text of its own, and `unescape_name` leads back to the same bytes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from embasis.data.class_labels import quote_names
from embasis.data.images.header import SUFFIXES, UnreadableImage, read_header
from embasis.data.images.pixels import oriented_size, read_orientation
from embasis.errors import InputDataError
from embasis.types import PathLike, RejectedFile, ShardRecord

LARGEST_IMAGE_FILE = 256 * 2**20
"""Bytes of one image; larger files are rejected by their size."""
MOST_SHARED_DIGESTS = 2**16
"""Contents that are remembered while files are collected, so that those of the same bytes share one digest."""
SMALL_SIDE = 32
"""Images whose short side has fewer pixels are noted."""
HEIC_CURE = "HEIC images can be read once pillow-heif is installed, or once they are converted to JPEG or PNG"
CURES = {
    ".arrow": "a data set of Hugging Face can be read once it is saved by its save_to_disk",
    **dict.fromkeys((".gz", ".tgz", ".bz2", ".xz", ".zst"), "compressed shards can be read once they are plain .tar"),
    **dict.fromkeys((".heic", ".heif"), HEIC_CURE),
}
"""What to do with files that people have instead of images, by their ending."""
SYSTEM_NAMES = frozenset({"__macosx", "@eadir", "thumbs.db", "desktop.ini"})
NOT_REGULAR = "not a regular file"
IS_LINK = "is a link; links are not followed"
LEADS_NOWHERE = "is a link that leads nowhere"
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ESCAPED_BYTE = re.compile(rb"\\x([0-9a-f]{2})")


def escape_name(raw: bytes) -> str:
    """The bytes of a path as text: what is not UTF-8 becomes `\\xNN`, and a backslash `\\x5c`."""
    return raw.replace(b"\\", b"\\x5c").decode("utf-8", "backslashreplace")


def path_name(relative: str) -> str:
    """The name of a path below the root."""
    return relative if relative.isascii() and "\\" not in relative else escape_name(os.fsencode(relative))


def unescape_name(name: str) -> bytes:
    """The bytes of the path that `escape_name` made this name of."""
    return _ESCAPED_BYTE.sub(
        lambda escaped: bytes.fromhex(escaped[1].decode()), name.encode("utf-8", "surrogateescape")
    )


def printable_path(path: PathLike) -> str:
    """A path for messages, whatever its bytes."""
    text = os.fspath(path)
    return text if text.isascii() else os.fsencode(text).decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class ImageFile:
    """One image: a file, or a part of one (a member of a tar)."""

    name: str
    """Its path below the root, "/" between parts: the row's name in every table."""
    where: str
    """The file to open; or a folder, with "/" at its end, below which it has its name. So a million files share one."""
    digest: bytes
    """`hash_content` of its bytes."""
    offset: int = 0
    length: int = -1
    """Where the image lies in the file; −1 = to its end."""
    size: tuple[int, int] = (0, 0)
    """Height and width as decoded, turned upright; zeros where they are unknown."""
    turn: int = 1
    """How it is turned to be upright, as EXIF has it."""

    @property
    def path(self) -> str:
        """The file to open."""
        return self.where + self.name if self.where.endswith("/") else self.where

    def read(self) -> bytes:
        """The content now; OSError when it cannot be had."""
        return read_part(self.path, self.offset, self.length)

    @property
    def id(self) -> int:
        """63 bits of the name's hash: the same whatever other files there are."""
        return int.from_bytes(hashlib.blake2b(self.name.encode(), digest_size=8).digest(), "little") >> 1


@dataclass(frozen=True)
class Scan:
    """What a folder, an archive or a list holds; files and rejected ones are sorted by name."""

    root: str
    files: tuple[ImageFile, ...]
    rejected: tuple[RejectedFile, ...] = ()
    notes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """Names of the first-level sub-folders, also of empty ones."""
    small: tuple[str, ...] = ()
    """Names of images with a short side under SMALL_SIDE."""
    seen: int = -1
    """Items that were met, whatever became of them; −1 where nobody counted."""
    shards: tuple[ShardRecord, ...] = ()
    """The archives that the images lie in, where they came in shards."""


def hash_content(data: bytes) -> bytes:
    """16 bytes of blake2b: files of one digest count as the same."""
    return hashlib.blake2b(data, digest_size=16).digest()


def read_part(path: str, offset: int = 0, length: int = -1) -> bytes:
    """Bytes of a regular file that is no link; never waits for a writer, never changes anything."""
    descriptor = os.open(path, _OPEN_FLAGS)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, NOT_REGULAR)
        size = state.st_size - offset if length < 0 else length
        if size > LARGEST_IMAGE_FILE:
            raise OSError(errno.EFBIG, f"{size:,} bytes exceed {LARGEST_IMAGE_FILE // 2**20} MiB")
        if offset + size > state.st_size:
            raise OSError(errno.EIO, f"its archive ends after {state.st_size - offset:,} of {size:,} bytes")
        data = os.pread(descriptor, size, offset)
        while len(data) < size and (more := os.pread(descriptor, size - len(data), offset + len(data))):
            data += more
        return data
    finally:
        os.close(descriptor)


def describe_os_error(error: OSError) -> str:
    """The reason of an OSError as part of a sentence."""
    known = {errno.ELOOP: IS_LINK, errno.ENOENT: "vanished during the scan", errno.EACCES: "permission denied"}
    text = known.get(error.errno or 0) or error.strerror or str(error)
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def is_hidden(part: str) -> bool:
    """Whether a name is one that systems leave behind, or begins with a dot."""
    return part.startswith(".") or part.lower() in SYSTEM_NAMES


def lower_suffix(part: str) -> str:
    """The ending of a file's name in lower case, with its dot."""
    return os.path.splitext(part)[1].lower()


@dataclass
class Collector:
    """Collects the images of one root; `scan` gives all of them."""

    root: str
    base: str = ""
    """The folder of the files, with "/" at its end, if they have their names below one."""
    seen: int = 0
    """Counted by whoever meets an item, and not by what becomes of it, so that none can be lost unnoticed."""
    files: list[ImageFile] = field(default_factory=list)
    rejected: list[RejectedFile] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    small: list[str] = field(default_factory=list)
    hidden: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    again: int = 0
    """Links to what was there already."""
    _sizes: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    _digests: dict[bytes, bytes] = field(default_factory=dict)

    def reject(self, name: str, reason: str, kind: str = "quarantined") -> None:
        """Add one line to the ledger."""
        self.rejected.append(RejectedFile(name, reason, "scan", kind=kind))

    def skip(self, relative: str, reason: str) -> None:
        """Count an entry that a rule leaves out: it is never opened."""
        self.seen += 1
        self.reject(path_name(relative), reason, "refused")

    def add_file(self, relative: str, path: str, offset: int = 0, length: int = -1) -> None:
        """Count and examine a regular file; one without an image's ending is only counted by its kind."""
        if (kind := lower_suffix(relative)) not in SUFFIXES:
            self.others[kind] += 1
        else:
            self.seen += 1
            self.examine(path_name(relative), path, offset, length)

    def examine(self, name: str, path: str, offset: int = 0, length: int = -1) -> None:
        """Read one image once: hash and header, or the reason why not."""
        try:
            data = read_part(path, offset, length)
            header = read_header(data)
        except OSError as error:
            return self.reject(name, describe_os_error(error))
        except UnreadableImage as error:
            return self.reject(name, str(error))
        if min(header.width, header.height) < SMALL_SIDE:
            self.small.append(name)
        digest, turn = hash_content(data), read_orientation(data, header)
        size = oriented_size(header, turn)
        if len(self._digests) < MOST_SHARED_DIGESTS:
            self._digests.setdefault(digest, digest)
        digest = self._digests.get(digest, digest)
        where = self.base if self.base and path == self.base + name else path
        self.files.append(ImageFile(name, where, digest, offset, length, self._sizes.setdefault(size, size), turn))
        return None

    def scan(self, empty: bool = False) -> Scan:
        """All that was collected; InputDataError when that is no image, unless it may be empty."""
        where = printable_path(self.root)
        self.files.sort(key=lambda file: file.name)  # in its place: a second list of a million is not small
        self.rejected.sort(key=lambda item: item.name)
        if not self.files and not empty:
            kinds = f"; {describe_other_kinds(self.others)}" if self.others else ""
            refused = f"; {len(self.rejected):,} refused, first: {describe_first(self.rejected, 1)}"
            text = f"{where}: no images; read are {', '.join(sorted(SUFFIXES))}{kinds}"
            cures = dict.fromkeys(f"; {cure}" for kind, cure in CURES.items() if kind in self.others)
            raise InputDataError(text + (refused if self.rejected else "") + "".join(cures))
        notes, folders, small = (f"{where}: {note}" for note in self.notes()), sorted(self.folders), sorted(self.small)
        files, rejected = tuple(self.files), tuple(self.rejected)
        return Scan(self.root, files, rejected, tuple(notes), tuple(folders), tuple(small), self.seen)

    def notes(self) -> list[str]:
        """What was left out, in sentences."""
        notes = []
        if count := self.hidden.total():
            entries = "1 hidden or system entry is" if count == 1 else f"{count:,} hidden or system entries are"
            notes.append(f"{entries} ignored: {quote_names(self.hidden)}")
        if self.others:
            notes.append(describe_other_kinds(self.others))
        if self.again:
            notes.append(f"{self.again:,} links lead to what is there already; each file is used once")
        return notes


def describe_other_kinds(endings: Counter[str]) -> str:
    """A sentence about files that are no images."""
    kinds = ", ".join(f"{kind or 'no ending'} {number:,}" for kind, number in sorted(endings.items())[:10])
    count = endings.total()
    return f"{'1 file of another kind is' if count == 1 else f'{count:,} files of other kinds are'} ignored: {kinds}"


def describe_first(rejected: Sequence[RejectedFile], most: int = 3) -> str:
    """The first rejected files and their reasons, for a sentence."""
    texts = ", ".join(f"{item.name} ({item.reason})" for item in rejected[:most])
    return texts + (", …" if len(rejected) > most else "")
