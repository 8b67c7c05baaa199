"""A picture and the file that says what each of its pixels shows."""

from __future__ import annotations

from dataclasses import dataclass

from embasis.data.images.files import ImageFile

__all__ = ["MapFile"]


@dataclass(frozen=True, slots=True)
class MapFile:
    """One row: a picture and, where there is one, its label map."""

    image: ImageFile
    label: ImageFile | None
    size: tuple[int, int]
    """Height and width of the picture as decoded, turned as its EXIF says."""
    turn: int = 1
    """How the map is turned to fit it, as EXIF has it; see `orientation.py`."""

    @property
    def name(self) -> str:
        """The picture's path below the root: the row's name in every table."""
        return self.image.name

    @property
    def id(self) -> int:
        """63 bits of the name's hash: the same whatever other files there are."""
        return self.image.id
