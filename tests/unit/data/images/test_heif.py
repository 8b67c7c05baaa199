"""HEIC images: read where pillow-heif is installed, refused with the cure where it is not."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from embasis.data.images.header import UnreadableImage, read_header
from embasis.data.images.heif import MOST_BOXES, BadBoxes, has_heif, read_heif_sizes
from embasis.data.images.pixels import decode
from embasis.data.images.scan import scan_folder
from embasis.data.reader import Reader
from embasis.types import Preparation
from fuzz_targets import CORPUS

KEPT = CORPUS / "image"
needs_heif = pytest.mark.skipif(not has_heif(), reason="pillow-heif is not installed: pip install 'embasis[heic]'")


def encode(pixels: np.ndarray, orientation: int = 1, **options: int) -> bytes:
    from pillow_heif import from_pillow

    picture, stream = Image.fromarray(pixels), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = orientation
    from_pillow(picture).save(stream, quality=95, exif=exif.tobytes(), **options)
    return stream.getvalue()


def quarters() -> np.ndarray:
    """40 × 60 pixels: red above, green below on the left."""
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:20, :, 0] = pixels[20:, :30, 1] = 200
    return pixels


@needs_heif
def test_pixels_of_a_heic_are_those_that_went_into_it() -> None:
    data = encode(quarters())
    header = read_header(data)
    assert (header.format, header.width, header.height) == ("HEIF", 60, 40)
    assert np.abs(decode(data).permute(1, 2, 0).numpy().astype(int) - quarters()).mean() < 1


@needs_heif
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_heic_is_upright_and_its_header_says_so(orientation: int) -> None:
    upright = Image.fromarray(quarters())
    turns = {
        2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }  # fmt: skip
    wanted = np.asarray(upright.transpose(turns[orientation]) if orientation in turns else upright)
    data = encode(quarters(), orientation)
    header = read_header(data)
    assert (header.height, header.width) == wanted.shape[:2]
    assert np.abs(decode(data).permute(1, 2, 0).numpy().astype(int) - wanted).mean() < 1


@needs_heif
@pytest.mark.parametrize("size", [(61, 41), (1, 1), (500, 3)])
def test_a_size_that_is_cut_out_of_whole_blocks_is_the_one_that_is_shown(size: tuple[int, int]) -> None:
    data = encode(np.asarray(Image.fromarray(quarters()).resize(size)))
    header = read_header(data)
    assert (header.width, header.height) == size
    assert tuple(decode(data).shape) == (3, size[1], size[0])


def test_the_kept_heic_has_its_size_by_its_boxes_alone_without_the_package() -> None:
    assert read_heif_sizes((KEPT / "rgb.heic").read_bytes()).shown == (7, 5)
    assert read_heif_sizes((KEPT / "turned.heic").read_bytes()).shown == (5, 7)


@needs_heif
def test_a_heic_is_decoded_by_a_worker_like_every_other_image(tmp_path) -> None:
    (tmp_path / "a.HEIC").write_bytes(encode(quarters()))
    (tmp_path / "b.heif").write_bytes(encode(quarters())[:-40])
    scan = scan_folder(tmp_path)
    assert [file.name for file in scan.files] == ["a.HEIC", "b.heif"]
    with Reader(1) as reader:
        ((views, broken),) = reader.batches(scan.files, [[0, 1]], Preparation(size=16, crop=1.0))
    assert [*broken] == [1]
    assert broken[1].startswith("damaged HEIF") or broken[1] == "truncated HEIF"
    assert views[0].float().mean(dim=(1, 2)).tolist() == pytest.approx([100, 50, 0], abs=12)


@needs_heif
def test_a_heic_whose_header_lies_about_its_size_is_refused_before_a_pixel_is_decoded() -> None:
    data = encode(quarters())
    place = data.index(b"ispe") + 8
    wide = data[:place] + (60_000).to_bytes(4, "big") * 2 + data[place + 8 :]
    for read in (read_header, decode):
        with pytest.raises(UnreadableImage, match=r"^60000×60000 exceeds 64 Mpx$"):
            read(wide)
    many = data[:place] + (6_000).to_bytes(4, "big") * 2 + data[place + 8 :]
    with pytest.raises(UnreadableImage) as caught:
        decode(many)
    text = "6000×6000 pixels take 549 MB to decode, a file of up to 64 kB may take 480 MB; make it smaller"
    assert str(caught.value) == text
    other = data[:place] + (6).to_bytes(4, "big") + data[place + 4 :]
    with pytest.raises(UnreadableImage, match=r"^damaged HEIF"):
        decode(other)


@needs_heif
def test_a_picture_in_tiles_as_telephones_write_it_is_read_as_one() -> None:
    pixels = np.repeat(np.repeat(quarters(), 8, 0), 8, 1)
    data = encode(pixels, 6, tile_size=128)
    assert b"grid" in data
    assert (read_header(data).width, read_header(data).height) == (320, 480)
    assert np.abs(decode(data).permute(1, 2, 0).numpy().astype(int) - np.rot90(pixels, -1)).mean() < 2


def box(kind: bytes, content: bytes) -> bytes:
    return (8 + len(content)).to_bytes(4, "big") + kind + content


PITM = box(b"pitm", bytes(4) + b"\0\1")
ISPE = box(b"ispe", bytes(4) + (7).to_bytes(4, "big") + (5).to_bytes(4, "big"))
IPMA = box(b"ipma", bytes(4) + b"\0\0\0\1" + b"\0\1" + b"\1\1")


def boxes(*properties: bytes, ipma: bytes = IPMA, pitm: bytes = PITM) -> bytes:
    inner = box(b"iprp", box(b"ipco", b"".join(properties)) + ipma)
    return box(b"ftyp", b"heic") + box(b"meta", bytes(4) + pitm + inner)


def test_boxes_say_the_size() -> None:
    assert read_heif_sizes(boxes(ISPE)) == ((7, 5), (7, 5))
    turned = box(b"ipma", bytes(4) + b"\0\0\0\1" + b"\0\1" + b"\2\1\x82")
    assert read_heif_sizes(boxes(ISPE, box(b"irot", b"\1"), ipma=turned)) == ((7, 5), (5, 7))
    wide = box(b"ipma", b"\1\0\0\1" + b"\0\0\0\1" + b"\0\0\0\1" + b"\1\x80\1")
    assert read_heif_sizes(boxes(ISPE, ipma=wide, pitm=box(b"pitm", b"\1\0\0\0" + b"\0\0\0\1"))).shown == (7, 5)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "has no box meta"),
        (boxes(ISPE, pitm=b""), "has no box pitm"),
        (boxes(), "a property is not there"),
        (boxes(box(b"free", b"")), "its size is not there"),
        (boxes(box(b"ispe", b"")), "a box reaches over its end"),
        (boxes(ISPE, ipma=b""), "its size is not there"),
        (boxes(ISPE, ipma=box(b"ipma", bytes(4) + b"\xff" * 4)), f"has more than {MOST_BOXES:,} pictures"),
        (boxes(ISPE, ipma=box(b"ipma", bytes(4) + b"\0\0\0\2")), "a box reaches over its end"),
        ((2).to_bytes(4, "big") + b"meta", "a box reaches over its end"),
        ((1).to_bytes(4, "big") + b"meta" + b"\xff" * 8, "a box reaches over its end"),
        (box(b"free", b"") * (MOST_BOXES + 1), f"has more than {MOST_BOXES:,} boxes"),
    ],
)
def test_boxes_that_lie_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BadBoxes) as caught:
        read_heif_sizes(data)
    assert str(caught.value) == reason


def test_without_the_package_a_heic_is_refused_with_both_cures(tmp_path) -> None:
    (tmp_path / "IMG_1.HEIC").write_bytes((KEPT / "rgb.heic").read_bytes())
    code = (
        "import sys; sys.modules['pillow_heif'] = None\n"
        "from embasis.data.images.scan import scan_folder, scan_file\n"
        "from embasis.errors import InputDataError\n"
        f"print(scan_file({str(tmp_path / 'IMG_1.HEIC')!r}).rejected[0].reason)\n"
        f"try: scan_folder({str(tmp_path)!r})\n"
        "except InputDataError as error: print(str(error).split('; ', 1)[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "format HEIF is not read",
        "read are .bmp, .gif, .jfif, .jpe, .jpeg, .jpg, .pbm, .pgm, .png, .pnm, .ppm, .tif, .tiff, .webp; "
        "1 file of another kind is ignored: .heic 1; "
        "HEIC images can be read once pillow-heif is installed, or once they are converted to JPEG or PNG",
    ]
