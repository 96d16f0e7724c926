"""Which figures a task may report."""

from typing import Any

import pytest

from drover.connector.task import TaskFigures


def test_the_last_value_counts() -> None:
    figures = TaskFigures()
    figures.report("slot_lag_bytes", 5)
    figures.report("slot_lag_bytes", -7)
    figures.report("behind_ms", 0)
    assert figures.values() == {"slot_lag_bytes": -7, "behind_ms": 0}


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("lag", 1, "with the unit at the end"),
        ("Lag_ms", 1, "'Lag_ms' is not a figure name"),
        ("1_ms", 1, "not a figure name"),
        ("a" * 62 + "_ms", 1, "not a figure name"),
        ("lag_ms\n", 1, "not a figure name"),
        (7, 1, "not a figure name"),
        ("lag_ms", 1.5, "whole number"),
        ("lag_ms", True, "whole number"),
        ("lag_ms", 2**53, "53 bits"),
    ],
)
def test_a_wrong_figure_is_refused(name: Any, value: Any, told: str) -> None:
    figures = TaskFigures()
    with pytest.raises(ValueError, match=told):
        figures.report(name, value)
    assert figures.values() == {}


def test_a_task_has_a_few_figures() -> None:
    figures = TaskFigures()
    for number in range(16):
        figures.report(f"f{number}_count", number)
    with pytest.raises(ValueError, match="f16_count exceeds the limit of 16 figures"):
        figures.report("f16_count", 1)
    figures.report("f15_count", 1)
