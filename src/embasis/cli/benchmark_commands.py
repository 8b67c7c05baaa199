"""The commands that compare methods on data sets: their options and help."""

from __future__ import annotations

from typing import Any

import click

from embasis.cli.console import run_command

FIVE_METHODS = "source_only,pseudo_label,cbst,mrkld_lrent,em_basis"


@click.command("compare")
@click.argument("dataset")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--methods", metavar="A,B,…", help=f"Names, families, or `all`.  [default: {FIVE_METHODS}]")
@click.option("--table", type=click.Choice(["paper"]), help="Run every row of the paper's table of DATASET.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, show_default=True, help="Runs of each method.")
@click.option("--root", metavar="DIR", help="Folder of data packs.  [default: $EMBASIS_DATA, else ../shared/data]")
@click.option("-o", "--output", metavar="DIR", help="Write compare.csv, compare.md, runs.csv, report.html there.")
@click.option("--backbone", metavar="NAME", help="See `embasis list backbones`.")
@click.option("--learner", metavar="NAME", help="Tables: see `embasis list learners`.")
@click.option("--preset", metavar="NAME", help="Settings that come with embasis, such as paper-office31.")
def compare_command(**options: Any) -> None:
    """Run methods on one data set: mean ± std over seeds.

    The table is printed; files are written only with -o. Data sets with several
    domains are run on every ordered pair, unless source=… or target=… is given.
    Data sets of the paper get its table too: ours first, published rows apart;
    --table paper runs all of its rows, and prints ours below each published one.
    A family (`embasis list methods`), `alignment` and `all` leave out what the
    data or the network do not allow, and say so.

    \b
    Examples:
      embasis compare digits --methods em_basis,cbst --seeds 3 -o results
      embasis compare blobs --methods all --seeds 2 count=300 plan.rounds=3
      embasis compare digits --methods adversarial,em_basis --seeds 3
      embasis compare office31 --root DIR --preset paper-office31 --table paper
    """
    run_command("embasis.cli.compare", "compare_methods", options)


@click.command("ablate")
@click.argument("dataset")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, show_default=True, help="Runs of each variant.")
@click.option("--root", metavar="DIR", help="Folder of data packs.  [default: $EMBASIS_DATA, else ../shared/data]")
@click.option("--only", metavar="NAME,…", help="These parts.  [default: all]")
@click.option("-o", "--output", metavar="DIR", help="Write ablate.csv, ablate.md, runs.csv, report.html there.")
@click.option("--backbone", metavar="NAME", help="See `embasis list backbones`.")
@click.option("--preset", metavar="NAME", help="Settings that come with embasis, such as paper-office31.")
def ablate_command(**options: Any) -> None:
    """Say what each part of em_basis is worth, and how surely.

    Runs em_basis with its default and with one part changed at a time, on every
    pair and seed of a data set. Positive worth always means that the part helps:
    the default against the run without it, or, for parts that are off by
    default, the run with it against the default. KEY=VALUE holds for all runs.
    Below each run stands what was replaced: a field of a part of the method.

    \b
    Parts that are on:  centring, em, joint, head, selection, recalibration,
                        evidence, temper, shares, basis (without it: cbst)
    Parts that are off: stage1, variance, weights, draw

    \b
    Examples:
      embasis ablate digits --seeds 5 -o ablate-digits
      embasis ablate blobs --only em,head,draw count=300 plan.rounds=3
      embasis ablate office_caltech10_surf --root DIR --seeds 1
    """
    run_command("embasis.cli.ablate", "ablate_parts", options)
