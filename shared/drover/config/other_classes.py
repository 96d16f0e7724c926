"""Classes of other products that do a job, with the class here that does it, for messages."""

from collections.abc import Sequence
from dataclasses import dataclass

from drover.config.near_names import simple_name


@dataclass(frozen=True, slots=True)
class OtherClasses:
    """Classes that no class here has as an alias.

    Attributes:
        names: Their simple names, without ``$Key`` and ``$Value``.
        job: Their work, as the end of "no class here ...".
        nearest: The class here that does the job, and how; empty if there is none.
        package: The beginning of their packages; empty for every package.
    """

    names: tuple[str, ...]
    job: str
    nearest: str = ""
    package: str = ""


def nearest_class(name: str, others: Sequence[OtherClasses]) -> str | None:
    """The sentence about the class here that does the job of ``name``; None for an unknown job."""
    simple = simple_name(name).partition("$")[0].lower()
    for each in others:
        if simple in map(str.lower, each.names) and name.strip().startswith(each.package):
            return f"the nearest is {each.nearest}" if each.nearest else f"no class here {each.job}"
    return None
