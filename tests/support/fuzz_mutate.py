"""Inputs that nobody would write, made of kept ones: a pure function of random numbers."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

NUMBERS = (0, 1, 127, 128, 255, 256, 32767, 65535, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
LONGEST = 2**16


def mutated(draw: random.Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """One of the seeds after some changes; of a PNG most of the time with proper checksums, so that more is reached."""
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.choice((1, 1, 1, 2, 3, 5, 9))):
        draw.choice(CHANGES)(draw, data, seeds, words)
    found = bytes(data[:LONGEST])
    return mended(found) if found.startswith(b"\x89PNG") and draw.random() < 0.8 else found


def flip(draw: random.Random, data: bytearray, *_: object) -> None:
    if data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def overwrite(draw: random.Random, data: bytearray, *_: object) -> None:
    """A number of 1 to 8 bytes, of either order, that is at some edge."""
    size = draw.choice((1, 2, 4, 8))
    value = draw.choice((*NUMBERS, draw.getrandbits(64))) % 2 ** (8 * size)
    if len(data) >= size:
        at = draw.randrange(len(data) - size + 1)
        data[at : at + size] = value.to_bytes(size, draw.choice(("big", "little")))


def cut(draw: random.Random, data: bytearray, *_: object) -> None:
    del data[draw.randrange(len(data) + 1) :]


def remove(draw: random.Random, data: bytearray, *_: object) -> None:
    at = draw.randrange(len(data) + 1)
    del data[at : at + draw.choice((1, 2, 4, 16, 64))]


def repeat(draw: random.Random, data: bytearray, *_: object) -> None:
    if data:
        at = draw.randrange(len(data))
        part = bytes(data[at : at + draw.choice((1, 2, 8, 64, 512))])
        data[at:at] = part * draw.choice((1, 2, 10, 100))


def splice(draw: random.Random, data: bytearray, seeds: Sequence[bytes], _: object) -> None:
    other = draw.choice(seeds)
    at = draw.randrange(len(other) + 1)
    data[draw.randrange(len(data) + 1) :] = other[at:]


def insert(draw: random.Random, data: bytearray, _: object, words: Sequence[bytes]) -> None:
    at = draw.randrange(len(data) + 1)
    word = draw.choice(words) if words and draw.random() < 0.8 else draw.randbytes(draw.randrange(1, 9))
    end = at + len(word) if draw.random() < 0.5 else at
    data[at:end] = word


CHANGES = (flip, flip, overwrite, overwrite, cut, remove, repeat, splice, insert, insert)


def mended(data: bytes) -> bytes:
    """A PNG whose chunks have the checksums that they say, as far as they can be followed."""
    out, at = bytearray(data), 8
    while at + 12 <= len(out):
        end = at + 8 + int.from_bytes(out[at : at + 4], "big")
        if end + 4 > len(out):
            break
        out[end : end + 4] = zlib.crc32(out[at + 4 : end]).to_bytes(4, "big")
        at = end + 4
    return bytes(out)
