"""What tests share: a disk that fails."""

from __future__ import annotations
