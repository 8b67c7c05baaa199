"""Label maps: what labelling a side costs beside the bare forward pass, what it keeps on disk, and how memory grows.

    python -m benchmarks.map_speed --pictures 60 --repeats 3
    python -m benchmarks.map_speed --memory 60    # labelling in a process of its own: 1× and 4× the pictures
    python -m benchmarks.map_speed --network deeplab_v2 --backbone timm:resnet101 --size 256x512 --pictures 4

Pictures are generated (JPEG, 19 classes). Weights of timm's backbones are random: they cost what trained ones do.
"Labelling" is everything between the trained network and the maps on disk: reading, features, EM labels, thresholds,
the shelf, four PNG for each picture and the table. The basis has been fitted before: its cost does not grow with the
number of pictures and is printed apart. Both are measured in turn in one run: ratios of wall time, which other work on
the machine disturbs, and of CPU time of all threads of this process (pictures are read by another one).
"""

from __future__ import annotations

import argparse
import io
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from PIL import Image

from embasis import config as settings
from embasis.data.images.scan import scan_folder
from embasis.data.segmentation.pairs import MapFile
from embasis.data.segmentation.samples import MapFiles
from embasis.engine.features import sample_features
from embasis.engine.labels import label_and_select
from embasis.engine.scores import summarise_labels
from embasis.engine.state import TrainSetup, TrainState
from embasis.inputs.map_inputs import plain_table, table_of_maps
from embasis.runs.label_maps import encode_all_maps, name_maps, write_maps
from embasis.runs.parts import RunParts, build
from embasis.storage.label_map_folder import LabelMapFolder
from embasis.storage.label_store import DiskLabelStore
from embasis.types import LabelSchema, Problem

CLASSES = 19


@dataclass(frozen=True)
class Choice:
    """What is measured."""

    network: str = "fast_segment"
    backbone: str = "efficientnet_lite0"
    size: str = "256x512"

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of pictures."""
        found = re.fullmatch("([0-9]+)x([0-9]+)", self.size)
        if found is None:
            raise SystemExit(f"--size must be HEIGHTxWIDTH, got {self.size!r}")
        return int(found[1]), int(found[2])

    def tables(self) -> dict[str, dict[str, Any]]:
        """As settings; nothing is downloaded."""
        random = {"pretrained": False} if self.backbone.startswith("timm:") else {}
        network = {"name": self.network, "backbone": self.backbone, **random}
        return {"network": network, "maps": {"size": min(self.shape)}}


def grow(folder: Path, count: int, shape: tuple[int, int]) -> None:
    """Pictures of smooth noise with maps of stripes."""
    draw, (height, width) = torch.Generator().manual_seed(0), shape
    for number in range(count):
        coarse = torch.rand(1, 3, 16, 32, generator=draw)
        picture = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")[0]
        noisy = (picture * 220 + 30 * torch.rand(3, height, width, generator=draw)).byte()
        classes = ((torch.arange(height).unsqueeze(1) // 16 + torch.arange(width) // 32 + number) % CLASSES).byte()
        for side in ("labelled", "unlabelled"):
            save(folder / side / "images" / f"{number:04d}.jpg", Image.fromarray(noisy.permute(1, 2, 0).numpy()))
        save(folder / "labelled" / "labels" / f"{number:04d}.png", Image.fromarray(classes.numpy()))


def save(path: Path, image: Image.Image) -> None:
    """Into a folder that may be new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = io.BytesIO()
    image.save(data, "JPEG" if path.suffix == ".jpg" else "PNG")
    path.write_bytes(data.getvalue())


def problem_of(folder: Path) -> Problem:
    """Both sides; the labelled one is small, whatever the other one is."""
    schema = LabelSchema(tuple(f"class {number}" for number in range(CLASSES)))
    table = plain_table(schema)
    sides = {}
    for side in ("labelled", "unlabelled"):
        images = scan_folder(folder / side / "images").files
        maps: dict[str, Any] = {}
        if side == "labelled":
            maps = {file.name[:-4]: file for file in scan_folder(folder / side / "labels").files}
            images = images[:20]
        sides[side] = [MapFile(file, maps.get(file.name[:-4]), file.size) for file in images]
    return Problem(
        MapFiles.of(sides["labelled"], table, labelled=True),
        MapFiles.of(sides["unlabelled"], table, labelled=False),
        schema,
        row_names=tuple(file.name for file in sorted(sides["unlabelled"], key=lambda file: file.id)),
    )


def fitted(problem: Problem, choice: Choice) -> tuple[RunParts, TrainState, float]:
    """A run whose basis has been fitted, and how long that took."""
    built = build(problem, settings.load(None, [], **choice.tables()))
    if hasattr(built.network, "classifier"):
        torch.nn.init.normal_(built.network.classifier.weight, std=0.1)  # type: ignore[union-attr, arg-type]
    progress = TrainState(built.network)
    start = time.perf_counter()
    labelled = sample_features(built.network, built.problem.labelled, built.plan, True, 0)
    unlabelled = sample_features(built.network, built.problem.unlabelled, built.plan, False, 0)
    progress.labeller = built.method.labeller.fit([*labelled.chunks, *unlabelled.chunks], {}, 0, 0)
    return built, progress, time.perf_counter() - start


def label(built: RunParts, progress: TrainState, folder: Path) -> None:
    """All that a round does with the unlabelled side after its basis is fitted."""
    problem, samples = built.problem, built.problem.unlabelled
    assert isinstance(samples, MapFiles)
    setup = TrainSetup(problem, None, built.method, built.plan, DiskLabelStore(folder))
    labels = label_and_select(setup, progress, 0, None)
    summarise_labels(labels.parts(), CLASSES)
    table, names = table_of_maps(problem), name_maps(list(problem.row_names or ()))
    encoded = encode_all_maps(labels.parts(), samples.sizes, problem.schema, table, names)
    for _ in write_maps(LabelMapFolder(folder / "maps", table), encoded, problem.schema, ".parquet"):
        pass


@torch.no_grad()
def bare(built: RunParts, inputs: list[torch.Tensor]) -> None:
    """The network alone."""
    built.network.eval()
    for picture in inputs:
        built.network(picture, 1)


def now() -> torch.Tensor:
    """Wall and CPU time."""
    return torch.tensor([time.perf_counter(), time.process_time()], dtype=torch.float64)


def speed(count: int, repeats: int, choice: Choice) -> None:
    """Labelling beside the bare forward pass, in turn."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        grow(folder, count, choice.shape)
        built, progress, basis = fitted(problem_of(folder), choice)
        samples = built.problem.unlabelled
        inputs = [view.inputs for view in samples.stream(torch.arange(len(samples)).split(1))]
        times = []
        for number in range(repeats + 1):  # the first one warms up
            start = now()
            bare(built, inputs)
            middle = now()
            label(built, progress, folder / f"out{number}")
            times.append(torch.stack([middle - start, now() - middle]))
        kept = sum(path.stat().st_size for path in (folder / "out0" / "sites").rglob("*") if path.is_file())
        written = sum(path.stat().st_size for path in (folder / "out0" / "maps").rglob("*.png"))
        pixels, found = count * choice.shape[0] * choice.shape[1], torch.stack(times[1:])
        print(f"{count} pictures of {choice.size}, {CLASSES} classes, {torch.get_num_threads()} threads")
        print(f"{choice.network} on {choice.backbone}")
        for position, clock in enumerate(("wall", "CPU")):
            each = 1000 * found[:, :, position].median(0).values / count
            ratios = (found[:, 1, position] / found[:, 0, position]).tolist()
            print(f"{clock} time a picture: bare forward pass {each[0]:.1f} ms, labelling {each[1]:.1f} ms")
            print(f"  ratio: {median(ratios):.2f} ({', '.join(f'{ratio:.2f}' for ratio in ratios)})")
        print(f"fitting the basis, once: {basis:.1f} s")
        print(f"bytes a pixel: the shelf {kept / pixels:.2f}; the four PNG {written / pixels:.2f}")


def peak(count: int, choice: Choice) -> None:
    """The peak memory of this process after labelling so many pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        grow(folder, count, choice.shape)
        built, progress, _ = fitted(problem_of(folder), choice)
        label(built, progress, folder / "out")
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}")


def memory(count: int, choice: Choice) -> None:
    """Peaks of 1× and 4× the pictures."""
    found = []
    for number in (count, 4 * count):
        command = [sys.executable, "-m", "benchmarks.map_speed", "--peak", str(number), "--network", choice.network]
        command += ["--backbone", choice.backbone, "--size", choice.size]
        found.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]))
    few, many = found
    print(f"peak memory: {few:.0f} MB with {count} pictures, {many:.0f} MB with {4 * count}: {many / few:.2f}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pictures", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--peak", type=int, default=0)
    parser.add_argument("--network", default=Choice.network)
    parser.add_argument("--backbone", default=Choice.backbone)
    parser.add_argument("--size", default=Choice.size, help="of pictures, HEIGHTxWIDTH")
    given = parser.parse_args()
    choice = Choice(given.network, given.backbone, given.size)
    if given.peak:
        peak(given.peak, choice)
    elif given.memory:
        memory(given.memory, choice)
    else:
        speed(given.pictures, given.repeats, choice)


if __name__ == "__main__":
    main()
