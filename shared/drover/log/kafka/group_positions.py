"""Where a consumer group is, by two requests over connections that are there.

A consumer of librdkafka's takes eighty milliseconds until it has found the group's coordinator, and
its admin client ends the process if that one moves meanwhile.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from drover.log.kafka.brokers import Brokers, Coordinated, RefusedError
from drover.log.kafka.records import GroupPosition


async def group_positions(
    brokers: Brokers, group_id: str, partitions: Mapping[str, Sequence[int]]
) -> list[GroupPosition]:
    """A group's committed offsets of these partitions of topics, where it has one.

    A request without partitions would be for all that the group has committed, but brokers leave
    out, without an error, one whose first offset is in a transaction that is still open.

    Raises:
        RefusedError: UNSTABLE_OFFSET_COMMIT, a transaction that commits some is open; the group's
            coordinator moves.
        CONNECTION_ERRORS: Nobody answered.
    """
    coordinator = await brokers.coordinator(group_id, Coordinated.GROUP)
    answer = await brokers.ask_coordinator(coordinator, _StableOffsetFetch(group_id, partitions))
    if answer.error_code:
        raise RefusedError(answer.error_code)
    found = []
    for topic, offsets, _ in answer.topics:
        for partition, offset, _, metadata, code, _ in offsets:
            if code:
                raise RefusedError(code)
            if offset >= 0:
                # clients in C commit it with the NUL at its end
                text = (metadata or "").rstrip("\0")
                found.append(GroupPosition(group_id, topic, partition, offset, text))
    return found


class _Response(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", CompactString("utf-8")),
                        ("error_code", Int16),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("error_code", Int16),
        ("tags", TaggedFields),
    )


class _Request(RequestStruct):  # type: ignore[misc]
    """The first version that waits for transactions (KIP-447); aiokafka has those before."""

    FLEXIBLE_VERSION = True
    API_KEY = 9
    API_VERSION = 7
    RESPONSE_TYPE = _Response
    SCHEMA = Schema(
        ("group_id", CompactString("utf-8")),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                ("partitions", CompactArray(Int32)),
                ("tags", TaggedFields),
            ),
        ),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class _StableOffsetFetch(Request[_Request]):  # type: ignore[misc]
    API_KEY = 9

    def __init__(self, group_id: str, partitions: Mapping[str, Sequence[int]]) -> None:
        self._group_id = group_id
        self._topics: list[Any] = [(topic, numbers, {}) for topic, numbers in partitions.items()]

    def build(self, request_struct_class: type[_Request]) -> Any:
        return request_struct_class(self._group_id, self._topics, True, {})
