"""Rename modules, names, members, parameters, texts and files all over a repository, by a table.

    python tools/rename.py --check                 what would change; nothing is written, code 1 if anything would
    python tools/rename.py                         all lines of tools/renames.tsv
    python tools/rename.py --rows 10,14-17         the lines of some rows of the design table
    python tools/rename.py TABLE --root DIR        another table, another repository

Sources, tests, benchmarks, documents and pyproject.toml are rewritten; files are moved with git. Everything is worked
out before anything is written: a new name that is taken, or a line whose old name is not there, is refused (code 2) and
leaves all as it was. What has been renamed already is passed over, so the same command may be given again.
The table's columns and what each kind of line does: renaming/table.py. Needs libcst (in the dev dependencies).
"""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import subprocess
import sys
from pathlib import Path

from renaming.code import rewrite_code
from renaming.plan import Plan, file_of, make_plan
from renaming.table import RenameError, Row, read_table, select_rows
from renaming.text import leftovers, rewrite_document, rewrite_settings
from renaming.tree import TEXTS, Tree

HERE = Path(__file__).resolve().parent
SKIPPED = (
    "CHANGELOG.md",
    "tools/rename.py",
    "tools/renaming",
    "tests/test_rename_tool.py",
    "tests/zoo",
    "tests/corpus",
)
"""History, this tool, and stored artefacts of releases."""


def rewrite_files(plan: Plan) -> dict[Path, str]:
    """New texts of all files that change."""
    made, faults = dict[Path, str](), list[str]()
    names = {path: name for name, path in plan.tree.modules.items()}
    for path in plan.tree.files(".py", *TEXTS):
        old = path.read_text(encoding="utf-8")
        try:
            if path.suffix == ".py":
                new = rewrite_code(old, names[path], plan)
            else:
                new = rewrite_document(old, plan, rewrite_code) if path.suffix == ".md" else rewrite_settings(old, plan)
        except RenameError as error:
            faults.append(str(error))
            continue
        if new != old:
            made[path] = new
    if faults:
        raise RenameError("\n".join(faults))
    return made


def new_packages(plan: Plan) -> dict[Path, str]:
    """An __init__.py for each folder that modules of a package move to and that is no package yet."""
    made, root = dict[Path, str](), plan.tree.root
    for old, new in plan.modules.items():
        package = plan.tree.is_package(old)
        home = root / file_of(plan.tree, new, package)
        folder = home.parent.parent if package else home.parent
        inside = plan.tree.is_package(old.rpartition(".")[0])
        coming = (folder / "__init__.py").relative_to(root).as_posix() in plan.paths.values()
        if inside and not coming and not (folder / "__init__.py").exists():
            made[folder / "__init__.py"] = f'"""The modules of {new.rpartition(".")[0]}."""\n'
    return made


def describe(plan: Plan, made: dict[Path, str], packages: dict[Path, str]) -> list[str]:
    """The dry run: a line for each file, with the lines that are added and removed."""
    root, lines = plan.tree.root, list[str]()
    for old, new in sorted(plan.paths.items()):
        lines.append(f"move {old} → {new}")
    lines += [f"make {path.relative_to(root)}" for path in packages]
    added = removed = 0
    for path, text in made.items():
        diff = list(difflib.unified_diff(path.read_text(encoding="utf-8").splitlines(), text.splitlines(), n=0))[2:]
        more, less = sum(line[0] == "+" for line in diff), sum(line[0] == "-" for line in diff)
        added, removed = added + more, removed + less
        lines.append(f"{path.relative_to(root)} | +{more} −{less}")
    lines.append(f"{len(made)} files changed, {added} lines added, {removed} removed, {len(plan.paths)} moved")
    return lines


def apply(plan: Plan, made: dict[Path, str], packages: dict[Path, str]) -> list[Path]:
    """Write and move; the Python files that were touched, where they are now."""
    root = plan.tree.root
    for path, text in {**packages, **made}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in packages:
        hidden = subprocess.run(["git", "check-ignore", "-q", path], cwd=root, check=False).returncode == 0
        if hidden:
            print(f"git ignores {path.relative_to(root)}: mend .gitignore, or the package is in no commit and no wheel")
    touched = {*made, *packages}
    for old, new in plan.paths.items():
        move(root, old, new)
        touched = {root / new if path == root / old else path for path in touched}
    return sorted(path for path in touched if path.suffix == ".py")


def move(root: Path, old: str, new: str) -> None:
    """By git where it knows the file."""
    (root / new).parent.mkdir(parents=True, exist_ok=True)
    if (root / new).exists():
        raise RenameError(f"{old} cannot move to {new}, which is there")
    known = subprocess.run(["git", "ls-files", "--error-unmatch", old], cwd=root, capture_output=True, check=False)
    if known.returncode == 0:
        subprocess.run(["git", "mv", old, new], cwd=root, check=True)
    else:
        (root / old).rename(root / new)
    parent = (root / old).parent
    shutil.rmtree(parent / "__pycache__", ignore_errors=True)
    if not any(parent.iterdir()):
        parent.rmdir()


def tidy(root: Path, files: list[Path]) -> None:
    """Sort imports and lines anew, where ruff is there."""
    for words in (("check", "--quiet", "--select", "I,RUF022", "--fix-only"), ("format", "--quiet")):
        if files and shutil.which("ruff"):
            subprocess.run(["ruff", *words, *map(str, files)], cwd=root, check=False)


def say_rest(plan: Plan, rows: list[Row]) -> None:
    """What is left for a person: lines by hand, names of modules that are made of parts, old words in prose."""
    for row in rows:
        if row.by_hand:
            print(f"by hand: {row} ({row.note})")
    words = {old for _, old in plan.names if "_" in old or old[:1].isupper()} - set(plan.names.values())
    tops = "|".join(sorted({name.partition(".")[0] for name in plan.modules}))
    built = re.compile(rf"\b(?:{tops})\.[\w.]*{{")
    for path in Tree(plan.tree.root, SKIPPED).files(".py", ".md"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if tops else (), 1):
            if built.search(line):
                print(f"made of parts: {path.relative_to(plan.tree.root)}:{number}: {line.strip()[:120]}")
        for number, line in leftovers(path.read_text(encoding="utf-8"), words, path.suffix == ".py"):
            print(f"still there: {path.relative_to(plan.tree.root)}:{number}: {line[:120]}")


def main() -> int:
    """Read the table, work everything out, then write."""
    parser = argparse.ArgumentParser(description="Rename all over a repository, by a table.")
    parser.add_argument("table", nargs="?", type=Path, default=HERE / "renames.tsv")
    parser.add_argument("--root", type=Path, default=HERE.parent)
    parser.add_argument("--rows", help="rows of the design table, such as 10,14-17")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    try:
        table = read_table(options.table)
        rows = select_rows(table, options.rows)
        plan = make_plan(Tree(options.root.resolve(), SKIPPED), rows, table)
        made = rewrite_files(plan)
        packages = new_packages(plan)
        print("\n".join(describe(plan, made, packages)))
        if options.check:
            return 1 if made or plan.paths else 0
        tidy(plan.tree.root, apply(plan, made, packages))
    except RenameError as error:
        print(f"rename: {error}", file=sys.stderr)
        return 2
    say_rest(plan, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
