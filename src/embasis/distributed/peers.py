"""What became of the other processes of a run: heartbeats, and the first failure of any of them.

| event | how it is noticed | what happens |
| --- | --- | --- |
| a process dies | an exchange fails at once; its heartbeat stands still | code 8, and the sentence names it |
| a process is stopped, or cut off | its heartbeat stands still for LIMIT_SECONDS | the same on every side |
| a process raises | it leaves a note of its failure before it ends | all end with that code; the note is printed once |
| the launcher dies | the pid of the parent changes | code 8 |
| a process is slow | its heartbeat goes on | nothing: the others wait |

One thread exchanges heartbeats through the launcher's store, and may hang with it. Another one looks at the clock only,
and ends the process where the main thread cannot: by os._exit, because torch may hang at its own end then.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from torch.distributed import Store  # type: ignore[attr-defined]

from embasis.errors import EmbasisError, Interrupted, PeerFailure, RelayedFailure

T = TypeVar("T")
BEAT_SECONDS, LIMIT_SECONDS = 2.0, 15.0
"""How often a process shows that it lives, and after which silence it counts as lost."""
NAMING_SECONDS = BEAT_SECONDS + 1.0
"""After a broken exchange: a process whose heartbeat stands still for so long is the one that was lost."""
GRACE_SECONDS = 2.0
"""After a failure is known the main thread has so long to leave by itself."""
REPORT_SECONDS = 5.0
"""The longest that the last words of a process may take."""
CHECK_SECONDS = 0.25
STORE_SECONDS, STORE_ERRORS = 3.0, 2
"""How long an answer of the store may take at the end of a process; calls that fail until it counts as gone."""
LEAVING_SECONDS = 30.0
"""The longest that the main thread may take to end its process after a failure."""
SIGNAL_CODES = (130, 143)
FAILURE, PRINTED = "failure", "failure/printed"
"""Keys of the first failure, and of whether somebody has printed it."""


@dataclass(frozen=True)
class FailureNote:
    """The first failure of a run's processes."""

    rank: int
    """Who has left the note."""
    sentence: str
    code: int
    lost: tuple[int, ...] = ()
    """Ranks that do not live any more."""

    def as_error(self) -> EmbasisError:
        """What the other processes raise."""
        if self.lost:
            return PeerFailure(self.sentence)
        return (Interrupted if self.code in SIGNAL_CODES else RelayedFailure)(self.sentence, self.code)


Report = Callable[[EmbasisError], object]
"""Prints the error, or writes it down, in a process whose main thread cannot."""


class Peers:
    """The other processes, seen from one. `beats` and `notes` are two connections to one store: either may hang."""

    def __init__(self, beats: Store, notes: Store, rank: int, hosts: Sequence[str]) -> None:
        self._beats, self._notes, self.rank, self.hosts = beats, notes, rank, tuple(hosts)
        self._store_gone = False
        self.has_launcher = True
        """Whether the store is that of a launcher, and outlives all processes of the run."""
        self.hosts_store = False
        """Whether the store ends with this process: where no launcher has one."""
        self.position = "before training"
        """Where the run stands, for sentences: `in round 2 epoch 0 step 118; generation 7 is kept`."""
        self.advice = "the same command goes on"
        """What to do after a process was lost."""
        self.speaking, self.has_spoken = threading.Lock(), False
        """Held by the thread that prints the failure; whether one has."""
        self.report: Report = lambda error: None
        self.write_down: Report = lambda error: None
        self._parent = os.getppid()
        self._ended, self._leaving = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._note: FailureNote | None = None
        self._noted = 0.0
        self._store_errors = 0
        """Calls of the store, one after the other, that have failed at once: nobody listens any more."""
        now = time.monotonic()
        self._reached = now
        self._counts = {number: (0, now) for number in range(len(self.hosts)) if number != rank}
        """Heartbeats of each rank, and when the last new one was seen."""

    def name(self, rank: int) -> str:
        """A process for a sentence."""
        return f"rank {rank} on host {self.hosts[rank]}"

    def watch(self) -> None:
        """Watch the others until `stop`."""
        self._beats.set(f"beat/{self.rank}", "1")
        for work in (self._exchange, self._judge):
            self._threads.append(threading.Thread(target=work, daemon=True, name=f"peers {work.__name__}"))
            self._threads[-1].start()

    def stop(self) -> None:
        """The work of all is done. Python ends a thread that is in a call of the store by ending the process: SIGABRT
        after all went well. So it is waited for."""
        self._ended.set()
        for thread in self._threads:
            thread.join(STORE_SECONDS)

    def begin_leaving(self) -> None:
        """The main thread ends this process itself."""
        self._leaving.set()

    def _exchange(self) -> None:
        """Show that this process lives, and see whether the others do."""
        beat = 1
        while not self._ended.wait(BEAT_SECONDS):
            beat += 1
            try:
                self._beats.set(f"beat/{self.rank}", str(beat))
                self._see()
                self._note = self._note or read_note(self._beats)
                self._reached, self._store_errors = time.monotonic(), 0
            except (RuntimeError, ValueError):
                self._store_errors += 1  # where it hangs instead, the judge looks at the clock

    def _see(self) -> None:
        keys = [f"beat/{number}" for number in self._counts]
        if not self._beats.check(keys):
            return  # one of them has not begun yet
        now = time.monotonic()
        for number, value in zip(self._counts, self._beats.multi_get(keys), strict=True):
            if int(value) != self._counts[number][0]:
                self._counts[number] = (int(value), now)

    def _judge(self) -> None:
        """End this process when the others cannot go on with it, and it does not do so by itself."""
        while not self._ended.wait(CHECK_SECONDS):
            error = self._find_reason()
            if error is None:
                continue
            if self._leaving.wait(GRACE_SECONDS):
                self._ended.wait(LEAVING_SECONDS)  # the main thread is about to end this process
            if not self._ended.is_set():
                self._leave_now(error)

    def _find_reason(self) -> EmbasisError | None:
        now = time.monotonic()
        if os.getppid() != self._parent:
            return PeerFailure(f"the launcher of {self.name(self.rank)} is gone {self.position}; {self.advice}")
        if self._note is not None:
            return self._note.as_error()
        if self._store_errors >= STORE_ERRORS:
            return self._blame([0]) if self.rank and not self.has_launcher else PeerFailure(self._lost_each_other())
        if now - self._reached > LIMIT_SECONDS:
            silence = f"{self.name(self.rank)} has been cut off from the others for {LIMIT_SECONDS:.0f} s"
            return PeerFailure(f"{silence} {self.position}; {self.advice}")
        lost = [number for number, (_, seen) in self._counts.items() if now - seen > LIMIT_SECONDS]
        return self._blame(lost) if lost else None

    def _blame(self, lost: Sequence[int]) -> EmbasisError:
        """Leave a note of the lost processes, unless there is one; the error that follows from the first note."""
        names, were = " and ".join(map(self.name, lost)), "was" if len(lost) == 1 else "were"
        words = f"{names} {were} lost {self.position}; {self.advice}"
        return self.leave_note(FailureNote(self.rank, words, PeerFailure.exit_code, tuple(lost))).as_error()

    def leave_note(self, note: FailureNote) -> FailureNote:
        """The first note: this one, if nobody has left another before."""
        text = json.dumps([note.rank, note.sentence, note.code, list(note.lost)])
        first = self._call(lambda: parse_note(self._notes.compare_set(FAILURE, "", text)))
        self._note = first or note
        return self._note

    def _call(self, work: Callable[[], T]) -> T | None:
        """What the store answers; None where it is gone, or does not answer: it is not asked again then."""
        if self._store_gone:
            return None
        answers: list[T] = []

        def ask() -> None:
            with suppress(RuntimeError, ValueError):
                answers.append(work())

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(STORE_SECONDS)
        self._store_gone = not answers
        return answers[0] if answers else None

    def _mark(self, key: str) -> bool:
        self._notes.set(key, "1")
        return True

    def _lost_each_other(self) -> str:
        return f"the processes have lost each other {self.position}; {self.advice}"

    def explain_break(self) -> EmbasisError:
        """Why an exchange has failed: what another process has left a note of, or which one is lost."""
        began = time.monotonic()
        before: dict[int, int] = {}
        while time.monotonic() - began < LIMIT_SECONDS:
            answer = self._call(self._read_news)
            if answer is None:  # the store is gone, and with it the launcher, or rank 0
                return self._blame([0]) if self.rank and not self.has_launcher else PeerFailure(self._lost_each_other())
            self._note, now = answer
            if self._note is not None:
                return self._note.as_error()
            before = before or now
            lost = [number for number in now if now[number] == before[number]]
            if time.monotonic() - began > NAMING_SECONDS and lost:
                return self._blame(lost)
            time.sleep(CHECK_SECONDS)
        return PeerFailure(self._lost_each_other())

    def _read_news(self) -> tuple[FailureNote | None, dict[int, int]]:
        """The first failure; else the heartbeats of the others."""
        if (note := read_note(self._notes)) is not None:
            return note, {}
        return None, {number: int(self._notes.get(f"beat/{number}")) for number in self._counts}

    def should_print(self, note: FailureNote) -> bool:
        """Whether this process prints it: rank 0, or the first one that is left."""
        alive = [number for number in range(len(self.hosts)) if number not in note.lost]
        return self.rank == min(alive, default=self.rank)

    def fail(self, sentence: str, code: int) -> tuple[FailureNote, bool]:
        """Tell the others that this process ends with a failure; the first failure of all, and whether to print it."""
        self.begin_leaving()
        known = self._note or self._wait_for_note()
        if known is None:
            own = sentence if self.rank == 0 else f"{self.name(self.rank)}: {sentence}"
            known = self.leave_note(FailureNote(self.rank, own, code))
        prints = self.should_print(known) or not self._is_printed()
        if prints:
            self._call(lambda: self._mark(PRINTED))
        return known, prints

    def _wait_for_note(self) -> FailureNote | None:
        """The note of rank 0, which may be about to raise the same: an error that all have is nobody's own."""
        deadline = time.monotonic() + (GRACE_SECONDS if self.rank else 0.0)
        while time.monotonic() < deadline:
            if note := (self._call(lambda: (read_note(self._notes),)) or (None,))[0]:
                return note
            time.sleep(CHECK_SECONDS)
        return None

    def wait_for_others(self) -> None:
        """Let the others read what the store of this process holds, before it ends and the store with it."""
        deadline = time.monotonic() + GRACE_SECONDS + REPORT_SECONDS
        lost = () if self._note is None else self._note.lost
        keys = [f"left/{number}" for number in self._counts if number not in lost]
        self._call(lambda: self._mark(f"left/{self.rank}"))
        while (
            self.hosts_store
            and time.monotonic() < deadline
            and self._call(lambda: (self._notes.check(keys),)) == (False,)
        ):
            time.sleep(CHECK_SECONDS)

    def _is_printed(self) -> bool:
        """Whether another process has printed the failure, or will have in a few seconds."""
        deadline = time.monotonic() + GRACE_SECONDS + REPORT_SECONDS
        while time.monotonic() < deadline:
            if (answer := self._call(lambda: (self._notes.check([PRINTED]),))) != (False,):
                return answer is not None
            time.sleep(CHECK_SECONDS)
        return False

    def _leave_now(self, error: EmbasisError) -> None:
        """End this process while its main thread computes, or waits for ever."""
        for last in (self.write_down, self.report):
            words = threading.Thread(target=last, args=(error,), daemon=True)
            words.start()
            words.join(REPORT_SECONDS)
        self.wait_for_others()
        os._exit(error.exit_code)


def read_note(store: Store) -> FailureNote | None:
    """The first failure, if there is one."""
    return parse_note(store.get(FAILURE)) if store.check([FAILURE]) else None


def parse_note(data: bytes) -> FailureNote | None:
    """A note as it lies in the store; None for anything else."""
    try:
        rank, sentence, code, lost = json.loads(data)
        return FailureNote(int(rank), str(sentence), int(code), tuple(int(number) for number in lost))
    except (TypeError, ValueError):
        return None
