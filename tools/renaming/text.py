"""Comments, docstrings and documents with new names: modules and files by their paths, names in backticks.

A word in backticks is a name if it looks like one (`TwoWords`, `two_words`, `call()`) and only one module defines it;
plain words of prose are left alone, and listed for a person to read.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable

from renaming.plan import DOTTED, FILE, FOLDER, START, Plan

SPAN = re.compile(r"`[^`\n]+`")
WORD = re.compile(r"\b[A-Za-z_]\w*\b(\(?)")
FENCE = re.compile(r"^(```|~~~)(\w*)[^\n]*\n(.*?)^\1", re.M | re.S)
IMPORT = re.compile(START + r"from ([\w.]+) import ([\w]+(?:, \w+)*)")
Rewrite = Callable[[str, str, Plan], str]


def rewrite_places(text: str, plan: Plan, near: str = "") -> str:
    """Dotted names of modules, and paths of files and folders."""
    text = IMPORT.sub(lambda found: rewrite_import(found, plan), text)
    text = DOTTED.sub(lambda found: plan.dotted(found[0]), text)
    text = FILE.sub(lambda found: plan.path(found[0], near), text)
    return FOLDER.sub(lambda found: folder_path(found[0], plan), text)


def rewrite_import(found: re.Match[str], plan: Plan) -> str:
    """`from module import name` within a text; the module itself is a dotted name, unless it has no dot."""
    names = ", ".join(plan.name(found[1], name) for name in found[2].split(", "))
    return f"from {found[1]} import {names}" if found[1] in plan.tree.modules else found[0]


def folder_path(text: str, plan: Plan) -> str:
    """The new path of a package's folder."""
    new = plan.path(text + "__init__.py")
    return new.removesuffix("__init__.py") if new.endswith("/__init__.py") else text


def rewrite_comment(text: str, module: str, plan: Plan) -> str:
    """A comment or docstring of a module."""
    path = plan.tree.modules.get(module)
    near = path.parent.relative_to(plan.tree.root).as_posix() if path else ""
    return rewrite_spans(rewrite_places(text, plan, near), plan, module)


def rewrite_spans(text: str, plan: Plan, module: str = "") -> str:
    """Names in backticks."""
    return SPAN.sub(lambda span: WORD.sub(lambda word: new_word(word, plan, module), span[0]), text)


def new_word(found: re.Match[str], plan: Plan, module: str) -> str:
    """The new name of a word in backticks, if it is certain what it means."""
    word = found[0].removesuffix("(")
    tail = found[0][len(word) :]
    for row in plan.strings:
        if row.old == word and "_" in word and (not module or row.covers(module)):
            return row.new + tail
    if not (tail or "_" in word or re.search(r"[A-Z].*[a-z]", word)):
        return found[0]
    names = {
        new for (home, old), new in plan.names.items() if old == word and (home == module or plan.tree.is_unique(word))
    }
    return names.pop() + tail if len(names) == 1 else found[0]


def rewrite_document(text: str, plan: Plan, rewrite: Rewrite) -> str:
    """A document: prose, and blocks of Python that are rewritten as such."""
    made, end = list[str](), 0
    for found in FENCE.finditer(text):
        made.append(rewrite_spans(rewrite_places(text[end : found.start()], plan), plan))
        block = found[0]
        if found[2] in ("python", "py") and (code := rewrite_block(found[3], plan, rewrite)) is not None:
            block = block.replace(found[3], code, 1)
        made.append(rewrite_places(block, plan))
        end = found.end()
    return "".join([*made, rewrite_spans(rewrite_places(text[end:], plan), plan)])


def rewrite_block(code: str, plan: Plan, rewrite: Rewrite) -> str | None:
    """A block of Python; None where it is none."""
    try:
        compile(code, "block", "exec")
    except (SyntaxError, ValueError):
        return None
    return rewrite(code, "", plan)


def rewrite_settings(text: str, plan: Plan) -> str:
    """A .toml file: places, and the layers of the import contract, which are named without their package."""
    text = rewrite_places(text, plan)
    for row in plan.keys:
        if row.covers("toml"):
            text = re.sub(rf"^{re.escape(row.old)}(?=\s*=)", row.new, text, flags=re.M)
    tops = {
        old.split(".")[1]: new.split(".")[1]
        for old, new in plan.modules.items()
        if old.count(".") == new.count(".") == 1
    }

    def rename_layers(found: re.Match[str]) -> str:
        return re.sub(r"\w+", lambda word: tops.get(word[0], word[0]), found[0])

    return re.sub(r"(?<=^layers = \[\n)(?:[^\]]*\n)", rename_layers, text, flags=re.M)


def leftovers(text: str, words: set[str], python: bool) -> list[tuple[int, str]]:
    """Lines that still have one of the old words; of Python, comments and texts alone: code was resolved."""
    if not words:
        return []
    pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(sorted(map(re.escape, words)))})(?![\w])")
    if not python:
        return [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]
    found = list[tuple[int, str]]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            lines = enumerate(token.string.splitlines(), token.start[0])
            found += [(number, line.strip()) for number, line in lines if pattern.search(line)]
    return found
