"""Every entry point under an audit hook, with hostile files: `python tests/support/audited.py FOLDER EVERY FIRST`.

Prints JSON: how many files and calls there were, and every fault: a deed the hook saw, a canary, a wrong exit code, a
second kind of loader, a file outside that changed, too much time or memory. EVERY = 7 takes every seventh file, from
FIRST on. At the end embasis is broken on purpose, in several ways; `broken` says how many faults are found then.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))  # benchmarks/

import audit_hook
import hostile_files as hostile
from audit_hook import Watch

SECONDS, MEMORY = 2.0, 512 * 2**20
"""Of processor, and of memory beyond what was used before: for one call."""


@dataclass(frozen=True)
class Case:
    """A hostile file in its place, the commands that meet it there, and the exit codes that are right."""

    name: str
    plant: Callable[[Path], Any]
    commands: tuple[tuple[Any, ...], ...]
    codes: frozenset[int]
    files: int = 1
    slow: bool = False
    """Starts processes of its own, so time says nothing."""


@dataclass
class Tally:
    """What has been found so far."""

    files: int = 0
    calls: int = 0
    faults: list[str] = field(default_factory=list)
    loaders: set[str] = field(default_factory=set)


def put(name: str, data: bytes) -> Callable[[Path], None]:
    def plant(place: Path) -> None:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)

    return plant


def in_run(name: str, data: bytes) -> Callable[[Path], None]:
    """In all generations of the run, with manifests that vouch for it; or elsewhere in its folder."""
    from storage_runs import forge_file

    def plant(place: Path) -> None:
        for home in sorted((place / "run" / "generations").iterdir()):
            if name in ("tensors.safetensors", "facts.json"):
                forge_file(place / "run", int(home.name), name, data)
            elif name == "manifest.json":
                (home / name).write_bytes(data)
        if name not in ("tensors.safetensors", "facts.json", "manifest.json"):
            put(f"run/{name}", data)(place)

    return plant


PREDICT = ("predict", "run", "judged.csv", "-o", "l.csv")
REPORT, EXPORT = ("report", "run"), ("export", "run", "-o", "e.csv", "--as", "csv")
RESUME = ("fit", "labelled.csv", "judged.csv", "-o", "run", "rounds=1")
TASKS = ("export", "run", "-o", "e.json", "--as", "label-studio", "--table", "judged.csv")
REVIEW = ("python", "review", "judged.csv")
OF_RUN = (PREDICT, REPORT, EXPORT, RESUME, TASKS, REVIEW, ("python", "newest", "run"), ("python", "image model", "run"))
IMAGES = (
    "--backbone",
    "timm:test_efficientnet",
    "network.pretrained=false",
    "network.size=32",
    "workers=0",
    "rounds=1",
)


def cases(canary: Path, clean: bytes, facts: dict[str, Any]) -> Iterator[Case]:
    """The corpus."""
    payloads = hostile.payloads(canary)
    yield from table_cases(payloads, clean)
    yield from annotation_cases(payloads)
    yield from run_cases(payloads)
    yield from weight_cases(payloads)
    for name, data in hostile.configs().items():
        words = ("fit", "labelled.csv", "judged.csv", "-o", "new", "rounds=0", "--config", name)
        # a file without a fault of its own is used: what it names is then looked up, and refused
        commands = (words,) if name in ("shell.toml", "template.toml") else (words, ("python", "config", name))
        yield Case(f"config {name}", put(name, data), commands, frozenset({2, 4}))
    for name, payload in payloads.items():
        for ending in (".toml", ".json"):
            words = ("fit", "labelled.csv", "judged.csv", "-o", "new", "--config", f"c{ending}")
            place = put(f"c{ending}", payload)
            yield Case(f"config{ending} {name}", place, (words, ("python", "config", f"c{ending}")), frozenset({2}))
    yield from picture_cases(payloads)
    yield from pack_cases({**payloads, **hostile.bombs()})
    yield from lie_cases(facts)


def table_cases(payloads: dict[str, bytes], clean: bytes) -> Iterator[Case]:
    found = {f"{name} in {table}": (table, data) for name, payload in payloads.items()
             for table, data in hostile.as_tables(payload).items()}  # fmt: skip
    found |= {name: (name, data) for name, data in hostile.bombs().items()}
    found |= {name: (name, data) for name, data in hostile.polyglots(payloads["stack global"], clean).items()}
    for name, (file, data) in found.items():
        readable = name in ("label.npz", "many entries.npz")
        commands: tuple[tuple[Any, ...], ...] = (
            ("fit", file, "judged.csv", "-o", "new"), ("fit", "labelled.csv", file, "-o", "new"), ("check", file, file),
            ("predict", "run", file, "-o", "l.csv"), ("python", "table", file), ("review", "run", file),
            ("fit", "labelled.csv", "judged.csv", "-o", "new", "--corrections", file),
            *((("python", "array", file),) if file.endswith(".npy") else ()),
        )  # fmt: skip
        yield Case(f"table {name}", put(file, data), commands, frozenset({0, 3} if readable else {2, 3}))


def annotation_cases(payloads: dict[str, bytes]) -> Iterator[Case]:
    """What comes back from Label Studio and from CVAT."""
    for name, payload in payloads.items():
        words = ("fit", "labelled.csv", "judged.csv", "-o", "new", "--corrections", "t.json")
        yield Case(f"tasks {name}", put("t.json", payload), (words,), frozenset({3}))
        label_map = b"c0:0,0,255::\nc1:9,8,7::\n"
        archives = {
            "raw": payload,
            "labelmap": hostile.zipped({"labelmap.txt": payload, "SegmentationClass/a.png": payload}),
            "mask": hostile.zipped({"labelmap.txt": label_map, "SegmentationClass/../../a.png": payload}),
        }
        for kind, data in archives.items():
            commands = (("import-maps", "run", "m.zip", "-o", "fixed"), ("python", "masks", "m.zip"))
            yield Case(f"masks {kind} {name}", put("m.zip", data), commands, frozenset({2, 3}))


def run_cases(payloads: dict[str, bytes]) -> Iterator[Case]:
    for name, payload in payloads.items():
        for file in ("tensors.safetensors", "facts.json", "manifest.json"):
            yield Case(f"run {file} {name}", in_run(file, payload), OF_RUN, frozenset({4}))
        for file in ("environment.json", "timings.jsonl", "quarantine.jsonl"):  # copies for people, never read
            yield Case(f"run {file} {name}", in_run(file, payload), (REPORT, RESUME), frozenset({0}))
        place = in_run("labels/round-001.parquet", payload)
        yield Case(f"run labels {name}", place, (REPORT, EXPORT), frozenset({4}))
        yield Case(f"run labels again {name}", place, (RESUME,), frozenset({0}), files=0)
        # a HEAD that says nothing is damage; the generations are whole, and are used with a warning
        yield Case(f"run HEAD {name}", in_run("HEAD", payload), (PREDICT, EXPORT), frozenset({0, 4}))
    for name, data in hostile.malformed().items():
        # a generation of tensors that say the truth is refused because they are others than the run's
        yield Case(f"run tensors {name}", in_run("tensors.safetensors", data), OF_RUN, frozenset({4}))


def lie_cases(facts: dict[str, Any]) -> Iterator[Case]:
    """Facts of a run with one value replaced or left out, in generations whose manifests vouch for them.

    What does not matter to a command may be anything; what it needs and cannot be is damage, never a bug of ours."""
    lies = (None, -1, 10**9, hostile.MARK, [], {}, LEFT_OUT)
    for place, path in enumerate(paths_in(facts)):
        for number in (
            {place % len(lies), (place + 3) % len(lies), len(lies) - 1} if len(path) > 1 else range(len(lies))
        ):
            lie = lies[number]
            data = json.dumps(changed(facts, path, lie)).encode()
            name = f"lie {number} in {'.'.join(map(str, path))}"
            commands = (PREDICT, REPORT, EXPORT, (TASKS, REVIEW)[place % 2])
            yield Case(name, in_run("facts.json", data), commands, frozenset({0, 2, 3, 4}))


def pack_cases(payloads: dict[str, bytes]) -> Iterator[Case]:
    """Files of published sets, which `compare`, `ablate` and `fit --dataset` read from a folder of packs."""
    short = ("--seeds", "1", "--root", "packs", "source=amazon", "target=webcam")
    for name, payload in payloads.items():
        surf = "office_caltech10_surf"
        words = (("compare", surf, "--methods", "cbst", *short), ("ablate", surf, *short),
                 ("fit", "--dataset", surf, "--root", "packs", "-o", "new"))  # fmt: skip
        headed = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + payload
        for kind, data in (("raw", payload), ("headed", headed)):
            yield Case(f"pack .mat {kind} {name}", put("packs/surf/amazon.mat", data), words, frozenset({3}))
        arrays = {"raw": payload, "object": hostile.zipped({"train_x.npy": hostile.npy_object(payload)})}
        for kind, data in arrays.items():
            digits = (("compare", "mnist_usps", "--methods", "cbst", "--seeds", "1", "--root", "packs"),)
            yield Case(f"pack .npz {kind} {name}", put("packs/mnist.npz", data), digits, frozenset({3}))


LEFT_OUT = object()


def paths_in(value: Any, depth: int = 3) -> Iterator[tuple[Any, ...]]:
    """Where values are, of a list only the first."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in items if depth else ():
        yield (key,)
        yield from ((key, *path) for path in paths_in(inner, depth - 1))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value there."""
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    if new is LEFT_OUT:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return copy


def weight_cases(payloads: dict[str, bytes]) -> Iterator[Case]:
    fit = ("fit", "photos", "paintings", "-o", "new", *IMAGES)
    refused = frozenset({4})
    for name, payload in {**payloads, **hostile.malformed()}.items():
        words = (*fit, "network.weights=w.safetensors")
        place = put("w.safetensors", payload)
        told = name in ("bool of 7", "many names")  # strange, and yet true: they are read, and fit no network
        alone = () if told else (("python", "weights", "w.safetensors"),)
        yield Case(f"weights {name}", place, (words, *alone), refused)
    for name, payload in payloads.items():
        torch_zip = hostile.zipped({"w/data.pkl": payload, "w/version": b"3\n", "w/data/0": bytes(8)})
        for ending, data in ((".pt", payload), (".pth", torch_zip), (".pkl", payload), (".joblib", payload)):
            imported = ("import-weights", f"w{ending}", "-o", "o.safetensors")
            commands = (imported, (*fit, f"network.weights=w{ending}"), ("python", "weights", f"w{ending}"))
            yield Case(f"weights{ending} {name}", put(f"w{ending}", data), commands, refused)
    for name, data in hostile.malformed().items():
        imported = ("import-weights", "w.pt", "-o", "o.safetensors")
        yield Case(f"import {name}", put("w.pt", data), (imported,), refused)


def picture_cases(payloads: dict[str, bytes]) -> Iterator[Case]:
    """All payloads at once, as pictures and as label maps: none can be read, so the budget is passed."""

    def plant(place: Path) -> None:
        for number, data in enumerate(payloads.values()):
            put(f"paintings/{number}.png", data)(place)
            put(f"photos/x/{number}.jpg", data)(place)

    def maps(place: Path) -> None:
        from map_trees import TOML, scenes

        for name, data in scenes(3).items():
            put(f"drawn/{name}", data)(place)
            put(f"streets/{name}", data)(place)
        put("drawn/classes.toml", TOML.encode())(place)
        for number, data in enumerate(payloads.values()):
            put(f"drawn/labels/{number % 3}.png", data)(place)

    seen = (("fit", "photos", "paintings", "-o", "new", *IMAGES), ("check", "photos", "paintings", "--workers", "0"))
    yield Case("pictures", plant, seen, frozenset({3}), files=2 * len(payloads), slow=True)
    words = (("check", "drawn", "streets", "--workers", "0"), ("fit", "drawn", "streets", "-o", "new", "workers=0"))
    yield Case("label maps", maps, words, frozenset({3}), files=len(payloads), slow=True)
    for name, payload in payloads.items():
        plants = (maps, put("drawn/classes.toml", payload))
        yield Case(
            f"classes {name}",
            lambda spot, plants=plants: [plant(spot) for plant in plants],
            words[:1],
            frozenset({2, 3}),
        )


# --- calls


def python(what: str, path: str) -> int:
    """A Python entry point; the code of its refusal, 0 if it has none. Anything but a refusal of ours is a bug: 1."""
    from embasis.errors import EmbasisError

    def entry() -> object:
        if what == "newest":
            from embasis.runs.model import load_model
            from embasis.storage import read_newest

            found = read_newest(path)
            return load_model(found.facts, found.tensors, Path(path))
        if what == "image model":
            from embasis import ImageModel

            return ImageModel.load(path)
        if what == "table":
            from embasis.data.tables import read_table

            return read_table(path)
        if what == "review":
            from embasis.runs.open_review import ReviewOptions, open_review

            return open_review("run", ReviewOptions(path)).describe(0)
        if what == "masks":
            from embasis.data.segmentation.cvat import open_masks

            with open_masks(Path(path), ("c0", "c1")) as archive:
                return [archive.read(name, (2, 2)) for name in archive.members]
        if what == "array":
            from benchmarks.array_file import ArrayFile

            return list(ArrayFile(path))
        if what == "config":
            from embasis import config
            from embasis.data.datasets.digit_sets import blobs
            from embasis.runs.parts import build

            return build(blobs(count=30), config.load(path))
        from embasis.weights import files as weights

        return weights.read_weights(path)

    try:
        entry()
    except EmbasisError as error:
        return error.exit_code
    except Exception as error:
        print(f"{what} {path}: {error!r}", file=sys.stderr)
        return 1
    return 0


def call(words: Sequence[Any]) -> tuple[int, str]:
    """A command or an entry point, and its output."""
    if words[0] == "python":
        return python(*words[1:]), ""
    from click.testing import CliRunner

    from embasis.cli import main

    result = CliRunner().invoke(main, [str(word) for word in words])
    return result.exit_code, result.output


def tree_of(place: Path) -> dict[str, tuple[int, int]]:
    """What lies beside the folder of a case."""
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in place.rglob("*")}


def judge(case: Case, words: Sequence[Any], place: Path, canary: Path, tally: Tally) -> None:
    """One call, and everything that may be wrong with it."""
    tally.loaders.clear()
    Watch.deeds.clear()
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    code, output = call(words)
    seconds = time.process_time() - began
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    tally.calls += 1
    where = f"{case.name}: {' '.join(map(str, words))[:120]}"
    faults = [f"deed: {deed}" for deed in Watch.deeds]
    faults += [f"exit code {code}, not {sorted(case.codes)}: {output[-300:]!r}"] if code not in case.codes else []
    faults += ["the canary is there"] if canary.exists() else []
    faults += [f"loaders {sorted(tally.loaders)}"] if len(tally.loaders) > 1 else []
    faults += [f"{seconds:.1f} s"] if seconds > SECONDS and not case.slow else []
    faults += [f"{more / 2**20:.0f} MB more"] if more > MEMORY else []
    faults += ["a control character in its output"] if "\x1b" in output else []
    tally.faults += [f"{where}: {fault}" for fault in faults]
    canary.unlink(missing_ok=True)
    os.chdir(place)


def count_loaders(tally: Tally) -> None:
    """Note each kind of loader that is called; each does what it always does."""
    import numpy
    import safetensors.torch
    import torch

    for module, name, kind in (
        (safetensors.torch, "load", "safetensors"), (safetensors.torch, "load_file", "safetensors"),
        (torch, "load", "torch"), (numpy, "load", "numpy"),
    ):  # fmt: skip
        usual = getattr(module, name)

        def counted(*arguments: Any, usual: Any = usual, kind: str = kind, **named: Any) -> Any:
            tally.loaders.add(kind)
            return usual(*arguments, **named)

        setattr(module, name, counted)


def base(folder: Path) -> Path:
    """Clean files and a finished run; every entry point is called once with them, and must do well."""
    from cli_tables import write_tables
    from image_runs import sides

    place = folder / "base"
    place.mkdir(parents=True)
    write_tables(place)
    sides(place, each=3)
    os.chdir(place)
    fits = (
        ("fit", "labelled.csv", "judged.csv", "-o", "run", "rounds=1"),
        PREDICT,
        REPORT,
        EXPORT,
        RESUME,
        TASKS,
        REVIEW,
    )
    for words in (*fits, ("check", "labelled.csv", "judged.csv"), ("list",), ("list", "methods")):
        code, output = call(words)
        assert code == 0, output
    for path in ("l.csv", "e.csv", "e.json"):
        os.unlink(path)
    return place


def warm(place: Path) -> None:
    """The slow imports of pictures, and a comparison: done once, while names of code are learned."""
    os.chdir(place)
    for words in (
        ("fit", "photos", "paintings", "-o", "pictures", *IMAGES), ("compare", "blobs", "--methods", "cbst", "--seeds",
        "1", "count=60", "plan.rounds=1", "-o", "compared"), ("predict", "pictures", "paintings", "-o", "l.csv",
        "--workers", "0"), ("export", "pictures", "-o", "e", "--as", "folder", "--images", "paintings", "--all"),
    ):  # fmt: skip
        code, output = call(words)
        assert code == 0, output
    for path in ("pictures", "compared", "e"):
        shutil.rmtree(path)
    os.unlink("l.csv")


def run(chosen: Sequence[Case], folder: Path, tally: Tally) -> None:
    """Each case in a fresh copy of the clean folder."""
    for case in chosen:
        tally.files += case.files
        for words in case.commands:
            spot = folder / "case"
            pictures = () if "photos" in words else ("photos", "paintings")
            shutil.copytree(folder / "base", spot, symlinks=True, ignore=shutil.ignore_patterns(*pictures))
            os.chdir(spot)
            case.plant(spot)
            judge(case, words, spot, folder / "canary", tally)
            os.chdir(folder)
            shutil.rmtree(spot)


# --- deliberate breakages: what the harness must see


def load_pickled_arrays() -> tuple[str, str, Any]:
    """numpy's own reader for .npy files, with pickles allowed."""
    return "embasis.data.tables", "read_array", load_with_pickles


def load_packs_of_pickles() -> tuple[str, str, Any]:
    """The same for the arrays of an .npz file, which another module reads."""
    return "embasis.data.formats", "read_array", load_with_pickles


def load_with_pickles(stream: Any, *_: object) -> Any:
    import numpy as np

    stream.seek(0)
    return np.load(stream, allow_pickle=True)


def try_another_loader() -> tuple[str, str, Any]:
    """Weights that safetensors refuses are given to torch."""
    import torch

    from embasis.errors import EmbasisError
    from embasis.weights import files as weights

    usual = weights.read_weights

    def broken(path: str) -> Any:
        try:
            return usual(path)
        except EmbasisError:
            return torch.load(path, weights_only=False)

    return "embasis.weights.files", "read_weights", broken


def believe_the_manifest() -> tuple[str, str, Any]:
    """Facts whose hash is right, and that are not JSON, are unpickled."""
    import pickle

    def broken(data: bytes, where: object) -> Any:
        return json.loads(data) if data.startswith(b"{") else pickle.loads(data)

    return "embasis.storage.checkpoints", "parse_json", broken


def import_anything() -> tuple[str, str, Any]:
    """Foreign weights are not looked through, and are read here."""
    import io

    import torch

    def broken(path: str, data: bytes) -> bytes:
        return torch.load(io.BytesIO(data), weights_only=False)  # type: ignore[no-any-return]

    return "embasis.weights.torch_import", "filter_archive", broken


def run_settings() -> tuple[str, str, Any]:
    """A name in a config is evaluated."""
    return "embasis.config", "make_config", lambda raw: eval(str(raw["method"]["name"]))


NAMED = f"[method]\nname = '1 # {hostile.MARK}'".encode()
BREAKAGES = {
    "pickled arrays are loaded": (load_pickled_arrays, lambda payload: ("object.npy", hostile.npy_object(payload)),
                                  ("check", "object.npy", "object.npy"), 3),
    "pickled arrays in packs are loaded": (load_packs_of_pickles,
                                           lambda payload: ("object.npz", hostile.as_tables(payload)["object.npz"]),
                                           ("check", "object.npz", "object.npz"), 3),
    "refused weights get another loader": (try_another_loader, lambda payload: ("w.pt", payload),
                                           ("python", "weights", "w.pt"), 4),
    "facts are unpickled": (believe_the_manifest, lambda payload: ("facts.json", payload), PREDICT, 4),
    "foreign weights are loaded in this process": (import_anything, lambda payload: ("w.pt", payload),
                                                   ("import-weights", "w.pt", "-o", "o.safetensors"), 4),
    "names in settings are evaluated": (run_settings, lambda payload: ("c.toml", NAMED),
                                       ("fit", "labelled.csv", "judged.csv", "-o", "new", "--config", "c.toml"), 2),
}  # fmt: skip
"""Name → how embasis is broken, the hostile file, the command that meets it, and the code it should end with."""


def found_when(breakage: Any, folder: Path) -> list[str]:
    """The faults that are found in embasis, broken like this, with one hostile file."""
    from importlib import import_module

    how, file_of, words, code = breakage
    module, name, broken = how()
    name_of_file, data = file_of(hostile.payloads(folder / "canary")["text protocol"])
    plant = in_run(name_of_file, data) if name_of_file == "facts.json" else put(name_of_file, data)
    tally, home = Tally(), import_module(module)
    usual = getattr(home, name)
    setattr(home, name, broken)
    try:
        run([Case(name, plant, (words,), frozenset({code}))], folder, tally)
    finally:
        setattr(home, name, usual)
    return [fault.partition(": ")[2][:160] for fault in tally.faults]


def main(folder: Path, every: int, first: int) -> None:
    """The whole."""
    warnings.simplefilter("ignore")
    site = folder / "site"
    site.mkdir(parents=True)
    shutil.copy(audit_hook.__file__, site / "sitecustomize.py")
    sys.path.append(str(site))
    os.environ |= {"EMBASIS_CACHE": str(folder / "cache"), "HOME": str(folder / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
    (folder / "tmp").mkdir()
    os.environ |= {"TMPDIR": str(folder / "tmp"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "tmp" / "torch")}
    import torch  # before the watch begins: it compiles code of its own, and so does the first optimiser

    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    Watch.inside, Watch.learning = str(folder.resolve()), True
    audit_hook.HERE = str(site)
    sys.addaudithook(audit_hook.watch)
    from embasis.storage import encode_table, read_newest

    place, tally, canary = base(folder), Tally(), folder / "canary"
    if every < 5:
        warm(place)
    learned = [*Watch.deeds]
    Watch.learning = False
    count_loaders(tally)
    facts = read_newest(place / "run").facts
    clean = encode_table({"a": [1.0, 2.0], "label": ["x", "y"]}, ".parquet")
    sentinel = folder / "outside"
    put("kept", b"kept")(sentinel)
    kept = tree_of(sentinel)
    run([case for number, case in enumerate(cases(canary, clean, facts)) if number % every == first], folder, tally)
    tally.faults += ["a file outside has changed"] if tree_of(sentinel) != kept else []
    tally.faults += [f"without a hostile file: {deed}" for deed in learned]
    deeds = (site / "deeds").read_text().splitlines() if (site / "deeds").exists() else []
    tally.faults += [f"in a child: {deed}" for deed in deeds if deed not in "\n".join(tally.faults)]
    broken = {name: found_when(breakage, folder) for name, breakage in BREAKAGES.items()}
    print(json.dumps({"files": tally.files, "calls": tally.calls, "faults": tally.faults, "broken": broken}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
