"""Restyled rows on disk: what is kept is what would be made, and only what changed is made again."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from embasis.config import load
from embasis.data.images.samples import Images
from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.engine.restyling import restyle_samples
from embasis.errors import EmbasisWarning, ResourceError
from embasis.inputs.image_rows import CachedFeatures
from embasis.inputs.load import load_problem
from embasis.inputs.restyled_rows import RestyledCache, keep_restyled_rows
from embasis.methods import METHODS
from embasis.methods.restyling import parts
from embasis.runs.parts import build
from embasis.types import Arrays, Restyler, RowChange, Samples, State
from folder_runs import digests, go
from image_runs import begun, picture, read, settings, sides
from image_trees import plant
from map_folder_runs import sides as map_sides
from map_runs import little_streets
from training_runs import little_digits

KINDS = ("rows", "maps", "images", "map files", "features")
HALF: State = {"factor": torch.tensor(0.5)}

pytestmark = pytest.mark.usefixtures("fast_runs")


@dataclass(frozen=True, kw_only=True)
class Darken(Restyler):
    """Rows times a factor; it counts the rows that it has been given."""

    add: float = 0.0
    name: ClassVar[str] = "darken"
    seen: ClassVar[list[int]] = []

    def restyle(self, pictures: Tensor, state: State) -> Tensor:
        self.seen.extend([1] * len(pictures))
        return pictures.float() * state["factor"] + self.add


@pytest.fixture(autouse=True)
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that are restyled from now on, fillings of a batch included."""
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(parts, "SOURCE_STEPS", 5)
    Darken.seen.clear()
    return Darken.seen


def labelled_side(kind: str, tmp_path: Path) -> Samples:
    """Samples as a run has them when it begins to train."""
    if kind == "rows":
        return little_digits().labelled
    if kind == "maps":
        return build(little_streets(), load(method={"name": "source_only"})).problem.labelled
    if kind == "map files":
        root = map_sides(tmp_path / "scenes", 4)
        data = {"labelled": str(root / "drawn"), "unlabelled": str(root / "streets")}
        problem, config = load_problem(
            load(None, (), data=data, network={"name": "small_fcn"}, maps={"size": 24, "workers": 0})
        )
        return build(problem, config).problem.labelled
    config = settings(tmp_path / "cache", "full" if kind == "images" else "partial")
    problem, front = begun(sides(tmp_path / "images", 3), config)
    return read(problem, front).labelled


def fill(samples: Samples, change: RowChange, cache: RestyledCache | None = None) -> tuple[Samples, list[str]]:
    """The samples restyled by way of the disk, and what the user is told."""
    cache = cache or RestyledCache()
    for _ in cache.fill(samples, change):
        pass
    return cache.read(samples, change), cache.notes


def inputs_of(samples: Samples) -> list[Tensor]:
    return [samples.inputs(torch.tensor([row])) for row in range(len(samples))]


def same(left: Samples, right: Samples) -> bool:
    return all(torch.equal(one, two) for one, two in zip(inputs_of(left), inputs_of(right), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_restyled_once_and_read_as_it_was_made(kind: str, tmp_path: Path, counted: list[int]) -> None:
    samples, change = labelled_side(kind, tmp_path), RowChange(Darken(), HALF)
    expected = {"rows": Arrays, "maps": MapArrays, "images": Images, "map files": MapFiles, "features": CachedFeatures}
    assert isinstance(samples, expected[kind])
    first, notes = fill(samples, change)
    count = len(samples)
    words = "different labelled pictures are in the cache of restyled pictures"
    assert notes == [f"darken: 0 of {count} {words}; {count} are restyled now"]
    made = len(counted)
    assert made >= count
    again, notes = fill(samples, change)
    assert notes == [f"darken: {count} of {count} {words}; nothing is restyled again"]
    assert len(counted) == made
    assert same(first, again)
    assert torch.equal(first.labels, samples.labels)
    assert torch.equal(first.ids, samples.ids)
    one, two = (next(iter(each.stream([torch.tensor([0])], (0, 0, 0)))) for each in (samples, first))
    assert torch.equal(one.y, two.y)
    assert one.inputs.shape == two.inputs.shape
    assert not torch.equal(one.inputs, two.inputs)


@pytest.mark.parametrize("kind", ["rows", "maps", "features"])
def test_what_is_kept_is_what_is_made_without_a_cache_to_the_bit(kind: str, tmp_path: Path) -> None:
    samples, change = labelled_side(kind, tmp_path), RowChange(Darken(weight=0.3), HALF)
    assert same(fill(samples, change)[0], restyle_samples(samples, change))


@pytest.mark.parametrize("kind", ["images", "map files"])
def test_the_evaluation_view_of_a_restyled_file_is_the_view_restyled(kind: str, tmp_path: Path) -> None:
    samples, change = labelled_side(kind, tmp_path), RowChange(Darken(), HALF)
    assert same(fill(samples, change)[0], restyle_samples(samples, change))


@pytest.mark.parametrize(
    "other",
    [
        RowChange(Darken(), {"factor": torch.tensor(0.25)}),
        RowChange(Darken(weight=0.5), HALF),
        RowChange(Darken(add=1.0), HALF),
        RowChange(Darken(), {**HALF, "more": torch.zeros(1)}),
    ],
    ids=["state", "weight", "setting", "more state"],
)
def test_another_setting_or_state_makes_all_rows_anew(other: RowChange) -> None:
    samples, change = little_digits().labelled, RowChange(Darken(), HALF)
    fill(samples, change)
    assert fill(samples, other)[1][0].startswith(f"darken: 0 of {len(samples)} ")
    assert fill(samples, change)[1][0].endswith("nothing is restyled again")


def test_of_changed_data_only_what_changed_is_made_anew() -> None:
    samples, change = little_digits().labelled, RowChange(Darken(), HALF)
    assert isinstance(samples, Arrays)
    fill(samples, change)
    x = samples.x.clone()
    x[3] += 1
    other = replace(samples, x=x)
    restyled, notes = fill(other, change)
    assert notes[0].startswith(f"darken: {len(samples) - 1} of {len(samples)} ")
    assert notes[0].endswith("1 are restyled now")
    assert same(restyled, restyle_samples(other, change))


def test_a_changed_picture_of_a_folder_is_the_only_one_made_anew(tmp_path: Path) -> None:
    change = RowChange(Darken(), HALF)
    fill(labelled_side("images", tmp_path), change)
    plant(tmp_path / "images" / "photos", {"amsel/bild 0.png": picture(0, 99)})
    config = settings(tmp_path / "cache", "full")
    problem, front = begun(tmp_path / "images", config)
    assert fill(read(problem, front).labelled, change)[1][0].endswith("; 1 are restyled now")


@pytest.mark.parametrize("kind", ["rows", "images"])
def test_a_damaged_shard_is_found_and_its_rows_are_made_anew(kind: str, tmp_path: Path) -> None:
    samples, change = labelled_side(kind, tmp_path), RowChange(Darken(), HALF)
    before = fill(samples, change)[0]
    (shard,) = (tmp_path / "cache" / "restyled").glob("*/*.shard")
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.warns(EmbasisWarning) as caught:
        after, notes = fill(samples, change)
    assert [str(item.message) for item in caught] == [f"{shard}: sha256 differs; its pictures are restyled again"]
    assert notes[0].endswith(f"; {len(samples)} are restyled now")
    assert shard.read_bytes() == whole
    assert same(before, after)


def test_what_was_made_before_a_stop_is_kept() -> None:
    samples, change = little_digits().labelled, RowChange(Darken(), HALF)
    steps = RestyledCache().fill(samples, change)
    for _ in range(10):
        next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert fill(samples, change)[1][0].startswith(f"darken: 10 of {len(samples)} ")


def test_a_file_that_cannot_be_read_stays_as_it_was(tmp_path: Path) -> None:
    samples, change = labelled_side("images", tmp_path), RowChange(Darken(), HALF)
    assert isinstance(samples, Images)
    Path(samples.files[0].path).write_bytes(b"no picture")
    restyled, _ = fill(samples, change)
    assert isinstance(restyled, Images)
    assert restyled.files[0] == samples.files[0]
    assert int(restyled.inputs(torch.tensor([0])).float().std()) == 0  # grey, and written down
    assert [item.name for item in samples.rejected] == [samples.files[0].name]


def test_rows_in_memory_do_without_a_cache_and_files_say_what_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, images = RowChange(Darken(), HALF), labelled_side("images", tmp_path)
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "file" / "cache"))
    rows = little_digits().labelled
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        restyled = fill(rows, change)[0]
    place = tmp_path / "file" / "cache" / "restyled"
    advice = "images.cache=DIR or EMBASIS_CACHE names another folder for restyled pictures"
    assert str(caught[0].message).startswith(f"cannot write {place}")
    assert str(caught[0].message).endswith(f"Not a directory; {advice}; restyled pictures are not kept")
    assert same(restyled, restyle_samples(rows, change))
    with pytest.raises(ResourceError, match=rf"^cannot write {place}.*Not a directory; {advice}$"):
        fill(images, change)


def test_a_cheap_restyler_keeps_nothing_and_rows_in_memory_are_kept_for_run_folders_alone() -> None:
    problem, config = little_digits(), load()
    cheap, costly = METHODS["restyle"](3), METHODS["fcan"](3)
    assert keep_restyled_rows(problem, cheap, config, in_memory=True).restyled is None
    assert keep_restyled_rows(problem, METHODS["em_basis"](3), config, in_memory=True).restyled is None
    assert keep_restyled_rows(problem, costly, config).restyled is None
    assert isinstance(keep_restyled_rows(problem, costly, config, in_memory=True).restyled, RestyledCache)


def whole_run(path: Path, tmp_path: Path, kind: str, stop_after: int | None = None) -> Any:
    """A run of fcan in a folder."""
    method = {"name": "fcan", "iterations": 2}
    if kind == "images":
        config = settings(tmp_path / "cache", "full", method=method)
        problem, front = begun(tmp_path / "images", config)
        return go(path, config, stop_after, read(problem, front), front)
    plan = {"rounds": 0, "source_epochs": 1}
    network = {"name": "small_cnn", "width": 4, "features": 16}
    config = load(None, (), top={"save_seconds": 0.0}, method=method, network=network, plan=plan)
    return go(path, config, stop_after, little_digits())


@pytest.mark.parametrize("kind", ["rows", "images"])
@pytest.mark.usefixtures("plain_page")
def test_a_run_that_is_resumed_or_repeated_restyles_nothing_again_and_has_the_same_bits(
    kind: str, tmp_path: Path
) -> None:
    sides(tmp_path / "images", 3)
    first = whole_run(tmp_path / "first", tmp_path, kind)
    count = len(first.problem.labelled)
    assert first.problem.restyled.notes[0].endswith(f"; {count} are restyled now")
    stopped = whole_run(tmp_path / "second", tmp_path, kind, stop_after=2)
    resumed = whole_run(tmp_path / "second", tmp_path, kind)
    for run in (stopped, resumed):
        assert run.problem.restyled.notes[0].endswith("; nothing is restyled again")
    assert digests(tmp_path / "first") == digests(tmp_path / "second")


@pytest.mark.usefixtures("plain_page")
def test_a_run_stopped_while_it_restyles_goes_on_from_there_and_ends_the_same(tmp_path: Path) -> None:
    sides(tmp_path / "images", 3)
    whole_run(tmp_path / "stopped", tmp_path, "images", stop_after=4)
    resumed = whole_run(tmp_path / "stopped", tmp_path, "images")
    assert resumed.problem.restyled.notes[0].startswith("fcan: 3 of 9 ")
    for shard in (tmp_path / "cache" / "restyled").glob("*/*.shard"):
        shard.unlink()
    whole_run(tmp_path / "undisturbed", tmp_path, "images")
    assert digests(tmp_path / "stopped") == digests(tmp_path / "undisturbed")
