"""What tests share: names that attack a page."""

from __future__ import annotations

import dataclasses
import functools

from embasis.report import Component, RestyledExample, RestyledPictures, RowExample, RunView
from embasis.report.page import run_page
from map_page_views import png
from page_views import Tree, record

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


def view(name: str) -> RunView:
    """A run that says this name wherever a name can stand: classes, files, pictures, notes, settings, stages, style."""
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
        restyled=RestyledPictures(name, name, 0.5, 4, (RestyledExample(name, name, png(), png()),), name, png()),
        refused=({"name": name, "reason": name, "phase": name, "side": name},),
    )  # fmt: skip


@functools.cache
def benign() -> list[object]:
    return Tree(run_page(view("cat"))).tags
