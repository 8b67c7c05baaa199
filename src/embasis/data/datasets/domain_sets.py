"""Published sets that are arrays, read in memory from their packs as they are (or from an extracted folder).

| set | features | preparation |
| --- | --- | --- |
| Office-Caltech-10, SURF | N × 800 counts, 4 domains | rows to unit sum, then columns of a domain to unit scores |
| Office-Caltech-10, GoogLeNet | N × 1024, 3 domains (no caltech10) | as they are |
| MNIST, USPS | digits of 28×28 and 16×16, white on black, 0 … 255 | to 0 … 1; USPS in the frame of MNIST |

MNIST's digits lie in a box of 20×20 in the middle of their frame, USPS's fill theirs. So USPS's are enlarged to 20×20
and framed: a digit has the same size on both sides. (Enlarged to 28×28 it does not, and a network of MNIST reads 0.3
instead of 0.75 of them.) A digit's id is its number in the pack, so a subset keeps its identities.

The features are in MATLAB files of version 5, which have a reader of our own here, for scipy's crashes on damaged ones:

| bytes | meaning |
| --- | --- |
| 128 | words, the version 0x0100 and "IM" (little endian) |
| element | type and length (4 bytes each), content, filled up to 8 bytes; up to 4 bytes fit into the tag itself |
| element of type 15 | a compressed element |
| element of type 14 | a matrix: flags, dimensions, name, values column by column |

Only real matrices of numbers are read; cells, structures, text and sparse ones are passed over. No pack is ours to
ship: `root`, else the variable EMBASIS_DATA, else `../shared/data` names their folder.
"""

from __future__ import annotations

import itertools
import math
import os
import struct
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from embasis.data.tables.formats import open_pack
from embasis.errors import ConfigError, InputDataError, lookup, quoted, require
from embasis.randomness import permutation
from embasis.types import Arrays, LabelSchema, PathLike, Problem

FeatureArray = NDArray[np.float32]

PACK = "office_caltech10_surf_googlenet"
# The files number the classes 1 … 10. The counts of each class in each domain agree with the image folders of the
# same set in alphabetical order, so that is the order of the names.
OFFICE_CALTECH_CLASSES = (
    "backpack",
    "bike",
    "calculator",
    "headphones",
    "keyboard",
    "laptop",
    "monitor",
    "mouse",
    "mug",
    "projector",
)
SURF = {name: f"surf/{name}.mat" for name in ("amazon", "caltech10", "dslr", "webcam")}
GOOGLENET = {name: f"GoogleNet1024/{name}.mat" for name in ("amazon", "dslr", "webcam")}
PAIRS = {
    "office_caltech10_surf": tuple(itertools.permutations(SURF, 2)),
    "office_caltech10_googlenet": tuple(itertools.permutations(GOOGLENET, 2)),
    # The order of the columns in published tables.
    "office31": (
        ("amazon", "webcam"),
        ("dslr", "webcam"),
        ("webcam", "dslr"),
        ("amazon", "dslr"),
        ("dslr", "amazon"),
        ("webcam", "amazon"),
    ),
    "office_caltech10": tuple(itertools.permutations(SURF, 2)),
    "pacs": (("photo", "art_painting"), ("art_painting", "photo")),
}
"""The ordered pairs (source, target) of each set that a table has columns for; of images, too (image_sets.py)."""

LARGEST_MAT_FILE = 64 * 2**20
"""Bytes of one .mat file that we read; the largest published one has 4 MB."""
DIGIT_SIDE, DIGIT_BOX = 28, 20
LARGEST_PACK = 512 * 2**20
"""Bytes that a pack may take in memory; MNIST takes 55 MB."""
RESIZE_ROWS = 4096
MAT_TYPES = {1: "<i1", 2: "<u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
"""numpy's name of each type of numbers."""
MAT_MATRIX, MAT_PACKED, MAT_COMPLEX = 14, 15, 0x0800
MAT_NUMERIC = range(6, 16)
"""Classes of matrices that hold plain numbers."""
Matrix = NDArray[np.float64]


def office_caltech10_surf(root: PathLike | None = None, source: str = "amazon", target: str = "webcam") -> Problem:
    """Office-Caltech-10 as SURF bags of words (800): four domains, ten classes."""
    return _feature_problem("office_caltech10_surf", SURF, root, source, target, prepare=True)


def office_caltech10_googlenet(root: PathLike | None = None, source: str = "amazon", target: str = "webcam") -> Problem:
    """Office-Caltech-10 as GoogLeNet features (1024): three domains, ten classes."""
    return _feature_problem("office_caltech10_googlenet", GOOGLENET, root, source, target, prepare=False)


def _feature_problem(
    name: str, domains: dict[str, str], root: PathLike | None, source: str, target: str, prepare: bool
) -> Problem:
    require_domains(name, domains, source, target)
    sides = [read_features(name, find_data_folder(root), domains[domain]) for domain in (source, target)]
    (x_source, y_source), (x_target, y_target) = ((unit_scores(x) if prepare else x, y) for x, y in sides)
    return Problem(
        labelled=Arrays.of(torch.from_numpy(x_source), torch.from_numpy(y_source)),
        unlabelled=Arrays.of(torch.from_numpy(x_target)),
        schema=LabelSchema(OFFICE_CALTECH_CLASSES),
        hidden_labels=torch.from_numpy(y_target),
    )


def require_domains(name: str, domains: Mapping[str, object], source: str, target: str) -> None:
    """Source and target are two different domains of the set."""
    for domain in (source, target):
        lookup(domains, domain, f"domain of {name}")
    require(source != target, f"{name}: source and target must differ, got {quoted(source)} twice", ConfigError)


def find_data_folder(root: PathLike | None) -> Path:
    """The folder of data packs: what the caller says, else EMBASIS_DATA, else ../shared/data."""
    return Path(root if root is not None else os.environ.get("EMBASIS_DATA") or Path("..") / "shared" / "data")


def unit_scores(counts: FeatureArray) -> FeatureArray:
    """Rows to unit sum, then columns to mean 0 and deviation 1; constant columns and empty rows stay finite."""
    x = counts.astype(np.float64)
    x /= np.maximum(x.sum(1, keepdims=True), np.finfo(np.float32).tiny)
    x -= x.mean(0)
    deviation = x.std(0)
    return (x / np.where(deviation > 1e-12, deviation, 1.0)).astype(np.float32)


def read_features(name: str, root: Path, member: str) -> tuple[FeatureArray, NDArray[np.int64]]:
    """x (N, d) and y (N) in 0 … 9 of one .mat file."""
    stored = _read_member(name, root, member)
    begins = stored.startswith(b"MATLAB 5.0 MAT-file")  # the format before it has no mark that it could be known by
    require(begins, f"{name}: {member} in {root} is not a .mat file with fts and labels: it does not begin like one")
    try:
        content = read_mat(stored, LARGEST_MAT_FILE)
        with np.errstate(over="ignore", invalid="ignore"):  # what does not fit is refused below
            x, y = content["fts"].astype(np.float32), content["labels"].ravel().astype(np.int64) - 1
    except (KeyError, ValueError, zlib.error) as error:
        raise InputDataError(f"{name}: {member} in {root} is not a .mat file with fts and labels: {error}") from error
    require(
        x.ndim == 2 and len(x) == len(y) > 0 and np.isfinite(x).all(),
        f"{name}: {member} in {root} must hold finite fts (N, d) and N labels, got {x.shape} and {y.shape}",
    )
    low, high = int(y.min()) + 1, int(y.max()) + 1
    require(
        low >= 1 and high <= len(OFFICE_CALTECH_CLASSES),
        f"{name}: labels of {member} must be in 1..10, got {low}..{high}",
    )
    return x, y


def _read_member(name: str, root: Path, member: str) -> bytes:
    """The bytes of one file of the pack: from an extracted folder (the root, or one named as the pack) or the tar."""
    for folder in (root / PACK, root):
        if (folder / member).is_file():
            return (folder / member).read_bytes()
    pack = root / f"{PACK}.tar"
    require(pack.is_file(), f"{name}: no file {pack.name} in {root}; set --root or EMBASIS_DATA")
    try:
        with tarfile.open(pack, "r:") as archive:
            info = archive.getmember(member)
            require(
                info.size <= LARGEST_MAT_FILE,
                f"{name}: {member} in {pack} has {info.size} bytes, over {LARGEST_MAT_FILE}",
            )
            stream = archive.extractfile(info)
            require(stream is not None, f"{name}: {member} in {pack} is not a file")
            return stream.read() if stream is not None else b""
    except (KeyError, tarfile.TarError) as error:
        raise InputDataError(f"{name}: {pack} cannot be read: {error}") from error


def mnist_usps(
    root: PathLike | None = None, labelled_rows: int = 2000, unlabelled_rows: int = 1800, seed: int = 0
) -> Problem:
    """MNIST -> USPS digits, 28×28; 2,000 -> 1,800 rows is the protocol of Long et al. (2013), 0 = all rows."""
    folder = find_data_folder(root)
    mnist, usps = read_digit_pack(folder, "mnist"), read_digit_pack(folder, "usps")
    labelled = _draw_rows(mnist["train_x"], labelled_rows, seed, "labelled_rows")
    unlabelled = _draw_rows(usps["train_x"], unlabelled_rows, seed, "unlabelled_rows")
    return Problem(
        labelled=_digit_samples(mnist["train_x"], mnist["train_y"], labelled),
        unlabelled=_digit_samples(usps["train_x"], None, unlabelled),
        schema=LabelSchema(tuple(str(digit) for digit in range(10))),
        test=_digit_samples(usps["test_x"], usps["test_y"], torch.arange(len(usps["test_x"]))),
        hidden_labels=torch.from_numpy(usps["train_y"].astype(np.int64))[unlabelled],
    )


def _draw_rows(x: NDArray[np.uint8], count: int, seed: int, setting: str) -> Tensor:
    """Row numbers in order: all, or so many drawn without putting back."""
    require(0 <= count <= len(x), f"mnist_usps: {setting} must be in 0..{len(x)} (0 = all), got {count}", ConfigError)
    return permutation(len(x), seed, f"mnist_usps: {setting}")[: count or len(x)].sort().values


def _digit_samples(x: NDArray[np.uint8], y: NDArray[np.uint8] | None, rows: Tensor) -> Arrays:
    """Float32 (N, 1, 28, 28) in 0 … 1."""
    pixels = torch.from_numpy(x[rows.numpy()]).unsqueeze(1)
    scaled = torch.cat([_frame_digits(part.float() / 255) for part in pixels.split(RESIZE_ROWS)])
    labels = None if y is None else torch.from_numpy(y.astype(np.int64))[rows]
    return Arrays.of(scaled, labels, rows)


def _frame_digits(x: Tensor) -> Tensor:
    """Digits in a box of 20×20 with a frame of 4 around them; those that have it already stay."""
    if x.shape[-1] == DIGIT_SIDE:
        return x
    box = functional.interpolate(x, size=(DIGIT_BOX, DIGIT_BOX), mode="bilinear", align_corners=False)
    frame = (DIGIT_SIDE - DIGIT_BOX) // 2
    return functional.pad(box, (frame, frame, frame, frame))


def read_digit_pack(root: Path, name: str) -> dict[str, NDArray[np.uint8]]:
    """The four arrays of a pack; no pickle is read."""
    path = root / f"{name}.npz"
    require(path.is_file(), f"mnist_usps: no file {path.name} in {root}; set --root or EMBASIS_DATA")
    fault = "not a pack with train_x, train_y, test_x, test_y"
    try:
        with open_pack(path, LARGEST_PACK, fault) as pack:
            arrays = {key: pack.read(key) for key in ("train_x", "train_y", "test_x", "test_y")}
    except OSError as error:
        raise InputDataError(f"{path}: {fault}: {error}") from error
    for part in ("train", "test"):
        x, y = arrays[f"{part}_x"], arrays[f"{part}_y"]
        is_intact = (
            x.dtype == y.dtype == np.uint8 and x.ndim == 3 and x.shape[1] == x.shape[2] and y.shape == x.shape[:1]
        )
        got = f"{x.dtype} {x.shape} and {y.dtype} {y.shape}"
        require(
            is_intact and len(x) > 0 and y.max() <= 9,
            f"{path}: {part}_x must be uint8 (N, s, s), {part}_y N digits, got {got}",
        )
    return arrays


def read_mat(data: bytes, largest: int) -> dict[str, Matrix]:
    """Every matrix of numbers by its name, float64; ValueError says what is wrong with the file."""
    if len(data) < 128 or data[124:128] != b"\x00\x01IM":
        raise ValueError("it is no MATLAB file of version 5")
    matrices: dict[str, Matrix] = {}
    for kind, content in _mat_elements(memoryview(data)[128:], filled=False):
        if kind == MAT_PACKED:
            kind, content = next(_mat_elements(memoryview(_unpack(content, largest))), (0, content))
        if kind == MAT_MATRIX:
            matrices |= _mat_matrix(content)
    return matrices


def _unpack(content: memoryview, largest: int) -> bytes:
    inflater = zlib.decompressobj()
    data = inflater.decompress(content, largest)
    if inflater.unconsumed_tail:
        raise ValueError(f"a part takes more than {largest} bytes unpacked")
    return data


def _mat_elements(data: memoryview, filled: bool = True) -> Iterator[tuple[int, memoryview]]:
    """(type, content) one after the other; on the first level only matrices are filled up to 8 bytes."""
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack("<II", data[at : at + 8])
        start, step = at + 8, 8 + size
        if kind >> 16:
            kind, size, start, step = kind & 0xFFFF, kind >> 16, at + 4, 8
        elif filled or kind != MAT_PACKED:
            step = 8 + -(-size // 8) * 8
        if size > len(data) - start or (step == 8 and size > 4 and start == at + 4):
            raise ValueError(f"it ends within a part of {size} bytes")
        yield kind, data[start : start + size]
        at += step


def _mat_matrix(content: memoryview) -> dict[str, Matrix]:
    parts = list(_mat_elements(content))
    if len(parts) < 4 or len(parts[0][1]) < 8:
        return {}
    (flags,) = struct.unpack("<I", parts[0][1][:4])
    kind, values = parts[3]
    if flags & 0xFF not in MAT_NUMERIC or flags & MAT_COMPLEX or kind not in MAT_TYPES:
        return {}
    shape = tuple(np.frombuffer(parts[1][1][: len(parts[1][1]) // 4 * 4], "<i4").tolist())
    dtype = np.dtype(MAT_TYPES[kind])
    if len(shape) != 2 or min(shape) < 0 or math.prod(shape) * dtype.itemsize != len(values):
        raise ValueError(f"a matrix of shape {shape} has {len(values)} bytes of {dtype.name}")
    name = bytes(parts[2][1]).decode("latin-1")
    return {name: np.frombuffer(values, dtype).reshape(shape, order="F").astype(np.float64)}
