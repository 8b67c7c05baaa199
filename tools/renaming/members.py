"""Members of objects, keywords, parameters, keys and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import libcst as cst
from libcst import metadata as meta

from renaming.plan import DOTTED, Plan
from renaming.source import Source
from renaming.strings import rewrite_string
from renaming.table import RenameError, Row
from renaming.text import rewrite_comment
from renaming.tree import Symbol

SETTERS = ("setattr", "delattr", "getattr", "hasattr", "object")
"""Functions whose first two arguments are an object and the name of its member: also monkeypatch.…, patch.object."""

PURPOSES = ("generator", "uniforms", "permutation", "seeded")
"""Functions that draw by a purpose, which is a text: another text draws otherwise."""


class Finder(cst.CSTVisitor):
    """Members, keywords, parameters, texts."""

    def __init__(self, source: Source, rewrite: Callable[[str, str, Plan], str]) -> None:
        self.source, self.plan, self.classes, self.rewrite = source, source.plan, list[str](), rewrite

    def visit_ClassDef(self, node: cst.ClassDef) -> None:  # noqa: N802
        """Fields and methods of a class that a line names."""
        self.classes.append(node.name.value)
        for row in self.plan.attributes:
            if node.name.value in row.owners and row.covers(self.source.module):
                self.rename_members(node, row)
        self.rename_parameters(node.body, f"{node.name.value}.")

    def leave_ClassDef(self, original_node: cst.ClassDef) -> None:  # noqa: N802
        """Out of the class again."""
        self.classes.pop()

    def visit_Module(self, node: cst.Module) -> None:  # noqa: N802
        """Functions at the top."""
        self.rename_parameters(node, "")

    def rename_members(self, node: cst.ClassDef, row: Row) -> None:
        """The definition of a member, and its uses in the class's own scope."""
        scope = self.source.scopes.get(node.body) or next(
            (self.source.scopes[each] for each in node.body.body if each in self.source.scopes), None
        )
        for assignment in scope[row.parts[1]] if isinstance(scope, meta.ClassScope) else ():
            if isinstance(assignment, meta.Assignment) and assignment.scope is scope:
                self.source.rename(assignment.node, row.new)
                for access in assignment.references:
                    self.source.rename(access.node, row.new)

    def rename_parameters(self, body: cst.CSTNode, prefix: str) -> None:
        """Parameters of functions that a line names, with their uses in the function."""
        rows = [row for row in self.plan.keywords if row.covers(self.source.module)]
        for each in getattr(body, "body", ()):
            if not isinstance(each, cst.FunctionDef):
                continue
            for row in rows:
                if row.parts[:-1] == (*filter(None, [prefix.rstrip(".")]), each.name.value):
                    self.rename_parameter(each, row)

    def rename_parameter(self, node: cst.FunctionDef, row: Row) -> None:
        """One parameter; the function must not use the new name already."""
        scope = self.source.scopes.get(node.body)
        if not isinstance(scope, meta.FunctionScope):
            return
        known = {assignment.name for assignment in scope.assignments}
        if row.parts[-1] in known and row.new in known:
            raise RenameError(f"{self.source.module}: {row}: {node.name.value} has a {row.new} already")
        for assignment in [each for each in scope.assignments if each.name == row.parts[-1]]:
            if isinstance(assignment, meta.Assignment):
                self.source.rename(assignment.node, row.new)
                for access in assignment.references:
                    self.source.rename(access.node, row.new)

    def visit_Attribute(self, node: cst.Attribute) -> None:  # noqa: N802
        """`module.name`, `package.module`, `object.member`."""
        source, name = self.source, node.attr.value
        home = self.package_of(node.value)
        if home:
            new = self.plan.name(home, name)
            below = f"{home}.{name}"
            if below in self.plan.modules:
                new = self.plan.modules[below].rpartition(".")[2]
            if new != name and node not in source.changes:
                source.rename(node.attr, new)
            return
        for row in self.plan.attributes:
            if row.parts[1] == name and row.covers(source.module) and self.is_of(node.value, row):
                source.rename(node.attr, row.new)
                return

    def package_of(self, node: cst.CSTNode) -> str:
        """The module that an expression is, or ""."""
        if node in self.source.packages:
            return self.source.packages[node]
        if isinstance(node, cst.Attribute):
            home = self.package_of(node.value)
            below = f"{home}.{node.attr.value}"
            return below if home and below in self.plan.tree.modules else ""
        return ""

    def symbol_of(self, node: cst.CSTNode) -> Symbol | None:
        """The module-level name that an expression is."""
        if isinstance(node, cst.Attribute) and (home := self.package_of(node.value)):
            return self.plan.tree.home_of(home, node.attr.value)
        return self.source.symbols.get(node)

    def is_of(self, receiver: cst.CSTNode, row: Row) -> bool:
        """Whether `receiver.member` may be meant: self by its class, a class by its name, others by their names."""
        member, last = row.parts[1], last_name(receiver)
        if last in ("self", "cls") and isinstance(receiver, cst.Name):
            inside = self.classes[-1] if self.classes else ""
            here = self.plan.tree.contents.get(self.source.module)
            known = member in here.members.get(inside, ()) if here and inside else False
            return inside in row.owners or (last in row.receivers and not known)
        symbol = self.symbol_of(receiver)
        if symbol is not None and symbol[1][:1].isupper():
            return symbol[1] in row.owners
        return not row.receivers or last in row.receivers

    def visit_Call(self, node: cst.Call) -> None:  # noqa: N802
        """Keywords, and names of members as text."""
        symbol, last = self.symbol_of(node.func), last_name(node.func)
        for argument in node.args:
            if argument.keyword is None:
                continue
            for new in self.keywords_of(symbol, last, node, argument.keyword.value):
                self.source.rename(argument.keyword, new)
        if last in PURPOSES:  # what is drawn hangs on these texts
            self.source.kept |= {argument.value for argument in node.args}
        if last in ("get", "pop", "setdefault") and node.args:
            self.rename_key(node.args[0].value)
        if last in SETTERS and len(node.args) >= 2:
            self.rename_text(node.args[0].value, node.args[1].value)
        self.rename_pairs([argument.value for argument in node.args])

    def keywords_of(self, symbol: Symbol | None, last: str, node: cst.Call, keyword: str) -> Iterator[str]:
        """New names of a keyword in a call of `symbol`, or of a method called `last`."""
        for row in self.plan.keywords:
            *home, parameter = row.parts
            if parameter != keyword:
                continue
            if home == ["*"]:
                yield from [row.new] if row.covers(self.source.module) else []
                continue
            known = symbol is not None and symbol[1] == home[0] and row.covers(symbol[0])
            if known if len(home) == 1 else last == home[-1] and isinstance(node.func, cst.Attribute):
                yield row.new
        for row in self.plan.attributes:
            if row.parts[1] != keyword:
                continue
            copied = last == "replace" and row.covers(self.source.module) and node.args and node.args[0].keyword is None
            if (
                (symbol is not None and symbol[1] in row.owners)
                or (last == "cls" and self.classes[-1] in row.owners)
                or (copied and self.is_of(node.args[0].value, row))
            ):
                yield row.new

    def rename_text(self, owner: cst.CSTNode, text: cst.CSTNode) -> None:
        """`setattr(owner, "name", …)`: the owner is a module or a class."""
        if not isinstance(text, cst.SimpleString):
            return
        name = text.evaluated_value
        home, symbol = self.package_of(owner), self.symbol_of(owner)
        if not isinstance(name, str):
            return
        new = self.plan.name(home, name) if home else self.plan.member(symbol, name) if symbol else name
        if new != name:
            self.source.rename(text, new)

    def rename_pairs(self, parts: list[cst.BaseExpression]) -> None:
        """`("package.module", "name")`, `(module, "name")`, `(Class, "member")`: a name as text after what has it."""
        for first, second in pairwise(parts):
            if not isinstance(second, cst.SimpleString) or second in self.source.kept:
                continue
            home = str(first.evaluated_value) if isinstance(first, cst.SimpleString) else ""
            if home in self.plan.tree.modules:
                new = self.plan.name(home, str(second.evaluated_value))
                if new != second.evaluated_value:
                    self.source.rename(second, new)
            elif isinstance(first, cst.Name | cst.Attribute):
                self.rename_text(first, second)

    def visit_Tuple(self, node: cst.Tuple) -> None:  # noqa: N802
        """Pairs of texts."""
        self.rename_pairs([each.value for each in node.elements])

    def visit_List(self, node: cst.List) -> None:  # noqa: N802
        """Pairs of texts."""
        self.rename_pairs([each.value for each in node.elements])

    def visit_DictElement(self, node: cst.DictElement) -> None:  # noqa: N802
        """`"name": "embasis.module"`, and keys."""
        self.rename_key(node.key)
        self.rename_pairs([node.value, node.key])

    def visit_Index(self, node: cst.Index) -> None:  # noqa: N802
        """`x["key"]`, and `Sequence["Class"]`, a class that is not there yet."""
        self.rename_key(node.value)
        if isinstance(node.value, cst.SimpleString) and isinstance(name := node.value.evaluated_value, str):
            new = self.plan.name(self.source.module, name) if self.source.module in self.plan.tree.modules else name
            if name[:1].isupper() and new != name:
                self.source.rename(node.value, new)

    def visit_Comparison(self, node: cst.Comparison) -> None:  # noqa: N802
        """`"key" in x`."""
        if isinstance(node.comparisons[0].operator, cst.In | cst.NotIn):
            self.rename_key(node.left)

    def rename_key(self, node: cst.CSTNode) -> None:
        """A text that is a key, if a line names it."""
        if isinstance(node, cst.SimpleString):
            for row in self.plan.keys:
                if node.evaluated_value == row.old and row.covers(self.source.module):
                    self.source.rename(node, row.new)

    def visit_Assign(self, node: cst.Assign) -> None:  # noqa: N802
        """`__all__ = ["name"]`."""
        names = [each.target.value for each in node.targets if isinstance(each.target, cst.Name)]
        if "__all__" in names and isinstance(node.value, cst.List | cst.Tuple):
            for each in node.value.elements:
                if isinstance(each.value, cst.SimpleString):
                    name = str(each.value.evaluated_value)
                    if (new := self.plan.name(self.source.module, name)) != name:
                        self.source.rename(each.value, new)

    def visit_NameItem(self, node: cst.NameItem) -> None:  # noqa: N802
        """`global name`."""
        if (self.source.module, node.name.value) in self.plan.names:
            self.source.rename(node.name, self.plan.names[self.source.module, node.name.value])

    def visit_SimpleString(self, node: cst.SimpleString) -> None:  # noqa: N802
        """Modules, names and paths within texts, and texts that a line names."""
        if node in self.source.changes or node in self.source.kept:
            return
        new = rewrite_string(node.value, self.source.module, self.plan, self.rewrite)
        if new != node.value:
            self.source.changes[node] = lambda updated: updated.with_changes(value=new)

    def visit_FormattedStringText(self, node: cst.FormattedStringText) -> None:  # noqa: N802
        """The same in f-strings."""
        new = DOTTED.sub(lambda found: self.plan.dotted(found[0]), node.value)
        if new != node.value:
            self.source.changes[node] = lambda updated: updated.with_changes(value=new)

    def visit_Comment(self, node: cst.Comment) -> None:  # noqa: N802
        """Modules, paths and names in backticks."""
        new = rewrite_comment(node.value, self.source.module, self.plan)
        if new != node.value:
            self.source.changes[node] = lambda updated: updated.with_changes(value=new)


def last_name(node: cst.CSTNode) -> str:
    """`c` of a.b.c, `f` of f(…), `x` of x[…]."""
    if isinstance(node, cst.Call):
        return last_name(node.func)
    if isinstance(node, cst.Subscript):
        return last_name(node.value)
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""
