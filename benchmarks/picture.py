"""The README's picture from the runs.csv that `embasis compare … -o DIR` writes, for light and dark pages.

python -m benchmarks.picture compare-digits/runs.csv docs/images/digits
"""

from __future__ import annotations

import csv
import sys
from dataclasses import fields
from pathlib import Path

from embasis.report.drawing import dark
from embasis.report.figures import comparison
from embasis.report.tables import RunScore, summarise

TEXT = {"dataset", "pair", "method"}


def score(row: dict[str, str]) -> RunScore:
    values: dict[str, object] = {}
    for field in fields(RunScore):
        if field.name not in row:  # those of the classes, which the picture does not show
            continue
        cell = row[field.name]
        values[field.name] = cell if field.name in TEXT else int(cell) if field.name == "seed" else float(cell or "nan")
    for name in ("auroc", "trusted_precision"):
        values[name] = None if row[name] in ("", "None") else values[name]
    return RunScore(**values)  # type: ignore[arg-type]


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    rows = [score(row) for row in csv.DictReader(source.read_text().splitlines())]
    picture = comparison(summarise(rows))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.with_suffix(".svg").write_text(picture)
    target.with_name(target.name + "-dark").with_suffix(".svg").write_text(dark(picture))


if __name__ == "__main__":
    main()
