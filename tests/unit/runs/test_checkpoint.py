"""A run folder's facts are believed only as far as their form goes and its tensors bear them out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli_tables import copied, embasis, fit_tables, refused
from embasis.storage import read_newest
from storage_runs import forge_file

PREDICT = ("predict", "run", "judged.csv", "-o", "l.csv")
REPORT, EXPORT = ("report", "run"), ("export", "run", "-o", "e.csv", "--as", "csv")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables, and a run of a small network with a basis block."""
    words = ("--backbone", "mlp", "hidden=4", "method.name=em_basis_paper", "rounds=0", "source_epochs=1")
    return fit_tables(tmp_path_factory.mktemp("facts"), *words)


@pytest.fixture
def forged(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change the facts of the run, in a generation whose manifest vouches for them."""
    copied(finished, tmp_path / "here", monkeypatch)

    def change(*path: str, value: Any) -> None:
        newest = read_newest("run")
        facts = json.loads(json.dumps(newest.facts))
        inner = facts
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        forge_file(Path("run"), newest.number, "facts.json", json.dumps(facts).encode())

    return change


def test_the_run_itself_is_read(forged: Callable[..., None]) -> None:
    for words in (PREDICT, REPORT, EXPORT):
        result = embasis(*words)
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("classes",), [], "Expected `array` of length >= 1 - at `$.classes`"),
        (("classes",), [1, 2], "Expected `str`, got `int` - at `$.classes[0]`"),
        (("shape",), [-1], "Expected `int` >= 0 - at `$.shape[0]`"),
        (("columns",), 3, "Expected `array | null`, got `int` - at `$.columns`"),
        (("config",), {"method": 3}, "Expected `object`, got `int` - at `$.config.method`"),
        (("progress",), [], "Expected `object`, got `array` - at `$.progress`"),
        (("progress", "kept"), 7, "round 7 of 1 is kept"),
        (("records",), None, "Expected `array`, got `null` - at `$.records`"),
    ],
)
def test_facts_of_another_form_are_damage(forged: Callable[..., None], path: Any, value: Any, problem: str) -> None:
    forged(*path, value=value)
    for words in (PREDICT, REPORT, EXPORT):
        refused(4, f"run: the run's facts are damaged: {problem}", *words)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (
            ("shape",),
            [10**9],
            "the run's facts claim inputs of shape (1000000000,), far more than its tensors bear out",
        ),
        (
            ("config", "network", "hidden"),
            10**9,
            "the run's facts describe another network than its tensors: network/extractor.1.weight, "
            "network/extractor.1.bias, network/classifier.weight",
        ),
        (
            ("config", "method", "components"),
            10**9,
            "the run's facts ask for a basis of 1,000,000,000 components, its tensors have 9",
        ),
    ],
)
def test_no_size_is_believed_that_the_tensors_do_not_have(
    forged: Callable[..., None], path: Any, value: Any, sentence: str
) -> None:
    """Each would take gigabytes."""
    forged(*path, value=value)
    refused(4, sentence, *PREDICT)
