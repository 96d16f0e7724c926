"""Limits of messages: entries in a request before it is decoded, bytes in a response.

A message of 4 MiB can hold two million empty entries, which take seconds to decode and would block
all other calls.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from google.protobuf.message import Message

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.errors import InvalidArgumentError, Reason, ResourceExhaustedError, Violation
from drover.rpc import MESSAGE_MAX_BYTES

#: Higher than the limits of each call's validation, so that the validation can list all violations.
COUNT_MAX = 10_000
ASSIGNMENTS_MAX = 100_000
OFFSETS_MAX = 50_000

_MAX_COUNTS: Final[Mapping[type[Message], Mapping[str, int]]] = {
    pb.SyncGroupRequest: {"assignments": ASSIGNMENTS_MAX},
}


def check_counts(request: Message) -> None:
    """Reject a request with far too many entries.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with a violation for each field.
    """
    violations = [
        Violation(field, f"must have at most {limit} entries, not {count}")
        for field, count, limit in _counts(request)
        if count > limit
    ]
    if isinstance(request, pb.CommitOffsetsRequest) and not violations:
        count = sum(len(each.offsets) for each in request.tasks)
        if count > OFFSETS_MAX:
            violations.append(
                Violation("tasks", f"must have at most {OFFSETS_MAX} offsets in total, not {count}")
            )
    if violations:
        raise InvalidArgumentError.listing(violations)


def fit_in_message(response: pb.DescribeGroupResponse) -> pb.DescribeGroupResponse:
    """Drop members' metadata and assignments from the response if it is too large with them.

    Raises:
        ResourceExhaustedError: TOO_LARGE, it is too large without them too.
    """
    if response.ByteSize() <= MESSAGE_MAX_BYTES:
        return response
    for member in response.members:
        member.ClearField("metadata")
        member.ClearField("assignment")
    response.details_omitted = True
    if (size_bytes := response.ByteSize()) > MESSAGE_MAX_BYTES:
        raise ResourceExhaustedError(
            Reason.TOO_LARGE,
            f"the ids of the {len(response.members)} members of group {response.group_id!r} take "
            f"{size_bytes} bytes, and a message holds {MESSAGE_MAX_BYTES}: use ListGroups for the "
            "group's state and member count",
        )
    return response


def _counts(request: Message) -> Iterator[tuple[str, int, int]]:
    limits = _MAX_COUNTS.get(type(request), {})
    for field, value in request.ListFields():
        if field.is_repeated:
            entries: Sequence[Any] = value
            yield field.name, len(entries), limits.get(field.name, COUNT_MAX)
