"""What ``drover doctor`` finds."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    #: It works, or will for a while.
    WARNING = "warning"
    #: It does not work.
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, and what to do if it is not as it should be."""

    check: str
    level: Level
    found: str
    advice: str = ""
