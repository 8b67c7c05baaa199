"""Sides that look alike share their scales: what a run has found of that stays with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from embasis.cli.main import main
from embasis.config import Config, load
from embasis.runs import parts
from embasis.runs import run as folder
from embasis.runs.resume import stored_same_domain
from embasis.storage import read_newest
from embasis.types import Arrays, LabelSchema, Problem
from folder_runs import digests, go
from storage_runs import do_not_wait


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_wait(monkeypatch)
    monkeypatch.setattr(folder, "run_page", lambda view: "")


def rows(shares: tuple[float, ...], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    y = torch.multinomial(torch.tensor(shares), 90, True, generator=draw)
    return 3 * torch.eye(5)[y] + torch.randn(90, 5, generator=draw), y


def alike() -> Problem:
    (x, y), (u, _) = rows((1.0, 1.0, 1.0), 0), rows((0.8, 0.1, 0.1), 1)
    return Problem(Arrays.of(x, y), Arrays.of(u), LabelSchema(("a", "b", "c")))


def settings() -> Config:
    return load(None, (), top={"save_seconds": 0.0}, plan={"rounds": 2})


def test_a_run_on_one_domain_that_was_left_ends_as_the_undisturbed_one(tmp_path: Path) -> None:
    go(tmp_path / "whole", settings(), problem=alike())
    for stop in (1, 6):
        go(tmp_path / f"left-{stop}", settings(), stop_after=stop, problem=alike())
        go(tmp_path / f"left-{stop}", settings(), problem=alike())
        assert digests(tmp_path / f"left-{stop}") == digests(tmp_path / "whole")
    facts = read_newest(tmp_path / "whole").facts
    assert facts["same_domain"] is True
    assert facts["config"]["standardise"] == "joint"
    assert [note[:28] for note in facts["notes"]] == ["the two sides look alike (ne"]


def test_a_run_that_did_not_ask_goes_on_with_its_own_scales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As runs by releases before decision 0037."""
    with monkeypatch.context() as before:
        before.setattr(parts, "recognise_one_domain", lambda problem: problem)
        go(tmp_path / "whole", settings(), problem=alike())
        go(tmp_path / "left", settings(), stop_after=6, problem=alike())
    go(tmp_path / "left", settings(), problem=alike())
    assert digests(tmp_path / "left") == digests(tmp_path / "whole")
    assert read_newest(tmp_path / "left").facts["config"]["standardise"] == "domain"


def test_what_a_run_has_found_is_known_before_its_data_are_read(tmp_path: Path) -> None:
    go(tmp_path / "run", settings(), stop_after=1, problem=alike())
    assert stored_same_domain(load(), tmp_path / "run") is True
    assert stored_same_domain(load(top={"standardise": "none"}), tmp_path / "run") is None
    assert stored_same_domain(load(), tmp_path / "elsewhere") is None


def test_fit_says_that_the_sides_look_alike(tmp_path: Path) -> None:
    (x, y), (u, _) = rows((1.0, 1.0, 1.0), 0), rows((0.8, 0.1, 0.1), 1)
    np.savez(tmp_path / "here.npz", X=x.numpy(), y=y.numpy())
    np.savez(tmp_path / "there.npz", X=u.numpy())
    words = ["fit", str(tmp_path / "here.npz"), str(tmp_path / "there.npz"), "-o", str(tmp_path / "run"), "rounds=1"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    lines = [line for line in done.output.splitlines() if line.startswith("note: the two sides look alike")]
    assert len(lines) == 1
    assert "standardise=domain does each by itself" in done.output
