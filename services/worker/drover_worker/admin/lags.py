"""Committed offsets with end offsets and lags, where they are positions in topic partitions."""

from collections.abc import Sequence

import structlog

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import DroverError
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.model.sink_offsets import SinkOffsetError, parse_sink_offset
from drover_worker.admin.call import Deadline
from drover_worker.shell.engine_link import EngineLink

#: Limit for reading end offsets; after it offsets are returned without them.
_ENDS_TIMEOUT_S = 5.0

_log = structlog.get_logger("drover.worker")


class Lags:
    """Reads end offsets from this worker's engine, which has access to topics."""

    def __init__(self, engine: EngineLink) -> None:
        self._engine = engine

    async def shown(
        self, offsets: Sequence[CommittedOffset], deadline: Deadline, *, dead_letter_topic: str
    ) -> list[pb.ConnectorOffset]:
        """The offsets as messages, with end offsets and lags where available.

        The offsets of a replay in the dead letter queue have no lag: dead letters are not records
        that the connector has yet to read.
        """
        positions = [
            None if found is None or found[0].topic == dead_letter_topic else found
            for found in map(_position, offsets)
        ]
        partitions = {position[0] for position in positions if position is not None}
        ends = await self._ends(partitions, deadline) if partitions else {}
        shown = []
        for offset, position in zip(offsets, positions, strict=True):
            each = pb.ConnectorOffset(
                partition_json=offset.partition_json, offset_json=offset.offset_json
            )
            if position is not None and position[0] in ends:
                partition, next_offset = position
                each.end_offset = ends[partition]
                # a recreated topic may end before the committed offset
                each.lag = max(ends[partition] - next_offset, 0)
            shown.append(each)
        return shown

    async def _ends(
        self, partitions: set[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, int]:
        timeout_s = min(_ENDS_TIMEOUT_S, deadline.remaining_s() / 2)
        try:
            return await self._engine.end_offsets(partitions, timeout_s=timeout_s)
        except DroverError as error:
            _log.info("offsets are returned without end offsets and lags", why=error.message)
            return {}


def _position(offset: CommittedOffset) -> tuple[TopicPartition, int] | None:
    """The position of a sink in a topic partition; None for the offset of a source."""
    try:
        return parse_sink_offset(offset)
    except SinkOffsetError:
        return None
