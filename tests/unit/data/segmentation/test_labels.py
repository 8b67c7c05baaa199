"""Label maps: what their bytes mean, and which classes there are."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest
import torch
from PIL import Image

from embasis.data.images.header import LARGEST_PIXELS
from embasis.data.segmentation.audit import count_values
from embasis.data.segmentation.classes import (
    choose_colours,
    find_class_file,
    read_class_file,
    table_from_numbers,
    unnamed_colours_error,
)
from embasis.data.segmentation.labels import (
    GREY,
    PALETTE,
    RGB,
    RGBA,
    BadMap,
    WrongKind,
    decode_classes,
    decode_map,
    iter_numbers,
    read_map_header,
    read_png_numbers,
)
from embasis.types import ClassTable
from image_trees import refusal
from map_trees import chunk, filtered, ids, png_bytes, saved

IDS = ClassTable(("a", "b"), ((0, 4), (1,)))
COLOURS = ClassTable(("a", "b"), ((0,), (1,)), ((255, 0, 0), (0, 255, 0)), (0,), coded="colours")
FIRST = ClassTable(("a", "b"), ((3,), (700,)), ignore=(0,), coded="first")


def reason(call) -> str:
    with pytest.raises(BadMap) as caught:
        call()
    return str(caught.value)


# The numbers in PNG files


@pytest.mark.parametrize("kind", ["L", "P", "1", "I;16", "RGB", "RGBA"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (40, 33)])
def test_the_reader_agrees_with_pillow(kind, shape):
    draw = np.random.default_rng(shape[1])
    channels = {"RGB": (3,), "RGBA": (4,)}.get(kind, ())
    values = draw.integers(0, 65536, (*shape, *channels), dtype=np.uint16)
    values = values if kind == "I;16" else (values > 9999) if kind == "1" else (values >> 8).astype(np.uint8)
    image = Image.fromarray(values).convert("P") if kind == "P" else Image.fromarray(values)
    stream = io.BytesIO()
    image.save(stream, "PNG")
    with Image.open(io.BytesIO(stream.getvalue())) as again:
        assert again.mode == kind
        np.testing.assert_array_equal(read_png_numbers(stream.getvalue()), np.asarray(again))


@pytest.mark.parametrize("kind", [GREY, PALETTE])
@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_numbers_of_few_bits_are_not_scaled(kind, depth):
    values = np.random.default_rng(depth).integers(0, 2**depth, (5, 11))
    bits = (values[..., None] >> np.arange(depth)[::-1]) & 1
    rows = np.packbits(bits.reshape(5, -1).astype(bool), axis=1)
    data = png_bytes(11, 5, depth, kind, filtered(rows, 1, [0] * 5), extra=chunk(b"PLTE", bytes(range(48))))
    np.testing.assert_array_equal(read_png_numbers(data), values)


@pytest.mark.parametrize(("kind", "channels"), [(GREY, 1), (RGB, 3), (RGBA, 4)])
def test_16_bit_numbers_are_exact_under_every_filter(kind, channels):
    values = np.random.default_rng(channels).integers(0, 65536, (10, 6, channels))
    rows = values.astype(">u2").reshape(10, -1).view(np.uint8)
    data = png_bytes(6, 10, 16, kind, filtered(rows, 2 * channels, [0, 1, 2, 3, 4, 4, 3, 2, 1, 0]))
    np.testing.assert_array_equal(read_png_numbers(data).reshape(values.shape), values)
    assert read_png_numbers(data).dtype == np.uint16


def test_interlaced_files_are_read():
    values = np.random.default_rng(0).integers(0, 256, (9, 13), dtype=np.uint8)
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [values[row::down, column::right] for row, column, down, right in passes]
    rows = b"".join(filtered(part, 1, [4] * len(part)) for part in parts if part.size)
    np.testing.assert_array_equal(read_png_numbers(png_bytes(13, 9, 8, GREY, rows, laced=1)), values)


# What cannot be used


def test_a_header_is_enough_for_the_size():
    head = read_map_header(saved(ids("0 1 1"))[:40])
    assert (head.height, head.width) == (1, 3)
    assert read_map_header(saved(ids("0 1 1"))).name == "8-bit grey"


def test_other_formats_are_refused():
    scene = np.zeros((8, 8), np.uint8)
    assert reason(lambda: decode_classes(saved(scene, "JPEG"), IDS)) == (
        "is a JPEG: its numbers are not exact; save label maps as PNG"
    )
    assert reason(lambda: read_map_header(saved(scene, "BMP"))) == "is a BMP; save label maps as PNG"
    assert reason(lambda: read_map_header(saved(scene, "TIFF"))) == "is a TIFF; save label maps as PNG"
    assert reason(lambda: read_map_header(b"")) == "the file is empty"
    assert reason(lambda: read_map_header(b"text")) == "not an image that is read"


def test_damaged_files_are_refused():
    whole = saved(np.random.default_rng(0).integers(0, 2, (30, 30), dtype=np.uint8))
    for data in (whole[:20], whole[:50], whole[:-20]):
        assert reason(lambda data=data: decode_classes(data, IDS)) == "truncated PNG"
    wrong = bytearray(whole)
    wrong[60] ^= 1
    assert reason(lambda: decode_classes(bytes(wrong), IDS)) == "damaged PNG: wrong checksum of its IDAT chunk"
    assert reason(lambda: decode_classes(png_bytes(4, 4, 8, 0, bytes(10)), IDS)) == "truncated PNG"
    assert reason(lambda: decode_classes(png_bytes(2, 2, 8, 0, b"\x09ab" * 2), IDS)) == "damaged PNG: its pixels"
    for depth, kind in ((3, 0), (4, 2), (16, 3), (8, 5)):
        data = png_bytes(1, 1, depth, kind, bytes(9))
        assert reason(lambda data=data: decode_classes(data, IDS)) == "damaged PNG: its header makes no sense"


def test_a_bomb_is_refused_by_its_header():
    data = png_bytes(LARGEST_PIXELS // 1024, 1025, 8, GREY, b"")
    assert reason(lambda: decode_classes(data, IDS)) == f"{LARGEST_PIXELS // 1024}×1025 exceeds 64 Mpx"
    many = png_bytes(2, 2, 8, GREY, b"\x00ab" * 2_000_000)
    assert read_png_numbers(many).shape == (2, 2)


def test_numbers_where_colours_are_expected_and_the_reverse_are_refused():
    colour, grey = np.zeros((2, 2, 3), np.uint8), np.zeros((2, 2), np.uint8)
    numbers = "numbers are expected, as 8-bit grey or palette"
    assert reason(lambda: decode_classes(saved(colour), IDS)) == f"is 8-bit RGB: {numbers}"
    assert reason(lambda: decode_classes(saved(grey), COLOURS)) == (
        "is 8-bit grey: colours are expected, as 8-bit RGB or palette"
    )
    assert reason(lambda: decode_classes(saved(grey), FIRST)) == (
        "is 8-bit grey: 16-bit RGB is expected, with the class in its first channel"
    )
    deep = png_bytes(1, 1, 16, RGB, bytes(7))
    assert reason(lambda: decode_classes(deep, IDS)) == (
        f'is 16-bit RGB: {numbers}; if its first channel is the class, write coded = "first" in classes.toml'
    )
    with pytest.raises(WrongKind):
        decode_classes(deep, COLOURS)


# Classes of pixels


def test_ids_become_classes_and_255_is_ignored():
    expected = torch.tensor([[0, 1], [0, 255]], dtype=torch.uint8)
    for data in (saved(ids("0 1", "4 255")), saved(ids("0 1", "4 255"), palette=[9] * 768)):
        assert torch.equal(decode_classes(data, IDS), expected)
    assert [part.tolist() for part in iter_numbers(saved(ids("0 4")), "ids")] == [[[0, 4]]]


def test_16_bit_ids_are_read():
    table = ClassTable(("a", "b"), ((1000,), (65535,)), ignore=(0,))
    data = saved(np.array([[0, 1000, 65535]], np.uint16))
    assert decode_classes(data, table).tolist() == [[255, 0, 1]]


def test_colours_become_classes_and_transparent_pixels_are_ignored():
    row = [[255, 0, 0, 255], [0, 255, 0, 1], [7, 7, 7, 0], [0, 0, 0, 255]]
    assert decode_classes(saved(np.array([row], np.uint8)), COLOURS).tolist() == [[0, 1, 255, 255]]
    (part,) = iter_numbers(saved(np.array([row], np.uint8)), "colours")
    assert part.tolist() == [[0xFF0000, 0x00FF00, -1, 0]]


def test_a_palette_may_stand_for_colours():
    data = saved(ids("2 1 0"), palette=[0, 0, 0, 0, 255, 0, 255, 0, 0])
    assert decode_classes(data, COLOURS).tolist() == [[0, 1, 255]]


def test_the_first_channel_of_16_bit_colours_is_the_class():
    values = np.array([[[3, 9, 9], [700, 1, 65535], [0, 3, 3]]])
    data = png_bytes(3, 1, 16, RGB, filtered(values.astype(">u2").reshape(1, -1).view(np.uint8), 6, [4]))
    assert decode_classes(data, FIRST).tolist() == [[0, 1, 255]]


def test_numbers_that_are_not_allowed_are_said_with_their_pixels():
    data = saved(ids("0 7 7", "1 255 9"))
    assert reason(lambda: decode_classes(data, IDS)) == "ids {7: 2 px, 9: 1 px}; allowed 0–1, 4, ignore 255"
    assert decode_map(data, IDS)[1] == {7: 2, 9: 1}
    assert decode_classes(data, ClassTable(IDS.names, IDS.ids, others=True)).tolist() == [[0, 255, 255], [1, 255, 255]]
    colours = saved(np.array([[[255, 0, 0], [1, 2, 3]]], np.uint8))
    assert reason(lambda: decode_classes(colours, COLOURS)) == (
        "colours {#010203: 1 px}; allowed #00ff00, #ff0000, ignore #000000"
    )


def test_254_classes_are_told_apart():
    table = table_from_numbers(range(254), "x")
    data = saved(np.arange(256, dtype=np.uint8)[None])
    assert decode_map(data, table)[1] == {254: 1}
    assert decode_classes(saved(np.arange(254, dtype=np.uint8)[None]), table).tolist() == [list(range(254))]


def test_a_tally_counts_as_the_map_does():
    draw = np.random.default_rng(3)
    data = saved(draw.choice(np.array([0, 1, 4, 7, 255], np.uint8), (50, 60)))
    seen = count_values(data, "ids")
    again = ClassTable(IDS.names, IDS.ids, others=True)
    expected = torch.bincount(decode_classes(data, again).reshape(-1).long(), minlength=256)[:2]
    assert torch.equal(seen.counts(again), expected)
    assert seen.unknown_values(IDS) == decode_map(data, IDS)[1]
    colours = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 0], [5, 5, 5]], np.uint8)[draw.integers(0, 4, (30, 20))]
    seen = count_values(saved(colours), "colours")
    assert seen.size == (30, 20)
    assert seen.unknown_values(COLOURS) == decode_map(saved(colours), COLOURS)[1]
    assert seen.counts(COLOURS)[0] == (colours == [255, 0, 0]).all(-1).sum()


def test_a_large_map_is_read_quickly():
    scene = np.random.default_rng(0).integers(0, 2, (64, 128), dtype=np.uint8).repeat(16, 0).repeat(16, 1)
    data = saved(scene, palette=list(range(256)) * 3)
    assert scene.shape == (1024, 2048)
    times = []
    for _ in range(5):
        before = time.perf_counter()
        decode_classes(data, IDS)
        times.append(time.perf_counter() - before)
    assert min(times) < 0.2  # measured: 0.01 s; other work may go on beside the tests


# classes.toml


def written(path, text: str):
    path.write_text(text)
    return path


def entry(name: str, *lines: str) -> str:
    return "\n".join(["[[class]]", f'name = "{name}"', *lines, ""])


TWO = entry("road", "id = 0", 'colour = "#804080"') + entry("tree", "ids = [1, 4]", "colour = [0, 255, 0]")


def test_a_classes_file_is_a_table(tmp_path):
    table = read_class_file(written(tmp_path / "c.toml", "ignore = [255, 9]\n" + TWO)).table()
    assert table == ClassTable(("road", "tree"), ((0,), (1, 4)), ((128, 64, 128), (0, 255, 0)), (255, 9))


def test_how_maps_are_coded_is_seen_from_the_maps_or_said(tmp_path):
    file = read_class_file(written(tmp_path / "c.toml", TWO))
    colours, grey, palette = (
        read_map_header(data)
        for data in (saved(np.zeros((1, 1, 3), np.uint8)), saved(ids("0")), saved(ids("0"), palette=[0] * 768))
    )
    assert [file.table(head).coded for head in (colours, grey, palette)] == ["colours", "ids", "ids"]
    assert file.table(colours).ignore == ()
    only = read_class_file(
        written(tmp_path / "d.toml", entry("a", 'colour = "#000001"') + entry("b", 'colour = "#000002"'))
    )
    assert [only.table(head).coded for head in (colours, palette)] == ["colours", "colours"]
    assert only.table(colours).ids == ((0,), (1,))
    said = read_class_file(written(tmp_path / "e.toml", 'coded = "first"\nothers = true\n' + TWO)).table(grey)
    assert (said.coded, said.others) == ("first", True)


def test_colours_can_be_ignored(tmp_path):
    text = 'ignore = ["#000000", [1, 1, 1]]\ncoded = "colours"\n' + TWO
    assert read_class_file(written(tmp_path / "c.toml", text)).table().ignore == (0, 0x010101)


def test_classes_without_a_colour_get_one_of_their_own(tmp_path):
    text = entry("a", "id = 0", "colour = [0, 224, 0]") + entry("b", "id = 1") + entry("c", "id = 2")
    colours = read_class_file(written(tmp_path / "c.toml", text)).table().colours
    assert colours[0] == (0, 224, 0)
    assert len(set(colours)) == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (entry("a", "id = 0"), "at least 2 classes are needed, got 1; write a [[class]] for each"),
        (entry("a", "id = 0") + entry("a", "id = 1"), "names of classes must be unique, twice or more: a"),
        (entry("a", "id = 0") + entry("b", "ids = [1, 0]"), "ids must be unique, twice or more: 0"),
        (entry("a", "id = 0") + entry("b"), "class 'b' needs an id or a colour"),
        (entry("a", "id = 0", "ids = [2]") + TWO, "class 'a' has id and ids; write one of them"),
        (entry("a", "ids = []") + TWO, "class 'a' has no number in ids"),
        (entry("a", "id = -1") + TWO, "class 'a': ids must be in 0..65535, got -1"),
        (entry(" ", "id = 9") + TWO, "class 1 has an empty name"),
        ("ignore = [0]\n" + TWO, "numbers that a class has cannot be ignored: 0"),
        ("ignore = [-1]\n" + TWO, "ignore must be in 0..65535, got -1"),
        (
            entry("a", 'colour = "red"') + TWO,
            "colours are written \"#rrggbb\" or [r, g, b] with numbers in 0..255, got 'red'",
        ),
        (
            entry("a", "colour = [0, 1, 256]") + TWO,
            'colours are written "#rrggbb" or [r, g, b] with numbers in 0..255, got [0, 1, 256]',
        ),
        (entry("a", "id = 5", "colour = [0, 255, 0]") + TWO, "colours must be unique, twice or more: #00ff00"),
        (
            entry("a", "color = 1") + TWO,
            "Object contains unknown field `color` - at `$.class[0]`; "
            "known keys: class, coded, ignore, others; of a class: colour, id, ids, name",
        ),
        (
            'coded = "hex"\n' + TWO,
            "Invalid enum value 'hex' - at `$.coded`; "
            "known keys: class, coded, ignore, others; of a class: colour, id, ids, name",
        ),
        ("[[class", "Expected ']]' at the end of an array declaration (at end of document)"),
    ],
)
def test_a_classes_file_that_makes_no_sense_is_refused(tmp_path, text, sentence):
    path = written(tmp_path / "classes.toml", text)
    assert refusal(lambda: read_class_file(path)) == f"{path}: {sentence}"


def test_a_class_that_the_maps_need_a_colour_or_an_id_of_is_named(tmp_path):
    path = written(tmp_path / "classes.toml", TWO + entry("sky", "id = 2"))
    head = read_map_header(saved(np.zeros((1, 1, 3), np.uint8)))
    assert refusal(lambda: read_class_file(path).table(head)) == (
        f"{path}: class 'sky' has no colour, but the label maps are coded by colours; write colour = \"#rrggbb\""
    )
    written(path, entry("a", 'colour = "#000001"') + entry("b", 'colour = "#000002"'))
    assert refusal(lambda: read_class_file(path).table(read_map_header(saved(ids("0"))))) == (
        f"{path}: 2 classes have no id, but the label maps are coded by numbers; write id = 0; they are 'a', 'b'"
    )


def test_a_classes_file_is_found_in_the_folder_or_given(tmp_path):
    assert find_class_file(tmp_path) is None
    written(tmp_path / "classes.toml", TWO)
    assert find_class_file(tmp_path).names == ("road", "tree")
    assert refusal(lambda: find_class_file(tmp_path, tmp_path / "no.toml")) == f"{tmp_path}/no.toml: no such file"


# No classes.toml


def test_numbers_are_classes_where_nothing_is_named():
    table = table_from_numbers([7, 0, 255, 3], "x", [(number, 0, 0) for number in range(5)])
    assert (table.names, table.ids, table.ignore) == (("0", "3", "7"), ((0,), (3,), (7,)), (255,))
    assert table.colours[:2] == ((0, 0, 0), (3, 0, 0))
    assert refusal(lambda: table_from_numbers([0, 255], "x")) == (
        "x: at least 2 classes are needed, got 1 class: '0'; 255 is ignored"
    )
    assert refusal(lambda: table_from_numbers(range(300), "x")) == (
        "x: label maps have 299 different numbers, at most 254 are possible; name the classes in a classes.toml there"
    )


def test_unnamed_colours_are_listed_with_their_share():
    pixels = {0x804080: 750, 0x0000FF: 250}
    assert str(unnamed_colours_error(pixels, "x")) == (
        "x: label maps are coded by colours, and no classes.toml says which is which; "
        "2 colours: #804080 75.0 %, #0000ff 25.0 %; write x/classes.toml with three lines for each class: "
        '[[class]] / name = "…" / colour = "#804080"'
    )
    assert "and 2 more; write" in str(unnamed_colours_error(dict.fromkeys(range(12), 1), "x"))


def test_colours_are_far_from_each_other_and_always_the_same():
    few, many = np.array(choose_colours(19)), np.array(choose_colours(254))
    assert (few == many[:19]).all()
    away = np.abs(few[:, None] - few[None]).sum(-1) + 999 * np.eye(19)
    assert away.min() >= 96
    assert len(np.unique(many, axis=0)) == 254
