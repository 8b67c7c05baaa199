"""One EM iteration beside its two bare matrix products, the obvious version and scikit-learn's.

    python -m benchmarks.em_speed [--rows 100000] [--width 512] [--components 64] [--repeats 15] [--threads 0]

What is timed, all in float32 on the same unit rows with the default number of torch threads:

| name | what |
| --- | --- |
| two bare products | torch.mm(x, mu.T, out=scores), torch.mm(scores.T, x, out=sums); outputs allocated before |
| embasis | sum_em_statistics(chunks of x, mu, sharpness, ones) and m_step(…, sphere=True): basis, mass and objective |
| embasis, weighted | the same with a weight for each row |
| three lines | z = softmax(sharpness · (x @ mu.T)); (z.T @ x) / z.sum(0): no objective, one z for all rows |
| scikit-learn | GaussianMixture("spherical")._e_step(X) and ._m_step(X, log_resp): the body of the loop of `fit` |
|  | on a model whose weights, means and precisions are given, so neither k-means nor the checks of `fit` are timed |

Repeats are interleaved; a ratio is the median over repeats of the quotient of two times of the same repeat, so that a
busy machine slows both sides. (It slows the side whose threads meet more often even more: where others work on the
same cores, `--threads 1` compares the work alone.)
Goals: embasis ≤ 1.1 × the bare products, and faster than scikit-learn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import sklearn
import torch
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from embasis.functional.em import EM_CHUNK, m_step, sum_em_statistics
from embasis.functional.sites import unit_rows

SHARPNESS = 20.0
GOAL = 1.1


def bodies(rows: int, width: int, components: int) -> dict[str, Callable[[], object]]:
    draw = torch.Generator().manual_seed(0)
    mu = unit_rows(torch.randn(components, width, generator=draw))
    near = torch.randint(components, (rows,), generator=draw)
    x = unit_rows(mu[near] + torch.randn(rows, width, generator=draw) / width**0.5)
    weight = torch.rand(rows, generator=draw) + 0.5
    chunks, weights = x.split(EM_CHUNK), weight.split(EM_CHUNK)
    ones = torch.ones(rows).split(EM_CHUNK)
    scores, sums = torch.empty(rows, components), torch.empty(components, width)

    def bare() -> None:
        torch.mm(x, mu.T, out=scores)
        torch.mm(scores.T, x, out=sums)

    def three_lines() -> torch.Tensor:
        z = torch.softmax(SHARPNESS * (x @ mu.T), dim=1)
        total = z.T @ x
        return total / z.sum(0).unsqueeze(1)

    mixture = given_mixture(mu, x)
    array = x.numpy()

    def scikit_learn() -> None:
        _, log_resp = mixture._e_step(array)
        mixture._m_step(array, log_resp)

    return {
        "two bare products": bare,
        "embasis": lambda: m_step(sum_em_statistics(chunks, mu, SHARPNESS, ones), mu, sphere=True),
        "embasis, weighted": lambda: m_step(sum_em_statistics(chunks, mu, SHARPNESS, weights), mu, sphere=True),
        "three lines": three_lines,
        "scikit-learn": scikit_learn,
    }


def given_mixture(mu: torch.Tensor, x: torch.Tensor) -> GaussianMixture:
    """A spherical mixture with the same means and precision, as `fit` leaves it before its first iteration."""
    mixture = GaussianMixture(
        len(mu),
        covariance_type="spherical",
        max_iter=1,
        n_init=1,
        means_init=mu.numpy(),
        weights_init=np.full(len(mu), 1 / len(mu), dtype=np.float32),
        precisions_init=np.full(len(mu), SHARPNESS, dtype=np.float32),
    )
    mixture._initialize_parameters(x[: 2 * len(mu)].numpy(), np.random.RandomState(0))
    return mixture


def measure(timed: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for repeat in range(repeats + 1):
        for name, body in timed.items():
            began = time.perf_counter()
            body()
            if repeat:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def ratio(seconds: dict[str, list[float]], name: str, to: str) -> float:
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[to], strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--components", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=0, help="of torch and of numpy's BLAS; 0 = their defaults")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
        threadpool_limits(given.threads)
    seconds = measure(bodies(given.rows, given.width, given.components), given.repeats)
    print(f"one EM iteration, N = {given.rows}, d = {given.width}, K = {given.components}, float32")
    print(
        f"torch {torch.__version__} with {torch.get_num_threads()} threads, scikit-learn {sklearn.__version__}, "
        f"numpy {np.__version__}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; "
        f"medians of {given.repeats} interleaved repeats"
    )
    print(f"{'':20}{'ms':>8}{'best ms':>9}{'× bare':>8}{'× embasis':>11}")
    for name, values in seconds.items():
        print(
            f"{name:20}{statistics.median(values) * 1e3:8.1f}{min(values) * 1e3:9.1f}"
            f"{ratio(seconds, name, 'two bare products'):8.2f}{ratio(seconds, name, 'embasis'):11.2f}"
        )
    reached = ratio(seconds, "embasis", "two bare products") <= GOAL and ratio(seconds, "scikit-learn", "embasis") > 1
    print(f"goal (≤ {GOAL} × bare, faster than scikit-learn): {'reached' if reached else 'NOT reached'}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
