"""States of dead letters as messages of the admin API."""

from collections.abc import Iterable

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.model.dead_letters import ReplayRange
from drover.model.letter_states import Offsets, Repairs, StatesNow, offsets_of_ranges


def decode_ranges(ranges: Iterable[pb.ReplayDeadLettersResponse.Range]) -> Offsets:
    """The offsets of ranges, by partition."""
    return offsets_of_ranges(
        ReplayRange(each.partition, each.start_offset, each.end_offset) for each in ranges
    )


def decode_states(found: pb.GetDeadLetterStatesResponse) -> StatesNow:
    """The states in a response."""
    repaired: dict[int, dict[int, int]] = {}
    for each in found.repairs:
        repaired.setdefault(each.partition, {})[each.offset] = each.repaired_offset
    return StatesNow(
        decode_ranges(found.replayed_ranges),
        decode_ranges(found.discarded_ranges),
        decode_ranges(found.replaying_ranges),
        repaired,
    )


def encode_repairs(repaired: Repairs) -> list[pb.GetDeadLetterStatesResponse.Repair]:
    """Repaired dead letters, in order."""
    return [
        pb.GetDeadLetterStatesResponse.Repair(
            partition=partition, offset=offset, repaired_offset=new_offset
        )
        for partition, found in sorted(repaired.items())
        for offset, new_offset in sorted(found.items())
    ]
