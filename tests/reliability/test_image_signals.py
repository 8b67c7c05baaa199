"""A signal while images are read, in Stage I or in a round: the same command ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_tables import ENVIRONMENT, PROGRAM, embasis
from embasis.inputs.image_inputs import ImageInputs
from embasis.storage import read_newest
from embasis.storage.feature_cache import FeatureCache
from folder_runs import digests
from image_runs import CLASSES, WORDS, picture, sides
from image_trees import plant
from signal_runs import interrupt_and_go_on

PARTIAL = ("depth=partial", "method.name=em_basis_paper", "workers=0", "rounds=1", "source_epochs=2", "epochs=2",
           "batch_size=8", "plan.lr=0.002", "source_lr=0.002", "save_seconds=1000")  # fmt: skip


pytestmark = pytest.mark.usefixtures("fast_runs", "usual_signals")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = sides(tmp_path_factory.mktemp("signals"))
    return plant(root, {f"paintings/mehr/{n}.png": picture(n % 3, 100 + n, 40) for n in range(64)})


def command(home: Path, run: Path, cache: Path, *words: str) -> tuple[str, ...]:
    sides_ = (str(home / "photos"), str(home / "paintings"))
    return ("fit", *sides_, "-o", str(run), *WORDS, f"images.cache={cache}", *words)


@pytest.fixture(scope="module")
def undisturbed(home: Path) -> Callable[..., dict[str, str]]:
    found: dict[tuple[str, ...], dict[str, str]] = {}

    def of(*words: str) -> dict[str, str]:
        if words not in found:
            run = home / f"undisturbed {len(found)}"
            result = embasis(*command(home, run, home / "cache", *words))
            assert result.exit_code == 0, result.output
            found[words] = digests(run)
        return found[words]

    return of


@pytest.mark.parametrize(
    ("number", "code", "at", "where"),
    [
        (signal.SIGTERM, 143, 2, "round 0 epoch 0 step 2"),
        (signal.SIGINT, 130, 5, "round 0 epoch 1 step 2"),
        (signal.SIGTERM, 143, 8, "round 1 epoch 0 step 2"),
    ],
)
def test_a_signal_in_stage_one_or_a_round_of_partial_depth_ends_bit_identical(
    home: Path, tmp_path: Path, undisturbed: Any, number: int, code: int, at: int, where: str
) -> None:
    run, expected = tmp_path / "run", undisturbed(*PARTIAL)
    interrupt_and_go_on(command(home, run, home / "cache", *PARTIAL), run, number, at, code, where)
    assert digests(run) == expected


def test_a_signal_while_images_are_read_keeps_what_was_read(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Any
) -> None:
    words = command(home, tmp_path / "run", tmp_path / "cache", "workers=0", "rounds=1")
    whole = ImageInputs.cache_features

    def fill(self: ImageInputs, problem: Any) -> Iterator[tuple[int, int]]:
        for done, total in whole(self, problem):
            if done == 64:
                signal.raise_signal(signal.SIGINT)
            yield done, total

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageInputs, "cache_features", fill)
        result = embasis(*words)
    assert result.exit_code == 130
    assert result.stderr == (
        "embasis: interrupted while reading images; 64 of 100 images are in the feature cache; "
        "the same command goes on\n"
    )
    assert not (tmp_path / "run").exists()
    (key,) = (tmp_path / "cache" / "features").iterdir()
    assert len(FeatureCache(tmp_path / "cache", key.name)) == 64
    again = embasis(*words)
    assert again.exit_code == 0, again.output
    assert "64 of them are in the feature cache" in again.stdout
    assert digests(tmp_path / "run") == undisturbed("workers=0", "rounds=1")


def test_a_signal_while_a_full_run_reads_says_that_nothing_is_kept(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ImageInputs.cache_features

    def fill(self: ImageInputs, problem: Any) -> Iterator[tuple[int, int]]:
        signal.raise_signal(signal.SIGTERM)
        yield from whole(self, problem)

    monkeypatch.setattr(ImageInputs, "cache_features", fill)
    result = embasis(*command(home, tmp_path / "run", home / "cache", "depth=full", "workers=0"))
    assert result.exit_code == 143
    assert result.stderr == ("embasis: interrupted while reading images; nothing is kept; the same command goes on\n")


def test_ctrl_c_at_a_terminal_reaches_the_whole_group_and_loses_nothing(home: Path, tmp_path: Path) -> None:
    words = command(home, tmp_path / "run", tmp_path / "cache", "rounds=1")
    with subprocess.Popen(
        [*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        first = "100 different images, timm:test_efficientnet, frozen: 0 of them are in the feature cache\n"
        assert process.stdout.readline() == first
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(60) == 130, said
    assert said.startswith("embasis: interrupted while reading images; ")
    assert said.endswith(" of 100 images are in the feature cache; the same command goes on\n")
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "run").exists()
    assert embasis(*words, "workers=0").exit_code == 0
    assert len(CLASSES) == len(read_newest(tmp_path / "run").facts["classes"])
