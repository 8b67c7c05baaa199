"""The page of `embasis review` in a real browser: keys, clicks, and what they leave on disk.

Without chromium or playwright these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import image_runs
import map_folder_runs
from browser import PHONE, WIDE, Tab, chromium, opened
from cli_tables import copied, fit_tables, fit_without_page
from embasis.storage import read_stored_table
from reviews import served

DATA = {"tables": "judged.csv", "images": "paintings", "maps": "streets"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def made(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("runs")
    for name in DATA:
        (home / name).mkdir()
    fit_tables(home / "tables", "rounds=1")
    sides = image_runs.sides(home / "images", each=4)
    (sides / "photos" / "amsel").rename(sides / "photos" / "<b>&amsel")
    fit_without_page(sides, sides / "photos", sides / "paintings", "rounds=1", *image_runs.WORDS)
    map_folder_runs.fitted(map_folder_runs.sides(home / "maps", 6), home / "maps" / "run")
    return home


@pytest.fixture(params=DATA)
def here(request: pytest.FixtureRequest, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A copy of a run of each kind as the current folder; its name."""
    copied(made / request.param, tmp_path / "here", monkeypatch)
    return str(request.param)


@contextmanager
def page_of(browser: Any, kind: str, scheme: str = "light", size: dict[str, int] | None = None) -> Iterator[Tab]:
    with served("run", DATA[kind]) as review, opened(browser, review.address, scheme, size) as tab:
        settle(tab)
        yield tab


def settle(tab: Tab, place: int = 0) -> None:
    """Wait until the page shows an item with its pictures."""
    tab.page.wait_for_selector("#item:not([hidden])")
    for _ in range(100):  # `wait_for_function` polls by eval, which the page's policy forbids
        if tab.page.evaluate("[...document.images].every((image) => image.complete)"):
            break
        tab.page.wait_for_timeout(50)
    tab.page.wait_for_timeout(150)


def press(tab: Tab, *keys: str) -> None:
    for key in keys:
        tab.page.keyboard.press(key)
        tab.page.wait_for_timeout(250)


def decided(tab: Tab) -> str:
    return str(tab.page.locator("#progress").text_content())


@pytest.mark.parametrize("here", DATA, indirect=True)
def test_the_page_opens_without_an_error_and_asks_its_own_server_alone(browser: Any, here: str) -> None:
    with page_of(browser, here) as tab:
        assert tab.console == []
        start = tab.page.url
        assert {url for url in tab.requests if not url.startswith((start, "data:"))} == set()
        broken = tab.page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).length")
        assert broken == 0
        for width in (360, 480, 768, 1280, 2200):
            tab.page.set_viewport_size({"width": width, "height": 900})
            assert tab.page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("here", ["tables"], indirect=True)
def test_keys_answer_skip_go_back_and_undo(browser: Any, here: str) -> None:
    with page_of(browser, here) as tab:
        first = tab.page.locator("#name").text_content()
        guess = tab.page.locator("#guess b").text_content()
        press(tab, "1")
        assert decided(tab) == "1 of 60 rows decided, the least sure first"
        assert tab.page.locator("#name").text_content() != first
        press(tab, "ArrowRight", "ArrowLeft", "x", "Enter")
        assert decided(tab).startswith("3 of 60")
        press(tab, "u")
        assert decided(tab).startswith("2 of 60")
        press(tab, "ArrowLeft", "ArrowLeft")
        assert tab.page.locator("#name").text_content() == first
        assert tab.page.locator("#guess .was").text_content() == "You: c0"
        assert tab.page.locator("#guess b").text_content() == guess
        press(tab, "/")
        tab.page.keyboard.type("c2")
        press(tab, "Enter")
        press(tab, "/")
        tab.page.keyboard.type("c")
        press(tab, "Enter")
        assert tab.page.locator("#message").text_content() == "3 classes begin with “c”: type more of it."
    rows = read_stored_table("run/corrections.csv")
    assert f"Row {rows['id'][-1]}" == first
    assert rows["label"] == ["", "c2"]
    assert rows["unusable"] == ["true", ""]


@pytest.mark.parametrize("here", ["images"], indirect=True)
def test_clicks_answer_too_and_names_are_text(browser: Any, here: str) -> None:
    with page_of(browser, here, size=PHONE) as tab:
        tab.page.get_by_role("button", name="<b>&amsel").click()
        tab.page.wait_for_timeout(300)
        press(tab, "Enter")  # right as it is, and not the button that was clicked
        assert decided(tab) == "2 of 12 images decided, the least sure first"
        assert tab.page.locator("main b >> text=amsel").count() <= 1
        guess = tab.page.locator("#guess b").text_content()
        tab.page.get_by_role("button", name="Right as it is").click()
        tab.page.wait_for_timeout(300)
        tab.page.get_by_role("button", name="Finish").click()
        tab.page.wait_for_selector("text=The review has ended")
        assert tab.page.locator("#end p").text_content().startswith("3 of 12 images are decided and saved.")
    rows = read_stored_table("run/corrections.csv")
    assert rows["label"][0] == "<b>&amsel"
    assert rows["label"][1:] == rows["predicted"][1:]
    assert rows["label"][2] == guess


@pytest.mark.parametrize("here", ["maps"], indirect=True)
def test_a_part_of_a_map_is_chosen_and_corrected_by_keys_and_by_a_click(browser: Any, here: str) -> None:
    with page_of(browser, here) as tab:
        seen = tab.page.locator("#question").text_content()
        assert seen.startswith("Part 1 of ")
        other = next(n for n, name in enumerate(map_folder_runs.NAMES, 1) if f": {name}," not in seen)
        press(tab, str(other))
        assert f": {map_folder_runs.NAMES[other - 1]}," in tab.page.locator("#question").text_content()
        press(tab, "ArrowDown")
        assert tab.page.locator("#question").text_content().startswith("Part 2 of ")
        tab.page.locator("#map").click(position={"x": 5, "y": 5})
        tab.page.wait_for_timeout(200)
        assert tab.page.locator("#question").text_content().startswith("Part ")
        colour = "[...document.getElementById('map').getContext('2d').getImageData(10, 8, 1, 1).data].slice(0, 3)"
        before = tab.page.evaluate(colour)
        press(tab, "x")
        assert tab.page.evaluate(colour) != before
        assert not Path("run/corrections").exists()
        press(tab, "Enter")
        assert decided(tab) == "1 of 6 pictures decided, the least sure first"
        assert len([*Path("run/corrections").rglob("*.png")]) == 1
        press(tab, "u")
        assert decided(tab).startswith("0 of 6")
        assert [*Path("run/corrections").rglob("*.png")] == []


@pytest.mark.parametrize("here", DATA, indirect=True)
@pytest.mark.parametrize(("scheme", "size"), [("light", WIDE), ("dark", PHONE)], ids=["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, here: str, scheme: str, size: dict[str, int]) -> None:
    axe = pytest.importorskip("axe_playwright_python", reason="axe is not installed: make setup installs it")
    code = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    with page_of(browser, here, scheme, size) as tab:
        press(tab, "1")
        tab.page.evaluate(code)
        found = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found] == []


@pytest.mark.parametrize("here", ["tables"], indirect=True)
def test_a_review_that_has_ended_in_the_terminal_says_so(browser: Any, here: str) -> None:
    with served("run", "judged.csv") as review:
        address = review.address
        context = browser.new_context()
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("#item:not([hidden])")
    page.keyboard.press("1")
    page.wait_for_selector("#message:not(:empty)")
    assert page.locator("#message").text_content().startswith("The review has ended in the terminal")
    context.close()
