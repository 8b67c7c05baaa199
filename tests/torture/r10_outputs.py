"""R10: what leaves the house is safe. Sessions on tables and images with hostile names, the network cut, and a demo."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from goals import Result

from embasis.report.page import run_page
from hostile_views import PAYLOADS, benign, view
from output_runs import IMAGES, NAMES, TABLES, Session, leaks, outputs, session, strange_bytes
from page_views import Tree

OWN_CODE = ("code.__new__ ", "ran code that no file holds: ")
DEMO = (("demo", "-o", "{}/demo"),)


def faults_of(found: Session) -> list[str]:
    """What is wrong with a session."""
    faults = [f"{name} ended with {code}: {text[-200:]!r}" for name, code, text in found.outputs if code]
    faults += [f"{name} said {strange_bytes(text)}" for name, _, text in found.outputs if strange_bytes(text)]
    faults += [f"deed: {deed}" for deed in found.deeds if not deed.startswith(OWN_CODE)]
    return faults + leaks(found)


def tables(folder: Path) -> tuple[Session, ...]:
    """The same commands on hostile names and on plain ones, and on images."""
    jobs = (("hostile", TABLES, NAMES), ("plain", TABLES, ()), ("pictures", IMAGES, ()), ("demo", DEMO, ()))
    with ThreadPoolExecutor(2) as pool:
        return tuple(pool.map(lambda job: session(folder / job[0], job[1], job[2]), jobs))


def run() -> Result:
    """All sessions, and a hundred names on a page."""
    with TemporaryDirectory() as folder:
        found = tables(Path(folder))
        faults = [fault for one in found for fault in faults_of(one)]
        files = sum(1 for one in found for _ in outputs(one.folder))
        cut = all(one.cut for one in found)
    pages = [name for name in PAYLOADS if Tree(run_page(view(name))).tags != benign()]
    faults += [f"{name!r} changes the page" for name in pages]
    for fault in faults:
        print(fault)
    calls = sum(len(one.outputs) for one in found)
    net = "the network cut" if cut else "the network NOT cut (unshare is not allowed here)"
    figure = f"{calls} commands with {net}: {len(faults)} leaks, calls or control characters in {files} files"
    return Result(not faults and cut, f"{figure}; {len(PAYLOADS) - len(pages)} of {len(PAYLOADS)} names change no page")
