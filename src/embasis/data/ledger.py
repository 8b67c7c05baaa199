"""The ledger of a run: every file that was met is accounted for, exactly.

    seen = used + unselected + quarantined + refused

| part | files |
| --- | --- |
| used | labelled and test rows; unlabelled rows whose label is trusted in the round that is kept; pictures of maps |
| unselected | unlabelled rows whose label is not trusted |
| quarantined | damaged, changed or gone, found by the scan, by reading all of them, or while training |
| refused | left out by a rule: links, pipes, files beside the class folders, classes that nobody learns |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from embasis.errors import EmbasisError, require
from embasis.types import Problem, RejectedFile

LABELLED, UNLABELLED, TEST = "labelled", "unlabelled", "test"


@dataclass(frozen=True)
class Account:
    """What became of the files of one side."""

    seen: int
    used: int
    unselected: int
    quarantined: int
    refused: int

    def __str__(self) -> str:
        parts = asdict(self)
        seen = parts.pop("seen")
        return f"{seen:,} seen = " + " + ".join(f"{count:,} {name}" for name, count in parts.items())

    @property
    def is_even(self) -> bool:
        """Whether every file is accounted for."""
        return self.seen == self.used + self.unselected + self.quarantined + self.refused


def account_for_files(
    problem: Problem, late: Mapping[str, Sequence[RejectedFile]], trusted: int | None
) -> dict[str, Account]:
    """The account of each side; `late`: rows that were lost while training; `trusted`: None where all rows are used."""
    sides = {LABELLED: problem.labelled, UNLABELLED: problem.unlabelled, TEST: problem.test}
    accounts = {}
    for name, side in sides.items():
        if side is None:
            continue
        refused = [item for item in problem.rejected if item.side == name]
        lost = len({item.name for item in late.get(name, ())})
        rows = len(side) - lost
        chosen = min(trusted, rows) if name == UNLABELLED and trusted is not None else rows
        left = _count_kind(refused, "refused")
        damaged = _count_kind(refused, "quarantined") + lost
        account = Account(_seen(problem, name, len(side), refused), chosen, rows - chosen, damaged, left)
        require(account.is_even, f"the ledger of the {name} side does not add up: {account}", EmbasisError)
        accounts[name] = account
    return accounts


def _count_kind(refused: Iterable[RejectedFile], kind: str) -> int:
    return sum(item.kind == kind for item in refused)


def _seen(problem: Problem, name: str, rows: int, refused: Sequence[RejectedFile]) -> int:
    """Files that were met, with those that a person's labels have moved to another side; all rows of a table."""
    if problem.files_seen is None or name not in problem.files_seen:
        return rows + _count_kind(refused, "quarantined") + _count_kind(refused, "refused")
    moved = {LABELLED: problem.corrected, UNLABELLED: -problem.corrected}.get(name, 0)
    return problem.files_seen[name] + moved
