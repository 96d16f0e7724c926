"""What a move of a sink's offsets to a time does with each topic partition, in words."""

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.model.sink_offsets import parse_position


def move_text(move: pb.FoundOffset) -> str:
    """Such as "back, repeats 3". Offsets are counted: there may be fewer records."""
    if not move.found.HasField("offset_json"):
        return "not written: the partition does not exist"
    after = parse_position(move.found.offset_json)
    end = "; the end: no record is at or after the time" if move.is_end else ""
    if not move.HasField("committed_offset_json"):
        return f"new{end}"
    by = after - parse_position(move.committed_offset_json)
    if by == 0:
        return f"none{end}"
    return f"{'ahead, skips' if by > 0 else 'back, repeats'} {abs(by):,}{end}"
