"""Pictures of a run: of label maps a few with their labels, variance and trust; of others the surest and least sure.

Only what begins as a PNG or JPEG file does is shown, at most EACH of a class and kind, and BYTES in all: base64 makes
8 MB of them, so a page stays below 10 MB.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from embasis.report.class_charts import draw_components
from embasis.report.run_view import Component, MapExample, RowExample, RunView
from embasis.report.summary import PageTable, format_decimals, format_share, numbers_table

PNG_START = b"\x89PNG\r\n\x1a\n"
THUMBNAILS_EACH = 8
MOST_PICTURE_BYTES, MOST_BASIS_BYTES = 6_000_000, 1_500_000
"""Of all small pictures, and of those of the basis."""
MOST_COMPONENTS = 60
"""A page shows so many components, those of the largest share."""
SHARP_PIXELS = 32
"""Pictures of at most so many pixels are shown with sharp edges."""
SMOOTH_TILES = ("picture", "variance")
"""Shown smooth when enlarged; the others have sharp edges."""
TILES = (
    ("picture", "picture", "the picture itself"),
    ("labels", "predicted labels", "each pixel in the colour of the class it was labelled as"),
    ("variance", "variance", "the brighter, the less sure the label"),
    ("trusted", "trusted", "white where the label is trusted, black elsewhere"),
    ("truth", "true labels", "each pixel in the colour of its true class"),
)
"""The field of Shown, its name, and what is to be seen."""


@dataclass(frozen=True)
class Tile:
    """One image of a row."""

    name: str
    alt: str
    uri: str
    width: int
    height: int
    sharp: bool


@dataclass(frozen=True)
class MapStrip:
    """One picture and its maps, side by side."""

    name: str
    why: str
    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class MapGallery:
    """All that the section shows; `legend` has (class, colour as an image) of each class."""

    strips: tuple[MapStrip, ...]
    legend: tuple[tuple[str, str], ...]
    caption: str


def map_gallery(view: RunView) -> MapGallery | None:
    """The pictures of a run, None where it has none that can be shown."""
    strips = tuple(strip for shown in view.gallery if (strip := _make_strip(shown)).tiles)
    if not strips:
        return None
    legend = tuple((name, _swatch_uri(colour)) for name, colour in zip(view.classes, view.palette, strict=False))
    kinds = {tile.name for strip in strips for tile in strip.tiles}
    seen = "; ".join(f"{name}: {what}" for _, name, what in TILES[2:4] if name in kinds)
    return MapGallery(strips, legend, seen[:1].upper() + seen[1:] + "." if seen else "")


def _make_strip(shown: MapExample) -> MapStrip:
    given = ((kind, name, what, getattr(shown, kind)) for kind, name, what in TILES)
    tiles = [_make_tile(shown.name, kind, name, what, data) for kind, name, what, data in given if is_png(data)]
    return MapStrip(shown.name, shown.why, tuple(tiles))


def _make_tile(picture: str, kind: str, name: str, what: str, data: bytes) -> Tile:
    width, height = (int.from_bytes(data[start : start + 4]) for start in (16, 20))
    alt = f"{name[:1].upper()}{name[1:]} of {picture}: {what}."
    return Tile(name, alt, _data_uri("png", data), width, height, kind not in SMOOTH_TILES)


@dataclass(frozen=True)
class Thumbnail:
    """A small picture; `caption` stands below it, and `correct` where the label is known to be wrong."""

    uri: str
    alt: str
    caption: str
    correct: str
    sharp: bool
    trusted: bool = False


@dataclass(frozen=True)
class ThumbnailRow:
    """The pictures of one label."""

    label: str
    kinds: tuple[tuple[str, tuple[Thumbnail, ...]], ...]


@dataclass(frozen=True)
class ComponentCard:
    """A component of the basis: its likeliest class, the next ones, its share, and its nearest rows."""

    name: str
    probability: str
    rest: str
    share: str
    thumbs: tuple[Thumbnail, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class BasisSection:
    """All that the section on the basis shows; there are no peaks where rows have many sites."""

    picture: str
    peaks: tuple[ComponentCard, ...]
    caption: str
    table: PageTable


def thumbnail_rows(view: RunView) -> list[ThumbnailRow]:
    """The surest and the least sure rows of each label, in the order of the classes."""
    by_label: dict[str, dict[str, list[Thumbnail]]] = {name: {} for name in view.classes}
    room = MOST_PICTURE_BYTES - MOST_BASIS_BYTES
    for item in view.items:
        kinds = by_label.get(item.label, {})
        thumbs = kinds.setdefault(item.why, [])
        if len(thumbs) < THUMBNAILS_EACH and len(item.picture) <= room and is_png_or_jpeg(item.picture):
            thumbs.append(_make_thumbnail(item))
            room -= len(item.picture)
    return [
        ThumbnailRow(label, tuple((why, tuple(thumbs)) for why, thumbs in kinds.items() if thumbs))
        for label, kinds in by_label.items()
        if any(kinds.values())
    ]


def _make_thumbnail(item: RowExample) -> Thumbnail:
    wrong = item.truth is not None and item.truth != item.label
    truth = f", but it is {item.truth}" if wrong else "" if item.truth is None else ", which is right"
    trust = "trusted" if item.trusted else "not trusted"
    alt = f"{item.name}: labelled {item.label} with probability {format_decimals(item.probability)}{truth}; {trust}."
    correct = item.truth or "" if wrong else ""
    return Thumbnail(
        picture_uri(item.picture), alt, f"{item.probability:.0%}", correct, is_tiny(item.picture), item.trusted
    )


def basis_section(view: RunView) -> BasisSection | None:
    """The components of the basis, grouped by class; None where a run has none."""
    if not view.basis:
        return None
    order = {name: number for number, name in enumerate(view.classes)}
    largest = sorted(view.basis, key=lambda component: -component.share)[:MOST_COMPONENTS]
    ranked = sorted(largest, key=lambda component: (order.get(component.classes[0][0], len(order)), -component.share))
    room, peaks = [MOST_BASIS_BYTES], list[ComponentCard]()
    for component in ranked if any(component.nearest for component in ranked) else ():
        peaks.append(_component_card(component, room))
    rows = [
        [
            str(number),
            *_class_texts(component),
            format_share(component.share, 1),
            ", ".join(n for n, _ in component.nearest),
        ]
        for number, component in enumerate(view.basis)
    ]
    caption = (
        f"Labels are mixed from {len(view.basis)} components. Each stands for a part of the unlabelled side and has "
        "a probability of each class; a bar is a class, its pieces are the components for which it is the likeliest."
    )
    if peaks:
        caption += " Below are the components with the unlabelled rows nearest to them"
        caption += f", the {MOST_COMPONENTS} largest." if len(view.basis) > MOST_COMPONENTS else "."
    header = ["component", "class", "probability", "next classes", "share", "nearest rows"]
    if view.on_maps:
        header, rows = header[:-1], [row[:-1] for row in rows]
    return BasisSection(draw_components(view), tuple(peaks), caption, numbers_table(header, rows, "The basis"))


def _class_texts(component: Component) -> tuple[str, str, str]:
    (name, p), *rest = component.classes
    return name, format_decimals(p), ", ".join(f"{other} ({format_decimals(q)})" for other, q in rest)


def _component_card(component: Component, room: list[int]) -> ComponentCard:
    """One component; pictures as far as there is room for them."""
    name, p, rest = _class_texts(component)
    thumbs = list[Thumbnail]()
    for near, picture in component.nearest:
        if picture is not None and is_png_or_jpeg(picture) and len(picture) <= room[0]:
            room[0] -= len(picture)
            thumbs.append(Thumbnail(picture_uri(picture), f"Near to this component: {near}.", "", "", is_tiny(picture)))
    names = () if thumbs else tuple(near for near, _ in component.nearest)
    return ComponentCard(name, p, rest, format_share(component.share, 1), tuple(thumbs), names)


def is_png_or_jpeg(data: bytes) -> bool:
    """Whether these bytes begin as a PNG or a JPEG file does."""
    return is_png(data) or data.startswith(b"\xff\xd8\xff")


def is_tiny(data: bytes) -> bool:
    """Whether it is a PNG of few pixels."""
    return is_png(data) and max(int.from_bytes(data[start : start + 4]) for start in (16, 20)) <= SHARP_PIXELS


def picture_uri(data: bytes) -> str:
    """The picture as the page holds it."""
    return _data_uri("png" if is_png(data) else "jpeg", data)


def is_png(data: bytes | None) -> bool:
    """Whether these bytes begin as a PNG file does, up to its size."""
    return data is not None and data.startswith(PNG_START) and data[12:16] == b"IHDR" and len(data) > 24


def _swatch_uri(colour: Sequence[int]) -> str:
    """A square of one colour, as an image: a page may have no style of its own."""
    red, green, blue = (min(max(int(part), 0), 255) for part in colour)
    fill = f"#{red:02x}{green:02x}{blue:02x}"
    shape = f'<rect width="16" height="16" fill="{fill}"/>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16">{shape}</svg>'
    return _data_uri("svg+xml", svg.encode())


def _data_uri(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64," + base64.b64encode(data).decode()
