"""Versions of Java plugins are ordered as Maven orders them; ranges are KIP-891's."""

import pytest

from drover.java_plugins.versions import Version, VersionRange, VersionRangeError


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.9", "1.10"),
        ("1.0-alpha", "1.0-beta"),
        ("1.0-M1", "1.0-rc1"),
        ("3.6.0.CR1", "3.6.0.Final"),
        ("1.0-SNAPSHOT", "1.0"),
        ("2.0.0.Final", "2.0.1.Final"),
        ("1.0", "1.0-sp"),
        ("1.0", "1.0-custom"),
        ("9", "10.0.0"),
        ("", "0.1"),
    ],
)
def test_an_older_version_is_before_a_newer_one(older: str, newer: str) -> None:
    assert Version(older) < Version(newer)
    assert not Version(newer) < Version(older)


@pytest.mark.parametrize(
    ("one", "other"), [("1", "1.0.0"), ("3.6.3.Final", "3.6.3"), ("1.0-RC1", "1.0-rc1")]
)
def test_some_versions_are_equal(one: str, other: str) -> None:
    assert Version(one) == Version(other)
    assert hash(Version(one)) == hash(Version(other))


@pytest.mark.parametrize(
    ("text", "version", "allowed"),
    [
        ("1.5", "1.5", True),
        ("1.5", "1.5.0.Final", True),
        ("1.5", "1.5.1", False),
        ("latest", "7", True),
        (" ", "7", True),
        ("[1.0,2.0)", "1.0", True),
        ("[1.0,2.0)", "2.0", False),
        ("(1.0,2.0]", "1.0", False),
        ("(1.0,2.0]", "2.0", True),
        ("(,1.2],[1.5,)", "1.2", True),
        ("(,1.2],[1.5,)", "1.3", False),
        ("(,1.2],[1.5,)", "9", True),
        ("[1.5]", "1.5", True),
    ],
)
def test_a_range_states_the_allowed_versions(text: str, version: str, allowed: bool) -> None:
    assert (version in VersionRange.parse(text)) is allowed


@pytest.mark.parametrize("text", ["[1.0", "(1.0)", "[]", "1.0,2.0", "[1,2]x", "[2.0,1.0]"])
def test_a_text_that_is_no_range_is_an_error(text: str) -> None:
    with pytest.raises(VersionRangeError):
        VersionRange.parse(text)
