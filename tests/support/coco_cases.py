"""What tests share: cases of test_coco."""

from __future__ import annotations

import numpy as np


def slow_numbers(text: str) -> list[int]:
    """The counts that a text says."""
    counts, number, shift = list[int](), 0, 0
    for letter in text:
        bits = ord(letter) - 48
        number |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            if bits & 16:
                number -= 1 << shift
            counts.append(number + (counts[-2] if len(counts) > 2 else 0))
            number, shift = 0, 0
    return counts


def slow_mask(text: str, height: int, width: int) -> np.ndarray:
    flat, value = list[int](), 0
    for count in slow_numbers(text):
        flat += [value] * count
        value = 1 - value
    assert len(flat) == height * width
    return np.array(flat).reshape(width, height).T


def slow_box(mask: np.ndarray) -> tuple[int, int, int, int]:
    """Left, top, width, height; a run that goes on in the next column counts as touching top and bottom: it does."""
    rows, columns = np.nonzero(mask)
    left, top = int(columns.min()), int(rows.min())
    return left, top, int(columns.max()) - left + 1, int(rows.max()) - top + 1
