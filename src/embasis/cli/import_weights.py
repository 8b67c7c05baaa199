"""`embasis import-weights`: a PyTorch file of weights as safetensors."""

from __future__ import annotations

from pathlib import Path

from embasis.cli.console import echo, format_count
from embasis.errors import ConfigError, quote, require
from embasis.storage import require_apart, write_output
from embasis.weights.torch_import import convert_torch_weights


def convert_weights(file: str, output: str, key: str) -> None:
    """Read the tensors of the file in a sandbox and write them as safetensors."""
    rule = f"output must end in .safetensors, got {quote(output)}"
    require(Path(output).suffix == ".safetensors", rule, ConfigError)
    require_apart(output, {"the input": file})
    data, tensors = convert_torch_weights(file, key)
    write_output(output, data)
    echo(f"wrote {output}: {format_count(tensors, 'tensor')}, {len(data):,} bytes")
