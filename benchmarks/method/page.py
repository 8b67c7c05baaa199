"""Tables as Markdown, and as one self-contained page of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benchmarks.method.tables import Table
from embasis.benchmark.scores import escape_markdown

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 1em;color:#1a1a1a}"
    "table{border-collapse:collapse;margin:1em 0;display:block;overflow-x:auto}"
    "th,td{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left}thead th{border-bottom:2px solid #888}p{max-width:50em}"
)


def as_markdown(found: Sequence[Table]) -> str:
    """All tables, each under its heading."""
    return "\n".join(part for table in found for part in markdown_lines(table)) + "\n"


def markdown_lines(table: Table) -> list[str]:
    """One table."""
    rule = ["---", *["---:"] * (len(table.head) - 1)]
    lines = [
        [escape_markdown(text) for text in table.head],
        rule,
        *([escape_markdown(text) for text in row] for row in table.rows),
    ]
    return [
        f"### {escape_markdown(table.title)}",
        "",
        *(f"| {' | '.join(line)} |" for line in lines),
        "",
        escape_markdown(table.note),
        "",
    ]


def as_html(found: Sequence[Table]) -> str:
    """The page."""
    body = "\n".join(html_table(table) for table in found)
    title = "embasis: the study of the method"
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body><h1>{title}</h1>\n{body}\n</body></html>\n'


def html_table(table: Table) -> str:
    """One table with its heading and note."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in table.head)
    rows = "\n".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in table.rows)
    return (
        f"<h2>{escape(table.title)}</h2>\n<table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table>\n"
        f"<p>{escape(table.note)}</p>"
    )
