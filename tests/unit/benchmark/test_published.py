"""Published results: as printed, apart from ours, with their source; and the paper's settings as presets."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from cli_tables import embasis
from embasis import config
from embasis.benchmark import published
from embasis.benchmark.compare import RunKey, class_accuracy, score_run
from embasis.benchmark.published import PublishedRow, PublishedTable, paper_markdown, paper_table
from embasis.benchmark.scores import RunScore
from embasis.config import load
from embasis.data.datasets.street_sets import CITYSCAPES, SYNTHIA_13, SYNTHIA_16
from embasis.errors import ConfigError
from embasis.storage import read_stored_table
from embasis.types import Evaluation, RoundRecord
from published_tables import make_score, small_table

DATASETS = ("office31", "visda17", "gta5_cityscapes", "synthia_cityscapes")
OFFICE_KEYS = ("amazon→webcam", "dslr→webcam", "webcam→dslr", "amazon→dslr", "dslr→amazon", "webcam→amazon")


def table_of(dataset: str) -> PublishedTable:
    table = published.find_published(dataset)
    assert table is not None
    return table


def row_of(dataset: str, method: str) -> PublishedRow:
    table = table_of(dataset)
    return next(row for row in (*table.rows, *table.elsewhere) if row.method == method)


@pytest.fixture
def only_small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "find_published", lambda dataset: small_table() if dataset == "set" else None)


# --- the file


def test_there_is_one_table_for_each_results_table_of_the_paper() -> None:
    assert tuple(published.read_published()) == DATASETS
    assert [len(table_of(name).rows) for name in DATASETS] == [9, 10, 10, 9]
    assert [len(table_of(name).columns) for name in DATASETS] == [6, 12, 19, 16]
    assert published.find_published("digits") is None


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_row_has_as_many_values_as_columns(dataset: str) -> None:
    table = table_of(dataset)
    assert len(table.short) == len(table.keys) == len(table.columns)
    assert {*table.without} <= {*table.columns}
    for row in (*table.rows, *table.elsewhere):
        assert len(row.values) == len(table.columns), row.method
        assert len(row.means) == len(table.means), row.method
        assert len(row.spread) in (0, len(table.columns)), row.method
        numbers = [value for value in (*row.values, *row.means) if value is not None]
        assert numbers, row.method
        assert all(0 <= value <= 100 for value in numbers), row.method


@pytest.mark.parametrize("dataset", DATASETS)
def test_means_are_those_of_the_columns_or_the_row_says_that_they_are_not(dataset: str) -> None:
    table = table_of(dataset)
    for row in (*table.rows, *table.elsewhere):
        off = []
        for number, printed in enumerate(row.means):
            left_out = table.without if number else ()
            cells = [v for name, v in zip(table.columns, row.values, strict=True) if name not in left_out]
            if printed is not None and None not in cells:
                mean = math.fsum(v for v in cells if v is not None) / len(cells)
                off += [number] if abs(mean - printed) > 0.05 + 1e-6 else []
        assert bool(off) == bool(row.check), row.method


def test_known_cells_are_as_the_paper_prints_them() -> None:
    ours = row_of("office31", "Ours")
    assert ours.values == (92.2, 98.2, 99.6, 87.2, 72.8, 72.4)
    assert (ours.spread, ours.means) == ((0.5, 0.3, 0.4, 0.5, 0.3, 0.4), (87.1,))
    assert table_of("office31").keys == OFFICE_KEYS
    assert row_of("visda17", "Ours").values == (89.1, 81.7, 82.1, 57.7, 83.2, 79.7, 83.9, 77.2, 86.2, 82.7, 83.8, 65.9)
    assert row_of("visda17", "GTA-Res152").values == (None,) * 12
    assert (row_of("visda17", "Ours").means, row_of("visda17", "GTA-Res152").means) == ((79.4,), (77.1,))
    assert (row_of("gta5_cityscapes", "Ours").values[16], row_of("gta5_cityscapes", "Ours").means) == (37.2, (50.4,))
    assert row_of("synthia_cityscapes", "Ours").means == (42.6, 48.9)
    assert row_of("synthia_cityscapes", "AdaptSegNet").means == (None, 46.7)


def test_the_checks_name_the_means_that_do_not_follow() -> None:
    checked = {(name, row.method) for name in DATASETS for row in table_of(name).rows if row.check}
    street = "synthia_cityscapes"
    assert checked == {("office31", "RTN"), ("office31", "ADDA"), (street, "MCD"), (street, "CBST"), (street, "Ours")}


def test_every_row_from_elsewhere_says_where_it_was_read_and_how_it_was_checked() -> None:
    for name in DATASETS:
        assert table_of(name).elsewhere, name
        for row in table_of(name).elsewhere:
            assert row.source.startswith("https://"), row.method
            assert row.verified == "search excerpt", row.method
            assert row.averaged, row.method


def test_without_the_file_there_are_no_published_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(published, "PUBLISHED_FILES", (tmp_path / "published.toml",))
    assert published.find_published("office31") is None


# --- the layout


@pytest.mark.usefixtures("only_small_table")
def test_ours_come_first_and_published_rows_apart_with_their_source() -> None:
    rows = [make_score("set", "a→b", "em_basis", 0, 0.80), make_score("set", "b→a", "em_basis", 0, 1.00)]
    rows += [make_score("set", "a→b", "em_basis", 1, 0.82), make_score("set", "b→a", "em_basis", 1, 1.00)]
    rows += [
        make_score("set", "a→b", "cbst", 0, 0.5),
        make_score("set", "a→b", "cbst", 1, 0.6),
        make_score("other", "b→a", "cbst", 0, 0.1),
    ]
    assert paper_table("set", rows) == (
        "A set, as in the paper: accuracy in per cent\n"
        "--------------------------------------\n"
        "method            A→B     B→A     Mean\n"
        "ours, mean ± std over 2 seeds:\n"
        "em_basis     81.0±1.4 100±0.0 90.5±0.7\n"
        "cbst         55.0±7.1       –        –\n"
        "published, not run by us:\n"
        "Ours (paper) 92.2±0.5 100±0.0     96.1\n"
        "published elsewhere, not run by us:\n"
        "MIC, ViT            –    80.0     90.0\n"
        "\n"
        "Ours: accuracy over all images of the target.\n"
        "Published: A paper, table 1. Five runs.\n"
        "MIC: https://a.example (read in a stored copy).\n"
    )


@pytest.mark.usefixtures("only_small_table")
def test_the_same_as_markdown() -> None:
    assert paper_markdown("set", [make_score("set", "a→b", "em_basis", 3, 0.8125)]) == (
        "### A set, as in the paper: accuracy in per cent\n"
        "\n"
        "Ours, one seed; accuracy over all images of the target:\n"
        "\n"
        "| method | A→B | B→A | Mean |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| em\\_basis | 81.2 | – | – |\n"
        "\n"
        "Published, not run by us:\n"
        "\n"
        "| method | A→B | B→A | Mean |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| Ours (paper) | 92.2 ± 0.5 | 100 ± 0.0 | 96.1 |\n"
        "| MIC, ViT | – | 80.0 | 90.0 |\n"
        "\n"
        "- Published: A paper, table 1. Five runs.\n"
        "- MIC: https://a.example (read in a stored copy).\n"
        "- Ours (paper): it is printed so.\n"
    )


def test_columns_of_classes_show_the_deviation_below_and_abbreviate(monkeypatch: pytest.MonkeyPatch) -> None:
    table = small_table(
        kind="classes", columns=("Horse", "Bus"), short=("Hors", "Bus"), keys=("horse", "bus"), elsewhere=()
    )
    monkeypatch.setattr(published, "find_published", lambda dataset: table)
    names = ("bus", "cat", "horse")
    rows = [
        dataclasses.replace(
            make_score("set", "", "em_basis", 0, 0.9), class_names=names, class_accuracy=(0.5, None, 0.75)
        ),
        dataclasses.replace(
            make_score("set", "", "em_basis", 1, 0.9), class_names=names, class_accuracy=(0.7, None, 0.75)
        ),
        dataclasses.replace(make_score("set", "", "cbst", 0, 0.9), class_names=names, class_accuracy=(None, 0.1, 0.25)),
    ]
    assert paper_table("set", rows) == (
        "A set, as in the paper: accuracy in per cent\n"
        "----------------------------\n"
        "method       Hors   Bus Mean\n"
        "ours, mean ± std over 1 to 2 seeds:\n"
        "em_basis     75.0  60.0 67.5\n"
        "             ±0.0 ±14.1 ±7.1\n"
        "cbst         25.0     –    –\n"
        "published, not run by us:\n"
        "Ours (paper) 92.2   100 96.1\n"
        "\n"
        "Ours: the last column is the mean over classes.\n"
        "Columns: Hors Horse.\n"
        "Published: A paper, table 1. Five runs.\n"
    )


@pytest.mark.parametrize("dataset", ["office31", "visda17"])
def test_the_tables_of_the_paper_fit_80_columns(dataset: str) -> None:
    table = table_of(dataset)
    rows = []
    for method in ("source_only", "pseudo_label", "mrkld_lrent", "em_basis"):
        for seed in range(3):
            accuracies = tuple(0.9 + 0.02 * seed for _ in table.keys)
            for pair in table.keys if table.kind == "pairs" else ("train→validation",):
                row = make_score(dataset, pair, method, seed, 0.9 + 0.01 * seed)
                rows.append(dataclasses.replace(row, class_names=table.keys, class_accuracy=accuracies))
    text = paper_table(dataset, rows)
    assert text is not None
    assert max(map(len, text.splitlines())) <= 80
    assert "\nem_basis " in text
    assert text.index("\nem_basis ") < text.index("\npublished, not run by us:\n") < text.index("\nOurs (paper) ")
    assert " – " not in text.partition("published, not run by us:")[0]


def test_tables_that_our_runs_cannot_fill_are_left_out() -> None:
    assert paper_table("gta5_cityscapes", []) is None
    assert paper_markdown("gta5_cityscapes", [make_score("gta5_cityscapes", "", "cbst", 0, 0.5)]) is None
    assert paper_markdown("digits", []) is None


def street_runs(dataset: str, keys: tuple[str, ...], seeds: int = 1) -> list[RunScore]:
    """Two methods with an IoU of 0.10, 0.11, … of the classes, 0.02 more with each seed."""
    rows = [
        make_score(dataset, "", method, seed, 0.9) for method in ("source_only", "em_basis") for seed in range(seeds)
    ]
    ious = {seed: tuple(0.10 + 0.01 * i + 0.02 * seed for i in range(len(keys))) for seed in range(seeds)}
    return [dataclasses.replace(row, class_names=keys, class_accuracy=(None,) * len(keys), class_iou=ious[row.seed])
            for row in rows]  # fmt: skip


@pytest.mark.parametrize("dataset", ["gta5_cityscapes", "synthia_cityscapes"])
def test_the_tables_of_street_scenes_are_printed_in_blocks_of_80_columns(dataset: str) -> None:
    table = table_of(dataset)
    text = paper_table(dataset, street_runs(dataset, table.keys, seeds=3))
    assert text is not None
    assert max(map(len, text.splitlines())) <= 80
    heads = [line.split()[1:] for line in text.splitlines() if line.startswith("method ")]
    assert len(heads) == 2
    assert [name for head in heads for name in head] == [*table.columns, *table.means]
    assert text.count("\nem_basis ") == text.count("\nOurs (paper), DeepLabv2 ") == 2
    assert text.count("\nDAFormer ") == 1
    assert text.index("\nem_basis ") < text.index("\npublished, not run by us:\n") < text.index("\nOurs (paper)")
    assert "Columns: SW sidewalk, Build building, TL traffic light, TS traffic sign" in text


def test_a_street_table_shows_iou_in_per_cent_and_both_means() -> None:
    keys = table_of("synthia_cityscapes").keys
    markdown = paper_markdown("synthia_cityscapes", street_runs("synthia_cityscapes", keys))
    assert markdown is not None
    ours = next(line for line in markdown.splitlines() if line.startswith("| em\\_basis |"))
    without = [10 + i for i in range(16) if i not in (3, 4, 5)]
    means = [sum(range(10, 26)) / 16, sum(without) / 13]
    assert ours.split(" | ")[1:] == [*(f"{10 + i}.0" for i in range(16)), f"{means[0]:.1f}", f"{means[1]:.1f} |"]
    assert " | Wall\\* | " in markdown
    assert "| Ours (paper), DeepLabv2 | 68.0 | 29.9 |" in markdown
    assert " | 42.6 | 48.9 |" in markdown


def test_thirteen_classes_have_the_starred_mean_alone() -> None:
    table = table_of("synthia_cityscapes")
    keys = tuple(k for k, name in zip(table.keys, table.columns, strict=True) if name not in table.without)
    markdown = paper_markdown(table.dataset, street_runs(table.dataset, keys))
    assert markdown is not None
    ours = next(line for line in markdown.splitlines() if line.startswith("| em\\_basis |"))
    assert ours.split(" | ")[4:7] == ["–"] * 3
    assert ours.endswith(" | – | 16.0 |")


def test_columns_of_street_tables_are_the_classes_of_the_data_sets() -> None:
    assert table_of("gta5_cityscapes").keys == CITYSCAPES.table().names
    assert table_of("synthia_cityscapes").keys == CITYSCAPES.table(SYNTHIA_16).names
    table = table_of("synthia_cityscapes")
    starred = [k for k, name in zip(table.keys, table.columns, strict=True) if name not in table.without]
    assert tuple(starred) == CITYSCAPES.table(SYNTHIA_13).names


def test_the_accuracy_of_a_class_is_the_share_of_its_rows_on_the_diagonal() -> None:
    confusion = ((3, 1, 0), (0, 0, 0), (1, 1, 2))
    judged = Evaluation(8, 5 / 8, 5 / 8, 0.5, 0.1, 0.5, None, 1.0, 0.5, confusion, (), ())
    assert class_accuracy(judged) == (0.75, None, 0.5)
    record = RoundRecord(1, "ok", 0.1, 8, 8, (4, 2, 2), (4, 2, 2), 0.0, {}, evaluation=judged)
    row = score_run(RunKey("set", "a→b", "cbst", 0), record, 2.0, ("x", "y", "z"))
    assert row.cells() == {
        "dataset": "set", "pair": "a→b", "method": "cbst", "seed": 0, "accuracy": 0.625, "mean_class_accuracy": 0.625,
        "ece": 0.1, "nll": 0.5, "auroc": None, "trusted_share": 1.0, "trusted_precision": 0.5, "network_accuracy": 0.5,
        "seconds": 2.0, "adaptive_ece": None, "classwise_ece": None, "brier": None, "aupr": None, "aurc": None,
        "coverage_95": None, "accuracy of x": 0.75, "accuracy of y": None, "accuracy of z": 0.5,
    }  # fmt: skip


def test_compare_prints_the_layout_after_its_own_table_and_writes_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        published, "find_published", lambda name: small_table(dataset="blobs") if name == "blobs" else None
    )
    words = ("compare", "blobs", "--methods", "source_only", "--seeds", 1, "count=30", "rounds=1", "-o", tmp_path / "o")
    result = embasis(*words)
    assert result.exit_code == 0, result.output
    own, layout = result.stdout.index("\none run.\n"), result.stdout.index("A set, as in the paper")
    assert own < layout
    assert "\n\n### A set, as in the paper" in (tmp_path / "o" / "compare.md").read_text(encoding="utf-8")
    runs = read_stored_table(tmp_path / "o" / "runs.csv")
    assert sum(name.startswith("accuracy of ") for name in runs) == 3


# --- presets


def test_the_presets_are_the_papers_numbers() -> None:
    assert {"paper-office31", "paper-visda17"} <= {*config.presets()}
    plan = {"optimiser": "sgd", "source_lr": 1e-4, "lr": 5e-4, "weight_decay": 5e-5, "momentum": 0.8, "batch_size": 32}
    for dataset, network in (("office31", "timm:resnet50"), ("visda17", "timm:resnet101")):
        found = load(preset=f"paper-{dataset}")
        assert (found.data, found.network, found.plan) == ({"dataset": dataset}, {"name": network}, plan)
        assert found.images == {"depth": "full"}
        assert found.method == {"name": "em_basis_paper"}


def test_a_file_wins_over_the_preset_then_options_then_words(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[plan]\nlr = 0.1\nbatch_size = 8\nmomentum = 0.5\n")
    found = load(path, ["momentum=0.1"], preset="paper-office31", plan={"batch_size": 4, "momentum": 0.3})
    assert [found.plan[key] for key in ("source_lr", "lr", "batch_size", "momentum")] == [1e-4, 0.1, 4, 0.1]


def test_tables_of_the_user_stand_in_for_the_data_set_of_a_preset() -> None:
    given = {"labelled": "a", "unlabelled": "b"}
    assert load(preset="paper-office31", data=given).data == given
    assert load(preset="paper-office31", data={"dataset": "digits"}).data == {"dataset": "digits"}


def test_an_unknown_preset_is_named_with_the_known_ones() -> None:
    known = "paper-gta5-cityscapes, paper-office31, paper-synthia-cityscapes, paper-visda17, street-cpu"
    sentence = f"unknown preset 'paper'; known: {known}"
    with pytest.raises(ConfigError) as caught:
        load(preset="paper")
    assert str(caught.value) == sentence
    for words in (("compare", "digits"), ("fit", "-o", "run")):
        result = embasis(*words, "--preset", "paper")
        assert (result.exit_code, result.stderr) == (2, f"embasis: {sentence}\n")
