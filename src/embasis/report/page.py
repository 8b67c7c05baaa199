"""One self-contained HTML page for a run or a comparison.

Every value passes jinja2's escaping and `public`, figures are drawn here as SVG, pictures are data: images, and the
page's policy allows its own style sheet and its own script by their hashes and nothing else: a hostile name changes the
text of a page, never its elements.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from embasis.report import comparison, sections
from embasis.report import panels as figured
from embasis.report.gallery import basis, gallery, shelves
from embasis.report.panels_of_classes import cost
from embasis.report.parts import Table
from embasis.report.records import RunView, public
from embasis.report.tables import Summary


def run_page(view: RunView) -> str:
    """The report of one run."""
    tables = (
        sections.round_table(view),
        sections.quality_table(view),
        sections.class_table(view),
        sections.chosen_table(view),
        sections.refused_table(view),
    )
    return _render(
        title=sections.run_title(view),
        lead=sections.run_lead(view),
        status=view.status,
        cards=sections.run_cards(view),
        warnings=sections.run_warnings(view),
        given=sections.input_summary(view),
        tables=[],
        panels=figured.run_panels(view),
        more=[table for table in tables if table.rows],
        facts=sections.run_facts(view),
        gallery=gallery(view),
        shelves=shelves(view),
        basis=basis(view),
        cost=[(cost(view), sections.cost_table(view))] if view.timings else [],
    )


def comparison_page(
    title: str,
    summaries: Sequence[Summary],
    runs: Sequence[RunView] = (),
    lead: str = "",
    first: Sequence[Table] = (),
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
        shelves=[],
        basis=None,
        cost=[],
    )


def _render(**context: Any) -> str:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=_finalize)
    style = "".join(_packaged(name) for name in ("page.css", "figures.css", "gallery.css"))
    script = _packaged("page.js")
    return environment.from_string(_packaged("page.html.jinja")).render(
        style=Markup(style),
        style_hash=Markup(own_hash(style)),
        script=Markup(script),
        script_hash=Markup(own_hash(script)),
        **context,
    )


def own_hash(text: str) -> str:
    """The hash of a style sheet or script, as a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _finalize(value: Any) -> Any:
    """Strings lose invisible characters and home folders; markup of our own stays."""
    from markupsafe import Markup

    return public(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _packaged(name: str) -> str:
    return resources.files("embasis.report").joinpath(name).read_text(encoding="utf-8")
