"""docs/herder-rules.md names existing tests, and each family has one."""

import re
from pathlib import Path

from tests.contract.test_coordinator_rules import NAME, existing
from tests.support.repository import text_of

FILE = Path("docs/herder-rules.md")
#: The sections, and the minimum number of families in each.
FAMILIES_MIN = {"Membership": 8, "Assignor": 12, "Herder": 18}


def families(section: str) -> dict[str, list[str]]:
    """The tests in each row of a section."""
    text = text_of(FILE)
    assert text is not None
    table = re.split(r"\n##", text.split(f"\n### {section}\n", 1)[1], maxsplit=1)[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    return {row.split("|")[1].strip(): NAME.findall(row) for row in rows}


def test_every_family_is_tested() -> None:
    for section, at_least in FAMILIES_MIN.items():
        found = families(section)
        assert len(found) >= at_least
        assert [family for family, tests in found.items() if not tests] == []


def test_every_test_that_is_named_exists() -> None:
    named = {n for section in FAMILIES_MIN for names in families(section).values() for n in names}
    assert named - existing() == set()
