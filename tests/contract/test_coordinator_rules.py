"""docs/coordinator-rules.md names existing tests, and each family has one."""

import re
from pathlib import Path

from tests.support.repository import text_of, tracked_files

FILE = Path("docs/coordinator-rules.md")
NAME = re.compile(r"`(test_\w+(?:\.py)?)`")


def families() -> dict[str, list[str]]:
    """The tests in each family's row."""
    text = text_of(FILE)
    assert text is not None
    section = text.split("## Families of behaviour", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    return {row.split("|")[1].strip(): NAME.findall(row) for row in rows}


def existing() -> set[str]:
    """Every test function and test module there is."""
    names: set[str] = set()
    for path in tracked_files():
        if path.parts[0] == "tests" and path.suffix == ".py":
            names.add(path.name)
            names.update(re.findall(r"^\s*(?:async )?def (test_\w+)", text_of(path) or "", re.M))
    return names


def test_every_family_is_tested() -> None:
    assert len(families()) > 20
    assert [family for family, tests in families().items() if not tests] == []


def test_every_test_that_is_named_exists() -> None:
    named = {name for tests in families().values() for name in tests}
    assert named - existing() == set()
