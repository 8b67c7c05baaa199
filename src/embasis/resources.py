"""What the machine has: memory, disk and threads, so that work which cannot fit is refused at once, not after hours.

What is needed is always a lower bound: work that would fit is never refused.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from embasis.errors import ResourceError, require

CONTROL_GROUP = Path("/sys/fs/cgroup")
_MEMORY_ERROR = re.compile(
    "not enough memory|out of memory|can(no|')t allocate memory|bad_alloc|failed to map segment|start new thread", re.I
)
PROBE_STACK_BYTES = 2**16
MORE_THREADS = "let other programs of yours end, or raise the limit (ulimit -u)"


def lacks_memory(error: BaseException) -> bool:
    """Whether an error says that memory was not there: Python's, torch's for the CPU and for a GPU, the loader's."""
    matches = isinstance(error, RuntimeError | ImportError) and _MEMORY_ERROR.search(str(error))
    return isinstance(error, MemoryError) or bool(matches)


def lacks_threads(error: BaseException) -> bool:
    """Whether an error says that the system did not start a thread, for want of processes or of memory."""
    return isinstance(error, RuntimeError) and "start new thread" in str(error)


@contextmanager
def explain_memory_errors(what: str, hint: str) -> Iterator[None]:
    """Memory that is not there becomes a ResourceError: what was being done, and what would need less."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        raise ResourceError(f"not enough memory for {what}; {hint}") from error


def free_memory() -> int:
    """Bytes that this process may still take: of the machine, of its control group, of its own limit."""
    limits = [_read_proc_field("/proc/meminfo", "MemAvailable:")]
    with suppress(OSError, ValueError):
        most, used = ((CONTROL_GROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        limits.append(int(most) - int(used))  # "max" is no number: there is no limit
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if address_space != resource.RLIM_INFINITY:
        limits.append(address_space - _read_proc_field("/proc/self/status", "VmSize:"))
    return max(0, min(limits))


def _read_proc_field(path: str, name: str) -> int:
    """A figure of /proc in bytes; without /proc as much as there can be."""
    with suppress(OSError), open(path) as lines:
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 2**62)
    return 2**62


def require_memory(need: int, what: str, hint: str) -> None:
    """Refuse work that cannot fit into memory."""
    free = free_memory() if need > 2**20 else need
    text = f"{what} needs {format_bytes(need)} of memory, {format_bytes(free)} is there; {hint}"
    require(need <= free, text, ResourceError)


def find_existing(folder: Path) -> Path:
    """The folder, or the first one above it that is there and that this user may enter."""
    place = folder.absolute()
    while not os.path.exists(place) and place != place.parent:
        place = place.parent
    return place


def require_writable(folder: Path, hint: str) -> None:
    """Refuse work whose results may not be written: the folder, which may be yet to be made, is closed to this user."""
    place = find_existing(folder)
    may_write = os.access(place, os.W_OK | os.X_OK) or not place.is_dir()
    require(may_write, f"cannot write {folder}: this user may not write in {place}; {hint}", ResourceError)


def require_disk(folder: Path, need: int, what: str, hint: str) -> None:
    """Refuse work that cannot fit on the disk of a folder, which may be yet to be made."""
    place = find_existing(folder)
    free = shutil.disk_usage(place).free
    text = f"{what} needs {format_bytes(need)} of disk, {format_bytes(free)} is free in {folder}; {hint}"
    require(need <= free, text, ResourceError)


def require_threads() -> None:
    """Refuse work for which the system would not start the threads, before a library needs one.

    torch, OpenMP and pyarrow end the process or wait for ever where they cannot start a thread. So as many as they may
    want are started here for an instant, unless address space is limited: every thread reserves some.
    """
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return
    setting = os.environ.get("OMP_NUM_THREADS", "")
    need = 8 + 2 * (int(setting) if setting.isdecimal() else os.cpu_count() or 1)
    release, threads, before = threading.Event(), list[threading.Thread](), threading.stack_size(PROBE_STACK_BYTES)
    try:
        for _ in range(need):
            thread = threading.Thread(target=release.wait, daemon=True)
            thread.start()
            threads.append(thread)
    except RuntimeError as error:
        text = f"{need} threads are needed, {len(threads)} can be started"
        raise ResourceError(f"{text}; {MORE_THREADS}") from error
    finally:
        release.set()
        threading.stack_size(before)
        for thread in threads:
            thread.join()


def format_bytes(count: int) -> str:
    """Bytes for people."""
    for unit, step in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if count >= step:
            return f"{count / step:.1f} {unit}"
    return f"{count / 1000:.0f} kB"
