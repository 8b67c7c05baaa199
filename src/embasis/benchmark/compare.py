"""A comparison and its page: the same data, network and seed for every method or variant of one.

There is one score per (data set, pair, method, seed).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import msgspec
from torch import nn

from embasis import config as settings
from embasis.benchmark.scores import (
    IOU_COLUMNS,
    RunScore,
    Summary,
    averaging_note,
    best_methods,
    column_legend,
    format_stat,
    group_by_dataset,
    headline,
    table_columns,
)
from embasis.config import Config
from embasis.data.datasets.domain_sets import PAIRS
from embasis.data.datasets.street_sets import STARRED
from embasis.data.images.folders import ImageOptions
from embasis.engine.alignment import acting_aligner
from embasis.engine.domain_norm import init_domain_norm
from embasis.engine.holdout import split_holdout
from embasis.engine.restyling import acting_restyler
from embasis.engine.self_train import train_rounds
from embasis.engine.state import TrainState
from embasis.engine.train import train_round
from embasis.errors import ConfigError, InputDataError, refuse_unknown, require
from embasis.inputs.load import load_dataset, open_inputs
from embasis.methods import ALIGNMENT
from embasis.report import RunView, svg
from embasis.report.charts import progress_panel
from embasis.report.page import Page, render_page
from embasis.report.summary import DASH, PageTable, Panel, format_decimals, format_share, make_panel, run_title
from embasis.runs.parts import RunParts, build
from embasis.types import Evaluation, Problem, RoundRecord


class RunKey(NamedTuple):
    """What tells the runs of a comparison apart."""

    dataset: str
    pair: str
    method: str
    seed: int


@dataclass(frozen=True)
class Outcome:
    """One finished run of a comparison."""

    score: RunScore
    records: tuple[RoundRecord, ...]
    built: RunParts
    kept: int
    """The round that is scored."""
    learned: frozenset[str]
    """Names of what the labeller knew at the end."""
    progress: TrainState
    """The run at its end: the network, the labeller and the thresholds that are kept."""


@dataclass(frozen=True)
class Variant:
    """A method under a name of its own, with parts of its own."""

    name: str
    method: str
    parts: Mapping[str, Any] = field(default_factory=dict)
    """Changes of the method's parts (methods/parts.py)."""
    needs: str = ""
    """What the first variant's labeller must have learned; else this one would not differ from it and is left out."""


def run_comparison(
    dataset: str, methods: Sequence[str], seeds: Sequence[int], config: Config, root: str | None = None
) -> Iterator[Outcome]:
    """Every method on every pair with every seed."""
    require(len(methods) > 0, "compare needs at least one method", ConfigError)
    yield from run_variants(dataset, [Variant(name_row(name, config), name) for name in methods], seeds, config, root)


def name_row(method: str, config: Config) -> str:
    """What a table calls a method: `cbst with dann` where the settings set an aligner beside it."""
    aligner = config.align.get("name")
    return method if aligner is None or method in ALIGNMENT else f"{method} with {aligner}"


def run_variants(
    dataset: str, variants: Sequence[Variant], seeds: Sequence[int], config: Config, root: str | None = None
) -> Iterator[Outcome]:
    """Every variant on every pair with every seed. Those without Stage I share the source model of a (pair, seed)."""
    given = {key: value for key, value in config.method.items() if key != "name"}
    names = {key for variant in variants for key in known_settings(variant.method)}
    for key in given:
        if key not in names:
            settings.refuse_old_name(key, "method")
            refuse_unknown(key, names, "method setting")
    for seed in seeds:
        for pair, loaded in iter_problems(dataset, seed, root, config.data):
            inputs = open_inputs(loaded, msgspec.structs.replace(config, seed=seed))
            problem = inputs.read(loaded, ImageOptions().budget)
            sources: dict[bool, tuple[nn.Module, TrainState, float]] = {}
            learned: frozenset[str] | None = None
            for variant in variants:
                if variant.needs and learned is not None and variant.needs not in learned:
                    continue
                own = {key: value for key, value in given.items() if key in known_settings(variant.method)}
                method = {"name": variant.method, **own}
                run = msgspec.structs.replace(
                    config, seed=seed, data={}, method=method, parts={**config.parts, **variant.parts},
                    align={} if variant.method in ALIGNMENT else config.align,
                )  # fmt: skip
                run_key = RunKey(dataset, pair, variant.name, seed)
                outcome = run_one(run_key, build(problem, run, inputs), sources)
                learned = outcome.learned if learned is None else learned
                yield outcome


def known_settings(method: str) -> tuple[str, ...]:
    """The settings of one method."""
    return settings.setting_names(settings.find_entry("method", method))


def iter_problems(dataset: str, seed: int, root: str | None, given: Mapping[str, Any]) -> Iterator[tuple[str, Problem]]:
    """All pairs of a data set by name, or the one that is given; a data set that is drawn is drawn with the seed."""
    if dataset not in PAIRS or {"source", "target"} & {*given}:
        yield load_dataset(dataset, seed, root, given)
        return
    for source, target in PAIRS[dataset]:
        yield load_dataset(dataset, seed, root, {**given, "source": source, "target": target})


def count_pairs(dataset: str, given: Mapping[str, Any]) -> int:
    """How many problems that will be."""
    return 1 if dataset not in PAIRS or {"source", "target"} & {*given} else len(PAIRS[dataset])


def run_one(run: RunKey, built: RunParts, sources: dict[bool, tuple[nn.Module, TrainState, float]]) -> Outcome:
    """One run in memory, from the shared source model if its training does not depend on the method."""
    before, progress, start = 0.0, None, time.perf_counter()
    if can_share_source(built):
        if True not in sources:
            sources[True] = train_source(built)
        trained, done, before = sources[True]
        start = time.perf_counter()
        built.network.load_state_dict(trained.state_dict())
        progress = copy.copy(done)
        progress.network, progress.records = built.network, []
    records = []
    for event in train_rounds(built.problem, built.network, built.method, built.plan, progress):
        if event.record is not None:
            records.append(event.record)
            progress = event.state
    seconds = before + time.perf_counter() - start
    assert progress is not None
    kept = records[progress.best_round] if progress.status == "collapsed" else progress.final_record
    score = score_run(run, kept, seconds, built.problem.schema.names)
    return Outcome(score, tuple(records), built, kept.round, frozenset(progress.labeller), progress)


def can_share_source(built: RunParts) -> bool:
    """Whether nothing of the method takes part in source training."""
    aligned = acting_aligner(built.method, built.problem, 0) is not None
    restyled = acting_restyler(built.method, built.problem) is not None
    return built.method.basis is None and not aligned and not restyled


def train_source(built: RunParts) -> tuple[nn.Module, TrainState, float]:
    """The network after source training, with the cursor at its end."""
    start, network = time.perf_counter(), copy.deepcopy(built.network)
    progress = TrainState(network)
    training, _ = split_holdout(built.problem, built.plan)
    init_domain_norm(network, training, built.plan)
    for _ in train_round(training, built.method, built.plan, progress):
        pass
    progress.optimisers = {}
    return network, progress, time.perf_counter() - start


def score_run(run: RunKey, record: RoundRecord, seconds: float, classes: tuple[str, ...] = ()) -> RunScore:
    """The row of the table: on the test rows if there are any, else on the hidden labels of the unlabelled rows."""
    judged: Evaluation | None = record.test or record.evaluation
    if judged is None:
        raise InputDataError(f"compare needs true labels of the unlabelled side to score with; {run.dataset} has none")
    shared = {each.name for each in fields(RunScore)} & {each.name for each in fields(Evaluation)}
    return RunScore(
        *run,
        seconds=seconds,
        class_names=classes,
        class_accuracy=class_accuracy(judged) if classes else (),
        starred_iou=starred_iou(run.dataset, judged, classes),
        coverage_95=dict(judged.coverage).get(0.95),
        **{name: getattr(judged, name) for name in shared},
    )


def starred_iou(dataset: str, judged: Evaluation, classes: tuple[str, ...]) -> float | None:
    """The mean over those classes that some published tables count alone; None where there are no such tables."""
    counted = STARRED.get(dataset)
    if counted is None or not judged.class_iou:
        return None
    values = [iou for name, iou in zip(classes, judged.class_iou, strict=True) if name in counted and iou is not None]
    return sum(values) / len(values) if values else None


def class_accuracy(judged: Evaluation) -> tuple[float | None, ...]:
    """The share of each class's rows that got their own label; None for a class without rows."""
    return tuple(line[number] / sum(line) if any(line) else None for number, line in enumerate(judged.confusion))


MOST_DRAWN_RUNS = 12
"""A comparison draws at most so many runs."""


def comparison_tables(summaries: Sequence[Summary]) -> list[PageTable]:
    """One table per data set, the best accuracy (of label maps, mIoU) in bold."""
    best, tables = best_methods(summaries), list[PageTable]()
    for dataset, group in group_by_dataset(summaries).items():
        heads = table_columns(group)
        rows = [[s.method, *(format_stat(metric, s.stats[metric]) for metric in heads)] for s in group]
        bold = frozenset(i for i, s in enumerate(group) if (dataset, s.method) in best)
        note = f"{averaging_note(group)} Bold: highest {_headline_name(group)}."
        note += "" if tables else f" {column_legend(summaries)}"
        tables.append(PageTable(dataset, ("method", *heads.values()), rows, note, bold))
    return tables


def _headline_name(group: Sequence[Summary]) -> str:
    return "mean IoU" if headline(group) in IOU_COLUMNS else "accuracy"


def runs_table(runs: Sequence[RunView]) -> PageTable:
    """One line per run."""
    note = f"The first {MOST_DRAWN_RUNS} are drawn above." if len(runs) > MOST_DRAWN_RUNS else ""
    maps, rows = any(view.on_maps for view in runs), []
    for i, view in enumerate(runs, 1):
        record = view.kept
        truth = record.evaluation if record else None
        row = [f"{i}. {run_title(view)}", view.status, str(len(view.rounds) - 1), str(view.best_round)]
        row.append(format_share(record.trusted, record.unlabelled) if record else DASH)
        row += [format_decimals(truth.mean_iou if truth else None)] if maps else []
        rows.append([*row, format_decimals(truth.accuracy if truth else None)])
    measures = ("mean IoU", "accuracy") if maps else ("accuracy",)
    return PageTable("Runs", ("run", "status", "rounds", "kept", "trusted", *measures), rows, note)


def comparison_panels(summaries: Sequence[Summary], runs: Sequence[RunView]) -> list[Panel]:
    """Accuracy (of label maps, mean IoU) of the methods, then the rounds of each run."""
    ranked = {dataset: headline(group) for dataset, group in group_by_dataset(summaries).items()}
    rows = [[s.method, s.dataset, format_stat("", s.stats[ranked[s.dataset]]), str(s.seeds)] for s in summaries]
    measure = " or ".join(dict.fromkeys(_headline_name(group) for group in group_by_dataset(summaries).values()))
    title = measure[:1].upper() + measure[1:]
    pictures = list[str]()
    for dataset, group in group_by_dataset(summaries).items():
        means = "; ".join(f"{s.method} {format_stat('', s.stats[ranked[dataset]])}" for s in group)
        pictures.append(draw_comparison(group, f"{_headline_name(group)} on {dataset}: {means}."))
    header = ["method", "data set", measure, "seeds"]
    panels = [make_panel(title, pictures, averaging_note(summaries), header, rows, wide=True)] if rows else []
    for i, view in enumerate(runs[:MOST_DRAWN_RUNS], 1):
        if view.rounds:
            panels.append(progress_panel(view, f"Run {i}: {run_title(view)}"))
    return panels


def draw_comparison(group: Sequence[Summary], label: str) -> str:
    """Mean accuracy (of label maps, mean IoU) of each method on one data set with its deviation."""
    best, measure, width = best_methods(group), headline(group), float(svg.LARGE_CHART[0])
    stats = [summary.stats[measure] for summary in group]
    ends = [stat.mean + side * (stat.std or 0.0) for stat in stats if stat.mean is not None for side in (-1, 1)]
    low, high = svg.pad_range(ends, 0.06)
    axes = svg.Axes((low, high), (0, 1), 8, 26, width - 8, 26 + 36.0 * len(group))
    body = [
        svg.draw_text(2, 14, svg.shorten_name(group[0].dataset, 44), "title"),
        axes.grid(svg.choose_ticks(low, high, 5), [], (False, False), _headline_name(group)),
    ]
    for row, (summary, stat) in enumerate(zip(group, stats, strict=True)):
        y, first = 38 + 36.0 * row, (summary.dataset, summary.method) in best
        body.append(svg.draw_text(2, y, svg.shorten_name(summary.method, 40), "strong" if first else ""))
        body.append(svg.draw_line(8, y + 10, width - 8, y + 10, "grid"))
        if stat.mean is None:
            continue
        value = format_stat(measure, stat)
        body.append(svg.draw_text(width - 2, y, value, "end strong" if first else "end quiet"))
        series, reach = (1, stat.std or 0.0) if first else (0, stat.std or 0.0)
        left, place, right = (axes.across(stat.mean + side * reach) for side in (-1, 0, 1))
        body.append(svg.draw_line(left, y + 10, right, y + 10, f"l s{series}"))
        body.append(svg.make_element("g", {}, svg.draw_point(series, place, y + 10, 5, f"{summary.method}: {value}")))
    return svg.draw_chart(width, axes.bottom + 42, label, body, "dots")


def comparison_page(
    title: str,
    summaries: Sequence[Summary],
    runs: Sequence[RunView] = (),
    lead: str = "",
    first: Sequence[PageTable] = (),
) -> str:
    """The report of several methods; `runs` adds what each run did round by round, `first` tables before the others."""
    methods, sets = len({s.method for s in summaries}), len(group_by_dataset(summaries))
    usual = f"{methods} methods on {sets} data set{'s' if sets != 1 else ''}; {averaging_note(summaries)}"
    page = Page(
        title=title,
        lead=lead or usual,
        tables=[*first, *comparison_tables(summaries)],
        panels=comparison_panels(summaries, runs),
        more=[runs_table(runs)] if runs else [],
    )
    return render_page(page)
