"""What bit-identical results depend on beside data, config and seed."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("embasis", "torch", "numpy", "scikit-learn", "safetensors", "pyarrow", "pillow", "timm", "simplejpeg")


def environment(seed: int, device: str = "cpu") -> dict[str, Any]:
    """Versions, machine type, threads and seed: what bit-identical results depend on. No names of people or hosts."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "device": device,
        "threads": torch.get_num_threads(),
        "packages": {name: version_of(name) for name in PACKAGES},
        "commit": commit(),
        "seed": seed,
    }


def version_of(name: str) -> str | None:
    """The installed version, if any."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit of the clone that runs, if it is one."""
    git = Path(__file__).resolve().parents[3] / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        return (git / head[5:]).read_text().strip() if head.startswith("ref: ") else head
    except OSError:
        return None
