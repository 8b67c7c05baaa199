"""Commands that train nothing: check, report, list."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from embasis.cli.console import Work, echo
from embasis.cli.image_options import given_flags, image_flags, is_image_side
from embasis.errors import ConfigError, ResourceError, require

if TYPE_CHECKING:
    from embasis.data.tables.pair import Finding
    from embasis.types import Evaluation, RoundRecord

KINDS = ("methods", "datasets", "backbones", "metrics")
WIDTH = 80
LAST_ROUNDS = 10
BUILT_ON = (
    "network.backbone=efficientnet_lite0 or timm:MODEL, and its network.weights='' and network.pretrained=true; "
    "small_fcn, deeplab_v2 and fast_segment are for label maps"
)


@click.command(cls=Work)
@click.argument("labelled")
@click.argument("unlabelled")
@click.option("--label", default="label", show_default=True, metavar="COLUMN", help="The column of classes.")
@click.option("--id", "id_", metavar="COLUMN", help="The column of row ids.  [default: id, if there is one]")
@click.option("--workers", type=click.IntRange(0, 64), default=1, show_default=True, help="Images: reading processes.")
@click.option(
    "--budget", type=float, default=0.001, show_default=True, help="Images: share of unreadable files allowed."
)
@click.option("--classes", metavar="FILE", help="Label maps: what they mean.  [default: LABELLED/classes.toml]")
@click.option("-o", "--output", metavar="FILE", help="Images: write all unreadable files there, as JSON lines.")
@image_flags
@click.pass_context
def check(
    ctx: click.Context,
    /,
    labelled: str,
    unlabelled: str,
    label: str,
    id_: str | None,
    workers: int,
    budget: float,
    classes: str | None,
    output: str | None,
    **flags: bool,
) -> None:
    """Say what could go wrong with two sides before training.

    For tables, and for folders or lists of images: every image is decoded, and
    every label map, if LABELLED has images/ and labels/.
    Prints errors, warnings and notes, and the first unreadable files; -o writes
    all of them. The exit code is 3 if there is an error.

    \b
    Examples:
      embasis check labelled.csv unlabelled.csv
      embasis check labelled.parquet unlabelled.parquet --label species
      embasis check photos paintings
      embasis check photos paintings -o unreadable.jsonl
    """
    if output is not None:
        from embasis.storage import require_apart

        require_apart(
            output, {"the labelled side": labelled, "the unlabelled side": unlabelled, "the classes": classes}
        )
    what = "images" if is_image_side(labelled) or is_image_side(unlabelled) else "tables"
    if what == "images":
        from embasis.data.images.folders import ImageOptions, check_images
        from embasis.data.segmentation.folders import are_map_folders, maps_check
        from embasis.data.workers.loading import Reader

        options = ImageOptions(**given_flags(**flags), budget=budget)
        with Reader(workers) as reader:
            if are_map_folders(labelled, unlabelled):
                what = "pictures and label maps"
                findings = maps_check(labelled, unlabelled, options=options, reader=reader, classes=classes)
            else:
                require(classes is None, "classes are for label maps, the images have none", ConfigError)
                findings = check_images(labelled, unlabelled, label=label, options=options, reader=reader)
    else:
        from embasis.data.tables.pair import check_pair

        require(classes is None, "classes are for label maps, the tables have none", ConfigError)
        require(output is None, "--output is for images, the tables have no files of their own", ConfigError)
        findings = check_pair(labelled, unlabelled, label=label, id=id_)
    for finding in findings:
        echo(f"{finding.level}: {finding.text}")
    if output is not None:
        write_refused(Path(output), findings)
    levels = [finding.level for finding in findings]
    errors, warnings = levels.count("error"), levels.count("warning")
    counts = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    echo(f"{counts}: embasis fit {'would refuse' if errors else 'can use'} these {what}")
    if errors:
        ctx.exit(3)


def write_refused(path: Path, findings: list[Finding]) -> None:
    """Every file that cannot be used, with its reason, one JSON object a line."""
    import json
    from dataclasses import asdict

    from embasis.storage import write_output

    refused = [item for finding in findings for item in finding.refused]
    write_output(path, "".join(json.dumps(asdict(item), sort_keys=True) + "\n" for item in refused))
    echo(f"wrote {path}: {counted(len(refused), 'file')} that cannot be used")


def counted(number: int, unit: str) -> str:
    """no errors, 1 error, 2 errors."""
    return f"{number or 'no'} {unit}{'' if number == 1 else 's'}"


@click.command(cls=Work)
@click.argument("run")
@click.option("-o", "--output", metavar="FILE", help="Write the page there.  [default: RUN/report.html]")
def report(run: str, output: str | None) -> None:
    """Write RUN/report.html again and print the last rounds.

    Works while the run goes on, too. The run of another user, who lets you read
    it but not write there, is reported with -o.

    \b
    Examples:
      embasis report run
      embasis report /home/ada/run -o ada.html
    """
    from embasis.report.page import run_page
    from embasis.runs.view import view_of
    from embasis.storage import write_output

    view = view_of(Path(run))
    path = Path(run) / "report.html" if output is None else Path(output)
    for record in view.rounds[-LAST_ROUNDS:]:
        echo(round_line(record))
    try:
        write_output(path, run_page(view))
    except ResourceError as error:
        raise ResourceError(f"{error}{'' if output else '; -o FILE writes the page elsewhere'}") from error
    kept = f"round {view.best_round} of {view.rounds[-1].round} is kept" if view.rounds else "no round has ended"
    echo(f"{view.status}: {kept}; wrote {path}")


def round_line(record: RoundRecord) -> str:
    """One round in under 80 columns; accuracy only where true labels were given."""
    from embasis.types import SELECTION_SCORE

    share = record.trusted / record.unlabelled if record.unlabelled else 0.0
    line = f"round {record.round:2d}  trusted {record.trusted:,} ({share:.0%})"
    line += f"  score {record.scores[SELECTION_SCORE]:.3f}"
    line += f"  {figure(record.evaluation)}" if record.evaluation else ""
    return line + (f"  test {figure(record.test, short=True)}" if record.test else "")


def figure(found: Evaluation, short: bool = False) -> str:
    """What true labels say in one figure: mean IoU where there are maps, else accuracy."""
    if found.mean_iou is not None:
        return f"mIoU {found.mean_iou:.3f}"
    return f"{'' if short else 'accuracy '}{found.accuracy:.3f}"


@click.command("list")
@click.argument("kind", required=False, type=click.Choice(KINDS), metavar="[methods|datasets|backbones|metrics]")
def list_entries(kind: str | None) -> None:
    """Names, what they are, and their settings with defaults.

    \b
    Examples:
      embasis list
      embasis list methods
    """
    kinds = KINDS if kind is None else (kind,)
    echo("\n\n".join(listing(name) for name in kinds))


def listing(kind: str) -> str:
    """All entries of one kind in 80 columns."""
    from embasis.catalogue import entries
    from embasis.report.tables import LEGEND

    lines = [kind]
    for entry in entries(kind):
        lines += [f"  {entry.name}", *indented(entry.summary)]
        lines += indented(", ".join(entry.settings)) if entry.settings else []
    if kind == "backbones":
        lines += ["  what deeplab_v2 and fast_segment are built on", *indented(BUILT_ON)]
    if kind == "metrics":
        lines += ["  columns of compare's table", *indented(LEGEND)]
    return "\n".join(lines)


def indented(text: str) -> list[str]:
    """Wrapped lines below a name."""
    return textwrap.wrap(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False)
