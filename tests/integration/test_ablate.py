"""`embasis ablate`: what each part is worth, from the command line to the files it leaves."""

from __future__ import annotations

import csv
import signal
from pathlib import Path
from typing import Any

import pytest

from cli_tables import embasis
from embasis.benchmark import compare as running
from embasis.benchmark.ablate import ABLATED_PARTS, DEFAULT_RUNS, run_name
from embasis.storage import atomic

TINY = ("count=60", "rounds=1")
FILES = {"ablate.csv", "ablate.md", "runs.csv", "report.html"}
KNOWN = ("basis, centring, draw, em, evidence, head, joint, neighbours, recalibration, selection, shares, stage1, "
         "temper, variance, weights")  # fmt: skip


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as stream:
        return list(csv.DictReader(stream))


def narrow(said: str) -> bool:
    """All but the last line, which has a path."""
    return all(len(line) <= 80 for line in said.splitlines()[:-1])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The files of all parts over two seeds, and what was printed."""
    out = tmp_path_factory.mktemp("ablate") / "out"
    result = embasis("ablate", "blobs", "--seeds", 2, *TINY, "-o", out)
    assert result.exit_code == 0, result.output
    return out, result.stdout


def test_every_part_but_the_unused_is_printed_in_80_columns(whole: tuple[Path, str]) -> None:
    out, said = whole
    assert narrow(said)
    for name, part in ABLATED_PARTS.items():
        assert (f"\n{run_name(name, part)} " in said) == (name != "shares"), name
        assert (f"\n  {part.change_text} " in said) == (name != "shares"), name
    assert "left out: shares." in " ".join(said.split())
    assert said.endswith(f"wrote ablate.csv, ablate.md, runs.csv and report.html in {out}\n")
    assert {path.name for path in out.iterdir()} == FILES


def test_parts_stand_by_falling_worth_below_the_default(whole: tuple[Path, str]) -> None:
    out, said = whole
    rows = [row for row in rows_of(out / "ablate.csv") if row["metric"] == "accuracy"]
    assert rows[0]["part"] == DEFAULT_RUNS
    worth = [float(row["worth"]) for row in rows[1:]]
    assert worth == sorted(worth, reverse=True)
    assert len(set(worth)) > 1
    places = [said.index(f"\n{run_name(row['part'], ABLATED_PARTS[row['part']])} ") for row in rows[1:]]
    assert places == sorted(places)
    page = (out / "report.html").read_text()
    at = page.index("What each part is worth</bdi></h2>")
    order = [page.index(f"<bdi>{row['changed_to']}</bdi>", at) for row in rows[1:]]
    assert order == sorted(order)
    assert all(f"{row['part']}: {ABLATED_PARTS[row['part']].about.split(chr(39))[0]}" in page for row in rows[1:])


def test_the_table_recomputes_from_the_runs(whole: tuple[Path, str]) -> None:
    out, _ = whole
    runs = {(run["method"], run["seed"]): run for run in rows_of(out / "runs.csv")}
    assert len(runs) == 2 * len(ABLATED_PARTS)  # the default, and all parts but one
    markdown, page = (out / "ablate.md").read_text(), (out / "report.html").read_text()
    for row in rows_of(out / "ablate.csv"):
        if row["part"] == DEFAULT_RUNS:
            continue
        part, metric = ABLATED_PARTS[row["part"]], row["metric"]
        before, after = (
            [float(runs[name, seed][metric] or "nan") for seed in "01"]
            for name in (DEFAULT_RUNS, run_name(row["part"], part))
        )
        sign = (1 if part.adds else -1) * (-1 if metric == "ece" else 1)
        found = [sign * (b - a) for a, b in zip(before, after, strict=True) if a == a and b == b]
        assert int(row["runs"]) == len(found)
        if len(found) == 2:
            assert float(row["worth"]) == pytest.approx(sum(found) / 2)
            assert float(row["standard_error"]) == pytest.approx(abs(found[0] - found[1]) / 2)
            error = f"± {float(row['standard_error']):.3f}"
            assert error in markdown
            assert error in page
        else:
            assert row["standard_error"] == ""
            assert row["verdict"] == ("one run" if found else "–")


def test_the_default_and_the_reference_are_those_of_compare_bit_for_bit(
    whole: tuple[Path, str], tmp_path: Path
) -> None:
    result = embasis("compare", "blobs", "--methods", "cbst,em_basis", "--seeds", 2, *TINY, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    mine, theirs = rows_of(whole[0] / "runs.csv"), rows_of(tmp_path / "out" / "runs.csv")
    for name, method in ((DEFAULT_RUNS, "em_basis"), ("without basis", "cbst")):
        found = [{**row, "method": "", "seconds": ""} for row in mine if row["method"] == name]
        assert found == [{**row, "method": "", "seconds": ""} for row in theirs if row["method"] == method]
        assert len(found) == 2
    means = [row["mean"] for row in rows_of(whole[0] / "ablate.csv") if row["part"] == DEFAULT_RUNS]
    compared = {r["metric"]: r["mean"] for r in rows_of(tmp_path / "out" / "compare.csv") if r["method"] == "em_basis"}
    assert means == [compared[metric] for metric in ("accuracy", "ece", "auroc")]


def test_a_part_that_is_changed_to_what_it_is_already_is_worth_exactly_nothing(tmp_path: Path) -> None:
    part, word = "em", "method.iterations=0"
    result = embasis("ablate", "blobs", "--seeds", 2, "--only", part, word, *TINY, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    rows = [row for row in rows_of(tmp_path / "out" / "ablate.csv") if row["part"] == part and row["runs"] != "0"]
    assert {row["metric"] for row in rows} >= {"accuracy", "ece"}
    for row in rows:
        if row["runs"] == "2":
            assert (float(row["worth"]), float(row["standard_error"])) == (0.0, 0.0)
            assert row["verdict"] == "not measurable"


def test_nothing_is_written_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = embasis("ablate", "blobs", "--seeds", 1, "--only", "em,em", *TINY)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("without em") == 1
    assert " one run\n" in result.stdout
    assert "One run has no standard error: use --seeds." in " ".join(result.stdout.split())
    assert list(tmp_path.iterdir()) == []


def test_variants_share_the_source_model_of_a_seed_except_stage_one(monkeypatch: pytest.MonkeyPatch) -> None:
    trained, usual = list[Any](), running.train_source
    monkeypatch.setattr(running, "train_source", lambda built: trained.append(built) or usual(built))
    result = embasis("ablate", "blobs", "--seeds", 2, "--only", "em,stage1,basis,selection", *TINY)
    assert result.exit_code == 0, result.output
    assert [built.plan.seed for built in trained] == [0, 1]
    assert all(built.method.basis is None for built in trained)


def test_estimated_shares_are_measured_where_they_are_used(tmp_path: Path) -> None:
    words = ("--only", "shares", "count=1200", "rounds=1", "plan.max_sites=1024", "-o", tmp_path / "out")
    result = embasis("ablate", "blobs", "--seeds", 1, *words)
    assert result.exit_code == 0, result.output
    assert "\nwithout shares" in result.stdout
    assert "left out" not in result.stdout
    first, second = rows_of(tmp_path / "out" / "runs.csv")
    assert first["nll"] != second["nll"]


def test_label_maps_are_measured_by_their_mean_iou(tmp_path: Path) -> None:
    words = ("labelled_rows=8", "unlabelled_rows=6", "test_rows=4", "--backbone", "small_fcn", "network.width=16",
             "plan.rounds=1", "plan.source_epochs=1", "plan.epochs=1", "plan.batch_size=4")  # fmt: skip
    only = ("--seeds", 1, "--only", "selection,stage1")
    result = embasis("ablate", "scenes", *only, *words, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert narrow(result.stdout)
    rows = rows_of(tmp_path / "out" / "ablate.csv")
    assert [row["metric"] for row in rows] == ["mean_iou", "ece", "auroc"] * 3
    runs = rows_of(tmp_path / "out" / "runs.csv")
    assert [run["method"] for run in runs] == [DEFAULT_RUNS, "without selection", "with stage1"]
    assert len({run["mean_iou"] for run in runs}) == 3


# --- mistakes


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("blobs", "--only", "em,haed"), 2, f"unknown part 'haed'; did you mean head? known: {KNOWN}"),
        (("blobs", "--only", ""), 2, f"unknown part ''; known: {KNOWN}"),
        (("blobs", "method.name=cbst"), 2, "ablate is about em_basis; method.name must be left out, got 'cbst'"),
        (("blobs", "method.alpha=1"), 2, None),
        (("blobs", "count=many"), 2, "data.count must be a whole number, got 'many'"),
        (("blobs", "-o", "taken"), 2, "output taken is a file; name a folder"),
        (("mnist",), 2, None),
        (("office_caltech10_surf", "--root", "nowhere"), 3, None),
    ],
)
def test_a_mistake_gets_one_sentence_and_its_code(
    words: tuple[str, ...], code: int, sentence: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("")
    result = embasis("ablate", *words)
    expected = embasis("compare", words[0], "--methods", "em_basis", *words[1:]).stderr
    assert result.stderr == (expected if sentence is None else f"embasis: {sentence}\n")
    assert result.stderr.startswith("embasis: ")
    assert result.exit_code == code
    assert result.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


# --- signals


@pytest.mark.usefixtures("usual_signals")
def test_ctrl_c_in_a_run_leaves_with_130_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, usual = list[str](), running.run_one

    def run_one(run: running.RunKey, *rest: Any) -> Any:
        begun.append(run.method)
        if len(begun) == 2:
            signal.raise_signal(signal.SIGINT)
        return usual(run, *rest)

    monkeypatch.setattr(running, "run_one", run_one)
    result = embasis("ablate", "blobs", "--only", "em,head", *TINY, "-o", tmp_path / "out")
    assert (result.exit_code, result.stderr, result.stdout) == (130, "embasis: interrupted\n", "")
    assert begun == [DEFAULT_RUNS, "without em"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("usual_signals")
def test_ctrl_c_while_files_are_written_leaves_whole_ones_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count, usual = iter(range(9)), atomic.disk.write

    def write(handle: int, data: Any) -> int:
        if next(count) == 2:
            signal.raise_signal(signal.SIGINT)
        return usual(handle, data)

    words = ("ablate", "blobs", "--seeds", 1, "--only", "em", *TINY, "-o")
    assert embasis(*words, tmp_path / "whole").exit_code == 0
    monkeypatch.setattr(atomic.disk, "write", write)
    result = embasis(*words, tmp_path / "out")
    assert (result.exit_code, result.stderr) == (130, "embasis: interrupted\n")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["ablate.csv", "ablate.md"]
    for name in ("ablate.csv", "ablate.md"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
