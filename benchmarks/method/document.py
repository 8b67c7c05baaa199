"""The tables of docs/methods.md, one for each family of methods, from the finished rows of a study.

    python -m benchmarks.method.document study/results.parquet
    python -m benchmarks.method.document study/results.parquet --sets digits,mnist_usps,scenes

Writes between the two marks of each family and nowhere else: for each set and method what its labels come to (accuracy,
of label maps mean IoU), ECE, and its cost: processor seconds where source_only has 1 on the same pairs and seeds.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.method.candidates import SOURCE
from benchmarks.method.rows import Row
from benchmarks.method.tables import NONE, of, scope, score
from embasis.benchmark.scores import escape_markdown, format_stat, markdown_lines, summarise_runs
from embasis.errors import EmbasisError, InputDataError, require
from embasis.methods import FAMILIES
from embasis.storage.atomic import read_stored_table, write_output

PAGE = Path(__file__).resolve().parents[2] / "docs" / "methods.md"
HEAD = ("set", "method", "accuracy", "ECE", "cost", "runs")
NOTE = (
    "Mean over pairs, ± standard deviation over seeds where there are several; on label maps the first figure is mean\n"
    "IoU. Cost: processor seconds, where `source_only` has 1. How they were run:\n"
    "[benchmarks/README.md](../benchmarks/README.md)."
)
WITHOUT = "Without figures here:"
NOTHING = "No figures of this family are written here yet: [benchmarks/README.md](../benchmarks/README.md)."


def opening_mark(family: str) -> str:
    """The line before the table of a family."""
    return f"<!-- figures of {family}: python -m benchmarks.method.document -->"


CLOSING_MARK = "<!-- end of figures -->"


def read_results(path: Path) -> list[Row]:
    """The rows of a study; a figure that a row lacks is None."""
    columns = read_stored_table(path)
    lacking = [name for name in ("set", "pair", "seed", "variant", "method", "cpu_seconds") if name not in columns]
    rule = f"{path} is no results.parquet of a study: it has no column {', '.join(lacking)}"
    require(not lacking, f"{rule}; python -m benchmarks.method writes one", InputDataError)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def write_tables(page: str, rows: Sequence[Row]) -> str:
    """The page with the table of each family between its marks."""
    for family, methods in FAMILIES.items():
        before, opening, rest = page.partition(opening_mark(family))
        _, closing, after = rest.partition(CLOSING_MARK)
        require(opening and closing, f"the page has no marks of {family}: {opening_mark(family)} and {CLOSING_MARK}")
        page = f"{before}{opening}\n\n{family_table(rows, methods)}\n\n{closing}{after}"
    return page


def family_table(rows: Sequence[Row], methods: Mapping[str, object]) -> str:
    """One table in Markdown: set after set, the source model first, then the methods of the family."""
    names = list(dict.fromkeys((SOURCE, *methods)))
    plain = [row for row in rows if row["variant"] == row["method"] and row["method"] in names]
    lines = [
        line
        for each in dict.fromkeys(row["set"] for row in plain)
        for line in set_lines([row for row in plain if row["set"] == each], names)
    ]
    if not lines:
        return NOTHING
    rule = ["---", "---", *["---:"] * (len(HEAD) - 3), "---"]
    lacking = [name for name in methods if f"`{name}`" not in {line[1] for line in lines}]
    gaps = f"\n{WITHOUT} {', '.join(f'`{name}`' for name in lacking)}." if lacking else ""
    return f"{markdown_lines([list(HEAD), rule, *lines])}\n\n{NOTE}{gaps}"


def set_lines(rows: Sequence[Row], names: Sequence[str]) -> list[list[str]]:
    """The lines of a set; a set on which none but the source model ran has none."""
    lines = []
    for name in names:
        own = [row for row in rows if row["variant"] == name]
        if not own:
            continue
        summary = summarise_runs(map(score, own))[0]
        measure = "accuracy" if summary.stats["mean_iou"].mean is None else "mean_iou"
        figures = [format_stat(metric, summary.stats[metric]) for metric in (measure, "ece")]
        place = escape_markdown(str(own[0]["set"]))
        lines.append([place, f"`{name}`", *figures, cost(of(rows, name), of(rows, SOURCE)), scope(own)])
    return lines if any(line[1] != f"`{SOURCE}`" for line in lines) else []


def cost(own: Mapping[tuple[str, int], Row], source: Mapping[tuple[str, int], Row]) -> str:
    """Processor seconds of both on the pairs and seeds that both have, as a quotient."""
    shared = [key for key in own if key in source]
    seconds = [math.fsum(rows[key]["cpu_seconds"] for key in shared) for rows in (own, source)]
    return f"{seconds[0] / seconds[1]:.1f}" if shared and seconds[1] > 0 else NONE


def main(words: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="results.parquet of a study")
    parser.add_argument("--sets", default="", help="names of sets with commas between them; all if left out")
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args(words)
    wanted = [name.strip() for name in given.sets.split(",") if name.strip()]
    try:
        rows = read_results(given.results)
        known = list(dict.fromkeys(row["set"] for row in rows))
        for name in wanted:
            require(name in known, f"{given.results} has no set {name}; it has {', '.join(known)}", InputDataError)
        kept = [row for row in rows if not wanted or row["set"] in wanted]
        write_output(given.page, write_tables(given.page.read_text(encoding="utf-8"), kept))
    except EmbasisError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"wrote the tables of {len(FAMILIES)} families in {given.page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
