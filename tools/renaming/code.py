"""Python sources with new names. Bindings and their uses are resolved by LibCST; comments and layout stay.

A name of a module is renamed where it is defined and wherever an import brings it, through re-exports, in functions and
under TYPE_CHECKING too; what is called the same elsewhere is left alone. Members of objects have no such certainty
without types: they are renamed by class where that is written, else by the scope and the receivers of their line.
"""

from __future__ import annotations

import libcst as cst
from libcst import metadata as meta

from renaming.bindings import find_bindings, find_locals, refuse_taken
from renaming.members import Finder
from renaming.plan import Plan
from renaming.source import Source


def rewrite_code(text: str, module: str, plan: Plan) -> str:
    """The source with new names; a RenameError where a new name is taken."""
    wrapper = meta.MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    source = Source(module, plan, dict(wrapper.resolve(meta.ScopeProvider)))
    find_bindings(source)
    wrapper.module.visit(Finder(source, rewrite_code))
    refuse_taken(source)
    find_locals(source)
    if not source.changes and not source.imports:
        return text
    return wrapper.module.visit(Writer(source)).code


class Writer(cst.CSTTransformer):
    """Apply what was found."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
        """A node's change, if it has one; imports may become several lines."""
        if isinstance(original_node, cst.SimpleStatementLine):
            return self.split_line(original_node, updated_node)  # type: ignore[return-value, arg-type]
        change = self.source.changes.get(original_node)
        return updated_node if change is None else change(updated_node)

    def split_line(self, original: cst.SimpleStatementLine, updated: cst.SimpleStatementLine) -> object:
        """The line with its import, or a line for each of the imports that it has become."""
        made = [self.source.imports.get(each) for each in original.body if isinstance(each, cst.ImportFrom)]
        if not any(made):
            return updated
        if len(original.body) > 1:
            parts = [self.source.imports.get(old, [new]) for old, new in zip(original.body, updated.body, strict=True)]
            plain = [each.with_changes(semicolon=cst.MaybeSentinel.DEFAULT) for part in parts for each in part]
            return updated.with_changes(body=plain)
        lines = [updated.with_changes(body=[each]) for each in made[0] or ()]
        rest = [line.with_changes(leading_lines=[], trailing_whitespace=cst.TrailingWhitespace()) for line in lines[1:]]
        return cst.FlattenSentinel([lines[0], *rest])
