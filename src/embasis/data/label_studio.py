"""Annotations that Label Studio has exported as JSON: the class that a person chose for each task.

| part of a task | meaning |
| --- | --- |
| data.row | the id of the row, as `embasis export --as label-studio` wrote it |
| annotations[].result[] | of type choices: value.choices has the class; one of from_name `class` counts before others |
| annotations[].was_cancelled | the task was skipped, so nothing is said of it |

Predictions, which are the run's own labels, are not read; nor is anything else. A task without annotation says nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from embasis.data.class_labels import quote_names
from embasis.data.formats import open_regular
from embasis.errors import InputDataError, quote, require, shorten
from embasis.resources import require_memory

LARGEST_ANNOTATIONS = 2**29
"""Bytes of a file that is read."""
MEMORY_FACTOR = 4
"""Bytes in memory for each byte of the file, at most."""
CHOICE_NAME, CHOICE_TYPE, ROW_KEY = "class", "choices", "row"
"""What a choice is called in the labelling interface, its type, and the key of the row's id in the data of a task."""


class TaskData(msgspec.Struct):
    """What a task is about."""

    row: str | int | None = None


class ResultValue(msgspec.Struct):
    """What was chosen."""

    choices: list[str] | None = None


class AnnotationResult(msgspec.Struct):
    """One answer of an annotation."""

    type: str = ""
    from_name: str | None = None
    value: ResultValue | None = None


class Annotation(msgspec.Struct):
    """What one person has said of a task."""

    result: list[AnnotationResult] | None = None
    was_cancelled: bool | None = False


class AnnotatedTask(msgspec.Struct):
    """One task of an export."""

    data: TaskData
    annotations: list[Annotation] | None = None


def read_label_studio(path: Path) -> dict[str, list[Any]]:
    """The columns id and label of what people have chosen; a task that several have annotated has several rows."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        require(size <= LARGEST_ANNOTATIONS, f"{path}: has {size} bytes, at most {LARGEST_ANNOTATIONS} are read")
        require_memory(MEMORY_FACTOR * size, str(path), "export fewer tasks")
        content = file.read(LARGEST_ANNOTATIONS + 1)
    hint = "export from Label Studio as JSON (not JSON-MIN) what embasis export --as label-studio has written"
    try:
        tasks = msgspec.json.decode(content, type=list[AnnotatedTask])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputDataError(f"{path}: no annotated tasks: {shorten(str(error))}; {hint}") from error
    rows = [
        (task.data.row, label) for number, task in enumerate(tasks, 1) for label in find_choices(task, number, path)
    ]
    require(all(row is not None for row, _ in rows), f"{path}: a task has no data.{ROW_KEY}; {hint}")
    return {"id": [str(row) for row, _ in rows], "label": [label for _, label in rows]}


def find_choices(task: AnnotatedTask, number: int, path: Path) -> list[str]:
    """The class that each annotation of a task has, if it has one."""
    found = []
    for annotation in task.annotations or ():
        answers = [each for each in annotation.result or () if each.type == CHOICE_TYPE and each.value is not None]
        own = [each for each in answers if each.from_name == CHOICE_NAME] or answers
        chosen = [name for each in own for name in (each.value.choices if each.value else None) or ()]
        if annotation.was_cancelled or not chosen:
            continue
        what = f"task {number}" if task.data.row is None else quote(task.data.row)
        require(len({*chosen}) == 1, f"{path}: {what} has several classes in one annotation: {quote_names(chosen)}")
        found.append(chosen[0])
    return found
