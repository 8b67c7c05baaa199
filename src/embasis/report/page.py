"""One self-contained HTML page for a run or a comparison.

Every value passes jinja2's escaping and `public`, figures are drawn here as SVG, pictures are data: images, and the
page's policy allows its own style sheet and its own script by their hashes and nothing else: a hostile name changes the
text of a page, never its elements.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from embasis.report import summary
from embasis.report.charts import run_panels
from embasis.report.class_charts import cost_panel
from embasis.report.gallery import BasisSection, MapGallery, ThumbnailRow, basis_section, map_gallery, thumbnail_rows
from embasis.report.run_view import RunView, public
from embasis.report.summary import Card, PageTable, Panel

STYLE_SHEETS = ("page.css", "figures.css", "gallery.css")


@dataclass(frozen=True)
class Page:
    """The sections of a page in their order; those without content are left out."""

    title: str
    lead: str
    status: str = ""
    cards: Sequence[Card] = ()
    warnings: Sequence[str] = ()
    given: Sequence[tuple[str, str]] = ()
    """what went in: name and value"""
    tables: Sequence[PageTable] = ()
    """before the figures"""
    panels: Sequence[Panel] = ()
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
        title=summary.run_title(view),
        lead=summary.run_lead(view),
        status=view.status,
        cards=summary.run_cards(view),
        warnings=summary.run_warnings(view),
        given=summary.input_summary(view),
        panels=run_panels(view),
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
    style, script = "".join(map(_read_asset, STYLE_SHEETS)), _read_asset("page.js")
    return environment.from_string(_read_asset("page.html.jinja")).render(
        style=Markup(style),
        style_hash=Markup(policy_hash(style)),
        script=Markup(script),
        script_hash=Markup(policy_hash(script)),
        **vars(page),
    )


def policy_hash(text: str) -> str:
    """The hash of a style sheet or script, as a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _read_asset(name: str) -> str:
    return resources.files("embasis.report").joinpath(name).read_text(encoding="utf-8")
