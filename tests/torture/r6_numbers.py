"""R6: ten thousand generated numerical cases, every deliberate breakage, and runs that blow up at a random step."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from goals import Result

FIRST, CORE, FITTED, POISONED = 20_261_117, 9_000, 960, 40
"""The first seed; cases of the equations, of the estimator, and of runs in a folder that are poisoned at a step."""


def core(seeds: range) -> list[str]:
    """Faults of the equations."""
    from number_cases import draw_case, faults_of

    torch.set_num_threads(1)
    return [fault for seed in seeds for fault in faults_of(draw_case(seed))]


def fitted(seeds: range) -> list[str]:
    """Faults of the estimator."""
    from number_cases import estimator_faults

    torch.set_num_threads(1)
    found = list[str]()
    for seed in seeds:
        try:
            found += estimator_faults(seed)
        except Exception as error:
            found.append(f"estimator seed {seed}: {error!r}")
    return found


def poisoned(seeds: range) -> list[str]:
    """A run in a folder whose loss or gradient is not finite at a random step: nothing of that is ever on the disk, and
    without the poison the same command goes on to the end of an undisturbed run."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    from embasis.runs import run as folders

    folders.run_page = lambda view: "page"
    with TemporaryDirectory() as folder:
        whole, end = Path(folder) / "whole", int(1e9)
        steps = count_steps(whole, end)
        return [fault for seed in seeds for fault in poisoned_run(Path(folder), seed, steps, whole)]


def poisoned_run(folder: Path, seed: int, steps: int, whole: Path) -> list[str]:
    from embasis.errors import NumericalError
    from embasis.storage import read_newest
    from embasis.storage.checkpoints import list_generations, load_generation

    place, at = folder / str(seed), random.Random(seed).randrange(steps)
    try:
        count_steps(place, at)
        return [f"seed {seed}: step {at} was not noticed"]
    except NumericalError as error:
        faults = [] if " in round " in str(error) and "samples of the step" in str(error) else [f"{seed}: {error}"]
    tensors = [value for number in list_generations(place) for value in load_generation(place, number).tensors.values()]
    faults += (
        [] if all(bool(torch.isfinite(value).all()) for value in tensors) else [f"seed {seed}: not finite on disk"]
    )
    count_steps(place, int(1e9))
    left, right = read_newest(place).tensors, read_newest(whole).tensors
    same = left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
    return faults + ([] if same else [f"seed {seed}: gone on after step {at}, it ends otherwise"])


def count_steps(path: Path, poison: int) -> int:
    """Run in a folder with the loss of that step made NaN, or its gradient at odd ones; how many steps there were."""
    from embasis.config import load
    from embasis.data.datasets.digit_sets import blobs
    from embasis.engine import train
    from embasis.runs.run import TrainingRun
    from embasis.storage import RunFolder

    whole, seen = train.loss_of, [0]

    def loss_of(*arguments: Any, **named: Any) -> Any:
        value = whole(*arguments, **named)
        seen[0] += 1
        if seen[0] - 1 == poison:
            return value * float("nan") if poison % 2 == 0 else value + (value * 0).sqrt()  # 0 · ∞ in the gradient
        return value

    train.loss_of = loss_of
    try:
        words = ("rounds=2", "source_epochs=3", "epochs=2", "batch_size=16", "hidden=8", "save_seconds=0")
        config = load(None, words, method={"name": "cbst"}, network={"name": "mlp"})
        run = TrainingRun(blobs(seed=1, count=60), config, RunFolder(path))
        run.prepare()
        with run.folder:
            run.open()
            for _ in run.events():
                pass
    finally:
        train.loss_of = whole
    return seen[0]


def breakages() -> tuple[int, int]:
    """How many deliberate breakages there are, and how many the cases see."""
    from number_breakages import BREAKAGES
    from number_cases import draw_case, faults_of

    seen = 0
    for module, name, broken in BREAKAGES.values():
        usual = getattr(module, name)
        setattr(module, name, broken)
        seen += any(faults_of(draw_case(seed)) for seed in range(60))
        setattr(module, name, usual)
    return len(BREAKAGES) + 1, seen + a_broken_step_is_applied()


def a_broken_step_is_applied() -> bool:
    """Whether a run that takes steps whose loss is not finite is seen."""
    from embasis.engine import train

    usual = train.require_finite_step
    train.require_finite_step = lambda *_: None
    try:
        return bool(poisoned(range(1, 2)))
    finally:
        train.require_finite_step = usual


def split(first: int, count: int, size: int) -> list[range]:
    return [range(first + at, first + min(at + size, count)) for at in range(0, count, size)]


def run() -> Result:
    """All cases, in two processes."""
    jobs: list[tuple[Callable[[range], list[str]], range]] = [
        *((poisoned, part) for part in split(FIRST, POISONED, 20)),
        *((fitted, part) for part in split(FIRST, FITTED, 80)),
        *((core, part) for part in split(FIRST, CORE, 500)),
    ]
    with ProcessPoolExecutor(2) as pool:
        faults = [fault for done in [pool.submit(*job) for job in jobs] for fault in done.result()]
    for fault in faults[:50]:
        print(fault)
    many, seen = breakages()
    counts = f"{CORE:,} cases of the equations, {FITTED} fits, {POISONED} poisoned runs from seed {FIRST}"
    return Result(not faults and seen == many, f"{counts}: {len(faults)} faults; {seen} of {many} breakages seen")
