"""Axes of figures: numbers that people can read whole, whatever the values."""

from __future__ import annotations

import re

import pytest

from embasis.report.svg import LETTER_WIDTH, LineChart, Series, choose_ticks, draw_lines, pad_range, tick_labels


@pytest.mark.parametrize("values", [[0.98370, 0.98377], [2.639057, 2.6390571], [1234.5, 1234.6], [-0.5, -0.4999]])
def test_values_that_hardly_differ_have_different_numbers_of_few_digits(values: list[float]) -> None:
    low, high = pad_range(values)
    assert low < min(values) <= max(values) < high
    labels = tick_labels(choose_ticks(low, high, 4))
    assert len({*labels}) == len(labels) >= 2
    assert max(len(label) for label in labels) <= 8


def test_values_that_differ_keep_their_own_range() -> None:
    assert pad_range([0.0, 1.0]) == (-0.12, 1.12)
    assert pad_range([0.010, 0.0101]) == pytest.approx((0.009988, 0.010112))
    assert pad_range([3.0]) == pytest.approx((2.964, 3.036))


def test_the_numbers_of_an_axis_lie_inside_the_picture() -> None:
    chart = LineChart("said", "round")
    drawn = draw_lines([Series("one", [(0, 0.0100001), (1, 0.0100004)], ["a", "b"])], chart)
    ends = re.findall(r'<text x="([0-9.]+)"[^>]*class="quiet end"[^>]*>([^<]*)</text>', drawn)
    assert ends
    assert all(float(x) - LETTER_WIDTH * len(label) > 0 for x, label in ends)


def test_a_line_without_a_value_is_not_in_the_key_and_the_others_keep_their_colours() -> None:
    lines = [Series("none", [(0, None)], [""]), Series("some", [(0, 0.5)], ["half"])]
    drawn = draw_lines(lines, LineChart("said", "round"), first_series=1)
    assert ">some<" in drawn
    assert ">none<" not in drawn
    assert re.search(r'class="[^"]*\bs2\b', drawn)
