"""Eight short runs, and sha256 of the values that each of them gives.

What the hashes are made of is chosen so that a rename or a move changes none of them, and any change of a computed
value changes at least one:

| part | what is hashed |
| --- | --- |
| labels | each column of the label table of each round: its values in the order of rows; of label maps the pixels |
| predicted | the same of `embasis predict` on other rows, by the model that the run has left |
| weights | shape, type and bytes of each stored tensor (network, labeller, selector, optimiser, best round), sorted by
  this hash: the name under which a tensor is stored does not count |
| records | the numbers of each round's record. Names of fields do not count: the values of an object are sorted. Texts,
  nulls and empty lists do not count either, so that a status or a score may get another name |

So two fields that swap their values are not noticed here; the tests of their meaning notice that.
Settings are written as on the command line: where a setting is renamed or becomes a field of a part, the run below is
changed by hand or by codemod, and the hashes stay. Only files of the run folder are read, by pyarrow, safetensors and
json, and all data are made here or embedded, so that nothing below hangs on a name within embasis but
`embasis.cli.main` and `embasis.EMBasisClassifier`.

The values hold for one type of CPU, one build of each library and one thread: see `environment`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import torch
from click.testing import CliRunner
from PIL import Image
from safetensors.numpy import load_file

Golden = dict[str, Any]

GOLDENS = Path(__file__).parents[1] / "golden" / "goldens.json"
LIBRARIES = ("torch", "numpy", "scipy", "pillow", "timm")
GROUPS = ("network", "labeller")
"""Prefixes of stored tensors that are compared apart from the rest."""


def environment() -> dict[str, str]:
    """What the bits of a run hang on, beside the code."""
    return {
        "machine": platform.machine(),
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        **{name: version(name) for name in LIBRARIES},
    }


def processor() -> str:
    """The maker of the CPU, by which libraries of linear algebra choose their code; "" where nobody says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch with one thread, as the goldens were recorded."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def sha(*parts: bytes) -> str:
    """16 hexadecimal digits of the sha256 of the parts, each with its length."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()[:16]


def hash_array(values: np.ndarray) -> str:
    """Of shape, type and bytes."""
    return sha(str((values.shape, values.dtype.str)).encode(), np.ascontiguousarray(values).tobytes())


def hash_column(values: Sequence[Any]) -> str:
    """Of a column of one type, nulls allowed; numbers by their bytes."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, float) for value in known):
        missing = np.array([value is None for value in values])
        return sha(missing.tobytes(), np.array(known, dtype=np.float64).tobytes())
    return sha(json.dumps(list(values), ensure_ascii=False).encode())


def hash_table(path: Path) -> dict[str, str]:
    """Each column of a .parquet file, or of a .csv file, where every cell is text."""
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            head, *lines = csv.reader(file)
        return {name: hash_column(list(cells)) for name, cells in zip(head, zip(*lines, strict=True), strict=True)}
    table = pyarrow.parquet.read_table(path)
    return {name: hash_column(table.column(name).to_pylist()) for name in table.column_names}


def hash_maps(folder: Path) -> dict[str, str]:
    """The table of a folder of label maps, and the pixels of each kind of map."""
    tables = [path for path in sorted(folder.iterdir()) if path.suffix in (".parquet", ".csv")]
    found = {f"table {name}": value for table in tables for name, value in hash_table(table).items()}
    for kind in sorted(path for path in folder.iterdir() if path.is_dir()):
        pictures = sorted(kind.rglob("*.png"))
        found[kind.name] = sha(
            *(
                str(path.relative_to(kind)).encode() + hash_array(np.array(Image.open(path))).encode()
                for path in pictures
            )
        )
    assert tables, f"{folder} has a table"
    assert len(found) >= 5, f"{folder} has four kinds of maps"
    return found


def hash_labels(path: Path) -> dict[str, str]:
    """A round's labels, or those of a prediction: a table, or a folder of label maps."""
    return hash_maps(path) if path.is_dir() else hash_table(path)


def hash_tensors(run: Path) -> dict[str, Any]:
    """All tensors of the newest generation, without their names."""
    newest = max((run / "generations").iterdir(), key=lambda path: int(path.name))
    groups: dict[str, list[str]] = {group: [] for group in (*GROUPS, "rest")}
    for name, value in load_file(newest / "tensors.safetensors").items():
        group = name.partition("/")[0]
        groups[group if group in GROUPS else "rest"].append(hash_array(value))
    found: dict[str, Any] = {
        group: f"{len(hashes)} tensors {sha(*(each.encode() for each in sorted(hashes)))}"
        for group, hashes in groups.items()
    }
    # A labeller's state is small and about to be put in order: one by one, so that it can be seen what is missing.
    return {**found, "labeller": sorted(groups["labeller"])}


def without_names(value: Any) -> Any:
    """Numbers and their order; names, texts and what is empty are left out of objects."""
    if isinstance(value, dict):
        inside = [without_names(item) for item in value.values() if counts(item)]
        return sorted((item for item in inside if item != []), key=lambda item: json.dumps(item))
    if isinstance(value, list | tuple):
        return [without_names(item) for item in value if item is None or counts(item)]
    return value if isinstance(value, bool) or value is None else repr(float(value))


def counts(value: Any) -> bool:
    """Whether a value of a record is of numbers; "nan" and the infinities are, in JSON."""
    if isinstance(value, str):
        return value in ("nan", "inf", "-inf")
    return value is not None


def hash_record(record: Any) -> str:
    """The numbers of one round's record."""
    return sha(json.dumps(without_names(record)).encode())


def hash_run(run: Path, predicted: Path) -> Golden:
    """All that a finished run folder holds of values, and a prediction of its model."""
    records = [json.loads(line) for line in (run / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]
    rounds = sorted(path for path in (run / "labels").iterdir())
    assert len(rounds) == len(records) >= 2
    return {
        "labels": {path.name.partition(".")[0]: hash_labels(path) for path in rounds},
        "predicted": hash_labels(predicted),
        "weights": hash_tensors(run),
        "records": [hash_record(record) for record in records],
    }


def embasis(*words: object) -> None:
    """The command in this process."""
    from embasis.cli import main

    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, f"{words}: {result.output} {result.exception!r}"


def fit_and_predict(home: Path, sides: Sequence[object], others: object, output: str, *settings: str) -> Golden:
    """The run on both sides, a prediction of other rows, and the hashes of both."""
    embasis("fit", *sides, "-o", home / "run", "--seed", 7, *settings)
    embasis("predict", home / "run", others, "-o", home / output)
    return hash_run(home / "run", home / output)


def draw_rows(seed: int, count: int, moved: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 7 features in 4 classes that touch, and their classes; `moved` is the other place."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(0, 1.6, (4, 7))
    y = np.arange(count) % 4
    return (centres[y] + moved + draw.normal(0, 1, (count, 7))).astype(np.float32), y


def write_rows(path: Path, x: np.ndarray, y: np.ndarray | None = None) -> Path:
    """A table of features, with the classes if they are given."""
    head = [f"f{number}" for number in range(x.shape[1])] + (["label"] if y is not None else [])
    lines = [",".join(head)]
    for number, row in enumerate(x):
        lines.append(
            ",".join([*(repr(float(value)) for value in row), *([f"class {y[number]}"] if y is not None else [])])
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def run_table(home: Path, *settings: str) -> Golden:
    """Tables of 120 and 150 rows with labels to score by, a third to predict."""
    sides = (
        write_rows(home / "labelled.csv", *draw_rows(1, 120, 0.0)),
        write_rows(home / "unlabelled.csv", *draw_rows(2, 150, 0.8)),
    )
    others = write_rows(home / "others.csv", draw_rows(3, 60, 0.8)[0])
    return fit_and_predict(home, sides, others, "predicted.parquet", *settings)


def run_table_linear(home: Path) -> Golden:
    """The default method on its default network for tables, with held-out rows and the best round kept."""
    return run_table(home, "rounds=3", "plan.holdout=0.2", "plan.keep_round=information")


def run_table_mlp(home: Path) -> Golden:
    """Class-balanced self-training with a network that draws: first weights, dropout, order of rows."""
    plan = ("rounds=2", "source_epochs=6", "epochs=3", "batch_size=32", "source_lr=0.01", "lr=0.01")
    return run_table(home, "--method", "cbst", "--backbone", "mlp", "hidden=16", *plan)


def run_paper(home: Path) -> Golden:
    """Every part of the paper: stage I, EM on features alone, variance loss, latent draws, drawn labels, 1/Var."""
    plan = ("rounds=3", "source_epochs=8", "epochs=3", "batch_size=32", "source_lr=0.01", "lr=0.01")
    return run_table(home, "--method", "em_basis_paper", "--backbone", "mlp", "hidden=16", *plan)


def run_small_cnn(home: Path) -> Golden:
    """Every picture is normalised."""
    return run_digits(home, "source_epochs=12")


def run_plain_cnn(home: Path) -> Golden:
    """The network of releases before decision 0034."""
    return run_digits(home, "source_epochs=3", "norm=false")


def run_digits(home: Path, *settings: str) -> Golden:
    """Virtual digits to handwritten ones; the network of arrays with channels, warped."""
    draw = np.random.default_rng(5)
    np.savez(home / "others.npz", x=draw.random((40, 1, 8, 8), dtype=np.float32))
    plan = ("rounds=2", "epochs=1", "batch_size=64", "plan.augment=1.0")
    return fit_and_predict(
        home, ("--dataset", "digits", "data.count=300"), home / "others.npz", "predicted.parquet",
        "--backbone", "small_cnn", "width=4", "features=16", *plan, *settings,
    )  # fmt: skip


def write_picture(path: Path, label: int, number: int, moved: int) -> None:
    """A picture with stripes of its class's direction and colour, in grain."""
    draw = np.random.default_rng((label, number, moved))
    rows, columns = np.mgrid[0:28, 0:34]
    stripes = (rows, columns, rows + columns)[label] // 4 % 2 * 60
    colour = np.array([(150, 70, 90), (80, 150, 80), (90, 80, 150)][label]) + moved
    pixels = colour + stripes[..., None] + draw.normal(0, 30, (28, 34, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


def run_images(home: Path, depth: str, *settings: str) -> Golden:
    """Folders of 36 labelled and 36 unlabelled pictures, with a tiny network of drawn weights."""
    for label in range(3):
        for number in range(12):
            write_picture(home / "photos" / f"class {label}" / f"{number}.png", label, number, 0)
            write_picture(home / "paintings" / f"class {label}" / f"{number}.png", label, number, 35)
        write_picture(home / "others" / f"{label}.png", label, 99, 35)
    return fit_and_predict(
        home, (home / "photos", home / "paintings"), home / "others", "predicted.parquet",
        "--backbone", "timm:test_efficientnet", "network.pretrained=false", "network.size=32",
        f"images.depth={depth}", f"images.cache={home / 'cache'}", "images.workers=0", "rounds=2", *settings,
    )  # fmt: skip


def run_images_frozen(home: Path) -> Golden:
    """Pictures whose features are kept."""
    return run_images(home, "frozen")


def run_images_partial(home: Path) -> Golden:
    """Pictures, and the last stages of the network trained."""
    return run_images(home, "partial", "source_epochs=2", "epochs=1", "batch_size=12", "source_lr=0.002", "lr=0.002")


def draw_scene(number: int, moved: int) -> tuple[np.ndarray, np.ndarray]:
    """A picture of sky, road and a car, and its class numbers."""
    draw = np.random.default_rng((number, moved))
    classes = np.zeros((32, 48), np.uint8)
    classes[int(draw.integers(8, 16)) :] = 1
    top, left = int(draw.integers(0, 16)), int(draw.integers(0, 24))
    classes[top : top + 16, left : left + 16] = 2
    colours = np.array([(90, 140, 200), (110, 100, 90), (200, 60, 50)]) + moved
    return (colours[classes] + draw.normal(0, 20, (32, 48, 3))).clip(0, 255).astype(np.uint8), classes


def write_scenes(root: Path, numbers: range, moved: int) -> Path:
    """images/, labels/ and classes.toml."""
    for kind in ("images", "labels"):
        (root / kind).mkdir(parents=True)
    for number in numbers:
        pixels, classes = draw_scene(number, moved)
        Image.fromarray(pixels).save(root / "images" / f"{number}.png")
        Image.fromarray(classes).save(root / "labels" / f"{number}.png")
    names = enumerate(("sky", "road", "car"))
    (root / "classes.toml").write_text("".join(f'[[class]]\nname = "{name}"\nid = {each}\n' for each, name in names))
    return root


def run_scenes(home: Path) -> Golden:
    """Label maps of 12 and 12 pictures; the true ones of the unlabelled side are for scores."""
    sides = (write_scenes(home / "drawn", range(12), 0), write_scenes(home / "streets", range(20, 32), 25))
    others = write_scenes(home / "others", range(40, 43), 25) / "images"
    plan = ("rounds=2", "source_epochs=3", "epochs=2", "batch_size=6", "source_lr=0.01", "lr=0.005", "workers=0")
    network = (
        "--backbone",
        "small_fcn",
        "network.width=16",
        "maps.size=32",
        "maps.crop_height=32",
        "maps.crop_width=48",
    )
    return fit_and_predict(home, sides, others, "maps", *network, *plan)


def run_estimator(home: Path) -> Golden:
    """`EMBasisClassifier` as in the README; the weights that it shows are its basis."""
    from embasis import EMBasisClassifier

    x, y = draw_rows(1, 120, 0.0)
    others = draw_rows(2, 150, 0.8)[0]
    model = EMBasisClassifier(rounds=3, random_state=7).fit(x, y, unlabelled=others)
    return {
        "labels": {
            "training": {"transduction": hash_array(model.transduction_), "round": hash_array(model.labeled_iter_)}
        },
        "predicted": {
            "label": hash_array(model.predict(others)),
            **{name: hash_array(value) for name, value in model.label_distribution(others)._asdict().items()},
        },
        "weights": {"basis": hash_array(model.basis_)},
        "records": [hash_record(asdict(record)) for record in model.records_],
    }


RUNS: dict[str, Callable[[Path], Golden]] = {
    "table, linear": run_table_linear,
    "table, mlp, cbst": run_table_mlp,
    "digits, small_cnn": run_small_cnn,
    "digits, small_cnn without norm": run_plain_cnn,
    "images, frozen": run_images_frozen,
    "images, partial": run_images_partial,
    "label maps": run_scenes,
    "estimator": run_estimator,
    "all of the paper": run_paper,
}


def differences(expected: Any, found: Any, where: str = "") -> list[str]:
    """The places at which two goldens differ, in words."""
    if isinstance(expected, dict) and isinstance(found, dict):
        names = sorted(expected.keys() | found.keys())
        return [
            line for name in names for line in differences(expected.get(name), found.get(name), f"{where} / {name}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [line for number, (old, new) in pairs for line in differences(old, new, f"{where} / {number}")]
    return [] if expected == found else [f"{where.removeprefix(' / ')}: {expected} → {found}"]
