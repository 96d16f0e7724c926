import pytest

from drover.transform.field_path import parse_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ("`a.b`.c", ("a.b", "c")),
        ("a.`b.c`", ("a", "b.c")),
        ("`a`b`.c", ("a`b", "c")),
        ("`a\\`.b`.c", ("a`.b", "c")),
        ("a`.b", ("a`", "b")),
        ("a..b", ("a", "", "b")),
        ("a.", ("a", "")),
        ("``.b", ("", "b")),
        ("", ("",)),
    ],
)
def test_a_path(text: str, path: tuple[str, ...]) -> None:
    assert parse_path(text) == path


@pytest.mark.parametrize("text", ["`a", "`a.b", "a.`b", "`a`b", "`a\\`", "`"])
def test_a_backtick_that_is_not_closed(text: str) -> None:
    with pytest.raises(ValueError, match="a backtick is not closed"):
        parse_path(text)
