"""Small images, folders and archives of them, and miniatures of the published sets."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from embasis.data.datasets.array_sets import (
    AMAZON_REVIEWS,
    GAS_DRIFT,
    HEART_DISEASE,
    SPOKEN_DIGITS,
    WISDM,
    ArraySet,
)
from embasis.data.datasets.digit_sets import DIGIT_SIDE
from embasis.data.datasets.domain_sets import OFFICE31, OFFICE_CALTECH10, PACS, VISDA17, ImageSet
from embasis.errors import InputDataError
from paths import DATA


def picture(number: int = 0, side: int = 40, kind: str = "PNG") -> bytes:
    """An image of its own for each number."""
    pixels = np.random.default_rng(number).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).resize((side, side)).save(stream, kind)
    return stream.getvalue()


def plant(root: Path, content: Mapping[str, bytes]) -> Path:
    """Files below a folder."""
    for name, data in content.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def pictures(names: Iterable[str], start: int = 0) -> dict[str, bytes]:
    """Different images under these names."""
    return {name: picture(start + number) for number, name in enumerate(names)}


def archive(path: Path, content: Mapping[str, bytes]) -> Path:
    """An uncompressed tar."""
    with tarfile.open(path, "w") as tar:
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def refusal(call) -> str:
    """The sentence with which the data are refused."""
    with pytest.raises(InputDataError) as caught:
        call()
    return str(caught.value)


def domain(kind: ImageSet, name: str, each: int = 2) -> dict[str, bytes]:
    """One domain of a published set in its official layout, with `each` tiny images of each class."""
    start = list(kind.counts).index(name) * 10_000
    ending = "png" if kind is VISDA17 else "jpg"
    names = [f"{label}/frame_{frame:04}.{ending}" for label in kind.classes for frame in range(1, each + 1)]
    files = {f"{kind.below(name)}/{path}": data for path, data in pictures(names, start).items()}
    if kind is VISDA17:
        lines = [f"{path} {kind.classes.index(path.split('/')[0])}" for path in names]
        files[f"{name}/image_list.txt"] = "\n".join([*lines, ""]).encode()
    return files


def whole(kind: ImageSet) -> dict[str, bytes]:
    """All domains of a published set."""
    return {path: data for name in kind.counts for path, data in domain(kind, name).items()}


def digit_packs(root: Path) -> Path:
    """Miniatures of mnist.npz and usps.npz: 30 + 20 rows each."""
    for name, side in (("mnist", DIGIT_SIDE), ("usps", 16)):
        draw = np.random.default_rng(side)
        arrays = {}
        for part, rows in (("train", 30), ("test", 20)):
            arrays[f"{part}_x"] = draw.integers(0, 256, (rows, side, side), dtype=np.uint8)
            arrays[f"{part}_y"] = (np.arange(rows) % 10).astype(np.uint8)
        np.savez(root / f"{name}.npz", **arrays)
    return root


def array_pack(root: Path, kind: ArraySet, each: int = 2, **changes: Any) -> Path:
    """A miniature of a set in one .npz file: `each` rows of every class in every domain; `changes` replace arrays."""
    count = len(kind.domains) * len(kind.classes) * each
    arrays = {
        "X": np.random.default_rng(count).normal(size=(count, *kind.shape)).astype(np.float32),
        "y": np.arange(count) % len(kind.classes),
        "domain": np.repeat(np.array(kind.domains), len(kind.classes) * each),
        "notes": np.zeros(3),
    }
    np.savez(root / kind.file, **{name: array for name, array in (arrays | changes).items() if array is not None})
    return root


def real_data(name: str) -> Path:
    """A real pack, or the test is skipped."""
    root = DATA
    if not (root / name).is_file():
        pytest.skip(f"the real pack {name} is not in {root}; set EMBASIS_DATA to test on it")
    return root


SETS = {"office31": OFFICE31, "office_caltech10": OFFICE_CALTECH10, "pacs": PACS, "visda17": VISDA17}
ARRAY_SETS = {kind.name: kind for kind in (WISDM, GAS_DRIFT, HEART_DISEASE, AMAZON_REVIEWS, SPOKEN_DIGITS)}
