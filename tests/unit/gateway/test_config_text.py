"""A config as text is read back as it was, in both notations."""

import pytest

from drover_gateway.console.config_text import Notation, from_text, lines_of, to_text

VALUES = (
    *("", " ", "null", "Null", "~", "true", "TRUE", "yes", "No", "on", "off", "y", "n"),
    *("0", "007", "0x1f", "1_000", "1.50", "-1", "1e3", "+5", "2026-11-29", "12:30:45", ".5"),
    *("a: b", "# no comment", "- item", "[a]", "{a}", "&a", "*a", "!tag", "|", ">", "%a", "@a"),
    *("'", '"', "\\", "\\n", "a\nb\n", "\r\n", "\t", "<<", "=", "${file:/x:y}", "a\u2028b"),
    "".join(map(chr, range(0x250))),
    "\ufeff\ufffe\uffff\ud7ff\ue000\U0001f600\U0010ffff\x85\u2029",
)


@pytest.mark.parametrize("notation", list(Notation))
def test_every_value_and_key_is_read_back(notation: Notation) -> None:
    for value in VALUES:
        config = {"connector.class": "C", "own.value": value, f"own.{value}": "x"}
        text = to_text(notation, "a name", config)
        found = from_text(notation, text)
        assert (found.name, dict(found.config)) == ("a name", config), repr(value)
        # a page shows control characters as escapes: the text has none
        assert not [each for each in text if ord(each) < 32 and each != "\n"], repr(value)
        assert not [each for each in text if 127 <= ord(each) < 160], repr(value)


@pytest.mark.parametrize("notation", list(Notation))
def test_the_lines_of_settings_are_found(notation: Notation) -> None:
    text = to_text(notation, "n", {"connector.class": "C", "b.c": "1: 2", "a:b": "x"})
    lines = lines_of(text)
    for setting in ("connector.class", "b.c", "a:b"):
        assert setting in text.split("\n")[lines[setting] - 1]
