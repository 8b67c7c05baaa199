"""Hostile files, made by code: pickles that leave a canary, malformed safetensors, archives and settings.

Every payload, if it were run, would make the canary file; every text holds MARK, so that no part of it can be compiled
unseen.
"""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

MARK = "embasis_hostile_mark"


def text(value: str) -> bytes:
    """BINUNICODE."""
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def payloads(canary: Path) -> dict[str, bytes]:
    """Pickles of every protocol that would make the canary file, each in a way of its own."""
    shell = f"touch {canary} # {MARK}"
    python = f"open({str(canary)!r}, 'w').close() # {MARK}"
    one = text(shell) + b"\x85R."
    code = text(python) + b"\x85R."
    return {
        "global os.system": b"\x80\x02cos\nsystem\n" + one,
        "global posix.system": b"\x80\x02cposix\nsystem\n" + one,
        "stack global": b"\x80\x04" + text("os") + text("system") + b"\x93" + one,
        "text protocol": f"cos\nsystem\n(S{shell!r}\ntR.".encode(),
        "inst": f"(S{shell!r}\nios\nsystem\n.".encode(),
        "obj": b"(cos\nsystem\n" + text(shell) + b"o.",
        "builtins exec": b"\x80\x02cbuiltins\nexec\n" + code,
        "builtins eval": b"\x80\x02cbuiltins\neval\n" + text(f"exec({python!r})") + b"\x85R.",
        "dunder builtin": b"\x80\x02c__builtin__\nexec\n" + code,
        "subprocess": b"\x80\x02csubprocess\ncheck_output\n](" + text("touch") + text(str(canary)) + b"e\x85R.",
        "popen": b"\x80\x02cos\npopen\n" + one,
        "runpy": b"\x80\x02crunpy\nrun_path\n" + text(str(canary)) + b"\x85R.",
        "code": b"\x80\x02ccode\nInteractiveInterpreter\n)Rcbuiltins\ngetattr\n0" + code,
        "timeit": b"\x80\x02ctimeit\ntimeit\n" + code,
        "pathlib": b"\x80\x02cpathlib\nPath.touch\ncpathlib\nPosixPath\n" + text(str(canary)) + b"\x85R\x85R.",
        "io open": b"\x80\x02cio\nopen\n" + text(str(canary)) + text("w") + b"\x86R.",
        "socket": b"\x80\x02csocket\ncreate_connection\n" + text("127.0.0.1") + b"K\x09\x86\x85R.",
        "ctypes": b"\x80\x02cctypes\nCDLL\n" + text("/tmp/no-such-library.so") + b"\x85R.",
        "import": b"\x80\x02cbuiltins\n__import__\n" + text("antigravity") + b"\x85R.",
        "torch load": b"\x80\x02ctorch.serialization\nload\n" + text(str(canary)) + b"\x85R.",
        "numpy load": b"\x80\x02cnumpy\nload\n" + text(str(canary)) + b"\x85R.",
        "joblib": b"\x80\x04" + text("joblib.numpy_pickle") + text("load") + b"\x93" + text(str(canary)) + b"\x85R.",
        "new object": b"\x80\x02csubprocess\nPopen\n" + text(f"touch {canary}") + b"\x85\x81.",
        "extension": b"\x80\x02\x82\x01.",
        "frame": pickle.dumps(_Run(shell), 5),
        "nested": pickle.dumps({"x": [(_Run(shell),)]}, 4),
        "memo": pickletools.optimize(pickle.dumps([_Run(shell), _Run(shell)], 2)),
    }


class _Run:
    """Unpickled, it calls the shell."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        import os

        return os.system, (self.command,)


# --- carriers of a payload


def npy_object(payload: bytes) -> bytes:
    """A `.npy` file whose header says objects, with the payload behind it."""
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    header += b" " * (117 - len(header)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + payload


def zipped(parts: Mapping[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    with zipfile.ZipFile(stream := io.BytesIO(), "w", packing) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return stream.getvalue()


def plain_npy(array: Any) -> bytes:
    np.save(stream := io.BytesIO(), array, allow_pickle=False)
    return stream.getvalue()


def as_tables(payload: bytes) -> dict[str, bytes]:
    """The payload as each kind of table that is read, by file name."""
    rows = plain_npy(np.zeros((4, 8), np.float32))
    return {
        "raw.npy": payload,
        "object.npy": npy_object(payload),
        "object.npz": zipped({"x.npy": npy_object(payload), "y.npy": plain_npy(np.arange(4) % 2)}),
        "label.npz": zipped({"x.npy": rows, "y.npy": npy_object(payload)}),
        "raw.npz": zipped({"x.npy": payload}),
        "raw.csv": payload,
        "raw.parquet": b"PAR1" + payload + struct.pack("<I", len(payload)) + b"PAR1",
    }


def polyglots(payload: bytes, clean: bytes) -> dict[str, bytes]:
    """Files that are two things at once."""
    return {
        "zip behind.csv": b"a,b,label\n1,2,x\n" + zipped({"x.npy": payload}),
        "pickle behind.npy": plain_npy(np.zeros((4, 8))) + payload,
        "pickle before.npz": payload + zipped({"x.npy": npy_object(payload)}),
        "pickle behind.parquet": clean + payload,
        "array named.npz": plain_npy(np.zeros((4, 8))),
        "archive named.npy": zipped({"x.npy": plain_npy(np.zeros((4, 8)))}),
        "text named.parquet": b"a,b,label\n1,2,x\n",
    }


# --- safetensors


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file with this header, which may lie about its own length."""
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(head) if length is None else length) + head + data


def entry(shape: list[Any], start: Any, end: Any, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def malformed() -> dict[str, bytes]:
    """Safetensors that lie."""
    eight, twice = bytes(8), b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
    return {
        "empty": b"",
        "short": b"\x08\0\0",
        "header of 4 GB": safetensors({}, length=2**32),
        "header of 2^63": safetensors({}, length=2**63),
        "header longer than the file": safetensors({}, length=4096),
        "no JSON": safetensors(b"not json"),
        "a list": safetensors([1, 2]),
        "deep": safetensors(b"[" * 50_000),
        "deep metadata": safetensors(b'{"__metadata__":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_001),
        "NaN": safetensors(b'{"a": NaN}'),
        "not UTF-8": safetensors(b'{"\xff\xfe":{}}'),
        "overlap": safetensors({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, bytes(12)),
        "the same bytes twice": safetensors({"a": entry([2], 0, 8), "b": entry([2], 0, 8)}, eight),
        "a hole": safetensors({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, bytes(12)),
        "duplicate key": safetensors(twice + b'"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', eight),
        "shape of 10^12": safetensors({"a": entry([10**12], 0, 8)}, eight),
        "shape that overflows": safetensors({"a": entry([2**32, 2**32, 4], 0, 8)}, eight),
        "negative shape": safetensors({"a": entry([-1], 0, 4)}, bytes(4)),
        "shape of words": safetensors({"a": entry(["2"], 0, 8)}, eight),
        "dtype lie": safetensors({"a": entry([2], 0, 8, "F64")}, eight),
        "unknown dtype": safetensors({"a": entry([2], 0, 8, "O")}, eight),
        "dtype with code": safetensors({"a": entry([2], 0, 8, "__import__('os')")}, eight),
        "trailing bytes": safetensors({"a": entry([2], 0, 8)}, bytes(64)),
        "cut off": safetensors({"a": entry([2], 0, 8)}, bytes(4)),
        "end before start": safetensors({"a": entry([2], 8, 0)}, eight),
        "offset beyond the end": safetensors({"a": entry([2], 2**62, 2**62 + 8)}, eight),
        "negative offset": safetensors({"a": entry([2], -8, 0)}, eight),
        "fraction": safetensors({"a": entry([2], 0.5, 8.5)}, eight),
        "no fields": safetensors({"a": {}}),
        "metadata of numbers": safetensors({"__metadata__": {"a": 1}, "a": entry([2], 0, 8)}, eight),
        "bool of 7": safetensors({"a": entry([8], 0, 8, "BOOL")}, b"\x07" * 8),
        "many names": safetensors({f"t{i}": entry([0], 0, 0) for i in range(20_000)}),
    }  # fmt: skip


# --- archives


def bombs() -> dict[str, bytes]:
    """Small files that claim or unpack to gigabytes."""
    claim = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(claim)) + claim
    inner = zipped({"x.npy": head + bytes(10**7)}, zipfile.ZIP_DEFLATED)
    many = {f"x{i}.npy": b"" for i in range(20_000)}
    data = bytearray(zipped({"x.npy": plain_npy(np.zeros((4, 8)))}))
    at = data.find(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 2**32 - 2)
    return {
        "claims 4 TB.npy": head + bytes(100),
        "packed zeros.npz": inner,
        "in itself.npz": zipped({"x.npy": inner}, zipfile.ZIP_DEFLATED),
        "many entries.npz": zipped(many),
        "lies about its size.npz": bytes(data),
        "two of one name.npz": _twice(),
        "a path.npz": zipped({"../../x.npy": plain_npy(np.zeros((4, 8)))}),
        "absolute.npz": zipped({"/tmp/x.npy": plain_npy(np.zeros((4, 8)))}),
        "header of 4 GB.npy": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{",
        "deep header.npy": _header(b"(" * 9_000),
        "code header.npy": _header(f"{{'descr': __import__('os').system('{MARK}'), 'shape': (1,)}}".encode()),
        "huge number.npy": _header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (9" + b"9" * 5_000 + b",)}"),
        "negative.npy": _header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -8)}"),
    }


def _header(text: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def _twice() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("x.npy", plain_npy(np.zeros((4, 8))))
        archive.writestr("y.npy", plain_npy(np.arange(4) % 2))
    return stream.getvalue().replace(b"y.npy", b"x.npy")


# --- settings


def configs() -> dict[str, bytes]:
    """Files of settings that try to be more than settings."""
    return {
        "tag.toml": f"method: !!python/object/apply:os.system ['{MARK}']".encode(),
        "alias bomb.toml": b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]",
        "twice.toml": b"seed = 1\nseed = 2",
        "table twice.toml": b"[plan]\nrounds = 1\n[plan]\nrounds = 2",
        "target.toml": f"[method]\nname = 'em_basis'\n_target_ = 'os.{MARK}'".encode(),
        "import path.toml": b"[method]\nname = 'os.system'",
        "dunder.toml": b"[method]\nname = '__import__'\n[network]\nname = '__class__'",
        "dunder key.toml": b"[plan]\n__class__ = 1\n__init__ = 2",
        "shell.toml": b"[data]\ndataset = '$(touch canary); `touch canary` | touch canary'",
        "template.toml": b"[data]\ndataset = '{{ 7*7 }} ${7*7} {0.__class__}'",
        "deep.toml": b"a = " + b"[" * 5_000,
        "deep tables.toml": b"a" + b".a" * 3_000 + b" = 1",
        "huge number.toml": b"seed = 9" + b"9" * 6_000,
        "infinite.toml": b"save_seconds = inf",
        "not a number.toml": b"save_seconds = nan",
        "date.toml": b"seed = 1979-05-27T07:32:00Z",
        "NUL.toml": b"seed = \x00",
        "not UTF-8.toml": b"seed = \xff\xfe",
        "byte order.toml": b"\xff\xfes\x00e\x00e\x00d\x00",
        "a million keys.toml": b"[plan]\n" + b"".join(b"k%d = 1\n" % i for i in range(100_000)),
        "list.json": b"[]",
        "deep.json": b"[" * 100_000,
        "NaN.json": b'{"seed": NaN}',
        "twice.json": b'{"seed": 1, "seed": 2, "method": {"name": "x", "name": "y"}}',
        "surrogate.json": b'{"method": {"name": "\\ud800"}}',
        "huge.json": b'{"seed": 1' + b"0" * 5_000 + b"}",
        "path.toml": b"[network]\nname = 'timm:../../../etc/passwd'\nweights = '../../../../etc/passwd'",
        "device.toml": b"[network]\nname = 'timm:test_resnet'\nweights = '/dev/zero'",
        "preset.toml": b"preset = '../../../etc/passwd'",
        "escape.toml": b'[method]\nname = "\\u001b]0;owned\\u0007"',
    }
