"""What a page is called, and the one sentence that says what was adapted to what, and how good it is believed to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embasis.report import RunView
from embasis.report.summary import format_decimals, run_title, truth_unit

NO_ADAPTATION = "source_only"
"""The method that trains on the labelled side and stops."""


def data_names(view: RunView) -> tuple[str, str]:
    """What the labelled and the unlabelled side are called; nothing for a name that the settings do not have."""
    given = view.config.get("data")
    data: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    first, second = (str(data.get(key) or "") for key in ("labelled", "unlabelled"))
    if first and second:
        return first, second
    return str(data.get("source") or ""), str(data.get("target") or "")


def page_title(view: RunView) -> str:
    """The user's data, for the tab of a browser and the list of a folder."""
    labelled, unlabelled = data_names(view)
    return f"{labelled} → {unlabelled}" if labelled and unlabelled else run_title(view)


def headline_sentence(view: RunView) -> str:
    """What was adapted to what, and how good the labels are: by true labels, or as far as it can be believed."""
    labelled, unlabelled = data_names(view)
    model = f"A model of {labelled}" if labelled else "A model"
    target = unlabelled or _data_set(view)
    if not view.rounds:
        return f"{model} is to be adapted to {target}"
    quality = describe_quality(view)
    if view.status == "collapsed":
        return f"{model} could not be adapted to {target}: it collapsed, and of what is kept {quality}"
    if view.status == "source_kept":
        return f"{model} was left as it is for {target}, because adaptation does not help here: {quality}"
    if _method_name(view) == NO_ADAPTATION:
        return f"{model} was tried on {target} as it is: {quality}"
    return f"{model} was adapted to {target}: {quality}"


def describe_quality(view: RunView) -> str:
    """How many labels of the kept round are right, as far as that is known; True labels come before estimates."""
    record = view.kept or view.rounds[-1]
    truth, unit = record.evaluation, truth_unit(view)
    if truth is not None and truth.rows:
        if view.on_maps and truth.mean_iou is not None:
            return f"the mean IoU of its labels is {format_decimals(truth.mean_iou)}"
        some = "" if view.on_maps or truth.rows == record.unlabelled else f" where that can be checked ({truth.rows:,})"
        return f"{truth.accuracy:.1%} of its labels are right{some}"
    if record.test is not None and record.test.rows:
        return f"{record.test.accuracy:.1%} of its labels are right on the {record.test.rows:,} test {unit}"
    if (expected := record.facts.get("expected_accuracy")) is not None:
        return f"about {expected:.0%} of its labels are believed to be right"
    return "how many of its labels are right is not known"


def _method_name(view: RunView) -> str:
    method = view.config.get("method")
    return str(method.get("name", "")) if isinstance(method, Mapping) else str(method or "")


def _data_set(view: RunView) -> str:
    data = view.config.get("data")
    name = data.get("dataset") if isinstance(data, Mapping) else None
    name = name or view.config.get("dataset")
    return f"the unlabelled side of {name}" if name else "unlabelled data"
