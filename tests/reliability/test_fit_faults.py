"""A whole fit on a disk that fails: code 5, the last generation whole, nothing left behind, no false "saved"."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_tables import embasis
from embasis.storage import RunFolder
from fault_runs import Fault, artefacts, sweep, try_fault
from kill_runs import TINY

pytestmark = pytest.mark.usefixtures("fast_runs_in_module")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = tmp_path_factory.mktemp("undisturbed") / "run"
    assert embasis(*TINY, "-o", path).exit_code == 0
    return artefacts(path)


@pytest.mark.parametrize(
    ("name", "forever", "first"),
    [("ENOSPC", False, 3), ("ENOSPC", True, 5), ("EIO", True, 7), ("EDQUOT", False, 11), ("EACCES", False, 13),
     ("short", True, 1)],
)  # fmt: skip
def test_a_fit_whose_disk_fails_ends_with_5_and_keeps_what_it_had(
    tmp_path: Path, expected: dict[str, str], name: str, forever: bool, first: int
) -> None:
    found = list(sweep(tmp_path, name, forever, expected, first, step=29, often=3))
    assert [problem for problem in found if problem] == []
    assert len(found) >= (1 if name == "short" else 4)


# --- the proof that the sweep is not blind


def test_a_publish_that_cleans_nothing_up_is_found_out(
    tmp_path: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embasis.storage.atomic.Disk.discard", lambda self, path: None)
    assert any("left behind" in problem for problem in sweep(tmp_path, "ENOSPC", False, expected, step=9))


def test_a_save_that_hides_its_failure_is_found_out(
    tmp_path: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = RunFolder.publish

    def careless(self: RunFolder, *words: object) -> int:
        try:
            return publish(self, *words)  # type: ignore[arg-type]
        except OSError:
            return self._last

    monkeypatch.setattr(RunFolder, "publish", careless)
    assert any("a false success" in problem for problem in sweep(tmp_path, "EIO", False, expected, step=9))


def test_a_fault_that_does_not_come_is_told_from_one_that_does(tmp_path: Path, expected: dict[str, str]) -> None:
    assert try_fault(tmp_path / "late", Fault("EIO", False, 4000), expected, False) == (False, "")
    assert try_fault(tmp_path / "early", Fault("EIO", False, 20), expected, True) == (True, "")
