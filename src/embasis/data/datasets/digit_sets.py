"""Digits: rendered ones against real handwriting, which need no download, MNIST against USPS; and two toys for tests.

| symbol | meaning |
| --- | --- |
| N | rows |
| stroke (P, 2) | a polyline in the unit square, x to the right, y down |
| bitmap (B, 32, 32) | set and unset pixels |
| x (N, 1, 8, 8) | set pixels in each 4×4 block, divided by 16: how the real set was made |

MNIST's digits lie in a box of 20×20 in the middle of their frame of 28×28, USPS's fill theirs of 16×16. So USPS's are
enlarged to 20×20 and framed: a digit has the same size on both sides. (Enlarged to 28×28 it does not, and a network of
MNIST reads 0.3 instead of 0.75 of them.) A digit's id is its number in the pack, so a subset keeps its identities. The
packs are not ours to ship: `root`, else the variable EMBASIS_DATA, else `../shared/data` names their folder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from embasis.data.datasets.domain_sets import find_data_folder
from embasis.data.formats import open_pack
from embasis.errors import ConfigError, InputDataError, require
from embasis.randomness import generator, permutation, uniforms
from embasis.types import Arrays, LabelSchema, PathLike, Problem

Floats = NDArray[np.float32]
Point = tuple[float, float]
Stroke = Sequence[Point]

BITMAP_SIDE, PIXEL_BLOCK = 32, 4
DIGIT_SIDE, DIGIT_BOX = 28, 20
LARGEST_PACK = 512 * 2**20
"""Bytes that a pack may take in memory; MNIST takes 55 MB."""
RESIZE_ROWS = 4096


def digits(seed: int = 0, count: int = 5000) -> Problem:
    """Virtual digits drawn from strokes -> the 1,797 handwritten digits that scikit-learn ships; 10 classes, 8×8."""
    require_at_least("digits", count=(count, 10))
    from sklearn.datasets import load_digits

    real = load_digits()
    virtual, labels = render(torch.arange(count), seed)
    return Problem(
        labelled=Arrays.of(virtual, labels),
        unlabelled=Arrays.of(torch.from_numpy(real.images.astype(np.float32) / PIXEL_BLOCK**2).unsqueeze(1)),
        schema=LabelSchema(tuple(str(name) for name in range(10))),
        hidden_labels=torch.from_numpy(real.target.astype(np.int64)),
    )


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


def blobs(
    seed: int = 0, classes: int = 3, features: int = 8, count: int = 150, shift: float = 1.0, separation: float = 4.0
) -> Problem:
    """Gaussian classes; the unlabelled side is moved by `shift` in a random direction. `count` rows a side."""
    require_at_least("blobs", classes=(classes, 2), features=(features, 1), count=(count, classes))
    centres = torch.randn(classes, features, generator=generator(seed, "blobs", 0))
    centres = separation * centres / centres.norm(dim=1, keepdim=True)
    direction = torch.randn(features, generator=generator(seed, "blobs", 1))
    y = torch.arange(count) % classes
    sides = [centres[y] + torch.randn(count, features, generator=generator(seed, "blobs", 2 + side)) for side in (0, 1)]
    return _toy_problem(sides[0], sides[1] + shift * direction / direction.norm(), y, classes)


def moons(seed: int = 0, count: int = 200, rotate: float = 30.0) -> Problem:
    """Two half moons; the unlabelled side is turned by `rotate` degrees. `count` rows a side."""
    require_at_least("moons", count=(count, 2))
    y = torch.arange(count) % 2
    sides = []
    for side in (0, 1):
        draw = generator(seed, "moons", side)
        angle = math.pi * torch.rand(count, generator=draw)
        upper = torch.stack([angle.cos() - 0.5, angle.sin() - 0.25], 1)
        x = torch.where(y.unsqueeze(1) == 0, upper, -upper)
        sides.append(x + 0.1 * torch.randn(count, 2, generator=draw))
    turn = math.radians(rotate)
    rotation = torch.tensor([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    return _toy_problem(sides[0], sides[1] @ rotation, y, 2)


def require_at_least(name: str, **values: tuple[int, int]) -> None:
    """Each setting has a value that is at least the number beside it."""
    for setting, (value, least) in values.items():
        require(value >= least, f"{name}: {setting} must be at least {least}, got {value}", ConfigError)


def _toy_problem(labelled: Tensor, unlabelled: Tensor, y: Tensor, classes: int) -> Problem:
    schema = LabelSchema(tuple(str(name) for name in range(classes)))
    return Problem(Arrays.of(labelled, y), Arrays.of(unlabelled), schema, hidden_labels=y)


# Pose of a virtual digit: (low, high), drawn evenly. Widths and shifts are in pixels of the 32×32 bitmap, angles in
# degrees. The ranges set how hard the step to real handwriting is: logistic regression gets 0.62 to 0.64 (seeds 0-4).
DIGIT_POSE = {
    "rotation": (-20.0, 20.0),
    "shear": (-0.3, 0.3),
    "height": (18.0, 30.0),
    "aspect": (0.5, 0.9),
    "shift x": (-4.0, 4.0),
    "shift y": (-4.0, 4.0),
    "stroke width": (2.0, 5.0),
}


def render(ids: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Virtual digits x (N, 1, 8, 8) in [0, 1] and their classes; each row depends on its id and the seed alone."""
    y = ids % 10
    pose = draw_pose(ids, seed, "virtual digits", DIGIT_POSE)
    x = np.zeros((len(ids), BITMAP_SIDE // PIXEL_BLOCK, BITMAP_SIDE // PIXEL_BLOCK), dtype=np.float32)
    for rows, nearest in draw_strokes(y.numpy(), uniforms(ids, seed, "virtual digits: style").numpy(), pose):
        ink = nearest <= (pose["stroke width"][rows, None, None] / 2) ** 2
        blocks = ink.reshape(-1, BITMAP_SIDE // PIXEL_BLOCK, PIXEL_BLOCK, BITMAP_SIDE // PIXEL_BLOCK, PIXEL_BLOCK)
        x[rows] = blocks.sum((2, 4), dtype=np.float32)
    return torch.from_numpy(x / PIXEL_BLOCK**2).unsqueeze(1), y


def draw_strokes(
    y: NDArray[np.int64], style: NDArray[np.float64], pose: dict[str, Floats], side: int = BITMAP_SIDE
) -> Iterator[tuple[NDArray[np.int64], Floats]]:
    """Some rows after others: their numbers, and (B, s, s) the squared distance of each pixel to the digit's strokes.

    The pose has a number for each row; a pixel within half a stroke width is ink.
    """
    for digit, styles in enumerate(DIGIT_STYLES):
        chosen = np.floor(style * len(styles)).astype(np.int64)
        for number, strokes in enumerate(styles):
            rows = np.flatnonzero((y == digit) & (chosen == number))
            for part in np.array_split(rows, max(1, math.ceil(len(rows) / 128))):
                yield part, _stroke_distances(strokes, {name: values[part] for name, values in pose.items()}, side)


def draw_pose(ids: Tensor, seed: int, purpose: str, spans: dict[str, Point]) -> dict[str, Floats]:
    """A number for each row and each part of a pose, drawn evenly between low and high."""
    return {
        name: (low + (high - low) * uniforms(ids, seed, f"{purpose}: {name}").numpy()).astype(np.float32)
        for name, (low, high) in spans.items()
    }


def _stroke_distances(strokes: Sequence[Stroke], pose: dict[str, Floats], side: int) -> Floats:
    """(B, s, s) squared, from the centre of each pixel to the nearest segment of the strokes."""
    turn = np.radians(pose["rotation"])
    cos, sin = np.cos(turn)[:, None], np.sin(turn)[:, None]
    grid = np.arange(side, dtype=np.float32) + 0.5
    px, py = np.tile(grid, side), np.repeat(grid, side)
    nearest = np.full((len(turn), side * side), np.inf, dtype=np.float32)
    for stroke in strokes:
        points = np.asarray(stroke, dtype=np.float32) - 0.5
        x = points[:, 0] * (pose["height"] * pose["aspect"])[:, None]
        y = points[:, 1] * pose["height"][:, None]
        x = x - pose["shear"][:, None] * y
        x, y = x * cos - y * sin, x * sin + y * cos
        x, y = x + side / 2 + pose["shift x"][:, None], y + side / 2 + pose["shift y"][:, None]
        for end in range(1, len(stroke)):
            distance = _squared_distance(px, py, x[:, end - 1 : end + 1], y[:, end - 1 : end + 1])
            np.minimum(nearest, distance, out=nearest)
    return nearest.reshape(-1, side, side)


def _squared_distance(px: Floats, py: Floats, x: Floats, y: Floats) -> Floats:
    """(B, P) from each pixel to the segment of each row, whose ends are x (B, 2), y (B, 2)."""
    dx, dy = x[:, 1:] - x[:, :1], y[:, 1:] - y[:, :1]
    ax, ay = px - x[:, :1], py - y[:, :1]
    along = np.clip((ax * dx + ay * dy) / np.maximum(dx * dx + dy * dy, 1e-6), 0, 1)
    ax -= along * dx
    ay -= along * dy
    distance: Floats = ax * ax + ay * ay
    return distance


def trace_arc(centre: Point, radii: Point, span: Point, steps: int = 10) -> Stroke:
    """Part of an ellipse as a polyline; it spans the degrees from one to the other, 0 = right, 90 = down."""
    (x, y), (rx, ry), (start, end) = centre, radii, span
    angles = [math.radians(start + (end - start) * step / steps) for step in range(steps + 1)]
    return [(x + rx * math.cos(angle), y + ry * math.sin(angle)) for angle in angles]


# The strokes of each digit, one or more styles each: DIGIT_STYLES[digit][style] is a list of strokes.
DIGIT_STYLES: tuple[tuple[Sequence[Stroke], ...], ...] = (
    ([trace_arc((0.5, 0.5), (0.5, 0.5), (0, 360), 14)],),
    (
        [[(0.5, 0), (0.5, 1)]],
        [[(0.2, 0.25), (0.55, 0), (0.55, 1)]],
        [[(0.2, 0.25), (0.55, 0), (0.55, 1)], [(0.15, 1), (0.95, 1)]],
    ),
    (
        [[*trace_arc((0.5, 0.28), (0.45, 0.28), (-170, 40)), (0.05, 1), (1, 1)]],
        [[*trace_arc((0.5, 0.3), (0.45, 0.3), (-160, 60), 8), (0.3, 0.85), (0, 1), (0.4, 0.9), (1, 1)]],
    ),
    (
        [trace_arc((0.45, 0.25), (0.45, 0.25), (-150, 90), 8), trace_arc((0.45, 0.74), (0.52, 0.26), (-90, 150), 8)],
        [[(0.05, 0), (0.9, 0), (0.4, 0.4)], trace_arc((0.4, 0.7), (0.55, 0.3), (-90, 140), 8)],
    ),
    (
        [[(0.75, 1), (0.75, 0), (0, 0.68), (1, 0.68)]],
        [[(0.1, 0), (0.05, 0.55), (0.95, 0.55)], [(0.75, 0), (0.75, 1)]],
    ),
    (
        [[(0.9, 0), (0.15, 0), (0.1, 0.45)], [(0.1, 0.45), *trace_arc((0.42, 0.68), (0.53, 0.32), (-110, 140), 9)]],
        [[(0.95, 0), (0.2, 0), (0.1, 0.5), (0.5, 0.4), (0.9, 0.6), (0.8, 0.9), (0.4, 1), (0, 0.9)]],
    ),
    (
        [[(0.8, 0), (0.4, 0.15), (0.1, 0.5), (0.02, 0.7)], trace_arc((0.5, 0.7), (0.48, 0.3), (0, 360), 12)],
        [[(0.5, 0), (0.15, 0.35), (0.05, 0.7), *trace_arc((0.5, 0.73), (0.4, 0.27), (150, -190), 10)]],
    ),
    (
        [[(0, 0), (1, 0), (0.35, 1)]],
        [[(0, 0), (1, 0), (0.35, 1)], [(0.2, 0.5), (0.95, 0.5)]],
    ),
    ([trace_arc((0.5, 0.25), (0.4, 0.25), (0, 360), 12), trace_arc((0.5, 0.75), (0.5, 0.25), (0, 360), 12)],),
    (
        [trace_arc((0.5, 0.3), (0.48, 0.3), (0, 360), 12), [(0.98, 0.3), (0.9, 0.6), (0.6, 0.9), (0.2, 1)]],
        [trace_arc((0.45, 0.28), (0.42, 0.28), (0, 360), 12), [(0.87, 0.1), (0.87, 1)]],
    ),
)
