"""Every number on a page is the one in the run folder: each card, table, picture and sentence is worked out again."""

from __future__ import annotations

import dataclasses
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import page_views
from embasis.report.page import run_page
from embasis.runs.checkpoint import read_run_view
from embasis.storage import read_stored_table
from folder_runs import config, go
from page_reader import Page

ROUNDS = 3
KEPT = 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("numbers") / "run"
    go(path, config())
    return path


@pytest.fixture(scope="module")
def page(run: Path) -> Page:
    return Page((run / "report.html").read_text())


@pytest.fixture(scope="module")
def rounds(run: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert len(found) == ROUNDS
    return found


@pytest.fixture(scope="module")
def timings(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]


def three(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def short(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def test_the_page_that_the_folder_gives_again_is_the_same(run: Path) -> None:
    assert run_page(read_run_view(run)) == (run / "report.html").read_text()


def test_cards_are_of_the_kept_round(page: Page, rounds: list[dict[str, Any]], timings: list[dict[str, Any]]) -> None:
    first, kept = rounds[0], rounds[KEPT]
    now, then = kept["evaluation"], first["evaluation"]
    total = sum(row["seconds"] for row in timings)
    expected = {
        "Accuracy of the labels": (three(now["accuracy"]), f"{three(then['accuracy'])} in round 0"),
        "Trusted labels": (
            f"{kept['trusted'] / kept['unlabelled']:.1%}",
            f"{kept['trusted']} of {kept['unlabelled']}; "
            f"about {kept['facts']['expected_precision']:.0%} of them believed to be right",
        ),
        "Right among the trusted": (three(now["trusted_precision"]), f"{three(now['accuracy'])} among all"),
        "Calibration error": (three(now["ece"]), f"{three(then['ece'])} in round 0"),
        "Round kept": (str(KEPT), f"of {KEPT}; the last one"),
        "Time": (f"{total:.1f} s", "train, label"),
    }
    if "expected_accuracy" in kept["facts"]:
        expected["Expected accuracy"] = (three(kept["facts"]["expected_accuracy"]), "estimated without true labels")
    if "temperature" in kept["facts"]:
        expected["Temperature"] = (f"{kept['facts']['temperature']:.2f}", page.cards["Temperature"][1])
    assert page.cards == expected


def test_the_table_of_rounds(page: Page, rounds: list[dict[str, Any]]) -> None:
    for row, record in zip(page.table("Round by round"), rounds, strict=True):
        e = record["evaluation"]
        assert row == {
            "round": str(record["round"]),
            "status": record["status"],
            "loss": short(record["loss"]),
            "trusted": f"{record['trusted'] / record['unlabelled']:.1%}",
            "changed": f"{record['changed']:.1%}",
            **{name.replace("_", " "): short(value) for name, value in record["scores"].items()},
            "accuracy": three(e["accuracy"]),
            "class mean": three(e["mean_class_accuracy"]),
            "network": three(e["network_accuracy"]),
            "ECE": three(e["ece"]),
            "NLL": three(e["nll"]),
            "AUROC": three(e["auroc"]),
            "precision": three(e["trusted_precision"]),
        }


def test_the_table_of_calibration_and_ranking(page: Page, rounds: list[dict[str, Any]]) -> None:
    for row, record in zip(page.table("Calibration and ranking"), rounds, strict=True):
        e = record["evaluation"]
        parts = zip(("reliability", "resolution", "uncertainty"), e["brier_parts"], strict=True)
        assert row == {
            "round": str(record["round"]),
            "adaptive ECE": three(e["adaptive_ece"]),
            "class-wise ECE": three(e["classwise_ece"]),
            "mean confidence": three(e["confidence"]),
            "Brier": three(e["brier"]),
            **{f"Brier: {name}": three(value) for name, value in parts},
            "AUPR": three(e["aupr"]),
            "AURC": three(e["aurc"]),
            **{f"kept at {precision:.0%}": three(share) for precision, share in e["coverage"]},
        }


def test_the_table_of_classes(page: Page, rounds: list[dict[str, Any]], run: Path) -> None:
    kept, names = rounds[KEPT], read_run_view(run).classes
    matrix = kept["evaluation"]["confusion"]
    for c, row in enumerate(page.table("Classes")):
        true, labelled = sum(matrix[c]), sum(line[c] for line in matrix)
        assert row == {
            "class": names[c],
            "labels": f"{kept['class_counts'][c]:,}",
            "trusted": f"{kept['trusted_counts'][c]:,}",
            "true rows": f"{true:,}",
            "found (recall)": three(matrix[c][c] / true if true else None),
            "right (precision)": three(matrix[c][c] / labelled if labelled else None),
        }


def test_counts_of_labels_are_those_of_the_table_of_labels(page: Page, run: Path) -> None:
    labels = read_stored_table(run / "labels" / "round-002.parquet")
    for row in page.table("Classes"):
        assert row["labels"] == str(labels["label"].count(row["class"]))
        assert row["trusted"] == str(labels["drawn"].count(row["class"]))  # what is trusted is trained on as drawn


def test_times(page: Page, timings: list[dict[str, Any]]) -> None:
    total = sum(row["seconds"] for row in timings)
    *rows, last = page.table("Cost")
    assert last == {"stage": "total", "seconds": f"{total:.2f}", "share": "", "times run": ""}
    for row in rows:
        times = [t["seconds"] for t in timings if t["stage"] == row["stage"]]
        assert row["seconds"] == f"{sum(times):.2f}"
        assert row["share"] == f"{sum(times) / total:.1%}"
        assert row["times run"] == str(len(times))
    found = [(row["round"], row["stage"], row["seconds"]) for row in page.table("The numbers of: Where the time went")]
    order = {"train": 0, "label": 1}
    expected = sorted(timings, key=lambda row: (row["round"], order[row["stage"]]))
    assert found == [(str(t["round"]), t["stage"], f"{t['seconds']:.2f}") for t in expected]
    assert page.picture("Times of the rounds") == [
        f"round {t['round']}, {t['stage']}: {t['seconds']:.1f} s" for t in expected
    ]


def test_what_the_labeller_chose(page: Page, rounds: list[dict[str, Any]]) -> None:
    for row, record in zip(page.table("What the labeller chose"), rounds, strict=True):
        facts = {CHOSEN.get(name, name.replace("_", " ")): short(value) for name, value in record["facts"].items()}
        assert row == {"round": str(record["round"]), **facts}


CHOSEN = {"agreement": "κ with the network", "alive": "components in use", "effective": "effective components",
          "power": "inverse temperature", "sound": "basis accepted", "tempering": "power of the network"}  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "best", "words"),
    [
        ({}, 2, "the last one"),
        ({"keep_round": "last"}, 2, "the last one"),
        ({"keep_round": "last"}, 1, "the best one before the collapse"),
        ({"keep_round": "information"}, 2, "chosen by information, without true labels"),
    ],
)
def test_a_page_says_that_a_round_was_chosen_only_where_one_was(plan: dict[str, str], best: int, words: str) -> None:
    rounds = tuple(page_views.record(number) for number in range(3))
    run = dataclasses.replace(page_views.view(), config={"plan": plan}, rounds=rounds, best_round=best)
    page = Page(run_page(run))
    assert page.cards["Round kept"] == (str(best), f"of 2; {words}")
    assert f"The dotted upright line is the round kept, {words}." in page.text


def test_lines_over_the_rounds(page: Page, rounds: list[dict[str, Any]]) -> None:
    share = [record["trusted"] / record["unlabelled"] for record in rounds]
    columns = {
        "Accuracy: labels": [record["evaluation"]["accuracy"] for record in rounds],
        "Accuracy: network": [record["evaluation"]["network_accuracy"] for record in rounds],
        "Trusted share: trusted": share,
        "Trusted share: right among them": [record["evaluation"]["trusted_precision"] for record in rounds],
        "changed": [record["changed"] for record in rounds],
        **{name: [record["scores"].get(name) for record in rounds] for name in rounds[0]["scores"]},
    }
    if "expected_accuracy" in rounds[0]["facts"]:
        columns["Accuracy: expected"] = [record["facts"]["expected_accuracy"] for record in rounds]
    rows = page.table("The numbers of: Round by round")
    assert [row.pop("round") for row in rows] == ["0", "1", "2"]
    for number, row in enumerate(rows):
        assert row == {name: short(values[number]) for name, values in columns.items()}
    assert page.picture("Trusted share from round 0 to round 2: ")[:3] == [
        f"Trusted share, trusted, round {n}: {short(value)}" for n, value in enumerate(share)
    ]
    for name, values in columns.items():
        if name in rounds[0]["scores"]:
            title = f"Label-free: {name.replace('_', ' ')}"
            marks = [f"{title}, round {n}: {short(v)}" for n, v in enumerate(values) if v is not None]
            assert page.picture(f"{title} from round 0 to round 2: ") == marks


def test_reliability(page: Page, rounds: list[dict[str, Any]]) -> None:
    expected = [
        (name, f"{round(n):,}", three(stated / n), three(right / n))
        for name, record in (("round 0", rounds[0]), ("round 2 (kept)", rounds[2]))
        for n, stated, right in record["evaluation"]["reliability"]
        if n
    ]
    rows = page.table("The numbers of: Can its confidence be believed?")
    assert [tuple(row.values()) for row in rows] == expected
    assert page.picture("Reliability diagram") == [f"{a}: {n} rows say {c}, {r} are right" for a, n, c, r in expected]
    for record in (rounds[0], rounds[2]):
        assert f"ECE {three(record['evaluation']['ece'])}" in page.text


def test_risk_and_coverage(page: Page, rounds: list[dict[str, Any]]) -> None:
    rows = page.table("The numbers of: Does the uncertainty find the errors?")
    known = {
        (name, three(share), three(risk))
        for name, record in (("round 0", rounds[0]), ("round 2 (kept)", rounds[2]))
        for share, risk in record["evaluation"]["risk_coverage"]
    }
    assert len(rows) > 10
    assert {tuple(row.values()) for row in rows} <= known
    last = rounds[2]["evaluation"]
    assert tuple(rows[-1].values()) == ("round 2 (kept)", "1.000", three(1 - last["accuracy"]))
    points = {
        f"{name}: of the surest {share:.0%}, {risk:.1%} are wrong"
        for name, record in (("round 0", rounds[0]), ("round 2 (kept)", rounds[2]))
        for share, risk in record["evaluation"]["risk_coverage"]
    }
    assert {*page.picture("Risk–coverage curves")} <= points
    reached = [f"{p:.0%} are right among the surest {c:.1%}" for p, c in last["coverage"] if c is not None]
    missed = [f"{p:.0%} are right in no part" for p, c in last["coverage"] if c is None]
    assert f"round 2 (kept): area {', '.join([three(last['aurc']), *reached, *missed])}." in page.text


def test_histograms(page: Page, run: Path, rounds: list[dict[str, Any]]) -> None:
    labels, rows = (
        read_stored_table(run / "labels" / "round-002.parquet"),
        page.table("The numbers of: How sure are the labels?"),
    )
    trusted = labels["trusted"]
    variance = [between + within for between, within in zip(labels["between"], labels["within"], strict=True)]
    for name, values in (("probability", labels["probability"]), ("variance", variance)):
        low, high = min(values), max(values)
        edges = [low + (high - low) * i / 20 for i in range(21)]
        expected = []
        for i, (left, right) in enumerate(pairwise(edges)):
            inside = [t for v, t in zip(values, trusted, strict=True) if left <= v < right or (i == 19 and v >= right)]
            if inside:
                expected.append((f"{left:.3g} – {right:.3g}", f"{sum(inside)}", f"{len(inside) - sum(inside)}"))
        part = [tuple(row.values())[1:] for row in rows if row["value"].startswith(name)]
        assert part == expected
    spread = rounds[2]["evaluation"]["spread"]
    edges = [0.0, *(edge for edge, _, _ in spread)]
    expected = [
        (f"{left:.3g} – {edge:.3g}", f"{right:,}", f"{wrong:,}")
        for left, (edge, right, wrong) in zip(edges, spread, strict=False)
        if right + wrong
    ]
    assert [tuple(row.values())[1:] for row in rows if row["value"].startswith("uncertainty")] == expected
    marks = [mark for label, found in page.marks.items() if label.startswith("Histogram") for mark in found]
    told = [[n.replace(",", "") for n in re.findall(r"([\d,]+) (?:not |trusted|right|wrong)", mark)] for mark in marks]
    assert told == [[n.replace(",", "") for n in tuple(row.values())[2:]] for row in rows]


def test_class_balance(page: Page, rounds: list[dict[str, Any]]) -> None:
    marks = page.picture("Class shares per round")
    for c, row in enumerate(page.table("The numbers of: Class balance of the labels")):
        for record in rounds:
            n = record["class_counts"][c]
            share = f"{n / sum(record['class_counts']):.1%}"
            assert row[f"round {record['round']}"] == share
            assert f"{row['class']}, round {record['round']}: {share}, {n:,} labels" in marks
    assert len(marks) == len(rounds) * len(rounds[0]["class_counts"])


def test_confusion(page: Page, rounds: list[dict[str, Any]], run: Path) -> None:
    matrix, names = rounds[KEPT]["evaluation"]["confusion"], read_run_view(run).classes
    marks, rows = page.picture("Confusion matrix"), page.table("The numbers of: Which classes are confused?")
    cells = {(names[i], names[j]): n for i, line in enumerate(matrix) for j, n in enumerate(line)}
    assert {(r["true class"], r["labelled"]): int(r["rows"].replace(",", "")) for r in rows} == {
        pair: n for pair, n in cells.items() if n and pair[0] != pair[1]
    }
    sums = dict(zip(names, map(sum, matrix), strict=True))
    assert marks == [
        f"{true} labelled {label}: {n:,} rows, {n / max(sums[true], 1):.1%} of {true}"
        for (true, label), n in cells.items()
    ]


def test_the_basis(page: Page, run: Path) -> None:
    found = json.loads((run / "basis" / "round-002.json").read_text())["components"]
    for number, (row, component) in enumerate(zip(page.table("The numbers of: The basis"), found, strict=True)):
        (name, p), *rest = component["classes"]
        assert row == {
            "component": str(number),
            "class": name,
            "probability": three(p),
            "next classes": ", ".join(f"{other} ({three(q)})" for other, q in rest),
            "share": f"{component['share']:.1%}",
            "nearest rows": ", ".join(component["nearest"]),
        }
    marks = page.picture(f"{len(found)} components by their likeliest class")
    classes = [", ".join(f"{name} {three(p)}" for name, p in component["classes"]) for component in found]
    pairs = enumerate(zip(classes, found, strict=True))
    told = {f"component {n}: {names}; {c['share']:.1%} of the unlabelled side" for n, (names, c) in pairs}
    assert {*marks} == told


def test_settings_and_environment_are_those_of_the_folder(page: Page, run: Path) -> None:
    def leaves(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
        found: dict[str, str] = {}
        for key, value in values.items():
            found |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": str(value)}
        return found

    for name in ("config.json", "environment.json"):
        for key, value in leaves(json.loads((run / name).read_text())).items():
            assert page.pairs[key] == ("–" if value == "None" else value), key


def test_no_table_card_or_picture_is_left_unchecked(page: Page) -> None:
    """Whoever adds one adds its check."""
    behind = (
        "Round by round", "Can its confidence be believed?", "Does the uncertainty find the errors?",
        "How sure are the labels?", "Class balance of the labels", "Which classes are confused?", "The basis",
        "Where the time went",
    )  # fmt: skip
    alone = {"Round by round", "Calibration and ranking", "Classes", "Cost", "What the labeller chose"}
    assert {*page.tables} == alone | {f"The numbers of: {name}" for name in behind}
    known = (
        "Accuracy from", "Trusted share", "Changed labels", "Label-free", "Reliability", "Risk–coverage", "Histogram",
        "Class shares", "Confusion", "Times", str(len(page.table("The numbers of: The basis"))),
    )  # fmt: skip
    assert [label for label in page.marks if not label.startswith(known)] == []


def test_numbers_in_sentences_are_in_the_tables_or_the_folder(page: Page, run: Path) -> None:
    """The lead and the list of what went in."""
    last = json.loads((run / "rounds.jsonl").read_text().splitlines()[-1])
    classes = len(last["class_counts"])
    rows, rounds = f"{last['unlabelled']:,}", ROUNDS - 1
    assert (
        f"{rows} unlabelled rows, {classes} classes, {rounds} rounds, with true labels to check against." in page.text
    )
    assert page.pairs["unlabelled rows"] == rows
    assert page.pairs[f"{classes} classes"] == ", ".join(read_run_view(run).classes)
