"""Reads topics and their records for operators; the engine reads them in chunks."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from google.protobuf.timestamp_pb2 import Timestamp

from drover.api.common.v1 import topics_pb2
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.engine.v1 import engine_pb2
from drover.codec.common import invalid_field
from drover.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
    Violation,
)
from drover.model.pages import PAGE_BYTES_MAX, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX
from drover.model.times import TIME_MAX_MS
from drover_worker.admin.call import AdminCall
from drover_worker.admin.reads import Reads
from drover_worker.shell.engine_link import EngineLink

LAST_COUNT_MAX = 1_000
#: Limits of a query: the number of conditions or paths, and the encoded size.
_TERMS_MAX, _QUERY_BYTES_MAX = 100, 256 * 1024
#: How many calls may read topics on a worker at a time.
_READS_MAX = 16
#: The pause between polls for new records, and how often a follower retries a failed read.
_POLL_PAUSE_S = 0.5
_RETRIES_MAX = 120


class Topics:
    """Lists, describes, reads and counts; never commits offsets."""

    def __init__(self, engine: EngineLink, reads: Reads) -> None:
        self._engine = engine
        self._reads = reads
        self._read_count = 0

    async def list_page(
        self, request: pb.ListTopicsRequest, _call: AdminCall
    ) -> pb.ListTopicsResponse:
        """Return a page of topics."""
        if not 0 <= request.page_size <= PAGE_SIZE_MAX:
            raise invalid_field("page_size", f"must be from 0 to {PAGE_SIZE_MAX}")
        count_max = request.page_size or PAGE_SIZE_DEFAULT
        page = await self._engine.list_topics(request.page_token, count_max)
        token = page.topics[-1].name if page.more and page.topics else ""
        return pb.ListTopicsResponse(topics=page.topics, next_page_token=token)

    async def describe(
        self, request: pb.DescribeTopicRequest, _call: AdminCall
    ) -> pb.DescribeTopicResponse:
        """Describe a topic."""
        return pb.DescribeTopicResponse(topic=await self._engine.describe_topic(request.name))

    async def watch(
        self, request: pb.WatchTopicRequest, call: AdminCall
    ) -> AsyncIterator[pb.WatchTopicResponse]:
        """Stream records of a topic; with ``follow`` also new records, without end."""
        _check(request.query, _watch_faults(request))
        command = engine_pb2.ReadTopic(
            query=request.query,
            connector_config=await self._reads.config_of(request.connector, call.deadline),
            positions=request.positions,
            start_offset=request.start_offset,
            last_count=0 if request.positions else request.last_count,
        )
        if request.HasField("start_time") and not request.positions:
            command.start_time_ms = first_ms_of_time(request.start_time)
        remaining = request.record_count_max
        synced = False
        with self._reading():
            while True:
                # 0 means no limit other than the size of a chunk
                command.record_count_max = min(remaining, 2**31 - 1)
                chunk = await self._read(command, retries=request.follow and synced)
                records = chunk.records[:remaining] if remaining else chunk.records
                for field in ("positions", "search_positions"):
                    command.ClearField(field)
                command.positions.extend(chunk.positions)
                command.search_positions.extend(chunk.search_positions)
                command.last_count = 0
                if chunk.search_positions:
                    # without positions: a stream that breaks now searches again
                    yield pb.WatchTopicResponse()
                    continue
                for response in _messages(records, chunk.positions):
                    yield response
                if not records and not chunk.at_end:
                    # a long search without a match: the caller may continue it elsewhere
                    yield pb.WatchTopicResponse(positions=chunk.positions)
                complete = bool(remaining) and len(records) == remaining
                remaining -= len(records) if remaining else 0
                if complete or (chunk.at_end and not synced):
                    synced = True
                    yield pb.WatchTopicResponse(positions=chunk.positions, synced=True)
                if complete or (synced and not request.follow):
                    return
                if chunk.at_end:
                    await asyncio.sleep(_POLL_PAUSE_S)

    async def count(
        self, request: pb.GetTopicRecordCountRequest, call: AdminCall
    ) -> pb.GetTopicRecordCountResponse:
        """Count the records that meet conditions, as many as can be read before the deadline."""
        _check(request.query, _count_faults(request))
        if request.count_offsets:
            return await self._count_offsets(request.query)
        command = engine_pb2.ReadTopic(
            query=request.query,
            connector_config=await self._reads.config_of(request.connector, call.deadline),
            count_only=True,
        )
        counted = pb.GetTopicRecordCountResponse()
        with self._reading():
            while not counted.complete and (left_s := call.deadline.remaining_s()) > 0:
                command.time_max_ms = max(1, int(left_s * 1000))
                try:
                    async with asyncio.timeout(left_s):
                        chunk = await self._engine.read_topic(command)
                except TimeoutError:
                    break
                counted.record_count += chunk.record_count
                counted.scanned_count += chunk.scanned_count
                counted.complete = chunk.at_end
                for field in ("positions", "end_positions"):
                    command.ClearField(field)
                command.positions.extend(chunk.positions)
                command.end_positions.extend(chunk.end_positions)
        counted.positions.extend(command.positions)
        return counted

    async def starts(
        self, topic: str, time_ms: int, call: AdminCall
    ) -> dict[int, tuple[int, bool]]:
        """The offset of the first record at or after a time by partition, or the end, and whether
        it is the end.

        Raises:
            NotFoundError: TOPIC_NOT_FOUND.
            DeadlineExceededError: The search needs more time than the call has.
        """
        query = topics_pb2.RecordQuery(topic=topic)
        command = engine_pb2.ReadTopic(query=query, start_time_ms=time_ms, find_only=True)
        with self._reading():
            while (left_s := call.deadline.remaining_s()) > 0:
                command.time_max_ms = max(1, int(left_s * 1000))
                chunk = await self._engine.read_topic(command)
                if not chunk.search_positions:
                    ends = {each.partition: each.offset for each in chunk.end_positions}
                    return {
                        each.partition: (each.offset, each.offset >= ends[each.partition])
                        for each in chunk.positions
                    }
                for field in ("positions", "search_positions"):
                    command.ClearField(field)
                command.positions.extend(chunk.positions)
                command.search_positions.extend(chunk.search_positions)
        raise DeadlineExceededError(
            Reason.DEADLINE_EXCEEDED,
            f"the first records at or after the time were not found in {topic} in time: repeat the "
            "call with a longer deadline",
        )

    async def _count_offsets(self, query: topics_pb2.RecordQuery) -> pb.GetTopicRecordCountResponse:
        described = await self._engine.describe_topic(query.topic)
        bounds = {each.partition: each for each in described.partitions}
        missing = [each for each in query.partitions if each not in bounds]
        if missing:
            raise invalid_field(
                "query.partitions", f"must be from 0 to {len(bounds) - 1}, not {missing[0]}"
            )
        counted = pb.GetTopicRecordCountResponse(complete=True)
        for partition in sorted(query.partitions or bounds):
            found = bounds[partition]
            counted.record_count += found.end_offset - found.start_offset
            counted.positions.add(partition=partition, offset=found.end_offset)
        return counted

    async def _read(
        self, command: engine_pb2.ReadTopic, *, retries: bool
    ) -> engine_pb2.TopicRecords:
        """Read a chunk; with ``retries`` also after a replacement of the engine or an outage of the
        storage.
        """
        for _ in range(_RETRIES_MAX if retries else 0):
            try:
                return await self._engine.read_topic(command)
            except UnavailableError:
                await asyncio.sleep(_POLL_PAUSE_S)
        return await self._engine.read_topic(command)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        if self._read_count >= _READS_MAX:
            raise ResourceExhaustedError(
                Reason.QUEUE_FULL,
                f"{_READS_MAX} callers are reading topics on this worker, the maximum: end one, "
                "call another worker, or retry later",
            )
        self._read_count += 1
        try:
            yield
        finally:
            self._read_count -= 1


def _check(query: topics_pb2.RecordQuery, faults: list[Violation]) -> None:
    """Reject violations that do not depend on the topic; the engine finds the others."""
    if not query.topic:
        faults.append(Violation("query.topic", "must be set"))
    for field, terms in (("conditions", query.conditions), ("paths", query.paths)):
        if len(terms) > _TERMS_MAX:
            faults.append(Violation(f"query.{field}", f"must have at most {_TERMS_MAX}"))
    if query.ByteSize() > _QUERY_BYTES_MAX:
        faults.append(Violation("query", f"must have at most {_QUERY_BYTES_MAX} bytes"))
    if len(query.partitions) != len(set(query.partitions)):
        faults.append(Violation("query.partitions", "must name each partition once"))
    if faults:
        raise InvalidArgumentError.listing(faults)


def _count_faults(request: pb.GetTopicRecordCountRequest) -> list[Violation]:
    if not (request.count_offsets and request.query.conditions):
        return []
    return [
        Violation("count_offsets", "must not be set with conditions, for which records are read")
    ]


def first_ms_of_time(time: Timestamp) -> int:
    """A time in milliseconds, rounded up: timestamps of records have milliseconds."""
    return time.seconds * 1_000 - (-time.nanos // 1_000_000)


def time_faults(field: str, time: Timestamp) -> list[Violation]:
    """The violation of a time outside the range of records' timestamps."""
    if 0 <= time.seconds <= TIME_MAX_MS // 1_000 and 0 <= time.nanos < 10**9:
        return []
    return [Violation(field, "must be a time from 1970 to 9999")]


def _watch_faults(request: pb.WatchTopicRequest) -> list[Violation]:
    faults = []
    if not 0 <= request.last_count <= LAST_COUNT_MAX:
        faults.append(Violation("last_count", f"must be 0 to {LAST_COUNT_MAX}"))
    faults += [
        Violation(field, "must not be negative")
        for field in ("start_offset", "record_count_max")
        if getattr(request, field) < 0
    ]
    if request.HasField("start_time"):
        faults += time_faults("start_time", request.start_time)
        faults += [
            Violation("start_time", f"must not be set together with {field}: set one of them")
            for field in ("start_offset", "last_count")
            if getattr(request, field)
        ]
    if any(each.partition < 0 or each.offset < 0 for each in request.positions):
        faults.append(Violation("positions", "must not have negative numbers"))
    return faults


def _messages(
    records: Sequence[topics_pb2.TopicRecord], positions: Sequence[topics_pb2.ReadPosition]
) -> Iterator[pb.WatchTopicResponse]:
    """Pack the records into messages of about 1 MiB; the last message has the positions."""
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
