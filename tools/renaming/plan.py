"""From lines of the table to what is to be done: which are done already, which cannot be, where everything goes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from renaming.table import RenameError, Row
from renaming.tree import Symbol, Tree

START = r"(?:(?<=\\[nt])|(?<![\w\\]))"
"""The beginning of a word, also after a line break that is written \\n."""
DOTTED = re.compile(START + r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
FILE = re.compile(r"(?<![\w./-])(?:[\w-]+/)*[\w-]+\.py\b")
FOLDER = re.compile(r"(?<![\w./-])(?:[\w-]+/)+(?![\w.-])")


@dataclass
class Plan:
    """All renames of one go."""

    tree: Tree
    modules: dict[str, str] = field(default_factory=dict)
    """Old module → new one, submodules of renamed packages included."""
    names: dict[Symbol, str] = field(default_factory=dict)
    """Where a name is defined, and what it is called there → its new name."""
    attributes: list[Row] = field(default_factory=list)
    keywords: list[Row] = field(default_factory=list)
    locals: list[Row] = field(default_factory=list)
    strings: list[Row] = field(default_factory=list)
    keys: list[Row] = field(default_factory=list)
    paths: dict[str, str] = field(default_factory=dict)
    done: list[Row] = field(default_factory=list)
    """Lines whose old name is gone and whose new name is there."""

    def module(self, name: str) -> str:
        """A module's new name."""
        return self.modules.get(name, name)

    def name(self, module: str, name: str) -> str:
        """The new name of what `module` calls so."""
        home, known = self.tree.home_of(module, name)
        return self.names.get((home, known), name) if known == name else name

    def dotted(self, text: str) -> str:
        """`package.module.name.member` with new names, as far as it is of ours."""
        parts = text.split(".")
        for length in range(len(parts), 0, -1):
            home = ".".join(parts[:length])
            if home not in self.tree.modules:
                continue
            rest = list(parts[length:])
            if rest:
                symbol = self.tree.home_of(home, rest[0])
                rest[0] = self.name(home, rest[0])
                if len(rest) > 1:
                    rest[1] = self.member(symbol, rest[1])
            return ".".join([self.module(home), *rest])
        return text

    def member(self, owner: Symbol, name: str) -> str:
        """The new name of a class's member."""
        for row in self.attributes:
            if owner[1] in row.owners and row.parts[1] == name:
                return row.new
        return name

    def path(self, text: str, near: str = "") -> str:
        """The new path of a module's file, written from the root, from src/, from its package, or within `near`."""
        src = self.tree.root / "src"
        tops = [path.name for path in src.iterdir() if path.is_dir()] if src.is_dir() else []
        starts = [Path(), Path("src"), *(Path("src") / top for top in tops), *((Path(near),) if near else ())]
        for start in starts:
            old = (start / text).as_posix()
            if old in self.paths:
                new = self.paths[old]
                return (
                    Path(new).relative_to(start).as_posix()
                    if new.startswith(f"{start.as_posix()}/") or start == Path()
                    else Path(new).name
                )
        return text


def file_of(tree: Tree, module: str, package: bool) -> str:
    """The path of a module from the root."""
    parts = module.split(".")
    top = parts[0] if (tree.root / "src" / parts[0]).is_dir() or not (tree.root / parts[0]).is_dir() else ""
    start = "src/" if top else ""
    return start + "/".join(parts) + ("/__init__.py" if package else ".py")


def make_plan(tree: Tree, rows: Iterable[Row], table: Iterable[Row] | None = None) -> Plan:
    """Sort the lines; refuse those that cannot be. `table`: all lines, those of earlier goes included."""
    plan, faults = Plan(tree), list[str]()
    rows = [row for row in rows if not row.by_hand]
    past = Past(tree, [row for row in (rows if table is None else table) if not row.by_hand])
    for row in sorted((row for row in rows if row.kind == "module"), key=lambda row: row.old.count(".")):
        faults += add_module(plan, row)
    for row in rows:
        if row.kind == "name":
            faults += add_name(plan, row, past)
        elif row.kind == "attribute":
            faults += add_attribute(plan, past.now(row))
        elif row.kind == "path":
            add_path(plan, row)
        elif row.kind != "module":
            getattr(plan, f"{row.kind}s").append(past.now(row))
    for old, new in plan.modules.items():
        plan.paths[file_of(tree, old, tree.is_package(old))] = file_of(tree, new, tree.is_package(old))
    faults += clashing_targets(plan)
    if faults:
        raise RenameError("\n".join(faults))
    return plan


class Past:
    """What earlier goes have done: lines name things as they were before any of them."""

    def __init__(self, tree: Tree, rows: list[Row]) -> None:
        self.tree = tree
        self.moved = {row.old: row.new for row in rows if row.kind == "module"}
        self.named = {(row.scope, row.old): row for row in rows if row.kind == "name"}
        self.by_new = {(row.scope, row.new): row for row in rows if row.kind == "name"}

    def module(self, name: str) -> str:
        """A module's name today: the new one, if it has been moved (by its own line, or with its package)."""
        for length in range(name.count(".") + 1, 0, -1):
            parts = name.split(".")
            old = ".".join(parts[:length])
            if old in self.moved:
                new = ".".join([self.moved[old], *parts[length:]])
                return (
                    new
                    if new in self.tree.modules and not (name in self.tree.modules and length <= name.count("."))
                    else name
                )
        return name

    def is_done(self, row: Row) -> bool:
        """Whether a name has been renamed: the new one is there, the old one is gone or is another line's new one."""
        home = self.module(row.scope)
        if home not in self.tree.modules:
            return False
        defined = self.tree.contents[home].defined
        before = self.by_new.get((row.scope, row.old))
        return row.new in defined and (row.old not in defined or (before is not None and before.old not in defined))

    def now(self, row: Row) -> Row:
        """An attribute, keyword, local or string line with modules and classes by their names of today."""
        patterns = [pattern.partition(":") for pattern in row.scope.split(",")]
        scope = ",".join(self.module(home) + sign + inside for home, sign, inside in patterns)
        if row.kind not in ("attribute", "keyword"):
            return replace(row, scope=scope)
        owner, dot, rest = row.old.partition(".")
        owners = "|".join(self.renamed(each, row.scope if row.kind == "keyword" else "") for each in owner.split("|"))
        return replace(row, scope=scope, old=owners + dot + rest)

    def renamed(self, name: str, scope: str) -> str:
        """What a function or class is called today; `scope`: of this module alone."""
        for (home, old), named in self.named.items():
            if old == name and scope in ("", home) and self.is_done(named):
                return named.new
        return name


def clashing_targets(plan: Plan) -> list[str]:
    """Two modules that would become one."""
    homes: dict[str, list[str]] = {}
    for old, new in plan.modules.items():
        homes.setdefault(new, []).append(old)
    return [
        f"{' and '.join(old)} cannot both become {new}: merge them by hand"
        for new, old in homes.items()
        if len(old) > 1
    ]


def add_module(plan: Plan, row: Row) -> list[str]:
    """A module, or a package with all that is below it."""
    tree = plan.tree
    there = row.new in tree.modules
    gone = row.old not in tree.modules or row.new.startswith(row.old + ".")
    if there and gone:
        plan.done.append(row)
        return []
    if row.old not in tree.modules:
        return [f"{row}: there is no module {row.old}, and none that is called {row.new}"]
    if there and row.new not in plan.modules:
        return [f"{row}: {row.new} is there already"]
    plan.modules[row.old] = row.new
    if tree.is_package(row.old):
        for name in tree.modules:
            if name.startswith(row.old + "."):
                plan.modules[name] = row.new + name[len(row.old) :]
    return []


def add_name(plan: Plan, row: Row, past: Past) -> list[str]:
    """A function, class or constant of a module, which may have moved in an earlier go."""
    home = past.module(row.scope)
    if home not in plan.tree.modules:
        return [f"{row}: there is no module {row.scope}"]
    if past.is_done(row):
        plan.done.append(row)
        return []
    defined = plan.tree.contents[home].defined
    if row.old not in defined:
        return [f"{row}: {home} has no {row.old}, and no {row.new}"]
    leaving = {old for scope, old in past.named if scope == row.scope}
    if row.new in (defined | plan.tree.contents[home].imported.keys()) - leaving:
        return [f"{row}: {home} has a {row.new} already; take another name, or rename that one too"]
    plan.names[home, row.old] = row.new
    return []


def add_attribute(plan: Plan, row: Row) -> list[str]:
    """A field or method; the class must not have the new name too."""
    if len(row.parts) != 2:
        return [f"{row}: an attribute is written Class.member"]
    for contents in plan.tree.contents.values():
        for owner in contents.members.keys() & set(row.owners):
            if {row.parts[1], row.new} <= contents.members[owner]:
                return [f"{row}: {owner} has a member {row.new} already"]
    plan.attributes.append(row)
    return []


def add_path(plan: Plan, row: Row) -> None:
    """A file that is no module, or a folder with all that is in it."""
    root = plan.tree.root
    if (root / row.old).is_dir():
        for path in (root / row.old).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                old = path.relative_to(root).as_posix()
                plan.paths[old] = row.new + old[len(row.old) :]
    elif (root / row.old).exists():
        plan.paths[row.old] = row.new
    else:
        plan.done.append(row)
