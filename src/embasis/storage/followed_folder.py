"""The folder of a run that another process writes: this one reads what that one has published."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from embasis.distributed import current_world
from embasis.errors import ResourceError
from embasis.storage.label_store import DiskLabelStore, StoredLabels, open_store
from embasis.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from torch import Tensor

    from embasis.types import PackedLabels


class FollowedFolder(RunFolder):
    """A run folder without its lock: nothing that is to be written here is, the process that has the lock does it."""

    writes: ClassVar[bool] = False

    def __enter__(self) -> FollowedFolder:
        return self

    def require_lock(self) -> None:
        """Nothing is locked, because nothing is written."""

    def gone(self) -> ResourceError | None:
        """Known to the process that has the lock."""
        return None

    def publish(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> int:
        """The number that the process with the lock gives."""
        self._last += 1
        return self._last

    def write_bytes(self, name: str, data: bytes, sealed: bool = True) -> Path:
        """Where the file lies."""
        return self.path / name

    def log(self, text: str) -> None:
        """One process talks."""

    def label_store(self) -> DiskLabelStore:
        """Where the label distributions of the rounds lie."""
        return FollowedLabelStore(self)


class FollowedLabelStore(DiskLabelStore):
    """The stores of a run's rounds that another process writes."""

    def write(self, number: int, parts: Iterator[PackedLabels]) -> StoredLabels:
        """Take all parts, whose exchange is everybody's work, and leave the writing to the other process."""
        for _ in parts:
            pass
        current_world().agree(0)  # it is on the disk
        return open_store(self._home(number), number, checked=True)

    def keep(self, numbers: Collection[int]) -> None:
        """Nothing is removed from here."""
