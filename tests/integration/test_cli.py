"""What each command does when all is well, and how a run stops and goes on."""

from __future__ import annotations

import json
import re
import resource
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli_tables import ENVIRONMENT, FEATURES, PROGRAM, embasis, write_tables
from embasis.cli import list as registries
from embasis.cli import main
from embasis.storage import read_newest, read_stored_table
from embasis.terminal import Stop
from embasis.types import Arrays, Problem

COMMANDS = (
    "demo",
    "fit",
    "predict",
    "export",
    "review",
    "check",
    "compare",
    "ablate",
    "report",
    "list",
    "import-maps",
    "import-weights",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables, and a finished run of two rounds."""
    path = tmp_path_factory.mktemp("cli")
    write_tables(path)
    result = embasis("fit", path / "labelled.csv", path / "judged.csv", "-o", path / "run", "rounds=2")
    assert result.exit_code == 0, result.output
    (path / "said.txt").write_text(result.stdout)
    return path


def narrow(text: str) -> bool:
    return all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_fits_80_columns(command: str) -> None:
    result = embasis(command, "--help")
    assert result.exit_code == 0
    assert "Examples:\n" in result.stdout
    assert f"    embasis {command}" in result.stdout
    assert narrow(result.stdout)


def test_the_first_help_names_every_command_with_its_whole_sentence() -> None:
    result = embasis("--help")
    assert narrow(result.stdout)
    assert all(f"\n  {command} " in result.stdout for command in COMMANDS)
    assert "...\n" not in result.stdout.partition("Commands:")[2]


def test_version_is_said() -> None:
    assert embasis("--version").stdout == "embasis 0.1.0\n"


@pytest.mark.parametrize("words", [["--help"], ["fit", "--help"], ["list", "methods"], ["list"], ["--version"]])
def test_what_only_informs_starts_at_once_and_without_torch(words: list[str]) -> None:
    program = (
        "import sys\nfrom embasis.cli import main\n"
        f"try:\n    main({words!r}, prog_name='embasis')\n"
        "finally:\n    print([name for name in ('torch', 'numpy', 'pyarrow', 'rich') if name in sys.modules])"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout.endswith("[]\n")
    # Processor time, because other work on the machine is no fault of ours.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


def test_a_table_is_fitted_without_torchs_compiler(tmp_path: Path) -> None:
    lines = [f"{number % 7},{number % 5},{number % 2}" for number in range(60)]
    (tmp_path / "labelled.csv").write_text("a,b,label\n" + "\n".join(lines), encoding="utf-8")
    (tmp_path / "unlabelled.csv").write_text("a,b\n" + "\n".join(line[:-2] for line in lines), encoding="utf-8")
    words = ["fit", str(tmp_path / "labelled.csv"), str(tmp_path / "unlabelled.csv"), "-o", str(tmp_path / "run")]
    program = (
        "import sys\nfrom embasis.cli import main\n"
        f"try:\n    main({words!r}, prog_name='embasis')\n"
        "finally:\n    print([name for name in ('torch', 'torch._dynamo') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.endswith("['torch']\n")


@pytest.mark.parametrize("kind", registries.REGISTRIES)
def test_list_names_every_entry_in_80_columns(kind: str) -> None:
    result = embasis("list", kind)
    assert narrow(result.stdout)
    for entry in registries.read_entries(kind):
        assert f"\n  {entry.name}\n" in result.stdout
        assert all(setting in result.stdout for setting in entry.settings)


def test_list_without_a_kind_lists_all() -> None:
    assert all(f"{kind}\n" in embasis("list").stdout for kind in registries.REGISTRIES)


def test_fit_says_what_went_in_each_round_and_how_to_go_on(folder: Path) -> None:
    said = (folder / "said.txt").read_text()
    first, second, *rounds = said.splitlines()[:5]
    assert first == "60 labelled and 60 unlabelled rows, 3 classes"
    assert second == "em_basis with linear, seed 0"
    assert [line[:8] for line in rounds] == ["round  0", "round  1", "round  2"]
    assert all("trusted" in line and "score" in line and "accuracy" in line and len(line) <= 80 for line in rounds)
    assert f"label other rows with: embasis predict {folder / 'run'} INPUT -o labels.csv\n" in said


def test_fit_leaves_a_whole_run_folder_without_paths_of_the_machine(folder: Path) -> None:
    run = folder / "run"
    names = {"config.json", "environment.json", "rounds.jsonl", "quarantine.jsonl", "report.html", "HEAD", "lock"}
    assert names <= {path.name for path in run.iterdir()}
    assert not (run / "error.json").exists()
    config = (run / "config.json").read_text()
    assert json.loads(config)["data"] == {"labelled": "labelled.csv", "unlabelled": "judged.csv"}
    assert str(folder) not in config
    assert read_newest(run).facts["columns"] == list(FEATURES)


def test_fit_shows_no_accuracy_without_true_labels_and_that_of_test_rows_if_given(
    folder: Path, tmp_path: Path, plain_page: None
) -> None:
    test = ("--test", folder / "judged.csv")
    result = embasis("fit", folder / "labelled.csv", folder / "unlabelled.csv", "-o", tmp_path / "r", "rounds=0", *test)
    assert result.exit_code == 0
    assert "  accuracy " not in result.stdout
    assert "  test 1.0" in result.stdout or "  test 0.9" in result.stdout


def test_fit_takes_a_config_file_options_and_words_and_the_later_win(
    folder: Path, tmp_path: Path, plain_page: None
) -> None:
    settings = tmp_path / "s.toml"
    settings.write_text('seed = 3\n[method]\nname = "cbst"\nkeep_first = 0.3\n[plan]\nrounds = 9\n')
    words = ("-o", tmp_path / "r", "--config", settings, "--seed", 4, "--backbone", "mlp", "rounds=0")
    result = embasis("fit", folder / "labelled.csv", folder / "judged.csv", *words, "hidden=5")
    assert result.exit_code == 0, result.output
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert config["seed"] == 4
    assert config["method"] == {
        "name": "cbst",
        "keep_first": 0.3,
        "keep_step": 0.05,
        "keep_max": 0.5,
        "unlabelled_weight": 1.0,
    }
    assert config["network"] == {"name": "mlp", "hidden": 5, "layers": 1, "dropout": 0.2}
    assert config["plan"]["rounds"] == 0


def test_a_finished_run_says_so_and_keeps_its_generation(folder: Path, tmp_path: Path, plain_page: None) -> None:
    shutil.copytree(folder / "run", run := tmp_path / "run")
    result = embasis("fit", folder / "labelled.csv", folder / "judged.csv", "-o", run, "rounds=2")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{run} had ended (finished) with generation 3; nothing is left to train\n")
    assert read_newest(run).number == 3


def test_the_config_of_a_run_can_be_given_back(folder: Path, tmp_path: Path, plain_page: None) -> None:
    shutil.copytree(folder / "run", run := tmp_path / "run")
    result = embasis("fit", folder / "labelled.csv", folder / "judged.csv", "-o", run, "--config", run / "config.json")
    assert result.exit_code == 0, result.output


def test_fit_on_a_named_data_set(tmp_path: Path, plain_page: None) -> None:
    result = embasis("fit", "--dataset", "blobs", "-o", tmp_path / "r", "count=30", "rounds=0")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("30 labelled and 30 unlabelled rows, 3 classes")


def test_predict_matches_columns_by_name_and_ignores_labels(folder: Path, tmp_path: Path) -> None:
    for name in ("judged", "turned", "unlabelled"):
        result = embasis("predict", folder / "run", folder / f"{name}.csv", "-o", tmp_path / f"{name}.csv")
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith(f"wrote {tmp_path / name}.csv: 60 rows, ")
    assert (tmp_path / "judged.csv").read_bytes() == (tmp_path / "turned.csv").read_bytes()
    assert (tmp_path / "judged.csv").read_bytes() == (tmp_path / "unlabelled.csv").read_bytes()
    table = read_stored_table(tmp_path / "judged.csv")
    assert list(table) == ["id", "label", "probability", "between", "within", "uncertainty", "trusted"]
    assert table["id"] == [str(number) for number in range(10, 70)]


def test_predict_of_the_training_rows_is_what_the_last_round_said(folder: Path, tmp_path: Path) -> None:
    embasis("predict", folder / "run", folder / "turned.csv", "-o", tmp_path / "l.parquet")
    last = read_stored_table(folder / "run" / "labels" / "round-002.parquet")
    del last["drawn"]
    assert read_stored_table(tmp_path / "l.parquet") == last


@pytest.mark.parametrize("more", [(), ("--sort", "uncertainty")])
def test_predict_says_how_many_of_the_trusted_labels_are_believed_to_be_right(
    folder: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    result = embasis("predict", folder / "run", folder / "judged.csv", "-o", tmp_path / "l.parquet", *more)
    table = read_stored_table(tmp_path / "l.parquet")
    pairs = zip(table["probability"], table["trusted"], strict=True)
    sure = [probability for probability, trusted in pairs if trusted]
    assert len(sure) > 10
    believed = f"about {sum(sure) / len(sure):.0%} of the trusted labels are believed to be right"
    assert result.stdout.splitlines()[1:] == [believed]


def test_predict_can_put_the_least_sure_first(folder: Path, tmp_path: Path) -> None:
    embasis("predict", folder / "run", folder / "judged.csv", "-o", tmp_path / "l.parquet", "--sort", "uncertainty")
    uncertainty = read_stored_table(tmp_path / "l.parquet")["uncertainty"]
    assert uncertainty == sorted(uncertainty, reverse=True)


def test_predict_trusts_as_many_labels_as_reach_a_precision(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "l.parquet"
    result = embasis("predict", folder / "run", folder / "judged.csv", "-o", output, "--precision", 0.9)
    assert result.exit_code == 0, result.output
    table = read_stored_table(output)
    kept = [p for p, trusted in zip(table["probability"], table["trusted"], strict=True) if trusted]
    rest = [p for p, trusted in zip(table["probability"], table["trusted"], strict=True) if not trusted]
    assert min(kept) > max(rest, default=0)
    assert sum(kept) / len(kept) >= 0.9
    assert not rest or (sum(kept) + max(rest)) / (len(kept) + rest.count(max(rest))) < 0.9 or max(rest) < 0.9
    errors, share = round(sum(1 - p for p in kept)), f"{len(kept) / 60:.0%}"
    said = f"{len(kept)} of 60 trusted ({share}) for a precision of 0.9: about {errors} errors expected among them"
    assert result.stdout == f"wrote {output}: {said}\n"
    assert "warning: the run could check its probabilities on 60 labels only\n" in result.stderr
    result = embasis("predict", folder / "run", folder / "judged.csv", "-o", output, "--precision", "0")
    assert (result.exit_code, result.stderr) == (2, "embasis: precision must be between 0 and 1, got 0\n")


def test_check_prints_notes_and_ends_well(folder: Path) -> None:
    result = embasis("check", folder / "labelled.csv", folder / "judged.csv")
    assert result.exit_code == 0
    assert f"note: {folder / 'labelled.csv'}: 60 rows of 8 features\n" in result.stdout
    assert result.stdout.endswith("no errors, no warnings: embasis fit can use these tables\n")


def test_report_writes_the_page_again_and_shows_the_rounds(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "run", run := tmp_path / "run")
    before = (run / "report.html").read_bytes()
    (run / "report.html").unlink()
    result = embasis("report", run)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == f"finished: round 2 of 2 is kept; wrote {run / 'report.html'}"
    said = (folder / "said.txt").read_text().splitlines()
    assert result.stdout.splitlines()[0] == next(line for line in said if line.startswith("round  0"))
    assert len((run / "report.html").read_bytes()) == pytest.approx(len(before), rel=0.05)


def test_compare_prints_the_table_and_writes_it_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = (
        "compare",
        "blobs",
        "--methods",
        "source_only,cbst,cbst",
        "--seeds",
        2,
        "count=30",
        "rounds=1",
        "keep_first=.3",
    )
    result = embasis(*words)
    assert result.exit_code == 0, result.output
    assert narrow(result.stdout)
    assert "mean ± std over 2 seeds." in result.stdout
    assert list(tmp_path.iterdir()) == []
    again = embasis(*words, "-o", "out")
    assert again.stdout.endswith("wrote compare.csv, compare.md, runs.csv and report.html in out\n")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "compare.csv", "compare.md", "runs.csv", "report.html"
    }  # fmt: skip
    runs = read_stored_table(tmp_path / "out" / "runs.csv")
    assert list(zip(runs["method"], runs["seed"], strict=True)) == [
        ("source_only", "0"), ("cbst", "0"), ("source_only", "1"), ("cbst", "1")
    ]  # fmt: skip


def test_compare_runs_all_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    result = embasis("compare", "blobs", "--methods", "all", "--seeds", 1, "count=30", "rounds=1")
    assert result.exit_code == 0, result.output
    left_out, _, table = result.stdout.partition("\nblobs\n")
    for entry in registries.read_entries("methods"):
        assert (f"\n{entry.name} " in table) != (re.search(rf"\b{entry.name}\b", left_out) is not None), entry.name
    assert all(f"\n{entry.name} " in table for entry in registries.read_entries("methods") if not entry.needs)


@pytest.fixture
def small_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo of a second: few rows, one round."""
    from embasis.data import DATASETS
    from embasis.data.datasets.digit_sets import digits
    from embasis.runs.parts import PLANS

    def few(seed: int = 0, count: int = 150) -> Problem:
        whole = digits(seed, count)
        assert isinstance(whole.unlabelled, Arrays)
        assert whole.hidden_labels is not None
        return Problem(
            whole.labelled, Arrays.of(whole.unlabelled.x[:150]), whole.schema, hidden_labels=whole.hidden_labels[:150]
        )

    monkeypatch.setitem(DATASETS, "digits", few)
    plan = {**PLANS["small_cnn"], "source_epochs": 2, "epochs": 1, "rounds": 1}
    monkeypatch.setattr("embasis.runs.parts.PLANS", {**PLANS, "small_cnn": plan})


def test_demo_ends_in_a_table_and_a_link_and_can_be_run_again(
    tmp_path: Path, small_digits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "demo-run"
    result = embasis("demo", "-o", out)
    assert result.exit_code == 0, result.output
    assert narrow("\n".join(line for line in result.stdout.splitlines() if str(tmp_path) not in line))
    methods = ("source_only", "pseudo_label", "cbst", "mrkld_lrent", "em_basis")
    assert all(f"\n{method} " in result.stdout for method in methods)
    assert result.stdout.splitlines()[-1] == f"report: file://{out}/report.html"
    names = {"compare.csv", "compare.md", "runs.csv", "report.html", "em_basis"}
    assert {path.name for path in out.iterdir()} == names
    assert (out / "em_basis" / "report.html").exists()
    first = (out / "compare.md").read_text()

    monkeypatch.setattr("embasis.cli.compare.comparison_page", lambda *_, **__: "page")
    monkeypatch.setattr("embasis.runs.run.run_page", lambda view: "page")
    again = embasis("demo", "-o", out)
    assert again.exit_code == 0, again.output
    assert f"{out / 'em_basis'} had ended (finished)" in again.stdout
    assert [line.split("|")[:9] for line in (out / "compare.md").read_text().splitlines()] == [
        line.split("|")[:9] for line in first.splitlines()
    ]

    other = embasis("demo", "-o", out, "--seed", 1)
    assert other.exit_code == 0, other.output
    assert f"{out / 'em_basis-2'} is used instead" in other.stderr
    assert {path.name for path in out.iterdir()} == {*names, "em_basis-2"}


def slow_fit(folder: Path, run: Path) -> list[str]:
    """A command that trains for minutes, in small steps."""
    tables = [str(folder / "labelled.csv"), str(folder / "unlabelled.csv")]
    return [*PROGRAM, "fit", *tables, "-o", str(run), "--backbone", "mlp", "source_epochs=90000", "rounds=1"]


def test_a_signal_saves_after_the_step_and_the_same_command_goes_on(folder: Path, tmp_path: Path) -> None:
    run, first = tmp_path / "run", "60 labelled and 60 unlabelled rows, 3 classes\n"
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 143)):
        with subprocess.Popen(
            slow_fit(folder, run), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == first
            process.send_signal(number)
            said = process.stderr.read()
            assert process.wait(60) == code
        saved = read_newest(run)
        at = saved.facts["progress"]
        where = f"round 0 epoch {at['epoch']} step {at['step']} in {run}"
        assert said == f"embasis: interrupted; saved {where}; the same command goes on\n"
        first = f"resumed round 0 from generation {saved.number}; epoch {at['epoch']}, step {at['step']}\n"
        assert (run / "lock").read_bytes() == b""
    assert saved.number == 3


def test_a_second_signal_leaves_at_once_with_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    # Whoever started the tests may have SIGINT ignored, and then Stop leaves it so.
    outside = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with Stop() as stop:
            signal.raise_signal(signal.SIGTERM)
            assert (stop.code, codes) == (143, [])
            signal.raise_signal(signal.SIGINT)
            assert codes == [143]
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        for number, handler in outside.items():
            signal.signal(number, handler)


def test_signals_that_are_ignored_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stop() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.code == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_reader_who_goes_away_does_not_stop_training(folder: Path, tmp_path: Path) -> None:
    tables = [str(folder / "labelled.csv"), str(folder / "unlabelled.csv")]
    command = [*PROGRAM, "fit", *tables, "-o", str(tmp_path / "run"), "rounds=1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(120) == 0
    assert (tmp_path / "run" / "report.html").exists()


def test_filters_and_handlers_are_as_before_after_a_command(folder: Path) -> None:
    show, filters = warnings.showwarning, list(warnings.filters)
    CliRunner().invoke(main, ["check", str(folder / "labelled.csv"), str(folder / "judged.csv")])
    assert warnings.showwarning is show
    assert list(warnings.filters) == filters
