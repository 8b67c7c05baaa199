"""The pixels of one file of each kind (row 35): files and hashes are kept, so no release may read them otherwise."""

from __future__ import annotations

import hashlib

import pytest

from embasis.data.images.heif import has_heif
from embasis.data.images.pixels import decode
from fuzz_targets import CORPUS

GOLDEN = {
    "bug-two-exif-marks.jpg": "3×7×5 afef2f140abc3ec0",
    "alpha.png": "3×5×7 e7c259e7be7a334c",
    "bit.pbm": "3×5×7 14697d9a600de333",
    "bit.png": "3×5×7 14697d9a600de333",
    "cmyk.jpg": "3×5×7 0486205c3176a1f6",
    "cmyk.tif": "3×5×7 e7c259e7be7a334c",
    "grey16.png": "3×5×7 16fea1384cf94c61",
    "lossless.webp": "3×5×7 e7c259e7be7a334c",
    "lzw.tif": "3×5×7 e7c259e7be7a334c",
    "pages.tif": "3×5×7 0c69f5d20117f4aa",
    "palette.bmp": "3×5×7 4d9fa3e547e16fcf",
    "palette.png": "3×5×7 97e6dfe42c256513",
    "plain.pgm": "3×2×3 cb25fa5bc9628d69",
    "progressive.jpg": "3×5×7 319b383707c9c58b",
    "rgb.bmp": "3×5×7 e7c259e7be7a334c",
    "rgb.heic": "3×5×7 031c3ae378f66e99",
    "rgb.jpg": "3×5×7 319b383707c9c58b",
    "rgb.png": "3×5×7 e7c259e7be7a334c",
    "rgb.ppm": "3×5×7 e7c259e7be7a334c",
    "rgb.tif": "3×5×7 e7c259e7be7a334c",
    "rgb.webp": "3×5×7 0984c1130735bf8d",
    "turned.heic": "3×7×5 dced3e04a02f8394",
    "turned.jpg": "3×7×5 afef2f140abc3ec0",
    "turned.png": "3×7×5 605d48a9e1f04656",
    "turned.webp": "3×7×5 1b74f55211b7629d",
    "two.gif": "3×5×7 4d9fa3e547e16fcf",
    "two.png": "3×5×7 0c69f5d20117f4aa",
    "wide.tif": "3×5×7 16fea1384cf94c61",
}
"""Shape and the beginning of the sha256 of the pixels."""


@pytest.mark.parametrize("name", GOLDEN)
def test_a_kept_file_has_the_pixels_it_always_had(name: str) -> None:
    if name.endswith(".heic") and not has_heif():
        pytest.skip("pillow-heif is not installed: pip install 'embasis[heic]'")
    pixels = decode((CORPUS / "image" / name).read_bytes())
    shape = "×".join(str(side) for side in pixels.shape)
    assert f"{shape} {hashlib.sha256(pixels.contiguous().numpy().tobytes()).hexdigest()[:16]}" == GOLDEN[name]


def test_every_kind_of_the_table_of_conversions_is_kept() -> None:
    kept = {path.name for path in (CORPUS / "image").iterdir()}
    assert kept == set(GOLDEN)
