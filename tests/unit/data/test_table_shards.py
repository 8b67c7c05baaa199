"""Tables in Parquet shards: read whole they are one table, read in batches they are its rows, each once."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embasis.data import table_shards
from embasis.data.shards import find_shards, shard_kind
from embasis.data.table_pair import TableColumns, check_pair, load_pair
from embasis.data.table_shards import open_table_shards, read_any_table
from embasis.data.tables import WantedColumns, read_raw
from embasis.errors import InputDataError

WANTED = WantedColumns("label", None, ())


def table(rows: int = 40, **more: Any) -> pa.Table:
    draw = np.random.default_rng(0)
    columns = {
        "a": draw.normal(size=rows),
        "b": draw.integers(0, 9, rows),
        "label": [f"c{row % 3}" for row in range(rows)],
    }
    return pa.table({**columns, **more})


def cut(folder: Path, whole: pa.Table, *places: int) -> Path:
    """Shards of a table that end at these rows, in row groups of seven."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (first, last) in enumerate(zip((0, *places), (*places, whole.num_rows), strict=True)):
        pq.write_table(whole.slice(first, last - first), folder / f"{number:03d}.parquet", row_group_size=7)
    return folder


def mixed(rows: int = 40) -> pa.Table:
    kinds = {
        "colour": [None if row % 11 == 5 else ("red", "blue", "green")[row % 3] for row in range(rows)],
        "day": [date(2026, 1 + row % 12, 1 + row % 28) for row in range(rows)],
        "flag": [row % 2 == 0 for row in range(rows)],
        "gap": [None if row == 33 else float(row) for row in range(rows)],
    }
    return table(rows, **kinds)


@pytest.mark.parametrize("whole", [table(), table(id=np.arange(40) * 3), mixed()], ids=["plain", "ids", "mixed"])
def test_shards_read_whole_are_the_table(tmp_path: Path, whole: pa.Table) -> None:
    pq.write_table(whole, tmp_path / "one.parquet")
    one = read_raw(tmp_path / "one.parquet")
    two, records = read_any_table(cut(tmp_path / "pool", whole, 10, 10, 29))
    assert one.columns == two.columns
    assert one.labels == two.labels
    assert (one.ids is None) == (two.ids is None)
    assert one.ids is None or one.ids.tolist() == two.ids.tolist()
    assert (one.cells is None) == (two.cells is None)
    if one.cells is None:
        assert (one.x == two.x).all()
    else:
        for name, column in one.cells.items():
            assert column.read_categories() == two.cells[name].read_categories()
    assert [(record.rows, record.first) for record in records] == [(10, 0), (0, 10), (19, 10), (11, 29)]


def test_a_problem_of_shards_is_that_of_the_table(tmp_path: Path) -> None:
    pq.write_table(mixed(), tmp_path / "one.parquet")
    pq.write_table(mixed(30), tmp_path / "labelled.parquet")
    pool = cut(tmp_path / "pool", mixed(), 10, 29)
    one = load_pair(tmp_path / "labelled.parquet", tmp_path / "one.parquet")
    two = load_pair(tmp_path / "labelled.parquet", pool)
    assert (one.unlabelled.x == two.unlabelled.x).all()
    assert one.unlabelled.ids.tolist() == two.unlabelled.ids.tolist()
    assert one.encoding == two.encoding
    assert (one.shards, [len(records) for records in two.shards.values()]) == ({}, [3])
    texts = [finding.text for finding in check_pair(tmp_path / "labelled.parquet", pool, columns=TableColumns())]
    assert f"{pool}: 40 rows in 3 shards" in texts


@pytest.mark.parametrize("rows", [range(40), range(3, 4), range(9, 31), range(29, 40), range(0)])
def test_any_rows_come_in_batches_with_their_numbers(
    tmp_path: Path, rows: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_shards, "BATCH_ROWS", 4)
    whole = table()
    shards = open_table_shards(find_shards(cut(tmp_path / "pool", whole, 10, 10, 29)), WANTED)
    batches = [batch for batch, _ in shards.batches(rows)]
    assert max((len(batch.x) for batch in batches), default=0) <= 4
    assert [number for batch in batches for number in batch.ids] == list(rows)
    assert [value for batch in batches for value in batch.x[:, 0]] == [whole["a"][row].as_py() for row in rows]


def test_columns_are_matched_by_name_and_a_list_says_which_shards(tmp_path: Path) -> None:
    whole = table()
    cut(tmp_path / "pool", whole.slice(0, 20))
    pq.write_table(whole.slice(20).select(["label", "b", "a"]), tmp_path / "pool" / "zz.parquet")
    (tmp_path / "list.csv").write_text("path\npool/zz.parquet\npool/000.parquet\n")
    assert shard_kind(tmp_path / "list.csv") == ".parquet"
    listed, _ = read_any_table(tmp_path / "list.csv")
    found, _ = read_any_table(tmp_path / "pool")
    assert listed.columns == ("b", "a")
    assert listed.x[:, 1].tolist() == [*found.x[20:, 0], *found.x[:20, 0]]


def says(path: Path) -> str:
    with pytest.raises(InputDataError) as caught:
        read_any_table(path)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_shards_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    pool = cut(tmp_path / "pool", table(), 20)
    first, odd = pool / "000.parquet", pool / "odd.parquet"

    def with_odd(**columns: Any) -> str:
        pq.write_table(pa.table(columns), odd)
        return says(pool)

    assert with_odd(a=[1.0], label=["c0"]) == ("feature columns differ; only in pool/000.parquet: 'b'")
    assert with_odd(a=[1.0], b=[1.0]) == (
        "pool/odd.parquet: no column of labels, and pool/000.parquet has one; write all shards with it or without"
    )
    assert with_odd(a=[1.0], b=["x"], label=["c0"]) == (
        "pool/odd.parquet: column 'b' is text, in pool/000.parquet it is numbers"
    )
    assert with_odd(a=[1.0], b=[1], label=["c0"], id=[3]) == (
        "pool/000.parquet: no column of ids, and pool/odd.parquet has one; write all shards with it or without"
    )
    odd.write_bytes(b"")
    assert says(pool) == "pool/odd.parquet: the file is empty"
    odd.write_bytes(first.read_bytes()[:-10])
    assert says(pool).startswith("pool/odd.parquet: not a readable .parquet file: ")
    odd.unlink()
    odd.symlink_to(first)
    cure = "name the files themselves in a list, a .csv with a column path"
    assert says(pool) == f"pool/odd.parquet: is a link; links are not followed; {cure}"
    odd.unlink()
    (pool / "b.tar").write_bytes(b"")
    assert says(pool) in (
        "pool: has .parquet and .tar files; a folder of shards has one kind",
        "pool: has .tar and .parquet files; a folder of shards has one kind",
    )


def test_ids_are_unique_among_all_shards(tmp_path: Path) -> None:
    pool = cut(tmp_path / "pool", table(id=[*range(39), 5]), 20)
    assert says(pool) == "pool: ids must be unique, 5 appears 2 times"


def test_lists_of_shards_name_nothing_else_and_each_once(tmp_path: Path) -> None:
    cut(tmp_path / "pool", table(), 20)
    path = tmp_path / "list.csv"
    path.write_text("path\npool/000.parquet\npool/x.png\n")
    assert says(path) == "list.csv: line 3: 'pool/x.png' is no .parquet file; a list of shards names nothing else"
    path.write_text("path\npool/000.parquet\npool/../pool/000.parquet\n")
    assert says(path) == "list.csv: line 3: 'pool/../pool/000.parquet' is listed twice"
    path.write_text("path\ns3://bucket/a.parquet\n")
    cure = "embasis opens no connection: download the files, and name their paths"
    assert says(path) == f"list.csv: line 2: 's3://bucket/a.parquet' is an address; {cure}"
    path.write_text("path\npool/000.parquet\npool/gone.parquet\n")
    assert says(path) == "list.csv: line 3: pool/gone.parquet: no such file"


def test_a_shard_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    pool = cut(tmp_path / "pool", table(), 20)
    shards = open_table_shards(find_shards(pool), WANTED)
    pq.write_table(table(7), pool / "001.parquet")
    with pytest.raises(InputDataError) as caught:
        list(shards.batches(range(40)))
    assert str(caught.value) == f"{pool / '001.parquet'}: was changed while it was read"


def test_a_pool_that_is_too_large_to_train_on_says_what_can_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = cut(tmp_path / "pool", table(), 20)
    monkeypatch.setattr(table_shards, "LARGEST_TABLE", 100)
    assert says(pool) == (
        "pool: takes 640 bytes unpacked, at most 100 are read to train on; "
        "train on some of the shards, predict labels all of them"
    )
