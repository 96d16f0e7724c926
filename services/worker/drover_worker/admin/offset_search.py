"""Finds the offsets of a sink that belong to a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import invalid_field
from drover.errors import InvalidArgumentError, NotFoundError
from drover.model.config import setting_text
from drover.model.dead_letters import DEAD_LETTER_TOPIC
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.model.sink_offsets import SinkOffsetError, parse_sink_offset, sink_offset
from drover_worker.admin.call import AdminCall
from drover_worker.admin.config_checks import checked_name
from drover_worker.admin.reads import Reads
from drover_worker.admin.statuses import ConnectorStatuses
from drover_worker.admin.topics import Topics, first_ms_of_time, time_faults
from drover_worker.admin.views import ConnectorViews

_TOPICS = "topics"


@dataclass(frozen=True, slots=True)
class Start:
    """Where a partition is read from a time on.

    Attributes:
        offset: The offset of the first record at or after the time, or the end.
        is_end: No record is at or after the time.
    """

    offset: int
    is_end: bool


class OffsetSearch:
    """Finds offsets by time in all topic partitions of a sink; writes nothing."""

    def __init__(
        self, reads: Reads, views: ConnectorViews, statuses: ConnectorStatuses, topics: Topics
    ) -> None:
        self._reads = reads
        self._views = views
        self._statuses = statuses
        self._topics = topics

    async def find(
        self, request: pb.FindConnectorOffsetsRequest, call: AdminCall
    ) -> pb.FindConnectorOffsetsResponse:
        """Return where each partition has the first record at or after a time.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, the time is missing or out of range, or the
                connector is a source.
            NotFoundError: CONNECTOR_NOT_FOUND.
            DeadlineExceededError: The search needs more time.
        """
        if not request.HasField("start_time"):
            raise invalid_field("start_time", "must be set")
        if faults := time_faults("start_time", request.start_time):
            raise InvalidArgumentError.listing(faults)
        name = await self._reads.existing(checked_name(request.name), call.deadline)
        if self._views.status(name).type == pb.CONNECTOR_TYPE_SOURCE:
            raise invalid_field("name", "must name a sink: the offsets of a source have no times")
        config = self._reads.view.config(name) or {}
        dead_letters = setting_text(config, DEAD_LETTER_TOPIC)
        committed = _by_partition(
            await self._statuses.committed(name, call.deadline.remaining_s()), dead_letters
        )
        read = [each.strip() for each in setting_text(config, _TOPICS).split(",")]
        wanted = {*filter(None, read), *(each.topic for each in committed)}
        time_ms = first_ms_of_time(request.start_time)
        starts: dict[TopicPartition, Start] = {}
        for topic in sorted(wanted):
            try:
                found = await self._topics.starts(topic, time_ms, call)
            except NotFoundError:
                continue
            starts |= {TopicPartition(topic, each): Start(*at) for each, at in found.items()}
        return pb.FindConnectorOffsetsResponse(offsets=_found(committed, starts))


def _by_partition(
    offsets: Sequence[CommittedOffset], dead_letters: str
) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets in the topics that the sink reads, without the offsets of a replay."""
    found = {}
    for each in offsets:
        try:
            position = parse_sink_offset(each)
        except SinkOffsetError:
            continue
        if position is not None and position[0].topic != dead_letters:
            found[position[0]] = each
    return found


def _found(
    committed: Mapping[TopicPartition, CommittedOffset], starts: Mapping[TopicPartition, Start]
) -> list[pb.FoundOffset]:
    offsets = []
    for at in sorted({*committed, *starts}, key=lambda each: (each.topic, each.partition)):
        start, known = starts.get(at), committed.get(at)
        shown = sink_offset(at, None if start is None else start.offset)
        found = pb.ConnectorOffset(
            # as GetConnectorOffsets has it
            partition_json=shown.partition_json if known is None else known.partition_json,
            offset_json=shown.offset_json,
        )
        offsets.append(
            pb.FoundOffset(
                found=found,
                committed_offset_json=None if known is None else known.offset_json,
                is_end=start is not None and start.is_end,
            )
        )
    return offsets
