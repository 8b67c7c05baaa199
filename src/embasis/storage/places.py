"""Where an output may go: never onto what is read, and never into a run folder; and whether a run folder is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from embasis.errors import ConfigError, ResourceError, require

PathLike = str | os.PathLike[str]


def require_apart(
    output: PathLike,
    inputs: Mapping[str, PathLike | None],
    *,
    folder: bool = False,
    run: bool = False,
    what: str = "output",
) -> None:
    """Refuse an output that is one of these inputs or lies in one, and one that lies in any run folder.

    Links, hard links and other spellings of a path are seen through. `inputs` are named for the sentence; None and what
    does not exist is passed over. `folder`: the output is a folder, which must not contain an input either. `run`: it
    is to be a run folder itself.
    """
    name = os.fspath(output)
    require(name, f"{what} must be a path, got ''", ConfigError)
    for kind, given in inputs.items():
        if given is None or not os.path.exists(given):
            continue
        words = f"{kind} {os.fspath(given)}"
        require(not is_same(name, given), f"{what} {name} is {words} itself; name another place", ConfigError)
        inside = any(is_same(place, given) for place in list_parents(name))
        require(not inside, f"{what} {name} lies in {words}; name a place outside of it", ConfigError)
        around = folder and os.path.isdir(name) and any(is_same(place, name) for place in list_parents(given))
        require(not around, f"{what} {name} contains {words}; name another place", ConfigError)
    require(run or not is_run_folder(name), f"{what} {name} is a run folder; name another place", ConfigError)
    found = next((place for place in list_parents(name) if is_run_folder(place)), "")
    require(not found, f"{what} {name} lies in the run folder {found}; name a place outside of it", ConfigError)


def is_same(one: PathLike, other: PathLike) -> bool:
    """Whether two paths lead to the same file or folder."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samestat(os.stat(one), os.stat(other))
    except OSError:
        return False


def list_parents(path: PathLike) -> tuple[str, ...]:
    """The folders in which a path lies, the nearest first; without links."""
    return tuple(str(place) for place in Path(os.path.realpath(path)).parents)


def is_run_folder(path: PathLike) -> bool:
    """Whether a folder is one of a run: no other one is likely to have both."""
    return os.path.isfile(os.path.join(path, "HEAD")) and os.path.isdir(os.path.join(path, "generations"))


def lost_folder_error(folder: PathLike, lock: int) -> ResourceError | None:
    """The error to raise when the lock of a run folder is no longer the open one: somebody took the folder away."""
    try:
        if os.path.samestat(os.fstat(lock), os.lstat(os.path.join(folder, "lock"))):
            return None
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:
        return None  # nothing is known; the next write will tell
    told = f"run folder {os.fspath(folder)} is gone: it or its lock was deleted, moved or replaced during the run"
    return ResourceError(f"{told}; nothing is written at its old place; move it back and the same command goes on")
