"""The CSV files of benchmarks.choices as one Markdown table: accuracy and AUROC of each variant on each set.

python -m benchmarks.choices_table choices-digits.csv choices-surf.csv choices-googlenet.csv
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from pathlib import Path


def seed_means(rows: list[dict[str, str]], metric: str) -> list[float]:
    """One mean over pairs for each seed."""
    by_seed: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row[metric] not in ("", "None"):
            by_seed[row["seed"]].append(float(row[metric]))
    return [statistics.mean(values) for values in by_seed.values()]


def cell(rows: list[dict[str, str]], metric: str) -> str:
    means = seed_means(rows, metric)
    if not means:
        return "–"
    spread = f" ± {statistics.stdev(means):.3f}" if len(means) > 1 else ""
    return f"{statistics.mean(means):.3f}{spread}"


def main() -> None:
    tables: dict[str, dict[str, list[dict[str, str]]]] = {}
    for path in sys.argv[1:]:
        for row in csv.DictReader(Path(path).read_text().splitlines()):
            tables.setdefault(row["dataset"], {}).setdefault(row["variant"], []).append(row)
    names = list(dict.fromkeys(name for table in tables.values() for name in table))
    metrics = {"accuracy": "accuracy", "auroc": "AUROC", "ece": "ECE"}
    print("| variant | " + " | ".join(f"{data} {short}" for data in tables for short in metrics.values()) + " |")
    print("| --- |" + " --- |" * (len(tables) * len(metrics)))
    for name in names:
        cells = [cell(table.get(name, []), metric) for table in tables.values() for metric in metrics]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
