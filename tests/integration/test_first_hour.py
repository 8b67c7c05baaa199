"""What a newcomer met in the first hour with an early release, each as a test of commands and public names alone.

Each of these failed on commit ca2a0e6, where they were found. The file imports nothing but the package and its command,
so that a copy of it can be run on any commit: `PYTHONPATH=OTHER/src pytest COPY/test_first_hour.py`.
Closer tests of the same things lie beside the code that each is about.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from embasis.cli import main

NETWORK = ("--backbone", "timm:test_efficientnet", "network.pretrained=false", "network.size=32", "images.workers=0")
PROGRAM = [sys.executable, "-m", "embasis"]


def embasis(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def done(*words: object) -> str:
    result = embasis(*words)
    assert result.exit_code == 0, result.output
    return result.output


def rows(count: int, seed: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, count)
    return draw.normal(size=(count, 3)) + np.outer(y, [2.0, 1.0, 0.5]) + shift, y


def write(path: Path, x: np.ndarray, y: np.ndarray | None = None, sign: str = ",") -> None:
    lines = [sign.join(["id", "a", "b", "c", *(["label"] if y is not None else [])])]
    for number, row in enumerate(x.tolist()):
        label = [] if y is None else [("low", "high")[y[number]]]
        lines.append(sign.join([str(number), *(f"{value:.4f}" for value in row), *label]))
    path.write_text("\n".join(lines) + "\n")


def plant(folder: Path, names: list[str], shift: int = 0) -> None:
    draw = np.random.default_rng(shift)
    for number, name in enumerate(names):
        colour = ((200, 60, 60), (60, 200, 60))[number % 2]
        pixels = (np.array(colour) + shift + draw.normal(0, 20, (24, 30, 3))).clip(0, 255).astype(np.uint8)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with train.csv and field.csv."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "cache"))
    write(Path("train.csv"), *rows(80, 0))
    write(Path("field.csv"), rows(60, 1, 0.4)[0])
    return tmp_path


@pytest.fixture
def pictures(here: Path) -> Path:
    """photos/ with two class folders, paintings/ without."""
    plant(here / "photos", [f"{'red' if number % 2 == 0 else 'green'}/{number}.png" for number in range(24)])
    plant(here / "paintings", [f"{number}.png" for number in range(24)], 40)
    return here


# --- 1 corrections and spreadsheets


def test_1_corrections_may_have_names_of_classes_and_marks_in_one_column(here: Path) -> None:
    Path("marked.csv").write_text("id,label,corrected\n0,low,x\n1,low,high\n2,high,\n")
    done("fit", "train.csv", "field.csv", "-o", "run", "--corrections", "marked.csv", "rounds=1")


def test_1_a_spreadsheet_with_semicolons_is_read(here: Path) -> None:
    write(Path("train.csv"), *rows(80, 0), sign=";")
    done("fit", "train.csv", "field.csv", "-o", "run", "rounds=1")


# --- 2 tables as they are


def mixed(count: int, seed: int, labelled: bool) -> str:
    x, y = rows(count, seed)
    lines = ["town,seen,smoker,age" + (",label" if labelled else "")]
    for number in range(count):
        town, gap = ("oslo", "bergen")[int(x[number, 0] > 1)], number % 9 == 4
        cells = [town, f"2026-0{1 + number % 9}-11", "True" if x[number, 1] > 0 else "False"]
        cells += ["" if gap else f"{x[number, 2]:.3f}"] + ([("low", "high")[y[number]]] if labelled else [])
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def test_2_text_dates_booleans_and_gaps_are_learned_from_and_labelled(here: Path) -> None:
    Path("train.csv").write_text(mixed(80, 0, True))
    Path("field.csv").write_text(mixed(60, 1, False))
    done("fit", "train.csv", "field.csv", "-o", "run", "rounds=1")
    done("predict", "run", "field.csv", "-o", "labels.csv")
    assert len(Path("labels.csv").read_text().splitlines()) == 61


def test_2_check_names_every_column_that_cannot_be_used_at_once(here: Path) -> None:
    lines = ["a,comment,nothing,label"] + [f"{n}.5,word {n},,{('x', 'y')[n % 2]}" for n in range(60)]
    Path("train.csv").write_text("\n".join(lines) + "\n")
    Path("field.csv").write_text("\n".join(line.rsplit(",", 1)[0] for line in lines) + "\n")
    result = embasis("check", "train.csv", "field.csv")
    assert result.exit_code == 3
    errors = [line for line in result.output.splitlines() if line.startswith("error")]
    assert any("'comment'" in line for line in errors)
    assert any("'nothing'" in line for line in errors)


# --- 3 learners


def test_3_gradient_boosting_learns_on_the_command_line_and_in_python(here: Path) -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier

    from embasis import EMBasisClassifier

    done("fit", "train.csv", "field.csv", "-o", "run", "--learner", "hist_gradient_boosting", "rounds=1")
    (x, y), (other, truth) = rows(120, 0), rows(120, 1, 0.3)
    model = EMBasisClassifier(estimator=HistGradientBoostingClassifier(), random_state=0)
    assert (model.fit(x, y, unlabelled=other).predict(other) == truth).mean() > 0.6


# --- 4, 5, 11 what a run says of itself


def test_4_fit_prints_how_good_it_believes_the_model_to_be(here: Path) -> None:
    said = done("fit", "train.csv", "field.csv", "-o", "run", "rounds=2")
    lines = [line for line in said.splitlines() if line.startswith("round")]
    assert len(lines) == 3
    assert all(re.search(r"expected 0\.[0-9]{3}", line) for line in lines)
    assert "chosen without true labels" not in Path("run/report.html").read_text()


def test_5_without_true_labels_no_figure_is_called_accuracy(here: Path) -> None:
    done("fit", "train.csv", "field.csv", "-o", "run", "rounds=2")
    page = Path("run/report.html").read_text()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", page)
    assert "Expected accuracy" in texts
    assert "Accuracy" not in texts


def test_11_fit_and_predict_say_how_many_trusted_labels_are_believed_to_be_right(here: Path) -> None:
    sentence = r"about [0-9]+% of the trusted labels are believed to be right"
    assert re.search(sentence, done("fit", "train.csv", "field.csv", "-o", "run", "rounds=1"))
    assert re.search(sentence, done("predict", "run", "field.csv", "-o", "labels.csv"))


# --- 6 any torch module


def test_6_self_train_takes_a_plain_sequential_and_plain_arrays() -> None:
    import torch
    from torch import nn

    import embasis as package

    (x, y), (other, _) = rows(60, 0), rows(60, 1, 0.3)
    sides = [torch.from_numpy(side).float() for side in (x, other)]
    problem = package.Problem(
        package.Arrays(sides[0], torch.from_numpy(y), torch.arange(60)),
        package.Arrays(sides[1], torch.full((60,), -1), torch.arange(60)),
        package.LabelSchema(("low", "high")),
    )
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    plan = package.Plan(rounds=1, source_epochs=2, epochs=1)
    records = list(package.self_train(problem, network, package.METHODS["cbst"](2), plan))
    assert len(records) == 2


# --- 7 the terminal


def shown_by(command: list[str], columns: int) -> str:
    """All that a command writes to a terminal of so many columns."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "OMP_NUM_THREADS": "1", "COLUMNS": str(columns)}
    process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environment)
    os.close(child)
    text = b""
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(parent)
    assert process.wait() == 0, text.decode()
    return text.decode()


def test_7_in_a_terminal_of_80_columns_no_bar_stays_before_the_line_of_a_round(here: Path) -> None:
    words = ["network.name=mlp", "rounds=2", "epochs=30", "source_epochs=30"]
    text = shown_by([*PROGRAM, "fit", "train.csv", "field.csv", "-o", "run", *words], 80)
    screen = [""]
    for piece in re.split(r"(\r\n|\r|\n|\x1b\[[0-9;?]*[A-Za-z])", text):
        if piece in ("\r\n", "\n"):
            screen.append("")
        elif piece == "\r":
            screen[-1] = "\0" + screen[-1].lstrip("\0")  # what follows is written over it
        elif piece.startswith("\x1b["):
            screen[-1] = "" if piece.endswith("K") else screen[-1]
        elif screen[-1].startswith("\0"):
            screen[-1] = piece + screen[-1][1 + len(piece) :]
        else:
            screen[-1] += piece
    found = [line for line in screen if "score" in line]
    assert len(found) == 3
    assert all(re.fullmatch(r"round +[0-9] +trusted [^━╸▏█#]*", line.rstrip()) for line in found), found


# --- 8 mistakes that are easy to make


def test_8_folders_in_the_wrong_order_are_called_swapped(pictures: Path) -> None:
    result = embasis("fit", "paintings", "photos", "-o", "run", *NETWORK)
    assert result.exit_code == 3
    assert "look swapped" in result.output


def test_8_a_run_inside_an_input_folder_is_refused(pictures: Path) -> None:
    result = embasis("fit", "photos", "paintings", "-o", "paintings/run", "rounds=1", *NETWORK)
    assert result.exit_code == 2
    assert not Path("paintings/run").exists()


@pytest.mark.parametrize(
    ("words", "meant"),
    [(("round=3",), "plan.rounds"), (("--method", "cbts"), "cbst"), (("--backbone", "resnet50"), "timm:resnet50")],
)
def test_8_a_name_that_is_nearly_one_is_answered_with_it(pictures: Path, words: tuple[str, ...], meant: str) -> None:
    result = embasis("fit", "photos", "paintings", "-o", "run", *words)
    assert result.exit_code == 2
    assert f"did you mean {meant}?" in result.output


def test_8_images_that_have_changed_are_called_by_their_names(pictures: Path) -> None:
    done("fit", "photos", "paintings", "-o", "run", "rounds=1", *NETWORK)
    plant(pictures / "photos", ["red/0.png"], 90)
    result = embasis("fit", "photos", "paintings", "-o", "run", "rounds=1", *NETWORK)
    assert result.exit_code == 3
    assert "red/0.png" in result.output


# --- 9 images in Python


def test_9_predict_does_not_decode_what_fit_has_read(pictures: Path, tmp_path: Path) -> None:
    done("fit", "photos", "paintings", "-o", "run", "rounds=1", *NETWORK)
    watch = tmp_path / "watch"
    watch.mkdir()
    (watch / "sitecustomize.py").write_text(
        "from PIL import PngImagePlugin as p\n"
        "real = p.PngImageFile.load\n"
        "def load(self):\n"
        f"    open({str(tmp_path / 'decoded')!r}, 'a').write('x')\n"
        "    return real(self)\n"
        "p.PngImageFile.load = load\n"
    )
    paths = os.pathsep.join([str(watch), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [*PROGRAM, "predict", "run", "paintings", "-o", "labels.csv"]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    assert not (tmp_path / "decoded").exists()


def test_9_a_model_of_images_has_a_short_name_and_probabilities(pictures: Path) -> None:
    from embasis import ImageModel

    done("fit", "photos", "paintings", "-o", "run", "rounds=1", *NETWORK)
    model = ImageModel.load("run")
    assert len(repr(model)) < 500
    assert np.allclose(model.predict_proba("paintings").sum(1), 1, atol=1e-5)


def test_9_steps_of_a_pipeline_that_are_not_applied_are_said() -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from embasis import EMBasisClassifier

    (x, y), (other, _) = rows(60, 0), rows(60, 1, 0.3)
    model = make_pipeline(StandardScaler(), EMBasisClassifier(random_state=0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y, embasisclassifier__unlabelled=other)
    assert any("(standardscaler)" in str(warning.message) for warning in caught)


# --- 10 the package carries what images need


def test_10_images_are_fitted_where_torchvision_has_no_library_of_its_own(pictures: Path) -> None:
    """As `make wheel` does in a clean environment: no hook of this repository is on the path."""
    code = (
        "import sys\n"
        "sys.meta_path[:] = [finder for finder in sys.meta_path if 'torchvision' not in repr(finder).lower()]\n"
        "sys.argv[0] = 'embasis'\n"
        "from embasis.__main__ import main\n"
        "main()\n"
    )
    words = ["fit", "photos", "paintings", "-o", "run", "rounds=1", *NETWORK]
    result = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


# --- 12 pages


def test_12_the_page_begins_with_what_was_adapted_to_what(here: Path) -> None:
    said = done("fit", "train.csv", "field.csv", "-o", "run", "rounds=1")
    assert "1 rounds" not in said
    page = Path("run/report.html").read_text()
    heading = re.sub("<[^>]*>", "", re.search(r"<h1[^>]*>(.*?)</h1>", page, re.DOTALL)[1])
    assert "train.csv" in heading
    assert "field.csv" in heading
    assert "1 rounds" not in re.sub("<[^>]*>", "", page)


def test_12_a_comparison_has_one_figure_of_rounds_with_a_line_for_each_method(here: Path) -> None:
    words = ("blobs", "--methods", "source_only,cbst,em_basis", "--seeds", "1", "rounds=1", "-o", "out")
    done("compare", *words)
    page = Path("out/report.html").read_text()
    titles = [re.sub("<[^>]*>", "", title) for title in re.findall(r"<h3[^>]*>(.*?)</h3>", page, re.DOTALL)]
    assert titles == ["Accuracy", "Round by round"]
    assert "Each line is a method." in page
    assert "No rounds follow the first of source_only, so there is no line." in page
