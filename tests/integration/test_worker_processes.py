"""Batches of images: the same for any number of workers, and whatever befalls a worker or a file."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from PIL import Image

from embasis.data.images.files import ImageFile
from embasis.data.images.samples import Images
from embasis.data.reader import Reader
from embasis.data.worker_process import WORKER, WorkerProcess
from embasis.errors import ConfigError, InputDataError, ResourceError
from embasis.types import Preparation, RejectedFile

PREPARATION = Preparation(16, 0.875)
# A worker that starts at once, for it has no torch, and does to itself what the name of a file tells it. Its images are
# of one value: the first byte of the file's digest.
QUICK = """
import json, os, signal, sys, time
def send(head, pixels=b""):
    text = json.dumps(head).encode()
    sys.stdout.buffer.write(len(text).to_bytes(4, "big") + text + pixels)
    sys.stdout.buffer.flush()
send({"ready": True})
for line in sys.stdin.buffer:
    request = json.loads(line)
    for file in request["files"]:
        name = os.path.basename(file["path"])
        if name.startswith("sig"):
            os.kill(os.getpid(), getattr(signal, name.split(".")[0].upper()))
        if name.startswith("sleep"):
            time.sleep(60)
        if name.startswith("shout"):
            os.write(2, b"noise" * 100000)
        if name.startswith("half"):
            send({"reason": None}, b"half")
            os.kill(os.getpid(), signal.SIGKILL)
        if name.startswith("long"):
            os.write(1, b"\\xff" * 4)
        if name.startswith("text"):
            os.write(1, b"\\0\\0\\0\\4text")
        if name.startswith("list"):
            send([])
        if name.startswith("number"):
            send({"reason": 3})
        if name.startswith("exit"):
            os.write(2, b"out of luck\\n")
            os._exit(3)
        send({"reason": None}, bytes.fromhex(file["digest"])[:1] * 3 * request["preparation"][0] ** 2)
"""
# The real worker, but for files that make it print or wait.
ODD = """
import os, time
from embasis.data.images.files import ImageFile
real = ImageFile.read
def read(self):
    if "sleep" in self.path:
        time.sleep(60)
    if "print" in self.path:
        print("noise" * 50000, flush=True)
        os.write(1, b"more noise")
    return real(self)
ImageFile.read = read
from embasis.data.worker import serve_requests
serve_requests()
"""


def image_file(path: Path, seed: int = 0) -> ImageFile:
    pixels = np.random.default_rng(seed).integers(0, 256, (20 + seed % 5, 24, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path, "PNG")
    return ImageFile(path.name, str(path), hashlib.blake2b(path.read_bytes(), digest_size=16).digest())


@pytest.fixture
def files(tmp_path: Path) -> list[ImageFile]:
    return [image_file(tmp_path / f"{number:02}.png", number) for number in range(23)]


@pytest.fixture
def quick() -> Iterator[Reader]:
    with Reader(1, seconds=1.5, command=[sys.executable, "-S", "-c", QUICK]) as reader:
        yield reader


def shades(files: list[ImageFile]) -> list[int]:
    """What a quick worker makes of these files."""
    return [file.digest[0] for file in files]


ROWS = [[3, 1, 2], list(range(23)), [], [5], [5, 5]]


@pytest.mark.parametrize("strength", ["none", "light", "strong"])
def test_batches_are_the_same_for_any_number_of_workers(
    files: list[ImageFile], readers: list[Reader], strength: str
) -> None:
    draws = None if strength == "none" else [[100 * batch + row for row in rows] for batch, rows in enumerate(ROWS)]
    known = "light" if strength == "none" else strength
    found = [list(reader.batches(files, ROWS, PREPARATION, draws, known)) for reader in readers]
    assert [batch.shape for batch, _ in found[0]] == [(len(rows), 3, 16, 16) for rows in ROWS]
    for other in found[1:]:
        for (first, none), (second, nothing) in zip(found[0], other, strict=True):
            assert torch.equal(first, second)
            assert none == nothing == {}
    assert torch.equal(found[0][0][0][1], found[0][1][0][1]) is (strength == "none")


def test_what_cannot_be_read_is_grey_and_has_its_reason(files: list[ImageFile], readers: list[Reader]) -> None:
    Path(files[1].path).unlink()
    Path(files[2].path).write_bytes(b"other")
    Path(files[4].path).write_bytes(b"8BPS")
    files[4] = ImageFile("psd.png", files[4].path, hashlib.blake2b(b"8BPS", digest_size=16).digest())
    expected = {
        1: "cannot be read: No such file or directory (ENOENT)",
        2: "changed since the scan",
        4: "format PSD is not read",
    }
    for reader in readers:
        ((batch, refused),) = reader.batches(files, [range(6)], PREPARATION)
        assert refused == expected
        assert all(bool((batch[place] == 128).all()) is (place in expected) for place in range(6))


def test_a_file_that_may_not_be_read_says_so(files: list[ImageFile], readers: list[Reader]) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    Path(files[0].path).chmod(0)
    for reader in readers:
        ((_, refused),) = reader.batches(files, [[0]], PREPARATION)
        assert refused == {0: "cannot be read: Permission denied (EACCES)"}


def test_a_file_that_was_refused_once_stays_refused(files: list[ImageFile], readers: list[Reader]) -> None:
    content = Path(files[0].path).read_bytes()
    for reader in readers[:2]:
        Path(files[0].path).write_bytes(b"other")
        ((_, first),) = reader.batches(files, [[0]], PREPARATION)
        Path(files[0].path).write_bytes(content)
        ((batch, second),) = reader.batches(files, [[1, 0]], PREPARATION)
        assert (first, second) == ({0: "changed since the scan"}, {1: "changed since the scan"})
        assert bool((batch[1] == 128).all())


def test_names_of_any_bytes_reach_the_worker(tmp_path: Path, readers: list[Reader]) -> None:
    plain = image_file(tmp_path / "a.png", 1)
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe\n\"'\xe2\x82\xac.png")
    os.link(plain.path, path)
    strange = ImageFile("strange", path, plain.digest)
    for reader in readers:
        ((batch, refused),) = reader.batches([plain, strange], [[0, 1]], PREPARATION)
        assert refused == {}
        assert torch.equal(batch[0], batch[1])


def test_a_part_of_a_file_is_an_image(tmp_path: Path, readers: list[Reader]) -> None:
    plain = image_file(tmp_path / "a.png", 1)
    content = Path(plain.path).read_bytes()
    (tmp_path / "archive").write_bytes(b"x" * 512 + content + b"y" * 512)
    member = ImageFile("a", str(tmp_path / "archive"), plain.digest, 512, len(content))
    for reader in readers:
        ((batch, refused),) = reader.batches([plain, member], [[0, 1]], PREPARATION)
        assert refused == {}
        assert torch.equal(batch[0], batch[1])


def test_a_reader_can_be_left_early_and_used_again(files: list[ImageFile], readers: list[Reader]) -> None:
    many = [list(range(23))] * 20
    for reader in readers[1:]:
        batch, _ = next(reader.batches(files, many, PREPARATION))
        ((again, _),) = reader.batches(files, [list(range(23))], PREPARATION)
        assert torch.equal(batch, again)


def test_one_reader_serves_several_threads(files: list[ImageFile], readers: list[Reader]) -> None:
    found: dict[int, torch.Tensor] = {}

    def work(number: int) -> None:
        found[number] = torch.cat([batch for batch, _ in readers[2].batches(files, [[number], [4, 5]], PREPARATION)])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for number in range(6):
        expected = [batch for batch, _ in readers[0].batches(files, [[number], [4, 5]], PREPARATION)]
        assert torch.equal(found[number], torch.cat(expected))


def test_only_a_bounded_number_of_batches_is_read_ahead(files: list[ImageFile], readers: list[Reader]) -> None:
    asked: list[int] = []

    class Watched(list[list[int]]):
        def __getitem__(self, number: int) -> list[int]:  # type: ignore[override]
            asked.append(number)
            return super().__getitem__(number)

    for reader in readers[1:]:
        asked.clear()
        batches = reader.batches(files, Watched([[1, 2, 3]] * 100), PREPARATION)
        for number in range(30):
            next(batches)
            assert max(asked) <= number + 6
        batches.close()  # type: ignore[attr-defined]


HOW = {"sigkill": "SIGKILL", "sigsegv": "SIGSEGV", "sigbus": "SIGBUS", "half": "SIGKILL"}


@pytest.mark.parametrize("name", HOW)
def test_a_worker_that_dies_costs_the_file_it_read(
    name: str, files: list[ImageFile], tmp_path: Path, quick: Reader
) -> None:
    files[5] = image_file(tmp_path / f"{name}.png")
    ((batch, refused),) = quick.batches(files, [list(range(23))], PREPARATION)
    assert refused == {5: f"the decoder died with {HOW[name]} on it"}
    expected = torch.tensor(shades(files), dtype=torch.uint8).view(-1, 1, 1, 1).repeat(1, 3, 16, 16)
    expected[5] = 128
    assert torch.equal(batch, expected)
    ((_, again),) = quick.batches(files, [[4, 5]], PREPARATION)
    assert again == {1: f"the decoder died with {HOW[name]} on it"}


@pytest.mark.parametrize("name", ["long", "text", "list", "number"])
def test_an_answer_that_is_none_costs_the_file_and_no_memory(
    name: str, files: list[ImageFile], tmp_path: Path, quick: Reader
) -> None:
    files[5] = image_file(tmp_path / f"{name}.png")
    ((batch, refused),) = quick.batches(files, [list(range(8))], PREPARATION)
    assert refused == {5: "the decoder sent what is no answer on it"}
    assert batch[[4, 6, 7], 0, 0, 0].tolist() == shades([files[row] for row in (4, 6, 7)])


def test_the_second_worker_lost_in_one_pass_ends_it(files: list[ImageFile], tmp_path: Path, quick: Reader) -> None:
    files[5], files[9] = image_file(tmp_path / "sigkill.png"), image_file(tmp_path / "exit.png")
    with pytest.raises(ResourceError) as caught:
        list(quick.batches(files, [list(range(8)), list(range(8, 16))], PREPARATION))
    assert caught.value.exit_code == 5
    assert str(caught.value) == (
        "image workers: two were lost in one pass: worker 0 died with SIGKILL while it read sigkill.png; worker 0 "
        "ended with exit code 3 while it read exit.png. If memory is short, set fewer workers or a smaller batch; else "
        "take these files out of the data; it said: out of luck"
    )
    assert len(list(quick.batches(files, [[1], [2]], PREPARATION))) == 2


def test_files_that_take_too_long_are_refused_one_by_one(files: list[ImageFile], tmp_path: Path, quick: Reader) -> None:
    quick.seconds = 0.3
    files[2], files[4] = image_file(tmp_path / "sleep.png"), image_file(tmp_path / "sleep too.png")
    start = time.monotonic()
    ((batch, refused),) = quick.batches(files, [list(range(6))], PREPARATION)
    assert refused == {2: "took over 0.3 s to decode", 4: "took over 0.3 s to decode"}
    assert batch[[0, 1, 3, 5], 0, 0, 0].tolist() == shades([files[row] for row in (0, 1, 3, 5)])
    assert time.monotonic() - start < 20


def test_a_worker_may_say_much_on_standard_error(files: list[ImageFile], tmp_path: Path, quick: Reader) -> None:
    files[2] = image_file(tmp_path / "shout.png")
    ((batch, refused),) = quick.batches(files, [list(range(6))], PREPARATION)
    assert refused == {}
    assert batch[:, 0, 0, 0].tolist() == shades(files[:6])


def test_a_worker_that_died_while_idle_is_replaced_without_a_word(files: list[ImageFile], quick: Reader) -> None:
    list(quick.batches(files, [[0]], PREPARATION))
    (child,) = workers_of(os.getpid(), "noise")
    child.kill()
    psutil.wait_procs([child], timeout=10)
    ((batch, refused),) = quick.batches(files, [[2]], PREPARATION)
    assert (batch[0, 0, 0, 0], refused) == (files[2].digest[0], {})


def test_workers_end_with_their_reader(files: list[ImageFile]) -> None:
    reader = Reader(2, command=[sys.executable, "-S", "-c", QUICK])
    list(reader.batches(files, [list(range(23))], PREPARATION))
    children = workers_of(os.getpid(), "noise")
    assert len(children) == 2
    del reader
    gc.collect()
    assert psutil.wait_procs(children, timeout=10)[1] == []


def test_closing_a_reader_in_the_middle_is_said_and_never_waits(files: list[ImageFile], tmp_path: Path) -> None:
    files[9] = image_file(tmp_path / "sleep.png")
    reader = Reader(1, command=[sys.executable, "-S", "-c", QUICK])
    batches = reader.batches(files, [[0], [9], [1], [2], [3]], PREPARATION)
    next(batches)
    reader.close()
    with pytest.raises(ResourceError) as caught:
        list(batches)
    assert str(caught.value) == "image workers: the reader was closed before all its images were read"
    ((batch, refused),) = reader.batches(files, [[1]], PREPARATION)
    assert (batch[0, 0, 0, 0], refused) == (files[1].digest[0], {})
    reader.close()
    reader.close()


def test_the_real_worker_keeps_its_pipe_to_itself_and_ignores_signals(files: list[ImageFile], tmp_path: Path) -> None:
    files[0] = image_file(tmp_path / "print.png", 3)
    with Reader(1, command=[sys.executable, "-c", ODD]) as reader:
        ((batch, refused),) = reader.batches(files, [[0, 3]], PREPARATION)
        assert refused == {}
        assert torch.equal(batch[0], batch[1])
        (child,) = workers_of(os.getpid(), "more noise")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            child.send_signal(number)
        assert next(reader.batches(files, [[1]], PREPARATION))[1] == {}
        assert workers_of(os.getpid(), "more noise") == [child]
        assert os.getpgid(child.pid) != os.getpgid(0)
    assert psutil.wait_procs([child], timeout=10)[1] == []


def workers_of(pid: int, command: str) -> list[psutil.Process]:
    """Children that run this, the youngest last."""
    found = [child for child in psutil.Process(pid).children(recursive=True) if command in " ".join(child.cmdline())]
    return sorted(found, key=psutil.Process.create_time)


def test_a_worker_that_does_not_start_says_why(files: list[ImageFile]) -> None:
    broken = Reader(1, command=[sys.executable, "-c", "raise ImportError('no torch here')"])
    with pytest.raises(ResourceError) as caught, broken:
        list(broken.batches(files, [[0]], PREPARATION))
    assert str(caught.value) == (
        "image worker 0: ended with exit code 1 within 60 s of its start; it said: ImportError: no torch here"
    )
    absent = Reader(1, command=["/nonexistent/python"])
    with pytest.raises(ResourceError, match=r"image worker 0 cannot be started: .*No such file.*; set workers to 0"):
        list(absent.batches(files, [[0]], PREPARATION))
    absent.close()


PARENT = """
import sys, time
from embasis.data.reader import Reader
from embasis.data.images.files import ImageFile
from embasis.types import Preparation
path, digest, command, mode = sys.argv[1], bytes.fromhex(sys.argv[2]), sys.argv[3], sys.argv[4]
plain, slow = ImageFile("a", path, digest), ImageFile("b", path.replace("a.png", "sleep.png"), digest)
reader = Reader(1, command=[sys.executable, "-c", command])
print(len(list(reader.batches([plain], [[0]], Preparation(8)))), flush=True)
if mode == "killed":
    list(reader.batches([plain, slow], [[1]], Preparation(8)))
"""


@pytest.mark.parametrize("mode", ["killed", "ends"])
def test_no_worker_outlives_its_parent(tmp_path: Path, mode: str) -> None:
    file = image_file(tmp_path / "a.png")
    worker = ODD if mode == "killed" else QUICK
    command = [sys.executable, "-c", PARENT, file.path, file.digest.hex(), worker, mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        assert parent.stdout.readline() == "1\n"
        children = psutil.Process(parent.pid).children() if mode == "killed" else []
        if mode == "killed":
            time.sleep(0.3)
            assert len(children) == 1
            parent.kill()
        assert parent.wait(20) == (-signal.SIGKILL if mode == "killed" else 0)
        _, alive = psutil.wait_procs(children, timeout=10)
        assert alive == []
        assert parent.stderr.read() == ""


IMPORTING = """
import os, sys, threading, time
import embasis.data.worker_process as link
sys.path.insert(0, sys.argv[1])  # the worker finds another torch there
link.WORKER = sys.argv[2]
threading.Thread(target=link.WorkerProcess(0, None).start, daemon=True).start()
while not os.path.exists(sys.argv[1] + "/imported"):
    time.sleep(0.01)
print(open(sys.argv[1] + "/imported").read(), flush=True)
os._exit(0)  # as a second signal does
"""
SLOW = """
import ctypes, os, sys
place = os.path.dirname(os.path.dirname(__file__))
open(place + "/half", "w").write(str(os.getpid()))
os.rename(place + "/half", place + "/imported")
ctypes.PyDLL(None).sleep(60)  # no other thread of the process runs meanwhile
"""


def outlives(home: Path, worker: str, seconds: float) -> bool:
    """Whether a worker lives so many seconds longer than a parent that ends while it imports torch."""
    (home / "torch").mkdir()
    (home / "torch" / "__init__.py").write_text(SLOW)
    command = [sys.executable, "-c", IMPORTING, home, worker]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    try:
        psutil.Process(int(done.stdout)).wait(seconds)
    except psutil.NoSuchProcess:
        return False
    except psutil.TimeoutExpired:
        os.kill(int(done.stdout), signal.SIGKILL)
        return True
    return False


def test_no_worker_outlives_a_parent_that_ends_while_it_imports(tmp_path: Path) -> None:
    assert not outlives(tmp_path, WORKER, 10)


def test_a_worker_that_only_watches_its_pipe_does_outlive_it(tmp_path: Path) -> None:
    kernel = "ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)"
    text = Path(WORKER).read_text()
    assert text.count(kernel) == 1
    (tmp_path / "worker.py").write_text(text.replace(kernel, "pass"))
    assert outlives(tmp_path, str(tmp_path / "worker.py"), 1)


def test_settings_out_of_range_are_refused(files: list[ImageFile]) -> None:
    with pytest.raises(ConfigError) as caught:
        Reader(-1)
    assert str(caught.value) == "workers must be at least 0, got -1"
    with pytest.raises(ConfigError) as caught:
        Reader(1, 0)
    assert str(caught.value) == "seconds must be a finite number above 0, got 0"
    with pytest.raises(ConfigError) as caught:
        Reader(0).batches(files, [[0]], PREPARATION, [[1]], "wild")
    assert str(caught.value) == "unknown strength of augmentation 'wild'; known: light, none, strong"


def test_images_stand_in_the_order_of_their_ids_with_their_labels(files: list[ImageFile]) -> None:
    images = Images.of(files, torch.arange(23))
    assert bool((images.ids[1:] > images.ids[:-1]).all())
    assert [int(file.name[:2]) for file in images.files] == images.labels.tolist()
    assert images.names == [file.name for file in images.files]
    part = images.take(torch.tensor([2, 7]))
    assert (len(images), len(part)) == (23, 2)
    assert part.names == [images.names[2], images.names[7]]
    assert part.labels.tolist() == images.labels[[2, 7]].tolist()
    assert Images.of(files, None).labels.tolist() == [-1] * 23
    assert len(Images.of([])) == 0


def test_two_images_of_one_id_are_refused(files: list[ImageFile]) -> None:
    with pytest.raises(InputDataError) as caught:
        Images.of([files[0], files[1], files[0]])
    assert str(caught.value) == (
        f"images: 00.png and 00.png have the same id {files[0].id}; leave one of them out or give it another name"
    )


def test_images_must_be_prepared_before_they_are_read(files: list[ImageFile]) -> None:
    with pytest.raises(InputDataError) as caught:
        Images.of(files).inputs(torch.tensor([0]))
    assert str(caught.value) == "images must be prepared for a network before they are read"


def test_the_training_view_depends_on_seed_round_epoch_and_id_alone(
    files: list[ImageFile], readers: list[Reader]
) -> None:
    images = Images.of(files).prepared(PREPARATION, readers[0], "strong")
    first = next(images.stream([torch.arange(23)], (1, 2, 3))).inputs
    for reader in readers:
        other = Images.of(files[::-1]).prepared(PREPARATION, reader, "strong")
        assert torch.equal(next(other.stream([torch.tensor([9, 4])], (1, 2, 3))).inputs, first[[9, 4]])
    few = images.take(torch.tensor([4, 9]))
    assert torch.equal(next(few.stream([torch.tensor([1])], (1, 2, 3))).inputs, first[[9]])
    for arguments in ((0, 2, 3), (1, 0, 3), (1, 2, 0)):
        assert not torch.equal(next(images.stream([torch.arange(23)], arguments)).inputs, first)


def test_without_augmentation_training_sees_what_evaluation_sees(files: list[ImageFile], readers: list[Reader]) -> None:
    images = Images.of(files).prepared(PREPARATION, readers[1], "none")
    rows = torch.tensor([3, 0, 3])
    assert torch.equal(next(images.stream([rows], (1, 2, 3))).inputs, images.inputs(rows))


def test_a_row_that_cannot_be_read_is_written_down_once(files: list[ImageFile], readers: list[Reader]) -> None:
    images = Images.of(files).prepared(PREPARATION, readers[0])
    Path(images.files[3].path).write_bytes(b"other")
    for _ in range(2):
        batch = images.inputs(torch.tensor([3, 1, 3]))
        next(images.stream([torch.tensor([3])], (0, 0, 0)))
    assert bool((batch[[0, 2]] == 128).all())
    assert images.rejected == [RejectedFile(images.names[3], "changed since the scan", "train")]


def test_a_worker_is_born_with_the_signals_of_a_terminal_blocked(tmp_path):
    """A Ctrl-C to the group in the instant of the fork must not kill it before it can ignore signals."""
    seen = tmp_path / "mask"
    program = (
        f"import signal; open({str(seen)!r}, 'w').write(str(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))))"
    )
    link = WorkerProcess(0, [sys.executable, "-c", program])
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with pytest.raises(ResourceError):
        link.start()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        assert name in seen.read_text()
