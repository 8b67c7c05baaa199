"""`embasis list`: the names of methods, data sets, networks and metrics, with their settings; no torch is imported."""

from __future__ import annotations

import textwrap

from embasis.catalogue import REGISTRIES, entries
from embasis.cli.console import echo
from embasis.report.tables import LEGEND

WIDTH = 80
BUILT_ON = (
    "network.backbone=efficientnet_lite0 or timm:MODEL, and its network.weights='' and network.pretrained=true; "
    "small_fcn, deeplab_v2 and fast_segment are for label maps"
)


def list_entries(kind: str | None) -> None:
    """Print the entries of one kind, or of all."""
    kinds = tuple(REGISTRIES) if kind is None else (kind,)
    echo("\n\n".join(format_entries(name) for name in kinds))


def format_entries(kind: str) -> str:
    """All entries of one kind in 80 columns."""
    lines = [kind]
    for entry in entries(kind):
        lines += [f"  {entry.name}", *indent(entry.summary)]
        lines += indent(", ".join(entry.settings)) if entry.settings else []
    if kind == "backbones":
        lines += ["  what deeplab_v2 and fast_segment are built on", *indent(BUILT_ON)]
    if kind == "metrics":
        lines += ["  columns of compare's table", *indent(LEGEND)]
    return "\n".join(lines)


def indent(text: str) -> list[str]:
    """Wrapped lines below a name."""
    return textwrap.wrap(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False)
