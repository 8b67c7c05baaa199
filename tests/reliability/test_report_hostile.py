"""A hundred names that try to be more than text: the element tree of a page stays what it is with benign names."""

from __future__ import annotations

import re

import pytest

from embasis.benchmark.comparison_page import comparison_page
from embasis.benchmark.scores import summarise_runs
from embasis.report.page import run_page
from hostile_views import PAYLOADS, benign, view
from map_page_views import on_maps
from page_views import Tree, score

INVISIBLE = "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"


def test_there_are_a_hundred_different_names() -> None:
    assert len(PAYLOADS) == len(set(PAYLOADS)) == 100


@pytest.mark.parametrize("name", PAYLOADS, ids=range(len(PAYLOADS)))
def test_a_name_never_changes_the_elements(name: str) -> None:
    page = run_page(view(name))
    assert Tree(page).tags == benign()
    assert not re.search(INVISIBLE, page)
    page.encode()


def test_all_names_at_once_never_change_the_elements_of_label_maps_and_comparisons() -> None:
    name = " ".join(PAYLOADS)
    usual, classes = Tree(run_page(on_maps())).tags, ("a " + name, "b " + name, "c")
    assert Tree(run_page(on_maps(classes, (name, name)))).tags == usual
    rows = [score(method, dataset=dataset) for dataset in ("x", "y") for method in ("m", "n")]
    usual = Tree(comparison_page("all", summarise_runs(rows))).tags
    rows = [score(method, dataset=dataset) for dataset in ("x" + name, "y") for method in ("m" + name, "n")]
    assert Tree(comparison_page(name, summarise_runs(rows))).tags == usual


def test_the_text_of_a_name_is_on_the_page_as_it_is() -> None:
    page = run_page(view("<b>&\"'{{7*7}}"))
    assert "&lt;b&gt;&amp;&#34;&#39;{{7*7}}" in page  # by the template
    assert "&lt;b&gt;&amp;&quot;&#x27;{{7*7}}" in page  # in a picture
