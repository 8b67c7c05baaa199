"""The deliberate breakages of tests/torture/mutants_inputs.py can be made: their code and the tests that see it exist.

The breakages themselves are made by hand (`python tests/torture/mutants_inputs.py`); this keeps the table true as code
and tests move.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from typing import Any

import pytest

from paths import ROOT, TESTS

SOURCE = ROOT / "src" / "embasis"


def load_mutants() -> tuple[Any, ...]:
    """The table; its file is a script outside the folders that tests import from."""
    spec = importlib.util.spec_from_file_location("mutants_inputs", TESTS / "torture" / "mutants_inputs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return tuple(module.MUTANTS)


MUTANTS = load_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_the_code_that_is_broken_is_there_once(mutant: Any) -> None:
    text = (SOURCE / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    broken = text.replace(mutant.old, mutant.new)
    assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(text)), "the breakage changes nothing"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_the_test_that_sees_it_is_there(mutant: Any) -> None:
    file, _, name = mutant.tests.split(" ")[0].partition("::")
    nodes = ast.walk(ast.parse((TESTS / file).read_text()))
    tests = {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    assert tests
    assert not name or name in tests


def test_no_breakage_is_named_twice() -> None:
    assert len({mutant.what for mutant in MUTANTS}) == len(MUTANTS)
