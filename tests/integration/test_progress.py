"""How far a command is: a bar that never stands beside a text, the time that is left, and lines without a terminal."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

import pytest

from cli_tables import PROGRAM, write_tables
from embasis.cli import progress
from embasis.cli.progress import FIRST_LINE, LONGEST_PAUSE, Pace, format_left, print_lines, progress_bar
from embasis.storage import read_jsonl
from screen import run_in_terminal, seen_lines

BAR = re.compile("[━╸╺]")


def test_in_a_terminal_the_bar_is_gone_before_the_line_of_a_round(tmp_path: Path) -> None:
    write_tables(tmp_path)
    sides = [str(tmp_path / name) for name in ("labelled.csv", "judged.csv")]
    written, code = run_in_terminal([*PROGRAM, "fit", *sides, "-o", str(tmp_path / "run"), "rounds=3"])
    assert code == 0, written
    lines = seen_lines(written)
    left = [texts[-1] for texts in lines]
    rounds = [text for text in left if text.startswith("round ")]
    assert [text.split()[:2] for text in rounds] == [["round", str(number)] for number in range(4)]
    assert not [text for text in left if BAR.search(text)]
    assert not [text for texts in lines for text in texts if BAR.search(text) and "trusted" in text]
    assert [text for texts in lines for text in texts if BAR.search(text)], "no bar was drawn"
    stages = [row["stage"] for row in read_jsonl(tmp_path / "run" / "timings.jsonl")]
    assert stages == ["read", *(4 * ["train", "label"])]  # the time of reading is counted, too


def test_a_text_that_is_too_long_for_the_terminal_is_cut_and_the_time_left_is_shown() -> None:
    program = (
        "import time\nfrom embasis.cli.console import echo\nfrom embasis.cli.progress import progress_bar\n"
        "with progress_bar('reading', 10) as show:\n"
        "    for done in range(11):\n"
        "        show(done, f'em_basis_paper amazon→webcam seed {done}: ' + 60 * 'a')\n"
        "        time.sleep(0.15)\n"
        "        if done == 5:\n"
        "            echo('a line'); echo('a warning', err=True)\n"
    )
    written, code = run_in_terminal([sys.executable, "-c", program])
    assert code == 0, written
    lines = seen_lines(written)
    assert [texts[-1] for texts in lines] == ["a line", "a warning", "", ""]
    drawn = re.compile(r"em_basis_paper amazon→webcam seed [0-9]: aa… [━╸╺]{12} +[0-9]+% 0:00:0[0-9] 0:0[0-9] left")
    assert any(drawn.fullmatch(text) for texts in lines for text in texts)


def test_in_a_terminal_that_can_clear_nothing_there_is_no_bar() -> None:
    program = (
        "from embasis.cli.progress import progress_bar\nwith progress_bar('reading', 2) as show: show(1, 'reading')"
    )
    assert run_in_terminal([sys.executable, "-c", program], TERM="dumb") == ("", 0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (0.4, "0:00 left"), (65.0, "1:05 left"), (7800.0, "2:10:00 left")]
)
def test_the_time_that_is_left_is_short(seconds: float | None, text: str) -> None:
    assert format_left(seconds) == text


class Clock:
    """A time that goes on by being told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


def test_the_pace_counts_from_the_first_look_and_anew_when_less_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pace = Clock(monkeypatch), Pace(100)
    assert pace.seconds_left(40) is None  # 40 were in the cache
    clock.now += 10
    assert pace.seconds_left(60) == pytest.approx(20)
    clock.now += 10
    assert pace.seconds_left(100) is None
    assert pace.seconds_left(0) is None
    clock.now += 3
    assert pace.seconds_left(10) == pytest.approx(27)


def test_without_a_terminal_a_line_is_printed_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, show = Clock(monkeypatch), print_lines(1.0)
    begun, times = clock.now, []
    while (clock.now - begun) < 3600:
        clock.now += 1
        share = (clock.now - begun) / 3600
        show(share, f"reading images: {round(5000 * share):,} of 5,000")
        if text := capsys.readouterr().err:
            times.append((clock.now - begun, text))
    assert times[0] == (FIRST_LINE, "reading images: 42 of 5,000 (1%), 59:30 left\n")
    pauses = [later[0] - sooner[0] for sooner, later in itertools.pairwise(times)]
    assert pauses[:4] == [60, 120, 240, LONGEST_PAUSE]
    assert {*pauses[3:]} == {LONGEST_PAUSE}
    assert times[-1][0] < 3600  # what is done needs no line


def test_without_a_terminal_only_those_who_ask_for_lines_get_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    for lines in (False, True):
        with progress_bar("reading", 10, lines=lines) as show:
            for done in range(10):
                clock.now += 10
                show(done, f"reading: {done} of 10")
    assert capsys.readouterr().err == "reading: 2 of 10 (20%), 1:20 left\nreading: 8 of 10 (80%), 0:20 left\n"
