"""An artefact for the zoo: a small run folder as this version writes it, with rows to label and the labels it gives.

    python tests/zoo/make.py        makes tests/zoo/<version>/, which must not be there

Every release adds its own and never changes those of others: tests/integration/test_zoo.py loads all of them for ever.
"""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
KINDS = {
    "em_basis-linear": ("--method", "em_basis", "--backbone", "linear"),
    "cbst-mlp": ("--method", "cbst", "--backbone", "mlp", "hidden=8", "source_epochs=4", "epochs=2"),
}


def make(home: Path) -> None:
    """A folder for each kind of model: run/, rows.csv, labels.csv."""
    sys.path.insert(0, str(HERE.parent / "support"))
    from cli_tables import embasis, write_tables

    for name, words in KINDS.items():
        place = home / name
        place.mkdir(parents=True)
        write_tables(place)
        sides = (place / "labelled.csv", place / "judged.csv")
        result = embasis("fit", *sides, "-o", place / "run", "rounds=1", *words)
        assert result.exit_code == 0, result.output
        (place / "unlabelled.csv").rename(place / "rows.csv")
        result = embasis("predict", place / "run", place / "rows.csv", "-o", place / "labels.csv")
        assert result.exit_code == 0, result.output
        for extra in ("turned.csv", "run/report.html"):  # a report can be written again
            (place / extra).unlink()
        newest = max((place / "run" / "generations").iterdir())
        for older in (path for path in (place / "run" / "generations").iterdir() if path != newest):
            shutil.rmtree(older)


if __name__ == "__main__":
    make(HERE / version("embasis"))
