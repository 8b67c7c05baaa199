"""The minimum of a smooth function of many numbers: L-BFGS with a line search (decision 0051).

| symbol | shape | meaning |
| --- | --- | --- |
| x | m | where the search is |
| g | m | gradient there |
| d | m | direction of the next step: −H g, with H the two-loop estimate of the inverse curvature |
| s, y | m | steps x' − x of the past and the changes g' − g of the gradient, the last MEMORY of them |
| t | () | length of a step; the slope along d at t is d · g(x + t d) |

Numbers are numpy's, because calls of a few microseconds are most of the time where tables are small.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
ValueAndGradient = tuple[float, Vector]
"""Value and gradient."""
Probe = Callable[[float], tuple[float, float]]
"""Value and slope along a line, at a length of the step; of a convex function the slope alone, its value is NaN."""
Trial = tuple[float, float, float]
"""Length of a step, value and slope there."""
MEMORY = 10
"""Steps that the curvature is estimated from."""
MOST_TRIALS = 20
"""Lengths that are tried along one direction."""
FALL, FLATTER = 1e-4, 0.5
"""A step is taken where the value has fallen by so much of what its first slope promised, and the slope is flatter."""
NEARLY_FLAT = 0.2
"""Of a convex function: how much of its first slope may be left."""
ROUNDING = 1e-6
"""The part of a value that may be rounding: near the minimum the slope alone tells whether a step is good."""


class Objective(ABC):
    """A smooth function that knows where it is."""

    is_convex: ClassVar[bool] = False
    """Whether its slope rises along every line: then slopes alone say how far to go, and rounding hardly hurts."""

    def multiply(self, first: Vector, second: Vector) -> float:
        """The scalar product of two vectors, in the coordinates that this function is written in."""
        return float(first @ second)

    def is_flat(self, gradient: Vector, tolerance: float) -> bool:
        """Whether no entry of the gradient is above the tolerance, or one is not finite."""
        return not tolerance < np.abs(gradient).max(initial=0.0) < np.inf

    def first_length(self, gradient: Vector) -> float:
        """How far the first step along the gradient goes before anything is known of the curvature."""
        return min(1.0, 1 / float(np.abs(gradient).sum()))

    @abstractmethod
    def begin(self, x: Vector) -> ValueAndGradient:
        """Value and gradient at x."""

    @abstractmethod
    def aim(self, direction: Vector) -> Probe:
        """Value and slope along a direction from where it is."""

    @abstractmethod
    def move(self, length: float) -> ValueAndGradient:
        """Go so far along that direction: value and gradient there."""


class PlainObjective(Objective):
    """Any function of x that returns value and gradient."""

    def __init__(self, evaluate: Callable[[Vector], ValueAndGradient]) -> None:
        self.evaluate = evaluate
        self.x = self.direction = np.empty(0)
        self.seen: dict[float, ValueAndGradient] = {}

    def begin(self, x: Vector) -> ValueAndGradient:
        """Value and gradient at x."""
        self.x = x
        return self.evaluate(x)

    def aim(self, direction: Vector) -> Probe:
        """Each length is computed once."""
        self.direction, self.seen = direction, {}
        return self._probe

    def _probe(self, length: float) -> tuple[float, float]:
        found = self.seen[length] = self.evaluate(self.x + length * self.direction)
        return found[0], float(found[1] @ self.direction)

    def move(self, length: float) -> ValueAndGradient:
        """What was found there."""
        self.x = self.x + length * self.direction
        return self.seen[length]


def minimise_smooth(
    objective: Objective, start: Vector, steps: int, tolerance: float
) -> tuple[Vector, ValueAndGradient]:
    """Where no entry of the gradient is above `tolerance`, or where `steps` steps have led, or no step leads lower; and
    value and gradient at the start. Where these are not finite, nothing is moved."""
    x, first_seen = start, objective.begin(start)
    value, gradient = first_seen
    past: list[tuple[Vector, Vector, float]] = []
    for number in range(steps):
        if not math.isfinite(value) or objective.is_flat(gradient, tolerance):
            break
        direction = quasi_newton_direction(gradient, past, objective.multiply)
        slope = objective.multiply(gradient, direction)
        if slope >= 0:
            past, direction = [], -gradient
            slope = objective.multiply(gradient, direction)
        first = 1.0 if past or number else objective.first_length(gradient)
        probe = objective.aim(direction)
        length = search_convex(probe, slope, first) if objective.is_convex else search_line(probe, value, slope, first)
        if length == 0:
            break
        before, (value, gradient) = gradient, objective.move(length)
        step = length * direction
        x = x + step
        change = gradient - before
        curvature = objective.multiply(step, change)
        if curvature > 1e-12 * objective.multiply(change, change):
            past = [*past[1 - MEMORY :], (step, change, 1 / curvature)]
    return x, first_seen


def quasi_newton_direction(
    gradient: Vector, past: list[tuple[Vector, Vector, float]], multiply: Callable[[Vector, Vector], float] = np.dot
) -> Vector:
    """−H g by the two loops over the last steps, newest first and back again."""
    direction, shares = -gradient, list[float]()
    for step, change, inverse in reversed(past):
        share = inverse * float(multiply(step, direction))
        shares.append(share)
        direction = direction - share * change
    if past:
        _, change, inverse = past[-1]
        direction = direction / (inverse * float(multiply(change, change)))
    for (step, change, inverse), share in zip(past, reversed(shares), strict=True):
        direction = direction + (share - inverse * float(multiply(change, direction))) * step
    return direction


def search_convex(probe: Probe, slope: float, first: float) -> float:
    """A length at which the slope, which rises, is nearly zero: secants between its two signs."""
    low, high, length = (0.0, slope), (math.inf, math.inf), first
    for _ in range(MOST_TRIALS):
        here = (length, probe(length)[1])
        if abs(here[1]) <= -NEARLY_FLAT * slope:
            return length
        before, low, high = (low, here, high) if here[1] < 0 else (low, low, here)
        if math.isfinite(high[1]):
            part = low[1] / (low[1] - high[1])
            length = low[0] + min(max(part, 0.05), 0.95) * (high[0] - low[0])
        elif high[0] < math.inf:
            length = (low[0] + high[0]) / 2
        else:
            rise = max((low[1] - before[1]) / (low[0] - before[0]), 0.0)
            length = low[0] + min(-low[1] / rise if rise else math.inf, 9 * low[0])
    return low[0]


def search_line(probe: Probe, value: float, slope: float, first: float) -> float:
    """A length at which the value has fallen and the slope is flat enough; 0 where none is found."""
    low, high, length = (0.0, value, slope), None, first
    slack = ROUNDING * abs(value)
    for _ in range(MOST_TRIALS):
        here = (length, *probe(length))
        falls = here[1] <= value + FALL * length * slope or (here[1] <= value + slack and abs(here[2]) < abs(slope))
        if not math.isfinite(here[1]) or not math.isfinite(here[2]):
            high, length = here, length / 10 + 0.9 * low[0]
            continue
        if falls and abs(here[2]) <= -FLATTER * slope:
            return length
        if falls and here[2] < 0:
            low = here
        else:
            high = here
        length = next_length(low, high)
    return low[0]


def next_length(low: Trial, high: Trial | None) -> float:
    """Where the cubic through two trials is lowest, well inside of them; farther on while nothing bounds the line."""
    if high is None:
        return low[0] * 4 if low[0] else 1.0
    (a, fa, sa), (b, fb, sb) = low, high
    middle = (a + b) / 2
    if not (math.isfinite(fb) and math.isfinite(sb)):
        return middle
    along = sa + sb - 3 * (fa - fb) / (a - b)
    square = along * along - sa * sb
    if square < 0:
        return middle
    root = math.copysign(math.sqrt(square), b - a)
    bottom = sb - sa + 2 * root
    if bottom == 0:
        return middle
    lowest = b - (b - a) * (sb + root - along) / bottom
    edge = 0.05 * (b - a)
    return min(max(lowest, a + edge), b - edge)
