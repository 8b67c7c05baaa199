"""Restyled rows of the labelled side on disk: each is restyled once, whatever runs use it.

| rows | kept as | found by |
| --- | --- | --- |
| in memory, and pictures with maps in memory | numbers of their own type | the hash of the row |
| features of images before the trained stages | float32 | the hashes of the image and of the frozen part |
| pictures in files, with maps or without | PPM of the whole picture, scaled for the network | the hash of the image |

The cache is that of features (storage/feature_cache.py) in a folder beside it, one for each restyler with its settings
and what it has learned. Of files whole pictures are restyled and then cut into views: samples that are restyled read
the same labels, and pictures that lie in a shard as images lie in an archive.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from embasis.config import Config
from embasis.data.images.files import ImageFile, hash_content
from embasis.data.images.pixels import scale_image
from embasis.data.images.samples import Images
from embasis.data.reader import load_one
from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.data.segmentation.views import read_picture, scale_picture
from embasis.data.worker_process import request_for
from embasis.engine.restyling import acting_restyler, restyle_samples
from embasis.errors import CorruptError, EmbasisWarning, ResourceError
from embasis.inputs.image_rows import PIXELS_VERSION, CachedFeatures, read_pixels
from embasis.resources import require_disk
from embasis.storage.feature_cache import RESTYLED, FeatureCache, cache_folder
from embasis.types import Arrays, Method, Problem, RowChange, Samples
from embasis.types.restyling import ROWS_AT_ONCE

SHARD_ROWS, SHARD_BYTES = 256, 2**24
"""Of one shard: what a crash can lose."""
Held = Arrays | MapArrays
Filed = Images | MapFiles


@dataclass(eq=False)
class RestyledCache:
    """Keeps restyled rows in the cache folder; `notes` are sentences for the user."""

    folder: str = ""
    """As given; "" = EMBASIS_CACHE, else the user's cache folder."""
    notes: list[str] = field(default_factory=list)
    _opened: dict[str, FeatureCache] = field(default_factory=dict)

    def fill(self, samples: Samples, change: RowChange) -> Iterator[None]:
        """Restyle what is not kept yet. Rows in memory can do without a cache that cannot be written; files cannot."""
        try:
            yield from self._fill(samples, change)
        except ResourceError as error:
            if not isinstance(samples, Held):
                raise
            self._opened.clear()
            warnings.warn(f"{error}; restyled pictures are not kept", EmbasisWarning, stacklevel=2)

    def _fill(self, samples: Samples, change: RowChange) -> Iterator[None]:
        if not isinstance(samples, Held | Filed | CachedFeatures):
            return
        cache, digests, shard = self._open(samples, change), row_digests(samples), ShardBuilder()
        first = {digest: row for row, digest in reversed([*enumerate(digests)])}
        todo = sorted(row for digest, row in first.items() if digest not in cache)
        self._describe(len(first), len(todo), change)
        if not todo:
            return
        cache.require_writable()
        try:
            for row, data in iter_restyled(samples, todo, change):
                if row == todo[0]:
                    more = f"the cache of {len(todo):,} more restyled pictures"
                    require_disk(cache.path, len(todo) * data.nbytes, more, RESTYLED.advice)
                shard.add(digests[row], data, cache)
                yield
        finally:
            shard.close(cache)  # also when the run is stopped here

    def _describe(self, total: int, todo: int, change: RowChange) -> None:
        """A sentence about what is to be done."""
        kept = f"{total - todo:,} of {total:,} different labelled pictures are in the cache of restyled pictures"
        rest = "nothing is restyled again" if not todo else f"{todo:,} are restyled now"
        self.notes.append(f"{change.restyler.name}: {kept}; {rest}")

    def _open(self, samples: Samples, change: RowChange) -> FeatureCache:
        """The shards for rows of this kind; they are checked when they are opened first."""
        parts = [change.key(), describe_scale(samples), str(PIXELS_VERSION)]
        key = hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]
        if key not in self._opened:
            try:
                self._opened[key] = FeatureCache(cache_folder(self.folder), key, kind=RESTYLED)
            except PermissionError as error:
                raise ResourceError(f"cannot read {error.filename}: {error.strerror}; {RESTYLED.advice}") from error
        return self._opened[key]

    def read(self, samples: Samples, change: RowChange) -> Samples:
        """The samples restyled, from the cache once it is filled; from nowhere else, where it could not be."""
        if not self._opened or not isinstance(samples, Held | Filed | CachedFeatures):
            return restyle_samples(samples, change)
        cache, digests = self._open(samples, change), row_digests(samples)
        if isinstance(samples, CachedFeatures):
            return replace(samples, cache=cache, digests=digests)
        if isinstance(samples, Held):
            return samples.change_rows(lambda rows: cache.rows(digests))
        files = [keep_file(cache, digest, file) for digest, file in zip(digests, image_files(samples), strict=True)]
        if isinstance(samples, Images):
            return replace(samples, files=tuple(files))
        pairs = zip(samples.files, files, strict=True)
        return replace(samples, files=tuple(replace(row, image=file, size=file.size) for row, file in pairs))


def keep_restyled_rows(problem: Problem, method: Method, config: Config, in_memory: bool = False) -> Problem:
    """The problem with a place for restyled rows, if the method restyles at some cost; for rows in memory if asked."""
    restyler = acting_restyler(method, problem)
    if restyler is None or restyler.is_cheap or (isinstance(problem.labelled, Held) and not in_memory):
        return problem
    return replace(problem, restyled=RestyledCache(str(config.images.get("cache", ""))))


def image_files(samples: Filed) -> Sequence[ImageFile]:
    """The pictures of the rows."""
    return samples.files if isinstance(samples, Images) else [row.image for row in samples.files]


def describe_scale(samples: Samples) -> str:
    """How pictures of files are scaled before they are restyled."""
    if isinstance(samples, Images):
        return repr(samples.preparation)
    return (
        f"short side {samples.preparation.plan.size}" if isinstance(samples, MapFiles) and samples.preparation else ""
    )


def row_digests(samples: Held | Filed | CachedFeatures) -> tuple[bytes, ...]:
    """What each row is found by."""
    if isinstance(samples, Filed):
        return tuple(file.digest for file in image_files(samples))
    if isinstance(samples, CachedFeatures):
        frozen = samples.cache.path.name.encode()
        return tuple(hash_content(frozen + digest) for digest in samples.digests)
    rows = samples.x if isinstance(samples, Arrays) else samples.pictures
    shape = f"{rows.dtype} {tuple(rows.shape[1:])} ".encode()
    return tuple(hash_content(shape + row.contiguous().numpy().tobytes()) for row in rows)


def iter_restyled(
    samples: Held | Filed | CachedFeatures, rows: Sequence[int], change: RowChange
) -> Iterator[tuple[int, Tensor]]:
    """Each of these rows with what is kept of it."""
    if isinstance(samples, Filed):
        yield from iter_restyled_files(samples, rows, change)
        return
    every = torch.tensor(rows, dtype=torch.int64)
    for piece in every.split(ROWS_AT_ONCE):
        inputs = samples.pictures[piece] if isinstance(samples, MapArrays) else samples.inputs(piece)
        yield from zip(piece.tolist(), change(inputs), strict=True)


def iter_restyled_files(samples: Filed, rows: Sequence[int], change: RowChange) -> Iterator[tuple[int, Tensor]]:
    """Those that cannot be read are left out: they are found, and written down, when they are read for training."""
    for row in rows:
        if (picture := read_whole_picture(samples, row)) is not None:
            data = encode_ppm(change(picture.unsqueeze(0))[0])
            yield row, torch.frombuffer(bytearray(data), dtype=torch.uint8)


class ShardBuilder:
    """Rows that wait to be written; the rows of a shard have one shape."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[int, ...], list[tuple[bytes, Tensor]]] = {}

    def add(self, digest: bytes, row: Tensor, cache: FeatureCache) -> None:
        """Take a row, and write those of its shape once they are many."""
        rows = self.waiting.setdefault(tuple(row.shape), [])
        rows.append((digest, row))
        if len(rows) >= min(SHARD_ROWS, SHARD_BYTES // row.nbytes + 1):
            self.write(tuple(row.shape), cache)

    def write(self, shape: tuple[int, ...], cache: FeatureCache) -> None:
        """A shard of the rows of this shape."""
        rows = self.waiting.pop(shape)
        cache.add([digest for digest, _ in rows], torch.stack([row for _, row in rows]))

    def close(self, cache: FeatureCache) -> None:
        """Write all that waits."""
        for shape in [*self.waiting]:
            self.write(shape, cache)


def read_whole_picture(samples: Filed, row: int) -> Tensor | None:
    """uint8 (3, H, W): the whole picture, scaled as the network sees it; None when it cannot be read."""
    if isinstance(samples, Images):
        assert samples.preparation is not None
        pixels = read_pixels(samples.files[row])
        return None if pixels is None else scale_image(pixels, samples.preparation)
    assert samples.preparation is not None
    file = samples.files[row]
    request: dict[str, Any] = {**request_for(file.image), "size": file.size}
    tensors = load_one(lambda request: (read_picture(request),), request)
    return None if isinstance(tensors, str) else scale_picture(tensors[0], samples.preparation)


def encode_ppm(picture: Tensor) -> bytes:
    """uint8 (3, H, W) as a PPM file, whose length hangs on the size of the picture alone."""
    height, width = picture.shape[1:]
    return f"P6\n{width} {height}\n255\n".encode() + picture.permute(1, 2, 0).contiguous().numpy().tobytes()


def keep_file(cache: FeatureCache, digest: bytes, file: ImageFile) -> ImageFile:
    """The restyled picture as a part of its shard, under the old name; the old file where it cannot be read."""
    if digest not in cache:
        return file
    data = bytes(cache.rows([digest])[0].numpy().tobytes())
    path, offset, length = cache.locate(digest)
    header = data[:64].split(b"\n", 2)
    if header[0] != b"P6":
        raise CorruptError(f"{path}: a row is no picture")
    width, height = (int(word) for word in header[1].split())
    return ImageFile(file.name, str(path), hash_content(data), offset, length, (height, width))
