"""What leaves the house: no home, user, host or environment, no formula, no control character, and no call outside."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli_tables import FEATURES, embasis
from embasis.storage import escape_formula, read_stored_table, unescape_formula
from output_runs import (
    HOST,
    NAMES,
    SECRET,
    TABLES,
    USER,
    Session,
    leaks,
    namespaces,
    outputs,
    prepare,
    session,
    strange_bytes,
)
from page_views import Tree

OWN_CODE = ("code.__new__ ", "ran code that no file holds: ")
"""Python's own modules, and Jinja's, make code while they are imported: what it is, `test_hostile.py` looks at."""


@functools.cache
def found() -> Session:
    return session(Path(mkdtemp()) / "home", TABLES, NAMES)


def said(command: str) -> list[str]:
    return [text for name, _, text in found().outputs if name == command]


def test_every_command_ends_well_without_a_network() -> None:
    if not namespaces():
        pytest.skip("this system does not allow a network namespace (unshare -n), so the network cannot be cut")
    assert {(name, code) for name, code, _ in found().outputs} == {(words[0], 0) for words in TABLES}, found().outputs


def test_no_command_opens_a_socket_or_starts_a_program() -> None:
    """By the audit hook, which sees an attempt whether or not there is a network."""
    assert [deed for deed in found().deeds if not deed.startswith(OWN_CODE)] == []


def test_a_program_that_calls_outside_would_be_found_out(tmp_path: Path) -> None:
    import shutil

    import audit_hook

    shutil.copy(audit_hook.__file__, tmp_path / "sitecustomize.py")
    program = "import socket\ntry:\n    socket.create_connection(('192.0.2.1', 9), 0.1)\nexcept OSError:\n    pass"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([*namespaces(), sys.executable, "-c", program], env=environment, check=True)
    assert "socket.connect" in (tmp_path / "deeds").read_text()


def test_nothing_that_is_written_names_the_home_the_user_the_host_or_the_environment() -> None:
    assert leaks(found()) == []
    names = [name for name, _ in outputs(found().folder)]
    assert {"run/report.html", "labels.csv", "export.parquet", "run/environment.json"} <= {*names}
    assert len(names) > 20


@pytest.mark.parametrize("secret", [USER, HOST, SECRET, "home"])
def test_a_leak_would_be_found_out(tmp_path: Path, secret: str) -> None:
    home = tmp_path / USER
    home.mkdir()
    text = str(home) if secret == "home" else secret
    (home / "labels.csv").write_text(f"id\n{text}\n")
    assert leaks(Session(home, [], [], True)) != []


def test_the_note_of_a_failure_names_no_place_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = prepare(tmp_path)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("embasis.runs.run.run_page", lambda view: "page")
    words = ("fit", home / "labelled.csv", home / "judged.csv", "-o", home / "run", "rounds=0")
    assert embasis(*words).exit_code == 0
    (home / "run" / "report.html").unlink()
    (home / "run" / "report.html" / "x").mkdir(parents=True)
    result = embasis(*words)
    rest = "model and labels are kept; the same command, or embasis report, writes the report again"
    said = f"embasis: cannot write {home}/run/report.html: Is a directory; {rest}\n"
    assert (result.exit_code, result.stderr) == (5, said)
    note = json.loads((home / "run" / "error.json").read_text())
    assert note["message"] == f"cannot write run/report.html: Is a directory; {rest}"
    assert leaks(Session(home, [], [], True)) == []


def test_no_control_character_reaches_the_terminal() -> None:
    assert {command: strange_bytes(text) for command, _, text in found().outputs if strange_bytes(text)} == {}
    assert "\\x1b]0;owned\\x07" in said("check")[0]


@pytest.mark.parametrize("name", ["labels.csv", "export.csv"])
def test_no_cell_of_a_table_is_a_formula_and_every_name_comes_back(name: str) -> None:
    text = (found().folder / name).read_bytes().decode()
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    assert [cell for cell in cells if re.match(r"[=+@\t\r]|-(?![0-9.])", cell)] == []
    classes = {label.strip() for label in NAMES}
    assert {*read_stored_table(found().folder / name)["label"]} <= classes
    formulas = {label for label in classes if re.match(r"'*[=+\-@\t\r]", label)}
    written = {*read_stored_table(found().folder / "export.parquet")["label"]}
    assert formulas & written
    assert {escape_formula(label) for label in formulas & written} <= {*cells}


@given(st.text(st.sampled_from("=+-@\t\r\uff1d\uff0b\uff0d\uff20'a\n\x1b,\""), max_size=6) | st.text(max_size=20))
def test_a_neutral_cell_is_no_formula_and_comes_back(text: str) -> None:
    neutral = escape_formula(text)
    assert neutral[:1] not in tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
    assert unescape_formula(neutral) == text


def test_hostile_class_names_change_no_element_of_the_page_of_a_run(tmp_path: Path) -> None:
    """The same run with as many harmless names of the same order."""
    order = sorted(name.strip() for name in NAMES)
    harmless = [f"class {order.index(name.strip()):02d}" for name in NAMES]
    plain = session(tmp_path / "home", TABLES[1:2], harmless)
    pages = [(run.folder / "run" / "report.html").read_text() for run in (found(), plain)]
    assert Tree(pages[0]).tags == Tree(pages[1]).tags
    assert not re.search(r"https?://(?!www\.w3\.org)", pages[0])


def test_nothing_is_written_beside_what_was_asked_for() -> None:
    top = {path.name for path in found().folder.iterdir()}
    given_names = {"labelled.csv", "judged.csv", "unlabelled.csv", "turned.csv"}
    tables = {"labels.csv", "labels.parquet", "export.csv", "export.parquet"}
    assert top - given_names == {"run", *tables, "tasks.json", "compared"}
    beside = {path.name for path in found().folder.parent.iterdir()}
    assert beside <= {USER, "site", "tmp", "cache"}
    assert FEATURES[0] in (found().folder / "labelled.csv").read_text()
