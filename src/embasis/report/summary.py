"""What stands on the page of a run beside its figures: sentences, cards and tables, and numbers as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from embasis.report import FACT_WORDS, RunView

if TYPE_CHECKING:
    from embasis.types import Evaluation, RoundRecord

DASH = "–"
"""For a value that does not exist."""
MOST_TABLE_ROWS = 200
"""A table behind a figure shows at most so many rows."""


@dataclass(frozen=True)
class PageTable:
    """A heading, its rows as text, a sentence below; `best` are the rows in bold."""

    name: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    best: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Card:
    """One key figure."""

    name: str
    value: str
    hint: str = ""


@dataclass(frozen=True)
class Panel:
    """A figure: its pictures as SVG, each of which says in words what is to be seen, and the table of its numbers."""

    title: str
    pictures: Sequence[str]
    caption: str
    table: PageTable
    wide: bool = False


def format_decimals(value: float | None) -> str:
    """Three decimals, a dash for None."""
    return DASH if value is None else f"{value:.3f}"


def format_number(value: float | None) -> str:
    """Four digits, a dash for None."""
    return DASH if value is None else f"{value:.4g}"


def format_share(part: float, whole: float) -> str:
    """A share with one decimal, a dash for a share of nothing."""
    return f"{part / whole:.1%}" if whole else DASH


def format_seconds(seconds: float) -> str:
    """A time for reading."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def numbers_table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> PageTable:
    """The numbers behind a figure, the first of them."""
    note = f"The first {MOST_TABLE_ROWS} of {len(rows):,} rows." if len(rows) > MOST_TABLE_ROWS else ""
    return PageTable(f"The numbers of: {title}", header, rows[:MOST_TABLE_ROWS], note)


def make_panel(
    title: str,
    pictures: Sequence[str],
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    wide: bool = False,
) -> Panel:
    """A figure with its numbers behind it."""
    return Panel(title, pictures, caption, numbers_table(header, rows, title), wide)


_PRIVATE = ("host", "hostname", "node", "user", "username", "home", "cwd", "argv", "executable")
_INPUT_SETTINGS = (
    *("dataset", "data", "labelled", "unlabelled", "pair", "method"),
    *("backbone", "network", "depth", "rounds", "seed"),
)
"""Settings that say what went in, in the order of the page."""
_BRIER_PARTS = ("reliability", "resolution", "uncertainty")
_QUALITY_NOTE = (
    "ECE, Brier and AURC: smaller is better; AUPR: larger is better. "
    "Kept at 95%: the largest share of labels, surest first, of which 95% are right."
)
SHARED_MEASURES = {
    "network": "network_accuracy",
    "ECE": "ece",
    "NLL": "nll",
    "AUROC": "auroc",
    "precision": "trusted_precision",
}
ROW_MEASURES = {"accuracy": "accuracy", "class mean": "mean_class_accuracy", **SHARED_MEASURES}
MAP_MEASURES = {"mean IoU": "mean_iou", "pixel accuracy": "accuracy", **SHARED_MEASURES}
"""Columns of the table of rounds where true labels are known, of rows or of label maps: the field of Evaluation."""
MOST_REJECTED = 50
"""Files that a page names."""
_MAPS_NOTE = "Labels and trusted count sites, one for each cell of the network's output; the rest is over pixels."


def flatten_settings(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as (dotted key, text); absolute paths lose their folders, private facts are left out."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if str(key).lower() in _PRIVATE:
            continue
        if isinstance(value, Mapping):
            rows += flatten_settings(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            rows.append((f"{prefix}{key}", ", ".join(_format_setting(item) for item in value) or DASH))
        else:
            rows.append((f"{prefix}{key}", _format_setting(value)))
    return rows


def _format_setting(value: Any) -> str:
    text = DASH if value is None else str(value)
    if re.match(r"[/~][^/\s]*/|[A-Za-z]:\\", text):
        return "…/" + re.split(r"[/\\]", text.rstrip("/\\"))[-1]
    return text


def _find_setting(view: RunView, name: str) -> str | None:
    settings = dict(flatten_settings(view.config))
    nested = (key for key in settings if key.endswith(f".{name}"))
    return next((settings[key] for key in (name, f"{name}.name", *nested) if key in settings), None)


def run_title(view: RunView) -> str:
    """Method and data of the run, as far as its settings name them."""
    names = [name for key in ("method", "dataset") if (name := _find_setting(view, key))]
    return " on ".join(names) if len(names) == 2 else names[0] if names else "Self-training run"


def label_unit(view: RunView) -> str:
    """What the labels of a run are of: rows, or the sites of pictures."""
    return "sites" if view.on_maps else "rows"


def truth_unit(view: RunView) -> str:
    """What true labels are of: rows, or the pixels of pictures."""
    return "pixels" if view.on_maps else "rows"


def run_lead(view: RunView) -> str:
    """One sentence below the title."""
    if not view.rounds:
        return "No round has finished yet."
    last = view.rounds[-1]
    truth = "with true labels to check against" if last.evaluation else "without true labels"
    where = f" in {count_of(view.pictures, 'picture')}" if view.pictures else ""
    what = f"{last.unlabelled:,} unlabelled {label_unit(view)}{where}"
    names = [name for key in ("method", "network") if (name := _find_setting(view, key))]
    how = f"{' with '.join(names)}: " if names else ""
    rounds = count_of(len(view.rounds) - 1, "round")
    return f"{how}{what}, {count_of(len(view.classes), 'class', 'classes')}, {rounds}, {truth}."


def count_of(number: int, unit: str, units: str = "") -> str:
    """`1 round`, `2 rounds`."""
    return f"{number:,} {unit if number == 1 else units or f'{unit}s'}"


def run_cards(view: RunView) -> list[Card]:
    """The key figures of the kept round."""
    cards: list[Card] = []
    record = view.kept or (view.rounds[-1] if view.rounds else None)
    if record is not None:
        first = view.rounds[0]
        now, then = record.evaluation, first.evaluation if first is not record else None

        def was(name: str) -> str:
            return f"{format_decimals(getattr(then, name))} in round {first.round}" if then else ""

        if now is not None:
            if view.on_maps:
                cards.append(Card("Mean IoU", format_decimals(now.mean_iou), was("mean_iou") or "mean over classes"))
            name = "Pixel accuracy" if view.on_maps else "Accuracy of the labels"
            hint = was("accuracy") or f"{now.rows:,} {truth_unit(view)}"
            cards.append(Card(name, format_decimals(now.accuracy), hint))
        share = format_share(record.trusted, record.unlabelled)
        right = record.facts.get("expected_precision")
        believed = "" if right is None else f"; about {right:.0%} of them believed to be right"
        cards.append(Card("Trusted labels", share, f"{record.trusted:,} of {record.unlabelled:,}{believed}"))
        if now is not None:
            known = format_decimals(now.trusted_precision)
            cards.append(Card("Right among the trusted", known, f"{format_decimals(now.accuracy)} among all"))
            cards.append(Card("Calibration error", format_decimals(now.ece), was("ece") or "0 is best"))
        cards += _expected_cards(record)
        if record.test is not None:
            cards += _test_cards(record.test, view)
        cards.append(Card("Round kept", str(record.round), f"of {view.rounds[-1].round}; {view.how_kept}"))
    if view.timings:
        total = sum(float(row["seconds"]) for row in view.timings)
        stages = ", ".join(dict.fromkeys(str(row["stage"]) for row in view.timings))
        cards.append(Card("Time", format_seconds(total), stages))
    return cards


def _expected_cards(record: RoundRecord) -> list[Card]:
    """What is known of the labels without any true one."""
    expected, temperature = record.facts.get("expected_accuracy"), record.facts.get("temperature")
    cards = list[Card]()
    if expected is not None:
        cards.append(Card("Expected accuracy", format_decimals(expected), "estimated without true labels"))
    if temperature is not None:
        direction = "softened" if temperature > 1 else "sharpened" if temperature < 1 else "left as they are"
        cards.append(Card("Temperature", f"{temperature:.2f}", f"probabilities are {direction}"))
    return cards


def _test_cards(test: Evaluation, view: RunView) -> list[Card]:
    if view.on_maps:
        hint = f"pixel accuracy {format_decimals(test.accuracy)}"
        return [Card("Mean IoU on the test set", format_decimals(test.mean_iou), hint)]
    return [Card("Accuracy on the test set", format_decimals(test.accuracy), f"{test.rows:,} rows")]


def run_warnings(view: RunView) -> list[str]:
    """Notes on the data, collapse, rounds without trust, classes that vanished, and the notes of every round."""
    warnings: list[str] = list(dict.fromkeys(view.notes))
    says = {
        "collapsed": "collapsed: nearly all labels are of one class",
        "no_change": "nothing was trusted",
        "source_kept": "adaptation does not help here, and the source model is kept",
    }
    found = list[tuple[int, str]]()
    for record in view.rounds:
        if record.status != "ok":
            found.append((record.round, f"{says.get(record.status, record.status)}."))
        found += [(record.round, note) for note in record.notes]
    warnings += merge_notes(found)
    if view.rounds:
        last = view.rounds[-1]
        gone = [name for name, n in zip(view.classes, last.class_counts, strict=False) if n == 0]
        if gone:
            more = f" and {len(gone) - 10} more" if len(gone) > 10 else ""
            warnings.append(f"Round {last.round}: no {label_unit(view)[:-1]} is labelled {', '.join(gone[:10])}{more}.")
    return warnings


def merge_notes(found: Sequence[tuple[int, str]]) -> list[str]:
    """Notes of rounds, each once with its rounds and their number; those that differ in numbers only, as the last."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for number, text in found:
        groups.setdefault(re.sub(r"[0-9][0-9.,]*", "0", text), []).append((number, text))
    merged = list[str]()
    for group in groups.values():
        rounds, (last, text) = list(dict.fromkeys(number for number, _ in group)), group[-1]
        same = len({other for _, other in group}) == 1
        times = f"{len(rounds)} times" + ("" if same else f", here as in round {last}")
        where = f"Round {last}" if len(rounds) == 1 else f"Rounds {format_rounds(rounds)} ({times})"
        merged.append(f"{where}: {text}")
    return merged


def format_rounds(numbers: Sequence[int]) -> str:
    """`0–3, 5`: numbers in their order, those in a row as a range."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def input_summary(view: RunView) -> list[tuple[str, str]]:
    """What the run was given."""
    rows = [(name, value) for name in _INPUT_SETTINGS if (value := _find_setting(view, name)) is not None]
    rows += [("corrected by hand, now labelled", f"{view.corrected:,}")] if view.corrected else []
    if view.rounds:
        rows += [("unlabelled pictures", f"{view.pictures:,}")] if view.pictures else []
        rows.append((f"unlabelled {label_unit(view)}", f"{view.rounds[-1].unlabelled:,}"))
        rows.append(("true labels", "given, for checking only" if view.rounds[-1].evaluation else "none"))
    names = ", ".join(view.classes[:12]) + (f" and {len(view.classes) - 12} more" if len(view.classes) > 12 else "")
    rows.append((f"{len(view.classes)} classes", names))
    return rows


def round_table(view: RunView) -> PageTable:
    """One line per round."""
    scores = list(dict.fromkeys(key for record in view.rounds for key in record.scores))
    measures = MAP_MEASURES if view.on_maps else ROW_MEASURES
    truth = measures if any(record.evaluation for record in view.rounds) else {}
    test = {name: field for name, field in measures.items() if field in ("mean_iou", "accuracy")}
    test = test if any(record.test for record in view.rounds) else {}
    header = ["round", "status", "loss", "trusted", "changed", *(name.replace("_", " ") for name in scores)]
    header += [*truth, *(f"test {name}" for name in test)]
    rows = []
    for record in view.rounds:
        row = [str(record.round), record.status, f"{record.loss:.4g}", format_share(record.trusted, record.unlabelled)]
        row += [f"{record.changed:.1%}", *(format_number(record.scores.get(name)) for name in scores)]
        for evaluation, fields in ((record.evaluation, truth), (record.test, test)):
            values = [None if evaluation is None else getattr(evaluation, field) for field in fields.values()]
            row += map(format_decimals, values)
        rows.append(row)
    best = frozenset(i for i, record in enumerate(view.rounds) if record.round == view.best_round)
    note = f"Round {view.best_round}, in bold, is the one kept." if best else ""
    return PageTable("Round by round", header, rows, note, best)


def class_table(view: RunView) -> PageTable:
    """One line per class: its labels in the kept round and, with true labels, how right they are."""
    record = view.kept or (view.rounds[-1] if view.rounds else None)
    if record is None:
        return PageTable("Classes", (), ())
    truth, rows = record.evaluation, []
    for c, name in enumerate(view.classes):
        row = [name, f"{record.class_counts[c]:,}", f"{record.trusted_counts[c]:,}"]
        if truth:
            true, labelled = sum(truth.confusion[c]), sum(line[c] for line in truth.confusion)
            hit = truth.confusion[c][c]
            row += [format_decimals(dict(enumerate(truth.class_iou)).get(c))] if view.on_maps else []
            shares = (hit / total if total else None for total in (true, labelled))
            row += [f"{true:,}", *map(format_decimals, shares)]
            row += [format_decimals(dict(enumerate(truth.class_ece)).get(c))] if view.on_maps else []
        rows.append(row)
    true_names = [f"true {truth_unit(view)}", "found (recall)", "right (precision)"]
    if view.on_maps:
        true_names = ["IoU", *true_names, "calibration error"]
    note = f"Round {record.round}." + (f" {_MAPS_NOTE}" if view.on_maps and truth else "")
    return PageTable("Classes", ["class", "labels", "trusted", *(true_names if truth else [])], rows, note)


def cost_table(view: RunView) -> PageTable:
    """Seconds of each stage over all rounds."""
    stages: dict[str, list[float]] = {}
    for row in view.timings:
        stages.setdefault(str(row["stage"]), []).append(float(row["seconds"]))
    total = sum(sum(times) for times in stages.values())
    rows = [[s, f"{sum(t):.2f}", format_share(sum(t), total), str(len(t))] for s, t in stages.items()]
    rows += [["total", f"{total:.2f}", "", ""]] if rows else []
    return PageTable("Cost", ("stage", "seconds", "share", "times run"), rows)


def quality_table(view: RunView) -> PageTable:
    """One line per round with true labels: calibration, and how well the uncertainty ranks the labels."""
    evaluations = [(record.round, record.evaluation) for record in view.rounds if record.evaluation is not None]
    precisions = sorted({precision for _, e in evaluations for precision, _ in e.coverage})
    measures = [
        {
            "adaptive ECE": e.adaptive_ece,
            "class-wise ECE": e.classwise_ece,
            "mean confidence": e.confidence,
            "Brier": e.brier,
            **{f"Brier: {name}": e.brier_parts[i] if e.brier_parts else None for i, name in enumerate(_BRIER_PARTS)},
            "AUPR": e.aupr,
            "AURC": e.aurc,
            **{f"kept at {precision:.0%}": dict(e.coverage).get(precision) for precision in precisions},
        }
        for _, e in evaluations
    ]
    shown = [name for name in (measures[0] if measures else ()) if any(row[name] is not None for row in measures)]
    numbers = [number for number, _ in evaluations]
    rows = [[str(n), *(format_decimals(row[name]) for name in shown)] for n, row in zip(numbers, measures, strict=True)]
    best = frozenset(i for i, n in enumerate(numbers) if n == view.best_round)
    return PageTable("Calibration and ranking", ["round", *shown], rows if shown else [], _QUALITY_NOTE, best)


def labeller_table(view: RunView) -> PageTable:
    """One line per round: what the labeller chose for itself."""
    names = list(dict.fromkeys(key for record in view.rounds for key in record.facts))
    rows = [[str(record.round), *(format_number(record.facts.get(name)) for name in names)] for record in view.rounds]
    heads = [FACT_WORDS.get(name, name.replace("_", " ")) for name in names]
    return PageTable("What the labeller chose", ["round", *heads], rows if names else [])


def rejected_table(view: RunView) -> PageTable:
    """Files that could not be used."""
    rows = [[str(row.get(name, "")) for name in ("name", "side", "phase", "reason")] for row in view.refused]
    more = f"The first {MOST_REJECTED} of {len(rows):,}; quarantine.jsonl has all." if len(rows) > MOST_REJECTED else ""
    return PageTable("Files that were not used", ("file", "side", "found at", "reason"), rows[:MOST_REJECTED], more)


def settings_tables(view: RunView) -> list[tuple[str, list[tuple[str, str]]]]:
    """Settings and environment, without paths and names of the machine."""
    tables = (("Settings", flatten_settings(view.config)), ("Environment", flatten_settings(view.environment)))
    return [(name, rows) for name, rows in tables if rows]
