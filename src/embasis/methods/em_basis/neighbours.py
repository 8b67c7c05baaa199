"""The part `neighbours`: a second opinion of each label, by the network's view of the nearest unlabelled sites.

| symbol | shape | meaning |
| --- | --- | --- |
| x | n d | prepared sites |
| bank | m d | prepared unlabelled sites that are kept with the model, at most MOST_KEPT |
| q | m C | the network's probabilities of the kept sites, as they enter the fusion |

A network that has been trained on a site's own pseudo-label confirms it. Its opinion of the sites around is another
one: they have other pseudo-labels, or none. Where both differ, a label is unsure, whatever each says (decision 0032).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from embasis.errors import ConfigError, check_not_negative, require
from embasis.functional.moments import Moments
from embasis.functional.neighbours import neighbour_moments, pool_moments
from embasis.functional.remembered import remember_memory
from embasis.methods.em_basis.features import is_unlabelled
from embasis.randomness import uniforms
from embasis.types import Features, Stream

MOST_KEPT = 1024
"""The most sites that are kept: more of them rank labels no better (benchmarks/notes/0032)."""


@remember_memory
def draw_kept(seed: int, *ids: Tensor) -> Tensor:
    """Numbers of the sites that are kept, rising."""
    key = uniforms(torch.cat(ids), seed, "neighbours")
    return torch.argsort(key, stable=True)[:MOST_KEPT].sort().values


@remember_memory
def take_kept(kept: Tensor, *parts: Tensor) -> Tensor:
    """The kept ones of all sites."""
    sizes = [len(part) for part in parts]
    chunk = torch.repeat_interleave(torch.arange(len(parts)), torch.tensor(sizes))[kept]
    first = torch.tensor([0, *sizes[:-1]]).cumsum(0)
    return torch.cat([part[kept[chunk == number] - first[number]] for number, part in enumerate(parts)])


@dataclass(frozen=True)
class Neighbours:
    """The mean opinion of the nearest kept sites, pooled with each site's own label distribution.

    Parameters
    ----------
    count : neighbours of a site
    share : their weight in the label distribution, 0 = none; the site's own has the rest
    """

    count: int = 10
    share: float = 1 / 3

    def __post_init__(self) -> None:
        check_not_negative(self, "share")
        require(self.count >= 1, f"count must be 1 or more, got {self.count}", ConfigError)
        require(self.share <= 1, f"share must be at most 1, got {self.share}", ConfigError)

    def draw_sites(self, stream: Stream, seed: int) -> Features | None:
        """The unlabelled sites that are kept, drawn by their ids; None where there are none, or rows have many sites.

        Sites of one picture, and a sample with classes in equal parts, are no neighbourhood: there labels got worse."""
        parts = [part for part in stream if is_unlabelled(part)]
        if not parts or any(part.grid or part.weight is not None for part in parts):
            return None
        kept = draw_kept(seed, *(part.ids for part in parts))
        columns = zip(*((part.x, part.scores, part.y, part.ids) for part in parts), strict=True)
        x, scores, y, ids = (take_kept(kept, *column) for column in columns)
        return Features(x, scores, y, ids)

    def pool(self, moments: Moments, x: Tensor, kept: tuple[Tensor, Tensor]) -> Moments:
        """The label distribution of prepared sites with what their neighbours say; `kept`: bank and q."""
        if self.share == 0:
            return moments
        mean, second = neighbour_moments(x, *kept, self.count)
        return pool_moments(moments, mean, second, self.share)
