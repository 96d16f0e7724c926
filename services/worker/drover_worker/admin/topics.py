"""Topics and their records, as operators look at them; the engine reads, a piece at a time."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager

from drover.api.common.v1 import topics_pb2
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.engine.v1 import engine_pb2
from drover.codec.common import invalid_field
from drover.errors import (
    InvalidArgumentError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
    Violation,
)
from drover.model.pages import PAGE_BYTES_MAX, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX
from drover_worker.admin.call import AdminCall
from drover_worker.admin.config_checks import checked_name
from drover_worker.admin.reads import Reads
from drover_worker.shell.engine_link import EngineLink

LAST_COUNT_MAX = 1_000
#: Texts of one query, and how long they may be together.
_TERMS_MAX, _QUERY_BYTES_MAX = 100, 256 * 1024
#: Readings of a worker at the same time.
_READINGS_MAX = 16
#: How often a follower looks for new records, and how often it asks again while nobody answers.
_LOOK_AGAIN_S = 0.5
_AGAIN_MAX = 120


class Topics:
    """Lists, describes, reads and counts; commits nothing."""

    def __init__(self, engine: EngineLink, reads: Reads) -> None:
        self._engine = engine
        self._reads = reads
        self._reading_count = 0

    async def list_page(
        self, request: pb.ListTopicsRequest, _call: AdminCall
    ) -> pb.ListTopicsResponse:
        """A page of topics."""
        if not 0 <= request.page_size <= PAGE_SIZE_MAX:
            raise invalid_field("page_size", f"must be from 0 to {PAGE_SIZE_MAX}")
        count_max = request.page_size or PAGE_SIZE_DEFAULT
        found = await self._engine.list_topics(request.page_token, count_max)
        token = found.topics[-1].name if found.more and found.topics else ""
        return pb.ListTopicsResponse(topics=found.topics, next_page_token=token)

    async def describe(
        self, request: pb.DescribeTopicRequest, _call: AdminCall
    ) -> pb.DescribeTopicResponse:
        """A topic."""
        return pb.DescribeTopicResponse(topic=await self._engine.describe_topic(request.name))

    async def watch(
        self, request: pb.WatchTopicRequest, call: AdminCall
    ) -> AsyncIterator[pb.WatchTopicResponse]:
        """Records of a topic, and with ``follow`` those that come."""
        _check(request.query, _watch_faults(request))
        wanted = engine_pb2.ReadTopic(
            query=request.query,
            connector_config=await self._config_of(request.connector, call),
            positions=request.positions,
            start_offset=request.start_offset,
            last_count=0 if request.positions else request.last_count,
        )
        left = request.record_count_max
        synced = False
        with self._one_more_reading():
            while True:
                # 0 in the command: as many as an answer holds
                wanted.record_count_max = min(left, 2**31 - 1)
                found = await self._read(wanted, patient=request.follow and synced)
                records = found.records[:left] if left else found.records
                wanted.ClearField("positions")
                wanted.positions.extend(found.positions)
                wanted.last_count = 0
                for response in _messages(records, found.positions):
                    yield response
                complete = bool(left) and len(records) == left
                left -= len(records) if left else 0
                if complete or (found.at_end and not synced):
                    synced = True
                    yield pb.WatchTopicResponse(positions=found.positions, synced=True)
                if complete or (synced and not request.follow):
                    return
                if found.at_end:
                    await asyncio.sleep(_LOOK_AGAIN_S)

    async def count(
        self, request: pb.GetTopicRecordCountRequest, call: AdminCall
    ) -> pb.GetTopicRecordCountResponse:
        """How many records meet conditions, as far as the deadline lets them be looked at."""
        _check(request.query, [])
        if not request.query.conditions:
            return await self._count_offsets(request.query)
        wanted = engine_pb2.ReadTopic(
            query=request.query,
            connector_config=await self._config_of(request.connector, call),
            count_only=True,
        )
        counted = pb.GetTopicRecordCountResponse()
        with self._one_more_reading():
            while not counted.complete and call.deadline.remaining_s() > 0:
                found = await self._engine.read_topic(wanted)
                counted.record_count += found.record_count
                counted.scanned_count += found.scanned_count
                counted.complete = found.at_end
                wanted.ClearField("positions")
                wanted.positions.extend(found.positions)
        return counted

    async def _count_offsets(self, query: topics_pb2.RecordQuery) -> pb.GetTopicRecordCountResponse:
        described = await self._engine.describe_topic(query.topic)
        bounds = {each.partition: each for each in described.partitions}
        missing = [each for each in query.partitions if each not in bounds]
        if missing:
            raise invalid_field(
                "query.partitions", f"must be of 0 to {len(bounds) - 1}, not {missing[0]}"
            )
        partitions = set(query.partitions or bounds)
        count = sum(bounds[each].end_offset - bounds[each].start_offset for each in partitions)
        return pb.GetTopicRecordCountResponse(record_count=count, complete=True)

    async def _config_of(self, connector: str, call: AdminCall) -> Mapping[str, str]:
        if not connector:
            return {}
        name = await self._reads.existing(checked_name(connector), call.deadline)
        return self._reads.view.connectors[name].config or {}

    async def _read(
        self, wanted: engine_pb2.ReadTopic, *, patient: bool
    ) -> engine_pb2.TopicRecords:
        """Ask the engine; a follower outlives an engine that is replaced and a storage that is
        away for a while.
        """
        for _ in range(_AGAIN_MAX if patient else 0):
            try:
                return await self._engine.read_topic(wanted)
            except UnavailableError:
                await asyncio.sleep(_LOOK_AGAIN_S)
        return await self._engine.read_topic(wanted)

    @contextmanager
    def _one_more_reading(self) -> Iterator[None]:
        if self._reading_count >= _READINGS_MAX:
            raise ResourceExhaustedError(
                Reason.QUEUE_FULL,
                f"{_READINGS_MAX} callers read topics on this worker already: end one, ask another "
                "worker, or try again later",
            )
        self._reading_count += 1
        try:
            yield
        finally:
            self._reading_count -= 1


def _check(query: topics_pb2.RecordQuery, faults: list[Violation]) -> None:
    """Refuse what is seen without the topic; the engine sees the rest."""
    if not query.topic:
        faults.append(Violation("query.topic", "must be given"))
    for field, terms in (("conditions", query.conditions), ("paths", query.paths)):
        if len(terms) > _TERMS_MAX:
            faults.append(Violation(f"query.{field}", f"must be at most {_TERMS_MAX}"))
    if query.ByteSize() > _QUERY_BYTES_MAX:
        faults.append(Violation("query", f"must have at most {_QUERY_BYTES_MAX} bytes"))
    if len(query.partitions) != len(set(query.partitions)):
        faults.append(Violation("query.partitions", "must name each partition once"))
    if faults:
        raise InvalidArgumentError.listing(faults)


def _watch_faults(request: pb.WatchTopicRequest) -> list[Violation]:
    faults = []
    if not 0 <= request.last_count <= LAST_COUNT_MAX:
        faults.append(Violation("last_count", f"must be 0 to {LAST_COUNT_MAX}"))
    faults += [
        Violation(field, "must not be negative")
        for field in ("start_offset", "record_count_max")
        if getattr(request, field) < 0
    ]
    if any(each.partition < 0 or each.offset < 0 for each in request.positions):
        faults.append(Violation("positions", "must not have negative numbers"))
    return faults


def _messages(
    records: Sequence[topics_pb2.TopicRecord], positions: Sequence[topics_pb2.ReadPosition]
) -> Iterator[pb.WatchTopicResponse]:
    """The records in messages of about 1 MiB; the last one has the positions."""
    response = pb.WatchTopicResponse()
    size_bytes = 0
    for record in records:
        size_bytes += record.ByteSize()
        if response.records and size_bytes > PAGE_BYTES_MAX:
            yield response
            response, size_bytes = pb.WatchTopicResponse(), record.ByteSize()
        response.records.append(record)
    if response.records:
        response.positions.extend(positions)
        yield response
