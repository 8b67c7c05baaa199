"""What the columns of an Arrow schema are: numbers, text, dates, or nothing that a table can have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, eq=False)
class ColumnKinds:
    """The type of each column, as it is stored, and the columns of some kinds of types."""

    names: list[str]
    """All columns, the same one maybe twice."""
    types: dict[str, Any]
    flat: frozenset[str]
    """Columns with one value a row."""
    numeric: frozenset[str]
    whole: frozenset[str]
    """Columns of integers."""
    texts: frozenset[str]
    dates: frozenset[str]
    """Columns of dates, with or without a time."""

    @classmethod
    def of(cls, schema: Any, **more: Any) -> Self:
        """The columns of a schema; those that are dictionaries are what the dictionary holds."""
        types_of = load_arrow().types
        stored = ((field.name, field.type) for field in schema)
        types = {name: kind.value_type if types_of.is_dictionary(kind) else kind for name, kind in stored}
        return cls(
            list(schema.names),
            types,
            flat=frozenset(name for name, kind in types.items() if not types_of.is_nested(kind)),
            numeric=frozenset(name for name, kind in types.items() if is_number(kind)),
            whole=frozenset(name for name, kind in types.items() if types_of.is_integer(kind)),
            texts=frozenset(name for name, kind in types.items() if is_text(kind)),
            dates=frozenset(name for name, kind in types.items() if is_date(kind)),
            **more,
        )


def load_arrow() -> Any:
    """pyarrow, not imported before a file needs it: workers, which import this package, read none that does."""
    import pyarrow

    return pyarrow


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, or bytes that may be."""
    types_of = load_arrow().types
    return bool(types_of.is_string(kind) or types_of.is_large_string(kind) or types_of.is_binary(kind))


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is a number, or true and false."""
    types_of = load_arrow().types
    return bool(types_of.is_integer(kind) or types_of.is_floating(kind) or types_of.is_boolean(kind))


def is_date(kind: Any) -> bool:
    """Whether an Arrow type is a date, with or without a time."""
    types_of = load_arrow().types
    return bool(types_of.is_date(kind) or types_of.is_timestamp(kind))
