"""A report page as people and programs read it: cards, tables, pictures with their marks, sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import unescape


@dataclass
class Page:
    """`cards` by name; `tables` by name, a header and rows; `marks` by the words of their picture; `pairs`; `text`."""

    html: str
    cards: dict[str, tuple[str, str]] = field(default_factory=dict)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    marks: dict[str, list[str]] = field(default_factory=dict)
    pairs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        body = re.sub(r"<(style|script)>.*?</\1>", "", self.html, flags=re.DOTALL)
        for name, content in re.findall(
            r'role="region" aria-label="([^"]*)">\s*<table[^>]*>(.*?)</table>', body, re.DOTALL
        ):
            rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr.*?</tr>", content)]
            assert unescape(name) not in self.tables, f"two tables are called {name}"
            self.tables[unescape(name)] = [[plain(cell) for cell in row] for row in rows]
        for label, content in re.findall(r'<svg [^>]*aria-label="([^"]*)">(.*?)</svg>', body, re.DOTALL):
            self.marks[unescape(label)] = [unescape(title) for title in re.findall("<title>(.*?)</title>", content)]
        for name, value, hint in re.findall(r'<dt>([^<]*)</dt><dd>([^<]*)</dd><dd class="hint">([^<]*)</dd>', body):
            self.cards[unescape(name)] = (unescape(value), unescape(hint))
        for name, value in re.findall(r"<dt><bdi>(.*?)</bdi></dt><dd><bdi>(.*?)</bdi></dd>", body):
            self.pairs[unescape(name)] = unescape(value)
        self.text = plain(re.sub(r"<svg .*?</svg>", " ", body, flags=re.DOTALL))

    def table(self, name: str) -> list[dict[str, str]]:
        """The rows of a table by the names of its columns."""
        header, *rows = self.tables[name]
        return [dict(zip(header, row, strict=True)) for row in rows]

    def picture(self, beginning: str) -> list[str]:
        """The marks of the picture whose words begin so."""
        (found,) = [marks for label, marks in self.marks.items() if label.startswith(beginning)]
        return found


def plain(markup: str) -> str:
    return unescape(re.sub(r"\s+", " ", re.sub("<[^>]*>", "", markup))).strip()
