"""Labelled pictures before and after a restyler: which ones, what is kept of them, and what the page says."""

from __future__ import annotations

import base64
import dataclasses
import io
import re
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from embasis.config import load
from embasis.errors import CorruptError
from embasis.inputs.load import load_problem
from embasis.inputs.restyled_pictures import collect_restyled
from embasis.methods.restyling import cycada, parts
from embasis.methods.restyling.statistics import ChannelStatistics
from embasis.report import MOST_RESTYLED, RestyledExample, RestyledPictures
from embasis.report.page import restyled_section, run_page
from embasis.report.restyled import LARGEST_RESTYLED_FILE, choose_rows, hash_style, read_restyled
from embasis.runs.checkpoint import read_run_view
from embasis.storage import SealedFiles, read_newest, read_sealed
from embasis.types import Arrays, LabelSchema, Problem, RowChange
from folder_runs import go
from image_runs import begun, read, settings, sides
from map_folder_runs import sides as map_sides
from map_page_views import png
from map_runs import little_streets
from page_views import view
from storage_runs import sealed
from training_runs import little_digits

BRIGHT = RowChange(ChannelStatistics(), {"centre": torch.tensor([[0.0], [1.0]]), "scale": torch.ones(2, 1)})
"""Adds one."""


@pytest.fixture(autouse=True)
def short_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(parts, "SOURCE_STEPS", 5)
    monkeypatch.setattr(cycada, "STEPS_A_CALL", 2)


def pixels_of(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def grey_of(text: str) -> int:
    """The value of the first pixel."""
    return int(pixels_of(base64.b64decode(text))[0, 0, 0])


# what is kept


def test_the_first_of_each_class_comes_first() -> None:
    assert [*choose_rows([2, 0, 0, 2, 5, 0])] == [1, 0, 4, 2, 3, 5]
    assert [*choose_rows([])] == []
    assert [*islice(choose_rows([0] * 10**5), 3)] == [0, 1, 2]


def rows_problem(labelled: torch.Tensor, unlabelled: torch.Tensor) -> Problem:
    labels = torch.arange(len(labelled)) % 2
    return Problem(Arrays.of(labelled, labels), Arrays.of(unlabelled), LabelSchema(("cat", "dog")))


def test_numbers_become_grey_on_one_scale_for_both_sides_and_what_lies_beyond_is_cut() -> None:
    labelled = torch.tensor([0.0, 1.0, 2.0, 3.0]).view(4, 1, 1, 1).expand(4, 1, 2, 3)
    found = collect_restyled(rows_problem(labelled, torch.full((2, 1, 2, 3), 2.0)), BRIGHT)
    assert found is not None
    keys = ("before", "after")
    before, after = ([grey_of(item[key]) for item in found["examples"]] for key in keys)
    assert before == [0, 85, 170, 255]
    assert after == [85, 170, 255, 255]
    assert [(item["name"], item["label"]) for item in found["examples"]] == [
        ("row 0", "cat"), ("row 1", "dog"), ("row 2", "cat"), ("row 3", "dog"),
    ]  # fmt: skip
    assert grey_of(found["other"]["picture"]) == 170
    assert (found["restyler"], found["share"], found["count"]) == ("restyle", 1.0, 4)


@pytest.mark.parametrize("shape", [(4, 9), (4, 2, 3, 3), (4, 3, 8)])
def test_rows_that_are_no_pictures_are_not_shown(shape: tuple[int, ...]) -> None:
    assert collect_restyled(rows_problem(torch.rand(shape), torch.rand(shape)), BRIGHT) is None


def test_large_data_of_large_pictures_keep_a_small_file(tmp_path: Path) -> None:
    pixels = torch.rand(40, 3, 500, 700, generator=torch.Generator().manual_seed(0))
    change = RowChange(ChannelStatistics(), {"centre": torch.zeros(2, 3), "scale": torch.ones(2, 3)})
    found = collect_restyled(rows_problem(pixels, pixels), change)
    assert found is not None
    assert len(found["examples"]) == MOST_RESTYLED
    copies = [base64.b64decode(item[key]) for item in found["examples"] for key in ("before", "after")]
    assert {Image.open(io.BytesIO(data)).size for data in copies} == {(160, 114)}
    assert len(sealed(found)) < LARGEST_RESTYLED_FILE / 4  # noise, which JPEG cannot make small


def fitted(kind: str, method: str, path: Path, tmp_path: Path) -> Any:
    """A run in a folder, as short as can be."""
    own: dict[str, Any] = {"fcan": {"iterations": 2}, "cycada": {"steps": 2}}.get(method, {})
    chosen = {"name": method, **own}
    if kind == "images":
        config = settings(tmp_path / "cache", "full", method=chosen)
        problem, front = begun(sides(tmp_path / "images", 3), config)
        return go(path, config, None, read(problem, front), front)
    plan = {"rounds": 0, "source_epochs": 1}
    if kind == "map files":
        root = map_sides(tmp_path / "scenes", 4)
        data = {"labelled": str(root / "drawn"), "unlabelled": str(root / "streets")}
        maps, network = {"size": 32, "workers": 0}, {"name": "small_fcn"}
        problem, config = load_problem(load(None, (), data=data, network=network, maps=maps, method=chosen, plan=plan))
        return go(path, config, None, problem)
    if kind == "maps":
        return go(path, load(method=chosen, plan=plan), None, little_streets())
    network = {"name": "small_cnn", "width": 4, "features": 16}
    return go(path, load(method=chosen, network=network, plan=plan), None, little_digits())


@pytest.mark.parametrize(
    ("kind", "method"),
    [("rows", "fcan"), ("rows", "cycada"), ("rows", "restyle"), ("images", "fcan"), ("images", "restyle"),
     ("maps", "fcan"), ("map files", "restyle")],
)  # fmt: skip
def test_a_run_keeps_what_its_page_shows_so_that_it_can_be_drawn_again(kind: str, method: str, tmp_path: Path) -> None:
    run = fitted(kind, method, tmp_path / "run", tmp_path)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<h2>Restyled pictures</h2>" in page
    assert run_page(read_run_view(tmp_path / "run")) == page
    found = read_run_view(tmp_path / "run").restyled
    assert found is not None
    assert (found.restyler, found.count) == (method, len(run.problem.labelled))
    assert len(found.examples) == min(MOST_RESTYLED, found.count)
    assert found.other is not None
    for item in found.examples:
        assert bool(item.label) == (kind in ("rows", "images"))
        before, after = pixels_of(item.before), pixels_of(item.after)
        assert before.shape == after.shape
        assert method == "cycada" or not np.array_equal(before, after)
    alts = re.findall(r'alt="((?:Before|After|Unlabelled)[^"]*)"', page)
    assert len(alts) == len({*alts}) == 2 * len(found.examples) + 1


def test_what_is_shown_is_what_training_saw(tmp_path: Path) -> None:
    run = fitted("rows", "fcan", tmp_path / "run", tmp_path)
    stored = read_sealed(tmp_path / "run" / "gallery" / "restyled.json", LARGEST_RESTYLED_FILE)
    learned = {
        name.removeprefix("restyle/"): value
        for name, value in read_newest(tmp_path / "run").tensors.items()
        if name.startswith("restyle/")
    }
    change = RowChange(run.prepare().method.restyle, learned)
    assert stored["style"] == hash_style(learned)
    restyled = run.problem.restyled.read(run.problem.labelled, change)
    low, high = (
        float(getattr(torch, name)(torch.cat([run.problem.labelled.x, run.problem.unlabelled.x])))
        for name in ("min", "max")
    )
    for row, item in zip(choose_rows(run.problem.labelled.labels.tolist()), stored["examples"], strict=False):
        seen = ((restyled.x[row, 0] - low) * 255 / (high - low)).round().clamp(0, 255)
        assert np.array_equal(pixels_of(base64.b64decode(item["after"]))[..., 0], seen.numpy())


def test_a_run_without_a_restyler_keeps_and_shows_nothing(tmp_path: Path) -> None:
    fitted("rows", "source_only", tmp_path / "run", tmp_path)
    assert not (tmp_path / "run" / "gallery" / "restyled.json").exists()
    assert "Restyled pictures" not in (tmp_path / "run" / "report.html").read_text()


# what is read


def stored(**other: Any) -> dict[str, Any]:
    copy = base64.b64encode(png()).decode()
    item = {"name": "a", "label": "cat", "before": copy, "after": copy}
    facts = {"restyler": "fcan", "summary": "x", "share": 1.0, "count": 1, "style": hash_style({}), "other": None}
    return {**facts, "examples": [item], **other}


def read_from(tmp_path: Path, data: bytes) -> RestyledPictures | None:
    (tmp_path / "gallery").mkdir()
    (tmp_path / "gallery" / "restyled.json").write_bytes(data)
    return read_restyled(SealedFiles(tmp_path, {}), {})


def test_a_user_may_delete_it_and_there_need_be_no_unlabelled_picture(tmp_path: Path) -> None:
    assert read_restyled(SealedFiles(tmp_path, {}), {}) is None
    found = read_from(tmp_path, sealed(stored()))
    assert found == RestyledPictures("fcan", "x", 1.0, 1, (RestyledExample("a", "cat", png(), png()),))


@pytest.mark.parametrize(
    "other",
    [{"examples": [{}]}, {"examples": 3}, {"other": 3}, {"share": "much"}, {"count": None}, {"other": {"name": "a"}}],
)
def test_what_is_no_gallery_is_refused_by_its_name(tmp_path: Path, other: dict[str, Any]) -> None:
    with pytest.raises(CorruptError, match=r"restyled\.json is not a gallery: "):
        read_from(tmp_path, sealed(stored(**other)))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    data = sealed(stored())
    with pytest.raises(CorruptError, match=r"restyled\.json"):
        read_from(tmp_path, data.replace(b"fcan", b"fcam"))


def test_pictures_of_another_style_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "gallery" / "restyled.json"
    rule = f"{path} shows another style than that of the run; the fit command that made the run makes it again"
    with pytest.raises(CorruptError, match=f"^{re.escape(rule)}$"):
        read_from(tmp_path, sealed(stored(style=hash_style({"centre": torch.zeros(1)}))))


# what the page says


def pictures(count: int = 2, **other: Any) -> RestyledPictures:
    examples = tuple(RestyledExample(f"{i}.png", "cat", png(shade=i), png(shade=8 * i)) for i in range(count))
    plain = RestyledPictures("fcan", "colours change", 1.0, 1200, examples, "u.png", png(shade=7))
    return dataclasses.replace(plain, **other)


def test_the_caption_says_what_was_changed_by_what_and_how_much() -> None:
    section = restyled_section(dataclasses.replace(view(), restyled=pictures(share=0.25)))
    assert section is not None
    assert section.caption == (
        "Training saw the 1,200 labelled pictures in the style of the unlabelled side, by fcan: colours change. "
        "What they show, and their labels, stay. The share of the new style is 25%. Here are 2 of them, before and "
        "after; the last picture is an unlabelled one, to compare them with."
    )
    alone = restyled_section(dataclasses.replace(view(), restyled=pictures(1, other=None)))
    assert alone is not None
    assert alone.caption.endswith("stay. Here is one of them, before and after.")


def test_each_picture_has_words_for_those_who_do_not_see_it() -> None:
    html = run_page(dataclasses.replace(view(), restyled=pictures(1)))
    for alt in (
        "Before: 0.png, labelled cat.",
        "After fcan: 0.png, labelled cat.",
        "Unlabelled, for comparison: u.png.",
    ):
        assert html.count(f'alt="{alt}"') == 1


def test_no_more_than_a_few_are_shown_and_nothing_that_is_no_picture() -> None:
    many = restyled_section(dataclasses.replace(view(), restyled=pictures(30)))
    assert many is not None
    assert len(many.pairs) == MOST_RESTYLED + 1
    bad = (RestyledExample("a", "cat", b"<svg>", png()), RestyledExample("b", "cat", png(), b""))
    assert restyled_section(dataclasses.replace(view(), restyled=pictures(examples=bad))) is None
    assert restyled_section(view()) is None
