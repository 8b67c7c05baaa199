"""Pictures of a run as SVG text: the same bytes for the same values, no clock, no pyplot.

What needs true labels takes an Evaluation, so it is drawn only where a record has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from embasis.report.drawing import BLUE, INK, LINES, ORANGE, QUIET, SERIES, canvas, cut, heat, margin, tall
from embasis.report.records import visible
from embasis.report.scores import IOU, PLUS_MINUS, Summary, best_of, by_dataset, headline
from embasis.report.tables import number

if TYPE_CHECKING:
    from embasis.types import Evaluation, RoundRecord


def panels(rounds: Sequence[RoundRecord]) -> list[tuple[str, dict[str, list[float | None]]]]:
    """What `progress` draws: titles with their lines, one value per round."""

    def column(value: Callable[[Evaluation], float | None], side: str) -> list[float | None]:
        return [None if (found := getattr(r, side)) is None else value(found) for r in rounds]

    accuracy = {
        "labels": column(lambda e: e.accuracy, "evaluation"),
        "network": column(lambda e: e.network_accuracy, "evaluation"),
        "test set": column(lambda e: e.accuracy, "test"),
    }
    trust: dict[str, list[float | None]] = {
        "trusted": [r.trusted / r.unlabelled if r.unlabelled else None for r in rounds],
        "precision of trusted": column(lambda e: e.trusted_precision, "evaluation"),
    }
    overlap = {
        "labels": column(lambda e: e.mean_iou, "evaluation"),
        "test set": column(lambda e: e.mean_iou, "test"),
    }
    of_maps = any(value is not None for values in overlap.values() for value in values)
    found: list[tuple[str, dict[str, list[float | None]]]] = [
        ("mean IoU", overlap),
        ("pixel accuracy" if of_maps else "accuracy", accuracy),
        ("trusted share", trust),
        ("changed labels", {"changed": [r.changed for r in rounds]}),
    ]
    for name in dict.fromkeys(key for r in rounds for key in r.scores):
        found.append((f"label-free: {name.replace('_', ' ')}", {name: [r.scores.get(name) for r in rounds]}))
    kept = [(title, {k: v for k, v in lines.items() if any(x is not None for x in v)}) for title, lines in found]
    return [(title, lines) for title, lines in kept if lines]


def progress(rounds: Sequence[RoundRecord], best_round: int) -> str:
    """Accuracy and mean IoU (with true labels), trusted share, changed labels and label-free scores per round."""
    from matplotlib.ticker import MaxNLocator

    parts, x = panels(rounds), [r.round for r in rounds]
    across = min(3, len(parts))
    down = -(-len(parts) // across)

    def draw(axes: Any) -> None:
        for ax, (title, lines) in zip(axes.flat, parts, strict=False):
            for (name, y), (colour, marker, dash) in zip(lines.items(), LINES, strict=False):
                values = [np.nan if v is None else v for v in y]
                ax.plot(x, values, color=colour, marker=marker, linestyle=dash, label=visible(name))
            if best_round in x:
                ax.axvline(best_round, color=QUIET, linewidth=1, linestyle=(0, (2, 2)), zorder=1)
            ax.set_title(visible(title))
            ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
            ax.margins(y=0.15)
            if len(lines) > 1:
                ax.legend(loc="best")
        for ax in axes.flat[len(parts) :]:
            ax.set_axis_off()
        for ax in axes[-1]:
            ax.set_xlabel("round")

    return canvas((9.5, 2.35 * down), (down, across), draw)


def reliability_points(evaluation: Evaluation) -> list[tuple[int, float, float]]:
    """(rows, mean confidence, share right) of each bin that has rows."""
    return [(round(n), c / n, right / n) for n, c, right in evaluation.reliability if n > 0]


def reliability(curves: Sequence[tuple[str, Evaluation]]) -> str:
    """How often labels of a stated confidence are right; the diagonal is perfect."""

    def draw(axes: Any) -> None:
        ax = axes[0, 0]
        ax.plot([0, 1], [0, 1], color=QUIET, linewidth=1)
        for (name, evaluation), (colour, marker, dash) in zip(curves, SERIES, strict=False):
            points = reliability_points(evaluation)
            rows, stated, right = np.array(points, dtype=float).reshape(-1, 3).T
            ax.plot(stated, right, color=colour, linestyle=dash, label=f"{name}, ECE {evaluation.ece:.3f}")
            ax.scatter(stated, right, s=12 + 90 * rows / max(rows.sum(), 1), color=colour, marker=marker, zorder=3)
        ax.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="stated confidence", ylabel="share right")
        ax.legend(loc="upper left")

    return canvas((4.3, 3.5), (1, 1), draw)


def risk_coverage(curves: Sequence[tuple[str, Evaluation]]) -> str:
    """The share of errors among the surest labels, for every share kept."""

    def draw(axes: Any) -> None:
        ax = axes[0, 0]
        for (name, evaluation), (colour, marker, dash) in zip(curves, SERIES, strict=False):
            share, risk = np.array(evaluation.risk_coverage, dtype=float).reshape(-1, 2).T
            every = max(1, len(share) // 8)
            ax.plot(share, risk, color=colour, linestyle=dash, marker=marker, markevery=every, label=name)
        ax.set(xlim=(0, 1.02), xlabel="share of labels kept, surest first", ylabel="errors among them")
        ax.set_ylim(bottom=0)
        ax.legend(loc="upper left")

    return canvas((4.3, 3.5), (1, 1), draw)


def histograms(labels: dict[str, list[Any]]) -> list[tuple[str, Any, Any, Any]]:
    """(title, bin edges, rows trusted, rows not trusted) of probability and variance."""
    trusted = np.asarray(labels["trusted"], dtype=bool)
    variance = np.asarray(labels["between"], dtype=float) + np.asarray(labels["within"], dtype=float)
    found = []
    for title, values in (
        ("probability of the label", np.asarray(labels["probability"], float)),
        ("variance", variance),
    ):
        fine = np.isfinite(values)
        low, high = (values[fine].min(), values[fine].max()) if fine.any() else (0.0, 1.0)
        edges = np.linspace(low, high if high > low else low + 1e-3, 21)
        counts = [np.histogram(values[fine & side], edges)[0] for side in (trusted, ~trusted)]
        found.append((title, edges, counts[0], counts[1]))
    return found


def uncertainty(labels: dict[str, list[Any]]) -> str:
    """Histograms of probability and variance, trusted rows and the rest."""

    def draw(axes: Any) -> None:
        for ax, (title, edges, trusted, rest) in zip(axes.flat, histograms(labels), strict=True):
            width = edges[1] - edges[0]
            ax.bar(edges[:-1], trusted, width * 0.92, align="edge", color=BLUE, label="trusted")
            ax.bar(
                edges[:-1],
                rest,
                width * 0.92,
                bottom=trusted,
                align="edge",
                color=ORANGE,
                alpha=0.75,
                label="not trusted",
            )
            ax.set_title(title)
            ax.grid(visible=False, axis="x")
        axes[0, 0].set_ylabel("labels")
        axes[0, 0].legend(loc="best")

    return canvas((9.5, 3.1), (1, 2), draw)


def balance(rounds: Sequence[RoundRecord], classes: Sequence[str]) -> str:
    """The share of each class among the labels of each round."""
    counts = np.array([r.class_counts for r in rounds], dtype=float).T
    shares = counts / np.maximum(counts.sum(0, keepdims=True), 1)
    least = min(1.0, 2.5 / max(len(classes), 1))  # an even balance stays pale
    numbers, names = [str(r.round) for r in rounds], [visible(name) for name in classes]
    size = (min(9.0, 2.0 + 0.55 * len(rounds)) + margin(names), tall(len(classes)))
    return canvas(
        size, (1, 1), lambda axes: heat(axes[0, 0], shares, numbers, names, "round", "", "{:.0%}", shares, least)
    )


def confusion(evaluation: Evaluation, classes: Sequence[str], per_cent: bool = False) -> str:
    """True classes down, labels across; a cell's shade, and with `per_cent` its number, is its share of the class."""
    counts = np.array(evaluation.confusion, dtype=float)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    shown = np.round(100 * shares) if per_cent else counts
    names = [visible(name) for name in classes]
    side = tall(len(classes)) + 0.7 * margin(names)
    return canvas(
        (side + 0.8, side),
        (1, 1),
        lambda axes: heat(axes[0, 0], shares, names, names, "label", "true class", "{:.0f}", shown),
    )


def comparison(summaries: Sequence[Summary]) -> str:
    """Mean accuracy (of label maps, mean IoU) of each method with its deviation, one panel per data set."""
    groups, best = by_dataset(summaries), best_of(summaries)
    several = len({headline(group) in IOU for group in groups.values()}) > 1

    def draw(axes: Any) -> None:
        for ax, (dataset, group) in zip(axes.flat, groups.items(), strict=True):
            measure = headline(group)
            for y, summary in enumerate(group):
                stat = summary.stats[measure]
                if stat.mean is None:
                    continue
                colour = BLUE if (dataset, summary.method) in best else QUIET
                ax.errorbar(stat.mean, y, xerr=stat.std, fmt="o", color=colour, markersize=7, elinewidth=2, capsize=0)
                spread = "" if stat.std is None else f" {PLUS_MINUS} {number('accuracy', stat.std)}"
                text = number("accuracy", stat.mean) + spread
                place = {"xycoords": ("axes fraction", "data"), "va": "center", "annotation_clip": False}
                ax.annotate(text, (1.02, y), color=INK if colour == BLUE else QUIET, **place)
            ax.set_yticks(range(len(group)), [cut(visible(s.method), 32) for s in group], color=INK)
            ax.set_ylim(len(group) - 0.4, -0.6)
            ax.margins(x=0.08)
            ax.grid(visible=False, axis="y")
            ax.spines["left"].set_visible(False)
            ax.set_title(cut(visible(dataset), 60))
            if several or ax is axes[-1, 0]:
                ax.set_xlabel("mean IoU" if measure in IOU else "accuracy")

    heights = [0.65 + 0.31 * len(group) for group in groups.values()]
    return canvas((8.0, sum(heights) + 0.3), (len(groups), 1), draw, heights)
