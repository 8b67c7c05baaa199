"""What a finished run says of itself is believed only as far as it can be read."""

from __future__ import annotations

import pytest

from embasis.errors import CorruptError
from embasis.report.collect import parse_component
from embasis.runs.finished_run import read_data_settings


def test_settings_of_the_data_are_taken_as_they_stand() -> None:
    assert read_data_settings({"config": {"data": {"id": "name"}}}) == {"id": "name"}


@pytest.mark.parametrize(
    "facts", [{}, {"config": 5}, {"config": {}}, {"config": {"data": 7}}, {"config": {"data": None}}]
)
def test_settings_that_say_nothing_of_the_data_are_refused(facts: dict[str, object]) -> None:
    with pytest.raises(CorruptError) as caught:
        read_data_settings(facts)
    assert str(caught.value) == "the run's settings have no table data: they are not as a run writes them"


def test_a_component_without_a_class_is_refused() -> None:
    with pytest.raises(CorruptError) as caught:
        parse_component({"classes": [], "share": 0.5, "nearest": []}, {})
    assert str(caught.value) == "a component has no class"
