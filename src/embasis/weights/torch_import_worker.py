"""A process that reads one PyTorch file: `python -m embasis.weights.torch_import_worker BYTES SECONDS KEY`.

The file comes on standard input, the tensors leave on standard output as safetensors; `torch_import.py` has checked
the file before. Once torch is there and has read a file of our own, the process enters its sandbox (`sandbox.py`), and
only then reads the foreign one.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from safetensors.torch import save
from torch import Tensor

from embasis.weights.sandbox import enter_sandbox
from embasis.weights.torch_import import EXIT_REFUSED, EXIT_WRONG_KEY

SPARE_BYTES = 2**28
"""Bytes of memory and of the answer beyond what the file itself is long."""
TENSOR_TYPES = {
    torch.bfloat16, torch.bool, torch.float16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32,
    torch.int64, torch.uint8,
}  # fmt: skip


def convert_stdin(size: int, seconds: int, key: str) -> None:
    """Read the file, enter the sandbox, convert, write the tensors."""
    data = sys.stdin.buffer.read(size)
    rehearse()
    if not enter_sandbox(SPARE_BYTES + 6 * size, seconds, SPARE_BYTES + 3 * size):
        exit_with(EXIT_REFUSED, "this system cannot shut a process in (seccomp), so no foreign weights are read here")
    try:
        loaded = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except Exception as error:
        exit_with(
            EXIT_REFUSED,
            f"PyTorch cannot read its tensors: {type(error).__name__}: {str(error).split(chr(10))[0][:300]}",
        )
    answer = save(copy_dense(find_state_dict(loaded, key), 2 * size + SPARE_BYTES))
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()


def rehearse() -> None:
    """Do it once with tensors of our own: all that is imported on the way is imported while files can be opened."""
    for form in (True, False):
        torch.save({"a": torch.nn.Parameter(torch.ones(2))}, file := io.BytesIO(), _use_new_zipfile_serialization=form)
        file.seek(0)
        save(copy_dense(torch.load(file, weights_only=True, map_location="cpu"), SPARE_BYTES))
    try:
        torch.load(io.BytesIO(b"PK\x03\x04"), weights_only=True)
    except Exception as error:
        str(error)


def find_state_dict(loaded: Any, key: str) -> Mapping[Any, Any]:
    """The state dict: the file's one object, or that entry of it."""
    if key:
        entries = list(loaded) if isinstance(loaded, Mapping) else []
        if key not in entries:
            exit_with(EXIT_WRONG_KEY, f"there is no entry {key!r}; there are: {name_first(entries)}")
        loaded = loaded[key]
    if not isinstance(loaded, Mapping) or not loaded:
        exit_with(EXIT_REFUSED, f"a state dict is needed, got {type(loaded).__name__}")
    return loaded


def copy_dense(state: Mapping[Any, Any], most: int) -> dict[str, Tensor]:
    """Copies of the tensors; refused if anything else is among them, or if they would take more than `most` bytes."""
    wrong = [name for name, value in state.items() if not is_dense_tensor(name, value)]
    if wrong:
        inner = [name for name, value in state.items() if isinstance(value, Mapping)]
        hint = f"; --key takes one of its entries: {name_first(inner)}" if inner else ""
        exit_with(EXIT_REFUSED, f"{len(wrong)} of {len(state)} entries are no dense tensors: {name_first(wrong)}{hint}")
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    if size > most:
        exit_with(EXIT_REFUSED, f"its tensors claim {size:,} bytes, more than the file can hold")
    return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}


def is_dense_tensor(name: Any, value: Any) -> bool:
    """Whether this is a name with a dense tensor of numbers."""
    if type(name) is not str or type(value) not in (Tensor, torch.nn.Parameter):
        return False
    return value.layout == torch.strided and value.device.type == "cpu" and value.dtype in TENSOR_TYPES


def name_first(names: list[Any]) -> str:
    """The first five names."""
    return ", ".join(str(name) for name in names[:5]) + (", …" if len(names) > 5 else "") or "none"


def exit_with(code: int, reason: str) -> NoReturn:
    """End, with a sentence for the process that started this one."""
    sys.stderr.write(reason)
    sys.stderr.flush()
    sys.exit(code)


if __name__ == "__main__":
    convert_stdin(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
