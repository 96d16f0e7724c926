"""Settings that are regular expressions."""

import re
from collections.abc import Sequence


def patterns_fault(patterns: Sequence[str]) -> str | None:
    """The error in a list of regular expressions, or None."""
    for each in patterns:
        try:
            re.compile(each)
        except re.error as error:
            return f"{each!r} is not a regular expression: {error}"
    return None
