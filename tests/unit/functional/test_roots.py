"""The zero of a falling function: found precisely, in few steps, and within its bounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embasis.functional.roots import next_step, solve_falling

FUNCTIONS: dict[str, Callable[[float, float], float]] = {
    "line of the logarithm": lambda x, zero: math.log(zero) - math.log(x),
    "line": lambda x, zero: zero - x,
    "hyperbola": lambda x, zero: 1 / x - 1 / zero,
    "flat, then a step": lambda x, zero: math.tanh(50 * (zero - x) / zero),
    "steep": lambda x, zero: math.exp(-x / zero) - math.exp(-1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(place=st.floats(0.01, 0.99))
def test_the_zero_is_found_to_nine_digits_with_at_most_half_the_calls_of_a_bisection(name: str, place: float) -> None:
    zero, seen = 1e-2 * 1e6**place, list[float]()

    def excess(x: float) -> float:
        seen.append(x)
        return FUNCTIONS[name](x, zero)

    assert solve_falling(excess, 1e-2, 1e4) == pytest.approx(zero, rel=1e-9)
    assert len(seen) <= 30 if name == "flat, then a step" else len(seen) <= 20
    assert all(1e-2 * (1 - 1e-12) <= x <= 1e4 * (1 + 1e-12) for x in seen)


def test_a_function_that_jumps_over_zero_is_solved_at_the_jump() -> None:
    assert solve_falling(lambda x: 1.0 if x < 3 else -1.0, 1e-2, 1e4) == pytest.approx(3, rel=1e-9)


def test_without_a_zero_between_the_bounds_the_nearer_bound_is_returned() -> None:
    assert solve_falling(lambda x: 20 - x, 0.5, 8.0) == 8.0
    assert solve_falling(lambda x: 0.1 - x, 0.5, 8.0) == 0.5


def test_a_zero_at_a_bound_is_that_bound() -> None:
    assert solve_falling(lambda x: 8 - x, 0.5, 8.0) == 8.0
    assert solve_falling(lambda x: 0.5 - x, 0.5, 8.0) == 0.5


def test_three_places_on_a_line_lead_to_its_zero_at_once() -> None:
    near, far, last = (1.0, 3.0), (9.0, -5.0), (0.0, 4.0)  # 4 − u, whose zero is 3 eighths of the way from 1 to 9
    assert next_step(near, far, last) == pytest.approx(3 / 8)
