"""What processes exchange: sums that do not depend on who has which part, parts in their order, one prefix a start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from embasis.distributed import World, current_world, exact_sum, iterate_alone, meeting, work_alone
from embasis.distributed import peers as peers_module
from embasis.distributed.peers import FailureNote, Peers, parse_note, read_note
from embasis.errors import Interrupted, PeerFailure, RelayedFailure
from thread_world import run_world

PARTS = 8
SIZES = (1, 2, 3, 4, 9)


def make_parts(seed: int = 0) -> list[list[Tensor]]:
    """Gradients of eight parts: entries of very different sizes, so that the order of a float sum shows."""
    draw = torch.Generator().manual_seed(seed)
    shapes = [(40, 7), (40,), (3, 5, 2)]
    return [
        [torch.randn(shape, generator=draw) * 10.0 ** torch.randint(-6, 6, shape, generator=draw) for shape in shapes]
        for _ in range(PARTS)
    ]


def sums_of(parts: list[list[Tensor]], size: int) -> list[list[Tensor]]:
    def work(world: World) -> list[Tensor]:
        own = [part for number, part in enumerate(parts) if world.owns(number)]
        return exact_sum(world, own, parts[0], PARTS)

    return run_world(size, work)


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("size", SIZES)
def test_a_sum_has_the_same_bits_for_any_number_of_processes_and_on_each_of_them(size: int) -> None:
    alone = sums_of(make_parts(), 1)[0]
    assert all(same(alone, each) for each in sums_of(make_parts(), size))


def test_a_plain_sum_has_other_bits_so_that_the_test_above_can_fail() -> None:
    parts = make_parts()

    def plain(world: World) -> Tensor:
        own = [part[0] for number, part in enumerate(parts) if world.owns(number)]
        return world.add_up(torch.stack(own).sum(0))

    assert not torch.equal(run_world(1, plain)[0], run_world(3, plain)[0])


def test_a_sum_is_as_near_as_float32_allows() -> None:
    parts, sums = make_parts(), sums_of(make_parts(), 2)[0]
    for place, total in enumerate(sums):
        wide = torch.stack([part[place] for part in parts]).double().sum(0)
        assert torch.equal(total, wide.float()) or float((total - wide).abs().max() / wide.abs().max()) < 1e-7


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_value_that_is_not_finite_makes_the_sum_nan_on_every_process_and_leaves_the_other_sums(bad: float) -> None:
    parts = make_parts()
    parts[3][1][0] = bad
    whole = sums_of(make_parts(), 1)[0]
    for sums in sums_of(parts, 3):
        assert bool(sums[1].isnan().all())
        assert torch.equal(sums[0], whole[0])
        assert torch.equal(sums[2], whole[2])


def test_sums_of_nothing_and_of_zeros_are_zero() -> None:
    zeros = [[torch.zeros(3)] for _ in range(PARTS)]
    assert all(torch.equal(sums[0], torch.zeros(3)) for sums in sums_of(zeros, 3))


def test_the_smallest_and_the_largest_floats_are_summed() -> None:
    tiny, huge = torch.full((2,), 1e-45), torch.full((2,), 3e38)
    (total,) = exact_sum(World(), [[tiny], [tiny]], [tiny], 2)
    assert torch.equal(total, tiny + tiny)
    (total,) = exact_sum(World(), [[huge], [-huge]], [huge], 2)
    assert torch.equal(total, torch.zeros(2))


def test_columns_of_all_kinds_arrive_as_they_were_sent_and_in_the_order_of_the_parts() -> None:
    kinds = [torch.float32, torch.float16, torch.uint8, torch.int64, torch.bool]

    def make(number: int) -> list[Tensor]:
        return [torch.arange(number * 3).view(number, 3).to(kind) for kind in kinds] + [torch.tensor(number)]

    def work(world: World) -> list[list[Tensor]]:
        own = (make(number) for number in range(7) if world.owns(number))
        return list(world.in_order(own, 7, lambda part: part, lambda part: part))

    for size in (1, 2, 3, 4):
        for parts in run_world(size, work):
            assert len(parts) == 7
            for number, part in enumerate(parts):
                expected = make(number)
                assert [column.dtype for column in part] == [column.dtype for column in expected]
                assert same(part, expected)


@pytest.mark.parametrize("size", [2, 3])
def test_a_matrix_that_lies_turned_in_memory_lies_so_where_it_arrives(size: int) -> None:
    """A product with it rounds otherwise than one with its copy, so a copy would have other bits."""
    matrix = torch.arange(12.0).view(3, 4).T
    for columns in run_world(size, lambda world: world.collect([matrix, matrix.contiguous(), matrix[:2]])):
        for turned, plain, cut in filter(None, columns):
            assert torch.equal(turned, matrix)
            assert (turned.stride(), plain.stride()) == (matrix.stride(), (3, 1))
            assert torch.equal(cut, matrix[:2])


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_what_is_handed_in_comes_to_the_first_in_the_order_of_the_parts(size: int) -> None:
    def work(world: World) -> list[int]:
        own = (number for number in range(7) if world.owns(number))
        handed = world.hand_in(own, lambda number: [torch.full((number,), number)], lambda columns: len(columns[0]))
        return list(handed)

    first, *others = run_world(size, work)
    assert first == list(range(7))
    assert others == [[]] * (size - 1)


def test_what_is_computed_alone_leaves_its_reader_with_the_others() -> None:
    def work(world: World) -> list[tuple[int, int]]:
        alone = iterate_alone(current_world().size for _ in range(2))
        return [(size, current_world().size) for size in alone]

    assert run_world(2, work) == [[(1, 2), (1, 2)]] * 2


def test_bits_of_values_arrive_nan_too() -> None:
    values = torch.tensor([1 / 3, float("nan"), -0.0, float("inf")], dtype=torch.float64)

    def work(world: World) -> Tensor:
        own = torch.zeros(4, dtype=torch.float64)
        for number in range(4):
            if world.owns(number):
                own[number] = values[number]
        return world.fill(own)

    for each in run_world(3, work):
        assert torch.equal(each.view(torch.int64), values.view(torch.int64))


def test_a_signal_to_one_is_known_to_all_and_texts_arrive() -> None:
    assert run_world(3, lambda world: world.agree(143 if world.rank == 1 else 0)) == [143] * 3
    assert run_world(2, lambda world: world.collect_texts("ü" * world.rank)) == [["", "ü"]] * 2


def test_work_alone_is_nobody_elses() -> None:
    def work(world: World) -> int:
        with work_alone():
            return current_world().size

    assert run_world(2, work) == [1, 1]
    assert current_world().size == 1


def shake(store: object, size: int, hands: Callable[[object, int, int], str] = meeting.shake_hands) -> list[str]:
    prefixes = [""] * size

    def meet(rank: int) -> None:
        prefixes[rank] = hands(store, rank, size)

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in reversed(range(size))]
    for thread in threads:
        thread.start()
        thread.join(0.05)  # the last rank comes first, so that rank 0 meets what dead ones have left
    for thread in threads:
        thread.join(30)
    return prefixes


def test_each_start_has_a_prefix_that_nobody_has_used_whatever_dead_processes_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(meeting, "MEETING_SECONDS", 20.0)
    store = dist.HashStore()
    first, second = shake(store, 3), shake(store, 2)
    store.set("embasis/hello/1", "of a dead one")
    third = shake(store, 3)
    assert all(len(set(prefixes)) == 1 for prefixes in (first, second, third))
    assert len({first[0], second[0], third[0]}) == 3


def test_a_prefix_that_is_kept_for_the_next_start_is_no_fresh_one_so_that_the_test_above_can_fail() -> None:
    store = dist.HashStore()

    def reuse(store: object, rank: int, size: int) -> str:
        return "default_pg/0"  # what torch does

    assert shake(store, 2, reuse) == shake(store, 2, reuse)


def test_a_process_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "MEETING_SECONDS", 0.2)
    with pytest.raises(PeerFailure, match=r"^rank 0 waited 0 s for ranks 1, 2 in vain$"):
        meeting.shake_hands(dist.HashStore(), 0, 3)
    with pytest.raises(PeerFailure, match=r"^rank 2 waited for rank 0 for 0 s in vain$"):
        meeting.shake_hands(dist.HashStore(), 2, 3)


def test_the_first_failure_counts_and_one_process_prints_it() -> None:
    store = dist.HashStore()
    ranks = [Peers(store, store, rank, ("a", "b")) for rank in range(2)]
    note, prints = ranks[1].fail("the disk is full", 5)
    assert (note.sentence, note.code) == ("rank 1 on host b: the disk is full", 5)
    assert prints  # rank 0 has not printed it, and may be gone
    store = dist.HashStore()
    ranks = [Peers(store, store, rank, ("a", "b")) for rank in range(2)]
    ranks[1].leave_note(FailureNote(1, "rank 1 on host b: no", 6))
    error = ranks[0].explain_break()
    assert (type(error), str(error), error.exit_code) == (RelayedFailure, "rank 1 on host b: no", 6)
    assert ranks[0].fail(str(error), 6) == (FailureNote(1, "rank 1 on host b: no", 6), True)
    assert ranks[1].fail("no", 6) == (FailureNote(1, "rank 1 on host b: no", 6), False)


def test_a_process_whose_heart_stands_still_is_the_lost_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embasis.distributed.peers.NAMING_SECONDS", 0.3)
    store = dist.HashStore()
    peers = Peers(store, store, 0, ("a", "b", "c"))
    peers.position = "in round 2 epoch 0 step 118; generation 7 is kept"
    store.set("beat/1", "5")
    beating, ended = iter(range(100)), threading.Event()

    def beat() -> None:
        while not ended.wait(0.05):
            store.set("beat/2", str(next(beating)))

    store.set("beat/2", "-1")
    thread = threading.Thread(target=beat)
    thread.start()
    error = peers.explain_break()
    ended.set()
    thread.join()
    assert type(error) is PeerFailure
    kept = "in round 2 epoch 0 step 118; generation 7 is kept; the same command goes on"
    assert str(error) == f"rank 1 on host b was lost {kept}"
    note = read_note(store)
    assert note is not None
    assert note.lost == (1,)
    assert not Peers(store, store, 2, ("a", "b", "c")).should_print(note)
    assert Peers(store, store, 1, ("a", "b", "c")).should_print(FailureNote(1, "", 8, (0,)))


def test_a_signal_to_another_process_is_no_failure_of_this_one() -> None:
    error = FailureNote(1, "interrupted", 143).as_error()
    assert (type(error), error.exit_code) == (Interrupted, 143)


def test_a_process_that_is_done_waits_for_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread in a call of the store when Python ends is the end by SIGABRT of a run that went well."""
    monkeypatch.setattr(peers_module, "BEAT_SECONDS", 0.01)
    begun = threading.Event()

    class SlowStore(dist.HashStore):  # type: ignore[misc]
        def set(self, key: str, value: str) -> None:
            begun.set()
            time.sleep(0.2)

        def check(self, keys: list[str]) -> bool:
            return False

    peers = Peers(SlowStore(), dist.HashStore(), 0, ("a", "b"))
    peers.watch()
    begun.clear()
    assert begun.wait(10)
    peers.stop()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("peers ")] == []


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'["x", "y", "z", 1]', b"7", b"null"])
def test_what_is_no_note_is_none(data: bytes) -> None:
    assert parse_note(data) is None
