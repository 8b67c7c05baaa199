"""The modules of a repository: where each is, what it defines, and what it has from another one."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

FOLDERS = ("src", "tests", "benchmarks", "tools", "docs", "examples")
"""Where files are rewritten, beside those in the root itself."""
TEXTS = (".md", ".toml", ".cfg", ".yml", ".yaml", ".jinja")
Symbol = tuple[str, str]
"""Module and name."""


@dataclass
class Contents:
    """What stands at the top of one module."""

    defined: set[str] = field(default_factory=set)
    imported: dict[str, Symbol] = field(default_factory=dict)
    """Name here → module and name there; the name is "" where a module itself is meant."""
    members: dict[str, set[str]] = field(default_factory=dict)
    """Class → its fields and methods."""


@dataclass
class Tree:
    """A repository."""

    root: Path
    skipped: tuple[str, ...] = ()
    """Files and folders, relative to the root, that are left alone."""

    def files(self, *suffixes: str) -> list[Path]:
        """All files of these kinds, sorted."""
        found = [path for path in self.root.iterdir() if path.is_file()]
        for folder in FOLDERS:
            found += [path for path in (self.root / folder).rglob("*") if path.is_file()]
        left = [path for path in found if path.suffix in suffixes and not self._is_skipped(path)]
        return sorted(
            path for path in left if not any(part.startswith(".") for part in path.relative_to(self.root).parts)
        )

    def _is_skipped(self, path: Path) -> bool:
        name = path.relative_to(self.root).as_posix()
        return any(name == each or name.startswith(each + "/") for each in self.skipped) or "__pycache__" in name

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Every module by its name."""
        return {module_name(self.root, path): path for path in self.files(".py")}

    def is_package(self, module: str) -> bool:
        """Whether it is a folder of modules."""
        return module in self.modules and self.modules[module].name == "__init__.py"

    @cached_property
    def contents(self) -> dict[str, Contents]:
        """What each module has at its top."""
        return {name: self._read(name, path) for name, path in self.modules.items()}

    def _read(self, module: str, path: Path) -> Contents:
        found = Contents()
        for node in top_level(ast.parse(path.read_text(encoding="utf-8")).body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.defined.add(node.name)
            if isinstance(node, ast.ClassDef):
                found.members[node.name] = members_of(node)
            for target in targets_of(node):
                found.defined |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
            if isinstance(node, ast.ImportFrom):
                home = self.absolute(module, node.module or "", node.level)
                for alias in node.names:
                    whole = f"{home}.{alias.name}"
                    found.imported[alias.asname or alias.name] = (
                        (self.known(module, whole), "")
                        if self.known(module, whole)
                        else (self.known(module, home) or home, alias.name)
                    )
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        found.imported[alias.asname] = (alias.name, "")
        return found

    def absolute(self, module: str, name: str, level: int) -> str:
        """The module that `from ..name import` means within `module`."""
        if not level:
            return name
        parts = module.split(".")
        parts = parts[: len(parts) - level + (1 if self.is_package(module) else 0)]
        return ".".join([*parts, name] if name else parts)

    def known(self, module: str, name: str) -> str:
        """A module of ours by the name under which `module` imports it, or ""; tests import each other by file name."""
        homes = (module.rpartition(".")[0], module.partition(".")[0], "tests.support")
        for candidate in (name, *(f"{home}.{name}" for home in homes)):
            if candidate in self.modules:
                return candidate
        return ""

    def home_of(self, module: str, name: str) -> Symbol:
        """The module that defines what `module` calls so, through all re-exports, and its name there."""
        seen = set[Symbol]()
        while (module, name) not in seen and module in self.modules:
            seen.add((module, name))
            here = self.contents[module]
            if name in here.imported and here.imported[name][1]:
                module, name = here.imported[name]
            else:
                break
        return module, name

    def is_unique(self, name: str) -> bool:
        """Whether one module alone in src/ has such a name at its top."""
        homes = [
            module for module, path in self.modules.items() if "src" in path.relative_to(self.root).parts[:1]
            and name in self.contents[module].defined
        ]  # fmt: skip
        return len(homes) <= 1


def module_name(root: Path, path: Path) -> str:
    """src/embasis/x/y.py is embasis.x.y, tests/x.py is tests.x."""
    parts = path.relative_to(root).with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def top_level(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements at the top of a module, those under `if` and `try` included."""
    found = []
    for node in body:
        found.append(node)
        for name in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                found += top_level(getattr(node, name, []))
    return found


def targets_of(node: ast.stmt) -> list[ast.expr]:
    """What an assignment or a loop binds."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For) else []


def members_of(node: ast.ClassDef) -> set[str]:
    """Fields and methods of a class, and what it sets on self."""
    found = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    for each in node.body:
        found |= {part.id for target in targets_of(each) for part in ast.walk(target) if isinstance(part, ast.Name)}
    for part in ast.walk(node):
        if (
            isinstance(part, ast.Attribute)
            and isinstance(part.ctx, ast.Store)
            and getattr(part.value, "id", "") == "self"
        ):
            found.add(part.attr)
    return found
