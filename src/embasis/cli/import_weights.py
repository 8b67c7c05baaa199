"""The command that makes safe weights of PyTorch's files: import-weights."""

from __future__ import annotations

from pathlib import Path

import click

from embasis.cli.console import Work, echo
from embasis.cli.looking import counted
from embasis.errors import ConfigError, quoted, require


@click.command("import-weights", cls=Work)
@click.argument("file")
@click.option("-o", "--output", required=True, metavar="OUT.safetensors", help="The file to write.")
@click.option("--key", default="", metavar="NAME", help="An entry of the file that is the state dict.")
def import_weights(file: str, output: str, key: str) -> None:
    """Turn a PyTorch file of weights into safetensors.

    FILE (.pt, .pth, .bin) is a pickle, and a pickle can run code. It is looked
    through without running it, and read in a process of its own that has no
    network and opens no files. Tensors are taken, all else is refused. The
    sha256 of FILE is kept in the output, which network.weights= takes.

    \b
    Examples:
      embasis import-weights resnet50.pth -o resnet50.safetensors
      embasis import-weights last.pt -o net.safetensors --key state_dict
      embasis fit photos paintings -o run --backbone timm:resnet50
        network.weights=resnet50.safetensors
    """
    rule = f"output must end in .safetensors, got {quoted(output)}"
    require(Path(output).suffix == ".safetensors", rule, ConfigError)
    from embasis.storage import require_apart, write_output
    from embasis.weights.torch_import import convert_torch_weights as converted

    require_apart(output, {"the input": file})
    data, tensors = converted(file, key)
    write_output(output, data)
    echo(f"wrote {output}: {counted(tensors, 'tensor')}, {len(data):,} bytes")
