"""`embasis import-maps`: label maps that people have corrected in CVAT, as corrections."""

from __future__ import annotations

from pathlib import Path

from embasis.cli.console import echo, format_count, quote_path
from embasis.runs.cvat import import_cvat


def import_maps(run: str, archive: str, output: str, unchanged: bool) -> None:
    """Write the corrected maps of an archive, and print how many there are."""
    counts = import_cvat(run, archive, output, unchanged)
    echo(f"wrote {output}: {format_count(counts.taken, 'corrected map')}")
    for number, why in ((counts.unchanged, "as the run has them"), (counts.empty, "without a labelled pixel")):
        if number:
            echo(f"note: left out: {format_count(number, 'map')} {why}")
    echo(f"next: embasis fit LABELLED UNLABELLED -o NEW --corrections {quote_path(Path(output))}")
