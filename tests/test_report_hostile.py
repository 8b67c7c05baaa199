"""A hundred names that try to be more than text: the element tree of a page stays what it is with benign names."""

from __future__ import annotations

import dataclasses
import functools
import re

import pytest

from embasis.benchmark.scores import summarise_runs
from embasis.benchmark.tables import comparison_page
from embasis.report.page import run_page
from embasis.report.run_view import Component, RowExample, RunView
from test_report import Tree, record, score
from test_report_maps import on_maps, png

ELEMENTS = (
    "<script>alert(1)</script>", "</script><script>alert(1)", "<ScRiPt>x</sCrIpT>", "<script src=//evil>",
    "<img src=x>", "<img src=x onerror=alert(1)>", "<svg onload=x>", "</svg><script>x</script>", "<svg><script>x",
    "<iframe src=x>", "<object data=x>", "<embed src=x>", "<link rel=stylesheet href=x>", "<base href=//evil/>",
    "<form action=//evil>", "<meta http-equiv=refresh content=0>", "<style>*{display:none}</style>",
    "</style><style>*{}", "<math><mi x=1>", "<template><b>", "<noscript>", "<plaintext>", "<xmp>", "<textarea>",
    "</textarea><b>", "</title><b>x", "</title></svg>", "<title>x</title>", "</table><table>", "</td></tr><tr>",
    "</bdi></li></ul>", "<!--", "-->", "<!-- --!>", "<![CDATA[", "]]>", "]]><svg onload=x>", "<?xml version='1'?>",
    "<!DOCTYPE html>", "<foreignObject><body>", "<a href=javascript:x>x</a>", "<details open ontoggle=x>", "<b", "<",
    ">", "<>", "</", "</>", "<a\nb>", "<\x00script>",
)  # fmt: skip
ATTRIBUTES = (
    '"', "'", '" onmouseover="alert(1)', "' onfocus='x' autofocus='", '"><b>', "'><b>", '" style="color:red',
    '"/onerror="x', "` onload=`x", '" tabindex="0', '" class="m', '" href="//evil', "x=y z", '"\tonclick=x',
    '"\nonclick=x',
)  # fmt: skip
OTHERS = (
    "javascript:alert(1)", "data:text/html,<script>x</script>", "data:text/html;base64,PHNjcmlwdD4=", "vbscript:x",
    "//evil.example/x", "url(//evil)", "expression(x)", "\\3c script\\3e", "\\000022", "@import 'x'",
    "}body{display:none", "{{7*7}}", "{{ config }}", "{% raw %}", "{# x #}", "${7*7}", "<%= 7*7 %>",
    "{{''.__class__}}", "&lt;b&gt;", "&#x3c;b&#x3e;", "&amp;amp;", "&quot;", "\u202egpj.exe", "a\u2066b\u2069",
    "\u200fabc", "\ufeff", "\x1b[31mred", "\x1b]0;t\x07", "\0", "\x08\x7f", "\u2028\u2029", "\ud800", "\uffff",
    "$\\frac{1}{0$", "../../etc/passwd",
)  # fmt: skip
PAYLOADS = (*ELEMENTS, *ATTRIBUTES, *OTHERS)
INVISIBLE = "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"


def view(name: str) -> RunView:
    """A run that says this name wherever a name can stand: classes, files, pictures, notes, settings, stages."""
    classes = (name, f"{name} 2", "owl")
    items = tuple(
        RowExample(f"{name}/{i}.png", "surest", classes[i % 3], 0.9, i > 1, classes[0], png()) for i in range(4)
    )
    basis = (
        Component(((name, 0.9), (classes[1], 0.1)), 0.7, ((name, png()), ("b", None))),
        Component(((name, 1.0),), 0.3),
    )
    labels = {
        "id": [f"{name}{i}" for i in range(4)], "label": [name] * 4, "probability": [0.5, 0.6, 0.7, 0.9],
        "between": [0.1] * 4, "within": [0.1, 0.2, 0.3, 0.4], "trusted": [True, False, True, True], "drawn": [name] * 4,
    }  # fmt: skip
    rounds = tuple(
        dataclasses.replace(record(i), notes=(name,), scores={name: 0.5}, facts={name: 1.0}) for i in range(2)
    )
    return RunView(
        config={"dataset": name, "method": {"name": name, name: name}, "data": {"labelled": name}},
        environment={"commit": name, name: "x"},
        rounds=rounds,
        timings=[{"round": i, "stage": stage, "seconds": 1.5} for i in range(2) for stage in (name, "train")],
        labels=labels,
        status=name,
        best_round=1,
        classes=classes,
        notes=(name, f"two {name}"),
        items=items,
        basis=basis,
        refused=({"name": name, "reason": name, "phase": name, "side": name},),
    )  # fmt: skip


@functools.cache
def benign() -> list[object]:
    return Tree(run_page(view("cat"))).tags


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
