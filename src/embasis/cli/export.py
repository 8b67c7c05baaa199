"""`embasis export`: the labels or the model of a finished run in the form that the next tool reads."""

from __future__ import annotations

from pathlib import Path

from embasis.cli.console import echo, format_count
from embasis.cli.predict import progress_bars
from embasis.errors import quote
from embasis.runs.export import MODEL_FORMS, ExportOptions, describe_choice, export_labels


def export_run(
    run: str, output: str, form: str, everything: bool, images: str | None, copy: bool, table: str | None
) -> None:
    """Write the labels of a run in the form that is named, and print how many there are."""
    options, out = ExportOptions(form, everything, images, copy, table), Path(output)
    with progress_bars() as show:
        summary = export_labels(run, output, options, lambda done, total: show("reading maps", done, total))
    if form in MODEL_FORMS:
        echo(f"wrote {out}: the model of round {summary.round}, {describe_form(form)}")
    elif form == "coco":
        what = f"{format_count(summary.labels, 'region')} in {format_count(summary.pictures, 'picture')}"
        echo(f"wrote {out}: {what}, {describe_choice(everything)}")
    elif form == "folder":
        what = f"{'copies of' if copy else 'links to'} {format_count(summary.labels, 'image')}"
        echo(f"wrote {out}: {what} in {format_count(len(summary.folders), 'class folder')}")
        for name, folder in summary.folders.items():
            if folder.name != name:
                echo(f"note: class {quote(name)} is in {folder}")
    elif form == "cvat":
        what = f"{format_count(summary.labels, 'label map')} of {format_count(summary.pictures, 'picture')}"
        echo(f"wrote {out}: {what}, {describe_choice(everything)}")
    elif form == "label-studio":
        echo(f"wrote {out}: {format_count(summary.labels, 'task')} with labels of round {summary.round}")
        echo("labelling interface of the project (Settings, Labeling Interface, Code):")
        echo(summary.interface)
    else:
        what = f"{format_count(summary.labels, 'label')} of round {summary.round}, {describe_choice(everything)}"
        echo(f"wrote {out}: {what}")


def describe_form(form: str) -> str:
    """What a model file computes, in words."""
    if form == "onnx":
        return "from x to mean, between, within, uncertainty, label and scores"
    return "with load_model.py, which needs torch and safetensors alone (for images timm)"
