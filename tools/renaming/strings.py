"""Texts within Python sources: settings and keys that a line of the table names, modules, paths, and code in texts."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from renaming.plan import Plan
from renaming.text import IMPORT, rewrite_comment

Rewrite = Callable[[str, str, Plan], str]
CODE = re.compile(r"^\s*(?:from|import) ", re.M)


def rewrite_string(literal: str, module: str, plan: Plan, rewrite: Rewrite) -> str:
    """A string literal with new names."""
    opening = re.match(r"(?i)[rbu]*(\"\"\"|'''|\"|')", literal)
    if opening is None:
        return literal
    inside = literal[opening.end() : -len(opening[1])]
    new = exact_text(inside, module, plan)
    if new == inside and CODE.search(inside) and any(top in inside for top in tops_of(plan)):
        new = rewrite_embedded(inside, plan, rewrite)
    if new == inside:
        new = rewrite_comment(rewrite_template(inside, plan), module, plan)
    return literal[: opening.end()] + new + opening[1]


def tops_of(plan: Plan) -> set[str]:
    """The packages that the tree has."""
    return {name.partition(".")[0] for name in plan.tree.modules}


def exact_text(text: str, module: str, plan: Plan) -> str:
    """What a line of kind string names: the whole text, or its beginning up to the sign of equality."""
    for row in plan.strings:
        if not row.covers(module):
            continue
        if text == row.old:
            return row.new
        if row.old.endswith("=") and (found := re.match(rf"((?:\w+\.)?){re.escape(row.old)}", text)):
            return f"{found[1]}{row.new}{text[found.end() :]}"
    return text


def rewrite_embedded(text: str, plan: Plan, rewrite: Rewrite) -> str:
    """A program within a text, if it is one as it stands there."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return text
    return rewrite(text, "", plan)


def rewrite_template(text: str, plan: Plan) -> str:
    """A program that is none as it stands there (`{place!r}`, `\\n`): uses of the names that it imports; the imports
    themselves are rewritten as places."""
    for found in list(IMPORT.finditer(text)):
        for name in found[2].split(", "):
            if (new := plan.name(found[1], name)) != name and found[1] in plan.tree.modules:
                uses = re.compile(rf"(?<![\w.\"'])(?:(?<=\\n))?{name}(?![\w\"'])")
                text = text[: found.end()] + uses.sub(new, text[found.end() :])
    return text
