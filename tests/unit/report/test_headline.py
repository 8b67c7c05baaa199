"""The top of a page: what it is called, the sentence that answers first, warnings that are said once."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from embasis.report import RowExample, RunView
from embasis.report.headline import headline_sentence, page_title
from embasis.report.page import OPEN_SHELVES, run_page
from embasis.report.summary import format_rounds, merge_notes, run_lead, run_warnings
from map_page_views import on_maps
from page_views import record, view

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55")


def of_data(truth: bool = True, rounds: int = 3, **data: str) -> RunView:
    config: dict[str, Any] = {"method": {"name": "em_basis"}, "network": {"name": "linear"}, "data": data}
    return dataclasses.replace(view(truth=truth, rounds=rounds), config=config)


def expecting(found: RunView, expected: float) -> RunView:
    rounds = tuple(dataclasses.replace(each, facts={"expected_accuracy": expected}) for each in found.rounds)
    return dataclasses.replace(found, rounds=rounds)


FOLDERS = {"labelled": "photos", "unlabelled": "paintings"}


def test_the_page_is_called_by_the_data_and_its_first_words_answer() -> None:
    page = run_page(of_data(**FOLDERS))
    assert "<title>photos → paintings</title>" in page
    assert re.findall("<h1>(.*)</h1>", page) == [
        "<bdi>A model of photos was adapted to paintings: 75.0% of its labels are right</bdi>"
    ]
    assert (
        "<bdi>em_basis with linear: 12 unlabelled rows, 3 classes, 2 rounds, with true labels to check against." in page
    )


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            expecting(of_data(False, **FOLDERS), 0.861),
            "A model of photos was adapted to paintings: about 86% of its labels are believed to be right",
        ),
        (
            of_data(False, **FOLDERS),
            "A model of photos was adapted to paintings: how many of its labels are right is not known",
        ),
        (
            dataclasses.replace(expecting(of_data(False, **FOLDERS), 0.5), status="collapsed"),
            "A model of photos could not be adapted to paintings: it collapsed, and of what is kept "
            "about 50% of its labels are believed to be right",
        ),
        (
            dataclasses.replace(expecting(of_data(False, **FOLDERS), 0.5), status="source_kept"),
            "A model of photos was left as it is for paintings, because adaptation does not help here: "
            "about 50% of its labels are believed to be right",
        ),
        (
            of_data(dataset="office31", source="amazon", target="dslr"),
            "A model of amazon was adapted to dslr: 75.0% of its labels are right",
        ),
        (
            of_data(dataset="digits"),
            "A model was adapted to the unlabelled side of digits: 75.0% of its labels are right",
        ),
        (
            dataclasses.replace(of_data(**FOLDERS), config={"method": {"name": "source_only"}, "data": FOLDERS}),
            "A model of photos was tried on paintings as it is: 75.0% of its labels are right",
        ),
        (dataclasses.replace(of_data(**FOLDERS), rounds=()), "A model of photos is to be adapted to paintings"),
        (RunView({}, {}, (), [], None, "interrupted", -1, ("a",)), "A model is to be adapted to unlabelled data"),
    ],
)
def test_the_headline_says_what_is_known_and_no_more(found: RunView, sentence: str) -> None:
    assert headline_sentence(found) == sentence


def test_labels_that_can_be_checked_in_part_or_on_a_test_set_alone_are_said_to_be_that() -> None:
    part = dataclasses.replace(record(1), unlabelled=40)
    assert headline_sentence(dataclasses.replace(of_data(**FOLDERS), rounds=(part,))).endswith(
        "75.0% of its labels are right where that can be checked (12)"
    )
    test = dataclasses.replace(record(1), evaluation=None)
    assert headline_sentence(dataclasses.replace(of_data(**FOLDERS), rounds=(test,))).endswith(
        "75.0% of its labels are right on the 12 test rows"
    )


def test_label_maps_are_told_by_their_mean_iou() -> None:
    assert re.search(r": the mean IoU of its labels is 0\.[0-9]{3}$", headline_sentence(on_maps()))


def test_a_page_of_a_named_set_is_called_by_method_and_set() -> None:
    assert page_title(of_data(dataset="digits")) == "em_basis on digits"


def test_one_round_is_a_round() -> None:
    assert ", 1 round, " in run_lead(of_data(rounds=2))
    assert ", 2 rounds, " in run_lead(of_data(rounds=3))


def test_the_same_warning_is_said_once_with_its_rounds_and_their_number() -> None:
    notes = [(number, "labels are all equally sure") for number in range(7)]
    assert merge_notes(notes) == ["Rounds 0–6 (7 times): labels are all equally sure"]
    assert merge_notes([(3, "a"), (4, "b"), (5, "a")]) == ["Rounds 3, 5 (2 times): a", "Round 4: b"]
    assert merge_notes([(1, "12 rows of 1,000"), (2, "15 rows of 1,000")]) == [
        "Rounds 1–2 (2 times, here as in round 2): 15 rows of 1,000"
    ]
    assert run_warnings(view()).count("Rounds 0–2 (3 times): a note") == 1
    assert len([text for text in run_warnings(view()) if "a note" in text]) == 1


def test_rounds_in_a_row_are_a_range() -> None:
    assert format_rounds([0, 1, 2, 4, 6, 7]) == "0–2, 4, 6–7"


def test_pictures_come_before_figures_and_those_of_many_classes_are_folded() -> None:
    names = tuple(f"class {number}" for number in range(OPEN_SHELVES + 2))
    counts = (2,) * len(names)
    one = dataclasses.replace(record(truth=False), class_counts=counts, trusted_counts=counts)
    items = tuple(RowExample(f"{name}.png", "surest", name, 0.9, True, None, PNG) for name in names)
    found = dataclasses.replace(view(truth=False), classes=names, rounds=(one,), items=items, labels=None, best_round=0)
    page = run_page(found)
    assert page.index("The surest and the least sure") < page.index("What went in") < page.index("<h2>Figures")
    assert "<summary>The other 2 classes</summary>" in page
    folded = page[page.index("<summary>The other 2 classes") :]
    assert "class 6" in folded.partition("</details>")[0]
    assert "<summary>The other" not in run_page(dataclasses.replace(found, items=items[:OPEN_SHELVES]))
