"""Label maps: what labelling a side costs beside the bare forward pass, what it keeps on disk, and how memory grows.

    python -m benchmarks.map_speed --pictures 60 --repeats 3
    python -m benchmarks.map_speed --memory 60    # labelling in a process of its own: 1× and 4× the pictures

Pictures are generated (256×512 JPEG, 19 classes, network `fast_segment` on EfficientNet-Lite0). "Labelling" is
everything between the trained network and the maps on disk: reading, features, EM labels, thresholds, the shelf, four
PNG for each picture and the table. The basis has been fitted before: its cost does not grow with the number of pictures
and is printed apart. Ratios are of wall time, both measured in turn in one run.
"""

from __future__ import annotations

import argparse
import io
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from PIL import Image

from embasis import config as settings
from embasis.data.image.scan import scan_folder
from embasis.data.maps.files import MapFile
from embasis.data.maps.samples import MapFiles
from embasis.engine.label import decide
from embasis.engine.progress import Progress
from embasis.engine.rounds import look_at
from embasis.engine.survey import survey
from embasis.experiment.build import Built, build
from embasis.experiment.map_output import write_maps
from embasis.experiment.mapped import plain_table
from embasis.storage import DiskShelf, MapFolder
from embasis.types import LabelSchema, Problem

HEIGHT, WIDTH, CLASSES = 256, 512, 19


def grow(folder: Path, count: int) -> None:
    """Pictures of smooth noise with maps of stripes."""
    draw = torch.Generator().manual_seed(0)
    for number in range(count):
        coarse = torch.rand(1, 3, 16, 32, generator=draw)
        picture = torch.nn.functional.interpolate(coarse, (HEIGHT, WIDTH), mode="bilinear")[0]
        noisy = (picture * 220 + 30 * torch.rand(3, HEIGHT, WIDTH, generator=draw)).byte()
        classes = ((torch.arange(HEIGHT).unsqueeze(1) // 16 + torch.arange(WIDTH) // 32 + number) % CLASSES).byte()
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


def fitted(problem: Problem) -> tuple[Built, Progress, float]:
    """A run whose basis has been fitted, and how long that took."""
    built = build(problem, settings.load(None, [], network={"name": "fast_segment"}))
    torch.nn.init.normal_(built.network.classifier.weight, std=0.1)  # type: ignore[union-attr, arg-type]
    progress = Progress(built.network)
    start = time.perf_counter()
    labelled = survey(built.network, built.problem.labelled, built.plan, True, 0)
    unlabelled = survey(built.network, built.problem.unlabelled, built.plan, False, 0)
    progress.labeller = built.method.labeller.fit([*labelled.chunks, *unlabelled.chunks], {}, 0, 0)
    return built, progress, time.perf_counter() - start


def label(built: Built, progress: Progress, folder: Path) -> None:
    """All that a round does with the unlabelled side after its basis is fitted."""
    assert built.maps is not None
    problem, samples = built.problem, built.problem.unlabelled
    assert isinstance(samples, MapFiles)
    verdict = decide(problem, None, built.method, built.plan, progress, DiskShelf(folder))
    look_at(verdict.parts(), CLASSES)
    output, names = MapFolder(folder / "maps", built.maps.table), list(problem.row_names or ())
    for _ in write_maps(output, verdict.parts(), samples.sizes, problem.schema, names, ".parquet"):
        pass


@torch.no_grad()
def bare(built: Built, inputs: list[torch.Tensor]) -> None:
    """The network alone."""
    built.network.eval()
    for picture in inputs:
        built.network(picture, 1)


def speed(count: int, repeats: int) -> None:
    """Labelling beside the bare forward pass, in turn."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        grow(folder, count)
        built, progress, basis = fitted(problem_of(folder))
        samples = built.problem.unlabelled
        inputs = [view.inputs for view in samples.stream(torch.arange(len(samples)).split(1))]
        times: dict[str, list[float]] = {"bare": [], "labelling": []}
        for number in range(repeats + 1):
            start = time.perf_counter()
            bare(built, inputs)
            middle = time.perf_counter()
            label(built, progress, folder / f"out{number}")
            if number:  # the first one warms up
                times["bare"].append(middle - start)
                times["labelling"].append(time.perf_counter() - middle)
        ratios = [b / a for a, b in zip(times["bare"], times["labelling"], strict=True)]
        kept = sum(path.stat().st_size for path in (folder / "out0" / "sites").rglob("*") if path.is_file())
        written = sum(path.stat().st_size for path in (folder / "out0" / "maps").rglob("*.png"))
        pixels = count * HEIGHT * WIDTH
        print(f"{count} pictures of {HEIGHT}×{WIDTH}, {CLASSES} classes, {torch.get_num_threads()} threads")
        print(f"bare forward pass: {1000 * median(times['bare']) / count:.1f} ms a picture")
        print(f"labelling: {1000 * median(times['labelling']) / count:.1f} ms a picture")
        print(f"ratio: {median(ratios):.2f} ({', '.join(f'{ratio:.2f}' for ratio in ratios)})")
        print(f"fitting the basis, once: {basis:.1f} s")
        print(f"bytes a pixel: the shelf {kept / pixels:.2f}; the four PNG {written / pixels:.2f}")


def peak(count: int) -> None:
    """The peak memory of this process after labelling so many pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        grow(folder, count)
        built, progress, _ = fitted(problem_of(folder))
        label(built, progress, folder / "out")
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}")


def memory(count: int) -> None:
    """Peaks of 1× and 4× the pictures."""
    found = []
    for number in (count, 4 * count):
        command = [sys.executable, "-m", "benchmarks.map_speed", "--peak", str(number)]
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
    given = parser.parse_args()
    if given.peak:
        peak(given.peak)
    elif given.memory:
        memory(given.memory)
    else:
        speed(given.pictures, given.repeats)


if __name__ == "__main__":
    main()
