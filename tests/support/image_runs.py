"""Runs on small generated pictures with a tiny network of random weights: a second or less each."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from embasis.config import Config, load
from embasis.data.images.folders import ImageOptions, load_images
from embasis.data.reader import Reader
from embasis.inputs.image_inputs import ImageInputs, open_image_inputs
from embasis.runs.parts import resolve_for_problem
from embasis.runs.run import TrainingRun
from embasis.types import Problem
from folder_runs import go
from image_trees import plant

CLASSES = ("amsel", "buntes Tuch", "Möwe")
NETWORK = {"name": "timm:test_efficientnet", "pretrained": False, "size": 32}
WORDS = ("--backbone", "timm:test_efficientnet", "network.pretrained=false", "network.size=32")
"""The same on the command line."""
PLANS: dict[str, dict[str, Any]] = {
    "frozen": {"rounds": 1},
    "partial": {"rounds": 1, "source_epochs": 2, "epochs": 1, "batch_size": 8, "source_lr": 0.002, "lr": 0.002},
    "full": {"rounds": 1, "source_epochs": 1, "epochs": 1, "batch_size": 8, "source_lr": 0.002, "lr": 0.002},
}
DEPTHS = tuple(PLANS)


def picture(label: int, number: int, shift: int = 0, side: int = 24) -> bytes:
    """A PNG of its class's colour, with noise of its own; `shift` is the other domain."""
    draw = np.random.default_rng((label, number, shift))
    colour = np.array([(200, 60, 60), (60, 200, 60), (60, 60, 200)][label])
    pixels = (colour + shift + draw.normal(0, 20, (side, side + 6, 3))).clip(0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def sides(root: Path, each: int = 6) -> Path:
    """`photos` with a folder for each class; `paintings` with as many pictures of each class at several depths."""
    for label, name in enumerate(CLASSES):
        plant(root / "photos", {f"{name}/bild {number}.png": picture(label, number) for number in range(each)})
        below = ("", "oben/", "oben/tief unten/")
        plant(
            root / "paintings",
            {f"{below[number % 3]}{label}ä {number}.png": picture(label, number, 40) for number in range(each)},
        )
    return root


def settings(cache: Path, depth: str = "frozen", *words: str, workers: int = 0, **tables: Any) -> Config:
    """A run of one short round."""
    images = {"depth": depth, "cache": str(cache), "workers": workers, **tables.pop("images", {})}
    plan = {**PLANS[depth], **tables.pop("plan", {})}
    network = {**NETWORK, **tables.pop("network", {})}
    return load(None, words, top={"seed": 3, "save_seconds": 0.0}, network=network, images=images, plan=plan, **tables)


def begun(root: Path, config: Config, budget: float = 0.5, hidden: bool = False) -> tuple[Problem, ImageInputs]:
    """The problem of the two folders, and its front; no picture has been read. `hidden`: with true labels."""
    unlabelled = "judged" if hidden else "paintings"
    problem = load_images(root / "photos", root / unlabelled, options=ImageOptions(budget=budget))
    front = open_image_inputs(config)
    resolve_for_problem(problem, config, front)
    return problem, front


def read(problem: Problem, front: ImageInputs) -> Problem:
    """The problem with every picture read."""
    for _ in front.cache_features(problem):
        pass
    return front.feature_problem(problem)


def folder_run(
    path: Path, config: Config, problem: Problem, front: ImageInputs, stop_after: int | None = None
) -> TrainingRun:
    """The run in its folder until its end, or until the caller walks away after so many moments."""
    with front.reader:
        return go(path, config, stop_after, problem, front)


def whole_run(path: Path, root: Path, config: Config, **options: Any) -> TrainingRun:
    """From two folders to a finished run folder."""
    problem, front = begun(root, config, **options)
    with front.reader:
        return folder_run(path, config, read(problem, front), front)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all files that are read from now on."""
    seen: list[str] = []
    whole = Reader.batches

    def batches(self: Reader, files: Any, rows: Any, *rest: Any, **more: Any) -> Iterator[Any]:
        seen.extend(files[row].name for batch in rows for row in batch)
        return whole(self, files, rows, *rest, **more)

    monkeypatch.setattr(Reader, "batches", batches)
    return seen
