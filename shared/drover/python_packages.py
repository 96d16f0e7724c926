"""The requirements of installed Python packages, as their metadata has them."""

import re
from collections.abc import Collection, Iterator
from importlib.metadata import Distribution

#: A requirement (PEP 508): its name and extras; and the extra to which it belongs.
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^]]*)\])?")
_OF_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


def requirements(
    distribution: Distribution, extras: Collection[str] | None
) -> Iterator[tuple[str, frozenset[str]]]:
    """Names, normalised, and extras of what a distribution requires.

    Args:
        distribution: The distribution.
        extras: Its extras that count; None for all.
    """
    for text in distribution.requires or ():
        requirement, of_extra = _REQUIREMENT.match(text), _OF_EXTRA.search(text)
        if requirement is None or not (of_extra is None or extras is None or of_extra[1] in extras):
            continue
        named = (part.strip() for part in (requirement[2] or "").split(","))
        yield normalised(requirement[1]), frozenset(filter(None, named))


def normalised(name: str) -> str:
    """See PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()
