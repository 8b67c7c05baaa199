"""The report of runs on label maps: mean IoU leads, sites and pixels are called so, pictures are shown and inert."""

from __future__ import annotations

import base64
import csv
import dataclasses
import functools
import io
import re

import pytest

from embasis.benchmark.comparison_page import comparison_page
from embasis.benchmark.scores import (
    LEGEND,
    RunScore,
    csv_table,
    latex_table,
    markdown_table,
    summarise_runs,
    text_table,
)
from embasis.errors import CorruptError
from embasis.report import MapExample, RunView, summary
from embasis.report.charts import round_series
from embasis.report.page import map_gallery, policy_hash, run_page
from embasis.report.svg import PNG_START
from embasis.types import record_from_json, record_to_json
from map_page_views import COLOURS, judged, on_maps, png, shown
from page_views import BENIGN, HOSTILE, Tree, evaluation, record, score, view


def mapped(method: str = "em", seed: int = 0, iou: float = 0.5, accuracy: float = 0.9, **other: object) -> RunScore:
    return score(method, seed, accuracy=accuracy, dataset="streets", mean_iou=iou, **other)


def bare(*names: tuple[str, ...], **other: object) -> RunView:
    """A run without rounds: its page has pictures and no figures."""
    return dataclasses.replace(on_maps(*names), **{"rounds": (), "labels": None, **other})  # type: ignore[arg-type]


@functools.cache
def page() -> str:
    return run_page(on_maps())


# records


def test_a_record_of_an_older_release_is_read_without_the_newer_fields() -> None:
    plain = record_to_json(dataclasses.replace(record(), evaluation=judged()))
    for name in ("class_ece", "mean_iou", "class_iou"):
        del plain["evaluation"][name]
    for name in ("facts", "test", "notes"):
        del plain[name]
    read = record_from_json(plain)
    assert read.evaluation == evaluation()
    assert (read.facts, read.test, read.notes) == ({}, None, ())


def test_a_record_with_iou_survives_json() -> None:
    original = dataclasses.replace(record(), evaluation=judged())
    assert record_from_json(record_to_json(original)) == original


def test_a_palette_has_a_colour_for_each_class() -> None:
    with pytest.raises(CorruptError, match=r"^palette must have a colour for each of 3 classes, got 2$"):
        dataclasses.replace(on_maps(), palette=COLOURS[:2])


# tables


def test_the_best_of_maps_is_that_of_the_highest_mean_iou() -> None:
    lines = text_table(summarise_runs([mapped("cbst", iou=0.4, accuracy=0.95), mapped("em", iou=0.5)])).splitlines()
    assert lines[2].split() == ["method", "mIoU", "acc", "ECE", "NLL", "AUROC", "trust", "prec", "sec"]
    assert lines[3].split()[:3] == ["cbst", "0.400", "0.950"]
    assert lines[4].split()[:3] == ["em", "*0.500", "0.900"]
    assert lines[-1] == "one run. acc beside mIoU is pixel accuracy."


def test_the_text_table_of_maps_fits_80_columns() -> None:
    names = ("source_only", "em_basis_without_uncertainty")
    rows = [mapped(m, s, 0.5 + 0.01 * s, seconds=12345.6, starred_iou=0.6) for m in names for s in range(2)]
    lines = text_table(summarise_runs(rows)).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2].split()[:4] == ["method", "mIoU", "mIoU*", "acc"]


def test_a_table_of_both_kinds_of_data_leaves_no_cell_out() -> None:
    both = summarise_runs([score("em"), mapped("em", starred_iou=0.6)])
    markdown = markdown_table(both).splitlines()
    assert markdown[0].startswith("| data set | method | mIoU | mIoU\\* | acc | class |")
    assert markdown[2].startswith("| set | em | – | – | **0.900** |")
    assert markdown[3].startswith("| streets | em | **0.500** | 0.600 | 0.900 |")
    assert {line.count("|") for line in markdown[:4]} == {14}
    latex = latex_table(both)
    assert r"\begin{tabular}{llrrrrrrrrrrr}" in latex
    assert r"streets & em & \textbf{0.500} & 0.600 & 0.900" in latex
    rows = list(csv.DictReader(io.StringIO(csv_table(both))))
    assert [(r["metric"], r["mean"]) for r in rows if r["dataset"] == "streets"][:2] == [
        ("mean_iou", "0.5"),
        ("starred_iou", "0.6"),
    ]


def test_the_legend_says_what_mean_iou_is() -> None:
    words = "mIoU: mean over classes of intersection over union, from one confusion matrix of the whole set"
    assert words in LEGEND
    assert words in comparison_page("all", summarise_runs([mapped()]))
    assert "mIoU" not in comparison_page("all", summarise_runs([score()]), [view()])


def test_the_cells_of_a_run_on_maps_hold_the_iou_of_each_class() -> None:
    row = mapped(class_names=("road", "sky"), class_accuracy=(0.9, None), class_iou=(0.8, None))
    cells = row.cells()
    assert cells["mean_iou"] == 0.5
    assert "starred_iou" not in cells
    assert list(cells)[-4:] == ["accuracy of road", "accuracy of sky", "IoU of road", "IoU of sky"]
    assert (cells["IoU of road"], cells["IoU of sky"]) == (0.8, None)


def test_a_comparison_of_maps_draws_mean_iou() -> None:
    found = comparison_page("all", summarise_runs([mapped("cbst", iou=0.4), mapped("em", iou=0.5)]), [on_maps()])
    assert "mean IoU on streets: cbst 0.400; em 0.500." in found
    assert "Bold: highest mean IoU." in found
    assert '<th scope="col">mean IoU</th><th scope="col">accuracy</th>' in found
    both = comparison_page("all", summarise_runs([mapped(), score()]))
    assert ">mean IoU</text>" in both
    assert ">accuracy</text>" in both


# the page


def test_the_page_counts_sites_and_pixels() -> None:
    assert summary.run_lead(on_maps()) == (
        "em_basis: 12 unlabelled sites in 1,500 pictures, 3 classes, 2 rounds, with true labels to check against."
    )
    assert summary.run_lead(dataclasses.replace(on_maps(), pictures=0)).startswith("em_basis: 12 unlabelled sites, 3 ")
    assert ("unlabelled sites", "12") in summary.input_summary(on_maps())
    assert ("unlabelled pictures", "1,500") in summary.input_summary(on_maps())
    lost = dataclasses.replace(record(3), class_counts=(12, 0, 0))
    assert "Round 3: no site is labelled dog, owl." in summary.run_warnings(
        dataclasses.replace(on_maps(), rounds=(lost,))
    )
    assert "A larger mark stands for more pixels." in page()
    words = re.sub(r'src(?:set)?="[^"]*"|<style>.*?</style>', "", page(), flags=re.DOTALL)
    assert "unlabelled rows" not in words
    assert not re.search(r"\d rows", words)


def test_mean_iou_comes_first_and_pixel_accuracy_next() -> None:
    cards = summary.run_cards(on_maps())
    assert [(c.name, c.value, c.hint) for c in cards[:2]] == [
        ("Mean IoU", "0.350", "0.250 in round 0"),
        ("Pixel accuracy", "0.600", "0.500 in round 0"),
    ]
    assert ("Mean IoU on the test set", "0.500") in [(c.name, c.value) for c in cards]


def test_the_table_of_rounds_has_mean_iou() -> None:
    table = summary.round_table(on_maps())
    assert {len(row) for row in table.rows} == {len(table.header)}
    column = table.header.index("mean IoU")
    assert table.header[column + 1] == "pixel accuracy"
    assert [row[column] for row in table.rows] == ["0.250", "0.350", "0.450"]
    assert table.header[-2:] == ["test mean IoU", "test pixel accuracy"]
    assert table.rows[0][-2:] == ["0.500", "0.750"]


def test_the_table_of_classes_has_iou_and_calibration() -> None:
    table = summary.class_table(on_maps())
    assert table.header[3:] == ["IoU", "true pixels", "found (recall)", "right (precision)", "calibration error"]
    assert [(row[0], row[3], row[-1]) for row in table.rows] == [
        ("cat", "0.610", "0.110"),
        ("dog", "–", "0.220"),
        ("owl", "0.430", "–"),
    ]


def test_an_evaluation_of_an_older_release_leaves_dashes() -> None:
    old = dataclasses.replace(view(), palette=COLOURS)
    assert [row[3] for row in summary.class_table(old).rows] == ["–"] * 3
    assert summary.run_cards(old)[0].value == "–"


def test_progress_draws_mean_iou_of_labels_and_test_set() -> None:
    (title, lines), (second, _), *_ = round_series(on_maps().rounds)
    assert (title, second) == ("Mean IoU", "Pixel accuracy")
    assert lines == {"labels": [0.25, pytest.approx(0.35), pytest.approx(0.45)], "test set": [0.5] * 3}


def test_without_true_labels_there_is_a_page_too() -> None:
    found = on_maps(truth=False)
    assert [card.name for card in summary.run_cards(found)] == ["Trusted labels", "Round kept", "Time"]
    assert "mean IoU" not in summary.round_table(found).header
    assert summary.class_table(found).header == ["class", "labels", "trusted"]
    assert "<h2>Pictures</h2>" in run_page(dataclasses.replace(found, rounds=found.rounds[:1]))


# the gallery


def test_each_picture_is_shown_with_its_maps() -> None:
    tree = Tree(page())
    pictures = [v for tag, name, v in tree.values if (tag, name) == ("img", "src") and v.startswith("data:image/png")]
    first = [base64.b64encode(png(shade=shade)).decode() for shade in (1, 2, 3, 4, 5)]
    assert [uri.removeprefix("data:image/png;base64,") for uri in pictures] == [*first, *first[:4]]
    alts = [v for tag, name, v in tree.values if (tag, name) == ("img", "alt") and " of a.png: " in v]
    assert alts == [
        "Picture of a.png: the picture itself.",
        "Predicted labels of a.png: each pixel in the colour of the class it was labelled as.",
        "Variance of a.png: the brighter, the less sure the label.",
        "Trusted of a.png: white where the label is trusted, black elsewhere.",
        "True labels of a.png: each pixel in the colour of its true class.",
    ]
    assert page().count('width="4" height="2">') == 9
    assert "least sure" in page()


def test_the_legend_names_each_colour() -> None:
    found = map_gallery(on_maps())
    assert found is not None
    assert [name for name, _ in found.legend] == list(BENIGN)
    squares = [base64.b64decode(uri.partition(",")[2]).decode() for _, uri in found.legend]
    assert [re.findall('fill="([^"]+)"', square) for square in squares] == [["#804080"], ["#ff0000"], ["#00008e"]]
    assert [f"<bdi>{name}</bdi></li>" in page() for name in BENIGN] == [True] * 3


@pytest.mark.parametrize("data", [b"", b"<svg onload=x>", b"GIF89a", PNG_START, PNG_START + b"x" * 40, b" " + png()])
def test_what_is_no_png_is_left_out(data: bytes) -> None:
    one = dataclasses.replace(shown(), labels=data)
    found = map_gallery(bare(gallery=(one,)))
    assert found is not None
    assert [tile.name for tile in found.strips[0].tiles] == ["picture", "variance", "trusted", "true labels"]
    nothing = MapExample("a", "b", data, data, data, data)
    assert map_gallery(bare(gallery=(nothing,))) is None
    assert "<h2>Pictures</h2>" not in run_page(bare(gallery=(nothing,)))


@pytest.mark.parametrize("names", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_of_pictures_and_classes_never_change_the_elements(names: tuple[str, ...]) -> None:
    found = run_page(bare(names, names[:2]))
    assert Tree(found).tags == Tree(run_page(bare())).tags
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", found)
    found.encode()


def test_a_picture_does_not_tell_whose_machine_it_was() -> None:
    found = run_page(bare(gallery=(shown("/home/jane/streets/1.png"),)))
    assert "jane" not in found
    assert "~/streets/1.png" in found


def test_the_page_has_its_own_style_and_loads_nothing() -> None:
    tree = Tree(page())
    policy = next(value for tag, name, value in tree.values if tag == "meta" and value.startswith("default-src"))
    assert policy == (
        f"default-src 'none'; style-src '{policy_hash(tree.style)}'; script-src '{policy_hash(tree.script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert not [name for _, name, _ in tree.values if name == "style" or name.startswith("on")]
    assert not re.search(r"https?:|//[a-z]|url\(|@import", re.sub('"data:[^"]*"', "", page()))
    loads = [value for _, name, value in tree.values if name in ("src", "srcset", "href", "action", "poster")]
    assert all(value.startswith(("data:image/svg+xml;base64,", "data:image/png;base64,")) for value in loads)


def test_base64_that_reads_like_a_home_folder_is_kept() -> None:
    """Three bytes that are written /hom, and so on: a picture may hold them."""
    data = png() + b"\0" * (-len(png()) % 3) + base64.b64decode("/home/janeAA/root/AA")
    encoded = base64.b64encode(data).decode()
    assert encoded.endswith("/home/janeAA/root/AA")
    assert encoded in run_page(bare(gallery=(dataclasses.replace(shown(), picture=data),)))


def test_labels_without_variances_are_not_drawn() -> None:
    labels = {"id": ["a.png"], "trusted": [0.5]}
    assert "How sure are the labels?" not in run_page(bare(labels=labels))
