"""Labels, weights and records of eight runs are, bit for bit, those that were recorded.

A rename or a move must not change them. A change of results that is meant is recorded, with one command:
`python tests/golden/record.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from golden_runs import GOLDENS, RUNS, differences, environment, hash_record, one_thread

RECORDED = json.loads(GOLDENS.read_text(encoding="utf-8"))


def require_same_environment() -> None:
    """Bits are promised for one type of machine and one build of each library: elsewhere nothing is compared."""
    cure = "record them with python tests/golden/record.py from the commit before the change that is to be checked"
    if unlike := differences(RECORDED["environment"], environment()):
        pytest.skip(f"the goldens hold for another environment ({'; '.join(unlike)}); {cure}")


def test_the_goldens_are_of_these_runs() -> None:
    assert RECORDED["runs"].keys() == RUNS.keys()


@pytest.mark.parametrize("name", RUNS)
def test_a_run_gives_the_values_that_were_recorded(name: str, tmp_path: Path) -> None:
    with one_thread():
        require_same_environment()
        assert differences(RECORDED["runs"][name], RUNS[name](tmp_path)) == []


def a_little_more(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its result, or the first of its results, larger by a millionth."""

    def changed(*arguments: Any, **named: Any) -> Any:
        found = function(*arguments, **named)
        return (found[0] * (1 + 1e-6), *found[1:]) if isinstance(found, tuple) else found * (1 + 1e-6)

    return changed


CHANGES = {
    "table, linear": "embasis.functional.moments.label_moments",
    "table, mlp, cbst": "embasis.functional.losses.weighted_cross_entropy",
    "digits, small_cnn": "embasis.functional.em.m_step",
    "digits, small_cnn without norm": "embasis.functional.em.m_step",
    "images, frozen": "embasis.functional.moments.inverse_temperature_for_entropy",
    "images, partial": "embasis.functional.losses.weighted_cross_entropy",
    "label maps": "embasis.functional.em.sharpness_for_perplexity",
    "estimator": "embasis.functional.em.domain_weights",
    "all of the paper": "embasis.functional.losses.mean_variance",
}
"""For each run a function whose result is changed by a millionth."""


@pytest.mark.parametrize("name", RUNS)
def test_a_change_by_a_millionth_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, _, function = CHANGES[name].rpartition(".")
    module = import_module(home)
    monkeypatch.setattr(module, function, a_little_more(getattr(module, function)))
    with one_thread():
        require_same_environment()
        found = differences(RECORDED["runs"][name], RUNS[name](tmp_path))
    assert any(line.startswith(("labels", "predicted")) for line in found)
    assert any(line.startswith("weights") for line in found)
    assert any(line.startswith("records") for line in found)


def test_names_of_fields_and_texts_do_not_count_but_numbers_and_their_order_do() -> None:
    record = {"round": 1, "status": "ok", "scores": {"a": 0.5, "b": float("nan")}, "counts": [3, 1], "test": None}
    renamed = {"status": "fine", "number": 1, "counts": [3, 1], "values": {"y": float("nan"), "x": 0.5}, "notes": []}
    assert hash_record(renamed) == hash_record(record)
    assert hash_record({**record, "counts": [1, 3]}) != hash_record(record)
    assert hash_record({**record, "round": 2}) != hash_record(record)
    assert hash_record({**record, "scores": {"a": 0.5}}) != hash_record(record)
    assert hash_record({**record, "scores": {"a": 0.5000000000000001, "b": float("nan")}}) != hash_record(record)


def test_differences_name_the_place() -> None:
    assert differences({"a": {"b": ["1", "2"]}}, {"a": {"b": ["1", "3"]}}) == ["a / b / 1: 2 → 3"]
    assert differences({"a": ["1"]}, {"a": ["1", "2"]}) == ["a: ['1'] → ['1', '2']"]
    assert differences({"a": "1"}, {}) == ["a: 1 → None"]
    assert differences({"a": ["1"]}, {"a": ["1"]}) == []
