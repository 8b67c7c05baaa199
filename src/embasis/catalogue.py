"""What there is, by name: read from the source of the registries, so that `embasis list` needs no torch.

A registry is a dict literal of functions; an entry's settings are its signature. Both can be read without running them,
and a test checks that what is read here is what the live registries hold.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parent
REGISTRIES = {
    "methods": ("methods/registry.py", ("METHODS",)),
    "datasets": ("data/__init__.py", ("DATASETS",)),
    "backbones": ("networks/__init__.py", ("BACKBONES", "PRETRAINED", "SEGMENTERS")),
    "metrics": ("functional/metrics.py", ("METRICS", "CALIBRATION", "RANKING")),
}
"""The module of each kind, and its dicts there."""


@dataclass(frozen=True)
class Entry:
    """A registered function: name, its settings with their defaults, and the first line of its docstring."""

    name: str
    settings: tuple[str, ...]
    summary: str


def entries(kind: str) -> list[Entry]:
    """All entries of one kind, in the order of its dicts."""
    path, variables = REGISTRIES[kind]
    tree = parse(path)
    return [
        describe(str(ast.literal_eval(key)), find(tree, value.id))
        for variable in variables
        for key, value in items(tree, variable)
        if key is not None and isinstance(value, ast.Name)
    ]


def items(tree: ast.Module, variable: str) -> list[tuple[ast.expr | None, ast.expr]]:
    """Keys and values of the dict literal that a module gives that name."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and is_name(node.targets[0], variable):
            return list(zip(node.value.keys, node.value.values, strict=True))
    raise LookupError(variable)


def parse(path: str) -> ast.Module:
    """A module of this package as a syntax tree."""
    return ast.parse((PACKAGE / path).read_text(encoding="utf-8"))


def is_name(node: ast.expr, name: str) -> bool:
    """Whether the expression is that plain name."""
    return isinstance(node, ast.Name) and node.id == name


def find(tree: ast.Module, function: str) -> ast.FunctionDef:
    """The function's definition, here or in the module it is imported from."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return node
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and any(name.name == function for name in node.names):
            parts = node.module.split(".")[1:]
            return find(parse("/".join(parts) + ".py"), function)
    raise LookupError(function)


def describe(name: str, function: ast.FunctionDef) -> Entry:
    """Keyword-only arguments are settings; a data set's plain arguments with a default are, too."""
    arguments = function.args
    plain = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    pairs = [
        *zip(plain, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    settings = tuple(f"{argument.arg}={ast.unparse(default)}" for argument, default in pairs if default is not None)
    return Entry(name, settings, (ast.get_docstring(function) or "").split("\n")[0])
