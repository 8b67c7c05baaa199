"""Feature extraction and `predict` beside the bare forward pass of the same network, and their memory.

    python -m benchmarks.image_speed [--images 512] [--repeats 3] [--backbone efficientnet_lite0] [--threads 2]

Images are photographs-like JPEGs of 320×240, made here. In each repeat three things run one after the other: the
network's forward pass on tensors that were decoded before, feature extraction from the files, and prediction from the
files; the figure is the ratio of rates. Memory is measured at --images and at four times as many.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import torch
from PIL import Image

from embasis.config import load
from embasis.data.images.samples import Images
from embasis.data.images.scan import scan_folder
from embasis.engine.features import fill_up
from embasis.inputs.image_inputs import open_image_inputs
from embasis.inputs.image_rows import STEM_BATCH
from embasis.runs.model import model_of_run
from embasis.runs.parts import build
from embasis.types import Arrays, LabelSchema, Problem


def photographs(folder: Path, count: int) -> None:
    """Smooth noise with edges, so that a JPEG has about the size of a photograph's."""
    draw = np.random.default_rng(0)
    for number in range(count):
        coarse = draw.integers(0, 256, (15, 20, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((320, 240), Image.Resampling.BICUBIC)
        pixels = np.asarray(picture).astype(np.int16) + draw.integers(-12, 13, (240, 320, 1))
        stream = io.BytesIO()
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(stream, "JPEG", quality=88)
        (folder / f"{number:06d}.jpg").write_bytes(stream.getvalue())


@torch.no_grad()
def bare(front, pixels: torch.Tensor) -> float:
    """Seconds of the forward pass alone."""
    start = time.perf_counter()
    for piece in pixels.split(STEM_BATCH):
        front.stem(fill_up(piece, STEM_BATCH))
    return time.perf_counter() - start


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("--images", type=int, default=512)
    words.add_argument("--repeats", type=int, default=3)
    words.add_argument("--backbone", default="efficientnet_lite0")
    words.add_argument("--threads", type=int, default=2)
    words.add_argument("--workers", type=int, default=1)
    given = words.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "images"
        folder.mkdir()
        photographs(folder, 4 * given.images)
        everything = scan_folder(folder).files
        files = everything[: given.images]
        config = load(
            network={"name": given.backbone}, images={"depth": "frozen", "cache": home, "workers": given.workers}
        )
        front = open_image_inputs(config)
        model = untrained(front, config)
        samples = Images.of(files).prepared(front.backbone.preparation, front.reader)
        views = samples.stream(torch.arange(len(files)).split(STEM_BATCH))  # starts the workers, too
        pixels = torch.cat([view.inputs for view in views])
        bare(front, pixels[: 2 * STEM_BATCH])
        ratios: dict[str, list[float]] = {"extraction": [], "predict": []}
        for _ in range(given.repeats):
            alone = bare(front, pixels)
            start = time.perf_counter()
            for _ in front.iter_features(files):
                pass
            reading = time.perf_counter() - start
            start = time.perf_counter()
            for batch in front.iter_rows(files):
                model.label(batch.x, batch.ids)
            labelling = time.perf_counter() - start
            ratios["extraction"].append(alone / reading)
            ratios["predict"].append(alone / labelling)
            print(f"bare {len(files) / alone:.1f} images/s, extraction {alone / reading:.2f} of it, ", end="")
            print(f"predict {alone / labelling:.2f} of it", flush=True)
        for name, values in ratios.items():
            print(f"{name}: median {statistics.median(values):.2f} of the bare forward pass over {len(values)} repeats")
        del pixels
        for part in (files, everything):
            for batch in front.iter_rows(part):
                model.label(batch.x, batch.ids)
            megabytes = psutil.Process().memory_info().rss / 2**20
            print(f"after predict on {len(part):,} images: {megabytes:.0f} MB in this process")
        front.reader.close()


def untrained(front, config):
    """A model whose head has seen two rows: prediction costs the same."""
    x = torch.randn(40, front.backbone.features, generator=torch.Generator().manual_seed(0))
    problem = Problem(Arrays.of(x[:20], torch.arange(20) % 4), Arrays.of(x[20:]), LabelSchema(("a", "b", "c", "d")))
    from embasis.engine.self_train import train_rounds

    built = build(problem, config, front)
    for event in train_rounds(built.problem, built.network, built.method, built.plan):
        progress = event.state
    return model_of_run(built, progress)


if __name__ == "__main__":
    main()
