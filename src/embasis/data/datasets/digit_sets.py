"""Handwritten digits of two origins as arrays: MNIST (28×28) and USPS (16×16).

Both packs are white on black, 0 … 255, and normalised in size: MNIST's digits lie in a box of 20×20 in the middle of
their frame, USPS's fill theirs. So USPS's are enlarged to 20×20 and framed: a digit has the same size on both sides.
(Enlarged to 28×28 it does not, and a network of MNIST reads 0.3 instead of 0.75 of them.) A row's id is its number in
the pack, so a subset keeps its identities.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from embasis.data.tables.formats import open_pack
from embasis.errors import ConfigError, InputDataError, require
from embasis.randomness import permutation
from embasis.types import Arrays, LabelSchema, Problem

DIGIT_SIDE, DIGIT_BOX = 28, 20
LARGEST_PACK = 512 * 2**20
"""Bytes that a pack may take in memory; MNIST takes 55 MB."""
RESIZE_ROWS = 4096


def digit_problem(root: Path, labelled_rows: int, unlabelled_rows: int, seed: int) -> Problem:
    """MNIST's training rows are labelled, USPS's are not; USPS's test rows are for scores."""
    mnist, usps = read_digit_pack(root, "mnist"), read_digit_pack(root, "usps")
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
