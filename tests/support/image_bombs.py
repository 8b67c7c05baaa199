"""What tests share: small files that decode to large pictures."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

PIXELS = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3) * 4


GREY = np.array([[0, 1, 128], [254, 255, 77]], dtype=np.uint8)


def saved(image: Any, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(out, kind, **options)
    return out.getvalue()


def blocks(side: int = 64) -> np.ndarray:
    """A picture with large patches, which JPEG keeps well."""
    colours = np.random.default_rng(0).integers(0, 256, (side // 16, side // 16, 3))
    return np.kron(colours, np.ones((16, 16, 1))).astype(np.uint8)


def png(width: int, height: int, depth: int, colour: int, lines: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG written by hand."""
    header_bytes = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = [(b"IHDR", header_bytes), *chunks, (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )


def bombs() -> dict[str, tuple[bytes, str]]:
    """Small files that ask for much: above all limits, and between one and two times Pillow's."""
    jpeg = bytearray(saved(blocks(16), "JPEG"))
    place = jpeg.index(b"\xff\xc0") + 5
    jpeg[place : place + 4] = struct.pack(">HH", 60000, 60000)
    gif = saved(PIXELS, "GIF")
    bmp = saved(PIXELS, "BMP")
    webp = b"RIFF\x1e\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00" + b"\x5f\xea\x00" * 2 + bytes(8)
    return {
        "PNG": (png(60000, 60000, 8, 2, bytes(1000)), "60000×60000 exceeds 64 Mpx"),
        "PNG between the limits": (png(10000, 12000, 8, 2, bytes(1000)), "10000×12000 exceeds 64 Mpx"),
        "PNG below Pillow's limit": (png(8193, 8192, 8, 2, bytes(1000)), "8193×8192 exceeds 64 Mpx"),
        "JPEG": (bytes(jpeg), "60000×60000 exceeds 64 Mpx"),
        "GIF": (gif[:6] + struct.pack("<HH", 60000, 60000) + gif[10:], "60000×60000 exceeds 64 Mpx"),
        "GIF frame": (gif_with_frame(60000), "3,600,000,000 pixels exceed 64 Mpx"),
        "BMP": (bmp[:18] + struct.pack("<ii", 60000, -60000) + bmp[26:], "60000×60000 exceeds 64 Mpx"),
        "WEBP": (webp, "60000×60000 exceeds 64 Mpx"),
        "PPM": (b"P6 60000 60000 255\n" + bytes(1000), "3,600,000,000 pixels exceed 64 Mpx"),
        "PPM between the limits": (b"P6 10000 12000 255\n" + bytes(1000), "10000×12000 exceeds 64 Mpx"),
        "ICO": (b"\x00\x00\x01\x00\x01\x00" + bytes(100), "format ICO is not read"),
    }


def gif_with_frame(side: int) -> bytes:
    """A GIF whose first frame is larger than its screen."""
    data = saved(GREY, "GIF")
    place = data.rindex(b",\x00\x00\x00\x00")
    return data[: place + 5] + struct.pack("<HH", side, side) + data[place + 9 :]
