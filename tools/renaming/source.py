"""One Python file while it is rewritten: its bindings, their uses, and the changes that were found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import libcst as cst
from libcst import metadata as meta

from renaming.plan import Plan
from renaming.tree import Symbol


@dataclass
class Source:
    """One file under way."""

    module: str
    plan: Plan
    scopes: dict[cst.CSTNode, meta.Scope]
    changes: dict[cst.CSTNode, Callable[[cst.CSTNode], cst.CSTNode]] = field(default_factory=dict)
    imports: dict[cst.ImportFrom, list[cst.ImportFrom]] = field(default_factory=dict)
    symbols: dict[cst.CSTNode, Symbol] = field(default_factory=dict)
    """Uses of module-level names → where these are defined."""
    packages: dict[cst.CSTNode, str] = field(default_factory=dict)
    """Uses of modules → which."""
    owners: dict[cst.CSTNode, str] = field(default_factory=dict)
    """`self` and `cls` → the class around them."""
    kept: set[cst.CSTNode] = field(default_factory=set)
    """Texts that must stay."""
    introduced: dict[str, str] = field(default_factory=dict)
    """New name of a binding of this file → its old one."""

    def rename(self, node: cst.CSTNode, new: str) -> None:
        """Give a name, or what has a name, another one."""
        if isinstance(node, cst.Name):
            self.changes[node] = lambda updated: updated.with_changes(value=new)
        elif isinstance(node, cst.SimpleString):
            quoted = re.sub(r"\w+", new, node.value, count=1)
            self.changes[node] = lambda updated: updated.with_changes(value=quoted)
        elif isinstance(getattr(node, "name", None), cst.Name):
            self.rename(node.name, new)  # type: ignore[attr-defined]

    def assignments(self) -> Iterator[tuple[meta.Scope, meta.BaseAssignment]]:
        """All bindings of the file."""
        for scope in {id(scope): scope for scope in self.scopes.values() if scope is not None}.values():
            for assignment in scope.assignments:
                yield scope, assignment
