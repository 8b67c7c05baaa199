"""A picture with an EXIF orientation and its label map are brought to the same side up, or refused."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from embasis.data.images.folders import ImageOptions
from embasis.data.reader import Reader
from embasis.data.segmentation.folders import MapFolders, check_maps, load_maps
from embasis.errors import InputDataError
from embasis.types import MapPlan, MapPreparation
from image_trees import plant
from map_trees import chunk, folder, saved, scenes

LOW, HIGH = 40, 200
CURE = "save these pictures upright, without the orientation, or give each map the orientation of its picture"


def scene(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A dark picture with a bright corner, and the map that says so, both as stored."""
    pixels, classes = np.full((height, width, 3), LOW, np.uint8), np.zeros((height, width), np.uint8)
    pixels[: height // 2, : width // 2], classes[: height // 2, : width // 2] = HIGH, 1
    return pixels, classes


def exif(orientation: int) -> Image.Exif:
    found = Image.Exif()
    found[0x0112] = orientation
    return found


def photo(pixels: np.ndarray, orientation: int, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, exif=exif(orientation))
    return stream.getvalue()


def upright(classes: np.ndarray, orientation: int) -> np.ndarray:
    """Turned by Pillow, and not by us."""
    image = Image.fromarray(classes)
    image.getexif()[0x0112] = orientation
    turned = ImageOps.exif_transpose(image)
    assert turned is not None
    return np.array(turned)


def marked(classes: np.ndarray, orientation: int) -> bytes:
    """A map with an orientation of its own."""
    data = saved(classes)
    return data[:33] + chunk(b"eXIf", exif(orientation).tobytes()[6:]) + data[33:]


@pytest.fixture
def unlabelled(tmp_path: Path) -> Path:
    return folder(tmp_path / "u", scenes(2, 50, maps=False), toml=None)


def plain(tmp_path: Path, more: dict[str, bytes]) -> Path:
    return folder(tmp_path / "l", {**scenes(2), **more})


def both(labelled: Path, unlabelled: Path, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The picture and its classes as a run sees them, where the picture is bright and where the map says so."""
    side = load_maps(MapFolders(labelled, unlabelled)).labelled
    row = side.names.index(name)
    bright = side.picture(row)[0] > (LOW + HIGH) // 2
    return bright, side.truth[row] == 1


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP"])
@pytest.mark.parametrize("drawn", ["as stored", "upright"])
@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_a_map_that_fits_one_way_is_turned_that_way(
    orientation: int, drawn: str, kind: str, tmp_path: Path, unlabelled: Path
) -> None:
    pixels, classes = scene(32, 64)
    label = classes if drawn == "as stored" else upright(classes, orientation)
    name = f"t.{kind.lower()}"
    root = plain(tmp_path, {f"images/{name}": photo(pixels, orientation, kind), "labels/t.png": saved(label)})
    bright, one = both(root, unlabelled, name)
    assert bright.shape == (64, 32)
    assert torch.equal(bright, one)


@pytest.mark.parametrize("orientation", range(2, 9))
def test_a_map_with_an_orientation_of_its_own_is_turned_by_that(
    orientation: int, tmp_path: Path, unlabelled: Path
) -> None:
    pixels, classes = scene(48, 48)
    root = plain(tmp_path, {"images/t.png": photo(pixels, orientation), "labels/t.png": marked(classes, orientation)})
    bright, one = both(root, unlabelled, "t.png")
    assert torch.equal(bright, one)


def test_a_map_may_have_an_orientation_where_its_picture_has_none(tmp_path: Path, unlabelled: Path) -> None:
    pixels, classes = scene(32, 64)
    stored = np.ascontiguousarray(np.rot90(classes))
    root = plain(tmp_path, {"images/t.png": saved(pixels), "labels/t.png": marked(stored, 6)})
    bright, one = both(root, unlabelled, "t.png")
    assert torch.equal(bright, one)


@pytest.mark.parametrize(("height", "width", "orientation"), [(48, 48, 6), (32, 64, 3), (32, 64, 2), (32, 64, 4)])
def test_a_map_that_fits_both_ways_is_an_error(
    height: int, width: int, orientation: int, tmp_path: Path, unlabelled: Path
) -> None:
    pixels, classes = scene(height, width)
    root = plain(tmp_path, {"images/t.png": photo(pixels, orientation), "labels/t.png": saved(classes)})
    text = (
        f"{root}: 1 picture with an EXIF orientation, and the map would fit as stored and upright: images/t.png; {CURE}"
    )
    with pytest.raises(InputDataError) as caught:
        load_maps(MapFolders(root, unlabelled))
    assert str(caught.value) == text
    found = check_maps(MapFolders(root, unlabelled), options=ImageOptions(), reader=Reader(0))
    assert [one.text for one in found if one.level == "error"] == [text]


@pytest.mark.parametrize("drawn", ["as stored", "upright"])
def test_other_maps_of_the_side_tell(drawn: str, tmp_path: Path, unlabelled: Path) -> None:
    more: dict[str, bytes] = {}
    for name, height, width, orientation in (("long", 32, 64, 6), ("square", 48, 48, 8), ("half", 32, 64, 3)):
        pixels, classes = scene(height, width)
        label = classes if drawn == "as stored" else upright(classes, orientation)
        more |= {f"images/{name}.png": photo(pixels, orientation), f"labels/{name}.png": saved(label)}
    root = plain(tmp_path, more)
    for name in ("long", "square", "half"):
        bright, one = both(root, unlabelled, f"{name}.png")
        assert torch.equal(bright, one), name
    how = "turned like their pictures" if drawn == "as stored" else "upright"
    what = "maps of mirrored, square or upside-down pictures with an EXIF orientation are taken as the others are"
    assert f"{root}: {what}: {how}" in load_maps(MapFolders(root, unlabelled)).notes


def test_maps_that_contradict_each_other_tell_nothing(tmp_path: Path, unlabelled: Path) -> None:
    pixels, classes = scene(32, 64)
    more = {
        "images/a.png": photo(pixels, 6),
        "labels/a.png": saved(classes),
        "images/b.png": photo(pixels, 6),
        "labels/b.png": saved(upright(classes, 6)),
        "images/c.png": photo(pixels, 3),
        "labels/c.png": saved(classes),
    }
    root = plain(tmp_path, more)
    with pytest.raises(InputDataError) as caught:
        load_maps(MapFolders(root, unlabelled))
    text = "1 picture with an EXIF orientation, and the map would fit as stored and upright: images/c.png"
    assert str(caught.value) == f"{root}: {text}; {CURE}"


def test_maps_for_scores_are_turned_too(tmp_path: Path) -> None:
    pixels, classes = scene(32, 64)
    root = plant(tmp_path / "u", {"images/t.png": photo(pixels, 6), "labels/t.png": saved(classes), **scenes(1, 50)})
    problem = load_maps(MapFolders(folder(tmp_path / "l", scenes(3)), root))
    assert problem.hidden_labels is not None
    row = list(problem.row_names or ()).index("t.png")
    assert torch.equal(problem.hidden_labels[row] == 1, torch.from_numpy(upright(classes, 6)) == 1)


@pytest.mark.parametrize(("height", "width", "orientation"), [(32, 64, 6), (48, 48, 6), (32, 64, 3)])
def test_corrected_maps_are_upright_unless_their_size_says_otherwise(
    height: int, width: int, orientation: int, tmp_path: Path
) -> None:
    pixels, classes = scene(height, width)
    shown = upright(classes, orientation)
    root = plant(tmp_path / "u", {"t.png": photo(pixels, orientation), "x.png": scenes(1, 50)["images/50.png"]})
    made = plant(tmp_path / "c", {"t.png": saved(np.ascontiguousarray(shown))})
    problem = load_maps(MapFolders(folder(tmp_path / "l", scenes(2)), root, corrections=made))
    side = problem.labelled
    assert torch.equal(side.truth[side.names.index("t.png")] == 1, torch.from_numpy(shown) == 1)


def test_workers_turn_as_this_process_does(tmp_path: Path, unlabelled: Path) -> None:
    pixels, classes = scene(32, 64)
    root = plain(tmp_path, {"images/t.jpg": photo(pixels, 6, "JPEG"), "labels/t.png": saved(classes)})
    side = load_maps(MapFolders(root, unlabelled)).labelled
    row = torch.tensor([side.names.index("t.jpg")])
    preparation = MapPreparation(MapPlan(size=0, workers=0), 4, 8)
    with Reader(1) as reader:
        views = [next(side.prepared(preparation, one).stream([row])) for one in (Reader(0), reader)]
    assert torch.equal(views[0].y, views[1].y)
    assert (views[0].y == 1).sum() == 8 * 4, "a quarter of 16 × 8 sites"
