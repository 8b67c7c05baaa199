"""Fits that train a network of images, in part or as a whole, killed and stopped at random instants.

    python tests/support/deep_runs.py [kills] [seed]

Each run has a feature cache of its own, so that kills come while images are read, while the stages in front of the cut
are run, while the rest is trained, and while labels, generations and the report are written.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from forked import Zygote
from image_runs import WORDS, sides
from kill_runs import BESIDE, Trial, kill_runs

MODULES = ("timm_import", "embasis.networks.backbone", "embasis.networks.pretrained",
           "embasis.data.images.folders", "embasis.inputs.image_inputs")  # fmt: skip
"""What a fit on images imports for seconds."""
PLAN = ("rounds=1", "source_epochs=2", "epochs=2", "batch_size=8", "plan.lr=0.002", "source_lr=0.002", "save_seconds=0")
OWN = {"partial": ("method.name=em_basis_paper",), "full": ()}
BOTH = (signal.SIGKILL, signal.SIGTERM)


def deep(home: Path, depth: str, workers: int = 0) -> tuple[str, ...]:
    """A fit at this depth on small pictures below `home`, saved after every step."""
    if not (home / "photos").exists():
        sides(home)
    return ("fit", str(home / "photos"), str(home / "paintings"), *WORDS, f"images.depth={depth}", *OWN[depth],
            f"images.cache={BESIDE}cache", f"images.workers={workers}", *PLAN)  # fmt: skip


def deep_trials(zygote: Zygote, home: Path, depth: str, workers: int, kills: int, seed: int) -> Iterator[Trial]:
    """Runs at this depth until there were so many signals; every second one, on average, asks to stop and save."""
    (folder := home / f"{depth}-{workers}").mkdir()
    yield from kill_runs(zygote.know(*MODULES), folder, deep(home, depth, workers), kills, seed, BOTH)


def main() -> None:
    kills, seed = (int(word) for word in (*sys.argv[1:], *("10", "0")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder, Zygote() as zygote:
        for depth, workers in (("partial", 0), ("full", 0), ("partial", 1), ("full", 1)):
            trials = list(deep_trials(zygote, Path(folder), depth, workers, kills, seed))
            alike = sum(trial.alike for trial in trials)
            print(depth, workers, "workers:", kills, "signals in", len(trials), "runs:", alike, "bit-identical")
            for trial in trials:
                print("  ", trial.alike, trial.forward, trial.cursors)


if __name__ == "__main__":
    main()
