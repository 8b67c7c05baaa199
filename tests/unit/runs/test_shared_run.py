"""Before the first step all processes see the same folder, settings, data and versions, or the run is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from embasis import config
from embasis.data import DATASETS
from embasis.distributed import World
from embasis.errors import ConfigError, EmbasisError, InputDataError
from embasis.runs import same_everywhere, shared_run
from embasis.runs.run import TrainingRun
from embasis.runs.shared_run import compare_processes, keep_parts, open_run_folder, open_together
from embasis.storage.followed_folder import FollowedFolder
from thread_world import run_world


def make_run(path: Path, count: int = 24, *words: str) -> TrainingRun:
    chosen = config.load(None, ("plan.rounds=0", "network.name=linear", *words))
    return TrainingRun(DATASETS["blobs"](count=count), chosen, open_run_folder(path))


def refusal(size: int, path: Path, counts: dict[int, int], words: dict[int, str]) -> EmbasisError:
    def work(world: World) -> None:
        extra = [words[world.rank]] if world.rank in words else []
        compare_processes(make_run(path, counts.get(world.rank, 24), *extra))

    with pytest.raises(EmbasisError) as caught:
        run_world(size, work)
    return caught.value


def test_processes_that_see_the_same_go_on(tmp_path: Path) -> None:
    run_world(3, lambda world: compare_processes(make_run(tmp_path / "run")))


def test_other_data_other_settings_and_other_versions_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = refusal(3, tmp_path, {2: 25}, {})
    assert type(data) is InputDataError
    assert (
        str(data) == "rank 2 reads other data than rank 0: labelled, labels, unlabelled; all must read the same files"
    )
    settings = refusal(2, tmp_path, {}, {1: "plan.source_epochs=9"})
    assert type(settings) is ConfigError
    assert str(settings) == "rank 1 has other settings than rank 0; start all with the same command"
    hashes = iter(["a", "b"])
    monkeypatch.setattr(same_everywhere, "hash_sources", lambda: next(hashes))
    versions = refusal(2, tmp_path, {}, {})
    assert type(versions) is ConfigError
    expected = "rank 1 runs other versions than rank 0 (sources b instead of a); install the same on every host"
    assert str(versions) == expected


def test_a_setting_of_how_often_a_run_saves_may_differ(tmp_path: Path) -> None:
    def work(world: World) -> None:
        compare_processes(make_run(tmp_path / "run", 24, *(["save_seconds=5"] if world.rank else [])))

    run_world(2, work)


def test_a_folder_that_is_not_shared_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_run, "SEEING_SECONDS", 0.2)

    def work(world: World) -> None:
        run = make_run(tmp_path / str(world.rank))
        with run.folder:
            open_together(run)

    with pytest.raises(ConfigError) as caught:
        run_world(2, work)
    places = [f"rank 1 cannot see {tmp_path / str(rank)}: is the folder shared?" for rank in range(2)]
    assert str(caught.value) in places
    assert not (tmp_path / "1").exists()


def test_one_process_writes_the_folder_and_the_others_read_what_it_has_written(tmp_path: Path) -> None:
    def work(world: World) -> tuple[bool, int]:
        run = make_run(tmp_path / "run")
        with run.folder:
            state = open_together(run)
            return run.folder.writes, state.round

    assert run_world(3, work) == [(True, 0), (False, 0), (False, 0)]


def test_a_followed_folder_writes_nothing(tmp_path: Path) -> None:
    with FollowedFolder(tmp_path / "run") as folder:
        folder.write_json("config.json", {})
        folder.log("a line")
        assert folder.publish({}, {}) == 1
        assert folder.gone() is None
    assert list(tmp_path.iterdir()) == []


def test_a_new_folder_decides_no_parts_and_words_of_the_user_win(tmp_path: Path) -> None:
    plain = config.load(None, ("plan.rounds=0",))
    assert keep_parts(plain, tmp_path / "none") == plain
    chosen = config.load(None, ("plan.accumulate_steps=3",))
    assert keep_parts(chosen, tmp_path / "none").plan["accumulate_steps"] == 3
