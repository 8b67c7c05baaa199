"""Features on disk: what was put in comes out to the bit, and what is damaged is left alone and missing."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from embasis import storage
from embasis.errors import CorruptError, EmbasisWarning, InputDataError, ResourceError
from embasis.storage import atomic
from embasis.storage.feature_cache import FeatureCache, cache_folder
from storage_runs import Faulty, temps

ADVICE = "images.cache=DIR or EMBASIS_CACHE names another folder for features"


pytestmark = pytest.mark.usefixtures("fast_runs")


def digests(count: int, start: int = 0) -> list[bytes]:
    return [hashlib.blake2b(str(start + number).encode(), digest_size=16).digest() for number in range(count)]


def rows(count: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def shards(cache: FeatureCache) -> list[Path]:
    return sorted(cache.path.glob("*.shard"))


def filled(folder: Path) -> FeatureCache:
    """Two shards of five and of three rows."""
    cache = FeatureCache(folder, "key")
    cache.add(digests(5), rows(5, 7))
    cache.add(digests(3, start=5), rows(3, 7, seed=1))
    return cache


def opened(folder: Path) -> tuple[FeatureCache, list[str]]:
    """The cache as another process finds it, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cache = FeatureCache(folder, "key")
    assert all(item.category is EmbasisWarning for item in caught)
    return cache, [str(item.message) for item in caught]


def test_rows_come_back_to_the_bit_in_any_order_and_again_and_again(tmp_path: Path) -> None:
    filled(tmp_path)
    whole, names = torch.cat([rows(5, 7), rows(3, 7, seed=1)]), digests(8)
    cache, said = opened(tmp_path)
    assert (len(cache), said) == (8, [])
    for order in ([0, 1, 2, 3, 4, 5, 6, 7], [7, 0, 7, 3], [4]):
        assert torch.equal(cache.rows([names[row] for row in order]), whole[order])


def test_rows_of_half_precision_and_of_any_shape_come_back_as_single(tmp_path: Path) -> None:
    maps = rows(4, 3, 2, 5).half()
    FeatureCache(tmp_path, "key").add(digests(4), maps)
    found = opened(tmp_path)[0].rows(digests(4)[::-1])
    assert found.dtype == torch.float32
    assert torch.equal(found, maps.float().flip(0))


def test_a_cache_of_another_network_sees_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    other = FeatureCache(tmp_path, "another")
    assert len(other) == 0
    assert digests(1)[0] not in other


def test_rows_that_are_not_there_are_refused_with_their_number(tmp_path: Path) -> None:
    cache = filled(tmp_path)
    with pytest.raises(CorruptError) as caught:
        cache.rows(digests(10))
    assert str(caught.value) == f"cache {cache.path}: 2 of 10 rows are not there"
    with pytest.raises(InputDataError, match=r"^cache: no rows are asked for$"):
        cache.rows([])
    with pytest.raises(InputDataError, match=r"^cache: 2 digests for 3 rows$"):
        cache.add(digests(2), rows(3, 7))


def test_nothing_is_written_for_no_rows(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, "key")
    cache.add([], rows(0, 7))
    assert list(tmp_path.iterdir()) == []


def test_two_caches_may_add_the_same_rows(tmp_path: Path) -> None:
    left, right = FeatureCache(tmp_path, "key"), FeatureCache(tmp_path, "key")
    for cache in (left, right, left):
        cache.add(digests(5), rows(5, 7))
    assert len(shards(left)) == 1
    right.add(digests(4, start=3), rows(4, 7, seed=2))
    assert digests(1, start=6)[0] not in left
    left.refresh()
    assert torch.equal(left.rows(digests(2, start=5)), rows(4, 7, seed=2)[2:])
    assert len(left) == len(right) == len(opened(tmp_path)[0]) == 7
    assert temps(tmp_path) == []


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-3])
    return path


def flipped(path: Path) -> Path:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return path


def renamed(path: Path) -> Path:
    return path.rename(path.with_name(f"{'0' * 64}.shard"))


def emptied(path: Path) -> Path:
    path.write_bytes(b"")
    return path


@pytest.mark.parametrize("damage", [cut, flipped, renamed, emptied])
def test_a_damaged_shard_is_left_alone_and_its_rows_are_missing(tmp_path: Path, damage: Any) -> None:
    whole = filled(tmp_path)
    lost = next(path for path in shards(whole) if whole._where[digests(1)[0]][0].path == path)
    spoilt = damage(lost)
    before = spoilt.read_bytes()
    cache, said = opened(tmp_path)
    assert said == [f"{spoilt}: sha256 differs; its images are read again"]
    assert [digest in cache for digest in digests(8)] == [False] * 5 + [True] * 3
    assert torch.equal(cache.rows(digests(3, start=5)), rows(3, 7, seed=1))
    assert spoilt.read_bytes() == before


def test_a_damaged_shard_is_made_whole_by_the_same_rows(tmp_path: Path) -> None:
    for path in shards(filled(tmp_path)):
        flipped(path)
    cache, said = opened(tmp_path)
    assert len(said) == 2
    cache.add(digests(5), rows(5, 7))
    cache.add(digests(3, start=5), rows(3, 7, seed=1))
    whole, said = opened(tmp_path)
    assert (len(whole), said) == (8, [])
    assert torch.equal(whole.rows(digests(5)), rows(5, 7))


def test_a_shard_that_is_cut_while_it_is_in_use_is_said(tmp_path: Path) -> None:
    cache = filled(tmp_path)
    for path in shards(cache):
        os.truncate(path, 200)
    with pytest.raises(CorruptError, match=r"the file is cut off$"):
        cache.rows(digests(8))
    for path in shards(cache):
        path.unlink()
    with pytest.raises(ResourceError, match=r"No such file or directory; the same command makes it again$"):
        cache.rows(digests(8))


def test_other_files_in_the_folder_are_not_looked_at(tmp_path: Path) -> None:
    cache = filled(tmp_path)
    (cache.path / "notes.txt").write_text("mine")
    (cache.path / "a.shard").write_bytes(b"mine")
    (cache.path / "folder").mkdir()
    found, said = opened(tmp_path)
    assert (len(found), said) == (8, [])


def test_a_link_and_a_pipe_are_not_followed(tmp_path: Path) -> None:
    cache = filled(tmp_path / "mine")
    shard = shards(filled(tmp_path / "theirs"))[0]
    own = cache.path / shard.name
    own.unlink()
    own.symlink_to(shard)
    os.mkfifo(cache.path / f"{'a' * 64}.shard")
    found, said = opened(tmp_path / "mine")
    assert sorted(said) == [
        f"{cache.path / ('a' * 64)}.shard: sha256 differs; its images are read again",
        f"cannot read {own}: Too many levels of symbolic links; its images are read again",
    ]
    assert len(found) in (3, 5)


class Trap:
    """A pickle that would tell if it were read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return warnings.warn, ("the trap was sprung",)


def forged(folder: Path, data: bytes) -> Path:
    """A file under the name that its bytes ask for."""
    path = FeatureCache(folder, "key").path / f"{hashlib.sha256(data).hexdigest()}.shard"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


def header(**parts: Any) -> bytes:
    text = json.dumps(parts).encode()
    return len(text).to_bytes(8, "little") + text


def shard(digest: list[int], shape: list[int], kind: str = "F32", at: int = 0) -> bytes:
    """A header that says so, and 48 bytes."""
    column = {"shape": digest, "dtype": "U8", "data_offsets": [at, 16]}
    return header(digest=column, rows={"shape": shape, "dtype": kind, "data_offsets": [16, 44]}) + bytes(48)


FORGED = {
    "a pickle": pickle.dumps(Trap()),
    "nothing": b"",
    "no parts": header(),
    "parts that are none": header(digest=1, rows=2),
    "digests of another length": shard([1, 8], [1, 7]),
    "more rows than digests": shard([1, 16], [2, 7]),
    "double precision": shard([1, 16], [1, 7], "F64"),
    "more rows than bytes": shard([4, 16], [4, 7]),
    "rows of no end": shard([1, 16], [1, 2**40]),
    "a negative shape": shard([-1, 16], [-1, 7]),
    "an offset before the file": shard([1, 16], [1, 7], at=-400),
}


def test_a_header_that_is_right_is_read(tmp_path: Path) -> None:
    forged(tmp_path, shard([1, 16], [1, 7]))
    cache, said = opened(tmp_path)
    assert said == []
    assert torch.equal(cache.rows([bytes(16)]), torch.zeros(1, 7))


@pytest.mark.parametrize("data", FORGED.values(), ids=FORGED)
def test_a_file_under_a_right_name_that_is_no_shard_is_refused_and_never_interpreted(
    tmp_path: Path, data: bytes
) -> None:
    path = forged(tmp_path, data)
    cache, said = opened(tmp_path)
    assert (len(cache), len(said)) == (0, 1)
    assert said[0].startswith((f"{path}", f"cannot read {path}"))
    assert said[0].endswith("; its images are read again")


def test_a_folder_that_cannot_be_made_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "features").write_text("mine")
    with pytest.raises(ResourceError) as caught:
        filled(tmp_path)
    assert caught.value.exit_code == 5
    assert str(caught.value).startswith(f"cannot write {tmp_path}/features/key/")
    assert str(caught.value).endswith(f".shard: Not a directory; {ADVICE}")


def refusal(act: Callable[[], None]) -> ResourceError | None:
    try:
        act()
    except ResourceError as error:
        return error
    return None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_fails_at_any_call_leaves_no_trace_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    for at in range(1, 50):
        folder = tmp_path / str(at)
        cache = FeatureCache(folder, "key")
        monkeypatch.setattr(atomic, "disk", faulty := Faulty(at, code))
        refused = refusal(lambda cache=cache: cache.add(digests(5), rows(5, 7)))
        monkeypatch.setattr(atomic, "disk", storage.Disk())
        assert refused is None or (refused.exit_code == 5 and ADVICE in str(refused) and len(cache) == 0)
        assert temps(folder) == []
        assert len(opened(folder)[0]) in (0, 5)
        if not faulty.fired:
            break
    assert at > 4


def test_the_folder_is_the_given_one_else_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBASIS_CACHE", "/of/the/environment")
    assert cache_folder("/given") == Path("/given")
    assert cache_folder() == Path("/of/the/environment")
    monkeypatch.delenv("EMBASIS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/embasis")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/home/me/.cache/embasis")


def test_a_user_without_a_home_is_told_to_name_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "EMBASIS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])  # as in a container with a number for a user
    with pytest.raises(ResourceError) as told:
        cache_folder()
    rule = "there is no folder for features: this user has no home; images.cache=DIR or EMBASIS_CACHE names one"
    assert str(told.value) == rule
    assert cache_folder("here") == Path("here")
    monkeypatch.setenv("EMBASIS_CACHE", "there")
    assert cache_folder() == Path("there")
