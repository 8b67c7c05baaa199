"""Images as rows: those that a user names by path or gives in memory, and their features on disk.

The features are those that the frozen part of a backbone has computed; here is what they depend on, and how they are
read.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from embasis.config import Config
from embasis.data.class_labels import NO_LABEL
from embasis.data.images.files import ImageFile, Scan, escape_name
from embasis.data.images.header import UnreadableImage
from embasis.data.images.pixels import decode
from embasis.data.images.saved_images import scan_saved_images
from embasis.data.images.scan import is_list, scan_file, scan_folder, scan_list
from embasis.data.images.tar_shards import open_tar_shards
from embasis.data.parts import WHOLE, Part, own_pieces, rows_of_piece
from embasis.data.saved_dataset import find_saved_dataset
from embasis.data.shards import PARQUET, TAR, find_shards, shard_kind
from embasis.data.worker_process import read_checked, request_for
from embasis.distributed import current_world
from embasis.engine.features import CHUNK_ROWS
from embasis.errors import EmbasisWarning, InputDataError, ResourceError, require
from embasis.inputs import RowBatch, RowSource, SourceOptions
from embasis.networks.backbone import Backbone
from embasis.report.collect import PixelReader
from embasis.storage.feature_cache import CACHE_ADVICE, FeatureCache, cache_folder, require_cache_usable
from embasis.types import Arrays, PathLike, Problem, RowSamples

STEM_BATCH = 16
"""Images that go through the frozen part together."""
PIXELS_VERSION = 1
"""Raised when decoding or preparation changes a pixel: features that were kept before are then not used."""


def is_image_side(path: str) -> bool:
    """A folder, or a table with a column of paths; not if these are the shards of a table, or a saved one."""
    if (dataset := find_saved_dataset(path)) is not None:
        return bool(dataset.images)
    return (os.path.isdir(path) or (os.path.isfile(path) and is_list(path))) and shard_kind(path) != PARQUET


@dataclass(frozen=True, eq=False)
class GivenImages:
    """What a user names to have it labelled: files, or pictures in memory."""

    files: list[ImageFile] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    """Why files cannot be read, by name."""
    pictures: list[Any] = field(default_factory=list)
    order: list[str] | None = None
    """The names of files in the order in which they were given, repeats included."""

    def rows_of_piece(self) -> int:
        """How many files a process reads before it hands in their labels."""
        return rows_of_piece(len(self.files), STEM_BATCH, CHUNK_ROWS)

    def own_files(self, size: int) -> list[ImageFile]:
        """The files that this process reads, in pieces of `size` of them."""
        return [self.files[place] for piece in own_pieces(range(len(self.files)), size) for place in piece]

    def take(self, part: Part) -> GivenImages:
        """The files of a part, those that cannot be read among them, in the order of their names."""
        if part == WHOLE:
            return self
        rows: list[tuple[str, ImageFile | None]] = [(file.name, file) for file in self.files]
        rows = sorted([*rows, *((name, None) for name in self.rejected)], key=lambda row: row[0])
        rows = [rows[number] for number in part.rows(len(rows))]
        rejected = {name: self.rejected[name] for name, file in rows if file is None}
        return GivenImages([file for _, file in rows if file is not None], rejected)

    @property
    def fingerprint(self) -> str:
        """A hash of the names and contents of all files, where several processes must read the same; else nothing."""
        if current_world().size == 1:
            return ""
        facts = [f"{file.name}\0{file.digest.hex()}" for file in self.files]
        return hashlib.sha256("\n".join(sorted([*facts, *self.rejected])).encode()).hexdigest()


def find_images(source: Any, follow_links: bool = False) -> GivenImages:
    """A folder, list or file; or a sequence of paths, arrays (H, W, 3), tensors (3, H, W) or PIL images."""
    if isinstance(source, str | os.PathLike):
        scan = scan_path(os.fspath(source), follow_links)
        return GivenImages(list(scan.files), {item.name: item.reason for item in scan.rejected})
    one = getattr(source, "ndim", 0) in (2, 3) or not isinstance(source, Iterable)
    items = [source] if one else list(source)
    require(len(items) > 0, "images: at least one is needed, got none")
    paths = [isinstance(item, str | os.PathLike) for item in items]
    if not any(paths):
        return GivenImages(pictures=items)
    require(all(paths), "images: paths and pictures cannot be mixed in one call", InputDataError)
    files, rejected = list[ImageFile](), dict[str, str]()
    for path in dict.fromkeys(os.fspath(item) for item in items):  # one that cannot be read does not stop the others
        scan = scan_file(path)
        files += scan.files
        rejected |= {item.name: item.reason for item in scan.rejected}
    return GivenImages(files, rejected, order=[escape_name(os.fsencode(item)) for item in items])


def has_tar_shards(source: Any) -> bool:
    """Whether images are named by a folder or list of tar shards."""
    return isinstance(source, str | os.PathLike) and shard_kind(source) == TAR


def open_shard_rows(
    source: PathLike, options: SourceOptions, read: Callable[[Sequence[ImageFile]], Iterator[RowBatch]]
) -> RowSource:
    """The images of tar shards, one chunk of one shard after the other, in the order of their names; `read` makes rows
    of files."""
    shards = open_tar_shards(find_shards(source, options.follow_links))
    rows = options.part.rows(shards.manifest.total)
    for note in shards.notes:
        warnings.warn(EmbasisWarning(note), stacklevel=4)  # the caller of predict

    def batches() -> Iterator[RowBatch]:
        for chunk in shards.chunks(rows, rows_of_piece(len(rows), STEM_BATCH, CHUNK_ROWS)):
            refused = {item.name: item.reason for item in chunk.rejected}
            read_rows = read(chunk.files) if chunk.files else iter([RowBatch([], torch.empty(0), None)])
            for batch in read_rows:  # one, since a chunk is no larger
                yield replace(batch, rejected={**refused, **batch.rejected})

    return RowSource(batches(), len(rows), unit="images", fingerprint=shards.manifest.fingerprint)


def scan_path(path: str, follow_links: bool) -> Scan:
    """The images of a folder, of a list, of a saved data set, or the one that is named."""
    if (dataset := find_saved_dataset(path)) is not None:
        rule = f"{path}: is a table without a column of images, the run labels images"
        require(dataset.images, rule, InputDataError)
        return scan_saved_images(dataset, NO_LABEL)[0]
    if shard_kind(path) == TAR:
        return open_tar_shards(find_shards(path, follow_links)).scan()
    if os.path.isdir(path):
        return scan_folder(path, follow_links=follow_links)
    if is_image_side(path):
        return scan_list(path, follow_links=follow_links)[0]
    table = os.path.isfile(path) and path.lower().endswith((".csv", ".npy", ".npz", ".parquet"))
    hint = "name a folder, an image, or a .csv with a column path"
    require(not table, f"{path}: is a table without a column path, the run labels images; {hint}", InputDataError)
    return scan_file(path)


def pixel_reader(problem: Problem, files: Sequence[ImageFile]) -> PixelReader | None:
    """What reads the pictures of the unlabelled rows, for the report: from files, if rows are files; None where rows
    are no pictures."""
    if files:
        return lambda row: read_pixels(files[row])
    side = problem.unlabelled
    if not isinstance(side, Arrays) or side.x.ndim != 4 or side.x.shape[1] not in (1, 3) or not side.x.numel():
        return None
    low, high = float(side.x.min()), float(side.x.max())
    span = 255 / (high - low) if high > low else 0.0
    return lambda row: ((side.x[row] - low) * span).round().to(torch.uint8).expand(3, -1, -1)


def read_pixels(file: ImageFile) -> Tensor | None:
    """The pixels of a file, or None: whoever reads the file for training reports what is wrong with it."""
    try:
        return decode(read_checked(request_for(file)))
    except (UnreadableImage, OSError):
        return None


@dataclass(frozen=True, eq=False)
class CachedFeatures(RowSamples):
    """Samples whose rows lie in the feature cache: read when they are needed, so memory stays small."""

    cache: FeatureCache
    digests: tuple[bytes, ...]
    labels: Tensor
    ids: Tensor

    def inputs(self, rows: Tensor) -> Tensor:
        """Maps of the given rows."""
        return self.cache.rows([self.digests[row] for row in rows.tolist()])


def open_cache(given: str, key: str) -> FeatureCache:
    """The feature cache in the folder that is given, else in the usual one."""
    try:
        return FeatureCache(cache_folder(given), key)
    except PermissionError as error:
        raise ResourceError(f"cannot read {error.filename}: {error.strerror}; {CACHE_ADVICE}") from error


def find_cache(key: str) -> FeatureCache | None:
    """What earlier runs have left in the usual folder, only to read; None where there is nothing."""
    try:
        cache = FeatureCache(cache_folder(), key, late=True)
    except ResourceError:
        return None
    return cache if len(cache) else None


def cache_key(backbone: Backbone, trained: int) -> str:
    """What features depend on beside the image: the weights, the preparation, the cut, and a GPU's coarser products."""
    parts = [backbone.identity, repr(backbone.preparation), str(trained), str(STEM_BATCH), str(PIXELS_VERSION)]
    parts += ["cuda"] if torch.cuda.is_available() else []
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def require_cache_place(config: Config) -> None:
    """A feature cache that is empty and cannot be written to is an error before the images are even searched for."""
    depth = config.images.get("depth", "auto")
    if depth in ("frozen", "partial") or (depth == "auto" and not torch.cuda.is_available()):
        require_cache_usable(cache_folder(str(config.images.get("cache", ""))))
