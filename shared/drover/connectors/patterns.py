"""Settings that are regular expressions."""

import re
from collections.abc import Sequence


def patterns_fault(patterns: Sequence[str]) -> str | None:
    """What is wrong with regular expressions, or None."""
    for each in patterns:
        try:
            re.compile(each)
        except re.error as error:
            return f"{each!r} is no regular expression: {error}"
    return None
