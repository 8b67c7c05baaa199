"""From a picture and its label map to a network's input, the classes of its sites and the places they lie at.

| symbol | meaning |
| --- | --- |
| picture (3, H, W) | uint8, RGB |
| class map (H, W) | uint8: class numbers, 255 = none; it covers the picture, whatever its own size is |
| h, w | sites of a view: its sides over the stride |
| place (v, u) | in [0, 1]² of the picture: row and column; NaN = outside of it |
| span | of one side: pixels [start, stop) of the picture become pixels [low, high) of the view |

Only integer arithmetic, and float operations on each element alone, so the number of threads changes no bit. Of a
training view's picture only the part that is seen is resized. A worker, or this process, gets its requests as JSON:

| JSON of | holds |
| --- | --- |
| all rows | kind "maps"; plan, stride and multiple; the class table; weights of wanted classes or null |
| a row | the picture as in `request_for`; size; draw; wanted: a place or null |
| its label | the map as in `request_for`, or null; turn: how it is turned |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 — its usual name

from embasis.data.images.header import UnreadableImage
from embasis.data.images.pixels import change_colours, decode, orient
from embasis.data.segmentation.labels import IGNORED, BadMap, decode_classes
from embasis.data.worker_process import Json, describe_failure, read_checked, request_for
from embasis.types import ClassTable, MapPreparation

if TYPE_CHECKING:
    from embasis.data.segmentation.pairs import MapFile

PADDING = 128
"""The grey of pixels beyond the picture, and of pictures that could not be read."""
NUDGE = 2.0**-10
"""Of a pixel: places are float32, and those between two pixels belong to the second, whatever they are rounded to."""
VIEW_DRAWS = 12
"""Random numbers of a training view: all are drawn for each, so that no setting changes what others draw.

| number | what for |
| --- | --- |
| 0 | scale |
| 1, 2, 3 | whether the view is aimed, the class, the pixel of that class |
| 4, 5 | row and column of the crop |
| 6 | mirroring |
| 7, 8, 9 | brightness, contrast, saturation |
| 10, 11 | whether it is blurred, and how much |
"""

ViewTensors = tuple[Tensor, Tensor, Tensor]
"""Input uint8 (3, H', W'), classes uint8 (h, w), places float32 (h, w, 2)."""
Place = tuple[float, float]


class Span(NamedTuple):
    """One side of a crop: pixels [start, stop) of the picture become pixels [low, high) of the view."""

    start: int
    stop: int
    low: int
    high: int


def whole_shape(size: tuple[int, int], preparation: MapPreparation) -> tuple[int, int]:
    """H', W': the short side as planned, then each side the nearest multiple that the network takes."""
    short, unit = min(size), preparation.multiple
    planned = preparation.plan.size or short
    height, width = (max(1, (2 * side * planned + short * unit) // (2 * short * unit)) * unit for side in size)
    return height, width


def crop_shape(preparation: MapPreparation) -> tuple[int, int]:
    """Sides of a training view: as planned, cut down to a multiple that the network takes."""
    plan, unit = preparation.plan, preparation.multiple
    return max(1, plan.crop_height // unit) * unit, max(1, plan.crop_width // unit) * unit


def grid_shape(shape: tuple[int, int], preparation: MapPreparation) -> tuple[int, int]:
    """h, w of a view of this shape."""
    return shape[0] // preparation.stride, shape[1] // preparation.stride


def place_sites(grid: tuple[int, int]) -> Tensor:
    """(h, w, 2) float32: site (i, j) of a whole view lies at ((i + ½)/h, (j + ½)/w)."""
    rows, columns = ((torch.arange(side, dtype=torch.float64) + 0.5) / side for side in grid)
    return _cross_places(rows, columns)


def _cross_places(rows: Tensor, columns: Tensor) -> Tensor:
    """NaN where the row or the column is."""
    v, u = torch.meshgrid(rows, columns, indexing="ij")
    places = torch.stack((v, u), -1).float()
    places[places.isnan().any(-1)] = math.nan
    return places


def locate_pixels(places: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Row and column of the pixel of a map of this size at each place (…, 2); 0, 0 where there is none."""
    scaled = (places.double().nan_to_num(0.0) * torch.tensor(size, dtype=torch.float64) + NUDGE).floor().long()
    return scaled[..., 0].clamp(0, size[0] - 1), scaled[..., 1].clamp(0, size[1] - 1)


def sample_classes(class_map: Tensor | None, places: Tensor) -> Tensor:
    """uint8 (…): the class at each place (…, 2); 255 outside of the picture and where there is no map."""
    if class_map is None:
        return torch.full(places.shape[:-1], IGNORED, dtype=torch.uint8)
    rows, columns = locate_pixels(places, (class_map.shape[0], class_map.shape[1]))
    return torch.where(places.isnan().any(-1), IGNORED, class_map[rows, columns])


def to_signed(classes: Tensor) -> Tensor:
    """int64 classes with −1 = unknown, from uint8 ones with 255 = unknown."""
    numbers = classes.long()
    return numbers.masked_fill_(numbers == IGNORED, -1)


def make_view(
    picture: Tensor,
    class_map: Tensor | None,
    preparation: MapPreparation,
    draw: int | None = None,
    wanted: Place | None = None,
    classes: Tensor | None = None,
) -> ViewTensors:
    """The whole view, or that of training by the random numbers that begin with `draw`."""
    if draw is not None:
        return draw_view(picture, class_map, preparation, torch.Generator().manual_seed(draw), wanted, classes)
    view = resize_whole(picture, preparation)
    places = place_sites(grid_shape((view.shape[1], view.shape[2]), preparation))
    return view, sample_classes(class_map, places), places


def resize_whole(picture: Tensor, preparation: MapPreparation) -> Tensor:
    """The view of evaluation, uint8 (3, H', W')."""
    shape = whole_shape((picture.shape[1], picture.shape[2]), preparation)
    return _resize_smoothly(picture, shape).contiguous()


def scale_picture(picture: Tensor, preparation: MapPreparation) -> Tensor:
    """The whole picture with the short side that is planned, whatever multiples the network takes."""
    short = min(picture.shape[1:])
    planned = preparation.plan.size or short
    height, width = (max(1, round(side * planned / short)) for side in picture.shape[1:])
    return _resize_smoothly(picture, (height, width)).contiguous()


def _resize_smoothly(picture: Tensor, shape: tuple[int, int]) -> Tensor:
    if picture.shape[1:] == shape:
        return picture
    part = picture.unsqueeze(0).contiguous(memory_format=torch.channels_last)  # many times faster
    return F.interpolate(part, shape, mode="bilinear", antialias=True).squeeze(0)


def draw_view(
    picture: Tensor,
    class_map: Tensor | None,
    preparation: MapPreparation,
    draw: torch.Generator,
    wanted: Place | None = None,
    classes: Tensor | None = None,
) -> ViewTensors:
    """The view of training: a random part at a random scale, perhaps mirrored, recoloured and blurred.

    A share of the plan's views contain the wanted place or, without one, a pixel of a class that is drawn
    from those in the map in proportion to `classes` (C).
    """
    plan, size = preparation.plan, (picture.shape[1], picture.shape[2])
    u: list[float] = torch.rand(VIEW_DRAWS, generator=draw, dtype=torch.float64).tolist()
    aimed = None
    if u[1] < plan.rare:
        aimed = wanted or draw_place(class_map, classes, u[2], u[3])
    shape, stride = crop_shape(preparation), preparation.stride
    factor = plan.least_scale * (plan.most_scale / plan.least_scale) ** u[0]
    enlarged = [max(1, round(side * factor)) for side in whole_shape(size, preparation)]
    rows, columns = (
        _draw_span(size[axis], enlarged[axis], shape[axis], aimed[axis] if aimed else None, u[4 + axis])
        for axis in (0, 1)
    )
    seen = picture[:, rows.start : rows.stop, columns.start : columns.stop]
    view = _resize_smoothly(seen, (rows.high - rows.low, columns.high - columns.low))
    view = jitter_colours(view, plan.colour, u[7:10]) if plan.colour else view
    view = blur(view, 1 + int(3 * u[11])) if u[10] < plan.blur else view
    view = _pad_to_crop(view, shape, rows, columns)
    places = _cross_places(
        _site_coordinates(shape[0] // stride, stride, size[0], rows),
        _site_coordinates(shape[1] // stride, stride, size[1], columns),
    )
    if plan.flip and u[6] < 0.5:
        view, places = view.flip(2), places.flip(1)
    return view.contiguous(), sample_classes(class_map, places), places


def draw_place(class_map: Tensor | None, classes: Tensor | None, which: float, where: float) -> Place | None:
    """The centre of a pixel of a class drawn from those in the map in proportion to `classes` (C), if there is one."""
    if class_map is None or classes is None:
        return None
    counts = torch.bincount(class_map.flatten(), minlength=256)[: len(classes)]
    present = ((counts > 0) & (classes > 0)).nonzero().flatten()
    if not len(present):
        return None
    reached = classes[present].double().cumsum(0)
    position = int(torch.searchsorted(reached, which * float(reached[-1]), right=True))
    chosen = int(present[min(position, len(present) - 1)])
    height, width = class_map.shape
    pixels = np.flatnonzero(class_map.numpy() == chosen)
    row, column = divmod(int(pixels[int(where * len(pixels))]), width)
    return (row + 0.5) / height, (column + 0.5) / width


def _draw_span(side: int, enlarged: int, crop: int, place: float | None, u: float) -> Span:
    """`side` pixels would become `enlarged`: `crop` of them, with the place if one is given, or all somewhere in it."""
    if enlarged < crop:
        low = int(u * (crop - enlarged + 1))
        return Span(0, side, low, low + enlarged)
    seen = min(side, max(1, round(crop * side / enlarged)))
    first, last = 0, side - seen
    if place is not None:
        pixel = min(side - 1, max(0, int(place * side + NUDGE)))
        first, last = max(first, pixel - seen + 1), min(last, pixel)
    start = first + int(u * (last - first + 1))
    return Span(start, start + seen, 0, crop)


def _pad_to_crop(view: Tensor, shape: tuple[int, int], rows: Span, columns: Span) -> Tensor:
    """The view where it belongs in the crop, grey around it."""
    if view.shape[1:] == shape:
        return view
    frame = torch.full((3, *shape), PADDING, dtype=torch.uint8)
    frame[:, rows.low : rows.high, columns.low : columns.high] = view
    return frame


def _site_coordinates(count: int, stride: int, side: int, span: Span) -> Tensor:
    """(count) float64: where the centres of a crop's sites lie along one side of the picture."""
    centres = (torch.arange(count, dtype=torch.float64) + 0.5) * stride
    inside = (centres >= span.low) & (centres < span.high)
    along = (span.start + (centres - span.low) * (span.stop - span.start) / (span.high - span.low)) / side
    return torch.where(inside, along, math.nan)


def jitter_colours(view: Tensor, colour: float, u: list[float]) -> Tensor:
    """Brightness, contrast and saturation changed by factors of 1 ± colour."""
    brightness, contrast, saturation = (1 + colour * (2 * value - 1) for value in u)
    return change_colours(view, brightness, contrast, saturation)


def blur(view: Tensor, passes: int) -> Tensor:
    """Each pass takes the means of 3×3 pixels with weights 1-2-1 both ways; pixels at the rim count again beyond it."""
    view = view.contiguous()
    for _ in range(passes):
        x = view.short()
        x = _smooth_axis(_smooth_axis(x, 1), 2)
        view = ((x + 8) >> 4).byte()
    return view


def _smooth_axis(x: Tensor, side: int) -> Tensor:
    """x[i − 1] + 2·x[i] + x[i + 1] along one side."""
    count = x.shape[side]
    before = torch.cat((x.narrow(side, 0, 1), x.narrow(side, 0, count - 1)), side)
    after = torch.cat((x.narrow(side, 1, count - 1), x.narrow(side, count - 1, 1)), side)
    return before.add_(after).add_(x, alpha=2)


def common_request(preparation: MapPreparation, table: ClassTable, classes: Tensor | None = None) -> Json:
    """What a worker has to know of all rows."""
    weights = None if classes is None else classes.double().tolist()
    return {"kind": "maps", **asdict(preparation), "table": asdict(table), "classes": weights}


def row_request(file: MapFile, draw: int | None = None, wanted: Place | None = None) -> Json:
    """What a worker has to know of one row."""
    label = None if file.label is None else label_request(file)
    return {**request_for(file.image), "label": label, "size": list(file.size), "draw": draw, "wanted": wanted}


def label_request(file: MapFile) -> Json:
    """What a worker has to know of a row's label map, which the row has."""
    assert file.label is not None
    return {**request_for(file.label), "turn": file.turn}


def map_loader(common: Json) -> Callable[[Json], tuple[Tensor, ...]]:
    """The function that makes input, classes and places of a row's request, with what is common to all rows."""
    preparation = msgspec.convert(common, MapPreparation)
    table = msgspec.convert(common["table"], ClassTable)
    classes = None if common["classes"] is None else torch.tensor(common["classes"], dtype=torch.float64)

    def load(row: Json) -> tuple[Tensor, ...]:
        picture = read_picture(row)
        class_map = None if row["label"] is None else read_label_map(row["label"], table)
        wanted = None if row["wanted"] is None else (row["wanted"][0], row["wanted"][1])
        return make_view(picture, class_map, preparation, row["draw"], wanted, classes)

    return load


def read_picture(request: Json) -> Tensor:
    """uint8 (3, H, W); UnreadableImage when it has not the size that it had at the scan."""
    picture = decode(read_checked(request))
    height, width = picture.shape[1:]
    if [height, width] != list(request["size"]):
        rows, columns = request["size"]
        raise UnreadableImage(f"has {width}×{height} pixels, {columns}×{rows} at the scan")
    return picture


def read_label_map(request: Json, table: ClassTable) -> Tensor:
    """uint8 (H, W) of a label map, upright; UnreadableImage says why there is none."""
    try:
        return orient(decode_classes(read_checked(request), table), request["turn"])
    except BadMap as error:
        raise UnreadableImage(f"its label map: {error}") from error
    except Exception as error:  # the same reasons as those of a picture
        raise UnreadableImage(f"its label map {describe_failure(error)}") from error
