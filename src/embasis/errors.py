"""Every way embasis can refuse, each with the exit code of the command line.

`require`, `lookup` and `refuse_unknown` are the only makers of messages about values: name, rule, value. Values of the
user are quoted by `quote`, lists of names by `join_names`: a cell or a setting may have any length, a message may not.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from typing import NoReturn, TypeVar

TableEntry = TypeVar("TableEntry")
LONGEST_QUOTE = 80
"""Characters of a value that a message shows."""
LONGEST_TEXT, LONGEST_WORD = 1500, 300
"""Characters of a text of others (click, the system), and of one word (a path, say) of a message."""
LONGEST_SENTENCE = 10_000
"""Characters of a message of ours: room for a list of all settings."""
ALIKE = 0.65
"""How alike a name that was meant and the one that was written are at least, 0 … 1."""
_JOINERS = {*"\u200c\u200d"}  # Persian and Indic words, and emoji, need them
_NOT_XML = {*"\ufffe\uffff"}


class EmbasisError(Exception):
    """Base of all errors that embasis raises on purpose."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        words = re.sub(rf"\S{{{LONGEST_WORD + 1},}}", lambda word: shorten(word[0], LONGEST_WORD), message)
        super().__init__(shorten(words, LONGEST_SENTENCE))


class ConfigError(EmbasisError, ValueError):
    """A setting is unknown or out of its range."""

    exit_code = 2


class InputDataError(EmbasisError, ValueError):
    """The user's data cannot be used as they are."""

    exit_code = 3


class CheckpointError(EmbasisError):
    """An artefact of an earlier run is refused."""

    exit_code = 4


class CorruptError(CheckpointError):
    """An artefact is damaged: wrong length, wrong hash, missing file."""


class UntrustedError(CheckpointError):
    """An artefact could run code or reach outside its folder."""


class IncompatibleError(CheckpointError):
    """An artefact was written by another release or for other data."""


class ResourceError(EmbasisError, OSError):
    """Disk, memory or another resource of the machine is not there."""

    exit_code = 5

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ReportError(ResourceError):
    """The page could not be written; the run itself is whole."""


class NumericalError(EmbasisError, ArithmeticError):
    """A value that must be finite is not."""

    exit_code = 6


class RunLockedError(EmbasisError):
    """Another process works in the run folder."""

    exit_code = 7


class PeerFailure(EmbasisError):  # noqa: N818 — the name is part of the contract
    """A process of the same run died."""

    exit_code = 8


class RelayedFailure(EmbasisError):  # noqa: N818 — the failure is another one's
    """Another process of the same run has failed; all end with its code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Interrupted(EmbasisError):  # noqa: N818 — nothing went wrong
    """A signal of the user or the machine stopped the run; it is saved."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class EmbasisWarning(UserWarning):
    """Something was done for the user that the user should know of."""


def require(condition: object, message: str, error: type[EmbasisError] = InputDataError) -> None:
    """Raise `error(message)` unless `condition` holds."""
    if not condition:
        raise error(message)


def check_not_negative(settings: object, *names: str, prefix: str = "") -> None:
    """A ConfigError for fields below 0, and for those that are no number; `prefix` stands before their names."""
    for name in names:
        value = getattr(settings, name)
        require(value >= 0, f"{prefix}{name} must be at least 0, got {value}", ConfigError)


def check_choice(settings: object, name: str, allowed: Iterable[str], prefix: str = "") -> None:
    """A ConfigError for a field that is none of these words."""
    value, words = getattr(settings, name), tuple(allowed)
    require(value in words, f"{prefix}{name} must be one of {', '.join(words)}, got {quote(value)}", ConfigError)


def lookup(table: Mapping[str, TableEntry], name: str, kind: str) -> TableEntry:
    """`table[name]`, or a ConfigError that names the nearest one and lists what is known."""
    if name not in table:
        refuse_unknown(name, table, kind)
    return table[name]


def refuse_unknown(name: str, known: Collection[str], kind: str, meant: str = "") -> NoReturn:
    """A ConfigError that asks whether another name was meant, the nearest one by default, and lists all."""
    meant = meant or find_alike(name, known)
    question = f" did you mean {meant}?" if meant else ""
    raise ConfigError(f"unknown {kind} {quote(name)};{question} known: {join_names(known) or 'none'}")


def find_alike(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one; nothing where none is alike."""
    nearest = difflib.get_close_matches(name.lower(), known, 1, ALIKE) if isinstance(name, str) else []
    return nearest[0] if nearest else ""


def join_names(names: Iterable[str]) -> str:
    """Names for the end of a sentence, sorted."""
    return ", ".join(shorten(name, LONGEST_QUOTE) for name in sorted(names))


def quote(value: object, most: int = LONGEST_QUOTE) -> str:
    """A value of the user for a sentence: as Python writes it, and only the beginning of a long one."""
    if not isinstance(value, str | bytes):
        return shorten(repr(value), most)
    unit = "bytes" if isinstance(value, bytes) else "characters"
    rest = f"… ({len(value):,} {unit})" if len(value) > most else ""
    return f"{value[:most]!r}{rest}"


def shorten(text: str, most: int = LONGEST_TEXT) -> str:
    """A text without its middle where it is too long: the end of a message says what to do."""
    if len(text) <= most:
        return text
    first, last = most * 2 // 3, most // 3
    return f"{text[:first]}… ({len(text) - first - last:,} characters left out) …{text[-last:]}"


def reveal(text: str) -> str:
    r"""Text in which control, bidi and other invisible characters show as escapes: ESC becomes \x1b."""
    characters = {*text}
    hidden = {each for each in characters if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    hidden = (hidden | characters & _NOT_XML) - _JOINERS
    return text.translate({ord(each): each.encode("unicode_escape").decode("ascii") for each in hidden})
