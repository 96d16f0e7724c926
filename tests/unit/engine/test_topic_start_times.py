"""Reads of topics from a time on: the first record at or after it, in the order of offsets."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from drover.api.common.v1 import topics_pb2
from drover.api.engine.v1 import engine_pb2
from drover.dataplane.compaction import Compactor
from drover.dataplane.embedded import DATA_FILE, EmbeddedPlane
from drover.dataplane.plane import PartitionKey
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import ReadPlan, RetentionResult
from drover.errors import NotFoundError, Reason
from drover.testing import ManualClock
from drover_worker.engine.topics import reads as topic_reads
from drover_worker.engine.topics.reads import read_topic
from tests.support.stored_topics import delete_topic, store_records


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def plane(tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedPlane]:
    plane = EmbeddedPlane(EmbeddedStore(tmp_path / DATA_FILE, clock=clock))
    yield plane
    plane.store.close()


def store(plane: EmbeddedPlane, times_ms: Sequence[int | None], **where: int) -> None:
    """A batch with a record of each time."""
    rows = [{"key": b"%d" % n, "value": b"1", "timestamp_ms": at} for n, at in enumerate(times_ms)]
    store_records(plane.store, "t", rows, **where)


def answers(plane: EmbeddedPlane, time_ms: int, **terms: Any) -> Iterator[engine_pb2.TopicRecords]:
    """The responses of a read, to its end."""
    query = topics_pb2.RecordQuery(topic="t", **terms)
    command = engine_pb2.ReadTopic(query=query, start_time_ms=time_ms)
    while True:
        found = read_topic(plane, command, {})
        yield found
        if found.at_end:
            return
        for field in ("positions", "search_positions"):
            command.ClearField(field)
        command.positions.extend(found.positions)
        command.search_positions.extend(found.search_positions)


def read(plane: EmbeddedPlane, time_ms: int, **terms: Any) -> list[tuple[int, int]]:
    """The partition and the offset of each record."""
    found = [each for answer in answers(plane, time_ms, **terms) for each in answer.records]
    return sorted((each.partition, each.offset) for each in found)


def offsets(plane: EmbeddedPlane, time_ms: int, **terms: Any) -> list[int]:
    return [offset for _, offset in read(plane, time_ms, **terms)]


@pytest.mark.parametrize(
    ("time_ms", "first"), [(0, 0), (10, 0), (11, 1), (20, 1), (21, 4), (39, 4), (40, 4), (41, 6)]
)
def test_a_read_starts_at_the_first_record_at_or_after_its_time(
    plane: EmbeddedPlane, time_ms: int, first: int
) -> None:
    store(plane, [10, 20, 5])
    store(plane, [20, 40, 1])
    assert offsets(plane, time_ms) == [*range(first, 6)]


@pytest.mark.parametrize("seed", range(4))
def test_every_time_has_the_start_that_a_complete_scan_finds(
    plane: EmbeddedPlane, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chosen = random.Random(seed)
    times_ms: list[list[int]] = [[], [], []]
    for _ in range(12):
        partition = chosen.randrange(3)
        batch = [chosen.randrange(30) for _ in range(chosen.randint(1, 4))]
        store(plane, batch, partition=partition, partition_count=3)
        times_ms[partition] += batch
    if seed % 2:
        monkeypatch.setattr(topic_reads, "_TIME_S", -1.0)
    for time_ms in range(0, 31, 3):
        expected = []
        for partition, found in enumerate(times_ms):
            late = [offset for offset, at in enumerate(found) if at >= time_ms]
            start = late[0] if late else len(found)
            expected += [(partition, offset) for offset in range(start, len(found))]
        assert read(plane, time_ms) == expected, time_ms


def test_later_records_with_an_older_timestamp_are_included(plane: EmbeddedPlane) -> None:
    store(plane, [1, 900, 2, 3, 950, 4])
    assert offsets(plane, 900) == [1, 2, 3, 4, 5]
    assert offsets(plane, 901) == [4, 5]


def test_each_partition_has_its_own_start(plane: EmbeddedPlane) -> None:
    store(plane, [10, 20, 30], partition=0, partition_count=4)
    store(plane, [25, 1], partition=1)
    store(plane, [1, 2], partition=2)
    assert read(plane, 20) == [(0, 1), (0, 2), (1, 0), (1, 1)]
    assert read(plane, 20, partitions=[1, 2]) == [(1, 0), (1, 1)]


def test_without_a_record_so_late_a_read_waits_at_the_end(plane: EmbeddedPlane) -> None:
    store(plane, [10, 20], partition=0, partition_count=2)
    (found,) = answers(plane, 1_000)
    assert not found.records
    assert [(each.partition, each.offset) for each in found.positions] == [(0, 2), (1, 0)]
    store(plane, [5], partition=0)
    query = topics_pb2.RecordQuery(topic="t")
    later = read_topic(plane, engine_pb2.ReadTopic(query=query, positions=found.positions), {})
    assert [(each.partition, each.offset) for each in later.records] == [(0, 2)]


@pytest.mark.parametrize("limit_s", [2.0, -1.0])
def test_the_starts_are_found_without_reading_records(
    plane: EmbeddedPlane, monkeypatch: pytest.MonkeyPatch, limit_s: float
) -> None:
    store(plane, [10, 20, 5], partition=0, partition_count=4)
    store(plane, [40, 41], partition=0)
    store(plane, [25, 1], partition=1)
    store(plane, [1, 2], partition=2)
    monkeypatch.setattr(topic_reads, "_TIME_S", limit_s)
    query = topics_pb2.RecordQuery(topic="t")
    command = engine_pb2.ReadTopic(query=query, start_time_ms=21, find_only=True)
    found = read_topic(plane, command, {})
    while found.search_positions:
        for field in ("positions", "search_positions"):
            command.ClearField(field)
        command.positions.extend(found.positions)
        command.search_positions.extend(found.search_positions)
        found = read_topic(plane, command, {})
    assert not found.records
    assert [each.offset for each in found.positions] == [3, 0, 2, 0]
    assert [each.offset for each in found.end_positions] == [5, 2, 2, 0]


def test_conditions_apply_from_the_start_on(plane: EmbeddedPlane) -> None:
    store(plane, [10, 20, 30, 5])
    assert offsets(plane, 20, conditions=["timestamp<1970-01-01T00:00:00.030Z"]) == [1, 3]


def test_a_record_without_a_timestamp_is_no_start(plane: EmbeddedPlane) -> None:
    store(plane, [None, None, 7, None])
    assert offsets(plane, 0) == [2, 3]


def test_a_long_search_is_divided_into_responses_with_the_same_result(
    plane: EmbeddedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        store(plane, [number * 10, number * 10 + 5], partition_count=2)
        store(plane, [number, 0], partition=1)
    monkeypatch.setattr(topic_reads, "_TIME_S", -1.0)
    found = [*answers(plane, 45)]
    searching = [*itertools.takewhile(lambda each: each.search_positions, found)]
    # a batch is read in each
    assert len(searching) > 6
    assert not any(each.records or each.at_end for each in searching)
    assert all(each.topic_id for answer in searching for each in answer.search_positions)
    places = [(each.partition, each.offset) for answer in found for each in answer.records]
    assert places == [(0, 9), (0, 10), (0, 11)]


def test_retention_during_a_search_removes_what_it_would_skip(
    plane: EmbeddedPlane, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        clock.advance(10)
        store(plane, [number * 10, number * 10 + 5])
    whole = plane.read_times
    removed: list[RetentionResult] = []

    def removing(plan: ReadPlan) -> Iterator[Any]:
        for batch in whole(plan):
            yield batch
            if not removed:
                removed.append(plane.store.apply_retention(retention_ms=15))

    monkeypatch.setattr(plane, "read_times", removing)
    assert offsets(plane, 35) == [7]
    assert removed[0].record_count


def test_a_compacted_topic_has_gaps_before_its_start(plane: EmbeddedPlane) -> None:
    plane.store.ensure_topic("t", settings={"cleanup.policy": "compact"})
    for number in range(3):
        store(plane, [number * 10, number * 10 + 5])
    compactor = Compactor(plane.store, "test", lambda _: False)
    while compactor.run().record_count:
        pass
    assert offsets(plane, 0) == [4, 5]
    assert offsets(plane, 21) == [5]


def test_a_topic_that_is_created_again_during_a_search_ends_it(
    plane: EmbeddedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        store(plane, [1, 2])
    monkeypatch.setattr(topic_reads, "_TIME_S", -1.0)
    steps = answers(plane, 100)
    assert next(steps).search_positions
    delete_topic(plane.store, "t")
    store(plane, [200] * 6)
    with pytest.raises(NotFoundError, match="deleted and created again") as told:
        next(steps)
    assert told.value.reason is Reason.TOPIC_NOT_FOUND


def test_an_index_by_time_shortens_the_search_and_does_not_decide(
    plane: EmbeddedPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers count markers and records of aborted transactions as well."""
    store(plane, [10, 20, 30], partition=0, partition_count=2)
    store(plane, [10, 20], partition=1)

    def index(
        starts: Mapping[PartitionKey, int], time_ms: int
    ) -> Mapping[PartitionKey, int | None]:
        assert (starts, time_ms) == ({("t", 0): 0, ("t", 1): 0}, 25)
        return {("t", 0): 1, ("t", 1): None}

    monkeypatch.setattr(plane, "offsets_for_time", index)
    assert read(plane, 25) == [(0, 2)]


def test_keys_and_values_are_not_read_by_a_search(plane: EmbeddedPlane) -> None:
    store(plane, [1, 2, 3])
    plan = plane.plan_read({("t", 0): 1}, max_records=10, max_bytes=1_000)
    (batch,) = plane.read_times(plan)
    assert batch.schema.names == ["offset", "timestamp"]
    assert batch.column("offset").to_pylist() == [1, 2]
