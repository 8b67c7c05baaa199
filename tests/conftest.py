"""What holds for all tests: shapes of the equations are checked, one thread, examples that do not change by themselves.

`EMBASIS_HYPOTHESIS=thorough` draws fresh examples, 1500 a test, instead of the same 60.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jaxtyping import install_import_hook

if any(name.startswith("embasis.functional") for name in sys.modules):
    raise RuntimeError("embasis.functional was imported before the shape checks could be installed")
install_import_hook("embasis.functional", "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from cli_tables import copied  # noqa: E402
from embasis.data.reader import Reader  # noqa: E402
from forked import Zygote  # noqa: E402
from storage_runs import make_runs_fast  # noqa: E402

torch.set_num_threads(1)

# Tensors are slow to draw beside what hypothesis expects, and a shared machine is slower still: time says nothing here.
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "quick", deadline=None, derandomize=True, database=None, max_examples=60, suppress_health_check=QUIET
)
settings.register_profile(
    "thorough", deadline=None, database=None, max_examples=1500, print_blob=True, suppress_health_check=QUIET
)
settings.load_profile(os.environ.get("EMBASIS_HYPOTHESIS", "quick"))


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """The process that commands are forked from; its start takes seconds, so there is one for all tests."""
    with Zygote() as process:
        yield process


@pytest.fixture
def tables(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the module's finished run of tables, to spoil, as the current folder; `made` is the module's own."""
    return copied(made / "tables", tmp_path / "here", monkeypatch)


@pytest.fixture
def images(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same of images."""
    return copied(made / "images", tmp_path / "here", monkeypatch)


@pytest.fixture
def maps(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same of label maps."""
    return copied(made / "maps", tmp_path / "here", monkeypatch)


@pytest.fixture
def fast_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    make_runs_fast(monkeypatch)


@pytest.fixture(scope="module")
def fast_runs_in_module() -> Iterator[None]:
    """The same for runs that the tests of a module share."""
    with pytest.MonkeyPatch.context() as patch:
        make_runs_fast(patch)
        yield


@pytest.fixture
def plain_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are tested elsewhere; drawing them takes seconds."""
    monkeypatch.setattr("embasis.runs.run.run_page", lambda view: "page")


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """Whoever started the tests may have signals ignored, and then the command leaves them so."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that anybody may enter: those of pytest are the user's own."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def readers() -> Iterator[list[Reader]]:
    """Readers without, with one and with two workers; started once, for workers take seconds to start."""
    found = [Reader(count) for count in (0, 1, 2)]
    yield found
    for reader in found:
        reader.close()
