"""The scripts that measure speed: they run, and their figures are what they say."""

from __future__ import annotations

import math
import re

import pytest
from benchmarks import growth, map_speed


def test_an_exponent_is_one_where_time_grows_like_the_work() -> None:
    sizes = [growth.Size(1_000, 32, 10), growth.Size(4_000, 32, 10), growth.Size(8_000, 64, 10)]
    assert growth.exponent_of(sizes, [9.0, 1.0, 4.0 * sizes[2].components / sizes[1].components]) == pytest.approx(1.0)
    assert growth.exponent_of(sizes[:2], [1.0, 16.0]) == pytest.approx(
        math.log(16) / math.log(4 * sizes[1].components / sizes[0].components)
    )


def test_a_size_is_measured_in_a_process_of_its_own() -> None:
    seconds, memory = growth.measure_apart(growth.Size(400, 64, 3))
    assert seconds > 0
    assert memory >= 0


def test_label_maps_are_labelled_beside_the_bare_pass(capsys: pytest.CaptureFixture[str]) -> None:
    map_speed.speed(2, 1, map_speed.Choice(size="64x128"))
    printed = capsys.readouterr().out
    assert "2 pictures of 64x128, 19 classes" in printed
    assert len(re.findall(r"ratio: \d+\.\d\d", printed)) == 2
