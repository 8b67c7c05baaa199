"""The study of benchmarks/method: finished rows are not run again, and what its tables say is what plain loops say."""

from __future__ import annotations

import itertools
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from benchmarks.method import __main__ as study
from benchmarks.method.candidates import FACTORS, Candidate, all_candidates, cell_name, cells
from benchmarks.method.effects import main_effects, mean_error, paired_error
from benchmarks.method.rows import packed, unpacked
from benchmarks.method.sets import SETS, chosen_sets
from benchmarks.method.tables import all_levels, by_alignment, changes, factorials, overview, standing, worth
from benchmarks.method.work import Unit

from embasis.benchmark.scores import SCORE_COLUMNS
from embasis.errors import ConfigError
from embasis.runs.parts import PLANS
from embasis.storage.atomic import read_stored_table

ONLY = ("em_basis", "source_only", "sklearn logistic regression")


def test_what_is_finished_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, failed = study.study([SETS["blobs"]], tmp_path, seeds=1, only=ONLY)
    assert (new, failed) == (3, [])
    table = read_stored_table(tmp_path / "results.parquet")
    assert sorted(table["variant"]) == sorted(ONLY)
    assert {*table["set"]} == {"blobs"}
    for right, rows, accuracy in zip(table["right"], table["rows"], table["accuracy"], strict=True):
        assert float(unpacked(right, rows).mean()) == pytest.approx(accuracy)
    before = (tmp_path / "results.parquet").read_bytes()

    def refuse(*_: object) -> None:
        raise AssertionError("a finished unit was run again")

    monkeypatch.setattr(study, "work", refuse)
    assert study.study([SETS["blobs"]], tmp_path, seeds=1, only=ONLY) == (0, [])
    assert (tmp_path / "results.parquet").read_bytes() == before
    page = (tmp_path / "study.html").read_text(encoding="utf-8")
    assert "blobs: methods and peers" in page
    assert "blobs: pair by pair" in page


def test_a_change_of_the_settings_makes_a_row_stale() -> None:
    plain, changed = Candidate("a", "variants"), Candidate("a", "variants", words=("labeller.mixture.guided=false",))
    assert plain.mark(SETS["blobs"], None) != changed.mark(SETS["blobs"], None)
    assert plain.mark(SETS["pacs"], None) != plain.mark(SETS["pacs_resnet50"], None)
    same = Candidate("a", "variants", words=("labeller.mixture.guided=true",))
    assert plain.mark(SETS["blobs"], None) == same.mark(SETS["blobs"], None)


def test_a_set_without_its_data_is_skipped_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert study.study([SETS["pacs_resnet50"]], tmp_path, str(tmp_path), only=("em_basis",)) == (0, [])
    sentence = f"no file resnet50_msra_fp16.safetensors in {tmp_path}; set --root or EMBASIS_DATA"
    assert f"pacs_resnet50 is skipped: {sentence}" in capsys.readouterr().out


def test_an_unknown_set_or_variant_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown set 'moon'; known: amazon_reviews, amazon_reviews_shares, blobs"):
        chosen_sets(["moon"])
    with pytest.raises(ConfigError, match="unknown variant 'nothing'; known: "):
        study.study([SETS["blobs"]], tmp_path, only=("nothing",))


def test_all_candidates_have_settings_that_are_known_and_names_of_their_own() -> None:
    names = [candidate.name for candidate in all_candidates()]
    assert len(names) == len({*names})
    assert not [name for name in names if "," in name]
    for candidate in all_candidates():
        candidate.mark(SETS["pacs"], None)


def test_main_effects_are_those_of_plain_loops() -> None:
    draw = np.random.default_rng(0)
    factors = {"a": ("0", "1"), "b": ("x", "y", "z"), "c": ("on", "off")}
    values = {levels: float(draw.normal()) for levels in itertools.product(*factors.values())}
    found = main_effects(values, factors)
    assert [*found] == [("a", "1"), ("b", "y"), ("b", "z"), ("c", "off")]
    for (factor, level), effect in found.items():
        high, low = [], []
        for a, b, c in values:
            here = {"a": a, "b": b, "c": c}[factor]
            high += [values[a, b, c]] if here == level else []
            low += [values[a, b, c]] if here == factors[factor][0] else []
        assert effect == pytest.approx(sum(high) / len(high) - sum(low) / len(low))


def test_a_factorial_that_is_not_full_has_no_main_effects() -> None:
    with pytest.raises(ValueError, match="a full factorial has 4 cells, got 1"):
        main_effects({("0", "0"): 0.5}, {"a": ("0", "1"), "b": ("0", "1")})


def test_the_worth_of_a_factor_is_what_was_added_for_it() -> None:
    rows = [
        {"set": "s", "pair": pair, "seed": 0, "stage": "factorial", "variant": cell.name,
         "accuracy": 0.5 + 0.1 * (cell.levels[0] == "on") + more * (cell.levels[3] == "8")}
        for pair, more in (("a→b", 0.01), ("b→a", 0.03))
        for cell in cells()
    ]  # fmt: skip
    lines = {line[0]: line[1] for line in worth({"s": rows}).rows}
    assert lines["joint off → on"] == "+0.100 ± 0.000"
    assert lines["per_class 1 → 3"] == "+0.000 ± 0.000"
    assert lines["per_class 1 → 8"] == "+0.020 ± 0.010"
    assert len(factorials(rows[:-1])) == 1


def test_a_change_is_judged_by_the_runs_that_both_have() -> None:
    def row(at: str, variant: str, seed: int, accuracy: float) -> dict[str, object]:
        stage = "methods" if variant == "em_basis" else "variants"
        return {"set": at, "pair": "", "seed": seed, "stage": stage, "variant": variant, "accuracy": accuracy}

    one = [row("one", "em_basis", seed, 0.5 + 0.1 * seed) for seed in range(3)]
    one += [row("one", "no EM", 0, 0.4), row("one", "no EM", 1, 0.48), row("one", "no EM", 7, 0.9)]
    two = [row("two", "em_basis", 0, 0.5), row("two", "labels soft", 0, 0.75)]
    found = changes({"one": one, "two": two, "three": [row("three", "em_basis", 0, 0.5)]})
    assert found.head == ("variant", "one", "two")
    assert found.rows == (("no EM", "-0.110 ± 0.010", "–"), ("labels soft", "–", "+0.250"))
    assert "two: 1 pair, 1 seed." in found.note


def test_em_basis_stands_beside_the_best_of_all_others() -> None:
    figures = {
        "em_basis": (0.7, 0.8), "source_only": (0.5, 0.5), "cbst": (0.6, 0.8), "entropy": (0.85, 0.75), "no EM": (1, 1)
    }  # fmt: skip
    rows = [
        {"set": "s", "pair": pair, "seed": 0, "stage": "variants" if name == "no EM" else "methods", "variant": name,
         "accuracy": values[at]}
        for name, values in figures.items()
        for at, pair in enumerate(("a→b", "b→a"))
    ]  # fmt: skip
    found = standing({"s": rows, "t": [row for row in rows if row["variant"] == "em_basis"]})
    assert found.rows == (("s", "0.750", "entropy", "-0.050 ± 0.100", "+0.050 ± 0.050", "+0.250 ± 0.050"),)


def test_variants_have_fewer_seeds_where_a_run_is_long() -> None:
    def seeds(name: str, stage: str, only: tuple[str, ...] = ()) -> list[int]:
        return sorted({unit.seed for unit in study.units_of(SETS[name], stage, 5, only, False)})

    assert seeds("digits", "methods") == [0, 1, 2, 3, 4]
    assert seeds("digits", "variants") == seeds("digits", "factorial") == [0]
    assert seeds("digits", "variants", ("no EM",)) == [0, 1, 2, 3, 4]
    assert seeds("pacs", "methods") == seeds("pacs", "variants") == [0]
    assert seeds("carla_camvid", "variants") == []
    assert seeds("carla_camvid", "variants", ("no EM",)) == [0, 1, 2, 3, 4]


def test_without_evidence_tempering_makes_no_cell_of_its_own() -> None:
    assert len(all_levels()) == math.prod(len(levels) for levels in FACTORS.values()) == 48
    assert len(cells()) == len({cell_name(levels) for levels in all_levels()}) == 36


def test_the_paired_error_is_that_of_the_discordant_rows() -> None:
    draw = np.random.default_rng(1)
    left, right = draw.random(200) < 0.8, draw.random(200) < 0.7
    gained, lost = int((left & ~right).sum()), int((~left & right).sum())
    difference, error = paired_error(left, right)
    assert difference == pytest.approx((gained - lost) / 200)
    assert error == pytest.approx(math.sqrt((gained + lost - (gained - lost) ** 2 / 200) / (200 * 199)))


def test_mean_and_standard_error_are_those_of_the_textbook() -> None:
    assert mean_error([0.25]) == (0.25, None)
    mean, error = mean_error([0.1, 0.2, 0.4])
    assert mean == pytest.approx(0.7 / 3)
    assert error == pytest.approx(statistics.stdev([0.1, 0.2, 0.4]) / math.sqrt(3))


def test_bits_survive_the_way_to_text_and_back() -> None:
    right = np.random.default_rng(2).random(157) < 0.5
    assert (unpacked(packed(right), 157) == right).all()


def test_alignment_methods_run_where_the_data_and_the_network_allow_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert study.units_of(SETS["office_caltech10_surf"], "alignment", 1, (), False) == []
    found = study.units_of(SETS["digits"], "alignment", 1, (), False)
    names = {each.name for each in study.possible(found[0], None).candidates}
    assert {"source_only for longer", "dan", "dann", "mcd", "gta", "cycada", "shot"} <= names
    assert not {"dacs", "advent", "adaptsegnet"} & names
    assert "digits: left out: " in capsys.readouterr().out
    plain = Unit(SETS["blobs"], {}, 0, "methods", (Candidate("em_basis", "methods"),))
    assert study.possible(plain, None) == plain


def test_the_source_model_is_trained_for_as_long_as_all_rounds_of_the_others() -> None:
    longer = next(each for each in all_candidates() if each.name == "source_only for longer")
    plan = longer.config(SETS["digits"], None).plan
    assert plan["source_epochs"] == 66
    rounds, network = 6, PLANS["small_cnn"]
    assert network["source_epochs"] + rounds * network["epochs"] == 66
    assert SETS["pacs_adapter"].all_epochs == PLANS["adapter"]["source_epochs"] + rounds * PLANS["adapter"]["epochs"]
    for name, plan_name in (("pacs_partial", "images"), ("scenes", "small_fcn"), ("carla_camvid", "maps")):
        short = PLANS[plan_name]
        assert SETS[name].all_epochs == short["source_epochs"] + short["rounds"] * short["epochs"]


def test_stages_are_chosen_by_name() -> None:
    assert study.chosen_stages("starts, methods") == ["methods", "starts"]
    assert study.chosen_stages("") == ["methods", "alignment", "starts", "variants", "factorial"]
    with pytest.raises(ConfigError, match="unknown stage 'all'; known: alignment, "):
        study.chosen_stages("all")


def test_alignment_is_shown_beside_the_source_model_with_what_it_costs() -> None:
    def row(variant: str, stage: str, seed: int, accuracy: float, seconds: float) -> dict[str, object]:
        figures = {"accuracy": accuracy, "ece": 0.1, "nll": 0.5, "auroc": 0.9, "cpu_seconds": seconds}
        rest = dict.fromkeys(SCORE_COLUMNS.keys() - figures.keys(), 0.0)
        return {**rest, **figures, "set": "s", "pair": "", "seed": seed, "stage": stage, "variant": variant}

    rows = [row("source_only", "methods", seed, 0.5, 10.0) for seed in range(2)]
    rows += [row("dan", "alignment", seed, 0.6 + 0.1 * seed, 20.0 + 10 * seed) for seed in range(2)]
    found = by_alignment("s", rows)
    assert found.head == ("method", "acc", "ECE", "NLL", "AUROC", "− source_only", "cost")
    assert found.rows[0][-2:] == ("–", "1.0")
    assert (found.rows[1][0], found.rows[1][1], *found.rows[1][-2:]) == (
        "dan", "0.650 ± 0.071", "+0.150 ± 0.050", "2.5",
    )  # fmt: skip
    assert by_alignment("s", rows[:2]).rows == ()
    assert [line[0] for line in overview({"s": rows, "t": rows[:2]}, ("methods", "alignment")).rows] == [
        "source_only", "dan",
    ]  # fmt: skip
    assert overview({"s": rows, "t": rows[:2]}, ("methods", "alignment")).head == ("method", "s")
