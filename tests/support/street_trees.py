"""What tests share: miniatures of the street-scene sets."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from embasis.data.datasets.street_sets import ALL_19, CARLA_CAMVID_9, SYNTHIA_16
from image_trees import archive, plant

WIDTH, HEIGHT = 40, 6


def png(rows: np.ndarray, palette: bytes = b"") -> bytes:
    """A PNG by hand: uint8 (H, W) grey or palette, uint8 (H, W, 3) RGB, uint16 (H, W, 3) RGB of 16 bits."""
    colour = 3 if palette else 2 if rows.ndim == 3 else 0
    depth = 8 * rows.dtype.itemsize
    lines = b"".join(b"\0" + line.astype(rows.dtype.newbyteorder(">")).tobytes() for line in rows)
    head = struct.pack(">IIBBBBB", rows.shape[1], rows.shape[0], depth, colour, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"PLTE", palette), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
        if data or kind != b"PLTE"
    )


def photo(number: int, height: int = HEIGHT) -> bytes:
    """A picture of its own for each number."""
    return png(np.random.default_rng(number).integers(0, 256, (height, WIDTH, 3), dtype=np.uint8))


def columns(height: int = HEIGHT) -> np.ndarray:
    """A map whose column k has the number k."""
    return np.tile(np.arange(WIDTH, dtype=np.uint8), (height, 1))


def ids_map(height: int = HEIGHT) -> bytes:
    return png(columns(height))


def gta5_tree(rows: int = 3, height: int = HEIGHT) -> dict[str, bytes]:
    """GTA5: palette PNGs, one of them of another size."""
    palette = bytes(range(256)) * 3
    content = {}
    for number in range(1, rows + 1):
        content[f"images/{number:05}.png"] = photo(number, height + number % 2)
        content[f"labels/{number:05}.png"] = png(columns(height + number % 2), palette)
    return content


def synthia_tree(rows: int = 3, height: int = HEIGHT) -> dict[str, bytes]:
    """SYNTHIA: the class in the first of three 16-bit channels, an instance in the second."""
    content = {}
    for number in range(rows):
        first = columns(height).astype(np.uint16)
        wide = np.stack([first, first + 300, np.zeros_like(first)], 2)
        content[f"RGB/{number:07}.png"] = photo(100 + number, height)
        content[f"GT/LABELS/{number:07}.png"] = png(wide)
        content[f"GT/COLOR/{number:07}.png"] = photo(number)
        content[f"GT/LABELS/{number:07}.txt"] = b"instances"
    return content


def cityscapes_tree(cities: dict[str, tuple[str, ...]] | None = None, height: int = HEIGHT) -> dict[str, bytes]:
    """Cityscapes: two pictures of each city; other maps and polygons beside those with label ids."""
    content = {}
    for split, names in (cities or {"train": ("aachen", "zurich"), "val": ("munster",)}).items():
        for city in names:
            for frame in range(2):
                stem = f"{split}/{city}/{city}_{frame:06}_000019"
                content[f"leftImg8bit/{stem}_leftImg8bit.png"] = photo(zlib.crc32(stem.encode()), height)
                content[f"gtFine/{stem}_gtFine_labelIds.png"] = ids_map(height)
                content[f"gtFine/{stem}_gtFine_color.png"] = photo(1)
                content[f"gtFine/{stem}_gtFine_instanceIds.png"] = png(columns().astype(np.uint16))
                content[f"gtFine/{stem}_gtFine_polygons.json"] = b"{}"
    return content


def train_ids_map() -> bytes:
    """Columns 0 … 18 hold a train id, the others 255."""
    return png(np.where(columns() < 19, columns(), 255).astype(np.uint8))


def carla_tree(rows: int = 3) -> dict[str, bytes]:
    names = [f"run0_fr_{number}" for number in range(rows)]
    content = {f"images/{name}.png": photo(200 + number) for number, name in enumerate(names)}
    return content | {f"labels/{name}.png": train_ids_map() for name in names}


def camvid_tree() -> dict[str, bytes]:
    content = {}
    for number in range(4):
        split = "val" if number == 3 else "train"
        content[f"{split}/images/0001TP_{number:06}.png"] = photo(300 + number)
        content[f"{split}/labels/0001TP_{number:06}.png"] = train_ids_map()
    return content


SETS = {
    "gta5_cityscapes": ({"gta5": gta5_tree, "cityscapes": cityscapes_tree}, ALL_19, (3, 4, 2)),
    "synthia_cityscapes": ({"synthia": synthia_tree, "cityscapes": cityscapes_tree}, SYNTHIA_16, (3, 4, 2)),
    "carla_camvid": ({"carla": carla_tree, "camvid": camvid_tree}, CARLA_CAMVID_9, (3, 3, 1)),
}


def grow(root: Path, name: str, place: str = "folder") -> Path:
    """The miniatures that a problem needs, as folders or as tars."""
    for pack, tree in SETS[name][0].items():
        if place == "folder":
            plant(root / pack, tree())
        else:
            top = f"{pack}/" if place == "tar with a folder" else ""
            archive(root / f"{pack}.tar", {f"{top}{path}": data for path, data in tree().items()})
    return root
