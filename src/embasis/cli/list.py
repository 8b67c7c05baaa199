"""`embasis list`: names, descriptions and settings of methods, data sets, networks and metrics, in 80 columns.

A registry is a dict literal of functions, and an entry's settings are its signature; a dict of such dicts groups them.
What an alignment method needs is written in attributes of its class. All of it is read from the source, because
importing it would import torch: two seconds for a list of names. A test compares what is read here with the live
registries, so it cannot differ from them.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embasis.benchmark.scores import LEGEND
from embasis.cli.console import echo

PACKAGE = Path(__file__).parents[1]
REGISTRIES = {
    "methods": ("embasis.methods", ("FAMILIES",)),
    "datasets": ("embasis.data", ("DATASETS",)),
    "backbones": ("embasis.networks", ("BACKBONES", "PRETRAINED", "SEGMENTERS")),
    "learners": ("embasis.learners", ("LEARNERS",)),
    "metrics": ("embasis.functional.metrics", ("LABEL_METRICS", "CALIBRATION", "RANKING")),
}
"""The module of each kind, and its dicts there; a dict of dicts is a dict of groups."""
NOTES = {
    "backbones": (
        "what deeplab_v2 and fast_segment are built on",
        "network.backbone=efficientnet_lite0 or timm:MODEL, and its network.weights='' and network.pretrained=true; "
        "small_fcn, deeplab_v2 and fast_segment are for label maps",
    ),
    "learners": (
        "what they are for",
        "tables: embasis fit a.csv b.csv -o run --learner NAME learner.SETTING=VALUE; in Python any classifier of "
        "scikit-learn: EMBasisClassifier(estimator=…)",
    ),
    "metrics": ("columns of compare's table", LEGEND),
}
"""What stands below the entries of a kind: a title and a text."""
TAKES = {"rows": "rows", "maps": "label maps"}
FLAGS = ("takes", "trains_features", "takes_vectors")
"""Class attributes that say what a method needs: the first two of an aligner, the last of a restyler."""
WIDTH = 80


@dataclass(frozen=True)
class ListedEntry:
    """A registered function: name, its settings with their defaults, the first line of its docstring, its group, and
    the attributes of the aligner and the restyler that it makes, if it makes any."""

    name: str
    settings: tuple[str, ...]
    summary: str
    group: str = ""
    flags: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs(self) -> str:
        """What a method needs, in words; empty where it takes everything."""
        takes = " and ".join(TAKES[kind] for kind in self.flags.get("takes", ()))
        words = [f"for {takes}"] if takes else []
        words += ["needs trainable features"] if self.flags.get("trains_features") else []
        words += ["needs pictures"] if not self.flags.get("takes_vectors", True) else []
        return "; ".join(words)


def list_entries(kind: str | None) -> None:
    """Print the entries of one kind, or of all."""
    kinds = tuple(REGISTRIES) if kind is None else (kind,)
    echo("\n\n".join(format_entries(name) for name in kinds))


def format_entries(kind: str) -> str:
    """All entries of one kind by group, and its note."""
    lines = [kind]
    for group, entries in itertools.groupby(read_entries(kind), lambda entry: entry.group):
        lines += ["", group] if group else []
        for entry in entries:
            texts = (entry.summary, entry.needs, ", ".join(entry.settings))
            lines += [f"  {entry.name}", *(line for text in texts for line in indent_text(text))]
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
    dicts = read_dicts(tree)
    return [entry for variable in variables for entry in read_group(tree, dicts, variable)]


def read_dicts(tree: ast.Module) -> dict[str, list[tuple[str, str]]]:
    """The dict literals of a module by name: keys, and the source of their values."""
    dicts = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            pairs = zip(node.value.keys, node.value.values, strict=True)
            dicts[ast.unparse(target)] = [(ast.literal_eval(key), ast.unparse(value)) for key, value in pairs if key]
    return dicts


def read_group(
    tree: ast.Module, dicts: Mapping[str, list[tuple[str, str]]], variable: str, group: str = ""
) -> list[ListedEntry]:
    """The entries of a dict; values that are dicts themselves are groups."""
    entries = list[ListedEntry]()
    for key, value in dicts[variable]:
        if value in dicts:
            entries += read_group(tree, dicts, value, key)
        else:
            entries.append(describe_function(key, *find_definition(tree, value), group))
    return entries


@functools.cache
def parse_module(name: str) -> ast.Module:
    """A module of this package as a syntax tree."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def find_definition(tree: ast.Module, name: str) -> tuple[ast.FunctionDef | ast.ClassDef, ast.Module]:
    """A function or class, here or in the module it is imported from; `name` may be `module.function`."""
    module, _, function = name.rpartition(".")
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node, tree
        if isinstance(node, ast.ImportFrom) and (module or name) in {item.name for item in node.names}:
            home = node.module or ""
            if home.startswith("embasis"):
                return find_definition(parse_module(f"{home}.{module}" if module else home), function)
    raise LookupError(name)


def describe_function(
    name: str, function: ast.FunctionDef | ast.ClassDef, tree: ast.Module, group: str = ""
) -> ListedEntry:
    """Keyword-only arguments are settings; a data set's plain arguments with a default are, too."""
    assert isinstance(function, ast.FunctionDef)
    plain, keyword_only = function.args.args, function.args.kwonlyargs
    defaults = [*function.args.defaults, *function.args.kw_defaults]
    arguments = [*plain[len(plain) - len(function.args.defaults) :], *keyword_only]
    pairs = zip(arguments, defaults, strict=True)
    settings = tuple(f"{argument.arg}={ast.unparse(default)}" for argument, default in pairs if default is not None)
    summary = (ast.get_docstring(function) or "").split("\n")[0]
    return ListedEntry(name, settings, summary, group, read_flags(function, tree))


def read_flags(function: ast.FunctionDef, tree: ast.Module) -> dict[str, Any]:
    """What the aligner and the restyler that a recipe makes say of their needs; empty where it makes none."""
    flags = dict[str, Any]()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id[0].isupper():
            with contextlib.suppress(LookupError):
                flags |= read_attributes(tree, node.id)
    return {name: flags[name] for name in FLAGS if name in flags}


def read_attributes(tree: ast.Module, name: str) -> dict[str, Any]:
    """The literal class attributes of a class and of those it is made from."""
    definition, home = find_definition(tree, name)
    if not isinstance(definition, ast.ClassDef):
        return {}
    attributes = dict[str, Any]()
    for base in reversed([ast.unparse(base) for base in definition.bases]):
        with contextlib.suppress(LookupError):
            attributes |= read_attributes(home, base)
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and node.value and ast.unparse(node.annotation).startswith("ClassVar"):
            with contextlib.suppress(ValueError):
                attributes[ast.unparse(node.target)] = ast.literal_eval(node.value)
    return attributes
