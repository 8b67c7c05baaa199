"""`embasis report`: the page of a run once more, and its last rounds as lines."""

from __future__ import annotations

from pathlib import Path

from embasis.cli.console import echo
from embasis.errors import ResourceError
from embasis.report.page import run_page
from embasis.runs.checkpoint import read_run_view
from embasis.storage import write_output
from embasis.types import SELECTION_SCORE, Evaluation, RoundRecord

LAST_ROUNDS = 10


def rewrite_report(run: str, output: str | None) -> None:
    """Print the last rounds and write the page, into the run folder unless another file is named."""
    view = read_run_view(Path(run))
    path = Path(run) / "report.html" if output is None else Path(output)
    for record in view.rounds[-LAST_ROUNDS:]:
        echo(format_round(record))
    try:
        write_output(path, run_page(view))
    except ResourceError as error:
        raise ResourceError(f"{error}{'' if output else '; -o FILE writes the page elsewhere'}") from error
    kept = f"round {view.best_round} of {view.rounds[-1].round} is kept" if view.rounds else "no round has ended"
    echo(f"{view.status}: {kept}; wrote {path}")


def format_round(record: RoundRecord) -> str:
    """One round in under 80 columns; what is expected of its labels, and accuracy where true labels were given."""
    share = record.trusted / record.unlabelled if record.unlabelled else 0.0
    line = f"round {record.round:2d}  trusted {record.trusted:,} ({share:.0%})"
    line += f"  score {record.scores[SELECTION_SCORE]:.3f}"
    expected = record.facts.get("expected_accuracy")
    line += "" if expected is None else f"  expected {expected:.3f}"
    line += f"  {format_evaluation(record.evaluation)}" if record.evaluation else ""
    return line + (f"  test {format_evaluation(record.test, short=True)}" if record.test else "")


def format_evaluation(evaluation: Evaluation, short: bool = False) -> str:
    """The agreement with true labels in one figure: mean IoU where there are maps, else accuracy."""
    if evaluation.mean_iou is not None:
        return f"mIoU {evaluation.mean_iou:.3f}"
    return f"{'' if short else 'accuracy '}{evaluation.accuracy:.3f}"
