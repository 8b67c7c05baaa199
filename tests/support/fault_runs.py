"""A whole fit whose N-th call to the disk fails, once or from then on: what it says and what it leaves."""

from __future__ import annotations

import errno
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli_tables import embasis
from embasis.errors import CheckpointError
from embasis.storage import atomic, checkpoints
from folder_runs import digests
from kill_runs import TINY
from storage_runs import CALLS, Faulty, temps

FULL = ("open", "write", "fsync", "mkdir")
"""What a full disk refuses; it still lets one delete."""
SHORT = 0
"""The code of a short write: half of the bytes, and no error."""
CODES = {"ENOSPC": errno.ENOSPC, "EDQUOT": errno.EDQUOT, "EIO": errno.EIO, "EACCES": errno.EACCES, "short": SHORT}


@dataclass(frozen=True)
class Fault:
    """One kind of failure at the call of that number."""

    name: str
    forever: bool
    at: int

    def disk(self) -> Faulty:
        kinds = CALLS
        if self.name == "short":
            kinds = ("write",)
        elif self.forever and self.name in ("ENOSPC", "EDQUOT"):
            kinds = FULL
        return Faulty(self.at, CODES[self.name], self.forever, kinds)

    @property
    def cleans(self) -> bool:
        """Whether the disk lets one clean up afterwards."""
        return not self.forever or self.name in ("ENOSPC", "EDQUOT", "short")


def artefacts(path: Path) -> dict[str, str]:
    """All that must be alike; error.json tells of the failure that there was."""
    return {name: value for name, value in digests(path).items() if name != "error.json"}


def try_fault(path: Path, fault: Fault, expected: dict[str, str], go_on: bool) -> tuple[bool, str]:
    """Whether the fault came, and what is wrong with what the fit said or left; '' if nothing is."""
    disk = fault.disk()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "disk", disk)
        result = embasis(*TINY, "-o", path)
    if not disk.fired:
        return False, "" if result.exit_code == 0 else result.stderr
    problem = judge(path, fault, expected, result.exit_code, result.stdout, result.stderr)
    if not problem and go_on:
        again = embasis(*TINY, "-o", path)
        if again.exit_code or artefacts(path) != expected or temps(path):
            problem = f"the same command does not end as the undisturbed one: {again.output}"
    return True, f"{fault}: {problem}" if problem else ""


def judge(path: Path, fault: Fault, expected: dict[str, str], code: int, out: str, err: str) -> str:
    """What is wrong after a fault."""
    if code == 0:  # nothing was lost: a short write that was continued, or the last word in the lock
        return "" if artefacts(path) == expected and not temps(path) else "a false success"
    if code != 5:
        return f"exit code {code}: {err}"
    if not err.startswith("embasis: cannot write ") or len(err.splitlines()) != 1:
        return f"stderr is {err!r}"
    if "done: " in out or "saved" in out + err or "\nwrote " in out:
        return f"it says that it saved: {out}{err}"
    if fault.cleans and temps(path):
        return f"left behind: {temps(path)}"
    return verified(path, err)


def verified(path: Path, err: str) -> str:
    """What is wrong with the generations; the one that the sentence names must be whole."""
    kept = err.partition("the last good generation ")[2].partition(" ")[0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = checkpoints.find_newest(path)
            if kept:
                checkpoints.load_generation(path, int(kept))
    except (CheckpointError, Warning) as error:
        return str(error)
    return "" if not kept or (found is not None and found.number >= int(kept)) else f"generation {kept} is not there"


def sweep(
    folder: Path, name: str, forever: bool, expected: dict[str, str], first: int = 1, step: int = 1, often: int = 20
) -> Iterator[str]:
    """What is wrong, fault by fault, until a fit runs through without one."""
    for number, at in enumerate(range(first, 5000, step)):
        path = folder / f"{name}-{forever}-{at}"
        fired, problem = try_fault(path, Fault(name, forever, at), expected, go_on=number % often == 0)
        shutil.rmtree(path, ignore_errors=True)
        if not fired:
            assert not problem
            return
        yield problem
    raise AssertionError("the fit never ran through")
