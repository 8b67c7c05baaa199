"""Images in `.tar` shards, as WebDataset names them: a sample is the files of one key, `key.jpg` and `key.cls`, say.

| file of a shard | what happens |
| --- | --- |
| `key.jpg`, `key.png`, or another ending of an image, alone after the key | a row, called `shard.tar/key.jpg` |
| a second image of a key, a name for the second time | refused, counted and named |
| a link, a device, an absolute name or one with `..` | refused, counted and named, if it has an image's ending |
| `key.cls`, `key.json`, `key.seg.png`, anything else | ignored, counted by its ending |
| a damaged archive, or one that is cut off | its readable part is used; the shard is counted and named, too |

The key ends at the first dot after the last slash. Rows are in the order of their names. How many a shard has is known
from its headers; their bytes are read, hashed and looked at only where a row is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from embasis.data.images.files import (
    Collector,
    Scan,
    describe_os_error,
    describe_other_kinds,
    escape_name,
    is_hidden,
    printable_path,
)
from embasis.data.images.header import SUFFIXES
from embasis.data.images.tar_members import BadTar, TarMember, iter_tar
from embasis.data.shards import Shard, ShardFile, ShardFolder, ShardManifest
from embasis.distributed import work_alone
from embasis.errors import InputDataError, require

LABEL_ENDINGS = frozenset({".cls", ".cls2", ".json", ".txt"})
"""Files in which WebDataset's samples have their labels."""
LABELS_IGNORED = "labels in shards are not read"


@dataclass(frozen=True, slots=True)
class ShardRow:
    """One row of a shard: its name, and its place in the archive or why it is refused."""

    name: str
    member: TarMember | None
    reason: str = ""
    kind: str = "refused"


@dataclass(eq=False)
class ShardListing:
    """The rows of one shard in the order of their names, and how many other files it has, by their endings."""

    rows: list[ShardRow] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)


def list_shard(shard: ShardFile | Shard) -> ShardListing:
    """The rows of a shard by its headers."""
    listing, keys, names = ShardListing(), dict[str, str](), Counter[str]()
    try:
        for member in iter_tar(shard.path):
            _enter(listing, shard.name, member, keys, names)
    except BadTar as error:
        listing.rows.append(ShardRow(shard.name, None, str(error), "quarantined"))
    except OSError as error:
        listing.rows.append(ShardRow(shard.name, None, describe_os_error(error), "quarantined"))
    listing.rows.sort(key=lambda row: row.name)
    return listing


def _enter(listing: ShardListing, shard: str, member: TarMember, keys: dict[str, str], names: Counter[str]) -> None:
    """Take one member by its name and kind."""
    text = escape_name(member.name)
    parts = [part for part in text.split("/") if part not in ("", ".")]
    last = parts[-1] if parts else ""
    stem, _, ending = last.partition(".")
    leads_out = text.startswith("/") or ".." in parts
    if hidden := next((part for part in parts if is_hidden(part) and part != ".."), None):
        listing.hidden[hidden] += 1
        return
    if f".{ending.lower()}" not in SUFFIXES:
        listing.others[f".{ending}" if ending else ""] += 1
        return
    plain = "/".join(parts)
    key = "/".join([*parts[:-1], stem])
    names[plain] += 1
    name = f"{shard}/{plain}" + (f" ({names[plain]})" if names[plain] > 1 else "")
    reason = "leads out of the archive" if leads_out else member.refused
    if not reason and names[plain] > 1:
        reason = "its name is in the shard before"
    if not reason and keys.setdefault(key, plain) != plain:
        reason = f"its sample has another image, {keys[key]}"
    listing.rows.append(ShardRow(name, None if reason else member, reason))


@dataclass(frozen=True, eq=False)
class TarShards:
    """The shards of a folder or list with the number of their rows."""

    manifest: ShardManifest
    notes: tuple[str, ...]

    def chunks(self, rows: range, size: int) -> Iterator[Scan]:
        """Of these rows the pieces of this process, at most `size` at a time: files that can be opened, and why others
        cannot."""
        for shard, pieces in self.manifest.own_pieces(rows, size):
            listed = list_shard(shard).rows
            require(len(listed) == shard.rows, f"{printable_path(shard.path)}: was changed while it was read")
            for piece in pieces:
                yield _examine(shard, listed[piece.start : piece.stop])

    def scan(self) -> Scan:
        """All rows of all shards."""
        collector = Collector(self.manifest.root)
        with work_alone():
            chunks = list(self.chunks(range(self.manifest.total), self.manifest.total or 1))
        for chunk in chunks:
            collector.seen += chunk.seen
            collector.files += chunk.files
            collector.rejected += chunk.rejected
            collector.small += chunk.small
        return replace(collector.scan(), notes=self.notes)


def _examine(shard: Shard, rows: Sequence[ShardRow]) -> Scan:
    """Read the images of some rows once: hash and header, or the reason why not."""
    collector = Collector(shard.path)
    for row in rows:
        collector.seen += 1
        if row.member is None:
            collector.reject(row.name, row.reason, row.kind)
        else:
            collector.examine(row.name, shard.path, row.member.offset, row.member.size)
    return collector.scan(empty=True)


def open_tar_shards(folder: ShardFolder) -> TarShards:
    """Count the rows of all shards; an InputDataError where there is none."""
    counts, others, hidden = list[int](), Counter[str](), Counter[str]()
    for shard in folder.files:
        listing = list_shard(shard)
        counts.append(len(listing.rows))
        others += listing.others
        hidden += listing.hidden
    shown, files = printable_path(folder.root), sorted(folder.files, key=lambda file: f"{file.name}/")
    by_name = dict(zip(folder.files, counts, strict=True))
    manifest = ShardManifest.of(folder.root, tuple(files), [by_name[file] for file in files])
    notes = [f"{shown}: {note}" for note in Collector(folder.root, hidden=hidden).notes()]
    if others:
        labels = f"; {LABELS_IGNORED}" if LABEL_ENDINGS & {*others} else ""
        notes.append(f"{shown}: {describe_other_kinds(others)}{labels}")
    if not manifest.total:
        raise InputDataError(f"{shown}: no images in its shards; read are key{', key'.join(sorted(SUFFIXES))}")
    return TarShards(manifest, tuple(notes))
