"""What a run hands out is sealed: damage is seen where it is read, and made good by the same fit command."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import mutated_runs as mutated
from cli_tables import copied, embasis, refused
from embasis.errors import CorruptError
from embasis.storage import encode_table, read_newest, read_stored_table
from folder_runs import config, digests, go
from resealed import reseal
from storage_runs import tree

CURE = "the fit command that made the run makes it again if it can"
EXPORT = ("export", "run", "-o", "x.csv", "--as", "csv")
KEPT = "run/labels/round-001.parquet"
EVERY = {"table": 59, "images": 61, "maps": 97}
"""So many changes for each one that is tried here; all of them are in torture R3."""
UNTIMED = ("log.txt", "report.html", "lock", "error.json")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home, before = tmp_path_factory.mktemp("sealed"), os.getcwd()
    with pytest.MonkeyPatch.context() as patch:
        mutated.hurry(patch)
        found = {kind: mutated.finish_run(home / kind, kind) for kind in mutated.FITS}
    os.chdir(before)
    return found


@pytest.fixture
def here(made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A copy of a finished run to spoil, as the current folder."""
    kind = getattr(request, "param", "table")
    copied(made[kind], tmp_path / "here", monkeypatch)
    mutated.hurry(monkeypatch)
    return str(kind)


def run_files() -> dict[str, bytes]:
    return {name: data for name, data in tree(Path("run")).items() if not name.endswith(UNTIMED)}


@pytest.mark.parametrize("here", mutated.FITS, indirect=True)
def test_a_flipped_bit_in_what_a_run_hands_out_is_seen(here: str) -> None:
    assert len(mutated.handed_out(Path("run"))) >= 5
    assert mutated.unseen_flips(Path("run"), 60) == []


@pytest.mark.parametrize("here", mutated.FITS, indirect=True)
def test_no_changed_file_of_a_run_crashes_a_command(here: str) -> None:
    tried, crashed = mutated.crashes(Path("run"), here, EVERY[here])
    assert crashed == []
    assert tried >= 15


def test_labels_of_another_round_are_refused(here: str) -> None:
    shutil.copy("run/labels/round-000.parquet", KEPT)
    result = embasis(*EXPORT)
    assert result.exit_code == 4
    assert result.stderr.startswith(f"embasis: {KEPT}: ")
    assert embasis("report", "run").exit_code == 4
    assert not Path("x.csv").exists()


def test_a_forged_table_of_labels_is_refused(here: str) -> None:
    columns = read_stored_table(KEPT)
    columns["trusted"] = [True] * len(columns["trusted"])
    Path(KEPT).write_bytes(encode_table(columns, ".parquet"))
    result = embasis(*EXPORT)
    assert result.exit_code == 4
    assert result.stderr.startswith(f"embasis: {KEPT}: ")
    assert result.stderr.endswith(f"{CURE}\n")


def test_labels_that_were_deleted_are_missed(here: str) -> None:
    shutil.rmtree("run/labels")
    refused(4, f"{KEPT} is missing; {CURE}", *EXPORT)
    refused(4, f"{KEPT} is missing; {CURE}", "report", "run")


@pytest.mark.parametrize("here", mutated.FITS, indirect=True)
def test_the_same_fit_command_makes_everything_again_bit_for_bit(here: str) -> None:
    before, last = run_files(), max(int(path.name[6:9]) for path in Path("run/labels").iterdir())
    sealed = read_newest("run").sealed or {}
    spoilt = [name for name in sealed if f"round-{last:03d}" in name and not name.startswith("sites/")]
    spoilt += [name for name in sealed if name.startswith(("rows/", "backbone"))]
    assert len(spoilt) >= 3
    for number, name in enumerate(spoilt):
        path = Path("run", name)
        path.unlink() if number % 2 else path.write_bytes(path.read_bytes()[:-1])
    for name in ("environment.json", "rounds.jsonl", "config.json", "timings.jsonl", "ledger.json", "quarantine.jsonl"):
        Path("run", name).write_bytes(b"[]\n")
    for path in Path("run/gallery").glob("rows-*.json"):
        path.write_bytes(b"{}")
    result = embasis("fit", *mutated.FITS[here])
    assert result.exit_code == 0, result.output
    assert run_files() == before
    assert "was damaged or missing, and has been made again: it is bit for bit as it was" in result.output
    again = embasis("fit", *mutated.FITS[here])
    assert "made again" not in again.output


def test_a_map_that_no_command_reads_is_made_again_too(made: dict[str, Path], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        copied(made["maps"], tmp_path / "here", patch)
        mutated.hurry(patch)
        path = next(Path("run/labels/round-001/variance").rglob("*.png"))
        whole = path.read_bytes()
        path.write_bytes(whole[:-4] + b"xxxx")
        result = embasis("fit", *mutated.MAPS)
        assert result.exit_code == 0, result.output
        assert "labels/round-001/maps.json was damaged or missing" in result.output
        assert path.read_bytes() == whole


def test_labels_of_a_round_whose_network_is_gone_are_an_error_until_they_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = go(Path("run"), config())
    assert run.model is not None
    lost = next(number for number in (1, 0) if number != run.model.progress.best_round)
    path = Path(f"run/labels/round-{lost:03d}.parquet")
    path.write_bytes(b"x" + path.read_bytes()[1:])
    sentence = (
        f"{path} is damaged (sha256 differs) and cannot be made again: the network of its round is gone; "
        "delete the file to go on without it, or train again in another folder"
    )
    with pytest.raises(CorruptError) as caught:
        go(Path("run"), config())
    assert str(caught.value) == sentence
    path.unlink()
    assert go(Path("run"), config()).model is not None


def test_a_run_that_goes_on_names_what_is_damaged_and_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    go(Path("whole"), config())
    go(Path("run"), config(), stop_after=8)
    path = Path("run/labels/round-000.parquet")
    spoilt = path.read_bytes()
    path.write_bytes(spoilt[:-1])
    run = go(Path("run"), config())
    size = f"{len(spoilt) - 1:,} of {len(spoilt):,} bytes"
    assert run.repaired == [f"labels/round-000.parquet is damaged ({size}); the run goes on without it"]
    path.write_bytes(spoilt)
    assert digests(Path("run")) == digests(Path("whole"))


def test_the_list_of_hashes_of_maps_is_one_that_sha256sum_reads(made: dict[str, Path]) -> None:
    import subprocess

    home = made["maps"] / "run" / "labels" / "round-001"
    done = subprocess.run(["sha256sum", "-c", "--quiet", "maps.sha256"], cwd=home, check=False, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len((home / "maps.sha256").read_text().splitlines()) == 4 * 3 + 1


def test_a_basis_that_names_unknown_rows_is_shown_without_them(made: dict[str, Path], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        copied(made["images"], tmp_path / "here", patch)
        path = Path("run/basis/round-001.json")
        value = json.loads(path.read_text())
        value["components"][0]["nearest"][0] = "nobody"
        path.write_text(json.dumps(value))
        reseal(Path("run"))
        result = embasis("fit", *mutated.IMAGES)
        assert result.exit_code == 0, result.output
