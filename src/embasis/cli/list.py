"""`embasis list`: names, descriptions and settings of methods, data sets, networks and metrics, in 80 columns.

A registry is a dict literal of functions, and an entry's settings are its signature. Both are read from the source,
because importing them would import torch: two seconds for a list of names. A test compares what is read here with the
live registries, so it cannot differ from them.
"""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass
from pathlib import Path

from embasis.benchmark.scores import LEGEND
from embasis.cli.console import echo

PACKAGE = Path(__file__).parents[1]
REGISTRIES = {
    "methods": ("embasis.methods", ("SELF_TRAINING", "ALIGNMENT")),
    "datasets": ("embasis.data", ("DATASETS",)),
    "backbones": ("embasis.networks", ("BACKBONES", "PRETRAINED", "SEGMENTERS")),
    "metrics": ("embasis.functional.metrics", ("LABEL_METRICS", "CALIBRATION", "RANKING")),
}
"""The module of each kind, and its dicts there."""
NOTES = {
    "backbones": (
        "what deeplab_v2 and fast_segment are built on",
        "network.backbone=efficientnet_lite0 or timm:MODEL, and its network.weights='' and network.pretrained=true; "
        "small_fcn, deeplab_v2 and fast_segment are for label maps",
    ),
    "metrics": ("columns of compare's table", LEGEND),
}
"""What stands below the entries of a kind: a title and a text."""
WIDTH = 80


@dataclass(frozen=True)
class ListedEntry:
    """A registered function: name, its settings with their defaults, and the first line of its docstring."""

    name: str
    settings: tuple[str, ...]
    summary: str


def list_entries(kind: str | None) -> None:
    """Print the entries of one kind, or of all."""
    kinds = tuple(REGISTRIES) if kind is None else (kind,)
    echo("\n\n".join(format_entries(name) for name in kinds))


def format_entries(kind: str) -> str:
    """All entries of one kind, and its note."""
    lines = [kind]
    for entry in read_entries(kind):
        lines += [f"  {entry.name}", *indent_text(entry.summary), *indent_text(", ".join(entry.settings))]
    if kind in NOTES:
        title, text = NOTES[kind]
        lines += [f"  {title}", *indent_text(text)]
    return "\n".join(lines)


def indent_text(text: str) -> list[str]:
    """Wrapped lines below a name."""
    return textwrap.wrap(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False)


def read_entries(kind: str) -> list[ListedEntry]:
    """All entries of one kind, in the order of its dicts."""
    module, variables = REGISTRIES[kind]
    tree = parse_module(module)
    dicts = {
        ast.unparse(node.targets[0]): node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
    }
    return [
        describe_function(ast.literal_eval(key), find_function(tree, ast.unparse(value)))
        for variable in variables
        for key, value in zip(dicts[variable].keys, dicts[variable].values, strict=True)
        if key is not None
    ]


def parse_module(name: str) -> ast.Module:
    """A module of this package as a syntax tree."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def find_function(tree: ast.Module, name: str) -> ast.FunctionDef:
    """The function's definition, here or in the module it is imported from; `name` may be `module.function`."""
    module, _, function = name.rpartition(".")
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.module and (module or name) in {item.name for item in node.names}:
            return find_function(parse_module(f"{node.module}.{module}" if module else node.module), function)
    raise LookupError(name)


def describe_function(name: str, function: ast.FunctionDef) -> ListedEntry:
    """Keyword-only arguments are settings; a data set's plain arguments with a default are, too."""
    plain, keyword_only = function.args.args, function.args.kwonlyargs
    defaults = [*function.args.defaults, *function.args.kw_defaults]
    arguments = [*plain[len(plain) - len(function.args.defaults) :], *keyword_only]
    pairs = zip(arguments, defaults, strict=True)
    settings = tuple(f"{argument.arg}={ast.unparse(default)}" for argument, default in pairs if default is not None)
    return ListedEntry(name, settings, (ast.get_docstring(function) or "").split("\n")[0])
