"""What a goal of docs/reliability.md says of itself when it has been run at full length."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """One line of `make torture`: whether the goal holds, and the figure that shows it."""

    held: bool
    figure: str
