"""Connector names: which are refused, with all faults in one error."""

import pytest

from drover.model.names import CONNECTOR_NAME_MAX_CHARS, connector_name_violations


@pytest.mark.parametrize(
    "name",
    [
        *("flights", "a-b.c_d", "task-1", "Äpfel", "with space", "x" * CONNECTOR_NAME_MAX_CHARS),
        *(f"a{chr(code)}b" for code in range(ord(" "), ord("~") + 1)),
        *("..", "a/../b", "%2F", "a%00"),
    ],
)
def test_good_names(name: str) -> None:
    assert connector_name_violations(name) == []


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("a\tb", "control"),
        ("a\x7fb", "control"),
        ("a\x85b", "control"),
        ("a\u202eb", "control"),
        ("a\u2028b", "control"),
        ("\ud800", "control"),
        (" a", "white space"),
        ("a ", "white space"),
        ("x" * (CONNECTOR_NAME_MAX_CHARS + 1), "at most"),
    ],
)
def test_bad_names(name: str, fault: str) -> None:
    (violation,) = connector_name_violations(name, "connector")
    assert violation.field == "connector"
    assert fault in violation.description


def test_all_faults_are_told_at_once() -> None:
    assert len(connector_name_violations(" a\n" + "x" * 300)) == 3
