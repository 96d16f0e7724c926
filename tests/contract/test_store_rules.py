"""docs/store-rules.md names tests that exist, and behaviours that have one."""

import re
from pathlib import Path

from tests.contract.test_coordinator_rules import NAME, existing
from tests.support.repository import text_of

FILE = Path("docs/store-rules.md")
#: The sections of the stores, and at least how many behaviours each has to name.
BEHAVIOURS_MIN = {"Config store": 30, "Status store": 23}


def behaviours(section: str) -> dict[str, list[str]]:
    """The tests that each row of a section's table of behaviours names."""
    text = text_of(FILE)
    assert text is not None
    of_store = text.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    table = of_store.split("\n### Behaviour, and its tests\n", 1)[1].split("\n### ", 1)[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    return {row.split("|")[1].strip(): NAME.findall(row) for row in rows}


def test_every_store_has_its_section() -> None:
    text = text_of(FILE) or ""
    assert set(re.findall(r"^## (.+)$", text, re.M)) == set(BEHAVIOURS_MIN)


def test_every_behaviour_is_tested() -> None:
    for section, at_least in BEHAVIOURS_MIN.items():
        found = behaviours(section)
        assert len(found) >= at_least
        assert [behaviour for behaviour, tests in found.items() if not tests] == []


def test_every_test_that_is_named_exists() -> None:
    named = {
        name
        for section in BEHAVIOURS_MIN
        for tests in behaviours(section).values()
        for name in tests
    }
    assert named - existing() == set()
