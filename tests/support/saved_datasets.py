"""Folders as `save_to_disk` of Hugging Face's datasets leaves them.

`python tests/support/saved_datasets.py` writes the kept ones of tests/support/saved_datasets/ anew, by that library
(release 5.2.0 wrote them); tests read them without it. `write_saved` writes such a folder with pyarrow alone.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

KEPT = Path(__file__).with_suffix("")
AGES = [31.5, None, 44.0, 27.25, 60.0, 52.5]
TOWNS = ["Bergen", "Tromsø", None, "Oslo", "Bergen", "Oslo"]
CLASSES = ["calm", "busy"]
LABELS = [0, 1, 1, 0, -1, 1]
PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def colours(number: int) -> np.ndarray:
    """The pixels of a kept image: 12 × 16 of one colour."""
    return np.full((12, 16, 3), (40 * number, 200 - 30 * number, 90), np.uint8)


def make_by_library(folder: Path) -> None:
    """A table in two splits, and images in two files."""
    import datasets

    datasets.disable_progress_bars()
    kinds = {"age": datasets.Value("float32"), "town": datasets.Value("string"), "open": datasets.Value("bool")}
    features = datasets.Features({**kinds, "label": datasets.ClassLabel(names=CLASSES)})
    opened = [True, False, None, True, True, False]
    rows = datasets.Dataset.from_dict({"age": AGES, "town": TOWNS, "open": opened, "label": LABELS}, features=features)
    whole = datasets.DatasetDict({"train": rows, "test": rows.select([5, 0])})
    whole.save_to_disk(str(folder / "table"))
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)})
    pictures = [Image.fromarray(colours(number)) for number in range(5)]
    images = datasets.Dataset.from_dict({"image": pictures, "label": LABELS[:5]}, features=features)
    images.save_to_disk(str(folder / "images"), num_shards=2)


def encode_png(pixels: np.ndarray) -> bytes:
    Image.fromarray(pixels).save(stream := io.BytesIO(), "PNG")
    return stream.getvalue()


def write_saved(folder: Path, rows: pa.Table, features: dict[str, Any], files: int = 1) -> Path:
    """The rows as a saved data set; `features` as its dataset_info.json has them."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data-{number:05d}-of-{files:05d}.arrow" for number in range(files)]
    size = -(-rows.num_rows // files)
    for number, name in enumerate(names):
        with pa.ipc.new_stream(folder / name, rows.schema) as writer:
            writer.write_table(rows.slice(number * size, size), max_chunksize=10)
    (folder / "dataset_info.json").write_text(json.dumps({"citation": "", "features": features}))
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "7", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    return folder


def class_label(*names: str) -> dict[str, Any]:
    """The feature of a column of classes."""
    return {"names": list(names), "_type": "ClassLabel"}


IMAGE = {"_type": "Image"}


def image_rows(pictures: list[bytes | None], **columns: list[Any]) -> pa.Table:
    """A table with a column `image`; None is an image that is not embedded."""
    cells = [{"bytes": data, "path": None if data else f"gone/{row}.png"} for row, data in enumerate(pictures)]
    return pa.table({"image": pa.array(cells, PICTURE), **columns})


if __name__ == "__main__":
    make_by_library(KEPT)
