"""Standard streams that are closed, full, or read by nobody: exit codes are those of the command, never a traceback."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from cli_tables import ENVIRONMENT, PROGRAM
from folder_runs import digests
from forked import Zygote
from kill_runs import TINY

FULL = (
    "embasis: cannot write to standard output: No space left on device; only printed text is missing; "
    "send it to another place\n"
)
CLOSED = """
import os, sys
for number in map(int, words.pop()):
    os.close(number)
    setattr(sys, ("stdin", "stdout", "stderr")[number], None)  # as Python does when it starts without
sys.argv = ["embasis", *words]
from embasis.__main__ import main
try:
    main()
finally:
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))
"""
COMPARE = ("compare", "blobs", "--seeds", "1", "--methods", "cbst", "count=24", "rounds=1", "--backbone", "linear")
needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")


def shell(place: Path, line: str) -> tuple[int, str, str]:
    """A line of the shell with `embasis` in it, in that folder: its code, its output, its error output."""
    command = shlex.join(PROGRAM)
    done = subprocess.run(
        ["bash", "-c", f'embasis() {{ {command} "$@"; }}; {line}'],
        capture_output=True, text=True, check=False, timeout=120, env=ENVIRONMENT, cwd=place,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("closed", ["0", "1", "2", "012"])
def test_closed_streams_change_no_byte_of_a_run(tmp_path: Path, zygote: Zygote, closed: str) -> None:
    assert zygote.run(tmp_path / "log", *TINY, "-o", tmp_path / "usual").code == 0
    assert zygote.run(tmp_path / "log", *TINY, "-o", tmp_path / "run", closed, code=CLOSED).code == 0
    assert digests(tmp_path / "run") == digests(tmp_path / "usual")
    logs = [(tmp_path / name / "log.txt").read_text().replace("usual", "run") for name in ("run", "usual")]
    assert [line[30:] for line in logs[0].splitlines()] == [line[30:] for line in logs[1].splitlines()]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, COMPARE), (0, ("list",)), (0, ("--help",)), (0, ("--version",)), (2, ("no-such-command",)), (2, ("fit",)),
        (4, ("predict", "nowhere", "x.csv", "-o", "y.csv")), (4, ("report", "nowhere")),
        (3, ("check", "nowhere.csv", "nowhere.csv")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("closed", ["2", "012"])
def test_closed_streams_change_no_exit_code(
    tmp_path: Path, zygote: Zygote, code: int, words: tuple[str, ...], closed: str
) -> None:
    assert zygote.run(tmp_path / "log", *words, closed, code=CLOSED).code == code


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_what_a_shell_closes_is_open_again_before_a_file_can_have_its_number(tmp_path: Path, closed: str) -> None:
    assert shell(tmp_path, f"embasis list methods {closed} | cat >/dev/null; exit ${{PIPESTATUS[0]}}") == (0, "", "")
    (tmp_path / "bad.pt").write_bytes(b"no weights")
    code, _, stderr = shell(tmp_path, f"embasis import-weights bad.pt -o out.safetensors {closed}")
    assert (code, stderr) == (4, "" if "2>" in closed else "embasis: bad.pt is not a file that PyTorch has written\n")
    assert os.listdir(tmp_path) == ["bad.pt"]


@needs_full
@pytest.mark.parametrize("words", ["--help", "--version", "list", "fit --help"])
def test_printing_to_a_full_device_is_one_line_and_code_5(tmp_path: Path, words: str) -> None:
    assert shell(tmp_path, f"embasis {words} >/dev/full") == (5, "", FULL)


@needs_full
def test_a_run_goes_to_its_end_when_its_output_is_full_and_says_so(tmp_path: Path, zygote: Zygote) -> None:
    assert zygote.run(tmp_path / "log", *TINY, "-o", tmp_path / "usual").code == 0
    full = """
import os, sys
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
sys.argv = ["embasis", *words]
from embasis.__main__ import main
main()
"""
    child = zygote.run(tmp_path / "log", *TINY, "-o", tmp_path / "run", code=full)
    assert (child.code, child.stderr) == (5, FULL)
    assert digests(tmp_path / "run") == digests(tmp_path / "usual")
    child = zygote.run(tmp_path / "log", "report", tmp_path / "run", code=full)
    assert (child.code, child.stderr) == (5, FULL)
    child = zygote.run(tmp_path / "log", *COMPARE, code=full)
    assert (child.code, child.stderr) == (5, FULL)


@needs_full
def test_a_failure_keeps_its_code_when_its_output_is_full(tmp_path: Path) -> None:
    code, _, stderr = shell(tmp_path, "embasis check a.csv b.csv >/dev/full")
    assert (code, stderr) == (3, FULL)
    assert shell(tmp_path, "embasis no-such-command 2>/dev/full") == (2, "", "")
    assert shell(tmp_path, "embasis report nowhere 2>/dev/full")[0] == 4
    assert shell(tmp_path, "embasis list >/dev/full 2>/dev/full") == (5, "", "")


@pytest.mark.parametrize("words", ["--help", "list", "fit --help"])
def test_a_reader_who_has_gone_away_changes_no_exit_code(tmp_path: Path, words: str) -> None:
    line = f"(sleep 0.1; embasis {words}) | true; exit ${{PIPESTATUS[0]}}"
    assert shell(tmp_path, line) == (0, "", "")


def test_a_pipe_that_must_not_be_waited_for_gets_every_byte(tmp_path: Path) -> None:
    slow = "import sys, time; time.sleep(1); sys.stdout.write(sys.stdin.read())"
    unblocked = "import os, sys; os.set_blocking(1, False); os.execvp(sys.argv[1], sys.argv[1:])"
    small = "import fcntl; fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 4096);"
    program = shlex.join([PROGRAM[0], "-c", small + unblocked, *PROGRAM])
    found = shell(tmp_path, f"{program} list | {shlex.join([PROGRAM[0], '-c', slow])}; exit ${{PIPESTATUS[0]}}")
    assert found == shell(tmp_path, "embasis list")
