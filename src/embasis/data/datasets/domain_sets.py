"""Office-Caltech-10 as published features, read in memory from the pack as it is (or from its extracted folder).

| set | features | preparation |
| --- | --- | --- |
| SURF | N × 800 counts, 4 domains | rows to unit sum, then each column of a domain to mean 0 and deviation 1 |
| GoogLeNet | N × 1024, 3 domains (no caltech10) | as they are |

The pack is not ours to ship: `root`, else the variable EMBASIS_DATA, else `../shared/data` names its folder.
"""

from __future__ import annotations

import itertools
import os
import tarfile
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from embasis.data.datasets.mat import read_mat
from embasis.errors import ConfigError, InputDataError, lookup, quoted, require
from embasis.types import Arrays, LabelSchema, Problem

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


def office_caltech10_surf(
    root: str | os.PathLike[str] | None = None, source: str = "amazon", target: str = "webcam"
) -> Problem:
    """Office-Caltech-10 as SURF bags of words (800): four domains, ten classes."""
    return _feature_problem("office_caltech10_surf", SURF, root, source, target, prepare=True)


def office_caltech10_googlenet(
    root: str | os.PathLike[str] | None = None, source: str = "amazon", target: str = "webcam"
) -> Problem:
    """Office-Caltech-10 as GoogLeNet features (1024): three domains, ten classes."""
    return _feature_problem("office_caltech10_googlenet", GOOGLENET, root, source, target, prepare=False)


def _feature_problem(
    name: str, domains: dict[str, str], root: str | os.PathLike[str] | None, source: str, target: str, prepare: bool
) -> Problem:
    members = [lookup(domains, domain, f"domain of {name}") for domain in (source, target)]
    require(source != target, f"{name}: source and target must differ, got {quoted(source)} twice", ConfigError)
    sides = [read_features(name, find_data_folder(root), member) for member in members]
    (x_source, y_source), (x_target, y_target) = ((unit_scores(x) if prepare else x, y) for x, y in sides)
    return Problem(
        labelled=Arrays.of(torch.from_numpy(x_source), torch.from_numpy(y_source)),
        unlabelled=Arrays.of(torch.from_numpy(x_target)),
        schema=LabelSchema(OFFICE_CALTECH_CLASSES),
        hidden_labels=torch.from_numpy(y_target),
    )


def find_data_folder(root: str | os.PathLike[str] | None) -> Path:
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
