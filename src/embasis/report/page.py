"""One self-contained HTML page for a run or a comparison.

Every value passes jinja2's escaping and `public`, figures are drawn as SVG, pictures are data: images, and the page's
policy allows its own style sheet and its own script by their hashes and nothing else: a hostile name changes the text
of a page, never its elements. Only pictures that begin as a PNG or JPEG file does are shown.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from embasis.report import (
    MOST_BASIS_BYTES,
    MOST_COMPONENTS,
    MOST_PICTURE_BYTES,
    MOST_RESTYLED,
    THUMBNAILS_EACH,
    Component,
    MapExample,
    RestyledExample,
    RowExample,
    RunView,
    public,
    summary,
)
from embasis.report.charts import cost_panel, draw_components, run_panels
from embasis.report.headline import headline_sentence, page_title
from embasis.report.summary import Card, PageTable, Panel, format_decimals, format_share, numbers_table
from embasis.report.svg import PNG_START

STYLE_SHEETS = ("page.css", "figures.css", "gallery.css")
OPEN_SHELVES = 6
"""Classes whose pictures are shown; those of the others are behind a line that opens."""
SHARP_PIXELS = 32
"""Pictures of at most so many pixels are shown with sharp edges."""
TILES = (
    ("picture", "picture", "the picture itself"),
    ("labels", "predicted labels", "each pixel in the colour of the class it was labelled as"),
    ("variance", "variance", "the brighter, the less sure the label"),
    ("trusted", "trusted", "white where the label is trusted, black elsewhere"),
    ("truth", "true labels", "each pixel in the colour of its true class"),
)
"""The field of MapExample, its name, and what is to be seen."""
SMOOTH_TILES = ("picture", "variance")
"""Shown smooth when enlarged; the others have sharp edges."""


@dataclass(frozen=True)
class Tile:
    """One image of a strip."""

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
    """Some pictures with their maps; `legend` has (class, colour as an image) of each class."""

    strips: tuple[MapStrip, ...]
    legend: tuple[tuple[str, str], ...]
    caption: str


@dataclass(frozen=True)
class Thumbnail:
    """A small picture; `caption` stands below it, and `correct` where the label is known to be wrong."""

    uri: str
    sharp: bool
    alt: str
    caption: str = ""
    correct: str = ""
    trusted: bool = False


@dataclass(frozen=True)
class ThumbnailRow:
    """The pictures of one label: the surest and the least sure."""

    label: str
    kinds: tuple[tuple[str, tuple[Thumbnail, ...]], ...]


@dataclass(frozen=True)
class RestyledPair:
    """A labelled picture before and after, with its class where it has one."""

    name: str
    label: str
    thumbs: tuple[Thumbnail, ...]


@dataclass(frozen=True)
class RestyledSection:
    """Some labelled pictures before and after, and an unlabelled one."""

    caption: str
    pairs: tuple[RestyledPair, ...]


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
    """All that the section on the basis shows; there are no cards where rows have many sites."""

    picture: str
    cards: tuple[ComponentCard, ...]
    caption: str
    table: PageTable


@dataclass(frozen=True)
class Page:
    """The sections of a page in their order; those without content are left out."""

    title: str
    lead: str
    heading: str = ""
    """a sentence in place of the title at the top of the page"""
    status: str = ""
    cards: Sequence[Card] = ()
    warnings: Sequence[str] = ()
    given: Sequence[tuple[str, str]] = ()
    """what went in: name and value"""
    tables: Sequence[PageTable] = ()
    """before the figures"""
    panels: Sequence[Panel] = ()
    restyled: RestyledSection | None = None
    gallery: MapGallery | None = None
    thumbnail_rows: Sequence[ThumbnailRow] = ()
    basis: BasisSection | None = None
    more: Sequence[PageTable] = ()
    """tables after the figures"""
    cost: Sequence[tuple[Panel, PageTable]] = ()
    settings: Sequence[tuple[str, Sequence[tuple[str, str]]]] = ()


def run_page(view: RunView) -> str:
    """The report of one run."""
    tables = (
        summary.round_table(view),
        summary.quality_table(view),
        summary.class_table(view),
        summary.labeller_table(view),
        summary.rejected_table(view),
    )
    page = Page(
        title=page_title(view),
        heading=headline_sentence(view),
        lead=summary.run_lead(view),
        status=view.status,
        cards=summary.run_cards(view),
        warnings=summary.run_warnings(view),
        given=summary.input_summary(view),
        panels=run_panels(view),
        restyled=restyled_section(view),
        gallery=map_gallery(view),
        thumbnail_rows=thumbnail_rows(view),
        basis=basis_section(view),
        more=[table for table in tables if table.rows],
        cost=[(cost_panel(view), summary.cost_table(view))] if view.timings else [],
        settings=summary.settings_tables(view),
    )
    return render_page(page)


def render_page(page: Page) -> str:
    """The page as HTML."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def clean(value: Any) -> Any:
        """Strings lose invisible characters and home folders; markup of our own stays."""
        return public(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=clean)
    style, script = "".join(map(read_asset, STYLE_SHEETS)), read_asset("page.js")
    return environment.from_string(read_asset("page.html.jinja")).render(
        style=Markup(style),
        style_hash=Markup(policy_hash(style)),
        script=Markup(script),
        script_hash=Markup(policy_hash(script)),
        open_shelves=OPEN_SHELVES,
        **vars(page),
    )


def map_gallery(view: RunView) -> MapGallery | None:
    """The pictures of a run on label maps, None where it has none that can be shown."""
    strips = tuple(MapStrip(shown.name, shown.why, tiles) for shown in view.gallery if (tiles := map_tiles(shown)))
    if not strips:
        return None
    legend = tuple((name, swatch_uri(colour)) for name, colour in zip(view.classes, view.palette, strict=False))
    kinds = {tile.name for strip in strips for tile in strip.tiles}
    seen = "; ".join(f"{name}: {what}" for _, name, what in TILES[2:4] if name in kinds)
    return MapGallery(strips, legend, f"{seen.capitalize()}." if seen else "")


def map_tiles(shown: MapExample) -> tuple[Tile, ...]:
    """A picture and its maps, those that are PNG."""
    tiles = list[Tile]()
    for field, name, what in TILES:
        data = getattr(shown, field)
        if picture_kind(data) == "png":
            alt = f"{name.capitalize()} of {shown.name}: {what}."
            tiles.append(Tile(name, alt, data_uri("png", data), *png_size(data), field not in SMOOTH_TILES))
    return tuple(tiles)


def thumbnail_rows(view: RunView) -> list[ThumbnailRow]:
    """The surest and the least sure rows of each label, in the order of the classes."""
    by_label: dict[str, dict[str, list[Thumbnail]]] = {name: {} for name in view.classes}
    room = MOST_PICTURE_BYTES - MOST_BASIS_BYTES
    for item in view.items:
        thumbs = by_label.get(item.label, {}).setdefault(item.why, [])
        if len(thumbs) < THUMBNAILS_EACH and len(item.picture) <= room and picture_kind(item.picture):
            thumbs.append(row_thumbnail(item))
            room -= len(item.picture)
    return [
        ThumbnailRow(label, tuple((why, tuple(thumbs)) for why, thumbs in kinds.items() if thumbs))
        for label, kinds in by_label.items()
        if any(kinds.values())
    ]


def row_thumbnail(item: RowExample) -> Thumbnail:
    """A row with the probability of its label, and its true class if that is another."""
    wrong = item.truth is not None and item.truth != item.label
    truth = f", but it is {item.truth}" if wrong else "" if item.truth is None else ", which is right"
    trust = "trusted" if item.trusted else "not trusted"
    alt = f"{item.name}: labelled {item.label} with probability {format_decimals(item.probability)}{truth}; {trust}."
    correct = item.truth or "" if wrong else ""
    return Thumbnail(*embed_thumbnail(item.picture), alt, f"{item.probability:.0%}", correct, item.trusted)


def restyled_section(view: RunView) -> RestyledSection | None:
    """Labelled pictures before and after the restyler; None where none can be shown."""
    shown = view.restyled
    if shown is None:
        return None
    pairs = tuple(
        RestyledPair(item.name, item.label, restyled_thumbnails(item, shown.restyler))
        for item in shown.examples[:MOST_RESTYLED]
        if picture_kind(item.before) and picture_kind(item.after)
    )
    if not pairs:
        return None
    caption = f"Training saw the {shown.count:,} labelled pictures in the style of the unlabelled side, by "
    caption += f"{shown.restyler}: {shown.summary}. What they show, and their labels, stay. "
    if shown.share < 1:
        caption += f"The share of the new style is {100 * shown.share:g}%. "
    caption += f"Here {'is one' if len(pairs) == 1 else f'are {len(pairs)}'} of them, before and after"
    if shown.other is not None and picture_kind(shown.other):
        caption += "; the last picture is an unlabelled one, to compare them with"
        alt = f"Unlabelled, for comparison: {shown.other_name}."
        thumb = Thumbnail(*embed_thumbnail(shown.other), alt, "unlabelled")
        pairs = (*pairs, RestyledPair(shown.other_name, "", (thumb,)))
    return RestyledSection(f"{caption}.", pairs)


def restyled_thumbnails(item: RestyledExample, restyler: str) -> tuple[Thumbnail, ...]:
    """The picture before and after."""
    what = f"{item.name}, labelled {item.label}" if item.label else item.name
    before = Thumbnail(*embed_thumbnail(item.before), f"Before: {what}.", "before")
    return before, Thumbnail(*embed_thumbnail(item.after), f"After {restyler}: {what}.", "after")


def basis_section(view: RunView) -> BasisSection | None:
    """The components of the basis, grouped by class; None where a run has none."""
    if not view.basis:
        return None
    order = {name: number for number, name in enumerate(view.classes)}
    largest = sorted(view.basis, key=lambda component: -component.share)[:MOST_COMPONENTS]
    ranked = sorted(largest, key=lambda component: (order.get(component.classes[0][0], len(order)), -component.share))
    cards = component_cards(ranked) if any(component.nearest for component in ranked) else ()
    caption = (
        f"Labels are mixed from {len(view.basis)} components. Each stands for a part of the unlabelled side and has "
        "a probability of each class; a bar is a class, its pieces are the components for which it is the likeliest."
    )
    if cards:
        caption += " Below are the components with the unlabelled rows nearest to them"
        caption += f", the {MOST_COMPONENTS} largest." if len(view.basis) > MOST_COMPONENTS else "."
    header, rows = ["component", "class", "probability", "next classes", "share"], list[list[str]]()
    header += [] if view.on_maps else ["nearest rows"]
    for number, component in enumerate(view.basis):
        row = [str(number), *component_texts(component), ", ".join(name for name, _ in component.nearest)]
        rows.append(row[: len(header)])
    picture = draw_components(view.basis, view.classes)
    return BasisSection(picture, cards, caption, numbers_table(header, rows, "The basis"))


def component_texts(component: Component) -> tuple[str, str, str, str]:
    """Its likeliest class, the probability of that, the next classes, and its share."""
    (name, p), *rest = component.classes
    others = ", ".join(f"{other} ({format_decimals(q)})" for other, q in rest)
    return name, format_decimals(p), others, format_share(component.share, 1)


def component_cards(components: Sequence[Component]) -> tuple[ComponentCard, ...]:
    """Components with pictures of their nearest rows, as far as there is room for them, else with their names."""
    room, cards = MOST_BASIS_BYTES, list[ComponentCard]()
    for component in components:
        thumbs = list[Thumbnail]()
        for near, picture in component.nearest:
            if picture is not None and picture_kind(picture) and len(picture) <= room:
                room -= len(picture)
                thumbs.append(Thumbnail(*embed_thumbnail(picture), f"Near to this component: {near}."))
        names = () if thumbs else tuple(near for near, _ in component.nearest)
        cards.append(ComponentCard(*component_texts(component), tuple(thumbs), names))
    return tuple(cards)


def picture_kind(data: bytes | None) -> str | None:
    """Whether these bytes begin as a "png" file does, up to its size, or as a "jpeg" file; None for all others."""
    if data is None or not data.startswith((PNG_START, b"\xff\xd8\xff")):
        return None
    if data.startswith(PNG_START):
        return "png" if data[12:16] == b"IHDR" and len(data) > 24 else None
    return "jpeg"


def png_size(data: bytes) -> tuple[int, int]:
    """Width and height."""
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def embed_thumbnail(data: bytes) -> tuple[str, bool]:
    """A PNG or JPEG as the page holds it, and whether it is so small that it needs sharp edges."""
    kind = picture_kind(data)
    return data_uri(str(kind), data), kind == "png" and max(png_size(data)) <= SHARP_PIXELS


def swatch_uri(colour: Sequence[int]) -> str:
    """A square of one colour, as an image: a page may have no style of its own."""
    fill = "#" + "".join(f"{min(max(int(part), 0), 255):02x}" for part in colour)
    shape = f'<rect width="16" height="16" fill="{fill}"/>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16">{shape}</svg>'
    return data_uri("svg+xml", svg.encode())


def data_uri(kind: str, data: bytes) -> str:
    """An image as the page holds it."""
    return f"data:image/{kind};base64," + base64.b64encode(data).decode()


def policy_hash(text: str) -> str:
    """The hash of a style sheet or script, as a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def read_asset(name: str) -> str:
    """A file that lies beside this module."""
    return resources.files("embasis.report").joinpath(name).read_text(encoding="utf-8")
