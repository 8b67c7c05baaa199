"""A process enters a sandbox: no network, no other program, no file opened or changed, little memory, little time.

Linux only. The kernel keeps these rules (a seccomp filter, a network namespace where that is allowed, resource limits),
so they hold whatever code comes to run in the process afterwards.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
from collections.abc import Sequence

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 4, 22, 38, 2
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050001, 0x80000000
"""What a filter returns: go on, EPERM, the end of the process."""
LOAD, JUMP_EQUAL, JUMP_FROM, RETURN = 0x20, 0x15, 0x35, 0x06
"""Instructions: load a word, jump if equal, jump if not less, return."""
OTHER_CALLS = 0x40000000
"""x86_64 numbers from here on are a second table of the same calls."""
REFUSED_CALLS = {
    "x86_64": (
        0xC000003E,
        (41, 53, 59, 322, 101, 310, 311, 425, 62, 200, 2, 85, 257, 437, 76, 82, 264, 316, 87, 263, 84, 83, 258, 86, 265,
         88, 266, 133, 259, 90, 268, 92, 260),
    ),
    "aarch64": (
        0xC00000B7,
        (198, 199, 221, 281, 117, 270, 271, 425, 129, 130, 56, 437, 45, 38, 276, 35, 34, 37, 36, 33, 53, 54),
    ),
}  # fmt: skip
"""The kernel's mark of an architecture, and its numbers of socket, socketpair, execve, execveat, ptrace,
process_vm_readv and _writev, io_uring_setup, kill, tkill; then of open, creat, truncate, rename, unlink, rmdir, mkdir,
link, symlink, mknod, chmod and chown, in all their forms."""


def enter_sandbox(memory: int, seconds: int, written: int) -> bool:
    """From here on so many more bytes of memory, seconds of processor time and bytes written. False if that fails."""
    set_limit(resource.RLIMIT_AS, measure_memory() + memory)
    set_limit(resource.RLIMIT_CPU, seconds)
    set_limit(resource.RLIMIT_FSIZE, written)
    set_limit(resource.RLIMIT_CORE, 0)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET) != 0:
            libc.unshare(CLONE_NEWUSER | CLONE_NEWNET)  # where neither is allowed the filter alone must do
        return refuse_calls(libc)
    except (OSError, AttributeError):
        return False


def set_limit(kind: int, value: int) -> None:
    """A limit that cannot be raised again; a stricter one stays."""
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def measure_memory() -> int:
    """Bytes of address space that this process has now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def refuse_calls(libc: ctypes.CDLL) -> bool:
    """A filter that refuses the CALLS of this machine, to this process and to all that it may start."""
    if platform.machine() not in REFUSED_CALLS:
        return False
    code = encode_filter(*REFUSED_CALLS[platform.machine()])
    buffer = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HL", len(code) // 8, ctypes.addressof(buffer)))
    zero, address = ctypes.c_ulong(0), ctypes.c_ulong(ctypes.addressof(program))
    libc.prctl(PR_SET_DUMPABLE, zero, zero, zero, zero)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero) != 0:
        return False
    return bool(libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), address, zero, zero) == 0)


def encode_filter(mark: int, refused: Sequence[int]) -> bytes:
    """Another architecture: killed. One of the refused calls, or of the second table: EPERM. All others go on."""
    last = len(refused)
    lines = [
        (LOAD, 0, 0, 4),
        (JUMP_EQUAL, 1, 0, mark),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, 0),
        (JUMP_FROM, last + 1, 0, OTHER_CALLS),
        *((JUMP_EQUAL, last - place, 0, number) for place, number in enumerate(refused)),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, REFUSE),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
