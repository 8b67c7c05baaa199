"""Commands as another user than root, to whom the system refuses nothing.

Root becomes uid 65534. Where that user may not come to Python or to this clone (root's home is closed), folders on the
way are covered, in a mount namespace of these commands alone, by empty ones with nothing but what is needed in them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import embasis

OTHER = 65534
COVER = """
set -e
user=$1; shift
for pair in $COVERED; do
    hold=$(mktemp -d); needed=${pair#*:}
    mount --bind "$needed" "$hold"
    holds="$holds $hold:$needed"
done
for pair in $COVERED; do
    mountpoint -q "${pair%%:*}" || mount -t tmpfs -o mode=755 none "${pair%%:*}"
done
for pair in $holds; do
    mkdir -p "${pair#*:}"
    mount --move "${pair%%:*}" "${pair#*:}"
    rmdir "${pair%%:*}"
done
exec setpriv --reuid="$user" --regid="$user" --clear-groups -- "$@"
"""
TOOLS = ("unshare", "mount", "setpriv", "mountpoint")


def needed() -> list[Path]:
    """The folders of Python, of its packages, of the tests and of embasis."""
    places = (sys.base_prefix, sys.prefix, embasis.__path__[0], Path(__file__).parents[1])
    found = {Path(path).resolve() for path in places}
    return sorted(path for path in found if not any(parent in found for parent in path.parents))


def closed(path: Path) -> Path | None:
    """The outermost folder on the way there that others may not enter."""
    way = [folder for folder in reversed([path, *path.parents]) if not folder.stat().st_mode & 0o001]
    return way[0] if way else None


def why_not() -> str:
    """Why nobody else can be had here; empty if somebody can, or if this is no root."""
    if os.geteuid():
        return ""
    if missing := [name for name in TOOLS if shutil.which(name) is None]:
        return f"no other user can be tried: {', '.join(missing)} is not installed"
    done = subprocess.run([*prefix(), "test", "-r", __file__], capture_output=True, text=True, check=False)
    return f"no other user can be tried: {done.stderr.strip() or 'the tests are closed to others'}" * bool(
        done.returncode
    )


def prefix(user: int = OTHER) -> list[str]:
    """What stands before a command that this user runs; nothing unless we are root."""
    if os.geteuid():
        return []
    ways = {path: closed(path) for path in needed()}
    covered = " ".join(f"{folder}:{path}" for path, folder in ways.items() if folder is not None)
    return ["env", f"COVERED={covered}", "unshare", "-m", "sh", "-c", COVER, "sh", str(user)]
