"""Tasks of a real engine on a real broker: the data flow, and kills of its processes."""

import hashlib
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from drover.api.engine.v1 import engine_pb2
from drover.connectors.aliases import FILE_STREAM_SINK, FILE_STREAM_SOURCE
from drover.dataplane.kafka.plane import KafkaPlane
from drover.dataplane.kafka.reading import KafkaRangeReader
from drover.errors import UnavailableError
from drover.log.storage import KafkaStorage
from drover.model.ids import TaskId
from drover.model.offsets import CommittedOffset
from drover_worker.engine.settings import EngineLimits
from tests.spark.engine.harness import CALL_TIMEOUT_S, Harness, connector_config
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic, produce, read_all
from tests.support.waiting import wait_until, wait_until_async

pytestmark = [pytest.mark.spark, pytest.mark.asyncio(loop_scope="module")]

LINES_IN_A_PART = 20_000


class Flow:
    """A copy from a file through a Kafka topic to a file."""

    def __init__(self, engine: Harness, bootstrap: str, directory: Path, name: str) -> None:
        self.engine = engine
        self.topic = f"{name}lines"
        self.storage = KafkaStorage(bootstrap_servers=bootstrap, group_id="flows")
        self.source, self.target = directory / "in.txt", directory / "out.txt"
        self._names = {"source": f"{name}source", "sink": f"{name}sink"}
        self._numbers = itertools.count()

    def name(self, kind: str) -> str:
        return self._names[kind]

    def grow(self, count: int = LINES_IN_A_PART) -> None:
        """Append unique lines."""
        with self.source.open("ab") as file:
            file.writelines(b"line %d\n" % next(self._numbers) for _ in range(count))

    async def start(self, kind: str, **more: Any) -> engine_pb2.EngineReport:
        return await self.engine.start_task(self._names[kind], **self.config(kind), **more)

    async def start_both(self) -> None:
        """Start the source and the sink."""
        for kind in self._names:
            assert (await self.start(kind)).HasField("done")

    def config(self, kind: str) -> dict[str, Any]:
        if kind == "source":
            return {"plugin": FILE_STREAM_SOURCE, "file": str(self.source), "topic": self.topic}
        return {"plugin": FILE_STREAM_SINK, "file": str(self.target), "topics": self.topic}

    async def stop(self) -> None:
        for name in self._names.values():
            await self.engine.stop_task(name)

    def records(self) -> list[bytes]:
        """The topic's records; retried while brokers are slow or restarting."""
        found: list[list[bytes]] = []

        def is_read() -> bool:
            with suppress(UnavailableError):
                found.append(self._read())
            return bool(found)

        wait_until(is_read, timeout_s=CALL_TIMEOUT_S)
        return found[-1]

    def _read(self) -> list[bytes]:
        plane = KafkaPlane(self.storage)
        count = plane.partition_counts([self.topic]).get(self.topic, 0)
        starts = {(self.topic, partition): 0 for partition in range(count)}
        plan = plane.plan_read(starts, max_records=10**9, max_bytes=10**9)
        reader = KafkaRangeReader(self.storage, (tuple(plan.ranges),))
        return [value for batch in reader(0) for value in batch.column("value").to_pylist()]

    async def wait_until_equal(self) -> None:
        await wait_until_async(
            lambda: _sha256(self.target) == _sha256(self.source),
            timeout_s=CALL_TIMEOUT_S,
            describe=lambda: (
                self.target.exists() and self.target.stat().st_size,
                self.source.stat().st_size,
                self.failures(),
            ),
        )

    async def wait_until_last(self, line: bytes) -> None:
        await wait_until_async(
            lambda: self.lines()[-1:] == [line], timeout_s=CALL_TIMEOUT_S, describe=self.failures
        )

    async def wait_until_settled(self) -> int:
        """Wait until the whole file is committed and written; returns the number of duplicate
        lines.
        """
        size = self.source.stat().st_size
        await wait_until_async(
            lambda: (
                self.offset("source").get("position") == size and self.lines() == self.records()
            ),
            timeout_s=CALL_TIMEOUT_S,
            describe=lambda: (len(self.lines()), self.offset("source"), size, self.failures()),
        )
        wanted, found = self.source.read_bytes().splitlines(), self.lines()
        assert list(dict.fromkeys(found)) == wanted, "every line, in order where it first comes"
        return len(found) - len(wanted)

    def lines(self) -> list[bytes]:
        """The lines of the target."""
        return self.target.read_bytes().splitlines() if self.target.exists() else []

    def offset(self, kind: str) -> Mapping[str, Any]:
        committed = self.engine.store.fetch_offsets(self._names[kind])
        return json.loads(committed[0].offset_json or "{}") if committed else {}

    def tells_its_topic(self, kind: str) -> bool:
        """Whether the progress of a task names this topic and no other."""
        entries = [e for report in self.engine.reports for e in report.task_progress.entries]
        found = [each for each in entries if each.task.connector == self._names[kind]]
        return {topic for each in found for topic in each.topics} == {self.topic}

    def failures(self) -> list[str]:
        names = self._names.values()
        return [
            report.task_failed.trace
            for name in names
            for report in self.engine.reports_of("task_failed", name)
        ]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    storage = KafkaStorage(bootstrap_servers=kafka.bootstrap, group_id="engine")
    limits = EngineLimits(start_ms=60_000, stop_ms=60_000, poll_ms=60_000, progress_ms=50)
    harness = Harness(tmp_path_factory.mktemp("engine"), storage=storage, limits=limits)
    await harness.start()
    yield harness
    await harness.close()
    assert [each.requested for each in harness.exits] == [True], "it lived through all of them"


@pytest.fixture
def flow(engine: Harness, kafka: Kafka, tmp_path: Path, topic_prefix: str) -> Flow:
    return Flow(engine, kafka.bootstrap, tmp_path, topic_prefix)


async def test_a_growing_file_arrives_byte_for_byte(flow: Flow) -> None:
    assert (await flow.start("sink")).HasField("done"), "it waits for its topic"
    assert (await flow.start("source")).HasField("done")
    for _ in range(3):
        flow.grow()
        await flow.wait_until_equal()
    await wait_until_async(lambda: flow.offset("source").get("position"))
    await flow.stop()
    offset = flow.offset("source")
    assert offset["position"] == flow.source.stat().st_size
    assert len(flow.records()) == 3 * LINES_IN_A_PART
    assert flow.failures() == []


async def test_several_partitions_lose_and_double_nothing(flow: Flow, kafka: Kafka) -> None:
    create_topic(kafka.bootstrap, flow.topic, partitions=3)
    flow.grow()
    await flow.start("source", partitioner_keyless="spread")
    await flow.start("sink")
    await wait_until_async(
        lambda: flow.target.exists() and flow.target.stat().st_size >= flow.source.stat().st_size,
        timeout_s=CALL_TIMEOUT_S,
        describe=flow.failures,
    )
    for kind in ("source", "sink"):
        await wait_until_async(partial(flow.tells_its_topic, kind))
    await flow.stop()
    wanted, found = (path.read_bytes().splitlines() for path in (flow.source, flow.target))
    assert sorted(found) == sorted(wanted)
    partitions = [(flow.topic, number) for number in range(3)]
    ends = await flow.engine.end_offsets(*partitions, (flow.topic, 3), (f"{flow.topic}-no", 0))
    assert sorted(ends) == partitions
    assert sum(ends.values()) >= len(wanted)  # transaction markers count


async def test_offsets_of_kafka_connect_are_gone_on_from(flow: Flow, kafka: Kafka) -> None:
    flow.source.write_bytes(b"read\nbefore\nand after\n")
    flow.target.write_bytes(b"read\nbefore\n")
    create_topic(kafka.bootstrap, flow.topic)
    produce(kafka.bootstrap, flow.topic, [(None, b"read"), (None, b"before")])
    _commit(
        flow,
        "source",
        CommittedOffset(json.dumps({"filename": str(flow.source)}), '{"position":12}'),
    )
    _commit(
        flow,
        "sink",
        CommittedOffset(
            json.dumps({"kafka_partition": 0, "kafka_topic": flow.topic}), '{"kafka_offset":2}'
        ),
    )
    await flow.start("sink")
    await flow.start("source", batch_size="10")
    await flow.wait_until_equal()
    await flow.stop()
    assert flow.records() == [b"read", b"before", b"and after"]


def _commit(flow: Flow, kind: str, offset: CommittedOffset) -> None:
    task = TaskId(flow.name(kind), 0)
    flow.engine.store.publish(task, flow.engine.claim(task), [], [offset])


async def test_a_zombie_commits_nothing_and_what_it_wrote_comes_again(flow: Flow) -> None:
    flow.grow(1_000)
    flow.engine.coordinator_there = False
    await flow.start("source")
    await wait_until_async(lambda: flow.engine.waiting_commit_count, timeout_s=CALL_TIMEOUT_S)
    flow.engine.claim(TaskId(flow.name("source"), 0))
    flow.engine.coordinator_returns()
    await flow.engine.wait_for_report("task_fenced", flow.name("source"))
    assert flow.offset("source") == {}
    assert (await flow.start("source")).HasField("done")
    await flow.start("sink")
    assert await flow.wait_until_settled() == 1_000, "at least once: all of its batch"
    await flow.stop()


async def test_a_source_is_not_polled_again_before_its_offsets_are_committed(flow: Flow) -> None:
    flow.grow(10)
    flow.engine.coordinator_there = False
    await flow.start("source")
    await wait_until_async(lambda: flow.engine.waiting_commit_count, timeout_s=CALL_TIMEOUT_S)
    flow.grow(10)
    other = Flow(flow.engine, flow.storage.bootstrap_servers, flow.source.parent, "beside-")
    await other.start("sink")  # a task that starts proves that the engine scheduled other tasks
    await other.stop()
    assert len(flow.records()) == 10
    assert flow.engine.waiting_commit_count == 1
    flow.engine.coordinator_returns()
    await wait_until_async(lambda: len(flow.records()) == 20, timeout_s=CALL_TIMEOUT_S)
    await flow.stop()


async def test_lines_cross_a_topic_as_json_and_what_is_no_json_is_a_letter_that_is_replayed_once(
    flow: Flow, kafka: Kafka
) -> None:
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    flow.grow(100)
    await flow.start("source", value_converter=json_converter)
    await wait_until_async(
        lambda: len(flow.records()) == 100, timeout_s=CALL_TIMEOUT_S, describe=flow.failures
    )
    assert json.loads(flow.records()[0]) == {
        "schema": {"type": "string", "optional": True},
        "payload": "line 0",
    }
    produce(kafka.bootstrap, flow.topic, [(b"k", b"{broken")])
    dead = Flow(flow.engine, kafka.bootstrap, flow.source.parent, f"{flow.topic}-dead-")
    tolerant = {
        "errors_tolerance": "all",
        "errors_deadletterqueue_topic_name": dead.topic,
        "errors_deadletterqueue_topic_replication_factor": "1",
        "errors_deadletterqueue_context_headers_enable": "true",
    }
    await flow.start("sink", value_converter=json_converter, **tolerant)
    await flow.wait_until_equal()
    await wait_until_async(
        lambda: dead.records() == [b"{broken"], timeout_s=CALL_TIMEOUT_S, describe=flow.failures
    )
    await flow.stop()
    for last in (b"after the letter", b"after no letter"):
        await flow.start(
            "sink",
            value_converter="StringConverter",
            errors_deadletterqueue_replay="0:0-1",
            **tolerant,
        )
        produce(kafka.bootstrap, flow.topic, [(b"k", last)])
        await flow.wait_until_last(last)
        await flow.stop()
    assert flow.lines()[100:] == [b"{broken", b"after the letter", b"after no letter"]
    assert flow.failures() == []
    # lines are only added; in a copy of the topic the later records of the key would be lost
    copy = {"plugin": "KafkaSink", "target_cluster_bootstrap_servers": kafka.bootstrap}
    config = connector_config(flow.name("sink"), topics=flow.topic, **copy, **tolerant)
    command = engine_pb2.CheckDeadLetters(config=config, ranges="0:0-1", skip_newer=True)
    checked = (await flow.engine.call(check_dead_letters=command)).checked_dead_letters
    (skipped,) = checked.skipped_letters
    assert (checked.ranges, skipped.newer) == ("", True)
    assert "has the same key and is newer" in skipped.message


async def test_a_letter_of_a_source_goes_into_its_topic_once(flow: Flow, kafka: Kafka) -> None:
    flow.source.write_bytes(b"1\nno number\n2\n")
    dead = Flow(flow.engine, kafka.bootstrap, flow.source.parent, f"{flow.topic}-dead-")
    tolerant = {
        "value_converter": "StringConverter",
        "errors_tolerance": "all",
        "errors_deadletterqueue_topic_name": dead.topic,
        "errors_deadletterqueue_topic_replication_factor": "1",
        "errors_deadletterqueue_context_headers_enable": "true",
    }
    cast = {
        "transforms": "cast",
        "transforms_cast_type": "Cast$Value",
        "transforms_cast_spec": "int32",
    }
    await flow.start("source", **tolerant, **cast)
    await wait_until_async(
        lambda: (flow.records(), dead.records()) == ([b"1", b"2"], [b"no number"]),
        timeout_s=CALL_TIMEOUT_S,
        describe=lambda: (flow.records(), dead.records(), flow.failures()),
    )
    await flow.stop()
    wanted = [b"1", b"2", b"no number"]
    for last in (b"3", b"4"):
        with flow.source.open("ab") as file:
            file.write(last + b"\n")
        wanted.append(last)
        await flow.start("source", errors_deadletterqueue_replay="0:0-1", **tolerant)
        await wait_until_async(
            lambda: flow.records() == wanted,
            timeout_s=CALL_TIMEOUT_S,
            describe=lambda: (flow.records(), flow.failures()),
        )
        await flow.stop()
    assert flow.failures() == []


def dead_letters(kafka: Kafka, flow: Flow, **more: str) -> tuple[str, dict[str, str]]:
    """A topic with a limit of 100,000 bytes for dead letters, and the settings for it."""
    topic = f"{flow.topic}-dead"
    create_topic(kafka.bootstrap, topic, config={"max.message.bytes": "100000"})
    return topic, {
        "errors_tolerance": "all",
        "errors_deadletterqueue_topic_name": topic,
        "errors_deadletterqueue_topic_replication_factor": "1",
        **more,
    }


@pytest.mark.parametrize("context", ["true", "false"])
async def test_a_line_over_the_limit_becomes_a_shortened_letter(
    flow: Flow, kafka: Kafka, context: str
) -> None:
    topic, tolerant = dead_letters(
        kafka, flow, errors_deadletterqueue_context_headers_enable=context
    )
    size = 1_200_000
    if context == "false":  # the limit of the line's own topic
        create_topic(kafka.bootstrap, flow.topic, config={"max.message.bytes": "200000"})
        size = 300_000
    flow.source.write_bytes(b"small1\n" + b"x" * size + b"\nsmall2\n")
    await flow.start("source", value_converter="StringConverter", **tolerant)
    await wait_until_async(
        lambda: flow.records() == [b"small1", b"small2"],
        timeout_s=CALL_TIMEOUT_S,
        describe=lambda: (flow.records(), flow.failures()),
    )
    await flow.stop()
    (letter,) = read_all(kafka.bootstrap, topic)
    value, headers = letter.value, dict(letter.headers)
    assert value is not None
    assert 98_000 < len(value) < 100_000
    assert set(value) == {ord("x")}
    assert headers["__connect.errors.value.original.bytes"] == b"%d" % size
    assert ("__connect.errors.exception.message" in headers) is (context == "true")
    assert flow.failures() == []


async def test_a_bad_record_near_the_limit_stops_no_sink(flow: Flow, kafka: Kafka) -> None:
    topic, tolerant = dead_letters(
        kafka, flow, errors_deadletterqueue_context_headers_enable="true"
    )
    create_topic(kafka.bootstrap, flow.topic)
    bad = b"{" + b"y" * 750_000  # fits its own topic
    produce(kafka.bootstrap, flow.topic, [(b"k", b"0"), (b"k" * 200_000, bad), (b"k", b"2")])
    await flow.start(
        "sink",
        value_converter="JsonConverter",
        value_converter_schemas_enable="false",
        **tolerant,
    )
    await flow.wait_until_last(b"2")
    await flow.stop()
    assert flow.lines() == [b"0", b"2"]
    (letter,) = read_all(kafka.bootstrap, topic)
    headers = dict(letter.headers)
    assert letter.value == b""
    assert headers["__connect.errors.value.original.bytes"] == b"750001"
    assert headers["__connect.errors.key.original.bytes"] == b"200000"
    assert headers["__connect.errors.offset"] == b"1"
    assert flow.failures() == []


async def test_a_sink_starts_where_its_config_says(flow: Flow, kafka: Kafka) -> None:
    create_topic(kafka.bootstrap, flow.topic)
    produce(kafka.bootstrap, flow.topic, [(b"k", b"old%d" % each) for each in range(10)])
    latest = {"consumer_override_auto_offset_reset": "latest"}
    await flow.start("sink", **latest)
    await wait_until_async(
        lambda: flow.offset("sink") != {}, timeout_s=CALL_TIMEOUT_S, describe=flow.failures
    )
    await flow.stop()
    # the start was committed, so a restart chooses no later one
    produce(kafka.bootstrap, flow.topic, [(b"k", b"new0")])
    await flow.start("sink", **latest)
    await flow.wait_until_last(b"new0")
    await flow.stop()
    assert flow.lines() == [b"new0"]
    assert flow.failures() == []


async def test_a_topic_that_the_cluster_keeps_itself_in_is_refused(flow: Flow) -> None:
    flow.topic = flow.storage.topics.config
    flow.grow(1)
    for kind in ("source", "sink"):
        await flow.start(kind)
    await wait_until_async(lambda: len(flow.failures()) == 2, timeout_s=CALL_TIMEOUT_S)
    for failure in flow.failures():
        assert f"the topic {flow.topic} is internal to the cluster" in failure


# -- deaths ----------------------------------------------------------------------------------


@pytest.mark.faults("engine")
@pytest.mark.timeout(900)  # it starts two engines and a broker
async def test_deaths_of_broker_and_engine_lose_no_line(
    mortal_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    storage = KafkaStorage(bootstrap_servers=mortal_broker.bootstrap, group_id="engine")
    engine = Harness(tmp_path, storage=storage)
    flow = Flow(engine, mortal_broker.bootstrap, tmp_path, topic_prefix)
    try:
        await engine.start()
        await flow.start("sink")
        await flow.start("source")
        flow.grow()
        await flow.wait_until_equal()
        flow.grow()
        mortal_broker.kill()
        flow.grow()
        mortal_broker.start()
        await flow.wait_until_settled()
        assert flow.failures() == []
        # with a pending commit: records are written whose offsets are not committed
        engine.coordinator_there = False
        flow.grow()
        await wait_until_async(lambda: engine.waiting_commit_count, timeout_s=CALL_TIMEOUT_S)
        _kill_tree(engine)
        await wait_until_async(lambda: engine.exits, timeout_s=CALL_TIMEOUT_S)
        engine.forget_commits()
        await engine.supervisor.wait_ready()
        await flow.start("sink")
        await flow.start("source")
        flow.grow()
        assert await flow.wait_until_settled() >= LINES_IN_A_PART
        assert flow.failures() == []
    finally:
        await engine.close()


def _kill_tree(engine: Harness) -> None:
    guard = engine.supervisor.process_id
    assert guard is not None
    os.killpg(guard, signal.SIGKILL)
