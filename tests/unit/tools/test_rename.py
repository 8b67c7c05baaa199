"""tools/rename.py on a small made-up package: what it renames, what it leaves alone, what it refuses."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from paths import ROOT

pytest.importorskip("libcst", reason="libcst is a development dependency: make setup installs it")

TOOLS = ROOT / "tools"

FILES = {
    "src/shop/__init__.py": '"""A shop."""\n\nfrom shop.stock.shelf import Shelf\n\n__all__ = ["Shelf"]\n'
    '_HOMES = {"Shelf": "shop.stock.shelf"}\n',
    "src/shop/stock/__init__.py": '"""Stock; see shelf.py and `Shelf`."""\n',
    "src/shop/stock/shelf.py": '''"""Where things lie (`Shelf`, `look`, `count_all()`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

LIMIT = 3


class Shelves(list["Shelf"]):
    pass


@dataclass
class Shelf:
    """A shelf."""

    kept: int = 0
    wide: bool = False

    def look(self, deep: int = 1) -> int:
        """What is kept."""
        return self.kept * deep  # a Shelf has at most LIMIT things, see stock/shelf.py

    def wider(self) -> Shelf:
        return replace(self, wide=True, kept=self.kept + 1)


def look(shelf: Shelf, found: int = 0) -> int:
    """Look at a shelf."""
    look_ = found
    return f"{look_}" and shelf.look(deep=2) + min(LIMIT, found)


def count_all(shelves: list[Shelf]) -> int:
    LOCAL = [look(each, found=1) for each in shelves]
    return sum(LOCAL)
''',
    "src/shop/till.py": '''"""The till has a `look` and a Shelf of its own."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shop.stock.shelf import Shelf as Board, look as other


class Till:
    kept: int = 0

    def look(self) -> int:
        return self.kept


def look(till: Till) -> int:
    from .stock import shelf
    from .stock.shelf import look as found, count_all

    look = till.look()
    return look + found(shelf.Shelf(kept=2)) + count_all([]) + shelf.LIMIT + shelf.look(shelf.Shelf())


def use(board: "Board") -> int:
    return board.kept + Till().kept


class Boards(list["Board"]):
    pass
''',
    "tests/helper_runs.py": "from shop import Shelf\n\n\ndef made() -> Shelf:\n    return Shelf(kept=1)\n",
    "tests/test_shop.py": '''from helper_runs import made
from shop import till
from shop.stock import shelf

CODE = """
from shop.stock.shelf import Shelf
print(Shelf().look())
"""
PAIRS = [("shop.stock.shelf", "look", 1), ("shop.till", "look", 2)]
PLACES = {"one": (shelf, "look", 1), "two": (till, "look", 2), "three": (shelf.Shelf, "look", 3)}
TEMPLATE = """
from shop.stock.shelf import Shelf
print({place!r}, Shelf(), [Shelf])
"""
ESCAPED = "import sys\\nfrom shop.stock.shelf import Shelf, LIMIT; sys.exit(Shelf().kept)"


def test_it(monkeypatch, capsys):
    monkeypatch.setattr("shop.stock.shelf.look", lambda shelf, found=0: 5)
    monkeypatch.setattr(shelf, "LIMIT", 4)
    monkeypatch.setattr(till, "look", lambda till: 4)
    monkeypatch.setattr(shelf.Shelf, "look", lambda self, deep: 4)
    state = {"sound": 1, "other": "sound of it"}
    assert state["sound"] == 1
    words = ["keep=3", "plan.keep=4", "upkeep=5"]
    assert made().kept == 1 and shelf.count_all([]) == 0
''',
    "docs/guide.md": """# Guide

`Shelf` is in `stock/shelf.py` (src/shop/stock/shelf.py, `shop.stock.shelf.Shelf`), see `count_all()` and `look`.

```python
from shop.stock.shelf import Shelf, count_all

print(count_all([Shelf(kept=2)]))
```
""",
    "pyproject.toml": """[tool.ruff]
line-length = 120

[[tool.importlinter.contracts]]
layers = [
  "till",
  "stock",
]
source_modules = ["shop.till"]
""",
}

HEAD = "kind\tscope\told\tnew\trow\tnote\n"
ROWS = (
    "module\t-\tshop.stock.shelf\tshop.store.rack\t1\t",
    "module\t-\tshop.till\tshop.cash\t1\t",
    "module\t-\ttests.helper_runs\ttests.shop_runs\t1\t",
    "name\tshop.stock.shelf\tShelf\tRack\t2\t",
    "name\tshop.stock.shelf\tlook\tcount_things\t2\t",
    "name\tshop.stock.shelf\tLIMIT\tMOST\t2\t",
    "attribute\tshop.*,tests.*\tShelf.kept[shelf,self,made,board,each]\tthings\t3\t",
    "attribute\tshop.*,tests.*\tShelf.look[shelf]\tcount\t3\t",
    "keyword\tshop.stock.shelf\tlook.found\tstart\t4\t",
    "keyword\tshop.stock.shelf\tShelf.look.deep\tdepth\t4\t",
    "local\tshop.stock.shelf:count_all\tLOCAL\tcounts\t5\t",
    "string\ttests.*\tsound\tbasis_accepted\t6\t",
    "string\ttests.*\tkeep=\tkeep_first=\t6\t",
)


def plant(root: Path) -> Path:
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def rename(root: Path, *rows: str, words: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    (root / "table.tsv").write_text(HEAD + "\n".join(rows) + "\n")
    command = [sys.executable, TOOLS / "rename.py", root / "table.tsv", "--root", root, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def texts(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.suffix in (".py", ".md", ".toml")
    }


@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = plant(tmp_path_factory.mktemp("shop"))
    done = rename(root, *ROWS)
    assert done.returncode == 0, done.stderr
    return root


def test_files_move_with_their_imports_and_a_new_folder_becomes_a_package(renamed: Path) -> None:
    found = texts(renamed)
    assert "src/shop/stock/shelf.py" not in found
    assert "tests/__init__.py" not in found
    assert found["src/shop/store/__init__.py"] == '"""The modules of shop.store."""\n'
    assert "from shop.store.rack import Rack\n" in found["src/shop/__init__.py"]
    assert '__all__ = ["Rack"]\n_HOMES = {"Rack": "shop.store.rack"}\n' in found["src/shop/__init__.py"]


def test_a_name_is_renamed_where_it_is_defined_and_a_homonym_is_not(renamed: Path) -> None:
    found = texts(renamed)
    rack = found["src/shop/store/rack.py"]
    assert "class Rack:" in rack
    assert 'class Shelves(list["Rack"]):' in rack
    assert 'class Boards(list["Board"]):' in found["src/shop/cash.py"]
    assert "def count_things(shelf: Rack, start: int = 0) -> int:" in rack
    assert "    look_ = start\n" in rack
    assert 'return f"{look_}" and shelf.count(depth=2) + min(MOST, start)' in rack
    assert "counts = [count_things(each, start=1) for each in shelves]\n    return sum(counts)" in rack
    cash = found["src/shop/cash.py"]
    assert "def look(till: Till) -> int:" in cash
    assert "    look = till.look()\n" in cash
    assert "from shop.store.rack import Rack as Board" in cash
    assert "count_things as other" in cash


def test_imports_in_functions_are_split_and_their_uses_follow(renamed: Path) -> None:
    cash = texts(renamed)["src/shop/cash.py"]
    assert "    from shop.store import rack\n" in cash
    assert "    from shop.store.rack import count_things as found" in cash
    assert "found(rack.Rack(things=2)) + count_all([]) + rack.MOST + rack.count_things(rack.Rack())" in cash


def test_members_are_renamed_by_class_and_receiver(renamed: Path) -> None:
    found = texts(renamed)
    assert (
        "    things: int = 0\n    wide: bool = False\n\n    def count(self, depth: int = 1)"
        in found["src/shop/store/rack.py"]
    )
    assert "return replace(self, wide=True, things=self.things + 1)" in found["src/shop/store/rack.py"]
    assert (
        "class Till:\n    kept: int = 0\n\n    def look(self) -> int:\n        return self.kept"
        in found["src/shop/cash.py"]
    )
    assert "return board.things + Till().kept" in found["src/shop/cash.py"]
    assert "return Rack(things=1)" in found["tests/shop_runs.py"]
    assert "made().things == 1" in found["tests/test_shop.py"]


def test_texts_that_name_modules_and_members_follow(renamed: Path) -> None:
    test = texts(renamed)["tests/test_shop.py"]
    assert test.startswith("from shop_runs import made\n")
    assert 'monkeypatch.setattr("shop.store.rack.count_things", ' in test
    assert 'monkeypatch.setattr(rack, "MOST", 4)' in test
    assert 'monkeypatch.setattr(cash, "look", ' in test
    assert 'monkeypatch.setattr(rack.Rack, "count", ' in test
    assert 'PAIRS = [("shop.store.rack", "count_things", 1), ("shop.cash", "look", 2)]' in test
    assert (
        'PLACES = {"one": (rack, "count_things", 1), "two": (cash, "look", 2), "three": (rack.Rack, "count", 3)}'
        in test
    )
    assert "from shop.store.rack import Rack\nprint({place!r}, Rack(), [Rack])" in test
    assert "from shop.store.rack import Rack, MOST; sys.exit(Rack()." in test
    assert "from shop.store.rack import Rack\nprint(Rack().look())" in test, (
        "the receiver of .look is not among those named"
    )
    assert '{"basis_accepted": 1, "other": "sound of it"}\n    assert state["basis_accepted"] == 1' in test
    assert '["keep_first=3", "plan.keep_first=4", "upkeep=5"]' in test


def test_documents_and_settings_follow(renamed: Path) -> None:
    found = texts(renamed)
    guide = found["docs/guide.md"]
    assert "`Rack` is in `store/rack.py` (src/shop/store/rack.py, `shop.store.rack.Rack`)" in guide
    assert "see `count_all()` and `look`" in guide, "two modules have a look: nobody knows which is meant"
    assert "from shop.store.rack import Rack, count_all\n\nprint(count_all([Rack(things=2)]))" in guide
    assert '"cash",\n  "stock",' in found["pyproject.toml"]
    assert 'source_modules = ["shop.cash"]' in found["pyproject.toml"]
    assert '"""Where things lie (`Rack`, `look`, `count_all()`)."""' in found["src/shop/store/rack.py"]
    assert "see store/rack.py" in found["src/shop/store/rack.py"]


def test_what_comes_out_runs(renamed: Path) -> None:
    for text in texts(renamed).values():
        if text.startswith('"""'):
            ast.parse(text)
    code = (
        "from shop import Rack, cash; print(cash.look(cash.Till()), Rack(things=4).count(depth=3), cash.use(Rack(2)))"
    )
    paths = {"PYTHONPATH": str(renamed / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=paths, capture_output=True, text=True, check=False)
    assert done.stdout == "7 12 2\n", done.stderr


def test_the_same_command_again_changes_nothing(renamed: Path) -> None:
    before = texts(renamed)
    again = rename(renamed, *ROWS)
    assert again.returncode == 0, again.stderr
    assert again.stdout.startswith("0 files changed, 0 lines added, 0 removed, 0 moved\n")
    assert texts(renamed) == before


def test_a_module_whose_new_name_is_bound_in_a_file_keeps_its_name_there(tmp_path: Path) -> None:
    plant(tmp_path)
    assert rename(tmp_path, "module\t-\tshop.stock.shelf\tshop.stock.made\t\t").returncode == 0
    test = texts(tmp_path)["tests/test_shop.py"]
    assert "from shop.stock import made as shelf\n" in test
    assert "shelf.count_all([]) == 0" in test
    assert 'setattr("shop.stock.made.look", ' in test


def test_keys_and_keywords_are_renamed_where_they_are_keys_and_keywords(tmp_path: Path) -> None:
    plant(tmp_path)
    code = """def use(state, generator, words=()):
    state["sound"] = state.get("sound", 0) + ("sound" in state)
    print("sound", generator(0, "sound"), {"sound": 1}, use(state, generator, sound=3))
"""
    (tmp_path / "tests" / "test_keys.py").write_text(code)
    rows = (
        "key\ttests.*\tsound\theard\t\t",
        "keyword\ttests.*\t*.sound\tnoise\t\t",
        "string\ttests.test_keys\tsound\ttone\t\t",
    )
    assert rename(tmp_path, *rows).returncode == 0
    assert texts(tmp_path)["tests/test_keys.py"] == code.replace('state["sound"]', 'state["heard"]').replace(
        'get("sound"', 'get("heard"'
    ).replace('"sound" in', '"heard" in').replace('print("sound"', 'print("tone"').replace(
        '{"sound"', '{"heard"'
    ).replace("sound=3", "noise=3"), "the purpose of a generator stays: what is drawn hangs on it"


def test_rows_can_be_done_one_after_the_other_and_give_the_same(renamed: Path, tmp_path: Path) -> None:
    root = plant(tmp_path)
    for number in ("2", "1", "5-6", "4", "3"):
        done = rename(root, *ROWS, words=("--rows", number))
        assert done.returncode == 0, done.stderr
    assert texts(root) == texts(renamed)


def test_a_dry_run_says_what_would_change_and_writes_nothing(tmp_path: Path) -> None:
    before = texts(plant(tmp_path))
    done = rename(tmp_path, "name\tshop.stock.shelf\tcount_all\tcount_every_shelf\t\t", words=("--check",))
    assert done.stdout == (
        "docs/guide.md | +3 −3\nsrc/shop/stock/shelf.py | +2 −2\nsrc/shop/till.py | +2 −2\ntests/test_shop.py | +1 −1\n"
        "4 files changed, 8 lines added, 8 removed, 0 moved\n"
    )
    assert done.returncode == 1
    assert texts(tmp_path) == before


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            "name\tshop.stock.shelf\tlook\tcount_all",
            "name look → count_all in shop.stock.shelf: shop.stock.shelf has a count_all already; take another name, "
            "or rename that one too",
        ),
        ("name\tshop.stock.shelf\tLIMIT\tTill", None),
        (
            "name\tshop.stock.shelf\tcount_all\tuse",
            "shop.till: count_all cannot become use, which is bound in this file already; rename that one first (kind "
            "local), or import with `as`",
        ),
        (
            "name\tshop.stock.shelf\tmissing\tabsent",
            "name missing → absent in shop.stock.shelf: shop.stock.shelf has no missing, and no absent",
        ),
        ("module\t-\tshop.till\tshop.stock", "module shop.till → shop.stock: shop.stock is there already"),
        (
            "module\t-\tshop.gone\tshop.away",
            "module shop.gone → shop.away: there is no module shop.gone, and none that is called shop.away",
        ),
        (
            "attribute\tshop.*\tShelf.kept\twide",
            "attribute Shelf.kept → wide in shop.*: Shelf has a member wide already",
        ),
        (
            "keyword\tshop.stock.shelf\tlook.found\tshelf",
            "shop.stock.shelf: keyword look.found → shelf in shop.stock.shelf: look has a shelf already",
        ),
        (
            "local\tshop.stock.shelf\tshelves\tlook",
            "shop.stock.shelf: local shelves → look in shop.stock.shelf: look is there already, in or around count_all",
        ),
        (
            "verb\t-\ta\tb",
            "kind must be one of module, name, attribute, keyword, local, string, key, path, got 'verb' in verb a → b",
        ),
    ],
)
def test_what_cannot_be_renamed_is_refused_and_nothing_is_written(
    row: str, sentence: str | None, tmp_path: Path
) -> None:
    before = texts(plant(tmp_path))
    done = rename(tmp_path, row, words=() if sentence else ("--check",))
    assert done.stderr == (f"rename: {sentence}\n" if sentence else "")
    assert done.returncode == (2 if sentence else 1)
    assert texts(tmp_path) == before


def test_names_may_be_passed_on_from_one_to_the_next(tmp_path: Path) -> None:
    """MapLabels → MapPseudoLabels and Shelved → MapLabels in one go, and again."""
    rows = ("name\tshop.stock.shelf\tShelf\tlook\t\t", "name\tshop.stock.shelf\tlook\tcount_things\t\t")
    plant(tmp_path)
    assert rename(tmp_path, *rows).returncode == 0
    first = texts(tmp_path)
    assert "class look:" in first["src/shop/stock/shelf.py"]
    assert "def count_things(shelf: look, " in first["src/shop/stock/shelf.py"]
    again = rename(tmp_path, *rows)
    assert again.stdout.startswith("0 files changed"), again.stderr
    assert texts(tmp_path) == first


def test_a_name_that_is_made_of_parts_is_shown_to_a_person(tmp_path: Path) -> None:
    plant(tmp_path)
    (tmp_path / "tests" / "test_parts.py").write_text('def test(monkeypatch, place):\n    set(f"shop.stock.{place}")\n')
    done = rename(tmp_path, "module\t-\tshop.stock.shelf\tshop.stock.rack")
    assert 'made of parts: tests/test_parts.py:2: set(f"shop.stock.{place}")\n' in done.stdout


def test_lines_for_a_person_are_listed_and_not_applied(tmp_path: Path) -> None:
    before = texts(plant(tmp_path))
    done = rename(tmp_path, "name\tshop.stock.shelf\tShelf\tRack\t7\thand: two things in one")
    assert "by hand: name Shelf → Rack in shop.stock.shelf (hand: two things in one)\n" in done.stdout
    assert texts(tmp_path) == before


def test_the_table_of_this_repository_can_be_read() -> None:
    sys.path.insert(0, str(TOOLS))
    try:
        from renaming.table import read_table
    finally:
        sys.path.remove(str(TOOLS))
    rows = read_table(TOOLS / "renames.tsv")
    parts = {3, 4, 5, 32, 33, 34, 40, 41}  # by hand, when the labeller was cut in parts
    applied = {*range(11, 14), 16, 17, *range(19, 26), 28, 30, 31, 42, 43}  # all of their lines have been, and are gone
    expected = {str(number) for number in range(1, 81) if number not in applied | parts}
    assert {row.row for row in rows} == expected, "every other row of the design table"
    assert len({(row.kind, row.scope, row.old) for row in rows}) == len(rows), "each line once"
