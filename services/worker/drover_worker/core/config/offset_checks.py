"""Validates offsets that an operator sets for a connector. Pure."""

from collections.abc import Hashable, Iterable, Sequence

from drover.errors import Violation
from drover.model.offset_json import canonical_json, validate
from drover.model.offsets import CommittedOffset
from drover.model.sink_offsets import (
    SinkOffsetError,
    parse_partition,
    parse_position,
    sink_offset,
)


def offset_violations(offsets: Sequence[CommittedOffset]) -> list[Violation]:
    """Violations of the rules for all connectors: offsets are JSON objects, partitions unique."""
    if not offsets:
        return [Violation("offsets", "must have at least one; use a reset to remove all offsets")]
    faults = validate(offsets)
    return faults or _repeated(canonical_json(each.partition_json) for each in offsets)


def as_sink_offsets(
    offsets: Sequence[CommittedOffset],
) -> tuple[list[CommittedOffset], list[Violation]]:
    """A sink's offsets in the form in which they are committed, and all violations."""
    parsed: list[CommittedOffset] = []
    faults: list[Violation] = []
    for index, each in enumerate(offsets):
        place, position = None, None
        try:
            place = parse_partition(each.partition_json)
        except SinkOffsetError as error:
            faults.append(Violation(f"offsets[{index}].partition_json", str(error)))
        try:
            position = None if each.offset_json is None else parse_position(each.offset_json)
        except SinkOffsetError as error:
            faults.append(Violation(f"offsets[{index}].offset_json", str(error)))
        if place is not None:
            parsed.append(sink_offset(place, position))
    return parsed, faults or _repeated(each.partition_json for each in parsed)


def _repeated(partitions: Iterable[Hashable]) -> list[Violation]:
    first: dict[Hashable, int] = {}
    faults = []
    for index, partition in enumerate(partitions):
        before = first.setdefault(partition, index)
        if before != index:
            text = f"repeats the partition of offsets[{before}]: list each partition once"
            faults.append(Violation(f"offsets[{index}].partition_json", text))
    return faults
