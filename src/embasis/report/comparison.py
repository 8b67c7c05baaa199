"""What stands on the page of a comparison: its sentences, tables and panels."""

from __future__ import annotations

from collections.abc import Sequence

from embasis.report import figures
from embasis.report.panels import progress
from embasis.report.parts import Panel, Table, numbers_table, percent, three
from embasis.report.records import RunView
from embasis.report.scores import IOU, Summary, best_of, by_dataset, caption, columns, headline, legend
from embasis.report.sections import run_title
from embasis.report.tables import NONE, cell

MOST_RUNS = 12
"""A comparison draws at most so many runs."""


def comparison_lead(summaries: Sequence[Summary]) -> str:
    """One sentence below the title."""
    methods, sets = len({s.method for s in summaries}), len(by_dataset(summaries))
    return f"{methods} methods on {sets} data set{'s' if sets != 1 else ''}; {caption(summaries)}"


def comparison_tables(summaries: Sequence[Summary]) -> list[Table]:
    """One table per data set, the best accuracy (of label maps, mIoU) in bold."""
    best, tables = best_of(summaries), list[Table]()
    for dataset, group in by_dataset(summaries).items():
        heads = columns(group)
        rows = [[s.method, *(cell(metric, s.stats[metric]) for metric in heads)] for s in group]
        bold = frozenset(i for i, s in enumerate(group) if (dataset, s.method) in best)
        note = f"{caption(group)} Bold: highest {_ranked(group)}." + ("" if tables else f" {legend(summaries)}")
        tables.append(Table(dataset, ("method", *heads.values()), rows, note, bold))
    return tables


def _ranked(group: Sequence[Summary]) -> str:
    return "mean IoU" if headline(group) in IOU else "accuracy"


def runs_table(runs: Sequence[RunView]) -> Table:
    """One line per run."""
    note = f"The first {MOST_RUNS} are drawn above." if len(runs) > MOST_RUNS else ""
    maps, rows = any(view.on_maps for view in runs), []
    for i, view in enumerate(runs, 1):
        record = view.kept
        truth = record.evaluation if record else None
        row = [f"{i}. {run_title(view)}", view.status, str(len(view.rounds) - 1), str(view.best_round)]
        row.append(percent(record.trusted, record.unlabelled) if record else NONE)
        row += [three(truth.mean_iou if truth else None)] if maps else []
        rows.append([*row, three(truth.accuracy if truth else None)])
    measures = ("mean IoU", "accuracy") if maps else ("accuracy",)
    return Table("Runs", ("run", "status", "rounds", "kept", "trusted", *measures), rows, note)


def comparison_panels(summaries: Sequence[Summary], runs: Sequence[RunView]) -> list[Panel]:
    """Accuracy (of label maps, mean IoU) of the methods, then the rounds of each run."""
    ranked = {dataset: headline(group) for dataset, group in by_dataset(summaries).items()}
    rows = [[s.method, s.dataset, cell("", s.stats[ranked[s.dataset]]), str(s.seeds)] for s in summaries]
    measure = " or ".join(dict.fromkeys(_ranked(group) for group in by_dataset(summaries).values()))
    title = measure[:1].upper() + measure[1:]
    pictures = list[str]()
    for dataset, group in by_dataset(summaries).items():
        said = "; ".join(f"{s.method} {cell('', s.stats[ranked[dataset]])}" for s in group)
        pictures.append(figures.comparison(group, f"{_ranked(group)} on {dataset}: {said}."))
    table = numbers_table(["method", "data set", measure, "seeds"], rows, title)
    found = [Panel(title, pictures, caption(summaries), table, wide=True)] if rows else []
    for i, view in enumerate(runs[:MOST_RUNS], 1):
        if view.rounds:
            found.append(progress(view, f"Run {i}: {run_title(view)}"))
    return found
