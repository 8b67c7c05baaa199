"""Run lengths as COCO writes them: those of plain loops, and of pycocotools where it is installed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from coco_cases import slow_box, slow_mask, slow_numbers
from embasis.storage.picture_formats import Picture, encode_coco, encode_counts, find_regions

MAPS = arrays(np.int64, st.tuples(st.integers(1, 9), st.integers(1, 9)), elements=st.integers(-1, 2))


def slow_counts(mask: np.ndarray) -> list[int]:
    """Lengths of the runs of 0, 1, 0, … down one column after the other."""
    counts, value, length = [], 0, 0
    height, width = mask.shape
    for column in range(width):
        for row in range(height):
            if mask[row, column] != value:
                counts.append(length)
                value, length = 1 - value, 0
            length += 1
    return [*counts, length]


def slow_text(counts: list[int]) -> str:
    letters = []
    for place, count in enumerate(counts):
        number = count - (counts[place - 2] if place > 2 else 0)
        while True:
            bits, number = number & 31, number >> 5
            last = number == (-1 if bits & 16 else 0)
            letters.append(chr(48 + bits + (0 if last else 32)))
            if last:
                break
    return "".join(letters)


@given(MAPS)
def test_regions_are_those_of_plain_loops(classes: np.ndarray) -> None:
    found = {region.label: region for region in find_regions(classes)}
    assert sorted(found) == sorted({*classes.reshape(-1).tolist()} - {-1})
    for label, region in found.items():
        mask = (classes == label).astype(int)
        assert region.counts == slow_text(slow_counts(mask))
        assert (slow_mask(region.counts, *classes.shape) == mask).all()
        assert region.area == int(mask.sum())
        assert region.box == slow_box(mask)


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=12))
def test_counts_of_any_size_come_back_from_their_text(counts: list[int]) -> None:
    text = encode_counts(np.array(counts, np.int64))
    assert text == slow_text(counts)
    assert slow_numbers(text) == counts


def test_a_known_region_has_the_text_that_cocos_own_tool_writes() -> None:
    classes = np.full((4, 5), -1)
    classes[1:3, 1:4] = 0
    (region,) = find_regions(classes)
    assert region.counts == "5220003"
    assert (region.area, region.box) == (6, (1, 1, 3, 2))


def test_the_file_has_one_entry_for_each_picture_class_and_region() -> None:
    classes = np.array([[0, 2], [-1, 2]])
    pictures = [Picture("a/ü \n.png", 2, 2, find_regions(classes)), Picture("=b.png", 1, 3, [])]
    found = json.loads(encode_coco("trusted", "0", ["road", 'a "b"', "sky"], pictures))
    assert found["images"] == [
        {"id": 1, "file_name": "a/ü \n.png", "height": 2, "width": 2},
        {"id": 2, "file_name": "=b.png", "height": 1, "width": 3},
    ]
    assert [(entry["id"], entry["name"]) for entry in found["categories"]] == [(1, "road"), (2, 'a "b"'), (3, "sky")]
    first, second = found["annotations"]
    assert (first["id"], first["image_id"], first["category_id"], first["iscrowd"]) == (1, 1, 1, 1)
    assert (second["id"], second["category_id"], second["area"], second["bbox"]) == (2, 3, 2, [1, 0, 1, 2])
    assert second["segmentation"] == {"size": [2, 2], "counts": slow_text([2, 2])}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pycocotools itself
def test_pycocotools_reads_the_same_regions() -> None:
    tool = pytest.importorskip("pycocotools.mask", reason="pycocotools is no dependency; the loops above say the same")
    draw = np.random.default_rng(0)
    for _ in range(200):
        height, width = draw.integers(1, 40, 2)
        small = draw.integers(-1, 3, (height // 5 + 1, width // 5 + 1))
        classes = small.repeat(5, 0).repeat(5, 1)[:height, :width]
        for region in find_regions(classes):
            mask = np.asfortranarray((classes == region.label).astype(np.uint8))
            written = {"size": [int(height), int(width)], "counts": region.counts}
            assert tool.encode(mask)["counts"].decode() == region.counts
            assert (tool.decode(written) == mask).all()
            assert tuple(tool.toBbox(written).astype(int).tolist()) == region.box
            assert int(tool.area(written)) == region.area
