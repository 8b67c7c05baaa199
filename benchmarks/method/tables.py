"""The rows of a study as tables.

A figure of a set is the mean over its pairs, ± the standard deviation over seeds where there are several. A standard
error of a difference is over pairs (each the mean over seeds), of a set with one pair over seeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.method.candidates import DEFAULT, FACTORS, SOURCE, all_candidates, cell_name
from benchmarks.method.effects import Levels, main_effects, mean_error, paired_error
from benchmarks.method.rows import Row, unpacked
from embasis.benchmark.scores import SCORE_COLUMNS, RunScore, format_stat, summarise_runs

NONE = "–"
ALIGNED = ("methods", "alignment", "starts")
"""The stages that a table of alignment methods shows."""
Key = tuple[str, int]
"""Pair and seed."""


@dataclass(frozen=True)
class Table:
    """Text cells; the first columns are names."""

    title: str
    note: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(rows: Sequence[Row]) -> list[Table]:
    """All tables that the rows are enough for, in the order in which they are read."""
    order = {candidate.name: number for number, candidate in enumerate(all_candidates())}
    rows = sorted(rows, key=lambda row: (row["set"], order.get(row["variant"], 0), row["seed"], row["pair"]))
    sets = list(dict.fromkeys(row["set"] for row in rows))
    groups = {name: [row for row in rows if row["set"] == name] for name in sets}
    found = [overview(groups), standing(groups), overview(groups, ALIGNED)]
    for name, group in groups.items():
        found += [by_method(name, group), by_alignment(name, group), by_pair(name, group), by_variant(name, group)]
    found += [changes(groups), worth(groups), best_cells(groups), confidences(groups)]
    return [table for table in found if table.rows]


def of(rows: Sequence[Row], variant: str) -> dict[Key, Row]:
    """A candidate's rows by pair and seed."""
    return {(row["pair"], row["seed"]): row for row in rows if row["variant"] == variant}


def names_of(rows: Sequence[Row], stage: str) -> list[str]:
    """The candidates of a stage."""
    return list(dict.fromkeys(row["variant"] for row in rows if row["stage"] == stage))


def over_pairs(values: dict[Key, float]) -> tuple[float, float | None]:
    """Mean and standard error over pairs, or over seeds where there is one pair."""
    pairs = list(dict.fromkeys(pair for pair, _ in values))
    if len(pairs) == 1:
        return mean_error(list(values.values()))
    return mean_error([statistics.mean(value for (at, _), value in values.items() if at == pair) for pair in pairs])


def plus_minus(found: tuple[float, float | None], sign: str = "+") -> str:
    """`+0.012 ± 0.004`."""
    value, error = found
    return f"{value:{sign}.3f}" + ("" if error is None else f" ± {error:.3f}")


def score(row: Row) -> RunScore:
    """The row as the package's tables take it."""
    figures: dict[str, Any] = {name: row.get(name) for name in ("mean_iou", *SCORE_COLUMNS)} | {
        "seconds": row["cpu_seconds"]
    }
    return RunScore(row["set"], row["pair"], row["variant"], row["seed"], **figures)


def means(rows: Sequence[Row], stage: str, metrics: Sequence[str]) -> list[tuple[str, ...]]:
    """Name and figures of each candidate of a stage."""
    found = summarise_runs(score(row) for row in rows if row["stage"] == stage)
    return [(each.method, *(format_stat(metric, each.stats[metric]) for metric in metrics)) for each in found]


def scope(rows: Sequence[Row]) -> str:
    """How much there is of a set."""
    pairs, seeds = len({row["pair"] for row in rows}), len({row["seed"] for row in rows})
    return f"{pairs} {'pair' if pairs == 1 else 'pairs'}, {seeds} {'seed' if seeds == 1 else 'seeds'}"


def overview(groups: dict[str, list[Row]], stages: Sequence[str] = ("methods",)) -> Table:
    """Accuracy (of label maps, mean IoU) of the candidates of some stages on all sets that have all of these stages."""
    here = {name: group for name, group in groups.items() if all(names_of(group, stage) for stage in stages[:2])}
    names = list(dict.fromkeys(name for stage in stages for group in here.values() for name in names_of(group, stage)))
    columns = [
        {line[0]: line[1] for stage in stages for line in means(group, stage, (headline(group),))}
        for group in here.values()
    ]
    lines = tuple((name, *(column.get(name, NONE) for column in columns)) for name in names)
    note = "Accuracy (of label maps, mIoU), mean over pairs, ± standard deviation over seeds where there are several."
    return Table("All sets" if len(stages) == 1 else "Alignment, all sets", note, ("method", *here), lines)


def headline(rows: Sequence[Row]) -> str:
    """The figure that a set is judged by."""
    return "mean_iou" if any(row.get("mean_iou") is not None for row in rows) else "accuracy"


def standing(groups: dict[str, list[Row]]) -> Table:
    """em_basis beside the best of all others (by target labels: a judgement, no choice), cbst and the source model."""
    lines = list[tuple[str, ...]]()
    for name, rows in groups.items():
        ours, gains = of(rows, DEFAULT), dict[str, tuple[float, float | None]]()
        for other in names_of(rows, "methods"):
            found = differences(ours, of(rows, other), accuracy_gain)
            if other != DEFAULT and found:
                gains[other] = over_pairs(found)
        if not gains:
            continue
        best = min(gains, key=lambda other: gains[other][0])
        mean = over_pairs(differences(ours, ours, lambda row, _: float(row["accuracy"])))[0]
        shown = (plus_minus(gains[other]) if other in gains else NONE for other in (best, "cbst", SOURCE))
        lines.append((name, f"{mean:.3f}", best, *shown))
    note = f"Accuracy of {DEFAULT}, and how far it is above others in the same runs, ± the standard error of that."
    head = ("set", DEFAULT, "best other", "− best other", "− cbst", f"− {SOURCE}")
    return Table(f"{DEFAULT} beside the others", note, head, tuple(lines))


def by_method(name: str, rows: Sequence[Row]) -> Table:
    """All figures of the methods and peers on a set."""
    metrics = (*(["mean_iou"] if any(row.get("mean_iou") is not None for row in rows) else []), *SCORE_COLUMNS)
    heads = ("method", *(SCORE_COLUMNS.get(metric, "mIoU") for metric in metrics))
    note = (
        f"{scope(rows)}. A peer trusts nothing; its AUROC is that of 1 − its largest probability. sec: processor time."
    )
    return Table(f"{name}: methods and peers", note, heads, tuple(means(rows, "methods", metrics)))


def by_alignment(name: str, rows: Sequence[Row]) -> Table:
    """Alignment methods beside self-training and beside em_basis after an aligned round: figures, gain and cost."""
    source, main = of(rows, SOURCE), headline(rows)
    metrics = (*([main] if main == "mean_iou" else []), "accuracy", "ece", "nll", "auroc")
    lines = list[tuple[str, ...]]()
    for line in (line for stage in ALIGNED for line in means(rows, stage, metrics)):
        own = of(rows, line[0])
        gains = differences(own, source, lambda left, right: float(left[main] - right[main]))
        costs = differences(own, source, lambda left, right: float(left["cpu_seconds"] / right["cpu_seconds"]))
        gain = plus_minus(over_pairs(gains)) if gains and line[0] != SOURCE else NONE
        lines.append((*line, gain, f"{statistics.median(costs.values()):.1f}" if costs else NONE))
    heads = ("mIoU",) if main == "mean_iou" else ()
    head = ("method", *heads, "acc", "ECE", "NLL", "AUROC", f"− {SOURCE}", "cost")
    note = f"{scope(rows)}. − {SOURCE}: in the same runs, ± its standard error; cost: processor time, in runs of it."
    aligned = any(row["stage"] == "alignment" for row in rows)
    return Table(f"{name}: alignment", note, head, tuple(lines) if aligned else ())


def by_pair(name: str, rows: Sequence[Row]) -> Table:
    """em_basis beside the source model, pair by pair."""
    ours, source = of(rows, DEFAULT), of(rows, SOURCE)
    keys = [key for key in ours if key in source and ours[key].get("right")]
    lines, below = list[tuple[str, ...]](), 0
    for pair in dict.fromkeys(pair for pair, _ in keys):
        here = [key for key in keys if key[0] == pair]
        found = [paired(ours[key], source[key]) for key in here]
        difference = statistics.mean(value for value, _ in found)
        error = math.sqrt(statistics.mean(error**2 for _, error in found))
        worse = difference < -error
        below += worse
        accuracies = [statistics.mean(side[key]["accuracy"] for key in here) for side in (source, ours)]
        lines.append(
            (pair, *(f"{a:.3f}" for a in accuracies), f"{difference:+.3f}", f"{error:.3f}", "yes" if worse else "")
        )
    note = (
        "The standard error is that of one run's difference over its judged rows, paired; "
        f"{below} of {len(lines)} pairs are more than one below the source model."
    )
    head = ("pair", SOURCE, DEFAULT, "difference", "standard error", "worse by more than that")
    return Table(f"{name}: pair by pair", note, head, tuple(lines))


def paired(left: Row, right: Row) -> tuple[float, float]:
    """The difference of two runs on the same rows."""
    return paired_error(unpacked(left["right"], left["rows"]), unpacked(right["right"], right["rows"]))


def differences(
    left: dict[Key, Row], right: dict[Key, Row], value: Callable[[Row, Row], float | None]
) -> dict[Key, float]:
    """A function of the rows of two candidates for each pair and seed that both have, where it exists."""
    found = {key: value(left[key], right[key]) for key in left if key in right}
    return {key: number for key, number in found.items() if number is not None}


def by_variant(name: str, rows: Sequence[Row]) -> Table:
    """One change at a time from the default."""
    default, metrics = of(rows, DEFAULT), ("accuracy", "auroc", "ece", "seconds")
    lines = [
        (line[0], str(len(default)), line[1], "", *line[2:])
        for line in means(rows, "methods", metrics)
        if line[0] == DEFAULT
    ]
    for line in means(rows, "variants", metrics):
        found = differences(of(rows, line[0]), default, accuracy_gain)
        worth_it = plus_minus(over_pairs(found)) if found else NONE
        lines.append((line[0], str(len(of(rows, line[0]))), line[1], worth_it, *line[2:]))
    head = ("variant", "runs", "accuracy", f"− {DEFAULT}", "AUROC", "ECE", "seconds")
    note = f"{scope(rows)}; the difference is of the runs that both have, ± its standard error."
    return Table(f"{name}: one change at a time", note, head, tuple(lines) if len(lines) > 1 else ())


def changes(groups: dict[str, list[Row]]) -> Table:
    """One change at a time on all sets side by side: what it adds to the default's accuracy."""
    names = list(dict.fromkeys(name for group in groups.values() for name in names_of(group, "variants")))
    sets = [name for name, group in groups.items() if names_of(group, "variants")]
    lines = []
    for name in names:
        found = [differences(of(groups[at], name), of(groups[at], DEFAULT), accuracy_gain) for at in sets]
        lines.append((name, *(plus_minus(over_pairs(each)) if each else NONE for each in found)))
    scopes = "; ".join(f"{at}: {scope([row for row in groups[at] if row['stage'] == 'variants'])}" for at in sets)
    note = f"Accuracy − that of {DEFAULT} in the same runs, ± its standard error. {scopes}."
    return Table("One change at a time, all sets", note, ("variant", *sets), tuple(lines))


def accuracy_gain(left: Row, right: Row) -> float:
    """How much more of the first is right."""
    return float(left["accuracy"] - right["accuracy"])


def factorials(rows: Sequence[Row]) -> dict[Key, dict[Levels, float]]:
    """The accuracies of each full factorial, by pair and seed."""
    found: dict[Key, dict[Levels, float]] = {}
    by_name = {row_key(row): row["accuracy"] for row in rows if row["stage"] == "factorial"}
    every = all_levels()
    for key in dict.fromkeys((pair, seed) for pair, seed, _ in by_name):
        cells = {levels: by_name.get((*key, cell_name(levels))) for levels in every}
        if None not in cells.values():
            found[key] = {levels: value for levels, value in cells.items() if value is not None}
    return found


def row_key(row: Row) -> tuple[str, int, str]:
    """Pair, seed and candidate."""
    return row["pair"], row["seed"], row["variant"]


def all_levels() -> list[Levels]:
    """Every combination of levels."""
    found: list[Levels] = [()]
    for levels in FACTORS.values():
        found = [(*before, level) for before in found for level in levels]
    return found


def worth(groups: dict[str, list[Row]]) -> Table:
    """Main effects of the factorial on accuracy."""
    full = {name: factorials(rows) for name, rows in groups.items()}
    full = {name: found for name, found in full.items() if found}
    factors = {name: tuple(levels) for name, levels in FACTORS.items()}
    effects = {
        name: {key: main_effects(cells, factors) for key, cells in found.items()} for name, found in full.items()
    }
    lines = [
        (
            f"{factor} {first} → {level}",
            *(
                plus_minus(over_pairs({key: each[factor, level] for key, each in found.items()}))
                for found in effects.values()
            ),
        )
        for factor, (first, *others) in factors.items()
        for level in others
    ]
    counts = ", ".join(f"{name} {len({pair for pair, _ in found})}" for name, found in full.items())
    note = f"Mean accuracy of cells with the second level − of cells with the first, ± standard error; pairs: {counts}."
    return Table("What each factor is worth", note, ("factor", *full), tuple(lines) if full else ())


def best_cells(groups: dict[str, list[Row]], count: int = 8) -> Table:
    """The cells with the best mean over sets, and the two ends of the list: what a choice could gain at most."""
    full = {name: found for name, rows in groups.items() if (found := factorials(rows))}
    means_of = {
        levels: [over_pairs({key: cells[levels] for key, cells in found.items()})[0] for found in full.values()]
        for levels in all_levels()
    } if full else {}  # fmt: skip
    unique = {cell_name(levels): values for levels, values in means_of.items()}
    ranked = sorted(unique.items(), key=lambda item: -statistics.mean(item[1]))
    kept = ranked if len(ranked) <= count + 1 else [*ranked[:count], ranked[-1]]
    lines = tuple((name, *(f"{v:.3f}" for v in values), f"{statistics.mean(values):.3f}") for name, values in kept)
    note = (
        f"Ranked by true labels of the target: a limit, no choice that could be made. The {count} best and the worst."
    )
    return Table("Cells of the factorial", note, ("cell", *full, "mean"), lines)


def confidences(groups: dict[str, list[Row]]) -> Table:
    """Our uncertainty beside the softmax confidence of the same final network."""
    lines = []
    for name, rows in groups.items():
        ours = of(rows, DEFAULT)
        found = [auroc_gain(ours, other) for other in ("confidence_auroc_same_errors", "confidence_auroc")]
        if not all(found):
            continue
        plain = over_pairs(differences(ours, ours, lambda a, _: a["auroc"]))[0]
        lines.append((name, f"{plain:.3f}", *(plus_minus(over_pairs(gain)) for gain in found)))
    note = (
        "AUROC of the uncertainty of em_basis against errors of its labels, and how far it is above that of 1 − the "
        "largest softmax probability of the same final network: first against the same errors, then against the "
        "network's own errors."
    )
    head = ("set", "AUROC", "− softmax on the same errors", "− softmax on the network's own errors")
    return Table("Uncertainty beside softmax confidence", note, head, tuple(lines))


def auroc_gain(ours: dict[Key, Row], other: str) -> dict[Key, float]:
    """The difference of two figures of the same row, where both exist."""
    known = {key: row for key, row in ours.items() if row.get("auroc") is not None and row.get(other) is not None}
    return {key: row["auroc"] - row[other] for key, row in known.items()}
