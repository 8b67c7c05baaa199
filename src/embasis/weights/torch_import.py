"""Weights from PyTorch's own files, which are pickles: checked here, read by a process in a sandbox.

Here a file is only parsed, with nothing that could run it: a pickle that names anything but tensors, their storages and
ordered dicts is refused. Of an archive only the parts that hold tensors go on, in a new archive, so that the worker
gets no other parts than were checked. The worker (`torch_import_worker.py`) has no network, opens no file, and returns
safetensors; what it returns is checked like any other foreign file.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickletools
import re
import stat
import struct
import subprocess
import sys
import zipfile
import zlib
from importlib.metadata import version
from pathlib import Path

from embasis.errors import ConfigError, CorruptError, ResourceError, UntrustedError, quote, require
from embasis.resources import MORE_THREADS

TORCH_SUFFIXES = (".bin", ".pt", ".pth")
LARGEST_TORCH_FILE = 8 * 2**30
LONGEST_PICKLE = 2**26
"""Bytes; the pickle of a network of ten thousand tensors has about a megabyte."""
LEGACY_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""How files begin that PyTorch wrote before its version 1.6: five pickles, then the numbers."""
ARCHIVE_PARTS = re.compile(r"([^/]+)/(data\.pkl|version|byteorder|\.format_version|\.storage_alignment|data/[0-9]+)")
STORAGE_TYPES = ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")
ALLOWED_NAMES = {
    "collections OrderedDict",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_tensor_v2",
    *(f"torch {kind}Storage" for kind in STORAGE_TYPES),
}
"""All that a pickle may name."""
REFUSED_OPCODES = {"EXT1", "EXT2", "EXT4", "INST", "NEWOBJ", "NEWOBJ_EX", "OBJ", "STACK_GLOBAL"}
"""Instructions that make objects in other ways; weights need none of them."""
OLDEST_TORCH = (2, 10)
"""Its reader of weights has no known hole."""
BROKEN_ARCHIVE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, RuntimeError, NotImplementedError, OSError,
    OverflowError,
)  # fmt: skip
"""What zipfile raises; the last one for an entry that lies 2⁶³ bytes on."""
WORKER_MODULE = "embasis.weights.torch_import_worker"
EXIT_REFUSED, EXIT_WRONG_KEY = 3, 2
"""How the worker ends when its standard error has the reason."""


def convert_torch_weights(path: str, key: str = "") -> tuple[bytes, int]:
    """The tensors of a PyTorch file, or of one entry of it, as the bytes of a safetensors file; and how many."""
    import safetensors.torch

    data = read_torch_file(path)
    release = re.match(r"(\d+)\.(\d+)", version("torch"))
    recent = release is not None and (int(release[1]), int(release[2])) >= OLDEST_TORCH
    require(recent, f"foreign weights are read with torch 2.10 or newer, this is {version('torch')}", ConfigError)
    answer = read_in_worker(path, filter_archive(path, data), key)
    try:
        tensors = safetensors.torch.load(answer)
    except (safetensors.SafetensorError, ValueError, LookupError, TypeError, RuntimeError) as error:
        raise CorruptError(f"{path}: the reader's answer is no safetensors file: {error}") from error
    broken = [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]
    counted = f"{len(broken)} of {len(tensors)} tensors hold NaN or inf"
    require(not broken, f"{path}: {counted}: {', '.join(broken[:3])}", CorruptError)
    facts = {"source_sha256": hashlib.sha256(data).hexdigest(), "source_bytes": str(len(data))}
    facts |= {"format": "pt", "imported_by": f"embasis {version('embasis')}"}
    return bytes(safetensors.torch.save(tensors, facts)), len(tensors)


def read_torch_file(path: str) -> bytes:
    """The bytes of a regular file with an ending of PyTorch's."""
    ending = Path(path).suffix.lower()
    plain = ending != ".safetensors"
    require(plain, f"{path} is a safetensors file already; give it as network.weights={path}", ConfigError)
    rule = f"only state dicts of PyTorch ({', '.join(TORCH_SUFFIXES)}) are imported"
    require(ending in TORCH_SUFFIXES, f"{path}: {rule}; a pickle of another kind could run code", UntrustedError)
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            facts = os.fstat(file.fileno())
            require(stat.S_ISREG(facts.st_mode), f"{path} is not a regular file", ConfigError)
            size = f"{path} has {facts.st_size:,} bytes, at most {LARGEST_TORCH_FILE:,} are read"
            require(facts.st_size <= LARGEST_TORCH_FILE, size, ResourceError)
            return file.read(LARGEST_TORCH_FILE)
    except OSError as error:
        if isinstance(error, ResourceError):
            raise
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def filter_archive(path: str, data: bytes) -> bytes:
    """The same tensors, in a file whose every pickle names tensors and nothing else."""
    if data.startswith(LEGACY_START):
        stream = io.BytesIO(data)
        for _ in range(5):
            refuse_names(path, stream)
        return data
    require(data.startswith(b"PK\x03\x04"), f"{path} is not a file that PyTorch has written", CorruptError)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            refuse_unusual_entries(path, entries)
            parts = {
                entry.filename: archive.read(entry) for entry in entries if ARCHIVE_PARTS.fullmatch(entry.filename)
            }
    except BROKEN_ARCHIVE as error:
        raise CorruptError(f"{path} is not a readable archive: {error}") from error
    pickles = [name for name in parts if name.endswith("/data.pkl")]
    require(len(pickles) == 1, f"{path} has {len(pickles)} pickles of tensors, 1 is needed", CorruptError)
    refuse_names(path, io.BytesIO(parts[pickles[0]]))
    with zipfile.ZipFile(clean := io.BytesIO(), "w", zipfile.ZIP_STORED) as archive:
        for name, part in parts.items():
            archive.writestr(zipfile.ZipInfo(name), part)  # of no time: archives know none before 1980
    return clean.getvalue()


def refuse_unusual_entries(path: str, entries: list[zipfile.ZipInfo]) -> None:
    """An archive of PyTorch's is not packed, has every name once and one folder, and holds no program."""
    names = [entry.filename for entry in entries]
    packed = [entry.filename for entry in entries if entry.compress_type or entry.file_size != entry.compress_size]
    require(not packed, f"{path}: {packed[:1]} is packed; PyTorch packs nothing", UntrustedError)
    require(len({*names}) == len(names), f"{path} has two entries of one name", UntrustedError)
    folders = {name.partition("/")[0] for name in names}
    require(len(folders) == 1, f"{path} has {len(folders)} folders, PyTorch makes one", UntrustedError)
    program = [name for name in names if re.match(r"[^/]+/(code/|constants\.pkl)", name)]
    require(not program, f"{path} is a program (TorchScript), not weights", UntrustedError)


def refuse_names(path: str, stream: io.BytesIO) -> None:
    """Go through a pickle, without running it, to its end; refuse whatever it names beside tensors."""
    start = stream.tell()
    rest = len(stream.getbuffer()) - start
    try:
        for code, argument, place in pickletools.genops(stream):
            require((place or start) - start < LONGEST_PICKLE, f"{path}: its pickle is too long", CorruptError)
            made = str(argument) if code.name == "GLOBAL" else code.name if code.name in REFUSED_OPCODES else ""
            safe = not made or made in ALLOWED_NAMES
            name = made.replace(" ", ".")
            require(safe, f"{path} names {quote(name)}; only tensors are imported, nothing is run", UntrustedError)
    except (ValueError, EOFError, IndexError, OverflowError, MemoryError, RecursionError) as error:
        raise CorruptError(f"{path}: its pickle of {rest:,} bytes cannot be read: {error}") from error


def read_in_worker(path: str, archive: bytes, key: str) -> bytes:
    """The tensors of an archive as safetensors, made by the worker."""
    seconds = 60 + len(archive) // 10**7
    command = [sys.executable, "-P", "-m", WORKER_MODULE, str(len(archive)), str(seconds), key]
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    environment = {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    require(
        hasattr(os, "memfd_create"), "import-weights shuts its reader in by means of Linux; use it there", ConfigError
    )
    answer = os.memfd_create("embasis-weights", os.MFD_CLOEXEC)
    try:
        done = subprocess.run(
            command, input=archive, stdout=answer, stderr=subprocess.PIPE, env=environment, timeout=4 * seconds,
            check=False,
        )  # fmt: skip
        with open(answer, "rb", closefd=False) as file:
            file.seek(0)
            tensors = file.read()
    except subprocess.TimeoutExpired as error:
        raise ResourceError(f"{path}: not read within {4 * seconds} s") from error
    except OSError as error:
        message = f"{path}: the process that reads it cannot be started: {error.strerror}"
        raise ResourceError(f"{message}; {MORE_THREADS}") from error
    finally:
        os.close(answer)
    reason = done.stderr[-2000:].decode(errors="replace").strip()
    require(done.returncode != EXIT_WRONG_KEY, f"{path}: {reason}", ConfigError)
    require(done.returncode != EXIT_REFUSED, f"{path}: {reason}", CorruptError)
    last = reason.rpartition("\n")[2] or f"it ended with {done.returncode}"
    require(done.returncode == 0, f"{path}: the process that reads it failed: {last}", CorruptError)
    return tensors
