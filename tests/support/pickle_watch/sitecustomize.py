"""Every pickle that a process reads or writes is a line in the file that PICKLE_WATCH names: put this folder before all
others in PYTHONPATH. Python imports it before anything else, so that torch binds what is replaced here."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from typing import Any

PLACE = os.environ.get("PICKLE_WATCH", "")


def note(event: str) -> None:
    """Add a line."""
    frames = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(traceback.extract_stack()[-6:-2]))
    with open(PLACE, "a") as stream:
        stream.write(f"{os.getpid()} {event} {frames}\n")


def audit(event: str, _: object) -> None:
    """What Python itself says when a pickle names a class or a function."""
    if event == "pickle.find_class":
        note(event)


def watch(usual: Any) -> Any:
    """The function, with a note of each call."""

    def call(*arguments: Any, **more: Any) -> Any:
        note(f"pickle.{usual.__name__}")
        return usual(*arguments, **more)

    return call


if PLACE:
    with open(PLACE, "a") as first:
        first.write(f"{os.getpid()} watches\n")
    sys.addaudithook(audit)
    for name in ("dump", "dumps", "load", "loads"):
        setattr(pickle, name, watch(getattr(pickle, name)))

    class Pickler(pickle.Pickler):
        """Notes that it is made."""

        def __init__(self, *arguments: Any, **more: Any) -> None:
            note("pickle.Pickler")
            super().__init__(*arguments, **more)

    class Unpickler(pickle.Unpickler):
        """Notes that it is made."""

        def __init__(self, *arguments: Any, **more: Any) -> None:
            note("pickle.Unpickler")
            super().__init__(*arguments, **more)

    pickle.Pickler, pickle.Unpickler = Pickler, Unpickler  # type: ignore[misc]
