"""L-BFGS and its line searches: the minimum is found, in few steps, and nothing moves where nothing is finite."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embasis.functional.minimise import (
    FALL,
    FLATTER,
    NEARLY_FLAT,
    PlainObjective,
    Vector,
    minimise_smooth,
    next_length,
    quasi_newton_direction,
    search_convex,
    search_line,
)

seeds = st.integers(0, 2**31)


def quadratic(seed: int, size: int, worst: float) -> tuple[Vector, Vector]:
    """A matrix with curvatures from 1 to `worst`, and where x A x / 2 − b x is lowest."""
    draw = np.random.default_rng(seed)
    axes = np.linalg.qr(draw.normal(size=(size, size)))[0]
    return (axes * np.geomspace(1, worst, size)) @ axes.T, draw.normal(size=size)


@given(seed=seeds, size=st.integers(1, 12), worst=st.sampled_from([1.0, 10.0, 1000.0]))
def test_the_minimum_of_a_quadratic_function_is_found(seed: int, size: int, worst: float) -> None:
    matrix, lowest = quadratic(seed, size, worst)
    objective = PlainObjective(lambda x: (float((x - lowest) @ matrix @ (x - lowest)) / 2, matrix @ (x - lowest)))
    found, (value, gradient) = minimise_smooth(objective, np.zeros(size), 200, 1e-8)
    np.testing.assert_allclose(found, lowest, atol=1e-7)
    assert value == pytest.approx(float(lowest @ matrix @ lowest) / 2)
    np.testing.assert_allclose(gradient, -matrix @ lowest)


def test_the_curved_valley_of_rosenbrock_is_walked_to_its_end() -> None:
    def evaluate(x: Vector) -> tuple[float, Vector]:
        a, b = 1 - x[0], x[1] - x[0] ** 2
        return float(a * a + 100 * b * b), np.array([-2 * a - 400 * x[0] * b, 200 * b])

    found, _ = minimise_smooth(PlainObjective(evaluate), np.array([-1.2, 1.0]), 100, 1e-8)
    np.testing.assert_allclose(found, [1, 1], atol=1e-6)


@pytest.mark.parametrize(("value", "gradient"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (1.0, math.inf)])
def test_nothing_moves_where_the_start_is_not_finite(value: float, gradient: float) -> None:
    found, first = minimise_smooth(PlainObjective(lambda x: (value, np.full(2, gradient))), np.ones(2), 10, 1e-5)
    np.testing.assert_array_equal(found, [1, 1])
    assert not (math.isfinite(first[0]) and np.isfinite(first[1]).all())


def test_a_wall_of_infinity_is_not_climbed() -> None:
    def evaluate(x: Vector) -> tuple[float, Vector]:
        if x[0] >= 1:
            return math.inf, np.array([math.inf])
        return float(-x[0] - 0.01 * math.log(1 - x[0])), np.array([-1 + 0.01 / (1 - x[0])])

    found, _ = minimise_smooth(PlainObjective(evaluate), np.array([-5.0]), 100, 1e-6)
    assert float(found[0]) == pytest.approx(0.99, abs=1e-5)


def test_after_steps_along_all_axes_the_direction_is_newtons() -> None:
    curvature = np.array([1.0, 4.0, 9.0])
    past = [(step, curvature * step, 1 / float(step @ (curvature * step))) for step in np.eye(3)]
    np.testing.assert_allclose(quasi_newton_direction(np.array([2.0, 8.0, 18.0]), past), [-2, -2, -2])
    np.testing.assert_allclose(quasi_newton_direction(np.array([2.0, 8.0]), []), [-2, -8])


@given(lowest=st.floats(0.01, 50), power=st.sampled_from([2, 4]), first=st.sampled_from([0.1, 1.0, 10.0]))
def test_the_length_found_on_a_convex_line_is_nearly_flat(lowest: float, power: int, first: float) -> None:
    def slope(t: float) -> float:
        return power * math.copysign(abs(t - lowest) ** (power - 1), t - lowest)

    length = search_convex(lambda t: (math.nan, slope(t)), slope(0), first)
    assert length > 0
    assert abs(slope(length)) <= NEARLY_FLAT * abs(slope(0))


@given(phase=st.floats(0.3, 3.0), first=st.sampled_from([0.05, 1.0, 20.0]))
def test_the_length_found_on_any_line_falls_and_flattens(phase: float, first: float) -> None:
    def probe(t: float) -> tuple[float, float]:
        return t * t / 50 - math.sin(phase * t), t / 25 - phase * math.cos(phase * t)

    value, slope = probe(0)
    length = search_line(probe, value, slope, first)
    assert probe(length)[0] <= value + FALL * length * slope
    assert abs(probe(length)[1]) <= FLATTER * abs(slope)


def test_two_trials_of_a_cubic_lead_to_its_lowest_place() -> None:
    def trial(t: float) -> tuple[float, float, float]:
        return t, t**3 - 3 * t, 3 * t * t - 3

    assert next_length(trial(0.0), trial(2.5)) == pytest.approx(1.0)
    assert next_length((0.5, -1.0, -1.0), None) == 2.0
    assert next_length((0.0, 0.0, -1.0), (2.0, math.inf, math.nan)) == 1.0
