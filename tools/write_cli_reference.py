"""Write docs/reference/cli.md from the commands themselves; a test says when the page is out of date.

python tools/write_cli_reference.py
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click

from embasis.cli.main import main as commands

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "cli.md"
INTRODUCTION = """# The command line

Made from the commands by `python tools/write_cli_reference.py`; it says what `embasis COMMAND --help` says. What
commands share (settings, runs that go on, exit codes) is in [commands.md](../commands.md).
"""


def split_help(text: str) -> tuple[list[str], list[str]]:
    """The paragraphs of a help text, and its lines of examples."""
    paragraphs, examples = [], []
    for part in inspect.cleandoc(text).split("\n\n"):
        lines = [line for line in part.splitlines() if line != "\b"]
        if lines[0].startswith("Examples:"):
            examples = [line.removeprefix("  ") for line in lines[1:]]
        elif "\b" in part:
            paragraphs.append("```text\n" + "\n".join(lines) + "\n```")
        else:
            paragraphs.append("\n".join(lines))
    return paragraphs, examples


def escape_cell(text: str) -> str:
    """Text as a cell of a table: a bar would end it, so choices are written {a,b}."""
    choices = re.sub(r"\[(\S+\|\S+)\]", lambda found: "{" + found[1].replace("|", ",") + "}", text)
    return re.sub(r"\s+", " ", choices).replace("|", "/").strip()


def escape_text(paragraph: str) -> str:
    """A paragraph of plain text as Markdown: angle brackets and stars stay what they are."""
    return paragraph if paragraph.startswith("```") else re.sub(r"([<*_])", r"\\\1", paragraph)


def list_options(command: click.Command, context: click.Context) -> list[str]:
    """The rows of a command's table of options."""
    options = [each for each in command.params if isinstance(each, click.Option)]
    records = [option.get_help_record(context) for option in options]
    cells = [(escape_cell(names), escape_cell(text).replace("[", "\\[")) for names, text in filter(None, records)]
    rows = [f"| `{names}` | {text} |" for names, text in cells]
    return ["| option | what it says |", "| --- | --- |", *rows] if rows else []


def describe(name: str, command: click.Command) -> str:
    """The section of one command."""
    context = click.Context(command, info_name=f"embasis {name}")
    usage = " ".join(command.collect_usage_pieces(context))
    paragraphs, examples = split_help(command.help or "")
    parts = [f"## embasis {name}", *map(escape_text, paragraphs[:1])]
    parts += [f"```\nembasis {name} {usage}\n```", *map(escape_text, paragraphs[1:])]
    if examples:
        parts.append("Examples:\n\n```\n" + "\n".join(examples) + "\n```")
    return "\n\n".join([*parts, "\n".join(list_options(command, context))]).rstrip()


def compose() -> str:
    """The whole page."""
    names = commands.list_commands(click.Context(commands))
    return INTRODUCTION + "\n" + "\n\n".join(describe(name, commands.commands[name]) for name in names) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(compose(), encoding="utf-8")
    print(f"wrote {PAGE.name}: {len(commands.commands)} commands")
