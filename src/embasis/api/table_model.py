"""Tables in Python: two files in, a trained model out that labels other tables and arrays.

from embasis import TableModel, fit_tables
model = fit_tables("labelled.csv", "unlabelled.csv", output="run", rounds=3)
found = model.predict("new.csv", precision=0.95)       # label, probability, between, within, trusted
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar

from embasis.api.fitted_model import FittedModel, Labels, fit_run, run_config
from embasis.inputs.base import SourceOptions
from embasis.runs.predict import PredictOptions, finish_rows, label_source, with_run_columns
from embasis.types import PathLike


@dataclass(frozen=True, eq=False)
class TableModel(FittedModel):
    """A model adapted to an unlabelled table, made by `fit_tables` or `TableModel.load`."""

    KIND: ClassVar[str] = "table"
    WRONG_KIND: ClassVar[str] = "the run was trained on images, not on tables or arrays"

    def predict(self, rows: Any, *, precision: float | None = None, sort: str | None = None) -> Labels:
        """Labels of rows.

        Parameters
        ----------
        rows : path or array
            A table, whose columns are matched by name, or an array (N, …) with the features in the run's order.
        precision : float, optional
            Trust the labels that are right with this probability, by the run's own estimate.
        sort : {"uncertainty"}, optional
            The least sure rows first; else as they come.
        """
        source = self.model.inputs.open_rows(rows, with_run_columns(self.model, SourceOptions(run=str(self.home))))
        columns = label_source(self.model, source)
        return Labels.of(finish_rows(self.model, columns, source.rejected, PredictOptions(precision, sort)))


def fit_tables(labelled: PathLike, unlabelled: PathLike, *, output: PathLike | None = None, **words: Any) -> TableModel:
    """Train on a labelled table, adapt to an unlabelled one; `embasis fit` in Python.

    Parameters
    ----------
    labelled, unlabelled : path
        .csv, .npy, .npz or .parquet files.
    output : path, optional
        The run goes to that folder, and the same call goes on where it was; None = nothing is kept.
    **words
        `test`, a labelled table to score on; `corrections`, a table of labels that a person has corrected; `label` and
        `id`, names of columns; `method`; `seed`; and other settings as on the command line: rounds=3, network="mlp".

    Returns
    -------
    TableModel
    """
    data = {"labelled": os.fspath(labelled), "unlabelled": os.fspath(unlabelled)}
    for name in ("test", "corrections", "label", "id"):
        if (value := words.pop(name, None)) is not None:
            data[name] = os.fspath(value)
    return TableModel._of(fit_run(run_config({"data": data}, words), "table", output))
