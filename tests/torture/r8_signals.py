"""R8: SIGTERM and SIGINT at 200 random instants, to the process and to its group, with 0, 1 and 2 workers."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from goals import Result

from forked import Zygote
from signal_runs import SELDOM, Stopped, alike, measured, pictures, stop_until_done, term_at_calls
from traced import why_not

MANY = {"matrix": 155, "0 workers": 15, "1 worker": 15, "2 workers": 15}
SECONDS = 2.0
"""What a stop may take beyond the longest step and the longest publish of an undisturbed run under the same load."""


def run() -> Result:
    found, runs, same, over, draw = list[Stopped](), 0, 0, 0.0, random.Random(8)
    with tempfile.TemporaryDirectory() as folder, Zygote() as zygote:
        home = Path(folder)
        for kind, most in MANY.items():
            words = SELDOM if kind == "matrix" else pictures(home, int(kind[0]))
            (home / kind).mkdir()
            expected, longest, step = measured(zygote, home / kind / "undisturbed", words)
            left = most
            while left > 0:
                path = home / kind / f"run-{left}"
                stops = list(stop_until_done(zygote, path, words, draw, longest / 4, min(left, 12)))
                same, runs, left = same + alike(path, expected), runs + 1, left - max(len(stops), 1)
                found += stops
                over = max([over, *(stop.seconds - step for stop in stops if stop.code)])
                for stop in stops:
                    if not stop.right or stop.orphans or (stop.code and stop.seconds - step > SECONDS):
                        print(kind, f"a step and a publish take {step:.2f} s", stop, flush=True)
        calls = "; " + why_not()
        if not why_not():
            (home / "calls").mkdir()
            count, good = term_at_calls(zygote, home / "calls", 4)
            calls = f"; SIGTERM at {count} write-class calls of a fit: {good} right and bit-identical"
            runs, same = runs + count, same + good
    right, lost = sum(stop.right for stop in found), sum(stop.orphans for stop in found)
    slowest = max(stop.seconds for stop in found if stop.code)
    ended = sum(not stop.code for stop in found)
    figure = (
        f"{len(found)} signals in {runs} runs: {right} with the right code ({ended} had just ended), {lost} orphans, "
        f"slowest {slowest:.2f} s ({over:.2f} s beyond a step and a publish), {same} runs bit-identical{calls}"
    )
    return Result(len(found) >= 200 and right == len(found) and not lost and over <= SECONDS and same == runs, figure)
