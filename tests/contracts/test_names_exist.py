"""What torture, benchmarks and helpers of tests take from embasis is there: `make test` does not run most of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from paths import ROOT, TESTS

PLACES = [
    path
    for folder in (TESTS / "torture", TESTS / "support", ROOT / "benchmarks")
    for path in sorted(folder.rglob("*.py"))
]


def imported_modules(tree: ast.Module) -> Iterator[tuple[str, ModuleType]]:
    """Each module of embasis that the code has a name for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("embasis"):
            for alias in node.names:
                home = import_module(node.module or "")
                value = (
                    getattr(home, alias.name)
                    if hasattr(home, alias.name)
                    else import_module(f"{node.module}.{alias.name}")
                )
                if isinstance(value, ModuleType):
                    yield alias.asname or alias.name, value


def missing_attributes(code: str) -> list[str]:
    """`module.name` for each name that the module does not have."""
    tree = ast.parse(code)
    modules = dict(imported_modules(tree))
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        and node.value.id in modules and not hasattr(modules[node.value.id], node.attr)
    ]  # fmt: skip


@pytest.mark.parametrize("path", PLACES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_taken_from_embasis_is_there(path: Path) -> None:
    assert missing_attributes(path.read_text(encoding="utf-8")) == []


def test_a_name_that_is_gone_is_seen() -> None:
    assert missing_attributes("from embasis.engine import train\ntrain.no_such_step()") == ["train.no_such_step"]
    with pytest.raises(ModuleNotFoundError):
        missing_attributes("from embasis.engine import no_such_module")
