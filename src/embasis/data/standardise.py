"""Inputs to mean 0 and deviation 1, each side by itself or both together, before any network sees them.

| state | shape | meaning |
| --- | --- | --- |
| centre, scale | 2 f | of the labelled (0) and the unlabelled side (1), over the f numbers of one input |

Each domain by itself is what helped most on data with a gap (decision 0003); sides that come from one place share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from embasis.data.tables.fine import is_coarse, is_constant, measure_spread, pool_spreads
from embasis.errors import ConfigError, quoted, require
from embasis.functional.sites import centre_and_scale, domain_sums, summed
from embasis.types import Arrays, Fine, Problem, Samples, fine_of

MODES = ("domain", "joint", "none")
ROWS_AT_A_TIME = 4096


@dataclass(frozen=True, eq=False)
class Standardiser:
    """What `fit` learned; `apply` is for any rows of one side."""

    centre: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, problem: Problem, mode: str) -> Standardiser | None:
        """None when nothing is to be done."""
        require(mode in MODES, f"standardise must be one of {', '.join(MODES)}, got {quoted(mode)}", ConfigError)
        if mode == "none":
            return None
        sums = [sum_side(problem.labelled), sum_side(problem.unlabelled)]
        if mode == "joint" or not len(problem.unlabelled):
            both = tuple(a + b for a, b in zip(*sums, strict=True)) if len(problem.unlabelled) else sums[0]
            sums = [both, both]
        pairs = [centre_and_scale(*side) for side in sums]
        found = cls(torch.stack([pair[0] for pair in pairs]), torch.stack([pair[1] for pair in pairs]))
        found._refine([fine_of(problem.labelled), fine_of(problem.unlabelled)], mode == "joint")
        return found

    def _refine(self, sides: list[Fine | None], joint: bool) -> None:
        """Centre and scale of the columns that are kept in float64, from what they are there."""
        known = [fine for fine in sides if fine is not None and len(fine.values)]
        if not known:
            return
        spreads = [measure_spread(fine.values) for fine in known]
        if joint:
            spreads = [pool_spreads(spreads, [len(fine.values) for fine in known])]
        for side, (centre, spread, noise) in enumerate((spreads * 2)[:2]):
            self.centre[side, known[0].columns] = centre
            flat = is_constant(centre, spread, noise)
            self.scale[side, known[0].columns] = torch.where(flat, centre.abs().clamp_min(1), spread)

    def wide(self, side: int) -> Tensor:
        """(f) bool: the columns of a side that must not be rounded to float32 before they are centred."""
        return torch.as_tensor(is_coarse(self.centre[side], self.scale[side]))

    def apply(self, x: Tensor, side: int, fine: Fine | None = None) -> Tensor:
        """(x − centre) / scale in float64, returned as float32 in x's shape.

        x is rounded to float32 first, but for the wide columns; `fine` has them where x is float32."""
        out, wide = torch.empty(x.shape), self.wide(side)  # filled part by part: no second copy of all rows is there
        for start in range(0, len(x), ROWS_AT_A_TIME):
            part = x[start : start + ROWS_AT_A_TIME]
            values = part.flatten(1).float().double()
            if x.dtype == torch.float64:
                values[:, wide] = part.flatten(1)[:, wide]
            elif fine is not None:
                kept = wide[fine.columns]
                values[:, fine.columns[kept]] = fine.values[start : start + ROWS_AT_A_TIME, kept]
            out[start : start + ROWS_AT_A_TIME] = ((values - self.centre[side]) / self.scale[side]).view(part.shape)
        return out

    def transform(self, problem: Problem) -> Problem:
        """The problem with both sides (and the test rows, as unlabelled ones) standardised."""
        return replace(
            problem,
            labelled=self._samples(problem.labelled, 0),
            unlabelled=self._samples(problem.unlabelled, 1),
            test=None if problem.test is None else self._samples(problem.test, 1),
        )

    def _samples(self, samples: Samples, side: int) -> Samples:
        x = samples.x if isinstance(samples, Arrays) else samples.inputs(torch.arange(len(samples)))
        return Arrays(self.apply(x, side, fine_of(samples)), samples.labels, samples.ids)


def sum_side(samples: Samples) -> tuple[Tensor, Tensor, Tensor]:
    """Count, total and square over all rows, chunk by chunk."""
    if not len(samples):
        return domain_sums(torch.zeros(0, 1))
    chunks = torch.arange(len(samples)).split(ROWS_AT_A_TIME)
    width = samples.inputs(chunks[0][:1]).numel()
    return summed((samples.inputs(rows).flatten(1).float() for rows in chunks), len(chunks), width)
