"""The command line. Only names and help are made here; a command imports what it needs when it runs.

`embasis --help` and `embasis list` never import torch, so that they answer at once.
"""

from __future__ import annotations

import click

from embasis.cli.ablate import ablate
from embasis.cli.console import Commands
from embasis.cli.demo import demo
from embasis.cli.export import export
from embasis.cli.fit import fit
from embasis.cli.import_weights import import_weights
from embasis.cli.looking import check, list_entries, report
from embasis.cli.scoring import compare, predict

__all__ = ["main"]

EPILOG = """\b
Examples:
  embasis demo
  embasis check labelled.csv unlabelled.csv
  embasis fit labelled.csv unlabelled.csv -o run
  embasis predict run new.csv -o labels.csv
  embasis fit photos paintings -o run

Exit codes: 0 done, 1 a bug of ours, 2 usage or settings, 3 input refused, 4 run
folder damaged, 5 disk or memory, 6 collapse or bad numbers, 7 run folder busy,
8 a peer process died (not raised yet), 130 and 143 interrupted and saved.
"""


@click.group(
    "embasis",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog=EPILOG,
)
@click.version_option(None, "--version", package_name="embasis", message="embasis %(version)s")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of a failure (any command).")
def main() -> None:
    """Adapt a model to unlabelled data, and know which of its labels to trust.

    LABELLED and UNLABELLED are folders of images (LABELLED with a sub-folder for
    each class, or with images/ and label maps in labels/), or tables: .csv,
    .parquet, .npz or .npy.
    """


for command in (demo, fit, predict, export, check, compare, ablate, report, list_entries, import_weights):
    main.add_command(command)
