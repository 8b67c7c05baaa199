"""The study: comparison methods, peers, variants of em_basis and a factorial on all development sets.

    python -m benchmarks.method --root ../shared/data --seeds 5 -o study/
    python -m benchmarks.method pacs office_caltech10_surf --stages methods,variants -o study/
    python -m benchmarks.method mnist_usps pacs_adapter --stages methods,alignment,starts --seeds 3 -o study/
    python -m benchmarks.method pacs --only "em_basis,source_only,joint false" -o study/

Writes rows/ (a file for each set, pair, seed and stage), results.parquet, study.md and study.html. What is finished
with the same settings is not run again, so that the same command goes on after an interruption; a change of the code is
not noticed: use another folder. A set whose data are not there is skipped, and said.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

import msgspec

from benchmarks.method.candidates import SOURCE, STAGES, Candidate, all_candidates, candidates_of
from benchmarks.method.page import as_html, as_markdown
from benchmarks.method.peers import PEERS
from benchmarks.method.rows import Row, all_rows, write_parquet
from benchmarks.method.sets import SETS, StudySet, chosen_sets
from benchmarks.method.tables import tables
from benchmarks.method.work import Unit, alone, work
from embasis.benchmark.choice import leave_out
from embasis.errors import ConfigError, EmbasisError, join_names, require
from embasis.storage.atomic import write_output


def units_of(each: StudySet, stage: str, seeds: int, only: Sequence[str], quick: bool) -> list[Unit]:
    """The units of a set in a stage."""
    found = tuple(
        candidate
        for candidate in candidates_of(each, stage, only)
        if candidate.method != "peer" or PEERS[candidate.name].there
    )
    pairs = each.pairs()[: 2 if quick else None]
    wide = stage in ("variants", "factorial") and not only
    return [Unit(each, pair, seed, stage, found) for seed in each.seeds(seeds, wide) for pair in pairs if found]


def study(
    sets: Sequence[StudySet],
    folder: Path,
    root: str | None = None,
    *,
    seeds: int = 5,
    stages: Sequence[str] = STAGES,
    only: Sequence[str] = (),
    jobs: int = 1,
    quick: bool = False,
) -> tuple[int, list[str]]:
    """Run what is not finished, stage after stage, and write the results: how many rows are new, and what failed."""
    folder.mkdir(parents=True, exist_ok=True)
    new, failed, absent = 0, list[str](), dict[str, str | None]()
    for stage in stages:
        found = [unit for each in sets for unit in units_of(each, stage, seeds, only, quick)]
        todo = [unit for unit in found if unit.left(folder, root)]
        for unit in todo:
            if unit.set.name not in absent:
                absent[unit.set.name] = unit.set.missing(root)
                said = f"{unit.set.name} is skipped: {absent[unit.set.name]}"
                print(said, flush=True) if absent[unit.set.name] else None
        here = [possible(unit, root) for unit in todo if not absent[unit.set.name]]
        for rows, sentences in done([unit for unit in here if unit.left(folder, root)], folder, root, jobs):
            new, failed = new + rows, failed + sentences
        write_results(folder, root)
    return new, failed


def possible(unit: Unit, root: str | None) -> Unit:
    """Without the alignment methods that the set's data or network do not allow."""
    needed = {candidate.alignment for candidate in unit.candidates if candidate.alignment}
    fit = {"", *methods_that_fit(unit.set, tuple(sorted(needed)), root)} if needed else {""}
    return replace(unit, candidates=tuple(each for each in unit.candidates if each.alignment in fit))


@functools.cache
def methods_that_fit(each: StudySet, names: tuple[str, ...], root: str | None) -> tuple[str, ...]:
    """Those of these alignment methods that can run on a set; what is left out is said."""
    settings = Candidate(SOURCE, "methods", SOURCE).config(each, root)
    data = {**settings.data, **each.pairs()[0], "dataset": each.dataset}
    choice = leave_out((SOURCE, *names), (SOURCE,), msgspec.structs.replace(settings, data=data), root)
    print(f"{each.name}: {choice.sentence}", flush=True) if choice.sentence else None
    return choice.names


def done(units: Sequence[Unit], folder: Path, root: str | None, jobs: int) -> Iterator[tuple[int, list[str]]]:
    """What each unit came to, in this process or in several."""
    if jobs == 1:
        yield from (work(unit, folder, root) for unit in units)
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), alone) as pool:
        try:
            for future in as_completed([pool.submit(work, unit, folder, root) for unit in units]):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # what is under way ends, nothing new begins
            raise


def write_results(folder: Path, root: str | None) -> None:
    """The table of rows, and the pages; rows of other settings than today's are left out, and said."""
    rows, known = all_rows(folder), {candidate.name: candidate for candidate in all_candidates()}
    fresh = [row for row in rows if row["mark"] == mark_of(row, known, root)]
    write_parquet(folder / "results.parquet", fresh)
    found = tables(fresh)
    write_output(folder / "study.md", as_markdown(found))
    write_output(folder / "study.html", as_html(found))
    if len(rows) > len(fresh):
        print(f"{len(rows) - len(fresh)} rows of other settings than today's are left out of the tables", flush=True)


def mark_of(row: Row, known: Mapping[str, Candidate], root: str | None) -> str | None:
    """The mark that a row would have today; None where its set or candidate is gone."""
    each, candidate = SETS.get(row["set"]), known.get(row["variant"])
    return None if each is None or candidate is None else candidate.mark(each, root)


def chosen_stages(text: str) -> list[str]:
    """The stages of a list with commas, in their order; all for an empty one."""
    named = [name.strip() for name in text.split(",") if name.strip()]
    for name in named:
        require(name in STAGES, f"unknown stage {name!r}; known: {join_names(STAGES)}", ConfigError)
    return [stage for stage in STAGES if stage in named or not named]


def main(words: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}")
    parser.add_argument("--root", help="the folder of data packs")
    parser.add_argument("--seeds", type=int, default=5, help="of sets where a seed changes anything")
    parser.add_argument("--jobs", type=int, default=2, help="processes, of one thread each")
    parser.add_argument("--only", default="", help="names of candidates with commas between them")
    parser.add_argument("--stages", default="", help=f"of {','.join(STAGES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="one seed, two pairs a set, methods and peers alone")
    parser.add_argument("--tables", action="store_true", help="run nothing; write the tables of what is finished")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(words)
    only = [name.strip() for name in given.only.split(",") if name.strip()]
    few = given.quick and not only and not given.stages
    for name, peer in PEERS.items():
        if not peer.there:
            print(f"{name} is left out: {peer.package} is not installed; `make study` installs it")
    alone()
    try:
        stages = () if given.tables else chosen_stages(given.stages or ("methods" if few else ""))
        given.output.mkdir(parents=True, exist_ok=True)
        new, failed = study(
            chosen_sets(given.sets), given.output, given.root, seeds=1 if given.quick else given.seeds,
            stages=stages, only=only, jobs=given.jobs, quick=given.quick,
        )  # fmt: skip
        write_results(given.output, given.root)
    except EmbasisError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for sentence in failed:
        print(sentence, file=sys.stderr)
    print(f"{new} new rows; see {given.output}/study.md, study.html and results.parquet")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
