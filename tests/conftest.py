"""What holds for all tests: shapes of the equations are checked, one thread, examples that do not change by themselves.

`EMBASIS_HYPOTHESIS=thorough` draws fresh examples, 1500 a test, instead of the same 60.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from jaxtyping import install_import_hook

if any(name.startswith("embasis.functional") for name in sys.modules):
    raise RuntimeError("embasis.functional was imported before the shape checks could be installed")
install_import_hook("embasis.functional", "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from forked import Zygote  # noqa: E402

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
