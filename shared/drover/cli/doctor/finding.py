"""Results of the checks of ``drover doctor``."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    #: Works now, but may fail later.
    WARNING = "warning"
    #: Does not work.
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        check: The name of what was checked.
        level: The severity.
        found: The observed state.
        advice: How to correct it; empty if nothing has to be done.
    """

    check: str
    level: Level
    found: str
    advice: str = ""
