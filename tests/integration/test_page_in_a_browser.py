"""Report pages in a real browser: nothing is asked for, marks tell their values by pointer and by keyboard, axe agrees.

Without chromium or playwright these tests are skipped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import PHONE, WIDE, chromium, opened
from embasis.benchmark.comparison_page import comparison_page
from embasis.benchmark.scores import summarise_runs
from embasis.report import Component, RestyledExample, RestyledPictures, RowExample, RunView
from embasis.report.page import run_page
from map_page_views import on_maps, png
from page_views import evaluation, many, record, view


def judged(number: int) -> Any:
    spread = tuple((i / 20, 20 - i, i) for i in range(1, 21))
    found = dataclasses.replace(
        evaluation(0.75), spread=spread, aurc=0.05, coverage=((0.9, 0.8), (0.95, None)), brier=0.3, adaptive_ece=0.1
    )
    facts = {"expected_accuracy": 0.74, "temperature": 1.4}
    return dataclasses.replace(record(number), evaluation=found, facts=facts)


def with_pictures() -> RunView:
    kinds = ("surest", "least sure")
    items = tuple(
        RowExample(f"{c}/{i}.png", kinds[i % 2], c, 0.9, i > 2, "dog", png(shade=40 * i))
        for c in ("cat", "dog")
        for i in range(6)
    )
    basis = tuple(
        Component(((c, 0.8), ("owl", 0.2)), 0.25, (("a.png", png()), ("b.png", png()))) for c in ("cat", "dog")
    )
    found = dataclasses.replace(view(), items=items, basis=basis, refused=({"name": "x.png", "reason": "truncated"},))
    return dataclasses.replace(found, rounds=tuple(judged(i) for i in range(3)), notes=("1 file is not used",))


def restyled_pictures() -> RestyledPictures:
    examples = tuple(
        RestyledExample(f"{'a long name of a file ' * i}{i}.png", "cat", png(shade=20 * i), png(120, 80, 30 * i))
        for i in range(7)
    )
    return RestyledPictures("fcan", "each picture is changed", 1.0, 500, examples, "street.png", png(90, 160))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("pages")
    found = {
        "vectors": run_page(dataclasses.replace(view(), basis=(Component((("cat", 1.0),), 1.0, (("7", None),)),))),
        "pictures": run_page(with_pictures()),
        "maps": run_page(on_maps()),
        "restyled": run_page(dataclasses.replace(view(), restyled=restyled_pictures())),
        "without truth": run_page(view(truth=False)),
        "comparison": comparison_page("all", summarise_runs(many()), [view()]),
    }
    for name, page in found.items():
        (home / f"{name}.html").write_text(page)
    return {name: home / f"{name}.html" for name in found}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


NAMES = ("vectors", "pictures", "maps", "restyled", "without truth", "comparison")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_opens_without_an_error_and_asks_for_nothing(browser: Any, pages: dict[str, Path], name: str) -> None:
    with opened(browser, pages[name]) as tab:
        tab.page.wait_for_timeout(200)
        assert tab.console == []
        assert [url for url in tab.requests if not url.startswith("data:image/")] == [pages[name].as_uri()]
        broken = tab.page.evaluate("[...document.images].filter(i => !i.complete || !i.naturalWidth).length")
        assert broken == 0


@pytest.mark.parametrize("name", NAMES)
def test_no_page_is_wider_than_its_window(browser: Any, pages: dict[str, Path], name: str) -> None:
    with opened(browser, pages[name]) as tab:
        for width in (360, 480, 768, 1280, 2200):
            tab.page.set_viewport_size({"width": width, "height": 900})
            assert tab.page.evaluate("document.documentElement.scrollWidth") == width


def test_the_value_of_a_mark_is_shown_at_the_pointer_and_goes_with_it(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["vectors"]) as tab:
        tip = tab.page.locator(".tip")
        assert not tip.is_visible()
        tab.page.locator(".chart").nth(2).locator(".m").nth(1).hover()
        assert tip.text_content() == "Changed labels, round 1: 0.25"
        box, mark = tip.bounding_box(), tab.page.locator(".chart").nth(2).locator(".m").nth(1).bounding_box()
        assert abs(box["x"] + box["width"] / 2 - mark["x"]) < 120
        assert abs(box["y"] - mark["y"]) < 80
        tab.page.mouse.move(2, 2)
        assert not tip.is_visible()


def test_marks_that_lie_upon_each_other_are_told_together(browser: Any, tmp_path: Path) -> None:
    same = dataclasses.replace(evaluation(0.75), network_accuracy=0.75)
    rounds = tuple(dataclasses.replace(record(i), evaluation=same, test=None) for i in range(2))
    (tmp_path / "page.html").write_text(run_page(dataclasses.replace(view(), rounds=rounds)))
    with opened(browser, tmp_path / "page.html") as tab:
        tab.page.locator(".chart").first.locator(".s2.m").first.hover()
        words = tab.page.locator(".tip").text_content()
        assert words == "Accuracy, labels, round 0: 0.75\nAccuracy, network, round 0: 0.75"


def test_tab_reaches_every_figure_and_arrow_keys_walk_along_its_marks(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["pictures"]) as tab:
        charts, reached = tab.page.locator(".chart").count(), set[int]()
        for _ in range(80):
            tab.page.keyboard.press("Tab")
            reached.add(
                tab.page.evaluate(
                    "[...document.querySelectorAll('.chart')].indexOf(document.activeElement.closest('.chart'))"
                )
            )
        assert {*range(charts)} <= reached
        first = tab.page.locator(".chart").first
        first.locator(".m").first.focus()
        seen = [tab.focused()]
        for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "Home", "End", "ArrowUp"):
            tab.page.keyboard.press(key)
            seen.append(tab.focused())
            assert tab.page.locator(".tip").text_content() == seen[-1]
        assert [words.partition(": ")[0] for words in seen] == [
            "Accuracy, labels, round 0",
            "Accuracy, labels, round 1",
            "Accuracy, labels, round 2",
            "Accuracy, network, round 2",
            "Accuracy, network, round 1",
            "Accuracy, network, round 0",
            "Accuracy, network, round 2",
            "Accuracy, labels, round 2",
        ]
        tab.page.keyboard.press("Escape")
        assert not tab.page.locator(".tip").is_visible()
        assert first.locator('[tabindex="0"]').count() == 1


def test_a_screen_reader_hears_every_figure_and_its_marks(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["vectors"]) as tab:
        group = tab.page.get_by_role("group", name="Reliability diagram: share right against stated confidence")
        assert group.count() == 1
        assert group.get_by_role("img", name="rows say").count() == 6  # two bins in each of three rounds


def test_without_the_script_the_page_says_the_same(browser: Any, pages: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["vectors"].as_uri())
    assert page.get_by_role("img", name="Changed labels, round 1: 0.25").count() == 1
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_ground_follows_the_readers_wish(browser: Any, pages: dict[str, Path], scheme: str) -> None:
    with opened(browser, pages["vectors"], scheme) as tab:
        ground = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
        line = tab.page.evaluate("getComputedStyle(document.querySelector('.l.s1')).stroke")
        assert (ground, line) == {
            "light": ("rgb(246, 248, 250)", "rgb(0, 114, 178)"),
            "dark": ("rgb(13, 17, 23)", "rgb(86, 180, 233)"),
        }[scheme]


def test_a_page_prints_light_with_its_figures_and_without_its_tip(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["pictures"], "dark") as tab:
        tab.page.locator(".chart .m").first.focus()
        tab.page.emulate_media(media="print", color_scheme="dark")
        assert tab.page.evaluate("getComputedStyle(document.querySelector('.chart text')).fill") == "rgb(31, 35, 40)"
        assert not tab.page.locator(".tip").is_visible()
        assert tab.page.locator(".chart").first.is_visible()
        assert len(tab.page.pdf(format="A4")) > 10_000


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("scheme", "size"), [("light", WIDE), ("dark", PHONE)], ids=["light", "dark"])
def test_axe_finds_nothing_serious(
    browser: Any, pages: dict[str, Path], name: str, scheme: str, size: dict[str, int]
) -> None:
    axe = pytest.importorskip("axe_playwright_python", reason="axe is not installed: make setup installs it")
    code = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    with opened(browser, pages[name], scheme, size) as tab:
        tab.page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
        tab.page.evaluate(code)
        found = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found] == []
