"""Patches of settings and changes of offsets through any worker, over real services."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.dataplane.store import EmbeddedStore
from drover.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, Reason
from drover.model.ids import TaskId
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.model.secrets import MASK
from drover.model.sink_outputs import decode_mark
from drover.model.times import TIME_MAX_MS
from tests.support.fake_engine import SINK, SOURCE, FakeEngine
from tests.support.stored_topics import store_records
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster, tasks_are_there

TASK = TaskId("c", 0)
CONFIG = {"connector.class": SOURCE, "topic": "a", "db.login": "s3cret"}
FILE, OTHER_FILE = '{"filename":"/f"}', '{"filename":"/g"}'
PLACE = '{"kafka_topic":"t","kafka_partition":0}'


async def owner_of(
    cluster: WorkerCluster, workers: list[RunningWorker], name: str = "c"
) -> FakeEngine:
    """The engine that runs the connector's one task."""
    await cluster.running(name, 1, *workers)
    (owner,) = [each for each in workers if TaskId(name, 0) in each.tasks]
    return owner.engine


async def committed(engine: FakeEngine, partition: str, offset: str) -> str:
    """Commit as the task; returns the coordinator's error message, or an empty text."""
    call_id = engine.commit(TASK, partition, offset)
    await wait_until_async(lambda: call_id in engine.commit_results)
    return engine.commit_results[call_id].message


async def offsets_of(follower: ConnectClient, name: str = "c") -> dict[str, str]:
    return {
        each.partition_json: each.offset_json for each in await follower.get_connector_offsets(name)
    }


async def lags_of(follower: ConnectClient, name: str = "c") -> dict[str, tuple[int, int]]:
    return {
        each.partition_json: (each.end_offset, each.lag)
        for each in await follower.get_connector_offsets(name)
        if each.HasField("end_offset")
    }


def offset(partition_json: str, offset_json: str | None = None) -> pb.ConnectorOffset:
    return pb.ConnectorOffset(partition_json=partition_json, offset_json=offset_json)


async def test_a_patch_leaves_the_other_settings_and_secrets_as_they_are(
    cluster: WorkerCluster, workers: list[RunningWorker], follower: ConnectClient
) -> None:
    await follower.create_connector("c", CONFIG | {"padding": "3"})
    patched = await follower.patch_connector_config(
        "c", settings={"topic": "b", "tasks.max": "1"}, remove=["padding", "never.there"]
    )
    assert dict(patched.config) == {
        "name": "c",
        "connector.class": SOURCE,
        "topic": "b",
        "tasks.max": "1",
        "db.login": MASK,
    }

    async def restarted() -> bool:
        engine = await owner_of(cluster, workers)
        config = engine.started[TASK].connector_config
        return (config["topic"], config["db.login"]) == ("b", "s3cret")

    await wait_until_async(restarted)


async def test_a_patch_that_is_repeated_is_done_once(follower: ConnectClient) -> None:
    await follower.create_connector("c", CONFIG)
    await tasks_are_there(follower, "c")
    answers = [
        await follower.patch_connector_config("c", settings={"topic": "b"}, request_id="mine")
        for _ in range(2)
    ]
    assert answers[0] == answers[1]


async def test_patches_at_the_same_time_all_take_effect(follower: ConnectClient) -> None:
    await follower.create_connector("c", CONFIG)
    settings = {"topic": "b", "padding": "7", "tasks": "1", "restart.policy": "never"}
    await asyncio.gather(
        *(follower.patch_connector_config("c", settings={k: v}) for k, v in settings.items())
    )
    assert dict((await follower.get_connector("c")).config).items() >= settings.items()


async def test_a_faulty_patch_changes_nothing(follower: ConnectClient) -> None:
    before = await follower.create_connector("c", CONFIG)
    faulty: tuple[tuple[dict[str, str], list[str], list[str]], ...] = (
        ({}, [], ["set"]),
        ({"topic": "b", "padding": "1"}, ["padding", "topic"], ["remove[0]", "remove[1]"]),
        ({"tasks.max": "0", "unknown": "1"}, [], ['config["tasks.max"]', 'config["unknown"]']),
        ({"name": "d"}, [], ['config["name"]']),
        ({"db.login": MASK}, [], ['config["db.login"]']),
        ({}, ["connector.class"], ['config["connector.class"]']),
    )
    for settings, remove, fields in faulty:
        with pytest.raises(InvalidArgumentError) as caught:
            await follower.patch_connector_config("c", settings=settings, remove=remove)
        assert [each.field for each in caught.value.violations] == fields
    assert (await follower.get_connector("c")).revision == before.revision


async def test_offsets_of_a_stopped_connector_are_changed_and_taken_up_on_resume(
    cluster: WorkerCluster, workers: list[RunningWorker], follower: ConnectClient
) -> None:
    await follower.create_connector("c", CONFIG)
    engine = await owner_of(cluster, workers)
    assert not await committed(engine, FILE, '{"position":9}')
    assert not await committed(engine, OTHER_FILE, '{"position":9}')
    await follower.stop_connector("c")
    message = await follower.alter_connector_offsets(
        "c", [offset(FILE, '{ "position": 3 }'), offset(OTHER_FILE)]
    )
    assert "in external systems" in message
    assert await offsets_of(follower) == {FILE: '{ "position": 3 }'}
    leader = workers[0].engine
    assert leader is not None
    assert leader.altered_offsets == [
        [CommittedOffset(FILE, '{ "position": 3 }'), CommittedOffset(OTHER_FILE, None)]
    ]
    await follower.resume_connector("c")
    engine = await owner_of(cluster, workers)
    assert [each.offset_json for each in engine.started[TASK].offsets] == ['{ "position": 3 }']
    assert not await committed(engine, FILE, '{"position":4}')


async def test_a_reset_tells_the_plugin_what_goes_and_is_done_again_without_harm(
    cluster: WorkerCluster, workers: list[RunningWorker], follower: ConnectClient
) -> None:
    await follower.create_connector("c", CONFIG)
    engine = await owner_of(cluster, workers)
    await committed(engine, FILE, '{"position":9}')
    await follower.stop_connector("c")
    for _ in range(2):
        await follower.reset_connector_offsets("c")
    assert await offsets_of(follower) == {}
    leader = workers[0].engine
    assert leader is not None
    # a call is retried if its response is late: ignore repeated entries
    told = [offsets for offsets, _ in itertools.groupby(leader.altered_offsets)]
    assert told == [[CommittedOffset(FILE, None)], []]


async def test_a_sinks_offsets_are_written_as_its_tasks_write_them(
    cluster: WorkerCluster, workers: list[RunningWorker], follower: ConnectClient
) -> None:
    await follower.create_connector("c", {"connector.class": SINK, "topic": "t"})
    await committed(await owner_of(cluster, workers), PLACE, '{"kafka_offset":9}')
    await follower.stop_connector("c")
    texts = offset('{"kafka_partition":"0","kafka_topic":"t"}', '{"kafka_offset":"4"}')
    await follower.alter_connector_offsets("c", [texts])
    assert await offsets_of(follower) == {PLACE: '{"kafka_offset":4}'}
    with pytest.raises(InvalidArgumentError) as caught:
        await follower.alter_connector_offsets("c", [offset(FILE, "{}")])
    assert [each.field for each in caught.value.violations] == [
        "offsets[0].partition_json",
        "offsets[0].offset_json",
    ]


async def test_offsets_of_a_connector_that_runs_stay(
    cluster: WorkerCluster, workers: list[RunningWorker], follower: ConnectClient
) -> None:
    await follower.create_connector("c", CONFIG)
    engine = await owner_of(cluster, workers)
    await committed(engine, FILE, '{"position":9}')
    for call in (
        follower.alter_connector_offsets("c", [offset(FILE)]),
        follower.reset_connector_offsets("c"),
    ):
        with pytest.raises(FailedPreconditionError) as caught:
            await call
        assert caught.value.reason is Reason.CONNECTOR_NOT_STOPPED
        assert "drover connector stop c" in caught.value.message
    assert await offsets_of(follower) == {FILE: '{"position":9}'}
    assert not await committed(engine, FILE, '{"position":10}')


async def test_misshapen_offsets_are_told_with_every_fault(follower: ConnectClient) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await follower.alter_connector_offsets("c", [offset("7", "[]"), offset(FILE, "?")])
    assert [each.field for each in caught.value.violations] == [
        "offsets[0].partition_json",
        "offsets[0].offset_json",
        "offsets[1].offset_json",
    ]


async def test_what_the_plugin_refuses_stays_as_it_is(
    workers: list[RunningWorker], follower: ConnectClient
) -> None:
    await follower.create_connector("c", CONFIG)
    await follower.stop_connector("c")
    with pytest.raises(FailedPreconditionError) as caught:
        await follower.alter_connector_offsets("c", [offset('{"refuse":1}', "{}")])
    assert caught.value.reason is Reason.OFFSETS_REFUSED
    assert caught.value.message == "the plugin refuses"
    assert await offsets_of(follower) == {}


async def test_offsets_of_topics_are_shown_with_their_lag(
    cluster: WorkerCluster, workers: list[RunningWorker], follower: ConnectClient
) -> None:
    await follower.create_connector("c", {**CONFIG, "connector.class": SINK})
    owner = await owner_of(cluster, workers)
    asked = workers[1].engine
    assert asked is not None
    places = {PLACE: 7, PLACE.replace("0", "1"): 12, '{"kafka_topic":"no","kafka_partition":0}': 1}
    for place, position in places.items():
        assert not await committed(owner, place, f'{{"kafka_offset":{position}}}')
    asked.end_offsets = {("t", 0): 10, ("t", 1): 3}
    first, second, _ = places
    assert await lags_of(follower) == {first: (10, 3), second: (3, 0)}
    asked.end_offsets = None
    assert await lags_of(follower) == {}
    assert len(await offsets_of(follower)) == len(places)


async def test_a_sources_offsets_have_no_lag(
    cluster: WorkerCluster, workers: list[RunningWorker], follower: ConnectClient
) -> None:
    await follower.create_connector("c", CONFIG)
    owner = await owner_of(cluster, workers)
    assert not await committed(owner, FILE, '{"position":1}')
    assert await offsets_of(follower) == {FILE: '{"position":1}'}
    assert await lags_of(follower) == {}


@pytest.fixture
def store(tmp_path: Path, workers: list[RunningWorker]) -> EmbeddedStore:
    """The records of the cluster: t has three partitions, u has one."""
    assert workers
    store = EmbeddedStore(tmp_path / "data.db")
    for partition, times_ms in enumerate(([10, 20, 5, 40], [30, 1], [1, 2])):
        rows = [{"value": b"1", "timestamp_ms": each} for each in times_ms]
        store_records(store, "t", rows, partition=partition, partition_count=3)
    store_records(store, "u", [{"value": b"1", "timestamp_ms": 21}])
    return store


async def moves_of(follower: ConnectClient, time_ms: int, name: str = "c") -> list[tuple[Any, ...]]:
    """Topic, partition, committed and found offset, and whether it is the end."""
    return [
        (
            *json.loads(each.found.partition_json).values(),
            json.loads(each.committed_offset_json or "{}").get("kafka_offset"),
            json.loads(each.found.offset_json or "{}").get("kafka_offset"),
            each.is_end,
        )
        for each in await follower.find_connector_offsets(name, time_ms)
    ]


async def test_a_sink_is_moved_to_the_first_records_at_or_after_a_time(
    cluster: WorkerCluster,
    workers: list[RunningWorker],
    follower: ConnectClient,
    store: EmbeddedStore,
) -> None:
    settings = {"topics": "t, u, not-there", "errors.deadletterqueue.topic.name": "letters"}
    await follower.create_connector("c", {**CONFIG, "connector.class": SINK, **settings})
    owner = await owner_of(cluster, workers)
    for topic, partition, position in (
        ("t", 0, 4),
        ("t", 2, 2),
        ("gone", 0, 9),
        ("letters", 0, 1),
    ):
        place = f'{{"kafka_topic":"{topic}","kafka_partition":{partition}}}'
        assert not await committed(owner, place, f'{{"kafka_offset":{position}}}')
    store_records(store, "letters", [{"value": b"1", "timestamp_ms": 50}])
    # also while it runs: nothing is written
    assert await moves_of(follower, 20) == [
        ("gone", 0, 9, None, False),
        ("t", 0, 4, 1, False),
        ("t", 1, None, 0, False),
        ("t", 2, 2, 2, True),
        ("u", 0, None, 0, False),
    ]
    assert [each[3:] for each in await moves_of(follower, 0)] == [
        (None, False),
        *[(0, False)] * 4,
    ]
    assert [each[3:] for each in await moves_of(follower, TIME_MAX_MS)] == [
        (None, False),
        (4, True),
        (2, True),
        (2, True),
        (1, True),
    ]
    await follower.stop_connector("c")
    found = await follower.find_connector_offsets("c", 20)
    await follower.alter_connector_offsets(
        "c", [each.found for each in found if each.found.HasField("offset_json")]
    )
    assert [each[2:4] for each in await moves_of(follower, 20)] == [
        (9, None),
        (1, 1),
        (0, 0),
        (2, 2),
        (0, 0),
    ]


async def test_a_search_for_offsets_needs_a_time_and_a_sink(
    workers: list[RunningWorker], follower: ConnectClient
) -> None:
    await follower.create_connector("c", CONFIG)
    with pytest.raises(InvalidArgumentError) as caught:
        await follower.find_connector_offsets("c", 20)
    assert [each.field for each in caught.value.violations] == ["name"]
    assert "the offsets of a source have no times" in caught.value.message
    with pytest.raises(NotFoundError):
        await follower.find_connector_offsets("nobody", 20)
    faulty = {
        "must be set": pb.FindConnectorOffsetsRequest(name="c"),
        "must be a time from 1970 to 9999": pb.FindConnectorOffsetsRequest(
            name="c", start_time=Timestamp(seconds=-1)
        ),
    }
    for told, request in faulty.items():
        with pytest.raises(grpc.aio.AioRpcError, match=told):
            await workers[1].stub.FindConnectorOffsets(request, timeout=20)


async def test_offsets_behind_a_sinks_output_are_adopted(
    cluster: WorkerCluster, workers: list[RunningWorker], follower: ConnectClient
) -> None:
    await follower.create_connector("c", {"connector.class": SINK, "topic": "t"})
    engine = await owner_of(cluster, workers)
    assert not await committed(engine, PLACE, '{"kafka_offset":9}')
    second = PLACE.replace("0", "1")
    leader = workers[0].engine
    assert leader is not None
    leader.traced_offsets = [
        CommittedOffset(each, '{"kafka_offset":5}') for each in (PLACE, second)
    ]
    with pytest.raises(FailedPreconditionError) as caught:
        await follower.adopt_connector_offsets("c")
    assert caught.value.reason is Reason.CONNECTOR_NOT_STOPPED
    await follower.stop_connector("c")
    message = await follower.adopt_connector_offsets("c")
    assert message == "1 offset adopted from the output: t-1 at 5"
    assert await offsets_of(follower) == {
        PLACE: '{"kafka_offset":9}',
        second: '{"kafka_offset":5}',
    }
    assert [CommittedOffset(second, '{"kafka_offset":5}')] in leader.altered_offsets


async def test_what_the_output_does_not_show_is_not_adopted(
    workers: list[RunningWorker], follower: ConnectClient
) -> None:
    await follower.create_connector("c", {"connector.class": SINK, "topic": "t"})
    await follower.create_connector("d", CONFIG)
    for name in ("c", "d"):
        await follower.stop_connector(name)
    leader = workers[0].engine
    assert leader is not None
    with pytest.raises(FailedPreconditionError) as caught:
        await follower.adopt_connector_offsets("c")
    assert caught.value.reason is Reason.OFFSETS_REFUSED
    assert "there is nothing to adopt" in caught.value.message
    leader.traced_offsets = [CommittedOffset(PLACE, '{"kafka_offset":5}')]
    leader.untraced = [TopicPartition("t", 1)]
    with pytest.raises(FailedPreconditionError) as caught:
        await follower.adopt_connector_offsets("c")
    assert caught.value.reason is Reason.OFFSETS_LOST
    assert "does not show how far it was written from t-1; nothing was changed" in (
        caught.value.message
    )
    assert await offsets_of(follower) == {}
    with pytest.raises(FailedPreconditionError) as caught:
        await follower.adopt_connector_offsets("d")
    assert caught.value.reason is Reason.OFFSETS_REFUSED
    assert "only a sink's output can be adopted" in caught.value.message


async def test_after_a_reset_a_sink_begins_another_output(
    cluster: WorkerCluster, workers: list[RunningWorker], follower: ConnectClient
) -> None:
    await follower.create_connector("c", {"connector.class": SINK, "topic": "t", "topics": "t"})
    engine = await owner_of(cluster, workers)
    assert not await committed(engine, PLACE, '{"kafka_offset":9}')
    await follower.stop_connector("c")
    second = PLACE.replace("0", "1")
    leader = workers[0].engine
    assert leader is not None
    leader.traced_offsets = [CommittedOffset(second, '{"kafka_offset":5}')]
    await follower.reset_connector_offsets("c")
    assert await offsets_of(follower) == {}
    await follower.resume_connector("c")
    engine = await owner_of(cluster, workers)
    found = engine.started[TASK].offsets
    marks = {each.partition_json: decode_mark(each.metadata) for each in found}
    assert marks.keys() == {PLACE, second}
    assert {each.is_reset for each in marks.values()} == {True}
    assert all(each.output.output_id for each in marks.values())
