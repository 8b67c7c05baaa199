"""What `embasis list` reads from the source is what the live registries hold."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from embasis.cli.list import REGISTRIES, WIDTH, format_entries, read_entries
from embasis.data import DATASETS
from embasis.functional.metrics import CALIBRATION, LABEL_METRICS, RANKING
from embasis.learners import LEARNERS
from embasis.methods import ALIGNMENT, FAMILIES, METHODS
from embasis.networks import BACKBONES, PRETRAINED, SEGMENTERS

LIVE: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "methods": METHODS,
    "datasets": DATASETS,
    "backbones": {**BACKBONES, **PRETRAINED, **SEGMENTERS},
    "learners": LEARNERS,
    "metrics": {**LABEL_METRICS, **CALIBRATION, **RANKING},
}


def test_the_list_knows_every_registry() -> None:
    assert REGISTRIES.keys() == LIVE.keys()


@pytest.mark.parametrize("kind", list(LIVE))
def test_names_are_those_of_the_registry_in_its_order(kind: str) -> None:
    assert [entry.name for entry in read_entries(kind)] == list(LIVE[kind])


@pytest.mark.parametrize("kind", list(LIVE))
def test_settings_are_the_arguments_with_a_default(kind: str) -> None:
    for entry in read_entries(kind):
        parameters = inspect.signature(LIVE[kind][entry.name]).parameters.values()
        live = {item.name: item.default for item in parameters if item.default is not item.empty}
        read = dict(setting.split("=", 1) for setting in entry.settings)
        assert list(read) == list(live), entry.name
        assert {name: eval(text) for name, text in read.items()} == live, entry.name


@pytest.mark.parametrize("kind", list(LIVE))
def test_a_summary_is_the_first_line_of_the_docstring_and_never_empty(kind: str) -> None:
    for entry in read_entries(kind):
        assert entry.summary == (inspect.getdoc(LIVE[kind][entry.name]) or "").split("\n")[0]
        assert entry.summary.endswith("."), entry.name


def test_the_registries_are_read_without_torch() -> None:
    code = (
        "import sys, embasis.cli.list as c; [c.read_entries(k) for k in c.REGISTRIES]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_method_is_in_one_family() -> None:
    assert [name for family in FAMILIES.values() for name in family] == list(METHODS)
    assert [(entry.group, entry.name) for entry in read_entries("methods")] == [
        (family, name) for family, recipes in FAMILIES.items() for name in recipes
    ]


def test_what_a_method_needs_is_what_its_aligner_says() -> None:
    read = {entry.name: entry for entry in read_entries("methods")}
    for name, recipe in METHODS.items():
        align, restyle = recipe(3).align, recipe(3).restyle
        expected = {"takes": align.takes, "trains_features": align.trains_features} if align is not None else {}
        expected |= {"takes_vectors": restyle.takes_vectors} if restyle is not None else {}
        assert read[name].flags == expected, name
    assert read["dan"].needs == "for rows; needs trainable features"
    assert read["mcc"].needs == "for rows"
    assert read["mcd"].needs == "for rows and label maps; needs trainable features"


@pytest.mark.parametrize("kind", list(LIVE))
def test_a_list_fits_a_terminal(kind: str) -> None:
    assert max(map(len, format_entries(kind).splitlines())) <= WIDTH


def test_alignment_methods_are_those_that_are_no_self_training() -> None:
    assert list(METHODS) == [*FAMILIES["self-training"], *ALIGNMENT]
