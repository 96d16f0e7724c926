"""Realistic bugs, each of which skips one rule, to show that the simulation can fail."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted bug.

    Attributes:
        rule: The rule that it skips.
        target: The dotted name of what is replaced.
        replacement: By what.
    """

    rule: str
    target: str
    replacement: object


BUGS: Mapping[str, Bug] = {}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run with the bug ``name``; without any when it is empty."""
    if not name:
        yield
        return
    bug = BUGS[name]
    with patch(bug.target, bug.replacement):
        yield
