"""What the data of a run are known by: a hash of each side, and a mark of each row, so that a change can be named."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from embasis.data.images.samples import Images
from embasis.data.segmentation.samples import MapArrays, MapFiles, MapTruth
from embasis.inputs import sides_of
from embasis.inputs.image_rows import CachedFeatures
from embasis.types import GroundTruth, Problem, Samples, fine_of

Marks = NDArray[np.int64]

MARK = 8
"""Bytes of a row's mark: enough to see that a row is another one."""
HASHED_ROWS = 4096


def fingerprint(problem: Problem) -> dict[str, str]:
    """sha256 of each side of the data: a run goes on only with what it began with."""
    hashes = {name: side_hash(side) for name, side in sides_of(problem).items()}
    names = "\x1f".join(problem.schema.names).encode() + b"\x1e"
    coded = repr(problem.labelled.table).encode() if isinstance(problem.labelled, MapFiles) else b""
    return {**hashes, "labels": hashlib.sha256(names + hidden_bytes(problem.hidden_labels) + coded).hexdigest()}


def hidden_bytes(truth: GroundTruth | None) -> bytes:
    """True labels that are never trained on: scores depend on them."""
    if isinstance(truth, torch.Tensor):
        return bytes(truth.numpy().tobytes())
    return truth.mark() if isinstance(truth, MapTruth) else b""


def side_hash(samples: Samples) -> str:
    """sha256 over inputs, labels and ids."""
    digest = hashlib.sha256(f"{len(samples)}".encode())
    for block in side_bytes(samples):
        digest.update(block)
    digest.update(samples.labels.numpy().tobytes() + samples.ids.numpy().tobytes())
    return digest.hexdigest()


def side_bytes(samples: Samples) -> Iterator[bytes]:
    """What a side's inputs are made of: the hashes of its files, or all bytes of pictures, maps and rows in memory.

    What float32 loses of rows is nothing for most data, so that their hashes are those of older releases."""
    if isinstance(samples, CachedFeatures | Images | MapFiles):
        yield from row_bytes(samples)
    elif isinstance(samples, MapArrays):
        yield samples.pictures.numpy().tobytes()
        yield b"" if samples.maps is None else samples.maps.numpy().tobytes()
    else:
        fine = fine_of(samples)
        for rows in torch.arange(len(samples)).split(HASHED_ROWS):
            yield samples.inputs(rows).contiguous().numpy().tobytes()
            yield b"" if fine is None else fine.values[rows].contiguous().numpy().tobytes()


def marks_of(problem: Problem) -> dict[str, Marks]:
    """A short hash of each row with its label, side by side."""
    return {name: side_marks(side) for name, side in sides_of(problem).items()}


def side_marks(samples: Samples) -> Marks:
    """(N) 64 bits of the hash of each row."""
    labels = samples.labels.numpy().astype("<i8")
    marks = (
        hashlib.blake2b(data + label.tobytes(), digest_size=MARK).digest()
        for data, label in zip(row_bytes(samples), labels, strict=True)
    )
    return np.frombuffer(b"".join(marks), "<i8")


def rows_of(problem: Problem, marks: Mapping[str, Marks]) -> dict[str, Any]:
    """A table of all rows: their side, id, name (if they have one) and mark."""
    sides = sides_of(problem)
    return {
        "side": [name for name, side in sides.items() for _ in range(len(side))],
        "id": np.concatenate([side.ids.numpy() for side in sides.values()]),
        "name": [name for key, side in sides.items() for name in names_of(problem, key, side)],
        "mark": np.concatenate([marks[name] for name in sides]),
    }


def names_of(problem: Problem, side: str, samples: Samples) -> Sequence[str]:
    """What people know the rows by; '' where that is the id."""
    if isinstance(samples, Images | MapFiles):
        return [file.name for file in samples.files]
    if side == "unlabelled" and problem.row_names is not None:
        return problem.row_names
    if len(names := problem.other_names.get(side, ())) == len(samples):
        return names
    return [""] * len(samples)


def row_bytes(samples: Samples) -> Iterator[bytes]:
    """What each row is made of, or a hash of it."""
    if isinstance(samples, CachedFeatures):
        yield from samples.digests
    elif isinstance(samples, Images):
        yield from (file.digest for file in samples.files)
    elif isinstance(samples, MapFiles):
        yield from (file.image.digest + (b"" if file.label is None else file.label.digest) for file in samples.files)
    elif isinstance(samples, MapArrays):
        for row, picture in enumerate(samples.pictures):
            map_ = b"" if samples.maps is None else samples.maps[row].contiguous().numpy().tobytes()
            yield picture.contiguous().numpy().tobytes() + map_
    else:
        for rows in torch.arange(len(samples)).split(HASHED_ROWS):
            inputs, fine = samples.inputs(rows).contiguous().numpy(), fine_of(samples)
            more = [b""] * len(rows) if fine is None else [row.tobytes() for row in fine.values[rows].numpy()]
            yield from (values.tobytes() + rest for values, rest in zip(inputs, more, strict=True))
