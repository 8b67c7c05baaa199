"""A run folder whose files somebody has changed and sealed anew: whoever made the folder made its manifest too."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from storage_runs import sealed


def entry(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def newest(run: Path) -> Path:
    return max((run / "generations").iterdir(), key=lambda path: int(path.name))


def unsealed(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_bytes())
    del value["seal"]
    return dict(value)


def reseal(run: Path) -> None:
    """The newest generation names the files of the run as they are now; so does the list of each folder of maps."""
    for marker in run.glob("labels/*/maps.json"):
        reseal_maps(marker)
    manifest = newest(run) / "manifest.json"
    facts = unsealed(manifest)
    names = [name for name in facts["sealed"] if (run / name).is_file()]
    facts["sealed"] |= {name: entry((run / name).read_bytes()) for name in names}
    manifest.write_bytes(sealed(facts))


def reseal_maps(marker: Path) -> None:
    """The list of hashes of a folder of maps, and the marker that vouches for it."""
    listed = marker.parent / "maps.sha256"
    names = [line[66:] for line in listed.read_text().split("\n")[:-1]]
    lines = [f"{hashlib.sha256((marker.parent / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    listed.write_text("".join(lines))
    marker.write_bytes(sealed({**unsealed(marker), "digests": hashlib.sha256("".join(lines).encode()).hexdigest()}))
