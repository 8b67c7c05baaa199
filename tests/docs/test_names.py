"""What the documents name in backticks exists: paths, test modules, functions, settings and fields of parts.

CHANGELOG.md and benchmarks/notes/ are history and keep the names of their day: they are left out.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from embasis.config import DATA_KEYS, PLAN_KEYS
from embasis.data import DATASETS
from embasis.learners import LEARNERS
from embasis.methods import METHODS
from embasis.networks import BACKBONES, PRETRAINED, SEGMENTERS
from paths import ROOT

PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/*.md")
    for page in ROOT.glob(pattern)
    if page.name != "CHANGELOG.md"
)
FOLDERS = ("", "src", "src/embasis", "tests", "tests/support", "benchmarks")
"""Where a path of a document may begin."""
ENDINGS = ("csv", "md", "parquet", "py", "sha256")
"""`maps.csv` is a file, not a setting."""
NETWORKS = {**BACKBONES, **PRETRAINED, **SEGMENTERS, **LEARNERS}

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs the docs of the repository")


def named_in(page: Path) -> Iterator[str]:
    """The spans in backticks, without blocks of code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return iter(re.findall(r"`([^`\n]+)`", text))


def arguments_of(registry: Mapping[str, Any]) -> set[str]:
    return {name for entry in registry.values() for name in inspect.signature(entry).parameters}


@functools.cache
def settings() -> dict[str, set[str]]:
    """Table of the config → the settings that it may have."""
    plans = {table: set(keys) for table, keys in PLAN_KEYS.items()}
    data = {*DATA_KEYS, "source", "target", *arguments_of(DATASETS)}
    return {
        **plans,
        "method": {"name", *arguments_of(METHODS)},
        "network": {"name", "backbone", "weights", "pretrained", *arguments_of(NETWORKS)},
        "learner": {"name", *arguments_of(LEARNERS)},
        "data": data,
    }


def has_part(path: str) -> bool:
    """Whether one of the two recipes of em_basis has a field at that path."""
    for name in ("em_basis", "em_basis_paper"):
        part: Any = METHODS[name](3)
        for field in path.split("."):
            part = getattr(part, field, part if field == "…" else None)
        if part is not None:
            return True
    return False


@functools.cache
def words() -> frozenset[str]:
    """Every word of the code, the tests and the tools; a test also without its `test_`."""
    places = [*(ROOT / "src").rglob("*"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    files = [path for path in places if path.suffix in (".py", ".toml")]
    found = {word for path in files if path != Path(__file__) for word in re.findall(r"\w+", path.read_text("utf-8"))}
    return frozenset(found | {word.removeprefix("test_") for word in found})


def is_word(name: str) -> bool:
    """Whether the code has that name; `…` stands for any letters."""
    if "…" not in name:
        return name in words()
    pattern = re.compile(".*".join(re.escape(part) for part in name.split("…")))
    return any(pattern.fullmatch(word) for word in words())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_path_that_is_named_exists(page: Path) -> None:
    paths = {span.partition("::")[0] for span in named_in(page) if re.fullmatch(r"[\w./-]+\.py(::.*)?", span)}
    paths |= {span for span in named_in(page) if re.fullmatch(r"(src|tests|docs|benchmarks|tools)/[\w./-]+", span)}
    places = [page.parent, *(ROOT / folder for folder in FOLDERS)]
    files = {path.name for path in (ROOT / "src").rglob("*.py")}
    missing = [path for path in sorted(paths) if not any((place / path).exists() for place in places)]
    assert [path for path in missing if "/" in path or path not in files] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_function_and_test_that_is_named_exists(page: Path) -> None:
    names = set()
    for span in named_in(page):
        name = re.sub(r"\[.*\]$|\(.*\)$", "", span.rpartition("::")[2])
        if re.fullmatch(r"[\w…]+_[\w…]{3,}", name):  # what ends in fewer letters is a symbol with an index
            names.add(name)
    assert sorted(name for name in names if not is_word(name)) == []


def test_every_test_whose_name_is_written_as_a_sentence_exists() -> None:
    """In the tables of reliability.md: *a publish that is killed…* is test_a_publish_that_is_killed_…"""
    rows = [row for row in (ROOT / "docs" / "reliability.md").read_text("utf-8").splitlines() if row.startswith("|")]
    sentences = [text for row in rows for text in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", row)]
    names = {text: re.sub(r"[-\s]+", "_", text.replace(",", "").lower()) for text in sentences}
    assert len(names) > 30
    assert [text for text, name in names.items() if not is_word(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_setting_and_field_that_is_named_exists(page: Path) -> None:
    tables = "|".join(settings())
    unknown = set()
    for span in named_in(page):
        for table, key in re.findall(rf"(?<![\w./-])({tables})\.([a-z_]+)(?![\w(/.])", span):
            if key not in settings()[table] and key not in ENDINGS:
                unknown.add(f"{table}.{key}")
        for path in re.findall(r"(?<![\w./-])((?:labeller|selector)(?:\.\w+)+)", span):
            if not has_part(path):
                unknown.add(path)
    assert sorted(unknown) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_setting_of_a_command_exists(page: Path) -> None:
    """Also in blocks of code."""
    tables = "|".join(settings())
    given = re.findall(rf"(?<![\w./-])({tables})\.([a-z_]+)=", page.read_text(encoding="utf-8"))
    assert [f"{t}.{k}" for t, k in given if k not in settings()[t]] == []
