"""One self-contained HTML page for a run or a comparison.

Every value passes jinja2's escaping and `visible`, pictures are data: images, and the page's policy allows its own
style sheet and nothing else: a hostile name changes the text of a page, never its elements.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from embasis.report import comparison, sections
from embasis.report import panels as figured
from embasis.report.gallery import gallery
from embasis.report.records import RunView, visible
from embasis.report.tables import Summary

_HOME = re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\\s]+|/root(?=/|$)")
"""Whose computer it was is nobody's business."""


def run_page(view: RunView) -> str:
    """The report of one run."""
    return _render(
        title=sections.run_title(view),
        lead=sections.run_lead(view),
        status=view.status,
        cards=sections.run_cards(view),
        warnings=sections.run_warnings(view),
        given=sections.went_in(view),
        tables=[sections.round_table(view)] if view.rounds else [],
        panels=figured.run_panels(view),
        more=[table for table in (sections.class_table(view), sections.cost_table(view)) if table.rows],
        facts=sections.run_facts(view),
        gallery=gallery(view),
    )


def comparison_page(
    title: str,
    summaries: Sequence[Summary],
    runs: Sequence[RunView] = (),
    lead: str = "",
    first: Sequence[sections.Table] = (),
) -> str:
    """The report of several methods; `runs` adds what each run did round by round, `first` tables before the others."""
    return _render(
        title=title,
        lead=lead or comparison.comparison_lead(summaries),
        status="",
        cards=[],
        warnings=[],
        given=[],
        tables=[*first, *comparison.comparison_tables(summaries)],
        panels=comparison.comparison_panels(summaries, runs),
        more=[comparison.runs_table(runs)] if runs else [],
        facts=[],
        gallery=None,
    )


def _render(panels: Sequence[sections.Panel], **context: Any) -> str:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=_finalize)
    style = _packaged("page.css") + (_packaged("gallery.css") if context["gallery"] else "")
    shown = [
        {
            "title": panel.title,
            "alt": panel.alt,
            "caption": panel.caption,
            "table": panel.table,
            "wide": panel.wide,
            "light": Markup(_data_uri(panel.light)),
            "dark": Markup(_data_uri(panel.dark)),
        }
        for panel in panels
    ]
    return environment.from_string(_packaged("page.html.jinja")).render(
        style=Markup(style), style_hash=Markup(style_hash(style)), panels=shown, **context
    )


def style_hash(style: str) -> str:
    """The hash of a style sheet, as a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


def _data_uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _finalize(value: Any) -> Any:
    """Strings lose invisible characters and home folders; markup of our own stays."""
    from markupsafe import Markup

    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(_HOME.sub("~", value))


@cache
def _packaged(name: str) -> str:
    return resources.files("embasis.report").joinpath(name).read_text(encoding="utf-8")
