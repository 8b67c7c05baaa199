"""Whole sessions of the command line on a machine with secrets, with its network cut, on data with hostile names.

The session runs in a process of its own: in namespaces of its own (network, host name) where the system allows it, with
a home, a user, a host and an environment that are not to be found again in anything it writes, and under the audit hook
of `audit_hook.py`, which notes every socket and every program.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import audit_hook
from cli_tables import write_tables

TESTS = Path(__file__).parent
HOST, USER, SECRET = "geheimrechner7", "geheimnutzer7", "geheimwort7"
NAMES = (
    "=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\tTAB", "\rCR", "'=quoted", "\x1b]0;owned\x07", "\x1b[31mred",
    "\x9b31m", "../../../escape", "/etc/passwd", "C:\\Windows", "con", "<script>alert(1)</script>", "a\u202egpj.exe",
    "\u2066x\u2069", "line\nbreak", "a,\"b\";c", "{{7*7}}", "%s%n", "$(touch canary)", "`touch canary`", "\x7f\x08",
)  # fmt: skip
"""Class names that try to be more than names."""
TABLES: tuple[tuple[str, ...], ...] = (
    ("check", "{}/labelled.csv", "{}/judged.csv"),
    ("fit", "{}/labelled.csv", "{}/judged.csv", "-o", "{}/run", "rounds=1", "--test", "{}/judged.csv"),
    ("predict", "{}/run", "{}/judged.csv", "-o", "{}/labels.csv"),
    ("predict", "{}/run", "{}/judged.csv", "-o", "{}/labels.parquet", "--sort", "uncertainty"),
    ("export", "{}/run", "-o", "{}/export.csv", "--as", "csv", "--all"),
    ("export", "{}/run", "-o", "{}/export.parquet", "--as", "parquet", "--all"),
    ("export", "{}/run", "-o", "{}/tasks.json", "--as", "label-studio", "--table", "{}/judged.csv"),
    ("report", "{}/run"),
    ("list",),
    (
        "compare",
        "blobs",
        "--methods",
        "cbst,em_basis",
        "--seeds",
        "1",
        "count=60",
        "plan.rounds=1",
        "-o",
        "{}/compared",
    ),
)
SMALL = ("--backbone", "timm:test_efficientnet", "network.pretrained=false", "network.size=32", "rounds=1")
IMAGES: tuple[tuple[str, ...], ...] = (
    ("check", "{}/photos", "{}/paintings"),
    ("fit", "{}/photos", "{}/paintings", "-o", "{}/pictures", *SMALL),
    ("predict", "{}/pictures", "{}/paintings", "-o", "{}/seen.csv"),
    ("export", "{}/pictures", "-o", "{}/sorted", "--as", "folder", "--images", "{}/paintings", "--all", "--copy"),
    ("export", "{}/pictures", "-o", "{}/picture-tasks.json", "--as", "label-studio"),
    ("report", "{}/pictures"),
)
PROGRAM = """
import json, sys
sys.path.insert(0, {tests!r})
from click.testing import CliRunner
from embasis.cli import main
for words in {commands!r}:
    result = CliRunner().invoke(main, list(words))
    print(json.dumps([words[0], result.exit_code, result.output]), flush=True)
"""


@dataclass(frozen=True)
class Session:
    """What the commands printed and did."""

    folder: Path
    outputs: list[tuple[str, int, str]]
    deeds: list[str]
    cut: bool
    """Whether the network was cut."""


@functools.cache
def namespaces() -> tuple[str, ...]:
    """How to start a program without a network and with another host name; nothing where that is not allowed."""
    for start in (("unshare", "-n", "-u"), ("unshare", "-r", "-n", "-u")):
        try:
            if subprocess.run([*start, "true"], capture_output=True, check=False).returncode == 0:
                return start
        except FileNotFoundError:
            break
    return ()


def prepare(folder: Path, names: Sequence[str] = ()) -> Path:
    """A home with tables in it; with class names of its own if they are given."""
    home = folder / USER
    home.mkdir(parents=True)
    write_tables(home)
    if names:
        for name in ("labelled.csv", "judged.csv"):
            rename_classes(home / name, names)
    return home


def rename_classes(path: Path, names: Sequence[str]) -> None:
    """Row by row another of these classes in place of c0, c1, c2."""
    header, *lines = path.read_text().splitlines()
    cells = ['"' + name.replace('"', '""') + '"' for name in names]
    rows = [f"{line.rpartition(',')[0]},{cells[number % len(cells)]}" for number, line in enumerate(lines)]
    path.write_text("\n".join([header, *rows]) + "\n", newline="")


def session(folder: Path, commands: Sequence[Sequence[str]], names: Sequence[str] = ()) -> Session:
    """Run the commands in the home below that folder."""
    home, site = prepare(folder, names), folder / "site"
    if any("photos" in word for words in commands for word in words):
        from image_runs import sides

        sides(home, each=3)
    site.mkdir()
    shutil.copy(audit_hook.__file__, site / "sitecustomize.py")
    (folder / "tmp").mkdir()
    filled = [[word.format(home) for word in words] for words in commands]
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(home), "USER": USER, "LOGNAME": USER, "OMP_NUM_THREADS": "1",
        "EMBASIS_TEST_TOKEN": SECRET, "TMPDIR": str(folder / "tmp"), "EMBASIS_CACHE": str(folder / "cache"),
        "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8",
    }  # fmt: skip
    program = PROGRAM.format(tests=str(TESTS), commands=filled)
    start = [*namespaces(), "sh", "-c", f'hostname {HOST}; exec "$@"', "sh"] if namespaces() else []
    command = [*start, sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=home, check=False)
    assert done.returncode == 0, done.stderr
    outputs = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
    deeds = (site / "deeds").read_text().splitlines() if (site / "deeds").exists() else []
    return Session(home, outputs, deeds, bool(namespaces()))  # type: ignore[arg-type]


INPUTS = ("labelled.csv", "judged.csv", "unlabelled.csv", "turned.csv", "photos/", "paintings/")


def outputs(home: Path) -> Iterator[tuple[str, bytes]]:
    """Everything that was written, unpacked where it is packed; names count too."""
    from embasis.storage import read_stored_table

    for path in sorted(home.rglob("*")):
        name = path.relative_to(home).as_posix()
        if path.is_file() and not path.is_symlink() and not name.startswith(INPUTS):
            yield name, name.encode() + b"\n" + path.read_bytes()
            if path.suffix == ".parquet":
                yield name, repr(read_stored_table(path)).encode()


def leaks(found: Session) -> list[str]:
    """Where an output holds the home, the user, the host or the environment of the machine."""
    secrets = {"home": str(found.folder), "folder above": str(found.folder.parent), "user": USER, "environment": SECRET}
    if found.cut:
        secrets["host"] = HOST
    return [
        f"{name} holds the {what}"
        for name, data in outputs(found.folder)
        for what, secret in secrets.items()
        if secret.encode() in data
    ]


def strange_bytes(text: str) -> list[str]:
    """Control characters in what a terminal is sent, beside line ends."""
    return sorted(
        {repr(letter) for letter in text if letter != "\n" and (ord(letter) < 32 or 127 <= ord(letter) < 160)}
    )
