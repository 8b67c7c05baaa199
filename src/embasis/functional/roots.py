"""Where a falling function of a positive number is zero: sharpness for a perplexity, temperature for an entropy.

| symbol | meaning |
| --- | --- |
| u | logarithm of the number that is sought |
| near, far, last | three places: zero lies between `near` and `far`, `last` was one of them before |

Chandrupatla's method: a step by the inverse parabola through three places where that is sure to help, else a bisection.
It asks for the function about ten times where a bisection to the same precision asks forty times (decision 0051).
"""

from __future__ import annotations

import math
from collections.abc import Callable

PRECISION = 1e-10
"""Of the logarithm: what is found differs from the zero by no more, as a part of itself."""
MOST_CALLS = 60
"""No bracket that is halved needs more."""

CurvePoint = tuple[float, float]
"""u and the function there."""


def solve_falling(excess: Callable[[float], float], low: float, high: float) -> float:
    """The positive number at which a falling function is zero; a bound where there is no zero between the bounds."""

    def at(u: float) -> CurvePoint:
        return u, excess(math.exp(u))

    near, far = at(math.log(low)), at(math.log(high))
    if near[1] <= 0:
        return low
    if far[1] >= 0:
        return high
    step = 0.5
    for _ in range(MOST_CALLS):
        new = at(near[0] + step * (far[0] - near[0]))
        if (new[1] > 0) == (near[1] > 0):
            last = near
        else:
            last, far = far, near
        near = new
        width = abs(far[0] - near[0])
        if near[1] == 0 or width <= PRECISION:
            break
        step = min(max(next_step(near, far, last), 0.5 * PRECISION / width), 1 - 0.5 * PRECISION / width)
    best = near if abs(near[1]) <= abs(far[1]) else far
    return math.exp(best[0])


def next_step(near: CurvePoint, far: CurvePoint, last: CurvePoint) -> float:
    """Which part of the way from `near` to `far` the next place lies at."""
    (a, fa), (b, fb), (c, fc) = near, far, last
    along, up = (a - b) / (c - b), (fa - fb) / (fc - fb)
    if not (up * up < along and (1 - up) ** 2 < 1 - along):
        return 0.5
    return fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
