"""Names of classes that look the same and are not: they differ in upper and lower case, or in how letters are stored.

Unicode has two forms of many letters: ö as one character (NFC), and as o with two dots behind it (NFD), which is what
some systems make of file names. Classes are matched by their exact names, so such names are different classes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

MOST_GROUPS = 5
"""Groups of names that a sentence lists."""


def fold_name(name: str) -> str:
    """What names that look the same have in common."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def group_alike(names: Iterable[str], others: Iterable[str] | None = None) -> list[list[str]]:
    """Groups of names that look the same; with `others` only those that hold one of them that is no name."""
    names = set(names)
    strangers = None if others is None else set(others) - names
    groups: dict[str, list[str]] = {}
    for name in sorted(names | (strangers or set())):
        groups.setdefault(fold_name(name), []).append(name)
    return [
        group for group in groups.values() if len(group) > 1 and (strangers is None or not strangers.isdisjoint(group))
    ]


def describe_alike(where: str, names: Iterable[str], others: Iterable[str] | None = None) -> str:
    """A sentence about classes that look the same, or nothing."""
    groups = group_alike(names, others)
    if not groups:
        return ""
    named = ", ".join(" and ".join(map(_quote_letters, group)) for group in groups[:MOST_GROUPS])
    more = f" and {len(groups) - MOST_GROUPS:,} more" if len(groups) > MOST_GROUPS else ""
    what = "classes that differ only in upper and lower case or in the Unicode form of their letters"
    return f"{where}: {what}: {named}{more}; they count as different classes: write each name in one way"


def _quote_letters(name: str) -> str:
    """A name whose letters are not in their usual form is written out, because nobody could see the difference."""
    return repr(name) if unicodedata.is_normalized("NFC", name) else ascii(name)
