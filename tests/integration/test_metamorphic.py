"""The same question asked in another way has the same answer, bit for bit: `embasis fit` on tables that are changed in
ways that must not matter (fault 50 of docs/reliability.md; hidden labels; draws by id)."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from torch import Tensor

from cli_tables import FEATURES, embasis, write_tables
from embasis.engine import self_train
from embasis.storage import read_newest, read_stored_table
from embasis.types import PseudoLabels
from training_runs import run, same, toy

Rows = list[dict[str, str]]
WORDS = {
    "em_basis_paper": ("method.name=em_basis_paper",),
    "cbst, mlp": ("--method", "cbst", "--backbone", "mlp", "hidden=8", "source_epochs=2", "epochs=1"),
}


@functools.cache
def tables() -> Path:
    write_tables(path := Path(mkdtemp()))
    return path


def rows_of(name: str) -> Rows:
    with (tables() / name).open(newline="") as stream:
        return list(csv.DictReader(stream))


def written(path: Path, rows: Rows, columns: list[str]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def outcome(words: tuple[str, ...], change: Callable[[Rows, Rows, list[str]], Any]) -> tuple[dict[str, Tensor], Any]:
    """The tensors of the run on changed tables, and its labels by id."""
    place = Path(mkdtemp())
    left, right, columns = rows_of("labelled.csv"), rows_of("judged.csv"), ["id", *FEATURES, "label"]
    more = change(left, right, columns) or ()
    one = written(place / "a.csv", left, ["id", *FEATURES, "label"])
    two = written(place / "b.csv", right, columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("embasis.runs.run.run_page", lambda view: "page")
        result = embasis("fit", one, two, "-o", place / "run", "rounds=2", *words, *more)
    assert result.exit_code == 0, result.output
    labels = read_stored_table(place / "run" / "labels" / "round-002.parquet")
    ids = [int(id) for id in labels.pop("id")]
    by_id = {id: [str(column[row]) for column in labels.values()] for row, id in enumerate(ids)}
    found = read_newest(place / "run").tensors
    at = torch.argsort(torch.tensor(ids))
    return {
        name: value[at] if name.startswith(("pseudo/", "labels")) else value for name, value in found.items()
    }, by_id


def nothing(left: Rows, right: Rows, columns: list[str]) -> None:
    """As they are."""


def without_labels(left: Rows, right: Rows, columns: list[str]) -> None:
    columns.remove("label")


def other_labels(left: Rows, right: Rows, columns: list[str]) -> None:
    labels = [row["label"] for row in right]
    for row, label in zip(right, labels[7:] + labels[:7], strict=True):
        row["label"] = label


def one_label(left: Rows, right: Rows, columns: list[str]) -> None:
    for row in right:
        row["label"] = "c1"


def rows_permuted(left: Rows, right: Rows, columns: list[str]) -> None:
    order = torch.randperm(len(right), generator=torch.Generator().manual_seed(1)).tolist()
    right[:] = [right[row] for row in order]


def columns_permuted(left: Rows, right: Rows, columns: list[str]) -> None:
    columns.reverse()


def scaled(left: Rows, right: Rows, columns: list[str]) -> None:
    """By a power of two, which no float rounds; each side is standardised by itself."""
    for row in (*left, *right):
        row.update({name: repr(float(row[name]) * 2.0**40) for name in FEATURES})


def renamed(left: Rows, right: Rows, columns: list[str]) -> None:
    """Class names in the same order."""
    for row in (*left, *right):
        row["label"] = f"x{row['label']}"


def saved_often(left: Rows, right: Rows, columns: list[str]) -> tuple[str, ...]:
    return ("save_seconds=0",)


def with_a_test_set(left: Rows, right: Rows, columns: list[str]) -> tuple[str, ...]:
    return ("--test", str(tables() / "judged.csv"))


CHANGES = (
    without_labels, other_labels, one_label, rows_permuted, columns_permuted, scaled, renamed, saved_often,
    with_a_test_set,
)  # fmt: skip
SCALES = ("input/centre", "input/scale")
"""Of the inputs: these follow the scale."""


@functools.cache
def usual(kind: str) -> Any:
    return outcome(WORDS[kind], nothing)


def unchanged(kind: str, change: Callable[[Rows, Rows, list[str]], Any]) -> bool:
    (tensors, labels), (other, other_labels) = usual(kind), outcome(WORDS[kind], change)
    if change is scaled:
        tensors, other = ({n: v for n, v in found.items() if n not in SCALES} for found in (tensors, other))
    if change is renamed:
        other_labels = {id: [cell.removeprefix("x") for cell in row] for id, row in other_labels.items()}
    return same(tensors, other) and labels == other_labels


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", WORDS)
def test_what_must_not_matter_changes_no_bit(kind: str, change: Callable[[Rows, Rows, list[str]], Any]) -> None:
    assert unchanged(kind, change)


# --- deliberate breakages


def test_training_on_hidden_labels_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """P3: the labels of the unlabelled side are trained on."""
    usual("cbst, mlp")
    whole = self_train.train_round

    def leaking(problem: Any, method: Any, plan: Any, progress: Any) -> Any:
        if progress.round and problem.hidden_labels is not None:
            progress.pseudo = PseudoLabels(problem.hidden_labels, torch.ones(len(problem.hidden_labels)))
        return whole(problem, method, plan, progress)

    monkeypatch.setattr(self_train, "train_round", leaking)
    assert not unchanged("cbst, mlp", one_label)


DRAWN = {"selector.labels": "draw", "selector.temperature": 5.0}


def drawn_in_pieces() -> tuple[Tensor, Tensor]:
    """Drawn labels of all rows at once, and of the same rows in two batches in another order."""
    model = run(toy(), "linear", "em_basis", keep_first=1.0, keep_max=1.0, parts=DRAWN).model
    x, ids = toy().unlabelled.inputs(torch.arange(90)), toy().unlabelled.ids
    order = torch.randperm(90, generator=torch.Generator().manual_seed(2))
    pieces = [model.label(x[rows], ids[rows]).pseudo.label for rows in order.split([30, 60])]
    return model.label(x, ids).pseudo.label, torch.cat(pieces)[torch.argsort(order)]


def test_a_drawn_label_does_not_depend_on_the_batch() -> None:
    whole, pieces = drawn_in_pieces()
    assert torch.equal(whole, pieces)


def test_draws_that_depend_on_the_place_of_a_row_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """P5: a drawn label is a function of seed, round and id."""
    from embasis.methods import selectors

    usual = selectors.uniforms
    monkeypatch.setattr(selectors, "uniforms", lambda ids, *keys: usual(torch.arange(len(ids)), *keys))
    whole, pieces = drawn_in_pieces()
    assert not torch.equal(whole, pieces)
