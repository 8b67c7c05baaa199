"""The command line: every command with its options and help; those of benchmarks are in benchmark_commands.py. What a
command does is in the file of its name.

Such a file imports torch and more at its top, a second or two, so it is imported when its command runs: help, versions
and mistakes of usage are answered at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from embasis.cli.benchmark_commands import ablate_command, compare_command
from embasis.cli.console import Commands, run_command
from embasis.errors import ConfigError, quote, require

F = TypeVar("F", bound=Callable[..., Any])
EPILOG = """\b
Examples:
  embasis demo
  embasis check labelled.csv unlabelled.csv
  embasis fit labelled.csv unlabelled.csv -o run
  embasis predict run new.csv -o labels.csv
  embasis fit photos paintings -o run

Exit codes: 0 done, 1 a bug of ours, 2 usage or settings, 3 input refused, 4 run
folder damaged, 5 disk or memory, 6 collapse or bad numbers, 7 run folder busy,
8 another process of the run was lost, 130 and 143 interrupted and saved.
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
    .parquet, .npz or .npy; or data sets of Hugging Face saved on disk.
    """


def image_flags(command: F) -> F:
    """Add the options of commands that take folders of images."""
    for name, text in (
        ("--allow-missing-class", "Images: labels of classes that LABELLED lacks are ignored."),
        ("--allow-empty-class", "Images: a class folder without images is no class."),
        ("--follow-links", "Images: follow symbolic links."),
    ):
        command = click.option(name, is_flag=True, help=text)(command)
    return command


def parse_scales(context: click.Context, option: click.Parameter, text: str) -> tuple[float, ...]:
    """`0.75,1,1.25` as numbers."""
    try:
        scales = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"scales must be numbers with commas between them, got {quote(text)}") from None
    rule = f"scales must be in [0.1, 10], got {quote(text)}"
    require(all(0.1 <= scale <= 10 for scale in scales), rule, ConfigError)
    return scales


@main.command("demo")
@click.option(
    "--task", type=click.Choice(["digits", "scenes"]), default="digits", show_default=True, help="Which data to show."
)
@click.option("-o", "--output", metavar="DIR", help="Folder for the results.  [default: demo-run or demo-scenes]")
@click.option("--seed", type=int, default=0, show_default=True)
def demo_command(**options: Any) -> None:
    """Drawn digits to real handwriting: methods in one table.

    Needs no download: `digits` labels pictures, in less than two minutes on one
    core; `scenes` labels pixels, in less than five (four rounds). Again into the same
    folder, the em_basis run goes on or is taken as it is; the others run again.

    \b
    Examples:
      embasis demo
      embasis demo -o demo-1 --seed 1
      embasis demo --task scenes
    """
    run_command("embasis.cli.demo", "run_demo", options)


@main.command("fit")
@click.argument("labelled", required=False)
@click.argument("unlabelled", required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-o", "--output", required=True, metavar="RUN", help="The run folder: a new one, or one to go on with.")
@click.option("--test", metavar="PATH", help="A labelled table or folder to score on; never used for training.")
@click.option("--corrections", metavar="PATH", help="Rows of UNLABELLED that a person has labelled: see above.")
@click.option("--dataset", metavar="NAME", help="A named data set instead of LABELLED and UNLABELLED.")
@click.option("--method", metavar="NAME", help="See `embasis list methods`.  [default: em_basis]")
@click.option("--align", metavar="NAME", help="Align both sides in the method's first round: dann, mcc, …")
@click.option("--backbone", metavar="NAME", help="See `embasis list backbones`.  [default: by the data]")
@click.option("--learner", metavar="NAME", help="Tables: see `embasis list learners`; settings: learner.max_iter=…")
@click.option("--config", "config_file", metavar="FILE", help="Settings as .toml, or a run's config.json.")
@click.option("--preset", metavar="NAME", help="Settings that come with embasis, such as paper-office31.")
@click.option("--label", metavar="COLUMN", help="The column of classes.  [default: label]")
@click.option("--id", metavar="COLUMN", help="The column of row ids.  [default: id, if there is one]")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Tables: a column that is not read; may be repeated.")
@click.option("--classes", metavar="FILE", help="Label maps: what they mean.  [default: LABELLED/classes.toml]")
@click.option("--seed", type=int, help="[default: 0]")
@click.option("--root", metavar="DIR", help="Folder of data packs, for --dataset.  [default: $EMBASIS_DATA]")
@click.option("--allow-change", multiple=True, metavar="KEY", help="Go on although this setting has changed.")
@click.option("--accept-data-change", is_flag=True, help="Go on although rows have changed.")
@image_flags
@click.option("--forbid-leakage", is_flag=True, help="A test row or image that is a labelled one too is an error.")
def fit_command(**options: Any) -> None:
    """Train on LABELLED, adapt to UNLABELLED, round by round.

    Both are tables, or both are images: LABELLED a folder with a sub-folder for
    each class, UNLABELLED a folder of images at any depth; or .csv files with
    columns path and label. UNLABELLED may be a folder or list of shards, .parquet
    or .tar. Each may be a data set of Hugging Face that save_to_disk has written.
    Settings of images: images.depth=frozen, partial or full, images.cache=DIR,
    network.weights=FILE, data.budget=SHARE.

    With label maps (semantic segmentation) LABELLED has images/ and labels/, a
    PNG of class numbers or colours for each image, and a classes.toml that names
    them. Settings: maps.size=PIXELS, maps.crop_height, network.backbone=NAME.

    --corrections is a .csv or .parquet file with columns id (or path) and label,
    as predict and export write them; with a column corrected only the rows where
    it is filled count. For label maps it is a folder of PNG named like their
    pictures. These rows are labelled ones of this run, and no score sees them.

    The same command again goes on where the run was; with other settings or rows
    only if --allow-change KEY or --accept-data-change says so, and the report
    says that it did. For more rounds: --allow-change plan.rounds.

    Labels in UNLABELLED, if there are any, are used for scores only. Settings are
    key=value words; they win over options, options over the file of --config, and
    that over --preset.

    \b
    Examples:
      embasis fit labelled.csv unlabelled.csv -o run
      embasis fit labelled.npz unlabelled.npz -o run --method cbst rounds=3
      embasis fit a.csv b.csv -o run --test c.csv --backbone mlp hidden=64
      embasis fit a.csv b.csv -o run --learner hist_gradient_boosting
      embasis fit photos paintings -o run
      embasis fit photos paintings -o run images.depth=full
      embasis fit rendered streets -o run --classes classes.toml
      embasis fit photos paintings -o run-2 --corrections labels.csv
      embasis fit --dataset digits -o run
    """
    run_command("embasis.cli.fit", "train_run", options, shared=True)


@main.command("predict")
@click.argument("run")
@click.argument("input_", metavar="INPUT")
@click.option("-o", "--output", required=True, metavar="FILE", help=".csv or .parquet; for label maps a folder.")
@click.option("--sort", type=click.Choice(["uncertainty"]), help="Order of the rows: least sure first.")
@click.option("--precision", type=float, metavar="P", help="Trust the labels that are right with probability P.")
@click.option("--label", metavar="COLUMN", help="A column to ignore.  [default: the run's]")
@click.option("--id", "id_", metavar="COLUMN", help="The column of row ids.  [default: the run's]")
@click.option("--workers", type=click.IntRange(0, 64), help="Images: processes that read files.  [default: 1]")
@click.option("--follow-links", is_flag=True, help="Images: follow symbolic links.")
@click.option("--generation", type=int, metavar="N", help="This state of the run, and no other if it is damaged.")
@click.option(
    "--scales",
    default="1",
    show_default=True,
    callback=parse_scales,
    metavar="A,B,…",
    help="Label maps: look at these scales.",
)
@click.option("--flip", is_flag=True, help="Label maps: look at each picture turned over, too.")
@click.option("--part", metavar="I/N", help="Label only part I of N of the rows: N calls give what one would.")
def predict_command(**options: Any) -> None:
    """Label the rows of INPUT with the model of a run folder.

    INPUT is a table; for a run on images it is a folder, one image, or a .csv
    with a column path; or a folder or list of shards, .parquet or .tar, which are
    read batch by batch. Writes id (for images the path), label, probability, its
    variance in two parts (between, within), uncertainty, and whether the label
    is trusted. Columns of tables are matched by name; images come in the order
    of their names, and one that cannot be read has no label.

    For a run with label maps OUTPUT is a folder: labels/, confidence/, variance/
    and trusted/ get a PNG for each picture, maps.csv a line. Labels have the
    numbers and colours of the labelled side's maps.

    With --precision the trusted labels are as many as can be had so that, by the
    run's own estimate, this share of them is right; how many errors that leaves
    is said, and a warning where the estimate has nothing to rest on.

    \b
    Examples:
      embasis predict run new.csv -o labels.csv
      embasis predict run new.parquet -o labels.parquet --sort uncertainty
      embasis predict run photos -o labels.csv --sort uncertainty
      embasis predict run photos -o labels.csv --precision 0.95
      embasis predict run pool -o labels-3.parquet --part 3/16
      embasis predict run streets -o maps --scales 0.75,1,1.25 --flip
    """
    run_command("embasis.cli.predict", "predict_labels", options, shared=True)


@main.command("export")
@click.argument("run")
@click.option("-o", "--output", required=True, metavar="OUT", help="A file, or a folder.")
@click.option(
    "--as",
    "form",
    required=True,
    type=click.Choice(["csv", "parquet", "folder", "coco", "label-studio", "cvat", "onnx", "torch"]),
    help="What to write.",
)
@click.option("--all", "everything", is_flag=True, help="Every label, trusted or not.")
@click.option("--images", metavar="PATH", help="--as folder: the run's UNLABELLED; a run keeps no paths.")
@click.option("--table", metavar="FILE", help="--as label-studio: the run's UNLABELLED, if that is a table.")
@click.option("--copy", is_flag=True, help="--as folder: copy the images instead of linking to them.")
def export_command(**options: Any) -> None:
    """Write a run's trusted labels, or its model, for other tools.

    Labels are those of the round that the run has kept. As csv or parquet: id,
    label, probability, between, within, uncertainty and trusted, as predict
    writes them. As folder, for runs on images: OUT/CLASS/NAME, links to the
    images below PATH. An OUT that holds anything but an earlier export is left
    alone. As coco, for runs with label maps: one region for each class of each
    picture, as run lengths with iscrowd=1; file_name is the picture's path.

    As cvat, for runs with label maps: an archive "Segmentation mask 1.1" for
    CVAT, in which pixels that are not trusted have no label; embasis import-maps
    takes back what CVAT exports in that format.

    As label-studio: a task for each label, trusted or not, the least sure first,
    with the label as a prediction and its probability as score. Its interface is
    printed. What Label Studio exports as JSON is what fit --corrections takes.

    As onnx (one file) or torch (a folder with a short loader): the model, not
    the labels, for programs without embasis.

    \b
    Examples:
      embasis export run -o labels.csv --as csv
      embasis export run -o model.onnx --as onnx
      embasis export run -o sorted --as folder --images paintings
      embasis export run -o labels.json --as coco --all
      embasis export run -o tasks.json --as label-studio
    """
    run_command("embasis.cli.export", "export_run", options)


@main.command("review")
@click.argument("run")
@click.argument("unlabelled", required=False)
@click.option("-o", "--output", metavar="PATH", help="Where corrections go.  [default: in RUN]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Of the page.  [default: a free one]")
@click.option("--follow-links", is_flag=True, help="Images: follow symbolic links.")
def review_command(**options: Any) -> None:
    """Correct the least sure labels of a run by keyboard.

    Serves a page to the browser of this machine, and to nobody else: open the
    address that is printed. UNLABELLED is what the run has labelled; a run keeps
    no paths and no values. Without it, the images that the report shows are
    reviewed.

    Keys: 1 to 9 and 0 for the first ten classes, / to type one, Enter where the
    label is right, x for an unusable item, u to undo, arrows to skip and go
    back, q to finish. On label maps, up and down choose a part of the map, and
    the other keys give it a class.

    Every answer is saved at once in RUN/corrections.csv, or RUN/corrections/ for
    label maps; fit --corrections takes it. The same command goes on.

    \b
    Examples:
      embasis review run paintings
      embasis review run field.csv -o corrections.csv
      embasis fit photos paintings -o run-2 --corrections run/corrections.csv
    """
    run_command("embasis.cli.review", "review_run", options)


@main.command("check")
@click.argument("labelled")
@click.argument("unlabelled")
@click.option("--label", default="label", show_default=True, metavar="COLUMN", help="The column of classes.")
@click.option("--id", "id_", metavar="COLUMN", help="The column of row ids.  [default: id, if there is one]")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Tables: a column that is not read; may be repeated.")
@click.option("--workers", type=click.IntRange(0, 64), default=1, show_default=True, help="Images: reading processes.")
@click.option(
    "--budget", type=float, default=0.001, show_default=True, help="Images: share of unreadable files allowed."
)
@click.option("--classes", metavar="FILE", help="Label maps: what they mean.  [default: LABELLED/classes.toml]")
@click.option("-o", "--output", metavar="FILE", help="Images: write all unreadable files there, as JSON lines.")
@image_flags
def check_command(**options: Any) -> None:
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
    run_command("embasis.cli.check", "check_sides", options)


main.add_command(compare_command)
main.add_command(ablate_command)


@main.command("report")
@click.argument("run")
@click.option("-o", "--output", metavar="FILE", help="Write the page there.  [default: RUN/report.html]")
def report_command(**options: Any) -> None:
    """Write RUN/report.html again and print the last rounds.

    Works while the run goes on, too. The run of another user, who lets you read
    it but not write there, is reported with -o.

    \b
    Examples:
      embasis report run
      embasis report /home/ada/run -o ada.html
    """
    run_command("embasis.cli.report", "rewrite_report", options)


@main.command("list")
@click.argument(
    "kind",
    required=False,
    type=click.Choice(["methods", "datasets", "backbones", "learners", "metrics"]),
    metavar="[methods|datasets|backbones|learners|metrics]",
)
def list_command(**options: Any) -> None:
    """Names, what they are, and their settings with defaults.

    \b
    Examples:
      embasis list
      embasis list methods
    """
    run_command("embasis.cli.list", "list_entries", options, threads=False)


@main.command("import-maps")
@click.argument("run")
@click.argument("archive", metavar="ARCHIVE.zip")
@click.option("-o", "--output", required=True, metavar="DIR", help="The folder of corrected maps.")
@click.option("--unchanged", is_flag=True, help="Take maps that are as the run has them, too.")
def import_maps_command(**options: Any) -> None:
    """Take corrected label maps from CVAT.

    ARCHIVE is what CVAT exports as "Segmentation mask 1.1" of the task that
    export --as cvat was made for. Maps that nobody has changed, and pictures
    without a labelled pixel, are left out. DIR has a PNG for each of the others,
    coded as the run's LABELLED; fit --corrections takes it.

    \b
    Examples:
      embasis export run -o maps.zip --as cvat --all
      embasis import-maps run task.zip -o corrected
      embasis fit rendered streets -o run-2 --corrections corrected
    """
    run_command("embasis.cli.import_maps", "import_maps", options)


@main.command("import-weights")
@click.argument("file")
@click.option("-o", "--output", required=True, metavar="OUT.safetensors", help="The file to write.")
@click.option("--key", default="", metavar="NAME", help="An entry of the file that is the state dict.")
def import_weights_command(**options: Any) -> None:
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
    run_command("embasis.cli.import_weights", "convert_weights", options)
