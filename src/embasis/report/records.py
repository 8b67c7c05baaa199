"""A run as the report sees it, and the JSON form of a round.

JSON has no NaN or infinity, so such floats travel as the strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

import math
import re
import types
import typing
import unicodedata
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from embasis.errors import CorruptError, known, require

if TYPE_CHECKING:  # embasis.types brings torch, which a report does without until it reads a round
    from embasis.types import RoundRecord

_JOINERS = "\u200c\u200d"  # Persian and Indic words, and emoji, need them
_NOT_XML = "\ufffe\uffff"
_HOME = re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\\s]+|/root(?=/|$)")
"""Whose computer it was is nobody's business."""


@dataclass(frozen=True)
class Shown:
    """A picture of the gallery of a run on label maps: PNG bytes, at most 320 pixels wide."""

    name: str
    why: str
    """why it was chosen: "least sure", …"""
    picture: bytes
    labels: bytes
    """in the colours of the palette"""
    variance: bytes
    """grey, the brighter the less sure"""
    trusted: bytes
    """white where the label is trusted, black elsewhere"""
    truth: bytes | None = None


@dataclass(frozen=True)
class Item:
    """A row of the gallery of a run on pictures with one label each: JPEG or PNG bytes, at most 96 pixels wide."""

    name: str
    why: str
    """"surest" or "least sure" among those of its label"""
    label: str
    probability: float
    trusted: bool
    truth: str | None
    """the true class, where it is known"""
    picture: bytes


@dataclass(frozen=True)
class Component:
    """A component of the basis."""

    classes: tuple[tuple[str, float], ...]
    """its likeliest classes with their probabilities"""
    share: float
    """its part of the unlabelled side"""
    nearest: tuple[tuple[str, bytes | None], ...] = ()
    """the rows nearest to it, with a small picture where there is one"""


@dataclass(frozen=True)
class RunView:
    """All that a report page shows of one run, as plain values."""

    config: dict[str, Any]
    environment: dict[str, Any]
    rounds: tuple[RoundRecord, ...]
    timings: list[dict[str, Any]]
    """rows of round, stage, seconds"""
    labels: dict[str, list[Any]] | None
    """the last round's columns: id, label, probability, between, within, trusted, drawn"""
    status: str
    best_round: int
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """what was found in the data before training"""
    gallery: tuple[Shown, ...] = ()
    palette: tuple[tuple[int, int, int], ...] = ()
    """the colour of each class in pictures of labels; empty for runs without label maps"""
    pictures: int = 0
    """of a run on label maps: how many are unlabelled; 0 = not known"""
    corrected: int = 0
    """labelled rows that a person has corrected on the unlabelled side"""
    items: tuple[Item, ...] = ()
    """of a run on pictures with one label each: some of them"""
    basis: tuple[Component, ...] = ()
    """of the round that is kept"""
    refused: tuple[dict[str, Any], ...] = ()
    """files that could not be used: rows of name, reason, phase, side"""

    def __post_init__(self) -> None:
        n = len(self.classes)
        for record in self.rounds:
            matrices = [side.confusion for side in (record.evaluation, record.test) if side is not None]
            sizes = {len(record.class_counts), len(record.trusted_counts)}
            sizes |= {len(line) for matrix in matrices for line in (matrix, *matrix)}
            rule = f"round {record.round} must count {n} classes everywhere, got {sorted(sizes)}"
            require(sizes == {n}, rule, CorruptError)
        rule = f"palette must have a colour for each of {n} classes, got {len(self.palette)}"
        require(len(self.palette) in (0, n), rule, CorruptError)

    @property
    def on_maps(self) -> bool:
        """Whether rows are pictures with a label for each pixel."""
        return bool(self.palette)

    @property
    def kept(self) -> RoundRecord | None:
        """The record of `best_round`; None when there is none."""
        return next((record for record in self.rounds if record.round == self.best_round), None)


def visible(text: str) -> str:
    r"""Text in which control, bidi and other invisible characters show as escapes: ESC becomes \x1b."""
    return "".join(character if _harmless(character) else _escape(character) for character in text)


def public(text: str) -> str:
    """Text as a page shows it: visible, and without the names of home folders."""
    return visible(_HOME.sub("~", text))


def _harmless(character: str) -> bool:
    if character in _JOINERS:
        return True
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _NOT_XML


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def record_to_json(record: RoundRecord) -> dict[str, Any]:
    """The record as dicts, lists, strings, numbers and None."""
    plain: dict[str, Any] = _plain(record)
    return plain


def record_from_json(value: Mapping[str, Any]) -> RoundRecord:
    """The record that `record_to_json` was given; CorruptError when a key or a value is not as it writes them.

    Fields with a default may be missing: records of older releases do not have them."""
    from embasis.types import RoundRecord

    record: RoundRecord = _build(RoundRecord, value, "round")
    return record


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    return value


def _build(kind: Any, value: Any, where: str) -> Any:
    """`value` as the annotated type `kind`; `where` names it in the message."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        return _build_dataclass(kind, value, where)
    if origin in (types.UnionType, typing.Union):
        inner = next(argument for argument in arguments if argument is not type(None))
        return None if value is None else _build(inner, value, where)
    if origin is tuple:
        require(isinstance(value, list), f"{where} must be a list, got {_shown(value)}", CorruptError)
        if arguments[-1] is Ellipsis:
            arguments = (arguments[0],) * len(value)
        rule = f"{where} must have {len(arguments)} values, got {len(value)}"
        require(len(value) == len(arguments), rule, CorruptError)
        pairs = enumerate(zip(arguments, value, strict=True))
        return tuple(_build(part, item, f"{where}[{i}]") for i, (part, item) in pairs)
    if origin is not None:  # Mapping[str, float]
        require(isinstance(value, Mapping), f"{where} must be an object, got {_shown(value)}", CorruptError)
        return {str(key): _build(arguments[1], item, f"{where}.{visible(str(key))}") for key, item in value.items()}
    return _build_scalar(kind, value, where)


def _build_dataclass(kind: Any, value: Any, where: str) -> Any:
    require(isinstance(value, Mapping), f"{where} must be an object, got {_shown(value)}", CorruptError)
    kinds = {part.name: typing.get_type_hints(kind)[part.name] for part in fields(kind)}
    since = {part.name for part in fields(kind) if part.default is not MISSING or part.default_factory is not MISSING}
    missing = [name for name in kinds if name not in value and name not in since]
    unknown = [visible(str(name)) for name in value if name not in kinds]
    require(not missing, f"{where} lacks the keys {known(missing)}", CorruptError)
    require(not unknown, f"{where} has unknown keys {known(unknown)}; known: {known(kinds)}", CorruptError)
    found = {name: part for name, part in kinds.items() if name in value}
    return kind(**{name: _build(part, value[name], f"{where}.{name}") for name, part in found.items()})


def _build_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is float:
        if isinstance(value, str) and value in ("nan", "inf", "-inf"):
            return float(value)
        fits = isinstance(value, float) or (type(value) is int and abs(value) < 2**1023)
        require(fits, f"{where} must be a number, got {_shown(value)}", CorruptError)
        return float(value)
    if kind is int:
        require(type(value) is int, f"{where} must be a whole number, got {_shown(value)}", CorruptError)
        return value
    require(isinstance(value, kind), f"{where} must be a {kind.__name__}, got {_shown(value)}", CorruptError)
    return value


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
