"""Columns whose spread is small beside their size (times, ids, an offset): float32 would lose them before they are
centred. They give the labels that they give without the offset; all other columns are computed as they always were."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cli_tables import embasis
from embasis import EMBasisClassifier
from embasis.data.datasets.digit_sets import blobs
from embasis.data.problem import from_arrays
from embasis.data.standardise import (
    Standardiser,
    find_fine_columns,
    measure_columns,
    measure_spread,
    pool_spreads,
    settle_columns,
)
from embasis.data.table_pair import check_pair, load_pair
from embasis.errors import EmbasisWarning
from embasis.inputs.fingerprint import fingerprint, marks_of
from embasis.storage import read_newest, read_stored_table
from embasis.types import Problem

OFFSET = 1e8
KINDS = (".csv", ".npz", ".parquet")


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Labelled rows and their classes, unlabelled rows and theirs, in steps that 1e8 can be added to exactly."""
    problem = blobs(count=60)
    assert isinstance(problem.hidden_labels, torch.Tensor)
    x, other = (side.inputs(side.ids).double().numpy() for side in (problem.labelled, problem.unlabelled))
    return (
        *((np.round(x * 2**20) / 2**20), problem.labelled.labels.numpy()),
        np.round(other * 2**20) / 2**20,
        (problem.hidden_labels.numpy()),
    )


def write(path: Path, x: np.ndarray, y: np.ndarray | None) -> Path:
    names = None if y is None else [f"c{number}" for number in y]
    if path.suffix == ".npz":
        np.savez(path, x=x, **({} if names is None else {"y": np.array(names)}))
        return path
    columns = {f"f{number}": column for number, column in enumerate(x.T)} | ({} if names is None else {"label": names})
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
        return path
    lines = [",".join(columns), *(",".join(map(str, cells)) for cells in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def plant(folder: Path, kind: str, offset: float) -> None:
    folder.mkdir()
    x, y, other, hidden = rows()
    write(folder / f"labelled{kind}", x + offset, y)
    write(folder / f"judged{kind}", other + offset, hidden)


def columns_of(path: Path) -> tuple[list[str], list[float]]:
    found = read_stored_table(path)
    return found["label"], [float(value) for value in found["probability"]]


@pytest.mark.parametrize("mode", ["domain", "joint"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_offset_changes_no_label_of_fit_and_predict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, mode: str
) -> None:
    """Accuracy was 0.99 without and 0.44 with the offset, and nobody said so."""
    monkeypatch.setattr("embasis.runs.run.run_page", lambda view: "page")
    found = {}
    for name, offset in (("plain", 0.0), ("far", OFFSET)):
        plant(here := tmp_path / name, kind, offset)
        pair = (here / f"labelled{kind}", here / f"judged{kind}")
        words = ("--test", pair[1], f"standardise={mode}", "rounds=2")
        done = embasis("fit", *pair, "-o", here / "run", *words)
        assert done.exit_code == 0, done.output
        assert embasis("predict", here / "run", pair[1], "-o", here / "labels.csv").exit_code == 0
        found[name] = (columns_of(here / "labels.csv"), [line for line in done.stdout.splitlines() if "round " in line])
    (plain, said), (far, also) = found["plain"], found["far"]
    assert far[0] == plain[0]
    assert far[1] == pytest.approx(plain[1], abs=1e-3)
    accuracy = np.mean([label == f"c{y}" for label, y in zip(far[0], rows()[3], strict=True)])
    assert accuracy > 0.95
    assert [line.split("accuracy ")[1] for line in also[:3]] == [line.split("accuracy ")[1] for line in said[:3]]


def test_one_row_and_an_outlier_are_labelled_as_among_all_rows(tmp_path: Path) -> None:
    """What a row is given does not hang on the other rows of its file."""
    plant(here := tmp_path / "far", ".csv", OFFSET)
    assert embasis("fit", here / "labelled.csv", here / "judged.csv", "-o", here / "run", "rounds=1").exit_code == 0
    other = rows()[2] + OFFSET
    assert embasis("predict", here / "run", here / "judged.csv", "-o", here / "all.csv").exit_code == 0
    labels, sure = columns_of(here / "all.csv")
    for number in (0, 7):
        path = write(here / "one.csv", other[number : number + 1], None)
        assert embasis("predict", here / "run", path, "-o", here / "out.csv").exit_code == 0
        assert columns_of(here / "out.csv") == ([labels[number]], [pytest.approx(sure[number], abs=1e-6)])
    path = write(here / "outlier.parquet", np.vstack([other, other[:1] + 1e12]), None)
    assert embasis("predict", here / "run", path, "-o", here / "out.csv").exit_code == 0
    assert columns_of(here / "out.csv")[0][:-1] == labels


def scores(offset: float, dtype: type = np.float64, **given: object) -> tuple[float, np.ndarray]:
    x, y, other, hidden = rows()
    classifier = EMBasisClassifier(random_state=0, rounds=2, **given)
    with_marks = np.concatenate([x, other]), np.concatenate([y, np.full(len(other), -1)])
    x, other = (x + offset).astype(dtype), (other + offset).astype(dtype)
    if given:
        classifier.fit((with_marks[0] + offset).astype(dtype), with_marks[1])
    else:
        classifier.fit(x, y, unlabelled=other)
    return float((classifier.predict(other) == hidden).mean()), classifier.predict_proba(other)


@pytest.mark.parametrize("given", [{}, {"standardise": "joint"}], ids=["another place", "one place"])
def test_an_offset_changes_no_label_of_the_estimator(given: dict[str, object]) -> None:
    plain, far = scores(0.0, **given), scores(OFFSET, **given)
    assert far[0] == plain[0] > 0.9
    assert far[1] == pytest.approx(plain[1], abs=1e-3)


def test_columns_that_float32_holds_are_computed_as_before() -> None:
    """Bit by bit: by the sums of the float32 rows, whatever the type of the numbers that came."""
    x, y, other, _ = rows()
    x, other = x + 0.1, other + 0.1  # not float32 numbers
    problem = from_arrays(x, y, other)
    narrow = from_arrays(x.astype(np.float32), y, other.astype(np.float32))
    assert problem.labelled.fine is None
    assert fingerprint(problem) == fingerprint(narrow)
    ours, theirs = Standardiser.fit(problem, "domain"), Standardiser.fit(narrow, "domain")
    assert ours is not None
    assert theirs is not None
    assert torch.equal(ours.centre, theirs.centre)
    assert torch.equal(ours.scale, theirs.scale)
    assert not bool(ours.wide(1).any())
    wide, usual = torch.from_numpy(other), torch.from_numpy(other.astype(np.float32))
    expected = ((usual.double() - theirs.centre[1]) / theirs.scale[1]).float()
    assert torch.equal(ours.apply(wide, 1), expected)
    assert torch.equal(ours.apply(usual, 1), expected)


def test_a_column_of_one_value_stays_harmless() -> None:
    """0.1 is no float32 number; rounding of float64 is no spread; a value apart on each side is none, either."""
    x, y, other, _ = rows()
    noise = 1.7e9 * (1 + 2e-16 * np.arange(len(x)) % 3)
    for one, two in ((np.full(len(x), 0.1), 0.1), (noise, 1.7e9), (np.full(len(x), 0.1), 0.2), (noise, -1.7e9 + 0.3)):
        problem = from_arrays(np.column_stack([x, one]), y, np.column_stack([other, np.full(len(other), two)]))
        assert isinstance(problem, Problem)
        assert problem.labelled.fine is None
        found = Standardiser.fit(problem, "domain")
        assert found is not None
        done = found.transform(problem)
        for side in (done.labelled, done.unlabelled):
            assert float(side.inputs(side.ids)[:, -1].abs().max()) < 1e-6


def test_a_side_with_one_value_is_centred_with_the_other_one() -> None:
    """Joint: the labelled rows have one time, the unlabelled ones a spread of 1 around it."""
    time = 1e8 + 0.3
    x, other = np.full((4, 1), time), time + np.array([[-1.0], [1.0], [-1.0], [1.0]])
    problem = from_arrays(np.hstack([x, np.eye(4)[:, :1]]), [0, 1, 0, 1], np.hstack([other, np.eye(4)[:, :1]]))
    found = Standardiser.fit(problem, "joint")
    assert found is not None
    done = found.transform(problem)
    assert done.labelled.inputs(done.labelled.ids)[:, 0].tolist() == pytest.approx([0.0] * 4, abs=1e-6)
    expected = pytest.approx([-(2**0.5), 2**0.5] * 2, abs=1e-6)
    assert done.unlabelled.inputs(done.unlabelled.ids)[:, 0].tolist() == expected


def test_the_spread_of_a_column_is_the_one_without_its_offset() -> None:
    x = rows()[0]
    centre, spread, exact = measure_columns(x + OFFSET)
    assert centre == pytest.approx(x.mean(0) + OFFSET, abs=1e-6)
    assert spread == pytest.approx(x.std(0), rel=1e-6)
    assert not exact.any()
    assert measure_columns((x + OFFSET).astype(np.float32))[2].all()
    parts = [torch.from_numpy(part + OFFSET) for part in (x[:20], x[20:] + 3)]
    centre, spread, _ = pool_spreads([measure_spread(part) for part in parts], [len(part) for part in parts])
    whole = torch.cat(parts)
    assert centre.tolist() == pytest.approx(whole.mean(0).tolist(), abs=1e-6)
    assert spread.tolist() == pytest.approx((whole - whole.mean(0)).square().mean(0).sqrt().tolist(), rel=1e-6)


def test_only_the_columns_that_float32_loses_are_kept_twice() -> None:
    x = np.column_stack(
        [np.linspace(0, 1, 50) + 0.1, 1e8 + np.linspace(0, 1, 50), np.full(50, 0.1), np.arange(50) + 2e4]
    )
    fine = find_fine_columns(x)
    assert fine is not None
    assert fine.columns.tolist() == [1, 2]  # whether a constant matters is seen when the other side is there
    (kept, other) = settle_columns([(torch.from_numpy(x).float(), fine), (torch.from_numpy(x).float(), None)])
    assert kept is not None
    assert other is not None
    assert kept.columns.tolist() == other.columns.tolist() == [1]
    assert torch.equal(kept.values[:, 0], torch.from_numpy(x[:, 1]))
    assert find_fine_columns(x.astype(np.float32)) is None
    assert find_fine_columns(np.arange(100).reshape(50, 2) + 1000) is None
    times = find_fine_columns(np.arange(100, dtype=np.int64).reshape(50, 2) + 1_700_000_000)
    assert times is not None
    assert times.columns.tolist() == [0, 1]


def test_a_change_that_float32_cannot_see_is_a_change(tmp_path: Path) -> None:
    x, y, other, _ = rows()
    here = from_arrays(x + OFFSET, y, other + OFFSET)
    x[3, 0] += 0.5
    there = from_arrays(x + OFFSET, y, other + OFFSET)
    assert fingerprint(here)["labelled"] != fingerprint(there)["labelled"]
    assert (marks_of(here)["labelled"] != marks_of(there)["labelled"]).nonzero()[0].tolist() == [3]
    assert fingerprint(here)["unlabelled"] == fingerprint(there)["unlabelled"]


def test_corrected_and_held_out_rows_keep_their_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embasis.runs.run.run_page", lambda view: "page")
    labels = {}
    for name, offset in (("plain", 0.0), ("far", OFFSET)):
        plant(here := tmp_path / name, ".parquet", offset)
        (here / "fix.csv").write_text("id,label\n3,c0\n8,c1\n")
        pair = (here / "labelled.parquet", here / "judged.parquet")
        words = ("--corrections", here / "fix.csv", "rounds=1", "plan.holdout=0.2")
        done = embasis("fit", *pair, "-o", here / "run", *words)
        assert done.exit_code == 0, done.output
        assert embasis("predict", here / "run", pair[1], "-o", here / "labels.csv").exit_code == 0
        labels[name] = columns_of(here / "labels.csv")[0]
    assert labels["far"] == labels["plain"]


def test_columns_in_another_order_keep_their_offset(tmp_path: Path) -> None:
    x, y, other, hidden = rows()
    x[:, 2] += OFFSET
    other[:, 2] += OFFSET
    first = write(tmp_path / "a.parquet", x, y)
    names = [*(f"f{number}" for number in reversed(range(x.shape[1]))), "label"]
    for path, values in (("b.parquet", other), ("c.parquet", other)):
        write(tmp_path / path, values, hidden)
        pq.write_table(pq.read_table(tmp_path / path).select(names), tmp_path / path)
    problem = load_pair(first, tmp_path / "b.parquet", test=tmp_path / "c.parquet")
    assert problem.test is not None
    for side, values in ((problem.labelled, x), (problem.unlabelled, other), (problem.test, other)):
        assert side.fine is not None
        assert side.fine.columns.tolist() == [2]
        assert torch.equal(side.fine.values[:, 0], torch.from_numpy(values[:, 2]))


def test_check_names_the_columns_whose_spread_is_small_beside_their_size(tmp_path: Path) -> None:
    x, y, other, _ = rows()
    x[:, 1] += 1.7e9
    other[:, 1] += 1.7e9
    first, second = write(tmp_path / "a.csv", x, y), write(tmp_path / "b.npz", other.astype(np.float32), None)
    notes = [finding.text for finding in check_pair(first, first) if finding.level == "note"]
    what = "1 column has a spread that is small beside the size"
    kept = "it is kept in float64 until it is centred; with standardise=none subtract a number near the size first"
    assert f"{first}: {what}: 'f1' (1.7e+09 ± {x[:, 1].std():.2g}); {kept}" in notes
    assert not [text for text in notes if "one value" in text]
    both = check_pair(first, second)
    assert [finding for finding in both if finding.level == "error"] == []
    x[:, 1] += np.arange(len(x)) * 300  # so that float32 numbers are left with a spread
    second = write(tmp_path / "b.npz", x.astype(np.float32), None)
    notes = [finding.text for finding in check_pair(first, second)]
    lost = "the file has float32 numbers, which may have lost it: write them as float64"
    stored = x.astype(np.float32)[:, 1].astype(np.float64)
    assert f"{second}: {what}: '1' (1.7e+09 ± {stored.std():.2g}); {lost}" in notes


def test_rows_that_differ_only_in_what_float32_loses_are_no_copies(tmp_path: Path) -> None:
    x, y, other, hidden = rows()
    grid = np.column_stack([OFFSET + np.arange(len(x)) / 64])
    first = write(tmp_path / "a.csv", grid, y)
    second = write(tmp_path / "b.csv", np.column_stack([OFFSET + 5 + np.arange(len(other)) / 64]), hidden)
    assert [finding.text for finding in check_pair(first, second) if finding.level == "warning"] == []
    again = write(tmp_path / "c.csv", np.vstack([grid[:2], grid[:1] - 0.3]), np.array([0, 1, 0]))
    with pytest.warns(EmbasisWarning, match=f"2 rows of {again} are in {first} too: scores on the test rows"):
        load_pair(first, second, test=again)


def test_columns_that_are_not_centred_are_warned_of(tmp_path: Path) -> None:
    plant(here := tmp_path / "far", ".csv", OFFSET)
    words = (here / "labelled.csv", here / "judged.csv", "-o", here / "run", "standardise=none", "rounds=0")
    found = embasis("fit", *words)
    names = ", ".join(f"'f{number}'" for number in range(8))
    what = "float32 loses the differences of 8 of the columns, which are small beside their size"
    cure = "leave standardise out, or subtract a number near their size from them"
    assert found.stderr == f"warning: standardise = none: {what}: {names}; {cure}\n"


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plant(here := tmp_path_factory.mktemp("offset") / "far", ".csv", OFFSET)
    assert embasis("fit", here / "labelled.csv", here / "judged.csv", "-o", here / "run", "rounds=1").exit_code == 0
    return here


def test_a_run_with_an_offset_goes_on_and_keeps_its_centre(resumed: Path, tmp_path: Path) -> None:
    shutil.copytree(resumed, here := tmp_path / "here")
    pair = (here / "labelled.csv", here / "judged.csv")
    words = ("fit", *pair, "-o", here / "run", "rounds=2", "--allow-change", "plan.rounds")
    assert embasis(*words).exit_code == 0
    centre = read_newest(here / "run").tensors["input/centre"]
    assert centre.dtype == torch.float64
    both = np.concatenate([rows()[0], rows()[2]])  # the sides look alike, so they have one centre
    assert centre[1].tolist() == pytest.approx((both.mean(0) + OFFSET).tolist(), abs=1e-6)
    assert json.loads((here / "run" / "config.json").read_text())["plan"]["rounds"] == 2
    x, y, _, _ = rows()
    x[3, 0] += 0.5
    write(pair[0], x + OFFSET, y)
    again = embasis(*words)
    assert again.exit_code == 3
    assert "labelled (0 added, 0 removed, 1 edited: 'row 3')" in again.stderr
