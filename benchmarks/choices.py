"""Every open choice of the method, one changed at a time from the default: the evidence of docs/decisions.

    python -m benchmarks.choices digits --seeds 3 -o choices-digits.csv
    python -m benchmarks.choices office_caltech10_surf --seeds 1 --root ../shared/data -o choices-surf.csv

Prints one line per variant as it ends, then writes one row per run. Settings are never chosen by these figures run by
run; they show what one fixed default, the same for all sets, gains or loses by each choice.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from embasis import config
from embasis.experiment.compare import compare
from embasis.report.tables import summarise

VARIANTS: dict[str, tuple[str, ...]] = {
    "default": (),
    "sharpness 10": ("method.sharpness=10",),
    "sharpness 20": ("method.sharpness=20",),
    "sharpness 40": ("method.sharpness=40",),
    "perplexity 2": ("method.perplexity=2",),
    "perplexity 5": ("method.perplexity=5",),
    "per_class 1": ("method.per_class=1",),
    "per_class 2": ("method.per_class=2",),
    "per_class 5": ("method.per_class=5",),
    "per_class 8": ("method.per_class=8",),
    "kernel gaussian": ("method.kernel=gaussian",),
    "centring joint": ("method.centring=joint",),
    "centring none": ("method.centring=none",),
    "standardise joint": ("standardise=joint", "method.centring=joint"),
    "start stage1": ("method.start=stage1",),
    "no EM": ("method.iterations=0",),
    "head counts": ("method.head=counts",),
    "variance_weight 0.1": ("method.variance_weight=0.1",),
    "variance_weight 1": ("method.variance_weight=1.0",),
    "sigma 0.3, 64 draws": ("method.sigma=0.3", "method.draws=64"),
    "evidence 0 (basis alone)": ("method.evidence=0",),
    "evidence 2": ("method.evidence=2",),
    "no tempering": ("method.temper=false",),
    "uncertainty between_sum": ("method.uncertainty=between_sum",),
    "uncertainty total_label": ("method.uncertainty=total_label",),
    "uncertainty between_label": ("method.uncertainty=between_label",),
    "uncertainty confidence": ("method.uncertainty=confidence",),
    "uncertainty literal": ("method.uncertainty=literal",),
    "labels draw": ("method.labels=draw",),
    "labels draw, temperature 0.3": ("method.labels=draw", "method.temperature=0.3"),
    "labels soft": ("method.labels=soft",),
    "weights inverse_variance": ("method.weights=inverse_variance",),
    "cap 0.8, step 0.1": ("method.cap=0.8", "method.step=0.1"),
    "cap 1, step 0.15": ("method.cap=1.0", "method.step=0.15"),
    "carry the basis": ("method.carry=true",),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--root")
    parser.add_argument("--only", help="comma-separated names of variants")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    chosen = arguments.only.split(",") if arguments.only else list(VARIANTS)
    rows = []
    for name in chosen:
        start = time.perf_counter()
        settings = config.load(None, VARIANTS[name])
        found = [
            outcome.score
            for outcome in compare(arguments.dataset, ["em_basis"], range(arguments.seeds), settings, arguments.root)
        ]
        rows += [{"variant": name, **score.cells()} for score in found]
        (summary,) = summarise(found)
        figures = "  ".join(
            f"{metric} {stat.mean:.3f}±{stat.std or 0:.3f}"
            for metric, stat in summary.stats.items()
            if metric in ("accuracy", "network_accuracy", "auroc", "ece", "trusted_precision") and stat.n
        )
        print(f"{name:32s} {figures}  {time.perf_counter() - start:.0f} s", flush=True)
    if arguments.output:
        lines = [",".join(rows[0])] + [",".join(f'"{value}"' for value in row.values()) for row in rows]
        arguments.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
