"""The report room: records travel unchanged, tables say what they average, pages are inert."""

from __future__ import annotations

import base64
import csv
import dataclasses
import functools
import hashlib
import io
import json
import math
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embasis.benchmark.comparison_page import comparison_page
from embasis.benchmark.scores import (
    SCORE_COLUMNS,
    Stat,
    averaging_note,
    csv_table,
    latex_table,
    markdown_table,
    summarise_runs,
    text_table,
)
from embasis.errors import CorruptError, InputDataError, reveal
from embasis.report import RunView
from embasis.report.charts import balance_panel
from embasis.report.page import run_page
from embasis.report.svg import DARK_SHADE, LineChart, Series, choose_ticks, draw_lines, shade, tick_labels
from embasis.types import record_from_json, record_to_json
from page_views import BENIGN, HOSTILE, Tree, evaluation, many, record, score, view

# records


def test_a_record_survives_json_exactly() -> None:
    for original in (record(), record(truth=False), dataclasses.replace(record(), notes=(), loss=1e-300)):
        assert record_from_json(json.loads(json.dumps(record_to_json(original), allow_nan=False))) == original


numbers = st.floats(allow_nan=False)


@settings(max_examples=50, deadline=None)
@given(numbers, st.dictionaries(st.text(), numbers), st.lists(st.text()), st.none() | numbers)
def test_any_finite_or_infinite_number_and_any_text_survive(
    loss: float, scores: dict[str, float], notes: list[str], auroc: float | None
) -> None:
    truth = dataclasses.replace(evaluation(), auroc=auroc)
    original = dataclasses.replace(record(), loss=loss, scores=scores, notes=tuple(notes), evaluation=truth)
    assert record_from_json(json.loads(json.dumps(record_to_json(original), allow_nan=False))) == original


def test_a_loss_that_is_not_a_number_survives() -> None:
    plain = record_to_json(dataclasses.replace(record(), loss=math.nan))
    assert plain["loss"] == "nan"
    assert math.isnan(record_from_json(plain).loss)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda j: j.pop("loss"), "round lacks the keys loss"),
        (lambda j: j["evaluation"].pop("ece"), "round.evaluation lacks the keys ece"),
        (
            lambda j: j["evaluation"].update(extra=1),
            "round.evaluation has unknown keys extra; known: accuracy, adaptive_ece, ",
        ),
        (lambda j: j.update(trusted=1.5), "round.trusted must be a whole number, got 1.5"),
        (lambda j: j.update(trusted=True), "round.trusted must be a whole number, got True"),
        (lambda j: j.update(loss="much"), "round.loss must be a number, got 'much'"),
        (lambda j: j.update(loss=10**400), "round.loss must be a number, got 1000"),
        (lambda j: j.update(status=None), "round.status must be a str, got None"),
        (lambda j: j.update(class_counts=3), "round.class_counts must be a list, got 3"),
        (lambda j: j.update(scores=[]), "round.scores must be an object, got []"),
        (lambda j: j["scores"].update(agreement="x"), "round.scores.agreement must be a number, got 'x'"),
        (
            lambda j: j["evaluation"]["reliability"][1].pop(),
            "round.evaluation.reliability[1] must have 3 values, got 2",
        ),
    ],
)
def test_a_damaged_record_is_refused_with_its_place(change, sentence: str) -> None:  # type: ignore[no-untyped-def]
    plain = record_to_json(record())
    change(plain)
    with pytest.raises(CorruptError) as caught:
        record_from_json(plain)
    assert str(caught.value).startswith(sentence)


def test_invisible_characters_become_visible_and_joiners_stay() -> None:
    assert reveal("a\x1b[1m\u202eb\n") == "a\\x1b[1m\\u202eb\\n"
    assert reveal("می\u200cخواهم 👩\u200d🚀 ü") == "می\u200cخواهم 👩\u200d🚀 ü"


# tables


def test_standard_deviation_is_that_of_a_sample() -> None:
    assert Stat.of([0.8, 0.9, 1.0]) == Stat(pytest.approx(0.9), pytest.approx(0.1), 3)
    assert Stat.of([0.5]) == Stat(0.5, None, 1)
    assert Stat.of([]) == Stat(None, None, 0)


def test_pairs_are_averaged_within_a_seed_before_the_deviation() -> None:
    rows = [
        score(seed=s, pair=p, accuracy=a) for s, p, a in ((0, "a", 0.6), (0, "b", 1.0), (1, "a", 0.7), (1, "b", 0.7))
    ]
    (summary,) = summarise_runs(rows)
    assert summary.stats["accuracy"].mean == pytest.approx(0.75)
    assert summary.stats["accuracy"].std == pytest.approx(math.sqrt(0.005))  # of 0.8 and 0.7
    assert summary.averaged == "mean ± std over 2 seeds; each seed averages 2 pairs"


def test_the_caption_says_exactly_what_is_averaged() -> None:
    twelve = [score(seed=s, pair=str(p)) for s in range(5) for p in range(12)]
    assert averaging_note(summarise_runs(twelve)) == "mean ± std over 5 seeds; each seed averages 12 pairs."
    assert averaging_note(summarise_runs(twelve[:-2])) == "mean ± std over 5 seeds; each seed averages 10 to 12 pairs."
    assert averaging_note(summarise_runs(twelve[:12])) == "one seed; mean over 12 pairs."
    assert averaging_note(summarise_runs(twelve[:1])) == "one run."
    assert averaging_note(summarise_runs([score(seed=0), score(seed=1)])) == "mean ± std over 2 seeds."
    mixed = summarise_runs([score(seed=0), score(seed=1), score(method="other")])
    assert averaging_note(mixed) == "em on set: mean ± std over 2 seeds. other on set: one run."


def test_values_that_do_not_exist_are_left_out_and_counted() -> None:
    rows = [score(seed=0, auroc=None), score(seed=0, pair="b", auroc=0.6), score(seed=1, auroc=None)]
    (summary,) = summarise_runs(rows)
    assert summary.stats["auroc"] == Stat(0.6, None, 1)
    assert averaging_note([summary]).endswith("AUROC: over the seeds in which it exists.")
    (nothing,) = summarise_runs([score(trusted_precision=None)])
    assert nothing.stats["trusted_precision"] == Stat(None, None, 0)
    assert "–" in text_table([nothing])


def test_the_same_run_twice_is_refused() -> None:
    with pytest.raises(InputDataError, match=r"^rows must be unique, got two of em on set / a, seed 0$"):
        summarise_runs([score(), score()])


def test_the_text_table_fits_80_columns_keeps_the_order_and_marks_the_best() -> None:
    lines = text_table(summarise_runs(many())).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2].split() == ["method", "acc", "class", "ECE", "NLL", "AUROC", "trust", "prec", "sec"]
    assert [line.split()[0] for line in lines[3:13:2]][::4] == ["source_only", "em_basis"]
    assert [line for line in lines if "*0." in line] == [lines[11]]
    assert lines[12].split()[0] == "±0.002"
    assert lines[-1] == "mean ± std over 5 seeds; each seed averages 2 pairs."


def test_with_one_seed_there_is_no_deviation() -> None:
    summaries = summarise_runs(many(1))
    assert "±" not in text_table(summaries) + markdown_table(summaries) + latex_table(summaries)


def test_the_markdown_table_reads_back() -> None:
    summaries = summarise_runs(many())
    table = markdown_table(summaries).split("\n\n")[0].splitlines()
    cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]
    assert {len(row) for row in cells} == {2 + len(SCORE_COLUMNS)}
    assert [re.sub(r"\\(.)", r"\1", row[1]) for row in cells[2:]] == [s.method for s in summaries]
    assert cells[-1][2] == "**0.882 ± 0.002**"


def test_the_csv_reads_back_at_full_precision_and_holds_no_formula() -> None:
    summaries = summarise_runs(many())
    rows = list(csv.DictReader(io.StringIO(csv_table(summaries))))
    assert len(rows) == len(summaries) * len(SCORE_COLUMNS)
    for row, (s, metric) in zip(rows, ((s, m) for s in summaries for m in SCORE_COLUMNS), strict=True):
        assert row["method"].removeprefix("'") == s.method
        assert row["method"][0] not in "=+-@"
        assert (row["metric"], float(row["mean"]), int(row["n"])) == (metric, s.stats[metric].mean, 5)
        assert float(row["std"]) == s.stats[metric].std


@pytest.mark.parametrize("name", ["=a", "+a", "-a", "@a", "\uff1da", "\uff0ba", "\uff0da", "\uff20a", "'a"])
def test_a_name_that_looks_like_a_formula_gets_an_apostrophe(name: str) -> None:
    row = next(csv.DictReader(io.StringIO(csv_table(summarise_runs([score(name)])))))
    assert row["method"] == f"'{name}"


def test_latex_escapes_names() -> None:
    latex = latex_table(summarise_runs([score("50%_a&b\\x")]))
    assert r"50\%\_a\&b\textbackslash{}x & \textbf{0.900}" in latex


# figures and pages


@pytest.mark.parametrize("names", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_change_text_and_never_the_elements(names: tuple[str, ...]) -> None:
    page = run_page(view(names))
    assert Tree(page).tags == Tree(pages()[0]).tags
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", page)
    page.encode()


def test_hostile_methods_sets_and_titles_do_not_change_a_comparison() -> None:
    def page(names: list[str]) -> str:
        rows = [score(name, dataset=dataset) for dataset in names[:2] for name in names]
        return comparison_page(names[0], summarise_runs(rows))

    hostile = [name for names in HOSTILE for name in names]
    assert Tree(page(hostile)).tags == Tree(page([f"name {i}" for i in range(len(hostile))])).tags


def fresh() -> list[str]:
    summaries = summarise_runs(many())
    return [run_page(view()), run_page(view(truth=False)), comparison_page("all", summaries, [view()])]


pages = functools.cache(fresh)


def digest_of(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_allows_the_own_style_and_the_own_script_and_nothing_else() -> None:
    for page in pages():
        tree = Tree(page)
        policy = next(value for tag, name, value in tree.values if tag == "meta" and value.startswith("default-src"))
        assert policy == (
            f"default-src 'none'; style-src '{digest_of(tree.style)}'; script-src '{digest_of(tree.script)}'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        )
        assert [tag for tag in tree.tags if tag in ("script", "link", "iframe", "object", "form")] == ["script"]
        assert not [name for _, name, _ in tree.values if name == "style" or name.startswith("on")]


def test_a_page_names_no_other_resource() -> None:
    for page in pages():
        assert not re.search(r"https?:|//[a-z]|url\(|@import|fetch\(|XMLHttp|import\(", page)
        loads = [value for _, name, value in Tree(page).values if name in ("src", "srcset", "href", "action", "poster")]
        assert all(re.match(r"data:image/(svg\+xml|png|jpeg);base64,", value) for value in loads)


def test_the_same_values_give_the_same_bytes() -> None:
    assert fresh() == pages()


def test_a_page_does_not_tell_whose_machine_it_was() -> None:
    page = pages()[0]
    assert "secret-host" not in page
    assert "jane" not in page
    assert "/srv/private" not in page
    assert "…/set" in page


def test_figures_that_need_true_labels_appear_only_with_them() -> None:
    with_truth, without, _ = pages()
    for words in (
        "Can its confidence be believed?",
        "Does the uncertainty find the errors?",
        "Which classes are confused?",
    ):
        assert words in with_truth
        assert words not in without
    assert "Accuracy of the labels" not in without
    assert "Class balance of the labels" in without


def pictures_of(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg .*?</svg>", page, re.DOTALL)]


def test_every_picture_says_what_is_to_be_seen_and_every_mark_its_value() -> None:
    for page in pages():
        found = pictures_of(page)
        assert len(found) >= 4
        for picture in found:
            assert len(picture.attrib["aria-label"]) > 30
            marks = [part for part in picture.iter() if "m" in part.attrib.get("class", "").split()]
            assert marks
            assert all(re.search(r"\d", mark.findtext("title") or "") for mark in marks)
            assert {mark.attrib["role"] for mark in marks} == {"img"}


def test_the_tab_key_reaches_one_mark_of_each_picture() -> None:
    for page in pages():
        for picture in pictures_of(page):
            stops = [part.attrib["tabindex"] for part in picture.iter() if "tabindex" in part.attrib]
            assert stops.count("0") == 1
            assert set(stops) <= {"0", "-1"}


def test_every_figure_has_a_table_behind_it() -> None:
    for page in pages():
        figures = re.findall(r"<figure.*?</figure>", page, re.DOTALL)
        assert len(figures) >= 2
        assert all("<details><summary>The numbers</summary>" in figure and "<td>" in figure for figure in figures)


def test_a_run_without_rounds_labels_or_times_still_has_a_page() -> None:
    empty = RunView({}, {}, (), [], None, "interrupted", -1, BENIGN)
    page = run_page(empty)
    assert "No round has finished yet." in page
    assert "interrupted" in page
    assert comparison_page("runs", summarise_runs([score()]), [empty])


def test_a_view_whose_rounds_count_other_classes_is_refused() -> None:
    with pytest.raises(CorruptError, match=r"^round 0 must count 2 classes everywhere, got \[3\]$"):
        dataclasses.replace(view(), classes=("cat", "dog"))


def test_an_evaluation_without_curves_still_has_its_page() -> None:
    bare = dataclasses.replace(evaluation(), reliability=(), risk_coverage=(), auroc=None, trusted_precision=None)
    one = dataclasses.replace(record(), evaluation=bare)
    assert "Can its confidence be believed?" in run_page(dataclasses.replace(view(), rounds=(one,), labels=None))


def test_warnings_name_collapse_and_lost_classes() -> None:
    collapsed = dataclasses.replace(record(3), status="collapsed", class_counts=(12, 0, 0), trusted=0)
    page = run_page(dataclasses.replace(view(), rounds=(record(0), collapsed)))
    assert "Round 3: collapsed: nearly all labels are of one class." in page
    assert "Round 3: no row is labelled dog, owl." in page


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def mixed(colour: str, ground: str, share: float) -> str:
    parts = [(int(colour[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in parts)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_every_shade(theme: int) -> None:
    style = re.sub(r"#([0-9a-f])([0-9a-f])([0-9a-f])(?![0-9a-f])", r"#\1\1\2\2\3\3", Tree(pages()[0]).style)
    colour = {
        name: re.findall(rf"--{name}: (#[0-9a-f]{{6}})", style)[theme]
        for name in ("heat", "cell", "card", "ink", "quiet")
    }
    for step in range(101):
        part = shade(step / 100, 1.0)
        text = "#ffffff" if part > DARK_SHADE else colour["cell"]
        assert contrast(text, mixed(colour["heat"], colour["card"], part)) >= 4.5, part
    assert contrast(colour["ink"], colour["card"]) >= 7
    assert contrast(colour["quiet"], colour["card"]) >= 4.5


def test_plotting_and_templates_are_loaded_only_when_needed() -> None:
    code = "import embasis.report.page, sys; print({'torch', 'jinja2', 'PIL'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "set()"


def test_long_names_are_cut_in_pictures_and_whole_in_their_marks() -> None:
    names = tuple(f"{i} " + "W" * 60 for i in range(3))
    picture = balance_panel(dataclasses.replace(view(), classes=names)).pictures[0]
    assert f">{names[1][:15]}…</text>" in picture
    assert f"<title>{names[1]}, round 2: 33.3%, 4 labels</title>" in picture
    assert names[1] + "</text>" not in picture


def test_many_classes_are_one_image_with_marks_on_the_largest() -> None:
    classes = tuple(f"class {i}" for i in range(60))
    wide = dataclasses.replace(record(truth=False), class_counts=(1,) * 59 + (7,), trusted_counts=(1,) * 60)
    picture = balance_panel(dataclasses.replace(view(), rounds=(wide,), classes=classes)).pictures[0]
    assert ">class 7</text>" not in picture
    assert picture.count("data:image/png;base64,") == 1
    assert "<title>class 59, round 0: 10.6%, 7 labels</title>" in picture
    assert len(picture) < 20_000


def test_marks_stand_where_their_values_are() -> None:
    picture = draw_lines(
        [Series("a", [(0, 0.0), (1, 1.0), (2, None), (3, 0.5)], ["0", "1", "-", "0.5"])],
        LineChart("label", "x", y=(0, 1)),
    )
    marks = [part for part in ElementTree.fromstring(picture).iter("circle") if part.findtext("title")]
    assert [mark.findtext("title") for mark in marks] == ["0", "1", "0.5"]
    x, y = ([float(mark.attrib[name]) for mark in marks] for name in ("cx", "cy"))
    assert (x[1] - x[0]) * 3 == pytest.approx(x[2] - x[0], abs=0.3)
    assert y[0] - y[2] == pytest.approx((y[0] - y[1]) / 2, abs=0.2)
    (path,) = ElementTree.fromstring(picture).iter("path")
    assert path.attrib["d"].count("M") == 2  # the line is broken where there is no value


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (0, 1, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0.93, 0.958, ["0.93", "0.94", "0.95"]),
        (0, 1797, ["0", "500", "1,000", "1,500"]),
    ],
)
def test_axes_have_round_numbers(low: float, high: float, found: list[str]) -> None:
    assert tick_labels(choose_ticks(low, high)) == found
