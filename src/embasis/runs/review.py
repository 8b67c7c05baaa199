"""The labels of a finished run before a person: the least sure first, and every decision saved as it is made.

A `Review` has the items in their order; `RowReview` is that of tables and images, `MapReview` (review_maps.py) that of
pictures with label maps. What a person decides goes to the file or folder that `embasis fit --corrections` takes, and a
review that is opened again finds it there.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from embasis.data.class_labels import quote_names
from embasis.errors import ConfigError, InputDataError, quote, require
from embasis.runs.review_sources import ShownPicture
from embasis.storage.correction_files import Correction, CorrectionFile

ShownValues = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class ReviewItem:
    """One label of the run."""

    id: str
    label: str
    """"" where it is a map."""
    probability: float
    """Of the label; the mean over all pixels where it is a map."""
    uncertainty: float
    trusted: bool


class Review(ABC):
    """Items in the order in which a person sees them, and what was decided about each. Threads may share one."""

    has_maps: ClassVar[bool] = False
    what: str = "rows"

    def __init__(self, title: str, classes: Sequence[str], items: Sequence[ReviewItem], output: Path) -> None:
        self.title, self.classes, self.items, self.output = title, tuple(classes), tuple(items), output
        self._lock, self._made = threading.Lock(), list[tuple[int, Any, Any]]()

    @abstractmethod
    def is_decided(self, place: int) -> bool:
        """Whether something was decided about the item, now or earlier."""

    @abstractmethod
    def describe(self, place: int) -> dict[str, Any]:
        """All that the page says of an item, as plain values."""

    @abstractmethod
    def picture(self, kind: str, place: int) -> ShownPicture:
        """A picture of an item; an InputDataError where there is none."""

    @abstractmethod
    def _stored(self, place: int) -> Any:
        """What is on disk about the item; None where there is nothing."""

    @abstractmethod
    def _restore(self, place: int, stored: Any, known: Any) -> None:
        """Have this on disk about the item again, in place of what is known to be there."""

    @abstractmethod
    def _save(self, place: int, answer: Mapping[str, Any]) -> Any:
        """Write a decision down; what is on disk then."""

    def state(self) -> dict[str, Any]:
        """What the page says of the whole: how many items there are, how many are decided, and which comes next."""
        with self._lock:
            decided = [self.is_decided(place) for place in range(len(self.items))]
        first = decided.index(False) if False in decided else None
        return {"total": len(decided), "decided": sum(decided), "next": first, "undo": bool(self._made)}

    def next_after(self, place: int) -> int | None:
        """The next item about which nothing is decided, from this one on and around."""
        count = len(self.items)
        order = ((place + 1 + step) % count for step in range(count))
        return next((other for other in order if not self.is_decided(other)), None)

    def decide(self, place: int, answer: Mapping[str, Any]) -> int | None:
        """Save a decision; the item that comes next."""
        with self._lock:
            before = self._stored(place)
            after = self._save(place, answer)
            self._made.append((place, before, after))
            return self.next_after(place)

    def undo(self) -> int | None:
        """Take the last decision of this review back; its item, None where there is none."""
        with self._lock:
            if not self._made:
                return None
            place, before, after = self._made[-1]
            self._restore(place, before, after)
            self._made.pop()
            return place

    def require_class(self, name: object) -> str:
        """The name of a class, or a ConfigError."""
        known = isinstance(name, str) and name in self.classes
        require(known, f"no class {quote(name)}; there are: {quote_names(self.classes, 50)}", ConfigError)
        return str(name)


class RowReview(Review):
    """A review of labels that are one for each row: an answer is a class, or that the row is unusable."""

    def __init__(
        self,
        title: str,
        classes: Sequence[str],
        items: Sequence[ReviewItem],
        file: CorrectionFile,
        values: Callable[[str], ShownValues] | None,
        pictures: Callable[[str], ShownPicture] | None,
    ) -> None:
        super().__init__(title, classes, items, file.path)
        self.file, self.values, self.pictures = file, values, pictures
        self.what = "rows" if pictures is None else "images"
        mine = {item.id for item in items}
        unknown = {row.label for id, row in file.rows.items() if id in mine and row.label} - {*classes}
        rule = f"output {file.path}: has classes that the run has not: {quote_names(unknown)}; name another file"
        require(not unknown, rule, ConfigError)

    def is_decided(self, place: int) -> bool:
        """Whether the item has a line in the file."""
        return self.items[place].id in self.file.rows

    def describe(self, place: int) -> dict[str, Any]:
        """The item, its values where it is a row of a table, and what was decided."""
        item, row = self.items[place], self.file.rows.get(self.items[place].id)
        values = None if self.values is None else [list(pair) for pair in self.values(item.id)]
        decision = None if row is None else {"label": row.label, "unusable": row.unusable}
        pictures = ["picture"] if self.pictures is not None else []
        return {"place": place, **vars(item), "values": values, "pictures": pictures, "decision": decision}

    def picture(self, kind: str, place: int) -> ShownPicture:
        """The picture of an image."""
        if self.pictures is None or kind != "picture":
            raise InputDataError("there is no picture")
        return self.pictures(self.items[place].id)

    def _stored(self, place: int) -> Correction | None:
        return self.file.rows.get(self.items[place].id)

    def _restore(self, place: int, stored: Any, known: Any) -> None:
        self.file.put(self.items[place].id, stored)

    def _save(self, place: int, answer: Mapping[str, Any]) -> Correction:
        item = self.items[place]
        label = "" if answer.get("unusable") is True else self.require_class(answer.get("label"))
        decision = Correction(label, item.label)
        self.file.put(item.id, decision)
        return decision
