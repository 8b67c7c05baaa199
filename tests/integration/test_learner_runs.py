"""`embasis fit --learner`: runs with a learner of trees, in their folders, without a pickle."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from cli_tables import embasis
from embasis import TableModel, fit_tables
from embasis.config import load
from embasis.data.datasets.digit_sets import blobs
from embasis.data.table_pair import load_pair
from embasis.errors import ConfigError, CorruptError
from embasis.runs.model import load_model
from embasis.runs.run import TrainingRun
from embasis.runs.suggest_learner import suggest_learner
from embasis.storage import RunFolder, read_newest
from training_runs import same

CLASSES = ("dry", "wet")
SETTINGS = ("--learner", "hist_gradient_boosting", "learner.max_iter=10", "rounds=2")


def write_side(path: Path, seed: int, spread: float, count: int = 400) -> None:
    """Rows of two classes by the sign of a product: what no plane tells apart."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 4))
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["a", "b", "c", "d", "label"])
        for row in x:
            table.writerow([*(f"{spread * value + spread:.5f}" for value in row), CLASSES[int(row[0] * row[1] > 0)]])


def call(*words: object) -> Result:
    result = embasis(*words)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables, and a finished run on them."""
    folder = tmp_path_factory.mktemp("learners")
    write_side(folder / "labelled.csv", 0, 1.0)
    write_side(folder / "unlabelled.csv", 1, 3.0)
    call("fit", folder / "labelled.csv", folder / "unlabelled.csv", "-o", folder / "run", *SETTINGS)
    return folder


def test_a_run_labels_reports_and_exports_as_any_other(home: Path, tmp_path: Path) -> None:
    run, labels = home / "run", tmp_path / "labels.csv"
    call("predict", run, home / "unlabelled.csv", "-o", labels)
    with labels.open() as file, (home / "unlabelled.csv").open() as truth:
        right = [a["label"] == b["label"] for a, b in zip(csv.DictReader(file), csv.DictReader(truth), strict=True)]
    assert np.mean(right) > 0.85
    call("report", run, "-o", tmp_path / "page.html")
    assert "hist_gradient_boosting" in (tmp_path / "page.html").read_text()
    call("export", run, "-o", tmp_path / "trusted.csv", "--as", "csv")
    assert len((tmp_path / "trusted.csv").read_text().splitlines()) > 50
    config = json.loads((run / "config.json").read_text())
    assert config["network"]["name"] == "hist_gradient_boosting"
    assert config["network"]["max_iter"] == 10
    assert (config["plan"]["holdout"], config["plan"]["keep_round"]) == (0.1, "validation")
    assert config["method"]["recalibration"] == "weighted"


def test_all_that_is_kept_are_tensors(home: Path) -> None:
    tensors = read_newest(home / "run").tensors
    trees = {name.removeprefix("network/") for name in tensors if name.startswith("network/")}
    assert trees == {"feature", "threshold", "branches", "roots", "value", "baseline"}
    names = {path.suffix for path in (home / "run").rglob("*") if path.is_file()}
    assert names <= {"", ".json", ".jsonl", ".parquet", ".safetensors", ".html", ".txt", ".lock"}


@pytest.mark.parametrize("events", [1, 2, 3, 5])
def test_a_run_that_stopped_anywhere_goes_on_to_the_same_bits(home: Path, tmp_path: Path, events: int) -> None:
    names = (str(home / "labelled.csv"), str(home / "unlabelled.csv"))
    data = {"labelled": names[0], "unlabelled": names[1]}
    config = load(None, SETTINGS[2:], data=data, learner={"name": "hist_gradient_boosting"})
    run = TrainingRun(load_pair(*names), config, RunFolder(tmp_path / "run"))
    run.prepare()
    with run.folder:
        run.open()
        for number, event in enumerate(run.events(), start=1):
            if number == events:
                run.save(event.state)
                break
    call("fit", *names, "-o", tmp_path / "run", *SETTINGS)
    whole, gone_on = read_newest(home / "run"), read_newest(tmp_path / "run")
    assert same(whole.tensors, gone_on.tensors)
    assert whole.facts["records"] == gone_on.facts["records"]
    for name in ("labels/round-002.parquet", "rounds.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (home / "run" / name).read_bytes()


def test_the_same_command_makes_lost_labels_of_the_kept_round_again(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "run", tmp_path / "run")
    kept = read_newest(home / "run").facts["progress"]["kept"]
    labels = tmp_path / "run" / "labels" / f"round-{2 if kept is None else kept:03d}.parquet"
    before = labels.read_bytes()
    labels.write_bytes(before[:-1])
    call("fit", home / "labelled.csv", home / "unlabelled.csv", "-o", tmp_path / "run", *SETTINGS)
    assert labels.read_bytes() == before


def test_python_has_the_same_learners(home: Path, tmp_path: Path) -> None:
    names = (home / "labelled.csv", home / "unlabelled.csv")
    model = fit_tables(*names, learner="random_forest", rounds=1, **{"learner.n_estimators": 5})
    model.save(tmp_path / "model")
    again = TableModel.load(tmp_path / "model")
    assert (again.predict_proba(names[1]) == model.predict_proba(names[1])).all()


def test_a_comparison_runs_with_a_learner() -> None:
    words = ("--methods", "em_basis,cbst", "--seeds", "1", "--learner", "extra_trees")
    result = call("compare", "blobs", *words, "learner.n_estimators=5", "count=90", "rounds=1")
    assert "em_basis" in result.output


def test_a_folder_with_trees_of_another_table_is_refused(home: Path) -> None:
    stored = read_newest(home / "run")
    tensors = {**stored.tensors, "network/feature": stored.tensors["network/feature"] + 4}
    with pytest.raises(CorruptError, match=r"^the learner's trees are damaged: a feature is not there$"):
        load_model(stored.facts, tensors, home / "run", None, stored.sealed)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"learner": {"name": "xgboost"}}, "unknown learner 'xgboost'; known: extra_trees, hist_gradient_boosting, "
         "random_forest"),
        ({"overrides": ["learner.name=random_forst"]}, "unknown learner 'random_forst'; did you mean random_forest? "
         "known: extra_trees, hist_gradient_boosting, random_forest"),
        ({"learner": {"name": "extra_trees"}, "network": {"name": "mlp"}},
         "network 'mlp' and learner 'extra_trees' are two for one model: leave one out"),
        ({"top": {"learner": 3}}, "config: learner must be a table of settings, got 3"),
    ],
)  # fmt: skip
def test_a_learner_that_is_none_is_refused_in_one_sentence(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, words.pop("overrides", ()), **words)
    assert str(caught.value) == sentence


def test_a_config_file_may_have_a_table_learner(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[learner]\nname = "random_forest"\nn_estimators = 7\n')
    assert load(path).network == {"name": "random_forest", "n_estimators": 7}
    assert load(path, ["n_estimators=9"]).network["n_estimators"] == 9


# --- which learner suits a table


def test_check_says_that_trees_label_held_out_rows_better(tmp_path: Path) -> None:
    for name, seed, spread in (("labelled.csv", 0, 1.0), ("unlabelled.csv", 1, 3.0)):
        write_side(tmp_path / name, seed, spread, 800)
    *_, line, last = call("check", tmp_path / "labelled.csv", tmp_path / "unlabelled.csv").output.splitlines()
    boosting, linear = (float(number) for number in re.findall(r"(\d+\.\d)%", line))
    assert line == (
        "note: of labelled rows that it has not seen, weighted towards the unlabelled side, hist_gradient_boosting "
        f"labels {boosting:.1f}% right, the linear network {linear:.1f}%: consider --learner hist_gradient_boosting"
    )
    assert boosting > 85
    assert linear < 65
    assert last == "no errors, no warnings: embasis fit can use these tables"


def test_check_says_nothing_where_a_line_is_enough_or_rows_are_few(home: Path) -> None:
    assert suggest_learner(blobs(count=900, shift=0.0)) is None
    assert "--learner" not in call("check", home / "labelled.csv", home / "unlabelled.csv").output


def test_of_a_large_table_a_sample_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embasis.runs.suggest_learner.MOST_ROWS", 600)
    assert suggest_learner(blobs(count=900, shift=0.0)) is None
