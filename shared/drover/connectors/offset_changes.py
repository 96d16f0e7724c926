"""Checks of offsets that operators write for the connectors here."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from drover.connector import OffsetChange


def refuse_misshapen(
    changes: Iterable[OffsetChange], *, partition: Mapping[str, type], counts: Collection[str]
) -> None:
    """Refuse changes whose tasks would not know where to go on. Any offset may be removed: those of
    another connector have to be.

    Args:
        changes: As ``Connector.alter_offsets`` has them.
        partition: The keys of a partition and the types of their values.
        counts: What an offset has to have at least, as whole numbers from 0.

    Raises:
        ValueError: Every fault.
    """
    faults = []
    for place, offset in changes:
        if offset is None:
            continue
        if place.keys() != partition.keys() or not all(
            type(place[name]) is kind for name, kind in partition.items()
        ):
            wanted = ", ".join(f'"{name}": {kind.__name__}' for name, kind in partition.items())
            faults.append(f"the partition {place} has to be {{{wanted}}}")
        faults += (
            f"{name} of {place} has to be a whole number from 0, not {offset.get(name)!r}"
            for name in counts
            if not _is_count(offset.get(name))
        )
    if faults:
        raise ValueError("; ".join(faults))


def refuse_renamed(config: Mapping[str, Any], tables: Iterable[str]) -> None:
    """Refuse to look for what was written of a topic in tables named by what transforms call it.

    Raises:
        ValueError: a transform renames topics, and a table's name has ``${topic}``.
    """
    types = (config.get(f"transforms.{each}.type") for each in config.get("transforms") or ())
    routers = [str(each) for each in types if str(each).endswith(("Router", "Router'>"))]
    if routers and any("${topic}" in each for each in tables):
        raise ValueError(
            f"the transform {routers[0]} renames topics, so nobody knows which tables have these "
            "offsets: name each table instead of ${topic}, or give the connector another name, "
            "under which it writes all records again"
        )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
