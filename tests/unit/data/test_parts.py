"""Parts of an input: together they are all rows, each once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embasis.data.parts import Part
from embasis.errors import ConfigError


@given(total=st.integers(0, 2000), count=st.integers(1, 300))
def test_all_parts_together_are_all_rows_in_their_order(total: int, count: int) -> None:
    parts = [Part(number, count).rows(total) for number in range(1, count + 1)]
    assert [row for part in parts for row in part] == list(range(total))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_part_is_named_by_two_numbers() -> None:
    assert Part.parse("3/16") == Part(3, 16)
    assert str(Part.parse("03/16")) == "3/16"


@pytest.mark.parametrize(
    "text", ["0/4", "5/4", "x", "", "3", "3/", "/4", "-1/4", "1.0/2", "1/0", "٣/٤", "1/1000000001"]
)
def test_what_names_no_part_is_refused(text: str) -> None:
    rule = "part must be I/N with 1 ≤ I ≤ N ≤ 1,000,000,000, such as 3/16, got "
    with pytest.raises(ConfigError, match=f"^{re.escape(rule + repr(text))}$"):
        Part.parse(text)
