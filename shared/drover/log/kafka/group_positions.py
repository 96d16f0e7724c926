"""Reads a consumer group's committed offsets by two requests over existing connections.

A consumer of librdkafka needs eighty milliseconds to find the group's coordinator, and its admin
client aborts the process if the coordinator moves during the call.
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
    """A group's committed offsets of the given partitions, where it has one.

    The partitions are listed, because a request without them would miss partitions: brokers
    silently leave out a partition whose first offset is in an open transaction.

    Raises:
        RefusedError: UNSTABLE_OFFSET_COMMIT, an open transaction commits some of the offsets; or
            the group's coordinator is moving.
        CONNECTION_ERRORS: No broker responded.
    """
    coordinator = await brokers.coordinator(group_id, Coordinated.GROUP)
    response = await brokers.ask_coordinator(coordinator, _StableOffsetFetch(group_id, partitions))
    if response.error_code:
        raise RefusedError(response.error_code)
    positions = []
    for topic, offsets, _ in response.topics:
        for partition, offset, _, metadata, code, _ in offsets:
            if code:
                raise RefusedError(code)
            if offset >= 0:
                # librdkafka commits the metadata with a trailing NUL
                text = (metadata or "").rstrip("\0")
                positions.append(GroupPosition(group_id, topic, partition, offset, text))
    return positions


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
    """The first version with ``require_stable`` (KIP-447); aiokafka has only earlier ones."""

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
