"""Published sets of rows from several domains, each in one .npz file with `X`, `y` and `domain`.

| set | rows | a row | classes | domains |
| --- | --- | --- | --- | --- |
| WISDM (Kwapisz et al. 2010) | 7,292 windows of a phone's accelerometer | 42 statistics | 6 activities | 36 people |
| gas drift (Vergara et al. 2012) | 6,697 measurements | 128 of 16 sensors | 6 gases | 8 of 10 batches, 36 months |
| heart disease (Detrano et al. 1989) | 920 patients | 13 findings, gaps filled | no, yes | 4 hospitals |
| Amazon reviews (Blitzer et al. 2007) | 7,996 reviews | shares of 400 words | 2 sentiments | 4 kinds of goods |
| spoken digits (FSDD, Jackson 2016) | 3,000 recordings | log-mel, 40 bands × 48 times | 10 digits | 6 speakers |

| array | meaning |
| --- | --- |
| X (N, …) | numbers, as they are: vectors are standardised later, like those of tables |
| y (N) | class numbers 0 … C − 1 |
| domain (N) | the name of each row's domain |

A row's id is its number in the file. Not every domain has every class: the classes of a problem are those of its
source, in the order of their numbers, and a target that has others is refused, as with tables. The files come without a
licence or for research use and are not ours to ship: `root`, else the variable EMBASIS_DATA, else `../shared/data`
names their folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from embasis.data.class_labels import quote_names
from embasis.data.datasets.digit_sets import LARGEST_PACK
from embasis.data.datasets.domain_sets import GOODS, HOSPITALS, SPEAKERS, find_data_folder, require_domains
from embasis.data.formats import open_pack
from embasis.data.problem import Side, check_numbers, join_sides, to_float32
from embasis.data.standardise import find_fine_columns
from embasis.errors import InputDataError, require
from embasis.types import PathLike, Problem


@dataclass(frozen=True)
class ArraySet:
    """What must be in the file of a set; it may hold other arrays, too, which are not read."""

    name: str
    file: str
    shape: tuple[int, ...]
    """Of one row: a vector, or the height and width of a picture with one channel."""
    classes: tuple[str, ...]
    domains: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ArrayRows:
    """The rows of all domains: x (N, …), y (N) in 0 … C − 1, domain (N)."""

    path: Path
    x: NDArray[Any]
    y: NDArray[Any]
    domain: NDArray[Any]


WISDM = ArraySet(
    "wisdm", "wisdm_windows_feat.npz", (42,),
    ("downstairs", "jogging", "sitting", "standing", "upstairs", "walking"),
    tuple(f"s{person:02}" for person in range(36)),
)  # fmt: skip
GAS_DRIFT = ArraySet(
    "gas_drift", "gas_drift.npz", (128,),
    ("ethanol", "ethylene", "ammonia", "acetaldehyde", "acetone", "toluene"),
    tuple(f"batch{batch:02}" for batch in (1, 2, 3, 4, 5, 6, 8, 9)),
)  # fmt: skip
HEART_DISEASE = ArraySet("heart_disease", "heart_disease.npz", (13,), ("no", "yes"), HOSPITALS)
AMAZON_REVIEWS = ArraySet("amazon_reviews", "amazon400.npz", (400,), ("0", "1"), GOODS)
SPOKEN_DIGITS = ArraySet("spoken_digits", "fsdd_logmel.npz", (40, 48), tuple("0123456789"), SPEAKERS)


def wisdm(root: PathLike | None = None, source: str = "s07", target: str = "s18") -> Problem:
    """WISDM: six activities by a phone's accelerometer, from one of 36 people (s00 to s35) to another."""
    return _array_problem(WISDM, root, source, target)


def gas_drift(root: PathLike | None = None, source: str = "batch01", target: str = "batch02") -> Problem:
    """Six gases by 16 sensors that drift over months: batches 1 to 6, 8 and 9, of unlike class shares."""
    return _array_problem(GAS_DRIFT, root, source, target)


def heart_disease(root: PathLike | None = None, source: str = "cleveland", target: str = "hungarian") -> Problem:
    """Heart disease, no or yes, at four hospitals of unlike class shares: judge it by the mean of the classes."""
    return _array_problem(HEART_DISEASE, root, source, target)


def amazon_reviews(root: PathLike | None = None, source: str = "books", target: str = "dvd") -> Problem:
    """Amazon reviews: two sentiments by 400 words, four kinds of goods."""
    return _array_problem(AMAZON_REVIEWS, root, source, target)


def spoken_digits(root: PathLike | None = None, source: str = "george", target: str = "jackson") -> Problem:
    """Spoken digits as log-mel pictures (1, 40, 48), six speakers; `standardise=domain` evens their microphones out."""
    return _array_problem(SPOKEN_DIGITS, root, source, target)


def _array_problem(kind: ArraySet, root: PathLike | None, source: str, target: str) -> Problem:
    """All rows of the source are labelled, all of the target are not; its true labels are hidden."""
    require_domains(kind.name, dict.fromkeys(kind.domains), source, target)
    rows = read_array_set(kind, find_data_folder(root))
    labelled, unlabelled = (_array_side(kind, rows, domain) for domain in (source, target))
    extra = unlabelled.classes - labelled.classes
    lacking = f"{kind.name}: {target} has classes that {source} lacks: {quote_names(extra)}"
    require(not extra, f"{lacking}; take a source that has them")
    return join_sides(labelled, unlabelled, names=[name for name in kind.classes if name in labelled.classes])


def _array_side(kind: ArraySet, rows: ArrayRows, domain: str) -> Side:
    """The rows of a domain."""
    numbers = np.flatnonzero(rows.domain == domain)
    require(len(numbers) > 0, f"{kind.name}: {rows.path} has no rows of {domain}")
    x = check_numbers(rows.x[numbers], f"{rows.path}: X of {domain}")
    x = x[:, None] if len(kind.shape) == 2 else x
    labels = [kind.classes[number] for number in rows.y[numbers].tolist()]
    return Side(f"{kind.name} {domain}", to_float32(x), labels, torch.from_numpy(numbers), find_fine_columns(x))


def read_array_set(kind: ArraySet, root: Path) -> ArrayRows:
    """The three arrays of a set, which agree with each other and with the set; no pickle is read."""
    path = root / kind.file
    require(path.is_file(), f"{kind.name}: no file {path.name} in {root}; set --root or EMBASIS_DATA")
    fault = "not a pack with X, y, domain"
    try:
        with open_pack(path, LARGEST_PACK, fault) as pack:
            x, y, domain = (pack.read(name) for name in ("X", "y", "domain"))
    except OSError as error:
        raise InputDataError(f"{path}: {fault}: {error}") from error
    count, sizes, known = len(x) if x.ndim else 0, ", ".join(map(str, kind.shape)), len(kind.classes)
    fits = x.dtype.kind in "fiu" and x.shape == (count, *kind.shape) and y.shape == domain.shape == (count,)
    rule = f"{path}: X must be numbers (N, {sizes}), y N whole numbers, domain N names"
    got = ", ".join(f"{array.dtype} {array.shape}" for array in (x, y, domain))
    require(fits and y.dtype.kind in "iu" and domain.dtype.kind == "U", f"{rule}, got {got}")
    low, high = int(y.min()), int(y.max())
    require(low >= 0 and high < known, f"{path}: y must be in 0..{known - 1}, got {low}..{high}")
    return ArrayRows(path, x, y, domain)
