"""The members of an uncompressed tar, by their headers alone: our own reader, for archives of strangers.

| in the archive | what happens |
| --- | --- |
| regular file (also by GNU's long names, or a pax path or size) | a member: where its bytes lie, and how many |
| folder | passed over |
| link, device, FIFO, sparse file, unknown kind | a member that is refused, never followed or made |
| header whose sum is wrong, number that is none, name of more than LONGEST_NAME bytes | the end, with the reason |
| more than MOST_MEMBERS | the end, with the reason |
| no block of zeros at the end | the end, with the reason: members may be missing |

Nothing is extracted, no more than a header and an extended name is read, and every number is checked against the file's
size before anything is skipped by it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from embasis.data.images.files import IS_LINK, NOT_REGULAR

BLOCK = 512
LONGEST_NAME = 4096
LARGEST_EXTENSION = 2**16
"""Bytes of a long name, or of pax records."""
MOST_MEMBERS = 10**6
REGULAR, FOLDER, LINKS = b"0\x007", b"5", b"12"
WITHOUT_DATA = b"123456"
"""Kinds that have no bytes after their header, whatever size it names."""
PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class BadTar(Exception):  # noqa: N818 — a reason, like BadMap
    """Why the rest of an archive cannot be read."""


@dataclass(frozen=True, slots=True)
class TarMember:
    """One file of an archive: its name as bytes, where its content lies, and why it is refused, if it is."""

    name: bytes
    offset: int
    size: int
    refused: str = ""


@dataclass(slots=True)
class _Extended:
    """What extended headers say of the next member."""

    name: bytes | None = None
    size: int | None = None
    is_sparse: bool = False


def iter_tar(path: str) -> Iterator[TarMember]:
    """The files of an archive in their order; a BadTar ends it where it cannot be read on, an OSError where the file
    cannot be opened."""
    handle = os.open(path, _READ_FLAGS)
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            raise BadTar(NOT_REGULAR)
        yield from _iter_members(handle, state.st_size)
    finally:
        os.close(handle)


def _iter_members(handle: int, length: int) -> Iterator[TarMember]:
    at, count, extended = 0, 0, _Extended()
    while True:
        header = _read_header(handle, at, length)
        if header is None:
            return
        kind, size = header[156:157], parse_number(header[124:136])
        data = at + BLOCK
        if kind in (b"L", b"K", b"x", b"g"):
            content = _read_extension(handle, data, size, length)
            _note_extension(extended, kind, content)
            at = _skip(data, size)
            continue
        count += 1
        if count > MOST_MEMBERS:
            raise BadTar(f"has more than {MOST_MEMBERS:,} members")
        name = _member_name(header) if extended.name is None else extended.name
        if len(name) > LONGEST_NAME:
            raise BadTar(f"a name has {len(name):,} bytes, at most {LONGEST_NAME:,} are read")
        size = size if extended.size is None else extended.size
        if kind != FOLDER and not (kind == b"\0" and name.endswith(b"/")):
            yield TarMember(name, data, size, _why_refused(kind, extended))
        at = data if kind in WITHOUT_DATA else _skip(data, size)
        extended = _Extended()


def _read_header(handle: int, at: int, length: int) -> bytes | None:
    """The header at a place; None at the end of the archive."""
    header = os.pread(handle, BLOCK, at) if at < length else b""
    if len(header) == BLOCK and not header.strip(b"\0"):
        return None
    if at == 0 and len(header) < BLOCK:
        raise BadTar("not a tar: it is shorter than a header")
    if len(header) < BLOCK:
        raise BadTar(f"is cut off: it ends after {length:,} bytes without an end mark, members may be missing")
    packed = next((name for mark, name in PACKED.items() if at == 0 and header.startswith(mark)), "")
    if packed:
        raise BadTar(f"is compressed ({packed}); unpack it to a plain .tar")
    named = parse_number(header[148:156])
    plain = sum(header) - sum(header[148:156]) + 8 * 32
    if named != plain:
        what = "not a tar" if at == 0 else f"is damaged at byte {at:,}, members may be missing"
        raise BadTar(f"{what}: the sum of a header is wrong")
    return header


def parse_number(field: bytes) -> int:
    """A number of a header: octal digits, or 255 times 256 and so on after a first byte of 128 (GNU)."""
    if field[0] == 128:
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0", 1)[0].strip(b" ")
    if not re.fullmatch(rb"[0-7]*", digits):
        raise BadTar("is no tar, or damaged: a number of a header is none")
    return int(digits or b"0", 8)


def _skip(data: int, size: int) -> int:
    """The place of the header after content of this size."""
    return data + -(-size // BLOCK) * BLOCK


def _member_name(header: bytes) -> bytes:
    """The name in a header; of the POSIX form with its prefix."""
    name, prefix = header[:100].split(b"\0", 1)[0], header[345:500].split(b"\0", 1)[0]
    is_posix = header[257:263] == b"ustar\0"
    return prefix + b"/" + name if is_posix and prefix else name


def _why_refused(kind: bytes, extended: _Extended) -> str:
    if kind in LINKS:
        return IS_LINK
    return NOT_REGULAR if kind not in REGULAR or extended.is_sparse else ""


def _read_extension(handle: int, data: int, size: int, length: int) -> bytes:
    if size > LARGEST_EXTENSION:
        raise BadTar(f"an extended header has {size:,} bytes, at most {LARGEST_EXTENSION:,} are read")
    content = os.pread(handle, size, data)
    if len(content) < size:
        raise BadTar(f"is cut off: it ends after {length:,} bytes, members may be missing")
    return content


def _note_extension(extended: _Extended, kind: bytes, content: bytes) -> None:
    """Take the name and the size of the next member from an extended header; others say nothing that matters."""
    if kind == b"L":
        extended.name = content.split(b"\0", 1)[0]
    if kind != b"x":
        return
    for key, value in _iter_records(content):
        if key == b"path":
            extended.name = value.split(b"\0", 1)[0]
        elif key == b"size":
            if not re.fullmatch(rb"[0-9]{1,19}", value):
                raise BadTar("is damaged: a size of an extended header is no number")
            extended.size = int(value)
        elif key.startswith(b"GNU.sparse."):
            extended.is_sparse = True


def _iter_records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each pax record: its length in decimal, a space, key=value and a line end."""
    rest = content
    while rest.strip(b"\0"):
        prefix = re.match(rb"([0-9]{1,9}) ", rest)
        length = int(prefix[1]) if prefix else 0
        record = rest[prefix.end() : length] if prefix else b""
        if prefix is None or length <= prefix.end() or length > len(rest) or not record.endswith(b"\n"):
            raise BadTar("is damaged: a record of an extended header cannot be read")
        key, _, value = record[:-1].partition(b"=")
        yield key, value
        rest = rest[length:]
