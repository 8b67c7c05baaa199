"""Rules that fields of parts keep; each sentence names the field, the rule and the value."""

from __future__ import annotations

from typing import Any

from embasis.errors import ConfigError, quoted, require


def check_not_negative(part: Any, *names: str) -> None:
    """Refuse fields below 0, and those that are no number."""
    for name in names:
        value = getattr(part, name)
        require(value >= 0, f"{name} must be at least 0, got {value}", ConfigError)


def check_choice(part: Any, name: str, allowed: tuple[str, ...]) -> None:
    """Refuse a field that is none of these words."""
    value = getattr(part, name)
    require(value in allowed, f"{name} must be one of {', '.join(allowed)}, got {quoted(value)}", ConfigError)
