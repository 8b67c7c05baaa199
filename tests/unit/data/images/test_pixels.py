"""Images of every kind become the pixels that the table in data/images/pixels.py says, or are refused with a reason."""

from __future__ import annotations

import hashlib
import io
import struct
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from embasis.data.images import header as header_module
from embasis.data.images import pixels as module
from embasis.data.images.header import Header, UnreadableImage, read_header
from embasis.data.images.heif import has_heif
from embasis.data.images.pixels import CROP_RATIO, centre_view, crop_box, decode, random_view
from embasis.errors import ConfigError
from embasis.types import Preparation
from image_bombs import GREY, PIXELS, blocks, bombs, png, saved


def rows(data: bytes) -> list[Any]:
    """Pixels as (H, W, 3) lists."""
    return decode(data).permute(1, 2, 0).tolist()


def sha(image: torch.Tensor) -> str:
    return hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest()


def reason(data: bytes) -> str:
    with pytest.raises(UnreadableImage) as caught:
        decode(data)
    return str(caught.value)


def grey(values: list[list[int]]) -> list[Any]:
    return [[[value] * 3 for value in line] for line in values]


LOSSLESS = [("PNG", {}), ("BMP", {}), ("PPM", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}),
            ("TIFF", {"compression": "tiff_deflate"}), ("WEBP", {"lossless": True})]  # fmt: skip


@pytest.mark.parametrize(("kind", "options"), LOSSLESS)
def test_a_lossless_image_gives_its_own_pixels_whatever_the_format(kind: str, options: dict[str, Any]) -> None:
    data = saved(PIXELS, kind, **options)
    assert rows(data) == PIXELS.tolist()
    assert sha(decode(data)) == "20c3ce161b5bb15a93dc162ff91ce04731d09567c51aaf9cda9ef84ebd2f40dc"
    assert read_header(data) == Header(kind, 4, 5)


def test_a_grey_image_has_its_value_in_all_channels() -> None:
    for data in (saved(GREY, "PNG"), saved(GREY, "TIFF"), saved(GREY, "PPM"), saved(GREY, "GIF")):
        assert rows(data) == grey([[0, 1, 128], [254, 255, 77]])


def test_one_bit_is_black_or_white() -> None:
    image = Image.fromarray(np.array([[0, 255, 255], [255, 0, 0]], dtype=np.uint8)).convert("1")
    for kind in ("PNG", "TIFF", "PPM", "BMP"):
        assert rows(saved(image, kind)) == grey([[0, 255, 255], [255, 0, 0]])
    assert rows(b"P1 3 1\n1 0 1\n") == grey([[0, 255, 0]])


def test_sixteen_bit_grey_is_divided_by_257_and_rounded() -> None:
    values = np.array([[0, 128, 129, 257], [385, 386, 32896, 65535]], dtype=np.uint16)
    expected = grey([[0, 0, 1, 1], [1, 2, 128, 255]])
    for data in (saved(values, "PNG"), saved(values, "TIFF"), saved(values, "PPM")):
        assert rows(data) == expected
    assert rows(b"P5 2 1 65535\n" + struct.pack(">HH", 386, 65535)) == grey([[2, 255]])


def test_sixteen_bit_colours_keep_their_high_byte() -> None:
    values = (0, 255, 256, 0x80FF, 0xFFFF, 0x1234)
    assert rows(png(2, 1, 16, 2, b"\x00" + struct.pack(">6H", *values))) == [[[0, 0, 1], [0x80, 255, 0x12]]]


def test_integers_beyond_sixteen_bits_and_floats_are_refused() -> None:
    integers = np.array([[0, 70000]], dtype=np.int32)
    assert reason(saved(integers, "TIFF")) == "grey values 0..70000 are not in 0..65535"
    assert rows(saved(np.array([[0, 65535]], dtype=np.int32), "TIFF")) == grey([[0, 255]])
    assert reason(saved(np.array([[0.5]], dtype=np.float32), "TIFF")) == "floating-point pixels are not read"


def test_what_is_transparent_is_laid_over_white() -> None:
    rgba = np.array([[[10, 20, 30, 255], [10, 20, 30, 0], [0, 100, 255, 128]]], dtype=np.uint8)
    expected = [[[10, 20, 30], [255, 255, 255], [127, 177, 255]]]
    for data in (saved(rgba, "PNG"), saved(rgba, "TIFF"), saved(rgba, "WEBP", lossless=True, exact=True)):
        assert rows(data) == expected
    la = Image.fromarray(np.array([[[0, 0], [0, 255], [200, 51]]], dtype=np.uint8), "LA")
    assert rows(saved(la, "PNG")) == grey([[255, 0, 244]])


def test_a_transparent_colour_is_white() -> None:
    assert rows(png(2, 1, 8, 0, b"\x00\x07\x08", (b"tRNS", b"\x00\x07"))) == grey([[255, 8]])
    colours = b"\x00" + bytes([1, 2, 3, 4, 5, 6])
    assert rows(png(2, 1, 8, 2, colours, (b"tRNS", b"\0\1\0\2\0\3"))) == [[[255] * 3, [4, 5, 6]]]


def test_a_palette_gives_its_colours() -> None:
    palette, alpha = bytes([9, 8, 7, 255, 0, 1]), bytes([0, 255])
    assert rows(png(2, 1, 8, 3, b"\x00\x00\x01", (b"PLTE", palette))) == [[[9, 8, 7], [255, 0, 1]]]
    data = png(2, 1, 8, 3, b"\x00\x00\x01", (b"PLTE", palette), (b"tRNS", alpha))
    assert rows(data) == [[[255, 255, 255], [255, 0, 1]]]


def test_of_several_frames_the_first_is_read() -> None:
    frames = [Image.fromarray(np.full((3, 2, 3), value, dtype=np.uint8)) for value in (50, 200)]
    for kind, options in (("GIF", {}), ("PNG", {}), ("TIFF", {}), ("WEBP", {"lossless": True})):
        data = saved(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        assert rows(data) == grey([[50, 50]] * 3)


CORNERS = np.array([[10, 20, 30], [40, 50, 60]], dtype=np.uint8)
UPRIGHT = {
    1: [[10, 20, 30], [40, 50, 60]], 2: [[30, 20, 10], [60, 50, 40]], 3: [[60, 50, 40], [30, 20, 10]],
    4: [[40, 50, 60], [10, 20, 30]], 5: [[10, 40], [20, 50], [30, 60]], 6: [[40, 10], [50, 20], [60, 30]],
    7: [[60, 30], [50, 20], [40, 10]], 8: [[30, 60], [20, 50], [10, 40]],
}  # fmt: skip


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_exif_orientation_is_applied_in_every_format(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    large = np.kron(CORNERS, np.ones((16, 16))).astype(np.uint8)
    jpeg = decode(saved(large, "JPEG", quality=100, exif=exif))
    assert jpeg[0, 8::16, 8::16].tolist() == UPRIGHT[orientation]
    assert rows(saved(CORNERS, "PNG", exif=exif)) == grey(UPRIGHT[orientation])
    assert rows(saved(CORNERS, "WEBP", exif=exif, lossless=True)) == grey(UPRIGHT[orientation])
    assert rows(saved(CORNERS, "TIFF", tiffinfo={0x0112: orientation})) == grey(UPRIGHT[orientation])


def test_a_damaged_exif_block_counts_as_none() -> None:
    exif = b"Exif\x00\x00MM\x00*\xff\xff\xff\xff"
    for options in ({}, {"exif": exif}):
        assert decode(saved(blocks(), "JPEG", **options)).shape == (3, 64, 64)
    assert decode(saved(blocks(), "PNG", exif=exif)).shape == (3, 64, 64)


@pytest.fixture(params=["simplejpeg", "Pillow"])
def jpeg_decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "Pillow":
        monkeypatch.setattr(module, "load_simplejpeg", lambda: None)
        monkeypatch.setattr(header_module, "load_simplejpeg", lambda: None)
    else:
        pytest.importorskip("simplejpeg")
    return str(request.param)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 2}, {"keep_rgb": True}])
def test_a_jpeg_is_close_to_what_was_saved(options: dict[str, Any], jpeg_decoder: str) -> None:
    data = saved(blocks(), "JPEG", quality=95, **options)
    difference = decode(data).permute(1, 2, 0).int() - torch.from_numpy(blocks()).int()
    assert read_header(data) == Header("JPEG", 64, 64)
    assert difference.abs().float().mean() < (8 if "subsampling" in options else 4)


def test_both_jpeg_decoders_give_the_same_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("simplejpeg")
    data = saved(blocks(), "JPEG", quality=80)
    fast = decode(data)
    monkeypatch.setattr(module, "load_simplejpeg", lambda: None)
    assert (fast.int() - decode(data).int()).abs().max() <= 1


def test_grey_and_cmyk_jpegs_are_read(jpeg_decoder: str) -> None:
    colour = np.full((16, 16, 3), (200, 60, 20), dtype=np.uint8)
    cmyk = decode(saved(Image.fromarray(colour).convert("CMYK"), "JPEG", quality=100))
    assert (cmyk.int() - torch.tensor([200, 60, 20]).view(3, 1, 1)).abs().max() <= 3
    one = decode(saved(np.full((16, 16), 77, dtype=np.uint8), "JPEG", quality=100))
    assert (one.int() - 77).abs().max() <= 1


@pytest.mark.parametrize("options", [{}, {"progressive": True}])
def test_a_jpeg_cut_anywhere_is_refused(options: dict[str, Any], jpeg_decoder: str) -> None:
    data = saved(blocks(), "JPEG", **options)
    for length in [*range(0, len(data), 7), *range(len(data) - 20, len(data))]:
        assert reason(data[:length]) in (
            "the file is empty", "not an image that is read", "truncated JPEG", "damaged JPEG",
            "damaged JPEG: cannot load this image", "damaged JPEG: broken data stream when reading image file",
        ), length  # fmt: skip
    noise = np.random.default_rng(1).integers(0, 256, (300, 300, 3)).astype(np.uint8)
    large = saved(noise, "JPEG", quality=95, **options)
    assert {reason(large[:-cut]) for cut in (1, 2, 3, 500, len(large) // 2)} == {"truncated JPEG"}


def test_a_jpeg_that_lacks_its_middle_is_refused_though_the_decoder_only_warns() -> None:
    pytest.importorskip("simplejpeg")
    data = saved(blocks(), "JPEG", quality=95)
    assert reason(data[:-60] + b"\xff\xd9") == "truncated JPEG"


def test_what_follows_the_end_of_a_jpeg_does_not_matter(jpeg_decoder: str) -> None:
    data = saved(blocks(), "JPEG")
    assert torch.equal(decode(data + b"appended film"), decode(data))


@pytest.mark.parametrize(("kind", "options"), [*LOSSLESS, ("GIF", {})])
def test_a_file_cut_anywhere_is_refused_or_gives_all_its_pixels(kind: str, options: dict[str, Any]) -> None:
    data = saved(PIXELS, kind, **options)
    whole, refused = decode(data), 0
    for length in range(len(data)):
        try:
            assert torch.equal(decode(data[:length]), whole)
        except UnreadableImage:
            refused += 1
    assert refused >= len(data) - 25


@given(st.data())
def test_damage_leads_to_pixels_or_a_reason_and_to_nothing_else(data: st.DataObject) -> None:
    kind, options = data.draw(st.sampled_from([*LOSSLESS, ("GIF", {}), ("JPEG", {})]))
    damaged = bytearray(saved(PIXELS, kind, **options))
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    for function in (read_header, decode):
        text = ""
        try:
            function(bytes(damaged))
        except UnreadableImage as error:
            text = str(error)
        assert text.isprintable()
        assert len(text) < 150


def test_pillows_own_settings_stay_as_they_are() -> None:
    from PIL import ImageFile

    reason(saved(PIXELS, "PNG")[:-30])
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False
    assert Image.MAX_IMAGE_PIXELS == 1024 * 1024 * 1024 // 4 // 3


@pytest.mark.parametrize("name", bombs())
def test_a_bomb_is_refused_from_its_header(name: str) -> None:
    data, expected = bombs()[name]
    with pytest.raises(UnreadableImage) as caught:
        read_header(data)
    assert str(caught.value) == expected
    assert reason(data) == expected


def test_bombs_take_no_memory() -> None:
    code = (
        "import sys, resource; sys.path.insert(0, 'tests/support')\n"
        "from image_bombs import bombs, saved, PIXELS\n"
        "from embasis.data.images.pixels import decode\n"
        "from embasis.data.images.header import read_header, UnreadableImage\n"
        "decode(saved(PIXELS, 'PNG')); decode(saved(PIXELS, 'JPEG'))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for data, _ in bombs().values():\n"
        "    for function in (read_header, decode):\n"
        "        try: function(data)\n"
        "        except UnreadableImage: pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20_000, "KiB"


HEIC_REASON = "damaged HEIF: a box reaches over its end" if has_heif() else "format HEIF is not read"
FOREIGN = [
    (b"8BPS\x00\x01", "format PSD is not read"), (b"%!PS-Adobe-3.0 EPSF-3.0", "format EPS is not read"),
    (b"%PDF-1.7", "format PDF is not read"), (b"SIMPLE  =                    T", "format FITS is not read"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "format JPEG2000 is not read"),
    (b"\xff\x4f\xff\x51", "format JPEG2000 is not read"),
    (b"\x00\x00\x01\x00\x01\x00", "format ICO is not read"), (b"icns\x00\x00", "format ICNS is not read"),
    (b"\x00\x00\x00\x20ftypavif", "format AVIF is not read"),
    (b"\x00\x00\x00\x18ftypheic", HEIC_REASON),
    (b"<?xml version='1.0'?>\n<svg/>", "format SVG is not read"), (b"<!DOCTYPE html><p>404", "format HTML is not read"),
    (b"DDS |", "format DDS is not read"), (b"Pf\n1 1\n-1.0\n", "format PFM is not read"),
    (b"hello", "not an image that is read"), (b"\x00" * 64, "not an image that is read"),
    (b"BM", "damaged BMP"), (b"", "the file is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "expected"), FOREIGN)
def test_what_is_not_read_is_refused_by_its_content(data: bytes, expected: str) -> None:
    with pytest.raises(UnreadableImage) as caught:
        read_header(data)
    assert str(caught.value) == expected
    assert reason(data) == expected


WRITERS = ("EPS", "PDF", "PCX", "SGI", "JPEG2000", "ICNS", "ICO", "DDS", "TGA", "SPIDER", "XBM", "BLP", "MSP")


@pytest.mark.parametrize("kind", WRITERS)
def test_every_other_format_that_pillow_writes_is_refused(kind: str) -> None:
    mode = {"XBM": "1", "MSP": "1", "BLP": "P"}.get(kind, "RGB")
    image = Image.fromarray(blocks(32))
    try:
        data = saved(image.convert("F") if kind == "SPIDER" else image.convert(mode), kind)
    except (OSError, KeyError) as error:
        pytest.skip(f"this Pillow cannot write {kind}: {error}")
    assert reason(data) in (f"format {kind} is not read", "not an image that is read")


def test_the_centre_of_an_image_of_the_resized_size_is_cut_out_unchanged() -> None:
    image = torch.randint(0, 256, (3, 40, 32), dtype=torch.uint8)
    assert torch.equal(centre_view(image, Preparation(28, 0.875)), image[:, 6:34, 2:30])
    assert torch.equal(centre_view(image[:, :28, :28], Preparation(28, 1.0)), image[:, :28, :28])


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_the_short_side_is_resized_and_the_shape_kept(interpolation: str) -> None:
    ramp = torch.linspace(0, 255, 128).round().byte().expand(3, 64, 128)
    view = centre_view(ramp, Preparation(28, 0.875, interpolation))
    # 64×128 becomes 32×64, of which columns 18..45 are left: pixels 36..91 of the ramp, two by two.
    expected = torch.tensor([255 * (36.5 + 2 * column) / 127 for column in range(28)])
    assert view.shape == (3, 28, 28)
    assert (view[0, 14].float() - expected).abs().max() <= 1.0


@pytest.mark.parametrize("shape", [(1, 5000), (5000, 1), (1, 1), (3, 2), (2, 9000), (1000, 1000)])
@pytest.mark.parametrize("strength", ["none", "light", "strong"])
def test_an_image_of_any_shape_has_both_views(shape: tuple[int, int], strength: str) -> None:
    image = torch.full((3, *shape), 90, dtype=torch.uint8)
    view = random_view(image, Preparation(24), strength, torch.Generator().manual_seed(0))
    assert view.shape == (3, 24, 24)
    assert view.is_contiguous()
    assert bool((centre_view(image, Preparation(24)) == 90).all())
    assert strength == "strong" or bool((view == 90).all())


def test_the_training_view_is_a_function_of_its_generator() -> None:
    image = decode(saved(blocks(), "PNG"))
    views = [random_view(image, Preparation(32), "strong", torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(views[0], views[1])
    assert not torch.equal(views[0], views[2])
    none = random_view(image, Preparation(32), "none", torch.Generator().manual_seed(1))
    assert torch.equal(none, centre_view(image, Preparation(32)))


def test_the_number_of_threads_changes_no_bit() -> None:
    image = decode(saved(blocks(256), "PNG"))
    threads, views = torch.get_num_threads(), []
    try:
        for count in (1, 4):
            torch.set_num_threads(count)
            views.append(random_view(image, Preparation(), "strong", torch.Generator().manual_seed(3)))
            views.append(centre_view(image, Preparation()))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(views[0], views[2])
    assert torch.equal(views[1], views[3])


def test_an_unknown_strength_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        random_view(torch.zeros(3, 2, 2, dtype=torch.uint8), Preparation(2), "wild", torch.Generator())
    assert str(caught.value) == "unknown strength of augmentation 'wild'; known: light, none, strong"


SIDES = st.integers(1, 5000)
FOUR = st.lists(st.floats(0, 1, exclude_max=True), min_size=4, max_size=4)


@given(SIDES, SIDES, st.sampled_from([0.25, 0.5]), FOUR)
def test_a_random_part_lies_inside_and_is_not_too_long(height: int, width: int, least: float, u: list[float]) -> None:
    top, left, high, wide = crop_box(height, width, least, u)
    assert 0 <= top <= top + high <= height
    assert 0 <= left <= left + wide <= width
    assert high <= wide * CROP_RATIO + 1
    assert wide <= high * CROP_RATIO + 1
    if 3 / 4 <= height / width <= 4 / 3 and min(height, width) > 50:
        assert high * wide >= 0.7 * least * height * width


def test_strong_colours_move_by_what_was_drawn() -> None:
    image = torch.full((3, 8, 8), 100, dtype=torch.uint8)
    values = {
        int(random_view(image, Preparation(8), "strong", torch.Generator().manual_seed(s))[0, 0, 0]) for s in range(99)
    }
    assert 60 <= min(values) < 70
    assert 130 < max(values) <= 140


def test_one_in_ten_strong_views_is_grey() -> None:
    image = torch.tensor([250, 120, 10], dtype=torch.uint8).view(3, 1, 1).expand(3, 8, 8)
    views = [random_view(image, Preparation(8), "strong", torch.Generator().manual_seed(s)) for s in range(500)]
    share = sum(bool((view[0] == view[2]).all()) for view in views) / len(views)
    assert 0.06 < share < 0.14


def test_a_png_whose_pixels_were_overwritten_is_refused_by_its_checksum():
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(stream, "PNG")
    data = bytearray(stream.getvalue())
    middle = len(data) // 2
    data[middle : middle + 200] = bytes(200)
    with pytest.raises(UnreadableImage, match="damaged PNG: wrong checksum of its IDAT chunk"):
        decode(bytes(data))
    for length in (20, middle, len(data) - 3):
        with pytest.raises(UnreadableImage):
            decode(stream.getvalue()[:length])
