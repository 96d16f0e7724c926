"""What is wrong with offsets that an operator wants a connector to have. Pure."""

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
    """Every fault that any connector's offsets may have: no JSON objects, a partition twice."""
    if not offsets:
        return [Violation("offsets", "give at least one; a reset removes them all")]
    faults = validate(offsets)
    return faults or _repeated(canonical_json(each.partition_json) for each in offsets)


def as_sink_offsets(
    offsets: Sequence[CommittedOffset],
) -> tuple[list[CommittedOffset], list[Violation]]:
    """A sink's offsets as they are committed, numbers as numbers, and every fault of them."""
    found: list[CommittedOffset] = []
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
            found.append(sink_offset(place, position))
    return found, faults or _repeated(each.partition_json for each in found)


def _repeated(partitions: Iterable[Hashable]) -> list[Violation]:
    first: dict[Hashable, int] = {}
    faults = []
    for index, partition in enumerate(partitions):
        before = first.setdefault(partition, index)
        if before != index:
            text = f"is the partition of offsets[{before}] too: give each once"
            faults.append(Violation(f"offsets[{index}].partition_json", text))
    return faults
