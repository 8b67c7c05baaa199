"""Where things lie: tests import these instead of counting folders from their own place."""

from __future__ import annotations

import os
from pathlib import Path

SUPPORT = Path(__file__).parent
TESTS = SUPPORT.parent
ROOT = TESTS.parent
DATA = Path(os.environ.get("EMBASIS_DATA") or ROOT.parent / "shared" / "data")
"""Real data for development, beside the repository; tests that need them are skipped where they are not there."""
