"""Ways to get it wrong: one clear sentence, the documented exit code, no traceback, nothing written."""

from __future__ import annotations

import io
import json
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_tables import ENVIRONMENT, FEATURES, PROGRAM, copied, embasis, fit_tables
from embasis.methods import FAMILIES, METHODS
from embasis.storage import RunFolder, read_newest

KNOWN_METHODS = ", ".join(sorted(METHODS))
KNOWN_GROUPS = ", ".join(sorted([*METHODS, *FAMILIES, "alignment", "all"]))
KNOWN_SETS = (
    "amazon_reviews, blobs, carla_camvid, digits, gas_drift, gta5_cityscapes, heart_disease, mnist_usps, moons, "
    "office31, office_caltech10, office_caltech10_googlenet, office_caltech10_surf, pacs, scenes, spoken_digits, "
    "synthia_cityscapes, visda17, wisdm"
)
KNOWN_NETWORKS = (
    "adapter, deeplab_v2, efficientnet_lite0, extra_trees, fast_segment, hist_gradient_boosting, linear, mlp, "
    "random_forest, small_cnn, small_fcn, timm"
)
KNOWN_PRESETS = (
    "did you mean paper-office31? known: paper-gta5-cityscapes, paper-office31, paper-synthia-cityscapes, "
    "paper-visda17, street-cpu"
)
TABLES = "align, data, images, maps, method, network, plan"
FOR_IMAGES = "allow_empty_class, allow_missing_class, budget, classes, corrections"
PLAN_KEYS = (
    "accumulate_steps, augment, batch_size, collapse_share, device, epochs, harm_limit, holdout, keep_round, lr, "
    "lr_power, max_sites, momentum, optimiser, precision, rounds, schedule, source_epochs, source_lr, sum, "
    "weight_decay"
)
MAP_KEYS = "blur, colour, crop_height, crop_width, flip, least_scale, most_scale, rare, size, window, workers"
EXPECTED = "a table is expected: .csv, .npy, .npz or .parquet"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables and a finished run of one round."""
    return fit_tables(tmp_path_factory.mktemp("errors"), "rounds=1")


@pytest.fixture
def here(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to spoil, as the current folder; pages are not drawn."""
    monkeypatch.setattr("embasis.runs.run.run_page", lambda view: "page")
    return copied(finished, tmp_path / "here", monkeypatch)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder: Path, code: int, sentence: str, *words: object) -> None:
    """The whole of stderr, the code, and a folder without a change."""
    before, folders = contents(folder), {path for path in folder.rglob("*") if path.is_dir()}
    result = embasis(*words)
    assert result.stderr == f"embasis: {sentence}\n"
    assert result.exit_code == code
    assert contents(folder) == before
    assert {path for path in folder.rglob("*") if path.is_dir()} == folders


FIT = ("fit", "labelled.csv", "judged.csv", "-o", "new")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((*FIT, "--method", "embasis"), f"unknown method 'embasis'; did you mean em_basis? known: {KNOWN_METHODS}"),
        ((*FIT, "--backbone", "resnet"), f"unknown network 'resnet'; known: {KNOWN_NETWORKS}"),
        (
            (*FIT, "--backbone", "resnet50"),
            f"unknown network 'resnet50'; did you mean timm:resnet50? known: {KNOWN_NETWORKS}",
        ),
        ((*FIT, "--preset", "paper-ofice31"), f"unknown preset 'paper-ofice31'; {KNOWN_PRESETS}"),
        ((*FIT, "--method", "cbts"), f"unknown method 'cbts'; did you mean cbst? known: {KNOWN_METHODS}"),
        (
            ("fit", "--dataset", "mnist", "-o", "new"),
            f"unknown data set 'mnist'; did you mean mnist_usps? known: {KNOWN_SETS}",
        ),
        (("compare", "mnist"), f"unknown data set 'mnist'; did you mean mnist_usps? known: {KNOWN_SETS}"),
        (
            ("compare", "blobs", "--methods", "cbst,crst"),
            f"unknown method or family 'crst'; did you mean cbst? known: {KNOWN_GROUPS}",
        ),
        (
            ("compare", "blobs", "--methods", "adversaria"),
            f"unknown method or family 'adversaria'; did you mean adversarial? known: {KNOWN_GROUPS}",
        ),
        (
            ("compare", "blobs", "--methods", "cbst", "method.alpha=1"),
            "unknown method setting 'alpha'; known: keep_first, keep_max, keep_step, unlabelled_weight",
        ),
        (("compare", "blobs", "count=many"), "data.count must be a whole number, got 'many'"),
        (("compare", "blobs", "-o", "judged.csv"), "output judged.csv is a file; name a folder"),
        (("demo", "-o", "judged.csv"), "output judged.csv is a file; name a folder"),
        (
            (*FIT, "--method", "source_only", "--backbone", "linear", "round=3"),
            "unknown key 'round'; did you mean plan.rounds? known keys: save_seconds, seed, standardise; "
            f"data: {FOR_IMAGES}, dataset, drop, follow_links, forbid_leakage, id, label, labelled, test, unlabelled; "
            f"method: name; align: ends, name; network: name; plan: {PLAN_KEYS}; "
            "images: augment, cache, depth, head, stages, workers; "
            f"maps: {MAP_KEYS}",
        ),
        ((*FIT, "plan.rounds=few"), "plan.rounds must be a whole number, got 'few'"),
        ((*FIT, "plan.rounds=-1"), "plan.rounds must be at least 0, got -1"),
        ((*FIT, "paln.rounds=1"), f"unknown table 'paln'; did you mean plan? known: {TABLES}"),
        ((*FIT, "rounds"), "settings are written key=value, got 'rounds'"),
        (
            (*FIT, "data.columns=1"),
            f"unknown data setting 'columns'; known: {FOR_IMAGES}, drop, follow_links, forbid_leakage, id, label, "
            "labelled, test, unlabelled",
        ),
        ((*FIT, "standardise=maybe"), "standardise must be one of domain, joint, none, got 'maybe'"),
        (
            (*FIT, "--backbone", "small_cnn"),
            "small_cnn needs images (channels, height, width), got shape (8,)",
        ),
        ((*FIT, "--config", "no.toml"), "cannot read config no.toml: No such file or directory"),
        (("fit", "-o", "new"), "name two tables or folders, LABELLED and UNLABELLED, or --dataset"),
        (
            ("fit", "labelled.csv", "judged.csv", "-o", "."),
            "output . contains the labelled side labelled.csv; name another place",
        ),
        (
            ("fit", "labelled.csv", "judged.csv", "-o", "turned.csv"),
            "output turned.csv is a file; name a folder for the run",
        ),
        (("predict", "run", "judged.csv", "-o", "l.txt"), "output must end in .csv or .parquet, got 'l.txt'"),
        (
            ("fit", "labelled.csv", "judged.csv", "-o", "run", "rounds=3"),
            "the run folder was begun with other settings: plan.rounds: 1 → 3; "
            "use another folder, the old settings, or --allow-change plan.rounds",
        ),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_wrong_settings_are_refused_with_code_2(here: Path, words: tuple[str, ...], sentence: str) -> None:
    refused(here, 2, sentence, *words)


@pytest.mark.parametrize(
    "words", [("fit", "labelled.csv", "-o", "new"), ("fit", "labelled.csv", "judged.csv"), ("list", "names"), ("fti",)]
)
def test_wrong_usage_is_refused_with_code_2(here: Path, words: tuple[str, ...]) -> None:
    before = contents(here)
    result = embasis(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: embasis ")
    assert contents(here) == before


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("seed = [", "config c.toml: Invalid value (at end of document)"),
        ("method = 3", "config: method must be a table of settings, got 3"),
        (
            "sead = 3",
            "config: Object contains unknown field `sead`; "
            "known keys: align, data, images, maps, method, network, plan, save_seconds, seed, standardise",
        ),
        ("[plan]\nround = 3", None),
    ],
)
def test_a_wrong_config_file_is_refused(here: Path, text: str, sentence: str | None) -> None:
    Path("c.toml").write_text(text)
    sentence = sentence or f"unknown plan setting 'round'; did you mean rounds? known: {PLAN_KEYS}"
    refused(here, 2, sentence, *FIT, "--config", "c.toml")


def csv_lines(change: Callable[[list[str]], None]) -> str:
    lines = Path("labelled.csv").read_text().splitlines()
    change(lines)
    return "\n".join(lines) + "\n"


def spoil(kind: str) -> str:
    """Write a bad table; return its name."""

    def cell(value: str) -> Callable[[list[str]], None]:
        def change(lines: list[str]) -> None:
            cells = lines[3].split(",")
            lines[3] = ",".join([cells[0], value, *cells[2:]])

        return change

    def ragged(lines: list[str]) -> None:
        lines[3] += ",1"

    def one_class(lines: list[str]) -> None:
        lines[1:] = [line for line in lines[1:] if line.endswith("c0")]

    def header(lines: list[str]) -> None:
        del lines[1:]

    changes = {
        "NaN": cell("nan"), "inf": cell("inf"), "text": cell("red"), "ragged": ragged, "one class": one_class,
        "header": header,
    }  # fmt: skip
    name = {"pickled": "bad.npz", "image": "bad.png", "truncated": "bad.parquet"}.get(kind, "bad.csv")
    if kind in changes:
        Path(name).write_text(csv_lines(changes[kind]))
    elif kind == "pickled":
        np.savez(name, x=np.array([{"a": 1}, {"b": 2}], dtype=object), y=np.array([0, 1]))
    elif kind == "truncated":
        Path(name).write_bytes(b"PAR1 and no more")
    elif kind != "missing":
        Path(name).write_bytes(b"" if kind == "empty" else b"data")
    return name


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("missing", "bad.csv: no such file"),
        ("empty", "bad.csv: the file is empty"),
        ("image", f"bad.png: unknown kind of file '.png'; {EXPECTED}"),
        ("header", "bad.csv: no rows"),
        (
            "inf",
            "bad.csv: values must be finite, got 1 inf in 1 of 60 rows and 1 of 8 columns; first at row 2, column 'f0'",
        ),
        ("text", "bad.csv: line 4, column 'f0': 'red' is not a number"),
        ("ragged", "bad.csv: line 4 has 11 fields, the header has 10"),
        ("one class", "bad.csv: at least 2 classes are needed, got 1 class: 'c0'"),
        ("pickled", "bad.npz: array 'x': holds Python objects (a pickle); only plain numbers and text are read"),
    ],
)
def test_bad_tables_are_refused_with_code_3_before_anything_is_written(here: Path, kind: str, sentence: str) -> None:
    name = spoil(kind)
    refused(here, 3, sentence, "fit", name, "judged.csv", "-o", "new")
    result = embasis("check", name, "judged.csv")
    assert result.exit_code == 3
    assert f"error: {sentence}\n" in result.stdout
    assert result.stdout.splitlines()[-1].endswith("embasis fit would refuse these tables")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("fit", "unlabelled.csv", "unlabelled.csv", "-o", "new"),
            "unlabelled.csv: no label column 'label'; columns: 'f0', 'f1', 'f2', 'f3', 'f4', 'f5', 'f6', 'f7'"
            "; --label names another",
        ),
        ((*FIT, "--id", "key"), "labelled.csv: no id column 'key'; columns: {}"),
        (
            ("fit", ".", "judged.csv", "-o", "../new"),
            "images and tables cannot be mixed; no folder or list of images: judged.csv",
        ),
        ((*FIT, "--test", "no.csv"), "no.csv: no such file"),
        (
            ("fit", "labelled.csv", "unlabelled.csv", "-o", "run", "rounds=1"),
            "the data have changed since the run began: labels; "
            "use another folder, the old data, or --accept-data-change",
        ),
        (("predict", "run", "no.csv", "-o", "l.csv"), "no.csv: no such file"),
        (
            ("predict", "run", "few.csv", "-o", "l.csv"),
            "feature columns differ; only in run: 'f7'; only in few.csv: 'g7'",
        ),
        (
            ("predict", "run", "few.npy", "-o", "l.csv"),
            "input has 3 features, the model was trained on 8 features",
        ),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_data_that_do_not_fit_are_refused_with_code_3(here: Path, words: tuple[str, ...], sentence: str) -> None:
    Path("few.csv").write_text(Path("unlabelled.csv").read_text().replace("f7", "g7"))
    np.save("few.npy", np.zeros((4, 3)))
    names = sorted(("id", *FEATURES, "label"))
    refused(here, 3, sentence.format(", ".join(repr(name) for name in names)), *words)


def test_changed_rows_are_refused_with_code_3(here: Path) -> None:
    Path("labelled.csv").write_text(csv_lines(lambda lines: lines.pop()))
    sentence = (
        "the data have changed since the run began: labelled (0 added, 1 removed, 0 edited: 'row 69'); "
        "use another folder, the old data, or --accept-data-change"
    )
    refused(here, 3, sentence, "fit", "labelled.csv", "judged.csv", "-o", "run", "rounds=1")


@pytest.mark.parametrize("command", [("predict", "{}", "judged.csv", "-o", "l.csv"), ("report", "{}")])
@pytest.mark.parametrize("run", ["nothing", "other"])
def test_what_is_no_run_folder_is_refused_with_code_4(here: Path, command: tuple[str, ...], run: str) -> None:
    Path("other").mkdir()
    sentence = f"{run} holds no finished generation; is it a run folder?"
    refused(here, 4, sentence, *(word.format(run) for word in command))


def test_a_run_that_is_wholly_damaged_is_refused_with_code_4(here: Path) -> None:
    for path in Path("run").rglob("tensors.safetensors"):
        path.write_bytes(path.read_bytes()[:100])
    result = embasis("predict", "run", "judged.csv", "-o", "l.csv")
    assert result.exit_code == 4
    assert result.stderr.startswith("embasis: run holds no whole generation: ")
    assert not Path("l.csv").exists()


def test_a_damaged_generation_is_a_warning_in_one_line(here: Path) -> None:
    newest = Path("run") / "generations" / f"{read_newest('run').number:06d}" / "tensors.safetensors"
    newest.write_bytes(newest.read_bytes()[:100])
    result = embasis("predict", "run", "judged.csv", "-o", "l.csv")
    assert result.exit_code == 0
    assert result.stderr.startswith(f"warning: {newest}: 100 of ")
    assert result.stderr.endswith("; generation 1 is used\n")
    assert result.stderr.count("\n") == 1


def test_a_generation_that_is_named_is_used_or_refused_and_never_replaced(here: Path) -> None:
    assert embasis("predict", "run", "judged.csv", "-o", "l.csv", "--generation", "1").exit_code == 0
    Path("l.csv").unlink()
    newest = Path("run") / "generations" / "000002" / "tensors.safetensors"
    data = newest.read_bytes()
    newest.write_bytes(data[:100])
    words = ("predict", "run", "judged.csv", "-o", "l.csv", "--generation")
    refused(here, 4, f"{newest}: 100 of {len(data):,} bytes", *words, "2")
    refused(here, 4, "run has no generation 7; there are: 1, 2", *words, "7")
    refused(here, 4, "nowhere has no generation 1; there are: none", "predict", "nowhere", *words[2:], "1")


def test_an_output_that_cannot_be_written_has_code_5(here: Path) -> None:
    sentence = "cannot write no/l.csv: folder no does not exist"
    refused(here, 5, sentence, "predict", "run", "judged.csv", "-o", "no/l.csv")


def test_a_busy_run_folder_has_code_7(here: Path) -> None:
    with RunFolder("run"):
        result = embasis("fit", "labelled.csv", "judged.csv", "-o", "run", "rounds=1")
        reported = embasis("report", "run")
    assert result.exit_code == 7
    assert result.stderr.startswith("embasis: run folder run is locked by pid ")
    assert result.stderr.endswith("; wait for it or choose another folder\n")
    assert not Path("run/error.json").exists()
    assert reported.exit_code == 0


def test_a_collapsed_run_is_kept_and_has_code_6(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from embasis.engine.round_checks import RoundStatus

    def check_collapse(setup: object, state: Any, *_: object) -> RoundStatus:
        return RoundStatus("collapsed", ("collapsed in round 1: it fell",)) if state.round else RoundStatus()

    monkeypatch.setattr("embasis.engine.round.check_round", check_collapse)
    sentence = "embasis: collapsed in round 1: it fell; everything is in new, its report says more\n"
    for _ in range(2):
        result = embasis(*FIT, "rounds=3")
        assert (result.exit_code, result.stderr) == (6, sentence)
    assert json.loads(Path("new/error.json").read_text())["exit_code"] == 6
    assert Path("new/report.html").exists()
    labelled = embasis("predict", "new", "judged.csv", "-o", "l.csv")
    warning = (
        "warning: the run new collapsed in round 1; its model is that of round 0, the best one before; "
        "see its report, and train again with fewer rounds or a smaller plan.lr\n"
    )
    assert (labelled.exit_code, labelled.stderr) == (0, warning)
    assert len(Path("l.csv").read_text().splitlines()) == 61
    assert embasis("predict", "run", "judged.csv", "-o", "l.csv").stderr == ""


def test_a_run_that_trusts_nothing_ends_well_and_says_so(here: Path) -> None:
    result = embasis(*FIT, "--method", "pseudo_label", "threshold=0.99999999")
    assert result.exit_code == 0, result.output
    assert "\nnothing was trusted after round 0; training stops\n" in result.stdout


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Let the end of round 1 fail, once."""
    from embasis.engine import self_train

    usual, errors = self_train.finish_round, list[BaseException]()

    def finish_round(setup: Any, state: Any) -> object:
        if errors and state.round == 1:
            raise errors.pop()
        return usual(setup, state)

    monkeypatch.setattr(self_train, "finish_round", finish_round)
    return errors.append


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (RuntimeError("boom"), 1, "RuntimeError: boom; this is a bug in embasis; run again with --debug"),
        (MemoryError(), 5, "not enough memory; fewer rows, fewer features or a smaller plan.batch_size need less"),
        (
            RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes"),
            5,
            "not enough memory; fewer rows, fewer features or a smaller plan.batch_size need less",
        ),
        (
            RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
            5,
            "not enough memory; fewer rows, fewer features or a smaller plan.batch_size need less",
        ),
        (OSError(5, "Input/output error", "disk"), 5, "disk: Input/output error"),
    ],
)
def test_a_failure_in_training_is_one_sentence_and_a_note_in_the_folder(
    here: Path, failing: Callable[[BaseException], None], error: Exception, code: int, sentence: str
) -> None:
    failing(error)
    result = embasis(*FIT, "rounds=1")
    assert (result.exit_code, result.stderr) == (code, f"embasis: {sentence}\n")
    note = json.loads(Path("new/error.json").read_text())
    assert (note["message"], note["exit_code"], note["round"], note["generation"]) == (sentence, code, 1, 1)
    assert note["resolved"] is False


def test_after_a_failure_the_same_command_goes_on_and_settles_the_note(
    here: Path, failing: Callable[[BaseException], None]
) -> None:
    failing(RuntimeError("boom"))
    embasis(*FIT, "rounds=1")
    result = embasis(*FIT, "rounds=1")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("resumed round 1 from generation 1; epoch 0, step 0\n")
    assert json.loads(Path("new/error.json").read_text())["resolved"] is True


@pytest.mark.parametrize("words", [("--debug", *FIT), (*FIT, "--debug")])
def test_debug_shows_the_traceback_and_keeps_the_code(
    here: Path, failing: Callable[[BaseException], None], words: tuple[str, ...]
) -> None:
    failing(RuntimeError("boom"))
    result = embasis(*words, "rounds=1")
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert result.stderr.endswith("; this is a bug in embasis; run again with --debug\n")


def test_ctrl_c_while_data_are_read_has_code_130(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("embasis.inputs.load.load_pair", interrupt)
    refused(here, 130, "interrupted", *FIT)


def test_control_characters_in_names_are_shown_as_escapes(here: Path) -> None:
    refused(here, 3, r"\x1b[31mred.csv: no such file", "fit", "\x1b[31mred.csv", "judged.csv", "-o", "new")
    Path("\x1b]0;title\x07.csv").write_text("")
    result = embasis("check", "\x1b]0;title\x07.csv", "judged.csv")
    assert "\x1b" not in result.output


def test_warnings_of_others_are_not_ours_to_change(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def noisy(*_: object, **__: object) -> list[object]:
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return []

    monkeypatch.setattr("embasis.inputs.load.check_pair", noisy)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: shown.append(str(message)))
        result = embasis("check", "a.csv", "b.csv")
    assert result.stderr == ""
    assert shown == ["old"]


def test_a_terminal_without_unicode_gets_escapes(here: Path) -> None:
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    command = [*PROGRAM, "list", "methods"]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=True)
    assert rb"KL(uniform \u2016 prediction)" in done.stdout


def test_a_table_from_npz_goes_all_the_way(here: Path) -> None:
    rows = np.loadtxt(io.StringIO(Path("unlabelled.csv").read_text()), delimiter=",", skiprows=1)[:, 1:]
    np.savez("a.npz", x=rows, y=np.arange(60) % 3)
    np.savez("b.npz", x=rows)
    assert embasis("fit", "a.npz", "b.npz", "-o", "new", "rounds=0").exit_code == 0
    assert embasis("predict", "new", "b.npz", "-o", "l.csv").exit_code == 0
    assert Path("l.csv").read_text().splitlines()[1].startswith("0,")


def test_more_components_than_rows_are_refused_before_the_folder_is_made(here: Path) -> None:
    refused(
        here,
        3,
        "components_per_class = 50 asks for 150 components, but there are only 120 rows",
        *FIT,
        "components_per_class=50",
    )
