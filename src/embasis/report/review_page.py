"""The page on which a person reviews labels: one HTML file whose script asks its own server for the items.

Its policy allows its own style sheet and script by their hashes, and pictures and answers of its own server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from embasis.report import public
from embasis.report.page import policy_hash, read_asset

REVIEW_STYLES = ("page.css", "review.css")


class ReviewPage:
    """The page of one review; `colours` are those of classes in label maps."""

    def __init__(self, title: str, what: str, output: str, classes: Sequence[str], colours: Sequence[str]) -> None:
        self.title, self.facts = title, {"what": what, "output": public(output)}
        self.lists = {"classes": [*classes], "colours": [*colours]}
        self.style, self.script = "".join(map(read_asset, REVIEW_STYLES)), read_asset("review.js")

    @property
    def policy(self) -> str:
        """Its Content-Security-Policy."""
        allowed = f"script-src '{policy_hash(self.script)}'; style-src '{policy_hash(self.style)}'"
        own = "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        return f"default-src 'none'; {allowed}; {own}"

    @cached_property
    def html(self) -> str:
        """The page."""
        data = json.dumps({**self.facts, **self.lists, "shown": [public(name) for name in self.lists["classes"]]})
        for sign in "&<>":  # within a script element they must not be markup
            data = data.replace(sign, f"\\u{ord(sign):04x}")
        environment = Environment(autoescape=True, undefined=StrictUndefined)
        return environment.from_string(read_asset("review.html.jinja")).render(
            title=public(self.title), style=Markup(self.style), script=Markup(self.script), data=Markup(data)
        )
