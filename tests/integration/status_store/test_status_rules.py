"""The status store's guarantees, over real gRPC and on every kind of log."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from drover.errors import DroverError, InvalidArgumentError, Reason
from drover.log.kafka.log import KafkaLog
from drover.model.ids import TaskId
from drover.model.status import (
    RecordCounts,
    RunState,
    Status,
    StatusChange,
    StatusEvent,
    StatusKey,
    StatusWrite,
    TopicEvent,
    TopicKey,
    TopicStatus,
)
from drover.testing import raises_reason
from tests.support.status_place import StatusPlace, in_memory, in_shared_memory, on_kafka, on_sqlite

CONNECTOR, TASK = "flights.a-1:x", TaskId("flights.a-1:x", 0)
TOPIC = TopicKey(CONNECTOR, "lines.a-1_b")
WORKER, OTHER = "w:1", "other:1"
_numbers = count(1)


@pytest.fixture(
    params=["memory", "shared memory", "sqlite", pytest.param("kafka", marks=pytest.mark.kafka)]
)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StatusPlace]:
    opening: AbstractAsyncContextManager[StatusPlace]
    match request.param:
        case "memory":
            opening = in_memory()
        case "shared memory":
            opening = in_shared_memory()
        case "sqlite":
            opening = on_sqlite(tmp_path / "status.db")
        case _:
            bootstrap = request.getfixturevalue("kafka").bootstrap
            opening = on_kafka(bootstrap, request.getfixturevalue("topic_prefix"))
    async with opening as opened:
        yield opened


def status(
    state: RunState, key: StatusKey = CONNECTOR, *, worker: str = WORKER, generation: int = 0
) -> Status:
    return Status(key, state, worker, generation)


async def put(
    place: StatusPlace, *statuses: Status, safe: bool = False, number: int | None = None
) -> list[bool]:
    """Write as the first status's worker; returns whether each status was written."""
    number = next(_numbers) if number is None else number
    written = await place.client.put_statuses(
        [StatusWrite(each, safe) for each in statuses],
        writer=statuses[0].worker_id.replace(":", "-"),
        number=number,
    )
    return list(written.written)


async def get(place: StatusPlace, key: StatusKey = CONNECTOR) -> Status | None:
    return (await place.client.get_snapshot()).statuses.get(key)


async def topics(place: StatusPlace) -> list[TopicStatus]:
    return list((await place.client.get_snapshot()).topics.values())


async def changes(place: StatusPlace, start_offset: int, log_id: str = "") -> list[StatusChange]:
    """The changes of a watch from ``start_offset`` to the current end."""
    end_offset = (await place.client.get_snapshot()).end_offset
    found: list[StatusChange] = []
    async with aclosing(place.client.watch(start_offset, log_id)) as batches:
        async for batch in batches:
            found += batch.events
            if batch.end_offset >= end_offset:
                return found
    raise AssertionError("the watch ended early")


# statuses of connectors and tasks


@pytest.mark.parametrize("key", [CONNECTOR, TASK])
async def test_a_status_that_was_put_is_read_and_stays(place: StatusPlace, key: StatusKey) -> None:
    written = status(RunState.RUNNING, key)
    assert await put(place, written) == [True]
    assert await get(place, key) == written
    await place.restart()
    assert await get(place, key) == written


async def test_counts_and_figures_of_a_task_are_told_and_stay(place: StatusPlace) -> None:
    before = (await place.client.get_snapshot()).end_offset
    first = replace(
        status(RunState.RUNNING, TASK),
        counts=RecordCounts(9, 5, 2, 1, 1),
        figures={"slot_lag_bytes": 7, "behind_ms": 0},
    )
    later = replace(first, counts=RecordCounts(10, 6, 2, 1, 1))
    assert await put(place, first) == [True]
    assert await put(place, later, safe=True) == [True]
    told = [change.status for change in await changes(place, before)]
    assert told == [first, later]
    await place.restart()
    assert await get(place, TASK) == later


async def test_a_status_is_seen_when_it_is_durable_and_not_before(place: StatusPlace) -> None:
    before = (await place.client.get_snapshot()).end_offset
    place.log.hold()
    call = asyncio.create_task(put(place, status(RunState.RUNNING)))
    await place.log.held.wait()
    assert await get(place) is None
    place.log.release()
    assert await call == [True]
    assert await changes(place, before) == [
        StatusEvent(before, CONNECTOR, status(RunState.RUNNING))
    ]


async def test_a_put_that_is_not_answered_is_written_when_it_is_repeated(
    place: StatusPlace,
) -> None:
    await put(place, status(RunState.RUNNING))
    for written in (False, True):
        paused = status(RunState.PAUSED, generation=int(written))
        place.log.fail_next(written=written)
        number = next(_numbers)
        assert await put(place, paused, number=number) == [True]
        assert await get(place) == paused
        await place.restart()
        assert await get(place) == paused


async def test_what_another_program_writes_is_read(place: StatusPlace) -> None:
    value = b'{"state":"RUNNING","trace":null,"worker_id":"w:1","generation":0,"version":"4.3.1"}'
    await place.write_raw(
        (f"status-connector-{CONNECTOR}".encode(), value),
        (f"status-task-{TASK}".encode(), value.replace(b"RUNNING", b"PAUSED")),
    )
    snapshot = await place.client.get_snapshot()
    assert snapshot.statuses == {
        CONNECTOR: Status(CONNECTOR, RunState.RUNNING, WORKER, 0, version="4.3.1"),
        TASK: Status(TASK, RunState.PAUSED, WORKER, 0, version="4.3.1"),
    }


async def test_a_deleted_connector_takes_its_tasks_and_topics_along(place: StatusPlace) -> None:
    near = TaskId(f"{CONNECTOR}-0", 0)
    await put(place, status(RunState.RUNNING), status(RunState.RUNNING, TASK))
    await put(place, status(RunState.RUNNING, near))
    await place.client.put_topic_statuses(CONNECTOR, [TOPIC.topic], task=0)
    assert await put(place, status(RunState.DESTROYED)) == [True]
    for _ in range(2):
        snapshot = await place.client.get_snapshot()
        assert snapshot.statuses == {near: status(RunState.RUNNING, near)}
        assert snapshot.topics == {}
        await place.restart()


async def test_a_late_copy_of_a_request_sets_nothing_back(place: StatusPlace) -> None:
    await put(place, status(RunState.RUNNING, TASK), number=1)
    await put(place, status(RunState.FAILED, TASK), number=2)
    running = status(RunState.RUNNING, TASK, worker=OTHER, generation=1)
    await put(place, running, number=1)
    for _ in range(2):
        assert await put(place, status(RunState.RUNNING, TASK), number=1) == [False]
        assert await get(place, TASK) == running
        await place.restart()


# invalid records


async def test_records_that_cannot_be_read_are_told_with_their_place_and_ignored(
    place: StatusPlace,
) -> None:
    await put(place, status(RunState.RUNNING))
    value = b'{"state":"RUNNING","trace":null,"worker_id":"w:1","generation":0}'
    bad: list[tuple[bytes, bytes | None]] = [
        (b"", value),
        (b"\xff", value),
        # a process reports an unknown kind once, so use a new kind
        (f"{uuid.uuid4().hex}-kind".encode(), value),
        (b"status-connector-", value),
        (b"status-task-a", None),
        (b"status-task-a-99999999999", value),
        (b"status-topic-:connector-a", None),
        (b"status-topic-t", value),
        (b"status-topic-t:a", value),
        (f"status-connector-{CONNECTOR}".encode(), b"{"),
        (f"status-connector-{CONNECTOR}".encode(), b"null"),
        (f"status-connector-{CONNECTOR}".encode(), b"[1]"),
        (f"status-connector-{CONNECTOR}".encode(), b"\xff\xfe"),
        (f"status-connector-{CONNECTOR}".encode(), value.replace(b"RUNNING", b"DREAMING")),
        (f"status-connector-{CONNECTOR}".encode(), value.replace(b"0", b"true")),
        (f"status-connector-{CONNECTOR}".encode(), value.replace(b'"w:1"', b"7")),
        (f"status-topic-t:connector-{CONNECTOR}".encode(), value),
        (f"status-topic-t:connector-{CONNECTOR}".encode(), b'{"topic":{"name":"other"}}'),
    ]
    with capture_logs() as logs:
        await place.write_raw(*bad)
    told = [log for log in logs if "cannot be read" in log["event"]]
    assert len(told) == len(bad)
    assert all(isinstance(log["offset"], int) and log["why"] for log in told)
    assert ("topic" in told[0]) == isinstance(place.log.log, KafkaLog)
    if "topic" in told[0]:
        places = {(log["topic"], log["partition"], log["offset"]) for log in told}
        assert len(places) == len(bad)
    assert (await place.client.get_snapshot()).statuses == {CONNECTOR: status(RunState.RUNNING)}
    assert await put(place, status(RunState.PAUSED)) == [True]


# topics


async def test_a_topic_that_was_put_is_read_and_stays(place: StatusPlace) -> None:
    before = (await place.client.get_snapshot()).end_offset
    await place.client.put_topic_statuses(CONNECTOR, [TOPIC.topic], task=2, discovered_ms=1_234)
    found = TopicStatus(TOPIC, 2, 1_234)
    assert await topics(place) == [found]
    assert await changes(place, before) == [TopicEvent(before, TOPIC, found)]
    await place.restart()
    assert await topics(place) == [found]


async def test_a_topic_that_another_program_wrote_is_read_and_deleted(place: StatusPlace) -> None:
    key = f"status-topic-{TOPIC.topic}:connector-{CONNECTOR}".encode()
    value = (
        f'{{"topic":{{"name":"{TOPIC.topic}","connector":"{CONNECTOR}","task":0,'
        '"discoverTimestamp":1795305660680}}'
    )
    await place.write_raw((key, value.encode()))
    assert await topics(place) == [TopicStatus(TOPIC, 0, 1_795_305_660_680)]
    await place.write_raw((key, None))
    assert await topics(place) == []


async def test_topics_are_forgotten_together_and_can_come_again(place: StatusPlace) -> None:
    other = TopicKey(f"{CONNECTOR}-2", "t")
    await place.client.put_topic_statuses(CONNECTOR, ["t", TOPIC.topic], task=0)
    await place.client.put_topic_statuses(other.connector, ["t"], task=0, discovered_ms=5)
    for _ in range(2):
        await place.client.delete_topic_statuses(CONNECTOR)
        assert await topics(place) == [TopicStatus(other, 0, 5)]
        await place.restart()
    await place.client.put_topic_statuses(CONNECTOR, ["t"], task=0)
    assert len(await topics(place)) == 2


async def test_the_last_word_about_a_topic_counts(place: StatusPlace) -> None:
    for task, discovered_ms in ((0, 1), (1, 2)):
        await place.client.put_topic_statuses(
            CONNECTOR, [TOPIC.topic], task=task, discovered_ms=discovered_ms
        )
        assert await topics(place) == [TopicStatus(TOPIC, task, discovered_ms)]
    await place.client.put_topic_statuses(CONNECTOR, [TOPIC.topic], task=7)
    assert await topics(place) == [TopicStatus(TOPIC, 1, 2)]


async def test_topics_that_are_not_answered_are_written_when_they_are_repeated(
    place: StatusPlace,
) -> None:
    for written in (False, True):
        place.log.fail_next(written=written)
        discovered_ms = 1 + written
        await place.client.put_topic_statuses(
            CONNECTOR, [TOPIC.topic], task=0, discovered_ms=discovered_ms
        )
        assert await topics(place) == [TopicStatus(TOPIC, 0, discovered_ms)]


async def test_topics_that_can_never_be_are_refused_and_leave_nothing(place: StatusPlace) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await place.client.put_topic_statuses("", ["good", "", "a:b"], task=-1)
    assert [each.field for each in caught.value.violations] == [
        "connector",
        "topics[1]",
        "topics[2]",
        "task",
    ]
    with pytest.raises(InvalidArgumentError):
        await place.client.put_topic_statuses(CONNECTOR, [], task=0)
    with pytest.raises(InvalidArgumentError):
        await place.client.delete_topic_statuses("")
    assert await topics(place) == []


# flush and watch


async def test_a_flush_waits_for_what_came_before_it(place: StatusPlace) -> None:
    place.log.hold()
    write = asyncio.create_task(put(place, status(RunState.RUNNING)))
    await place.log.held.wait()
    flush = asyncio.create_task(place.client.flush())
    for _ in range(3):
        assert await get(place) is None  # a later read does not wait for the write
    assert not flush.done()
    place.log.release()
    await flush
    assert await get(place) == status(RunState.RUNNING)
    assert await write == [True]


async def test_an_offset_of_another_log_is_not_taken_for_one_of_this(place: StatusPlace) -> None:
    await put(place, status(RunState.RUNNING))
    snapshot = await place.client.get_snapshot()
    with raises_reason(Reason.REVISION_COMPACTED):
        await changes(place, 0, log_id="another")
    assert len(await changes(place, 0, log_id=snapshot.log_id)) == 1
    await place.restart()
    after = await place.client.get_snapshot()
    # on Kafka each process merges the partitions in its own order, with its own log id
    is_another = isinstance(place.log.log, KafkaLog)
    assert (after.log_id != snapshot.log_id) == is_another
    if is_another:
        with raises_reason(Reason.REVISION_COMPACTED):
            await changes(place, snapshot.end_offset, snapshot.log_id)
    else:
        assert len(await changes(place, 0, snapshot.log_id)) == 1


async def test_a_write_that_fails_says_so(place: StatusPlace) -> None:
    place.log.fail_next()
    with pytest.raises(DroverError) as caught:
        await place.client.put_statuses([StatusWrite(status(RunState.RUNNING))], timeout_s=0.05)
    assert caught.value.reason in (Reason.STORAGE_UNAVAILABLE, Reason.DEADLINE_EXCEEDED)
