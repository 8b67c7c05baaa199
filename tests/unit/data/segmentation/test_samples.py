"""Pictures with class maps as samples: the same views from any number of workers, from disk and from memory."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from embasis.data.images.files import ImageFile
from embasis.data.reader import Reader
from embasis.data.segmentation.pairs import MapFile
from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.errors import InputDataError
from embasis.types import ClassTable, CropTarget, MapPlan, MapPreparation, RejectedFile, Samples, View

TABLE = ClassTable(("road", "car", "sky"), ((7,), (26, 27), (23,)), ignore=(0, 255))
IDS = torch.tensor([7, 26, 23, 0], dtype=torch.uint8)  # of classes 0, 1, 2 and of no class
READY = MapPreparation(MapPlan(size=32, crop_height=32, crop_width=48, colour=0.3, blur=0.5, workers=0), 4, 16)
COUNT = 11


def pixels(number: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """A picture, and its classes 0, 1, 2 and 3 = none; class 1 is in odd pictures only."""
    draw = torch.Generator().manual_seed(number)
    picture = torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=draw)
    classes = torch.randint(0, 4, (height // 8, width // 8), dtype=torch.uint8, generator=draw)
    classes = classes.repeat_interleave(8, 0).repeat_interleave(8, 1)
    return picture, classes if number % 2 else torch.where(classes == 1, 2, classes)


def saved(path: Path, array: Tensor) -> ImageFile:
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(array.numpy()).save(path)
    return ImageFile(path.name, str(path), hashlib.blake2b(path.read_bytes(), digest_size=16).digest())


def map_file(folder: Path, number: int, height: int = 40, width: int = 64) -> MapFile:
    picture, classes = pixels(number, height, width)
    image = saved(folder / "images" / f"{number:02}.png", picture.permute(1, 2, 0).contiguous())
    label = saved(folder / "labels" / f"{number:02}.png", IDS[classes.long()])
    return MapFile(image, label, (height, width))


@pytest.fixture
def files(tmp_path: Path) -> list[MapFile]:
    return [map_file(tmp_path, number) for number in range(COUNT)]


def rows_of(files: list[MapFile], reader: Reader | None = None, labelled: bool = True) -> MapFiles:
    return MapFiles.of(files, TABLE, labelled=labelled).prepared(READY, reader)


def twin(rows: MapFiles) -> MapArrays:
    """The same rows in memory."""
    both = [pixels(int(name[:2]), 40, 64) for name in rows.names]
    maps = torch.stack([torch.where(classes == 3, 255, classes) for _, classes in both])
    return MapArrays.of(torch.stack([picture for picture, _ in both]), maps, rows.ids).prepared(READY)


def same(one: View, two: View) -> bool:
    assert one.places is not None
    assert two.places is not None
    places = torch.equal(one.places.nan_to_num(-1), two.places.nan_to_num(-1))
    return places and torch.equal(one.inputs, two.inputs) and torch.equal(one.y, two.y)


BATCHES = [torch.tensor([3, 1]), torch.arange(COUNT), torch.tensor([], dtype=torch.int64), torch.tensor([5, 5])]
PLACES = [torch.linspace(0, 1, 2 * len(rows)).reshape(-1, 2) for rows in BATCHES]
PLACES[1][4] = math.nan
AIMS = {"none": None, "classes": CropTarget(torch.tensor([0.0, 1.0, 0.1])), "places": CropTarget(torch.ones(3), PLACES)}


@pytest.mark.parametrize("aim", AIMS)
@pytest.mark.parametrize("draw", [None, (1, 2, 3)])
def test_views_are_the_same_for_any_number_of_workers_and_from_memory(
    files: list[MapFile], readers: list[Reader], draw: tuple[int, int, int] | None, aim: str
) -> None:
    found = [list(rows_of(files, reader).stream(BATCHES, draw, AIMS[aim])) for reader in readers]
    found.append(list(twin(rows_of(files)).stream(BATCHES, draw, AIMS[aim])))
    for view, rows in zip(found[0], BATCHES, strict=True):
        assert (view.inputs.dtype, view.y.dtype) == (torch.uint8, torch.int64)
        assert len(view.inputs) == len(rows)
        if len(rows):
            assert (view.inputs.shape[1:], view.grid) == ((3, 32, 48), (8, 12))
    for other in found[1:]:
        pairs = zip(found[0], other, strict=True)
        assert all(same(one, two) for one, two in pairs if len(one.y))


def test_both_kinds_of_rows_are_samples(files: list[MapFile]) -> None:
    for rows in (rows_of(files), twin(rows_of(files))):
        samples: Samples = rows
        assert len(samples) == COUNT
        assert bool((samples.ids[1:] > samples.ids[:-1]).all())
        assert torch.equal(samples.ids, rows_of(files).ids)
        assert rows.sizes.tolist() == [[40, 64]] * COUNT
        assert torch.equal(samples.inputs(torch.tensor([2])), next(samples.stream([torch.tensor([2])])).inputs)
    assert (rows_of(files).has_mixed_shapes, twin(rows_of(files)).has_mixed_shapes) == (True, False)
    assert rows_of(files).names == [file.name for file in sorted(files, key=lambda file: file.id)]
    assert MapArrays.of(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)).names == ["0", "1"]


def test_truth_labels_and_counts_are_those_of_the_maps(files: list[MapFile]) -> None:
    for rows in (rows_of(files), twin(rows_of(files))):
        total = torch.zeros(5, dtype=torch.int64)
        for row, name in enumerate(rows_of(files).names):
            picture, classes = pixels(int(name[:2]), 40, 64)
            truth = rows.truth[row]
            assert torch.equal(truth, torch.where(classes == 3, -1, classes.long()))
            assert torch.equal(rows.picture(row), picture)
            count = torch.bincount(truth[truth >= 0], minlength=5)
            assert int(rows.labels[row]) == int(count.argmax())
            total += count
        assert torch.equal(rows.counts(5), total)
        assert len(rows.truth) == COUNT
        with pytest.raises(IndexError):
            rows.truth[COUNT]


def test_counts_that_are_known_are_not_counted_again(files: list[MapFile], tmp_path: Path) -> None:
    rows = rows_of(files)
    known = torch.stack([rows.pixel_counts[rows.names.index(file.name)] for file in files])
    Path(files[0].label.path).unlink()  # type: ignore[union-attr]
    given = MapFiles.of(files, TABLE, labelled=True, counts=known)
    assert torch.equal(given.pixel_counts, rows.pixel_counts)
    assert given.rejected == []
    with pytest.raises(InputDataError) as caught:
        MapFiles.of(files, TABLE, labelled=True, counts=torch.zeros(3, dtype=torch.int64))
    assert str(caught.value) == (
        "counts must be int64 of shape (11, 3), pixels of each class in each file, got torch.int64 of shape (3,)"
    )


def test_the_unlabelled_side_never_touches_label_maps(files: list[MapFile]) -> None:
    labelled = list(rows_of(files).stream(BATCHES[:2], (1, 2, 3)))
    for file in files:
        Path(file.label.path).unlink()  # type: ignore[union-attr]
    hidden = rows_of(files, labelled=False)
    for one, two in zip(labelled, hidden.stream(BATCHES[:2], (1, 2, 3)), strict=True):
        assert torch.equal(one.inputs, two.inputs)
        assert bool((two.y == -1).all())
        assert bool((one.y >= 0).any())
    assert bool((hidden.labels == -1).all())
    assert hidden.counts(3).tolist() == [0, 0, 0]
    assert bool((hidden.truth[4] == -1).all())
    assert hidden.rejected == []
    assert bool((twin(hidden).take(torch.arange(3)).labels >= 0).all())
    alone = MapArrays.of(torch.zeros(2, 3, 16, 16, dtype=torch.uint8)).prepared(READY)
    assert (alone.labels.tolist(), alone.counts(2).tolist()) == ([-1, -1], [0, 0])
    assert bool((next(alone.stream([torch.tensor([0, 1])], (0, 0, 0))).y == -1).all())


def test_the_training_view_depends_on_seed_round_epoch_and_id_alone(files: list[MapFile]) -> None:
    rows = rows_of(files)
    first = next(rows.stream([torch.arange(COUNT)], (1, 2, 3)))
    other = next(rows_of(files[::-1]).stream([torch.tensor([9, 4])], (1, 2, 3)))
    assert torch.equal(other.inputs, first.inputs[[9, 4]])
    part = next(rows.take(torch.tensor([4, 9])).stream([torch.tensor([1])], (1, 2, 3)))
    assert torch.equal(part.inputs, first.inputs[[9]])
    for draw in ((0, 2, 3), (1, 0, 3), (1, 2, 0)):
        assert not torch.equal(next(rows.stream([torch.arange(COUNT)], draw)).inputs, first.inputs)


def test_an_aim_shows_a_rare_class_more_often_and_nothing_when_rows_are_whole(files: list[MapFile]) -> None:
    plan = replace(READY.plan, crop_height=16, crop_width=16, rare=1.0)
    rows = twin(rows_of(files)).prepared(replace(READY, plan=plan))
    batches = [torch.arange(COUNT)] * 10

    def seen(aim: CropTarget | None) -> Tensor:
        found = [next(rows.stream([batch], (1, 2, step), aim)).y == 1 for step, batch in enumerate(batches)]
        return torch.stack(found).any(-1).any(-1)

    odd = torch.tensor([int(name[:2]) % 2 == 1 for name in rows_of(files).names])
    assert torch.equal(seen(CropTarget(torch.tensor([0.0, 1.0, 0.0]))), odd.expand(10, -1))
    assert not torch.equal(seen(None), odd.expand(10, -1))
    nowhere = [torch.full((COUNT, 2), math.nan)]
    for aim in (CropTarget(torch.ones(3), nowhere), None):
        view = next(rows.stream([batches[0]], (1, 2, 3), aim))
        assert torch.equal(view.inputs, next(rows.stream([batches[0]], (1, 2, 3))).inputs)
    assert same(next(rows.stream([batches[0]], None, CropTarget(torch.ones(3)))), next(rows.stream([batches[0]])))
    with pytest.raises(InputDataError) as caught:
        next(rows.stream([batches[0]], (1, 2, 3), CropTarget(torch.ones(3), [torch.zeros(2, 2)])))
    assert str(caught.value) == "places of batch 0 must have shape (11, 2), got (2, 2)"


def test_a_row_that_cannot_be_read_is_grey_without_classes_and_written_down_once(
    tmp_path: Path, readers: list[Reader]
) -> None:
    for number, reader in enumerate(readers):
        folder = tmp_path / str(number)
        folder.mkdir()
        rows = rows_of([map_file(folder, row) for row in range(6)], reader)
        paths = [(Path(file.image.path), Path(file.label.path)) for file in rows.files if file.label]
        paths[0][0].unlink()
        paths[1][1].unlink()
        paths[2][1].write_bytes(b"other")
        wrong = replace(rows.files[3], size=(40, 60))
        strange = replace(rows.files[4], label=saved(paths[4][1], torch.full((40, 64), 99, dtype=torch.uint8)))
        rows = replace(rows, files=(*rows.files[:3], wrong, strange, rows.files[5]))
        for draw in ((0, 0, 0), (0, 0, 1)):
            view = next(rows.stream([torch.tensor([0, 1, 2, 3, 4, 5, 0])], draw))
            bad = torch.tensor([0, 1, 2, 3, 4, 6])
            assert view.places is not None
            assert bool((view.inputs[bad] == 128).all())
            assert bool((view.y[bad] == -1).all())
            assert bool(view.places[bad].isnan().all())
            assert bool((view.y[5] >= 0).any())
        reasons = [
            "cannot be read: No such file or directory (ENOENT)",
            "its label map cannot be read: No such file or directory (ENOENT)",
            "its label map changed since the scan",
            "has 64×40 pixels, 60×40 at the scan",
        ]
        assert rows.rejected[:4] == [
            RejectedFile(rows.names[row], reason, "train") for row, reason in enumerate(reasons)
        ]
        assert rows.rejected[4].name == rows.names[4]
        assert rows.rejected[4].reason.startswith("its label map: ")
        assert len(rows.rejected) == 5


def test_truth_and_pictures_that_vanish_are_empty_and_written_down(files: list[MapFile]) -> None:
    rows = rows_of(files)
    Path(rows.files[2].label.path).write_bytes(b"other")  # type: ignore[union-attr]
    Path(rows.files[3].image.path).unlink()
    for _ in range(2):
        assert torch.equal(rows.truth[2], torch.full((40, 64), -1))
        assert torch.equal(rows.picture(3), torch.full((3, 40, 64), 128, dtype=torch.uint8))
    assert rows.rejected == [
        RejectedFile(rows.names[2], "its label map changed since the scan", "train"),
        RejectedFile(rows.names[3], "cannot be read: No such file or directory (ENOENT)", "train"),
    ]


def test_whole_pictures_of_several_sizes_are_read_one_by_one(tmp_path: Path, readers: list[Reader]) -> None:
    files = [map_file(tmp_path, 0), map_file(tmp_path, 1, 64, 40), map_file(tmp_path, 2, 80, 160)]
    shapes = {"00.png": (32, 48), "01.png": (48, 32), "02.png": (32, 64)}
    for reader in readers:
        rows = rows_of(files, reader)
        views = list(rows.stream([torch.tensor([row]) for row in range(3)]))
        assert [tuple(view.inputs.shape[2:]) for view in views] == [shapes[name] for name in rows.names]
        assert [view.grid for view in views] == [(shapes[name][0] // 4, shapes[name][1] // 4) for name in rows.names]
        assert next(rows.stream([torch.arange(3)], (0, 0, 0))).inputs.shape == (3, 3, 32, 48)
        assert rows.rejected == []
    with pytest.raises(InputDataError) as caught:
        rows_of(files[:2]).inputs(torch.tensor([0, 1]))
    got = ", ".join({"00.png": "48×32 (00.png)", "01.png": "32×48 (01.png)"}[name] for name in rows_of(files[:2]).names)
    assert str(caught.value) == (f"whole pictures of one batch must have one shape, got {got}; read them one by one")


def test_rows_must_be_prepared_before_they_are_read(files: list[MapFile]) -> None:
    bare = MapFiles.of(files, TABLE, labelled=True)
    for rows in (bare, replace(twin(bare), preparation=None)):
        with pytest.raises(InputDataError) as caught:
            rows.inputs(torch.tensor([0]))
        assert str(caught.value) == "pictures must be prepared for a network before they are read"


def test_a_strip_that_would_be_enlarged_beyond_all_bounds_is_refused(files: list[MapFile]) -> None:
    strip = replace(files[0], size=(1, 90000))
    with pytest.raises(InputDataError) as caught:
        MapFiles.of([strip], TABLE, labelled=False).prepared(READY)
    assert str(caught.value) == (
        "00.png: 90,000×1 pixels would become 2,880,000×32, more than 64 Mpx; leave it out or set maps.size lower"
    )


def test_two_rows_of_one_id_are_refused(files: list[MapFile]) -> None:
    with pytest.raises(InputDataError) as caught:
        MapFiles.of([files[0], files[1], files[0]], TABLE, labelled=True)
    assert str(caught.value) == (
        f"images: 00.png and 00.png have the same id {files[0].id}; leave one of them out or give it another name"
    )


@pytest.mark.parametrize(
    ("pictures", "maps", "ids", "sentence"),
    [
        (
            torch.zeros(2, 3, 4, 4),
            None,
            None,
            "pictures must be uint8 (N, 3, H, W), got torch.float32 of shape (2, 3, 4, 4)",
        ),
        (
            torch.zeros(2, 3, 4, 4, dtype=torch.uint8),
            torch.zeros(2, 4, 5, dtype=torch.uint8),
            None,
            "maps must be uint8 of shape (2, 4, 4), got torch.uint8 of shape (2, 4, 5)",
        ),
        (
            torch.zeros(2, 3, 4, 4, dtype=torch.uint8),
            None,
            torch.tensor([5, 5]),
            "ids must be strictly increasing: unique and in order",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    pictures: Tensor, maps: Tensor | None, ids: Tensor | None, sentence: str
) -> None:
    with pytest.raises(InputDataError) as caught:
        MapArrays.of(pictures, maps, ids)
    assert str(caught.value) == sentence


def test_arrays_stand_in_the_order_of_their_ids() -> None:
    pictures = torch.arange(3, dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 3, 4, 4)
    rows = MapArrays.of(pictures, pictures[:, 0], torch.tensor([30, 10, 20]))
    assert rows.ids.tolist() == [10, 20, 30]
    assert rows.labels.tolist() == [1, 2, 0]
    assert rows.names == ["10", "20", "30"]


def test_no_rows_are_rows_too() -> None:
    none = MapFiles.of([], TABLE, labelled=True)
    empty = MapArrays.of(torch.zeros(0, 3, 4, 4, dtype=torch.uint8))
    for rows in (none, empty):
        assert (len(rows), rows.labels.tolist(), rows.counts(3).tolist()) == (0, [], [0, 0, 0])
        assert rows.sizes.shape == (0, 2)
