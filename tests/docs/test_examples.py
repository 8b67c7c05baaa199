"""The examples of the documentation run as they stand, and say what the page says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import embasis
from embasis.runs import load_model as plain_loader
from paths import ROOT

PAGES = ROOT / "docs"


def run_blocks(page: Path, home: Path, **variables: str) -> list[str]:
    """What each block of Python or shell prints, run one after the other in one folder."""
    place = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    place |= variables
    said = []
    for kind, code in re.findall(r"^```(python|sh)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        command = [sys.executable, "-c", code] if kind == "python" else ["sh", "-ec", code]
        done = subprocess.run(command, cwd=home, env=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    return said


@pytest.mark.skipif(not (PAGES / "trust.md").is_file(), reason="needs the docs of the repository")
def test_the_page_on_trust_keeps_its_promise(tmp_path: Path) -> None:
    said = run_blocks(PAGES / "trust.md", tmp_path)
    assert len(said) == 3
    assert re.search(r"trusted \(\d+%\) for a precision of 0.95: about [\d,]+ errors expected among them", said[1])
    accuracy, expected, share, right = (float(value) for value in re.findall(r"0\.\d{3}", said[2])[:4])
    assert abs(accuracy - expected) < 0.05
    assert share > 0.1
    assert abs(right - 0.95) < 0.03


@pytest.mark.skipif(not (PAGES / "self_train.md").is_file(), reason="needs the docs of the repository")
def test_the_page_on_any_torch_module_trains_a_sequential(tmp_path: Path) -> None:
    (said,) = run_blocks(PAGES / "self_train.md", tmp_path)
    *rounds, last = said.splitlines()
    assert [int(line.split()[0]) for line in rounds] == [0, 1, 2, 3]
    accuracies = [float(line.split()[-1]) for line in [*rounds, last]]
    assert min(accuracies) > 0.5
    assert accuracies[-1] > accuracies[0]  # the network of the last round, against the source model


@pytest.mark.skipif(not (PAGES / "scikit-learn.md").is_file(), reason="needs the docs of the repository")
def test_the_page_on_scikit_learn_has_a_pipeline_that_changes_both_sides(tmp_path: Path) -> None:
    learners, said = run_blocks(PAGES / "scikit-learn.md", tmp_path)
    assert float(said.split()[1]) > 0.8
    assert float(learners.split()[1]) < 0.6
    assert float(learners.split()[3]) > 0.95


@pytest.mark.skipif(not (PAGES / "tables.md").is_file(), reason="needs the docs of the repository")
def test_the_page_on_tables_fits_one_with_texts_dates_and_gaps(tmp_path: Path) -> None:
    (said,) = run_blocks(PAGES / "tables.md", tmp_path)
    *rounds, labels = said.splitlines()
    assert [int(line.split()[0]) for line in rounds] == [0, 1, 2, 3]
    assert min(float(line.split()[-1]) for line in rounds) > 0.8
    assert labels == "['apple', 'pear']"


@pytest.mark.skipif(not (PAGES / "export.md").is_file(), reason="needs the docs of the repository")
def test_the_page_on_exports_runs_a_model_without_embasis(tmp_path: Path) -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason=f'needs {name}: pip install "embasis[onnx]"')
    _, onnx, torch = run_blocks(PAGES / "export.md", tmp_path)
    assert onnx == "labels as predict has them: 1.0\nlargest difference: True\n"
    assert torch == "labels as predict has them: 1.0\n"


@pytest.mark.skipif(not (PAGES / "export.md").is_file(), reason="needs the docs of the repository")
def test_the_page_on_exports_shows_the_loader_as_it_is_written() -> None:
    (shown,) = re.findall(r"^```text\n(.*?)^```$", (PAGES / "export.md").read_text(), re.MULTILINE | re.DOTALL)
    assert shown == Path(plain_loader.__file__).read_text()


@pytest.mark.skipif(not (PAGES / "watch.md").is_file(), reason="needs the docs of the repository")
def test_the_page_on_watching_fills_tensorboard_and_mlflow(tmp_path: Path) -> None:
    for name, package in (("tensorboard", "tensorboard"), ("mlflow", "mlflow-skinny")):
        if find_spec(name) is None:
            pytest.skip(f"needs {name}: pip install {package}")
    mlflow = {"MLFLOW_TRACKING_URI": "file:mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"}
    run_blocks(PAGES / "watch.md", tmp_path, **mlflow)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ_LOGS],
        cwd=tmp_path,
        env={**os.environ, **mlflow},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    rounds = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert found["run"] == [[row["round"], pytest.approx(row["evaluation"]["accuracy"])] for row in rounds]
    assert [step for step, _ in found["first"]] == [0, 1, 2, 3]
    assert found["mlflow"] == [[step, pytest.approx(value)] for step, value in found["first"]]  # the same run twice
    assert found["params"] == {"method": "em_basis", "rounds": "3", "seed": "0"}


READ_LOGS = """
import json
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
import mlflow

def read(folder):
    return [[event.step, event.value] for event in EventAccumulator(folder).Reload().Scalars("accuracy")]

(run,) = mlflow.search_runs(output_format="list")
history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "accuracy")
found = {"mlflow": [[entry.step, entry.value] for entry in history], "params": run.data.params}
print(json.dumps({**found, "first": read("boards/first"), "run": read("boards/run")}))
"""


EXTEND = ("method", "alignment", "network", "dataset", "metric")


@pytest.mark.parametrize("page", EXTEND)
def test_the_pages_on_extending_run_and_end_better_than_chance(page: str, tmp_path: Path) -> None:
    path = PAGES / "extend" / f"{page}.md"
    if not path.is_file():
        pytest.skip("needs the docs of the repository")
    (printed,) = run_blocks(path, tmp_path)
    if page == "metric":
        values = dict(line.split() for line in printed.splitlines())
        assert list(values) == ["accuracy", "mean_class_accuracy", "mean_dataset_iou", "macro_f1"]
    else:
        assert [int(line.split()[0]) for line in printed.splitlines()] == [0, 1, 2, 3]
    assert all(0.5 < float(value) <= 1 for value in re.findall(r"\d\.\d{3}$", printed, re.MULTILINE))


@pytest.mark.skipif(not (PAGES / "extend").is_dir(), reason="needs the docs of the repository")
@pytest.mark.parametrize(
    ("page", "name", "contract", "registries", "least"),
    [
        ("method", "margin", "test_methods", "METHODS", 21),
        ("alignment", "coral", "test_alignment", "ALIGNMENT METHODS", 12),
    ],
)
def test_the_method_of_a_page_keeps_its_contract(
    page: str, name: str, contract: str, registries: str, least: int, tmp_path: Path
) -> None:
    """Its recipe becomes an entry of the registries, and the command of the page is run: nothing else may be needed."""
    text = (PAGES / "extend" / f"{page}.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (command,) = re.findall(rf"`pytest (tests/contracts/{contract}\.py -k {name})`", text)
    recipe = code.partition("\nproblem = ")[0]
    entries = "".join(f'{each}["{name}"] = {name}\n' for each in registries.split())
    entry = f"from embasis.methods import {', '.join(registries.split())}\n\n{entries}"
    (tmp_path / "method_entry.py").write_text(f"{recipe}\n{entry}", encoding="utf-8")
    plugin = "def pytest_sessionstart() -> None:\n    import method_entry\n"  # after conftest.py, before collection
    (tmp_path / "method_plugin.py").write_text(plugin, encoding="utf-8")
    place = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    options = ["-q", "-n", "0", "-p", "method_plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *command.split()],
        cwd=ROOT,
        env=place,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) >= least


@pytest.mark.skipif(not (PAGES / "extend").is_dir(), reason="needs the docs of the repository")
def test_the_pages_on_extending_are_short_and_name_files_that_exist() -> None:
    pages = sorted((PAGES / "extend").glob("*.md"))
    assert [page.stem for page in pages] == sorted(EXTEND)
    package = Path(embasis.__file__).parent
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 80
        for file in re.findall(r"`([\w/]+\.py)`", text):
            assert (package / file).is_file() or (PAGES.parent / file).is_file(), f"{page.name} names {file}"
        for link in re.findall(r"\]\(([^)#:\s]+\.md)\)", text):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
