"""Checks offsets that operators set for these connectors."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from drover.connector import OffsetChange


def refuse_misshapen(
    changes: Iterable[OffsetChange], *, partition: Mapping[str, type], counts: Collection[str]
) -> None:
    """Reject offsets that tasks could not resume at. Removing an offset is always allowed: offsets
    of another connector have to be removed.

    Args:
        changes: As in ``Connector.alter_offsets``.
        partition: The keys of a partition and the types of their values.
        counts: Required keys of an offset, with whole numbers from 0.

    Raises:
        ValueError: Lists every fault.
    """
    faults = []
    for place, offset in changes:
        if offset is None:
            continue
        if place.keys() != partition.keys() or not all(
            type(place[name]) is kind for name, kind in partition.items()
        ):
            wanted = ", ".join(f'"{name}": {kind.__name__}' for name, kind in partition.items())
            faults.append(f"the partition {place} must be {{{wanted}}}")
        faults += (
            f"{name} of {place} must be a whole number from 0, not {offset.get(name)!r}"
            for name in counts
            if not _is_count(offset.get(name))
        )
    if faults:
        raise ValueError("; ".join(faults))


def refuse_renamed(config: Mapping[str, Any], tables: Iterable[str]) -> None:
    """Reject a change of offsets if transforms rename topics, because tables named after topics
    cannot be found.

    Raises:
        ValueError: A transform renames topics, and a table's name has ``${topic}``.
    """
    renaming = renaming_transform(config, tables)
    if renaming is not None:
        raise ValueError(
            f"the transform {renaming} renames topics, so the tables with these offsets are "
            "unknown: name each table instead of ${topic}, or rename the connector, "
            "which then writes all records again"
        )


def renaming_transform(config: Mapping[str, Any], tables: Iterable[str]) -> str | None:
    """The transform that renames topics, after which tables are named with ``${topic}``."""
    types = (config.get(f"transforms.{each}.type") for each in config.get("transforms") or ())
    routers = [str(each) for each in types if str(each).endswith(("Router", "Router'>"))]
    return routers[0] if routers and any("${topic}" in each for each in tables) else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
