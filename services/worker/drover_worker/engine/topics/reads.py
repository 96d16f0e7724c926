"""Lists, describes and reads topics for operators, in bounded requests.

Needs no Spark, commits nothing and keeps no state: each request has its start positions.
"""

import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from drover.api.common.v1 import topics_pb2
from drover.api.engine.v1 import engine_pb2
from drover.dataplane import topics as topic_rules
from drover.dataplane.plane import DataPlane, reserved_fault
from drover.dataplane.topic_settings import CLEANUP_POLICY, DELETE
from drover.dataplane.values import ReadPlan, SettingOrigin
from drover.errors import (
    DroverError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    Reason,
    Violation,
)
from drover.record.batch import OFFSET
from drover_worker.engine.topics.record_query import RecordQuery
from drover_worker.engine.topics.start_times import FoundStarts, candidates, find_starts

#: Limits of a response: time, records scanned, size; a single record may exceed the size.
_TIME_S = 2.0
_SCANNED_MAX = 50_000
_ANSWER_BYTES_MAX = 2 * 1024 * 1024
_PLAN_RECORDS, _PLAN_BYTES = 5_000, 4 * 1024 * 1024
#: Limits of the backward search for the last matching records: records scanned, rounds, size.
_LAST_SCANNED_MAX = 100_000
_LAST_ROUNDS_MAX = 16
_LAST_BYTES_MAX = 16 * 1024 * 1024
#: How often one answer of a count continues behind records that retention removed.
_LOST_RANGES_MAX = 10

#: The largest Duration; topics on Kafka may have more.
_DURATION_MAX_MS = 315_576_000_000_000
_ORIGINS = {
    SettingOrigin.TOPIC: topics_pb2.SETTING_ORIGIN_TOPIC,
    SettingOrigin.COORDINATOR: topics_pb2.SETTING_ORIGIN_COORDINATOR,
    SettingOrigin.BROKERS: topics_pb2.SETTING_ORIGIN_BROKERS,
    SettingOrigin.DEFAULT: topics_pb2.SETTING_ORIGIN_DEFAULT,
}

Bounds = Mapping[int, tuple[int, int]]


def list_topics(plane: DataPlane, after: str, count_max: int) -> engine_pb2.TopicList:
    """Topics that connectors may use, sorted by name, after ``after``."""
    known = (name for name in plane.topics() if name > after)
    names = sorted(name for name in known if not reserved_fault(plane, name))
    page = names[:count_max]
    counts = plane.partition_counts(page)
    shown = [
        topics_pb2.Topic(name=name, partition_count=counts[name]) for name in page if name in counts
    ]
    return engine_pb2.TopicList(topics=shown, more=len(names) > len(page))


def describe_topic(plane: DataPlane, topic: str) -> topics_pb2.TopicDescription:
    """A topic's partitions and retention.

    Raises:
        InvalidArgumentError: INVALID_REQUEST, the topic is internal to the cluster.
        NotFoundError: TOPIC_NOT_FOUND.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    bounds = existing_bounds(plane, topic)
    settings = plane.topic_settings(topic)
    topic_id = plane.topic_ids([topic], fresh=True).get(topic, "")
    origins = plane.setting_origins(topic)
    described = topics_pb2.TopicDescription(name=topic, config=settings, id=topic_id)
    for name, value in sorted(settings.items()):
        origin = _ORIGINS.get(origins[name]) if name in origins else None
        described.settings.add(name=name, value=value, origin=origin)
    for partition, (start, end) in sorted(bounds.items()):
        described.partitions.add(partition=partition, start_offset=start, end_offset=end)
    if DELETE not in settings.get(CLEANUP_POLICY, DELETE):  # neither limit has an effect
        return described
    retention_ms = int(settings.get("retention.ms", -1))
    if 0 <= retention_ms <= _DURATION_MAX_MS:
        described.retention.FromMilliseconds(retention_ms)
    retention_bytes = int(settings.get("retention.bytes", -1))
    if retention_bytes >= 0:
        described.retention_bytes = retention_bytes
    return described


def read_topic(
    plane: DataPlane, command: engine_pb2.ReadTopic, connector_config: Mapping[str, str]
) -> engine_pb2.TopicRecords:
    """Some records of a topic; see the command. All records of a series of requests are of
    one topic, also if another one is created under its name.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every fault of the query, or the topic is
            internal to the cluster.
        NotFoundError: TOPIC_NOT_FOUND, also when it was deleted since the last request.
        OutOfRangeError: REVISION_COMPACTED, retention removed records while they were read.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    topic = command.query.topic
    _check_name(plane, topic)
    topic_id = plane.topic_ids([topic], fresh=True).get(topic, "")
    known = (*command.positions, *command.search_positions)
    if any(each.topic_id not in ("", topic_id) for each in known):
        raise _deleted(topic)

    def is_replaced() -> bool:
        return topic_id != plane.topic_ids([topic], fresh=True).get(topic, "")

    try:
        answer = _read(plane, command, connector_config)
    except DroverError as error:
        if is_replaced():
            raise _deleted(topic) from error
        raise
    if is_replaced():
        raise _deleted(topic)
    for position in (*answer.positions, *answer.search_positions):
        position.topic_id = topic_id
    return answer


def _read(
    plane: DataPlane, command: engine_pb2.ReadTopic, connector_config: Mapping[str, str]
) -> engine_pb2.TopicRecords:
    query = RecordQuery(command.query, connector_config)
    topic = command.query.topic
    went_on = bool(command.positions or command.search_positions)
    bounds = existing_bounds(plane, topic, went_on=went_on)
    reading = _Reading(plane, topic, query, command.time_max_ms)
    searched: Mapping[int, int] = {}
    if went_on:
        starts = {each.partition: each.offset for each in command.positions}
        searched = {each.partition: each.offset for each in command.search_positions}
        _check_same_topic(topic, {**starts, **searched}, bounds)
    else:
        wanted = command.query.partitions or sorted(bounds)
        _check_partitions(topic, wanted, bounds)
        bounds = {partition: bounds[partition] for partition in wanted}
        if command.last_count:
            return reading.last(bounds, command.last_count)
        starts = {
            partition: min(max(first, command.start_offset), end)
            for partition, (first, end) in bounds.items()
        }
        if command.HasField("start_time_ms"):
            near = candidates(plane, topic, bounds, command.start_time_ms)
            starts, searched = dict(near.starts), near.left
    if searched:
        found = reading.find(searched, bounds, command.start_time_ms)
        starts |= found.starts
        if found.left:
            return reading.searching(starts, found.left)
    if command.find_only:
        return reading.found(starts, bounds)
    ends = {partition: bounds[partition][1] for partition in starts}
    if command.count_only:
        fixed = {each.partition: each.offset for each in command.end_positions}
        return reading.count(starts, {**ends, **fixed})
    return reading.forward(starts, ends, command.record_count_max)


class _Reading:
    """Builds one response."""

    def __init__(
        self, plane: DataPlane, topic: str, query: RecordQuery, time_max_ms: int = 0
    ) -> None:
        self._plane = plane
        self._topic = topic
        self._query = query
        self._answer = engine_pb2.TopicRecords()
        time_s = min(time_max_ms / 1000, _TIME_S) if time_max_ms else _TIME_S
        self._deadline_s = time.monotonic() + time_s

    def find(self, positions: Mapping[int, int], bounds: Bounds, time_ms: int) -> FoundStarts:
        """Search for the first records at or after a time, as far as the time of the response
        allows.
        """
        ends = {partition: bounds[partition][1] for partition in positions}
        return find_starts(
            self._plane,
            self._topic,
            positions,
            ends,
            time_ms=time_ms,
            deadline_s=self._deadline_s,
        )

    def searching(
        self, starts: Mapping[int, int], left: Mapping[int, int]
    ) -> engine_pb2.TopicRecords:
        """A response without records: the search for their start continues at ``left``."""
        for partition, offset in sorted(starts.items()):
            self._answer.positions.add(partition=partition, offset=offset)
        for partition, offset in sorted(left.items()):
            self._answer.search_positions.add(partition=partition, offset=offset)
        return self._answer

    def found(self, starts: Mapping[int, int], bounds: Bounds) -> engine_pb2.TopicRecords:
        """A response without records: the start and the end of each partition."""
        for partition, offset in sorted(starts.items()):
            self._answer.positions.add(partition=partition, offset=offset)
            self._answer.end_positions.add(partition=partition, offset=bounds[partition][1])
        return self._answer

    def count(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> engine_pb2.TopicRecords:
        """Count from ``starts`` to ``ends``, as far as the time allows."""
        answer = self._answer
        # records that were added to the topic after the count began do not count
        positions = {each: min(start, ends[each]) for each, start in starts.items()}
        lost_count = 0
        while True:
            try:
                for records in self._counted(positions, ends):
                    answer.record_count += records.num_rows
                break
            except OutOfRangeError:
                # retention removed records during the read: continue behind them
                lost_count += 1
                if lost_count == _LOST_RANGES_MAX:
                    raise
        for partition, offset in sorted(ends.items()):
            answer.end_positions.add(partition=partition, offset=offset)
        return self._finish(positions, ends)

    def _counted(
        self, positions: dict[int, int], ends: Mapping[int, int]
    ) -> Iterator[pa.RecordBatch]:
        """The matching records before ``ends``. A position is behind all records that were yielded,
        also if the time ends the read, so a later read yields none of them again.
        """
        while left := {each: at for each, at in positions.items() if at < ends[each]}:
            plan = self._plan(left)
            for each in plan.ranges:
                end = min(each.end_offset, ends[each.partition])
                wanted = (replace(each, end_offset=end),) if each.start_offset < end else ()
                for batch in self._plane.read_here(ReadPlan(wanted)):
                    self._answer.scanned_count += batch.num_rows
                    yield from self._query.wanted(batch) if self._query.is_selective else (batch,)
                    positions[each.partition] = batch.column(OFFSET)[-1].as_py() + 1
                    if time.monotonic() > self._deadline_s:
                        return
                positions[each.partition] = end
            if not plan.ranges:  # retention removed the rest
                positions |= ends
            if time.monotonic() > self._deadline_s:
                return

    def forward(
        self, starts: Mapping[int, int], ends: Mapping[int, int], count_max: int
    ) -> engine_pb2.TopicRecords:
        """Read from ``starts`` until the first limit."""
        answer = self._answer
        positions = dict(starts)
        size_bytes = 0
        for records in self._scan(positions, _SCANNED_MAX):
            left = count_max - answer.record_count if count_max else records.num_rows
            for shown in self._query.shown(records.slice(0, left)):
                answer.records.append(shown)
                answer.record_count += 1
                size_bytes += shown.ByteSize()
                positions[shown.partition] = shown.offset + 1
                if size_bytes >= _ANSWER_BYTES_MAX or answer.record_count == count_max:
                    return self._finish(positions, ends)
            if time.monotonic() > self._deadline_s:
                break
        return self._finish(positions, ends)

    def last(self, bounds: Bounds, count: int) -> engine_pb2.TopicRecords:
        """The last ``count`` matching records, as far as they are near the ends."""
        answer = self._answer
        ends = {partition: end for partition, (_, end) in bounds.items()}
        reach = max(count, _PLAN_RECORDS) if self._query.is_selective else count
        reach_max = max(1, _LAST_SCANNED_MAX // len(bounds))
        for _ in range(_LAST_ROUNDS_MAX):
            reach = min(reach, reach_max)
            starts = {each: max(first, end - reach) for each, (first, end) in bounds.items()}
            positions = dict(starts)
            found = self._collect(positions, count)
            whole = all(starts[each] == first for each, (first, _) in bounds.items())
            enough = len(found) >= count or reach == reach_max
            if whole or enough or time.monotonic() > self._deadline_s:
                break
            reach *= 4
        found.sort(
            key=lambda each: (each.record_time.ToMilliseconds(), each.partition, each.offset)
        )
        answer.records.extend(found[-count:])
        answer.record_count = len(answer.records)
        return self._finish(positions, ends)

    def _collect(self, positions: dict[int, int], count: int) -> list[topics_pb2.TopicRecord]:
        """The last ``count`` records of each partition; fewer if they are large."""
        found: dict[int, deque[topics_pb2.TopicRecord]] = {}
        size_bytes = 0
        for records in self._scan(positions, _LAST_SCANNED_MAX + len(positions)):
            for shown in self._query.shown(records.slice(max(0, records.num_rows - count))):
                kept = found.setdefault(shown.partition, deque())
                kept.append(shown)
                size_bytes += shown.ByteSize()
                while len(kept) > 1 and (len(kept) > count or size_bytes > _LAST_BYTES_MAX):
                    size_bytes -= kept.popleft().ByteSize()
        return [*chain.from_iterable(found.values())]

    def _scan(self, positions: dict[int, int], scanned_max: int) -> Iterator[pa.RecordBatch]:
        """The matching records after ``positions``, which advance with the reads; each batch is
        from one partition.
        """
        scanned_count = 0
        while scanned_count < scanned_max:
            plan = self._plan(positions)
            for each in plan.ranges:
                for batch in self._plane.read_here(ReadPlan((each,))):
                    scanned_count += batch.num_rows
                    self._answer.scanned_count += batch.num_rows
                    yield from self._query.wanted(batch)
                positions[each.partition] = each.end_offset
            if not plan.ranges:
                positions |= {key[1]: offset for key, offset in plan.next_offsets.items()}
                return

    def _plan(self, positions: Mapping[int, int]) -> ReadPlan:
        return self._plane.plan_read(
            {(self._topic, each): offset for each, offset in positions.items()},
            max_records=_PLAN_RECORDS,
            max_bytes=_PLAN_BYTES,
        )

    def _finish(
        self, positions: Mapping[int, int], ends: Mapping[int, int]
    ) -> engine_pb2.TopicRecords:
        for partition, offset in sorted(positions.items()):
            self._answer.positions.add(partition=partition, offset=offset)
        self._answer.at_end = all(positions[each] >= end for each, end in ends.items())
        return self._answer


def _check_name(plane: DataPlane, topic: str) -> None:
    fault = topic_rules.name_fault(topic) or reserved_fault(plane, topic)
    if fault:
        raise InvalidArgumentError.listing([Violation("topic", fault)])


def existing_bounds(plane: DataPlane, topic: str, *, went_on: bool = False) -> Bounds:
    """The first and end offset of each partition of a topic that operators may use; ``went_on`` for
    a topic that was read before.

    Raises:
        InvalidArgumentError: INVALID_REQUEST, the topic is internal to the cluster.
        NotFoundError: TOPIC_NOT_FOUND.
    """
    _check_name(plane, topic)
    bounds = plane.topic_bounds(topic)
    if not bounds and went_on:
        raise _deleted(topic)
    if not bounds:
        raise topic_rules.unknown(topic)
    return bounds


def _check_same_topic(topic: str, starts: Mapping[int, int], bounds: Bounds) -> None:
    for partition, start in starts.items():
        if partition not in bounds or bounds[partition][1] < start:
            raise _deleted(topic)


def _deleted(topic: str) -> NotFoundError:
    return NotFoundError(
        Reason.TOPIC_NOT_FOUND,
        f"topic {topic!r} was deleted, or deleted and created again, during the read: read it "
        "again from its start",
        metadata={"topic": topic},
    )


def _check_partitions(topic: str, wanted: Collection[int], bounds: Bounds) -> None:
    faults = [
        Violation(
            f"query.partitions[{index}]",
            f"must be one of {topic}'s partitions, 0 to {max(bounds)}, not {partition}",
        )
        for index, partition in enumerate(wanted)
        if partition not in bounds
    ]
    if faults:
        raise InvalidArgumentError.listing(faults)
