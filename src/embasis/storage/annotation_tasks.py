"""Tasks for people in Label Studio: each with the label of a run as a prediction, and the interface to correct it.

The form is that of Label Studio's guide, "Import pre-annotated data": a list of tasks with `data` and `predictions`, a
score in each prediction. `data/label_studio.py` reads the annotations back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import quoteattr

from embasis.data.label_studio import CHOICE_NAME, CHOICE_TYPE, ROW_KEY
from embasis.errors import reveal

OBJECT_NAME = "item"
"""What the thing that is labelled is called in the interface."""


@dataclass(frozen=True)
class PredictedTask:
    """One item with its label."""

    row: str
    data: Mapping[str, Any]
    """What is shown: `image` or `values`."""
    label: str
    score: float


def encode_tasks(tasks: Iterable[PredictedTask], model_version: str) -> bytes:
    """The tasks as JSON, one a line."""
    lines = []
    for task in tasks:
        whose = {"from_name": CHOICE_NAME, "to_name": OBJECT_NAME, "type": CHOICE_TYPE}
        result = {**whose, "value": {"choices": [task.label]}}
        predictions = [{"model_version": model_version, "score": task.score, "result": [result]}]
        lines.append(
            json.dumps({"data": {ROW_KEY: task.row, **task.data}, "predictions": predictions}, allow_nan=False)
        )
    return ("[\n" + ",\n".join(lines) + "\n]\n").encode("ascii")


def labelling_interface(classes: Sequence[str], shown: str) -> str:
    """The labelling interface of a project for these classes; `shown` is the key of what a task shows."""
    tag = {"image": "Image", "values": "Table"}[shown]
    choices = "".join(f"    <Choice value={quoteattr(reveal(name))}/>\n" for name in classes)
    view = f'  <{tag} name="{OBJECT_NAME}" value="${shown}"/>\n'
    group = f'  <Choices name="{CHOICE_NAME}" toName="{OBJECT_NAME}" choice="single">\n{choices}  </Choices>\n'
    return f"<View>\n{view}{group}</View>"
