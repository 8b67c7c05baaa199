"""The model of a run as an ONNX file, and as files for torch without embasis: both say what `predict` says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cli_tables
import image_runs
import map_folder_runs
from cli_tables import copied, embasis, fit_without_page, write_tables
from embasis.data.images.pixels import centre_view, decode
from embasis.data.segmentation.views import whole_shape
from embasis.errors import ConfigError
from embasis.runs import load_model as plain_loader
from embasis.runs.checkpoint import read_run
from embasis.runs.model import TrainedModel, load_model
from embasis.runs.model_graph import build_graph
from embasis.storage import read_stored_table
from storage_runs import tree

FIELDS = ("probability", "between", "within", "uncertainty")
WIDE = 1.7e9
"""Seconds: float32 holds them in steps of 128."""


def wide_tables(folder: Path) -> None:
    """labelled.csv and judged.csv with a column `time` whose differences float32 would lose."""
    write_tables(folder)
    for name in ("labelled.csv", "judged.csv"):
        header, *lines = (folder / name).read_text().split()
        rows = [f"{line},{WIDE + 3 * float(line.split(',')[1])!r}" for line in lines]
        (folder / name).write_text("\n".join([f"{header},time", *rows]) + "\n")


def little_pictures(folder: Path) -> None:
    """labelled.npz and judged.npz: pictures of 8×8 pixels in arrays."""
    draw = np.random.default_rng(0)
    for name, shift in (("labelled", 0.0), ("judged", 0.4)):
        y = np.arange(60) % 3
        x = draw.normal(size=(60, 1, 8, 8)) / 3 + shift
        x[np.arange(60), 0, 2 * y, :] += 2
        np.savez(folder / f"{name}.npz", x=x.astype(np.float32), label=y)


TABLES: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "em_basis": (write_tables, ".csv", ("rounds=2",)),
    "mlp": (wide_tables, ".csv", ("rounds=1", "network.name=mlp", "--method", "cbst")),
    "adapter": (write_tables, ".csv", ("rounds=1", "network.name=adapter", "--method", "em_basis_paper")),
    "small_cnn": (little_pictures, ".npz", ("rounds=1", "source_epochs=4", "epochs=1")),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each run."""
    home = tmp_path_factory.mktemp("models")
    for name, (write, suffix, words) in TABLES.items():
        (home / name).mkdir()
        write(home / name)
        fit_without_page(home / name, home / name / f"labelled{suffix}", home / name / f"judged{suffix}", *words)
    for depth in image_runs.DEPTHS:
        here = image_runs.sides(home / depth)
        words = (*image_runs.WORDS, f"images.depth={depth}", "rounds=1", "images.workers=0")
        fit_without_page(here, here / "photos", here / "paintings", *words)
    map_folder_runs.sides(home / "maps")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("embasis.runs.run.run_page", lambda view: "page")
        map_folder_runs.fitted(home / "maps", home / "maps" / "run")
    return home


def model_of(run: Path) -> TrainedModel:
    stored = read_run(run)
    return load_model(stored.facts, stored.tensors, run, sealed=stored.sealed)


def table_inputs(home: Path) -> tuple[np.ndarray, dict[str, list[Any]]]:
    """The unlabelled rows as a program without embasis reads them, and what `predict` says of them."""
    if (home / "judged.npz").exists():
        with np.load(home / "judged.npz", allow_pickle=False) as arrays:
            x = arrays["x"]
        source = home / "judged.npz"
    else:
        source = home / "judged.csv"
        columns = {name: cells for name, cells in read_stored_table(source).items() if name not in ("id", "label")}
        x = np.array([[float(cell) for cell in cells] for cells in columns.values()]).T
        x = x if "time" in columns else x.astype(np.float32)
    return x, predicted(home, source)


def image_inputs(home: Path) -> tuple[np.ndarray, dict[str, list[Any]]]:
    """The same of images: decoded, resized and cut."""
    labels = predicted(home, home / "paintings")
    at = model_of(home / "run").inputs.backbone.preparation  # type: ignore[attr-defined]
    views = [centre_view(decode((home / "paintings" / name).read_bytes()), at) for name in labels["id"]]
    return torch.stack(views).numpy(), labels


def predicted(home: Path, source: Path) -> dict[str, list[Any]]:
    out = home / "labels.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBASIS_CACHE", str(home / "no cache"))
        result = embasis("predict", home / "run", source, "-o", out)
    assert result.exit_code == 0, result.output
    return read_stored_table(out)


def export_onnx(home: Path) -> Path:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason=f'needs {name}: pip install "embasis[onnx]"')
    out = home / "model.onnx"
    result = embasis("export", home / "run", "-o", out, "--as", "onnx")
    assert result.exit_code == 0, result.output
    sentence = "from x to mean, between, within, uncertainty, label and scores"
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"wrote {out}: the model of round ")
    assert line.endswith(f", {sentence}")
    return out


def run_onnx(file: Path, x: np.ndarray) -> dict[str, np.ndarray]:
    """All outputs by name, of three sizes of batches put together."""
    runtime = pytest.importorskip("onnxruntime", reason='needs onnxruntime: pip install "embasis[onnx]"')
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    parts = [session.run(names, {"x": part}) for part in (x[:1], x[1:3], x[3:])]
    return {name: np.concatenate(values) for name, values in zip(names, zip(*parts, strict=True), strict=True)}


def require_same_labels(got: dict[str, np.ndarray], labels: dict[str, list[Any]], classes: list[str]) -> None:
    """All rows have the label, and its numbers, that `predict` gives them."""
    at = np.arange(len(got["label"]))
    assert [classes[number] for number in got["label"]] == labels["label"]
    found = {name: got[key][at, got["label"]] for name, key in
             (("probability", "mean"), ("between", "between"), ("within", "within"))}  # fmt: skip
    for name, values in {**found, "uncertainty": got["uncertainty"]}.items():
        np.testing.assert_allclose(values, labels[name], atol=2e-5, err_msg=name)
    np.testing.assert_allclose(got["mean"].sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(got["between"] + got["within"], got["mean"] * (1 - got["mean"]), atol=1e-5)


@pytest.mark.parametrize("name", [*TABLES, *image_runs.DEPTHS])
def test_an_onnx_file_says_of_rows_and_images_what_predict_says(made: Path, name: str) -> None:
    home = made / name
    x, labels = table_inputs(home) if name in TABLES else image_inputs(home)
    file = export_onnx(home)
    model = model_of(home / "run")
    got = run_onnx(file, x)
    require_same_labels(got, labels, list(model.schema.names))
    scores = build_graph(model)(torch.from_numpy(x)).scores
    np.testing.assert_allclose(got["scores"], scores, atol=1e-4)


def test_an_onnx_file_of_label_maps_says_of_each_site_what_predict_draws(made: Path) -> None:
    home = made / "maps"
    model, file = model_of(home / "run"), export_onnx(home)
    assert embasis("predict", home / "run", home / "streets", "-o", home / "drawn maps").exit_code == 0
    from PIL import Image

    at = model.inputs.preparation(model.progress.network)  # type: ignore[attr-defined]
    for picture in sorted((home / "streets").rglob("*.png"))[:4]:
        pixels = decode(picture.read_bytes())
        size = pixels.shape[1], pixels.shape[2]
        view = torch.nn.functional.interpolate(
            pixels.unsqueeze(0), whole_shape(size, at), mode="bilinear", antialias=True
        )
        got = run_onnx_once(file, view.numpy())
        mean = torch.from_numpy(got["mean"])
        assert mean.shape == (1, 3, view.shape[2] // at.stride, view.shape[3] // at.stride)
        wide = torch.nn.functional.interpolate(mean, size, mode="bilinear", align_corners=False)
        drawn = np.asarray(Image.open(home / "drawn maps" / "labels" / picture.relative_to(home / "streets")))
        names = np.array(map_folder_runs.IDS)[wide.argmax(1)[0].numpy()]
        assert (names == drawn).mean() > 0.999
        np.testing.assert_array_equal(got["label"], got["mean"].argmax(1))


def run_onnx_once(file: Path, x: np.ndarray) -> dict[str, np.ndarray]:
    runtime = pytest.importorskip("onnxruntime", reason='needs onnxruntime: pip install "embasis[onnx]"')
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"x": x}), strict=True))


def test_the_file_says_of_itself_what_a_program_needs_and_nothing_of_this_machine(made: Path) -> None:
    home = made / "em_basis"
    file = export_onnx(home)
    data = file.read_bytes()
    onnx = pytest.importorskip("onnx", reason='needs onnx: pip install "embasis[onnx]"')
    graph = onnx.load_from_string(data)
    onnx.checker.check_model(graph, full_check=True)
    facts = {entry.key: entry.value for entry in graph.metadata_props}
    assert facts["kind"] == "table"
    assert facts["method"] == "em_basis"
    assert json.loads(facts["round"]) == 2
    assert json.loads(facts["classes"]) == ["c0", "c1", "c2"]
    assert json.loads(facts["input"])["columns"] == list(cli_tables.FEATURES)
    assert facts["embasis"]
    assert facts["torch"] == torch.__version__
    assert b"/src/" not in data
    assert b"site-packages" not in data
    assert str(home).encode() not in data
    (given,) = graph.graph.input
    assert given.type.tensor_type.shape.dim[0].dim_param == "n"
    again = home / "again.onnx"
    assert embasis("export", home / "run", "-o", again, "--as", "onnx").exit_code == 0
    assert again.read_bytes() == data


def test_the_thresholds_of_the_facts_are_those_of_trust(made: Path) -> None:
    home = made / "em_basis"
    model = model_of(home / "run")
    _, labels = table_inputs(home)
    from embasis.runs.model_facts import describe_model

    thresholds = dict(zip(model.schema.names, describe_model(model)["thresholds"], strict=True))
    below = [u < thresholds[label] for label, u in zip(labels["label"], labels["uncertainty"], strict=True)]
    at = [u == thresholds[label] for label, u in zip(labels["label"], labels["uncertainty"], strict=True)]
    assert [sure or edge for sure, edge in zip(below, at, strict=True)] == labels["trusted"]
    assert 0 < sum(labels["trusted"]) < len(at)


LOADED = """
import sys
sys.modules["embasis"] = None  # an import of it fails from here on
sys.path.insert(0, sys.argv[1])
import numpy as np, torch
torch.set_num_threads(1)
for name in ("nms", "qnms"):  # as where torchvision is made for this torch; here it may be that of another machine
    kept = torch.library.Library("torchvision", "FRAGMENT")
    if not hasattr(torch.ops.torchvision, name):
        kept.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        globals()[f"library of {name}"] = kept
from load_model import load_exported
predict, facts = load_exported(sys.argv[1])
mean, scores = predict(torch.from_numpy(np.load(sys.argv[2])))
np.savez(sys.argv[3], mean=mean.numpy(), scores=scores.numpy(), classes=np.array(facts["classes"]))
try:
    import embasis
except ImportError:
    print("without embasis")
"""


@pytest.mark.parametrize("name", [*TABLES, *image_runs.DEPTHS])
def test_files_for_torch_say_what_predict_says_where_embasis_cannot_be_imported(
    made: Path, name: str, tmp_path: Path
) -> None:
    home, out = made / name, tmp_path / "model"
    x, labels = table_inputs(home) if name in TABLES else image_inputs(home)
    result = embasis("export", home / "run", "-o", out, "--as", "torch")
    assert result.exit_code == 0, result.output
    last = "with load_model.py, which needs torch and safetensors alone (for images timm)"
    assert result.stdout == f"wrote {out}: the model of round {2 if name == 'em_basis' else 1}, {last}\n"
    assert {path.name for path in out.iterdir()} == {
        ".embasis-export.json", "model.safetensors", "model.json", "load_model.py"
    }  # fmt: skip
    np.save(tmp_path / "x.npy", x)
    words = [sys.executable, "-I", "-c", LOADED, out, tmp_path / "x.npy", tmp_path / "got.npz"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "without embasis\n"), done.stderr
    with np.load(tmp_path / "got.npz", allow_pickle=False) as arrays:
        got = {key: arrays[key] for key in arrays.files}
    label = got["mean"].argmax(1)
    assert [str(got["classes"][number]) for number in label] == labels["label"]
    found = got["mean"][np.arange(len(label)), label]
    # at depth partial, fit keeps maps in half precision, which the loader does not
    np.testing.assert_allclose(found, labels["probability"], atol=5e-3 if name == "partial" else 5e-5)


def test_the_loader_is_short_and_knows_nothing_of_embasis() -> None:
    text = Path(plain_loader.__file__).read_text()
    code = text.partition("def load_exported")[2].splitlines()
    assert len([line for line in code if line.strip()]) <= 32
    assert "import embasis" not in text
    assert "from embasis" not in text


def test_a_network_that_is_no_graph_is_refused_with_the_way_out(made: Path) -> None:
    model = model_of(made / "em_basis" / "run")
    model.progress.network = torch.nn.Identity()
    with pytest.raises(ConfigError) as caught:
        build_graph(model)
    rule = "a model leaves embasis as a file only if its network is embasis's own, and this one is a Identity"
    assert str(caught.value) == f"{rule}; embasis predict labels new data with it"


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return copied(made / "em_basis", tmp_path / "here", monkeypatch)


def refused(code: int, sentence: str, *words: object) -> None:
    before = tree(Path())
    cli_tables.refused(code, sentence, *words)
    assert tree(Path()) == before


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("--all is for labels, got --as onnx, which is the model", ("-o", "m.onnx", "--as", "onnx", "--all")),
        ("output must end in .onnx for --as onnx, got 'm.bin'", ("-o", "m.bin", "--as", "onnx")),
        ("--copy is for --as folder, got --as torch", ("-o", "m", "--as", "torch", "--copy")),
        ("output run/m.onnx lies in the run folder run; name a place outside of it",
         ("-o", "run/m.onnx", "--as", "onnx")),
    ],
)  # fmt: skip
def test_a_model_asked_for_in_a_wrong_way_is_refused(here: Path, sentence: str, words: tuple[str, ...]) -> None:
    refused(2, sentence, "export", "run", *words)


def test_label_maps_have_no_files_for_torch(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(made / "maps", tmp_path / "here", monkeypatch)
    suited = "the run labelled pictures with label maps: --as coco or cvat or onnx"
    sentence = f"--as torch is for runs on a table or images, {suited}"
    refused(2, sentence, "export", "run", "-o", "model", "--as", "torch")


def test_where_a_package_is_absent_a_sentence_says_what_to_install(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    needs = "--as onnx needs onnx, onnxscript, onnxruntime, and onnx cannot be imported"
    refused(2, f'{needs}: pip install "embasis[onnx]"', "export", "run", "-o", "m.onnx", "--as", "onnx")


def test_a_folder_that_somebody_has_changed_is_left_alone(here: Path) -> None:
    for _ in range(2):
        assert embasis("export", "run", "-o", "model", "--as", "torch").exit_code == 0
    Path("model/load_model.py").write_text("# mine")
    sentence = "output model holds what export did not make: 'load_model.py'; name another folder"
    refused(2, sentence, "export", "run", "-o", "model", "--as", "torch")


def test_a_file_that_computes_something_else_is_not_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason=f'needs {name}: pip install "embasis[onnx]"')
    from embasis.runs import onnx_model

    whole = onnx_model.build_graph(model_of(Path("run")))
    whole.network.classifier.bias.add_(3.0 * torch.arange(3))
    checked = onnx_model.check_onnx
    monkeypatch.setattr(onnx_model, "check_onnx", lambda data, graph, rows: checked(data, whole, rows))
    result = embasis("export", "run", "-o", "m.onnx", "--as", "onnx")
    assert result.exit_code == 6
    assert result.stderr.startswith("embasis: the ONNX file does not compute what the model does: it differs by ")
    assert not Path("m.onnx").exists()
