"""Embedded scenes with label maps: rendered digits before drawn backdrops -> handwriting before photographs.

| symbol | meaning |
| --- | --- |
| N | scenes |
| glyph (48, 48) | how much of each pixel a digit covers, in 256ths; half of it makes the pixel the digit's |
| canvas (64, 96, 3) | a picture while it is painted, int64 in 0 … 255 |
| map (64, 96) | the class of each pixel: 0 = background, 1 + digit |

A scene is a function of the seed, its kind and its number: a set with more scenes begins with the same ones.
Pixels are whole numbers all the way, so that they are the same on every machine.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embasis.data.datasets.digit_sets import draw_pose, draw_strokes, require_at_least
from embasis.data.segmentation.samples import MapArrays
from embasis.errors import lookup
from embasis.randomness import generator, uniforms
from embasis.types import LabelSchema, Problem

Ints = NDArray[np.int64]
Shares = NDArray[np.float64]

HEIGHT, WIDTH, GLYPH_SIDE, FULL = 64, 96, 48, 256
FEWEST_DIGITS, MOST_DIGITS = 2, 4
"""Digits of one scene."""
BORDER, EDGE = 2, (24, 24, 40)
"""Pixels of a digit's dark border, which is a part of it, and its colour."""
GRAIN = 6
"""Noise of a camera: up to ± so much a pixel."""
SCENE_CLASSES = ("background", *(str(digit) for digit in range(10)))


def scenes(seed: int = 0, labelled_rows: int = 400, unlabelled_rows: int = 400, test_rows: int = 200) -> Problem:
    """Rendered digits in drawn scenes -> handwritten digits before photographs; 11 classes, label maps, 64×96."""
    rows = {"labelled_rows": (labelled_rows, 1), "unlabelled_rows": (unlabelled_rows, 1), "test_rows": (test_rows, 1)}
    require_at_least("scenes", **rows)
    pictures, maps = draw_scenes("real", unlabelled_rows, seed)
    return Problem(
        labelled=MapArrays.of(*draw_scenes("virtual", labelled_rows, seed)),
        unlabelled=MapArrays.of(pictures, None),
        schema=LabelSchema(SCENE_CLASSES),
        test=MapArrays.of(*draw_scenes("test", test_rows, seed)),
        hidden_labels=MapArrays.of(pictures, maps).truth,
        row_names=tuple(f"scene {row}" for row in range(unlabelled_rows)),
    )


def draw_scenes(kind: str, rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pictures (N, 3, 64, 96) and maps (N, 64, 96), uint8, of scenes 0 … N − 1 that are "virtual", "real" or "test".

    "test" is real as well, with other handwritten digits before other parts of the photographs.
    """
    lookup({"virtual": 0, "real": 0, "test": 0}, kind, "kind of scene")
    pictures, maps = np.zeros((rows, 3, HEIGHT, WIDTH), np.uint8), np.zeros((rows, HEIGHT, WIDTH), np.uint8)
    glyphs, y = _virtual_digits(rows, seed) if kind == "virtual" else _real_digits(rows, seed, kind)
    for row in range(rows):
        draw = generator(seed, f"scenes: {kind}", row)
        canvas = _draw_backdrop(draw) if kind == "virtual" else _cut_photograph(draw, kind)
        mine = slice(MOST_DIGITS * row, MOST_DIGITS * (row + 1))
        _compose(canvas, maps[row], glyphs[mine], y[mine], draw)
        grain = torch.randint(-GRAIN, GRAIN + 1, canvas.shape, generator=draw).numpy()
        pictures[row] = np.clip(canvas + grain, 0, 255).transpose(2, 0, 1)
    return torch.from_numpy(pictures), torch.from_numpy(maps)


# Pose of a rendered digit, as in `digit_sets.DIGIT_POSE`: (low, high), drawn evenly.
SCENE_POSE = {
    "rotation": (-20.0, 20.0),
    "shear": (-0.3, 0.3),
    "height": (24.0, 34.0),
    "aspect": (0.5, 0.8),
    "shift x": (0.0, 0.0),
    "shift y": (0.0, 0.0),
    "stroke width": (5.0, 8.0),
}


def _virtual_digits(rows: int, seed: int) -> tuple[Ints, Ints]:
    """Four digits for each scene, painted or not: glyphs (4·N, 48, 48) of strokes with soft edges, and y (4·N)."""
    ids = torch.arange(MOST_DIGITS * rows)
    pose = draw_pose(ids, seed, "scenes", SCENE_POSE)
    y = _draw_between(ids, seed, "digit", 0, 10).astype(np.int64)
    glyphs = np.zeros((len(ids), GLYPH_SIDE, GLYPH_SIDE), np.int64)
    for part, nearest in draw_strokes(y, _draw_between(ids, seed, "style", 0, 1), pose, GLYPH_SIDE):
        cover = pose["stroke width"][part, None, None] / 2 + np.float32(0.5) - np.sqrt(nearest)
        glyphs[part] = _round_to_int(FULL * np.clip(cover, 0, 1))
    return glyphs, y


# Handwriting: pixels of its height, and the share of full ink at which a pixel begins to be and wholly is the digit's.
SIZE, FAINT, SOLID = (28.0, 36.0), 0.35, 0.55


def _real_digits(rows: int, seed: int, kind: str) -> tuple[Ints, Ints]:
    """The same of handwritten digits of 8×8, enlarged smoothly; every third of them is for the test."""
    images, labels = load_handwriting(kind)
    ids = torch.arange(MOST_DIGITS * rows)
    chosen = _draw_between(ids, seed, f"{kind} digit", 0, len(labels)).astype(np.int64)
    across = _spline(_draw_between(ids, seed, f"{kind} width", *SIZE))
    down = _spline(_draw_between(ids, seed, f"{kind} height", *SIZE))
    share = down @ images[chosen] @ across.transpose(0, 2, 1) / (16 * FULL**2)
    return _round_to_int(FULL * np.clip((share - FAINT) / (SOLID - FAINT), 0, 1)), labels[chosen]


def load_handwriting(kind: str) -> tuple[Ints, Ints]:
    """The handwritten digits of scikit-learn that "real" or "test" scenes are made of: (M, 8, 8) in 0 … 16, and (M)."""
    from sklearn.datasets import load_digits

    bundled = load_digits()
    mine = (np.arange(len(bundled.target)) % 3 == 2) == (kind == "test")
    return bundled.images[mine].astype(np.int64), bundled.target[mine].astype(np.int64)


def _spline(size: Shares) -> Ints:
    """(N, 48, 8) in 256ths: what each of 8 samples, `size` pixels long, adds to each pixel (cubic)."""
    centre = (np.arange(GLYPH_SIDE) + 0.5 - GLYPH_SIDE / 2) * 8 / size[:, None] + 3.5
    away = np.abs(centre[:, :, None] - np.arange(8))
    near, far = 1 + away**2 * (1.5 * away - 2.5), 2 - away * (4 - away * (2.5 - away / 2))
    return _round_to_int(FULL * np.where(away < 1, near, np.where(away < 2, far, 0)))


def _draw_between(ids: Tensor, seed: int, name: str, low: float, high: float) -> Shares:
    shares: Shares = low + (high - low) * uniforms(ids, seed, f"scenes: {name}").numpy()
    return shares


def _round_to_int(values: NDArray[np.floating]) -> Ints:
    whole: Ints = np.rint(values).astype(np.int64)
    return whole


def _draw_shares(draw: torch.Generator, *shape: int) -> Shares:
    """Numbers in [0, 1)."""
    shares: Shares = torch.rand(*shape, generator=draw, dtype=torch.float64).numpy()
    return shares


def _compose(canvas: Ints, classes: NDArray[np.uint8], glyphs: Ints, y: Ints, draw: torch.Generator) -> None:
    """Paint 2 to 4 digits, each where it is farthest from the others of eight places, so that few overlap."""
    count = FEWEST_DIGITS + int(_draw_shares(draw, 1)[0] * (MOST_DIGITS - FEWEST_DIGITS + 1))
    room = (HEIGHT - GLYPH_SIDE + 13, WIDTH - GLYPH_SIDE + 13)
    spots = np.floor(_draw_shares(draw, MOST_DIGITS, 8, 2) * room - 6).astype(np.int64)
    tints = make_colours(_draw_shares(draw, MOST_DIGITS, 3), (0.1, 0.8), (0.85, 1.0))
    placed: list[Ints] = []
    for number in range(count):
        gaps = [min((np.abs(spot - other).max() for other in placed), default=0) for spot in spots[number]]
        placed.append(spots[number, int(np.argmax(gaps))])
        paint(canvas, classes, glyphs[number], placed[-1], tints[number], y[number] + 1)


def paint(canvas: Ints, classes: NDArray[np.uint8], glyph: Ints, spot: Ints, tint: Ints, label: int) -> None:
    """A glyph and its border, the corner of its frame at `spot`; what lies outside of the canvas is cut off."""
    ends = np.minimum(spot + GLYPH_SIDE, classes.shape)
    here = tuple(slice(max(low, 0), high) for low, high in zip(spot, ends, strict=True))
    inside = tuple(slice(max(-low, 0), high - low) for low, high in zip(spot, ends, strict=True))
    border = add_border(glyph)[inside]
    for colour, share in ((np.array(EDGE), border), (tint, glyph[inside])):
        canvas[here] += ((colour - canvas[here]) * share[..., None] + FULL // 2) // FULL
    classes[here][border >= FULL // 2] = label


def add_border(glyph: Ints) -> Ints:
    """The glyph and its border: the largest share within two pixels."""
    framed, wide = np.pad(glyph, BORDER), glyph
    for down, across in REACH:
        wide = np.maximum(wide, framed[down : down + GLYPH_SIDE, across : across + GLYPH_SIDE])
    return wide


REACH = [(down, across) for down in range(5) for across in range(5) if (down - 2) ** 2 + (across - 2) ** 2 <= 5]
"""A disc of two pixels around the middle of 5×5: corners of frames."""


def make_colours(shares: Shares, saturation: tuple[float, float], value: tuple[float, float]) -> Ints:
    """Red, green and blue in 0 … 255 from (…, 3) numbers in [0, 1): hue, and where in these ranges the rest lies."""
    hue, strong, light = (shares[..., part, None] for part in range(3))
    strong = saturation[0] + (saturation[1] - saturation[0]) * strong
    light = value[0] + (value[1] - value[0]) * light
    turn = (6 * hue + np.array([5.0, 3.0, 1.0])) % 6
    return _round_to_int(255 * light * (1 - strong * np.clip(np.minimum(turn, 4 - turn), 0, 1)))


def _draw_backdrop(draw: torch.Generator) -> Ints:
    """A gradient, and before it stripes, shapes, clouds or nothing."""
    hues = make_colours(_draw_shares(draw, 8, 3), (0.1, 0.6), (0.25, 0.95))
    canvas = _mix_colours(_draw_ramp(draw), hues[0], hues[1])
    kind = int(_draw_shares(draw, 1)[0] * 4)
    if kind == 0:
        period = 4 + int(12 * _draw_shares(draw, 1)[0])
        stripes = (_draw_slope(draw) // 64) % (2 * period) < period
        canvas[stripes] = _mix_colours(_draw_ramp(draw), hues[2], hues[3])[stripes]
    elif kind == 1:
        for hue in hues[2:]:
            canvas[_draw_shape(draw)] = hue
    elif kind == 2:
        canvas = (canvas + _mix_colours(_draw_clouds(draw), hues[2], hues[3])) // 2
    return canvas


def _mix_colours(share: Ints, one: Ints, other: Ints) -> Ints:
    """(64, 96, 3): from one colour to another by a share (64, 96) in 256ths."""
    mixed: Ints = (one * (FULL - share[..., None]) + other * share[..., None]) // FULL
    return mixed


def _draw_slope(draw: torch.Generator) -> Ints:
    """(64, 96) 64 × how far each pixel lies in a random direction."""
    down, across = np.floor(129 * _draw_shares(draw, 2) - 64).astype(np.int64)
    slope: Ints = np.arange(HEIGHT)[:, None] * down + np.arange(WIDTH) * across
    return slope


def _draw_ramp(draw: torch.Generator) -> Ints:
    """(64, 96) from 0 to 256 in a random direction."""
    slope = _draw_slope(draw)
    ramp: Ints = (slope - slope.min()) * FULL // max(1, slope.max() - slope.min())
    return ramp


def _draw_shape(draw: torch.Generator) -> NDArray[np.bool_]:
    """(64, 96) the inside of a rectangle or an ellipse."""
    down, across, tall, wide, kind = _draw_shares(draw, 5)
    y = (np.arange(HEIGHT) - down * HEIGHT)[:, None] / (4 + 20 * tall)
    x = (np.arange(WIDTH) - across * WIDTH) / (4 + 20 * wide)
    inside: NDArray[np.bool_] = x * x + y * y < 1 if kind < 0.5 else np.maximum(np.abs(x), np.abs(y)) < 1
    return inside


def _draw_clouds(draw: torch.Generator) -> Ints:
    """(64, 96) in 0 … 256: random numbers on three grids, each drawn larger, together."""
    total = np.zeros((HEIGHT, WIDTH), np.int64)
    for cell in (4, 8, 16):
        noise = torch.randint(FULL + 1, (HEIGHT // cell + 2, WIDTH // cell + 2), generator=draw).numpy()
        total += _interpolate_cells(noise, cell)
    clouds: Ints = total // 3
    return clouds


def _interpolate_cells(noise: Ints, cell: int) -> Ints:
    """(64, 96) between the corners of cells, linearly."""
    top, down = (part[:, None] for part in np.divmod(np.arange(HEIGHT), cell))
    left, across = np.divmod(np.arange(WIDTH), cell)
    upper = noise[top, left] * (cell - across) + noise[top, left + 1] * across
    lower = noise[top + 1, left] * (cell - across) + noise[top + 1, left + 1] * across
    total: Ints = upper * (cell - down) + lower * down
    return total // cell**2


def _cut_photograph(draw: torch.Generator, kind: str) -> Ints:
    """A part of a photograph as it is, at a half or at a third of its size, perhaps mirrored."""
    photograph = load_photographs(kind)[int(2 * _draw_shares(draw, 1)[0])]
    step = 1 + int(3 * _draw_shares(draw, 1)[0])
    room = np.array(photograph.shape[:2]) - (HEIGHT * step, WIDTH * step)
    top, left = np.floor(_draw_shares(draw, 2) * (room + 1)).astype(np.int64)
    part = photograph[top : top + HEIGHT * step, left : left + WIDTH * step]
    small: Ints = np.add.reduce([part[at // step :: step, at % step :: step] for at in range(step**2)]) // step**2
    return small[:, ::-1].copy() if _draw_shares(draw, 1)[0] < 0.5 else small


@cache
def load_photographs(kind: str) -> tuple[Ints, ...]:
    """The two photographs of scikit-learn, (427, 320, 3) each: left halves for "real" scenes, right ones for "test"."""
    from sklearn.datasets import load_sample_images

    whole = load_sample_images().images
    half = whole[0].shape[1] // 2
    return tuple((image[:, half:] if kind == "test" else image[:, :half]).astype(np.int64) for image in whole)
