"""CONTRIBUTING.md names what is there, and CITATION.cff agrees with the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import embasis
from paths import ROOT

TREE = ROOT
PACKAGE = Path(embasis.__file__).parent

pytestmark = pytest.mark.skipif(not (TREE / "CONTRIBUTING.md").is_file(), reason="needs the files of the repository")


def read(name: str) -> str:
    return (TREE / name).read_text(encoding="utf-8")


def test_every_command_of_make_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)`", read("CONTRIBUTING.md")))
    assert {"setup", "check", "wheel"} <= targets
    assert named <= targets


def test_every_target_of_make_is_phony() -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    (phony,) = re.findall(r"^\.PHONY: (.*)$", read("Makefile"), re.MULTILINE)
    assert set(phony.split()) == targets


def test_every_file_and_folder_that_is_named_exists() -> None:
    text = read("CONTRIBUTING.md")
    paths = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", text)) | set(re.findall(r"\]\(([^)#:\s]+)\)", text))
    assert len(paths) > 20
    assert [path for path in sorted(paths) if not (TREE / path).exists() and not (PACKAGE / path).exists()] == []


@pytest.mark.skipif(not (TREE / ".ci").is_dir(), reason="a source archive has no .ci")
def test_ci_runs_all_checks_and_the_wheel() -> None:
    assert read(".ci/run").splitlines()[-2:] == ["make check", "make wheel"]


def test_the_citation_has_the_version_and_licence_of_the_package_and_the_authors_of_the_paper() -> None:
    project, text = tomllib.loads(read("pyproject.toml"))["project"], read("CITATION.cff")
    assert f"\nversion: {project['version']}\n" in text
    assert f"\nlicense: {project['license']}\n" in text
    assert re.findall(r"family-names: (\w+)", text) == ["Wang", "Yang", "Liu", "Jia"]
    assert "(Wang, Yang, Liu, Jia, NeurIPS 2022 workshop " in read("README.md").replace("\n", " ")


def test_the_readme_leads_to_both() -> None:
    assert "](CONTRIBUTING.md)" in read("README.md")
    assert "](CITATION.cff)" in read("README.md")
