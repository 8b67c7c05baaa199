"""What has changed since a run began: settings and data. Nothing is taken over unless the user says so.

A change that is allowed is written down in `changes.jsonl` and in the report; from there on the run is no longer the
one that its first settings and data would have given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from embasis.engine.calibration import drop_reference
from embasis.engine.state import TrainState
from embasis.errors import ConfigError, InputDataError, quote, require
from embasis.types import Plan, PseudoLabels

FREE = ("save_seconds", "data.")
"""How often a run saves may always change; the data have a hash of their own."""
NEWER = {"plan.augment": 0.0}
"""Settings that runs of older versions do not have, and the values that do what those did."""
MOST_ROWS_NAMED = 10
"""Rows that are named."""


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Setting → `old → new` for each that differs."""
    changes: dict[str, str] = {}
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            changes |= differences(before, after, f"{prefix}{key}.")
        elif before != after and not (key not in old and NEWER.get(f"{prefix}{key}") == after):
            changes[f"{prefix}{key}"] = f"{quote(before, 500)} → {quote(after, 500)}"
    return changes


def refuse_changed_config(
    old: Mapping[str, Any], new: Mapping[str, Any], allowed: Collection[str] = ()
) -> tuple[str, ...]:
    """A run folder belongs to one config; the changes that are allowed, as `key: old → new`."""
    changed = {key: words for key, words in differences(old, new).items() if not key.startswith(FREE)}
    lines = [f"{key}: {words}" for key, words in changed.items() if key not in allowed]
    flags = " ".join(f"--allow-change {key}" for key in changed if key not in allowed)
    require(
        not lines,
        f"the run folder was begun with other settings: {'; '.join(lines)}; "
        f"use another folder, the old settings, or {flags}",
        ConfigError,
    )
    return tuple(f"{key}: {words}" for key, words in changed.items())


def extend_rounds(progress: TrainState, plan: Plan, changes: Sequence[str]) -> None:
    """A run that had ended goes on if it is allowed more rounds than it had."""
    more = any(line.startswith("plan.rounds: ") for line in changes) and plan.rounds >= progress.round
    if progress.status != "finished" or not more:
        return
    brought_back = f"the run had ended and brought round {progress.kept_round} back, so no round can follow"
    require(progress.kept_round is None, f"plan.rounds cannot change: {brought_back}; use another folder", ConfigError)
    progress.status = "running"


@dataclass(frozen=True)
class Shift:
    """What happened to the rows of one side."""

    side: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = [*self.added, *self.removed, *self.edited]
        if not names:
            return self.side
        counts = f"{len(self.added):,} added, {len(self.removed):,} removed, {len(self.edited):,} edited"
        rest = f" and {len(names) - MOST_ROWS_NAMED:,} more" if len(names) > MOST_ROWS_NAMED else ""
        return f"{self.side} ({counts}: {', '.join(map(repr, names[:MOST_ROWS_NAMED]))}{rest})"


def diff_rows(
    old: Mapping[str, str],
    new: Mapping[str, str],
    before: Mapping[str, Sequence[Any]],
    now: Mapping[str, Sequence[Any]],
) -> list[Shift]:
    """The sides whose hashes differ, each with its rows as far as the tables know them."""
    changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return [shift_of(side, rows_on(before, side), rows_on(now, side)) for side in changed]


def known_rows(table: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """The table if it is one of rows; an empty one if it is anything else."""
    whole = set(table) == {"side", "id", "name", "mark"}
    plain = whole and all(type(value) is int for name in ("id", "mark") for value in table[name])
    return dict(table) if plain else {}


def rows_on(table: Mapping[str, Sequence[Any]], side: str) -> dict[int, tuple[str, int]]:
    """id → (name, mark) of the rows on one side."""
    columns = (table.get(name, ()) for name in ("side", "id", "name", "mark"))
    rows = (row for row in zip(*columns, strict=True) if row[0] == side)
    return {int(id_): (str(name) or f"row {id_}", int(mark)) for _, id_, name, mark in rows}


def shift_of(side: str, old: Mapping[int, tuple[str, int]], new: Mapping[int, tuple[str, int]]) -> Shift:
    """Added, removed and edited rows; nothing where the old rows are not known."""
    if not old:
        return Shift(side)
    return Shift(
        side,
        tuple(name for id_, (name, _) in new.items() if id_ not in old),
        tuple(name for id_, (name, _) in old.items() if id_ not in new),
        tuple(name for id_, (name, mark) in new.items() if id_ in old and old[id_][1] != mark),
    )


def refuse_changed_data(shifts: Sequence[Shift], accepted: bool) -> tuple[str, ...]:
    """A run goes on with the data it began with; the changes that are accepted, as sentences."""
    what = ", ".join(map(str, shifts))
    advice = "use another folder, the old data, or --accept-data-change"
    require(not shifts or accepted, f"the data have changed since the run began: {what}; {advice}", InputDataError)
    return tuple(f"data: {shift}" for shift in shifts)


def refuse_other_kind(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Rows may come and go; classes, features and the shape of an input may not."""
    for key, what in (("classes", "classes"), ("columns", "feature columns"), ("shape", "shape of an input")):
        rule = f"the {what} cannot change within a run: {old.get(key)} → {new[key]}; use another folder"
        require(old.get(key) == new[key], rule, InputDataError)


def forget_rows(progress: TrainState) -> None:
    """What the labeller knows of single rows is of the old ones; the next round finds it again."""
    progress.labeller, progress.best = drop_reference(progress.labeller), drop_reference(progress.best)


def adopt_rows(progress: TrainState, before: Mapping[str, Sequence[Any]], now: Mapping[str, Sequence[Any]]) -> None:
    """Labels of the last round for the rows that are as they were; any other is not trusted until it is labelled."""
    pseudo, ended = progress.pseudo, f"the run had ended ({progress.status}) with the old data; use another folder"
    require(progress.status == "running", ended, InputDataError)
    maps = "label maps of other pictures cannot be taken over; use another folder"
    require(progress.counts is None, maps, InputDataError)
    forget_rows(progress)
    if not isinstance(pseudo, PseudoLabels):
        return
    old, new = rows_on(before, "unlabelled"), rows_on(now, "unlabelled")
    rule = "the table of the run's rows is missing or damaged, so other rows cannot be taken over; use another folder"
    require(len(old) == len(pseudo), rule, InputDataError)
    places = {id_: place for place, id_ in enumerate(old) if id_ in new and old[id_][1] == new[id_][1]}
    where = torch.tensor([places.get(id_, len(old)) for id_ in new], dtype=torch.int64)

    def moved(values: Tensor, fill: float) -> Tensor:
        """Row by row, with one more row of `fill` for those that are not there."""
        return torch.cat([values, values.new_full((1, *values.shape[1:]), fill)])[where]

    target = None if pseudo.target is None else moved(pseudo.target, 1 / pseudo.target.shape[1])
    progress.pseudo = PseudoLabels(moved(pseudo.label, -1), moved(pseudo.weight, 0), target)
    if progress.labels is not None:
        progress.labels = moved(progress.labels, -1)
