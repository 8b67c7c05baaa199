"""Rows of numbers: feature vectors of tables, and pictures in arrays."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from embasis import config as settings
from embasis.config import Config
from embasis.data.encoding import RawTable, encode_columns
from embasis.data.parts import own_pieces, rows_of_piece
from embasis.data.problem import check_numbers
from embasis.data.raw_columns import is_frame, read_frame
from embasis.data.saved_dataset import find_saved_dataset
from embasis.data.shards import PARQUET, find_shards, shard_kind
from embasis.data.standardise import MODES
from embasis.data.table_shards import BATCH_ROWS, TableShards, open_table_shards, read_any_table
from embasis.data.tables import (
    TableData,
    WantedColumns,
    encode_table,
    narrow_table,
    order_columns,
    widen_table,
)
from embasis.distributed import current_world
from embasis.engine.features import CHUNK_ROWS
from embasis.errors import ConfigError, EmbasisWarning, join_names, quote, require
from embasis.inputs import (
    NO_MAPS,
    TABLE_KIND,
    InputKind,
    Inputs,
    InputSettings,
    RowBatch,
    RowSource,
    SourceOptions,
    refuse_settings,
)
from embasis.learners import LEARNER_PLAN, LEARNERS
from embasis.networks import BACKBONES, PRETRAINED
from embasis.randomness import seeded
from embasis.types import Plan, Problem, Samples

FOR_ARRAYS: Mapping[str, Any] = {**BACKBONES, **LEARNERS}
FOR_MAPS = "small_fcn"
"""The network among those for arrays that labels sites, not rows."""


LEAST_FOR_HOLDOUT, LEARNER_HOLDOUT = 200, 0.1
"""With so many labelled rows this share of them is kept from a learner, to judge it by (decision 0047)."""


class TableInputs(Inputs):
    """Arrays need no reading and no preparation: the standardiser is all there is between them and the network."""

    kind: ClassVar[InputKind] = TABLE_KIND
    reader = None

    def input_shape(self, problem: Problem) -> tuple[int, ...]:
        """The shape of the first labelled row."""
        return first_shape(problem.labelled)

    def fill_config(self, config: Config, problem: Problem) -> Config:
        """With a learner some rows are held out, where there are enough."""
        return fill_for_learner(config, len(problem.labelled)) if config.network.get("name") in LEARNERS else config

    def resolve(self, config: Config, shape: tuple[int, ...], same_domain: bool) -> InputSettings:
        """Vectors are standardised and get a linear network unless the config says otherwise."""
        refuse_settings("images", config.images, "images, the data are none")
        refuse_settings("maps", config.maps, NO_MAPS)
        mode = standardise_mode(config, shape, same_domain)
        name = self._network_name(config, shape)
        own = bind_array_network(name, config.network)
        tables = {"standardise": mode, "network": {"name": name, **own}, "images": {}, "maps": {}}
        return InputSettings(LEARNER_PLAN if name in LEARNERS else name, mode, tables)

    def refuse_plan(self, plan: Plan, shape: tuple[int, ...]) -> None:
        """Only pictures can be warped."""
        rule = f"plan.augment = {plan.augment} is for pictures in arrays, (channels, height, width)"
        require(not plan.augment or len(shape) == 3, f"{rule}; the rows here have shape {shape}", ConfigError)

    def make_network(self, config: Config, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The network that [network] names."""
        name = self._network_name(config, shape)
        return make_array_network(name, config.network, shape, classes, config.seed)

    def open_rows(self, source: Any, options: SourceOptions) -> RowSource:
        """The rows of a table, with features in the order of the model's columns; or those of an array."""
        if not isinstance(source, str | os.PathLike):
            return open_array(source, options)
        wanted = WantedColumns(options.label or "label", options.id, dropped_columns(options))
        if find_saved_dataset(source) is None and shard_kind(source) == PARQUET:
            shards = open_table_shards(find_shards(source), wanted)
            rows = options.part.rows(shards.manifest.total)
            batches = iter_shards(shards, rows, options)
            return RowSource(batches, len(rows), fingerprint=shards.manifest.fingerprint)
        table, _ = read_any_table(source, wanted.label, wanted.id, dropped=wanted.dropped)
        x, notes = make_features(table, options)
        warn_of_unknown(notes)
        rows = options.part.rows(len(x))
        ids = torch.arange(len(x)) if table.ids is None else torch.from_numpy(table.ids)
        return RowSource(iter_batches(x, ids, rows), len(rows), fingerprint=hash_rows(x, ids))

    @staticmethod
    def _network_name(config: Config, shape: tuple[int, ...]) -> str:
        return str(config.network.get("name", "linear" if len(shape) == 1 else "small_cnn"))


def dropped_columns(options: SourceOptions) -> tuple[str, ...]:
    """The columns that the run did not read."""
    return () if options.encoding is None else tuple(options.encoding.dropped)


def make_features(table: TableData, options: SourceOptions) -> tuple[Tensor, tuple[str, ...]]:
    """(N, f) the features of a table in the model's order, and what the model does not know of it."""
    notes = tuple[str, ...]()
    if options.encoding is not None:
        table, notes = encode_table(table, options.encoding, 1, options.run)
    table = (widen_table if options.float64 else narrow_table)(table)
    return torch.from_numpy(order_columns(table, options.columns, options.run)), notes


def iter_shards(shards: TableShards, rows: range, options: SourceOptions) -> Iterator[RowBatch]:
    """These rows of a table in shards, each batch with what the model does not know of it."""
    for table, ends_piece in shards.batches(rows):
        x, notes = make_features(table, options)
        ids = torch.from_numpy(table.ids)
        notes = tuple(f"{note}; later rows are not counted" for note in notes)
        yield RowBatch(ids.tolist(), x, ids, notes=notes, ends_piece=ends_piece)


def iter_batches(x: Tensor, ids: Tensor, rows: range) -> Iterator[RowBatch]:
    """These rows of a table, whose names are their ids, some at a time."""
    for piece in own_pieces(rows, rows_of_piece(len(rows), CHUNK_ROWS, BATCH_ROWS)):
        numbers = ids[piece.start : piece.stop]
        yield RowBatch(numbers.tolist(), x[piece.start : piece.stop], numbers)


def hash_rows(x: Tensor, ids: Tensor) -> str:
    """What several processes compare to know that they read the same table; nothing for one."""
    if current_world().size == 1:
        return ""
    digest = hashlib.sha256(f"{tuple(x.shape)} {x.dtype}".encode())
    for column in (x, ids):
        digest.update(column.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def open_array(source: Any, options: SourceOptions) -> RowSource:
    """The rows of an array with the features in the model's order; of a data frame or a mapping its columns by name."""
    encoding = options.encoding
    if encoding is not None and is_frame(source):
        made = encode_columns(RawTable("X", read_frame(source, encoding.column_names, "X")), encoding, 1)
        warn_of_unknown(made.notes)
        x = torch.from_numpy(check_numbers(made.x, "X", encoding.names))
    else:
        rule = "the run's table has columns that are no numbers, or gaps"
        rule = f"{rule}: give a path, a data frame or a mapping of columns"
        require(encoding is None or encoding.is_plain, rule)
        x = torch.as_tensor(np.asarray(source))
    x = x if options.float64 and x.dtype == torch.float64 else x.float()
    return RowSource(iter([RowBatch(list(range(len(x))), x, None)]), len(x))


def warn_of_unknown(notes: Iterable[str]) -> None:
    """Say what a table has that the model does not know."""
    for note in notes:
        warnings.warn(EmbasisWarning(note), stacklevel=4)  # the caller of predict


def first_shape(samples: Samples) -> tuple[int, ...]:
    """The shape of one input."""
    require(len(samples) > 0, "labelled: at least one row is needed, got none")
    return tuple(samples.inputs(torch.tensor([0])).shape[1:])


def standardise_mode(config: Config, shape: tuple[int, ...], same_domain: bool) -> str:
    """How rows are standardised: vectors by themselves or, from one domain, together; pictures not at all."""
    mode = config.standardise
    if mode == "auto":
        mode = ("joint" if same_domain else "domain") if len(shape) == 1 else "none"
    require(mode in MODES, f"standardise must be one of {', '.join(MODES)}, got {quote(mode)}", ConfigError)
    return mode


def bind_array_network(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a network for arrays, with its defaults."""
    entry, plain = settings.find_entry("network", name), [other for other in FOR_ARRAYS if other != FOR_MAPS]
    purpose = "image files" if entry in PRETRAINED.values() else "pictures with label maps"
    rule = f"network {quote(name)} is for {purpose}; known for arrays: {join_names(plain)}"
    require(settings.network_family(name) in plain, rule, ConfigError)
    return settings.bind_entry("network", name, given)


def make_array_network(
    name: str, given: Mapping[str, Any], shape: tuple[int, ...], classes: int, seed: int
) -> nn.Module:
    """A network for arrays, with first weights that the seed decides."""
    own = bind_array_network(name, given)
    with seeded(seed, "network"):
        network: nn.Module = FOR_ARRAYS[name](shape, classes, **own)
    return network


def fill_for_learner(config: Config, labelled: int) -> Config:
    """The settings of a run with a learner: where there are enough rows, some are held out, and they decide how sure
    labels may be and which round is kept; what the user has set stays."""
    plan = {"holdout": LEARNER_HOLDOUT if labelled >= LEAST_FOR_HOLDOUT else 0.0, **config.plan}
    if not plan["holdout"]:
        return config
    plan = {"keep_round": "validation", **plan}
    method = dict(config.method)
    if method.get("name", "em_basis") == "em_basis":
        method = {"recalibration": "weighted", **method}
    return msgspec.structs.replace(config, plan=plan, method=method)
