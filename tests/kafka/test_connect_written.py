"""A real Kafka Connect serves and runs what Drover's services write.

The services write everything before Kafka Connect is started for the first time on their topics,
with the same group id; then both run side by side.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, ConfigResource

from drover.model.config import TargetState
from drover.model.ids import TaskId, Term
from drover.model.status import RecordCounts, RunState, Status, StatusWrite
from tests.support.kafka.both_sides import last_values, wait_until_same
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import CALL_TIMEOUT_S, QUIET, create_topic, produce, read_all
from tests.support.kafka.connect import FILE_SINK, FILE_SOURCE, ConnectOptions, KafkaConnect
from tests.support.kafka.drover_member import DroverMember
from tests.support.kafka.drover_services import Clients, DroverServices, control_topic
from tests.support.kafka.jars import KafkaJars
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e]

_TASKS = {
    FILE_SOURCE: "org.apache.kafka.connect.file.FileStreamSourceTask",
    FILE_SINK: "org.apache.kafka.connect.file.FileStreamSinkTask",
}
SOURCE = "src.drover-1"
PAUSED, STOPPED, DELETED = "paused-1", "stopped-1", "deleted-1"
_KEY = bytes(range(32))


@dataclass
class Written:
    """Drover's services with a written cluster; Kafka Connect starts on request."""

    bootstrap: str
    options: ConnectOptions
    drover: DroverServices
    connect: KafkaConnect
    directory: Path

    @property
    def sink(self) -> str:
        """A unique name: the sink's consumer group is derived from it, and the broker is shared."""
        return f"{self.options.group_id}.sink-1"

    @property
    def lines(self) -> str:
        return f"{self.options.group_id}-lines"

    @property
    def records(self) -> str:
        """The sink's topic."""
        return f"{self.options.group_id}-records"

    def config(self, name: str) -> dict[str, str]:
        return {
            "connector.class": FILE_SOURCE,
            "file": str(self.directory / f"{name}.txt"),
            "topic": self.lines,
            "name": name,
        }

    def sink_config(self) -> dict[str, str]:
        return {
            "connector.class": FILE_SINK,
            "file": str(self.directory / "out.txt"),
            "topics": self.records,
            "name": self.sink,
        }

    def values(self) -> list[bytes | None]:
        return [record.value for record in read_all(self.bootstrap, self.lines)]

    async def write(self, clients: Clients) -> None:
        """Write the records of a leader and its workers during the life of a few connectors."""
        claim = await clients.configs.claim_writer(owner="stand-in", term=Term(1, 0))
        epoch = claim.writer_epoch
        await clients.configs.put_session_key(key=_KEY, algorithm="HmacSHA256", writer_epoch=epoch)
        for name in (SOURCE, PAUSED, STOPPED, DELETED):
            await clients.configs.put_connector_config(
                name=name,
                config=self.config(name),
                writer_epoch=epoch,
                initial_state=TargetState.STOPPED if name == STOPPED else None,
            )
        await clients.configs.put_connector_config(
            name=self.sink, config=self.sink_config(), writer_epoch=epoch
        )
        for config in (self.config(SOURCE), self.config(PAUSED), self.sink_config()):
            await clients.configs.put_task_configs(
                connector=config["name"], task_configs=[_task(config)], writer_epoch=epoch
            )
        await clients.configs.put_target_state(name=PAUSED, target_state=TargetState.PAUSED)
        await clients.configs.put_task_count(name=SOURCE, task_count=1, writer_epoch=epoch)
        await clients.configs.delete_connector(name=DELETED, writer_epoch=epoch)
        await clients.statuses.put_topic_statuses(SOURCE, [self.lines], task=0, discovered_ms=1234)
        await clients.statuses.put_statuses(
            [
                StatusWrite(Status(key, RunState.RUNNING, "drover:1", 1))
                for key in (SOURCE, TaskId(SOURCE, 0))
            ]
            + [StatusWrite(Status(STOPPED, RunState.STOPPED, "drover:1", 1))]
            + [StatusWrite(Status(TaskId(PAUSED, 0), RunState.FAILED, "drover:1", 1, "a\n\tträce"))]
        )
        await self.commit(clients)

    async def commit(self, clients: Clients) -> None:
        member = DroverMember(clients.coordinator, self.options.group_id)
        await member.join()
        source, sink = TaskId(SOURCE, 0), TaskId(self.sink, 0)
        claims = {
            each: await member.claim(each, task_config_generation=1) for each in (source, sink)
        }
        place = {"filename": self.config(SOURCE)["file"]}
        await member.commit(source, claims[source], [(place, {"position": 4})])
        await member.commit(source, claims[source], [(place, {"position": 8})])
        partition = {"kafka_topic": self.records, "kafka_partition": 0}
        await member.commit(
            sink, claims[sink], [(partition, {"kafka_offset": 2})], metadata="drover's own"
        )


def _task(config: Mapping[str, str]) -> dict[str, str]:
    return {**config, "task.class": _TASKS[config["connector.class"]]}


@pytest.fixture(scope="module", params=["disabled", "enabled"], ids=["plain", "exactly-once"])
def written(
    request: pytest.FixtureRequest,
    kafka: Kafka,
    kafka_jars: KafkaJars,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Written]:
    """Everything is written; Kafka Connect is not started."""
    directory = tmp_path_factory.mktemp(f"exactly-once-{request.param}")
    named = ConnectOptions.named(f"written-{request.param}-{directory.parent.name}")
    options = replace(named, exactly_once_source=request.param)
    drover = DroverServices(kafka.bootstrap, options, directory / "drover")
    connect = KafkaConnect(kafka_jars, kafka.bootstrap, directory / "connect", options)
    made = Written(kafka.bootstrap, options, drover, connect, directory)
    create_topic(kafka.bootstrap, made.lines)
    create_topic(kafka.bootstrap, made.records)
    produce(kafka.bootstrap, made.records, [(None, line) for line in (b"one", b"two", b"three")])
    for name in (SOURCE, PAUSED, STOPPED, DELETED):
        (directory / f"{name}.txt").write_text("one\ntwo\nthree\n")
    with ExitStack() as stack:
        stack.callback(drover.stop)
        drover.start()
        drover.call(made.write)
        stack.callback(connect.stop)
        yield made
        drover.assert_unharmed()


@pytest.fixture(scope="module")
def running(written: Written) -> Written:
    """Kafka Connect runs the written connectors."""
    written.connect.start()
    written.connect.rest.wait_until_running(SOURCE)
    written.connect.rest.wait_until_running(written.sink)
    return written


def test_topics_are_made_as_kafka_connect_makes_them(written: Written) -> None:
    admin, options = AdminClient({"bootstrap.servers": written.bootstrap, **QUIET}), written.options
    names = (
        options.config_topic,
        options.offset_topic,
        options.status_topic,
        control_topic(options),
    )
    topics = admin.list_topics(timeout=CALL_TIMEOUT_S).topics

    assert [len(topics[name].partitions) for name in names[:3]] == [
        1,
        options.offset_partitions,
        options.status_partitions,
    ]
    asked = admin.describe_configs([ConfigResource("topic", name) for name in names])
    for each in asked.values():
        assert each.result(CALL_TIMEOUT_S)["cleanup.policy"].value == "compact"


def test_sink_offsets_are_those_of_the_connectors_consumer_group(written: Written) -> None:
    group = f"connect-{written.sink}"
    admin = AdminClient({"bootstrap.servers": written.bootstrap, **QUIET})

    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    seen = asked[group].result(CALL_TIMEOUT_S).topic_partitions

    assert [(each.topic, each.partition, each.offset) for each in seen] == [(written.records, 0, 2)]
    (held,) = written.drover.offsets(written.sink)
    assert held.offset_json == '{"kafka_offset":2}'
    assert held.metadata == "drover's own"


def test_offsets_are_written_as_kafka_connect_looks_for_them(written: Written) -> None:
    file = written.config(SOURCE)["file"]
    records = read_all(written.bootstrap, written.options.offset_topic)
    assert [(record.key, record.value) for record in records] == [
        (f'["{SOURCE}",{{"filename":"{file}"}}]'.encode(), b'{"position":4}'),
        (f'["{SOURCE}",{{"filename":"{file}"}}]'.encode(), b'{"position":8}'),
    ]


def test_connectors_are_shown_as_they_were_written(running: Written) -> None:
    rest = running.connect.rest

    assert rest.names() == sorted([SOURCE, running.sink, PAUSED, STOPPED])
    wait_until_same(rest, running.drover, SOURCE, running.sink, PAUSED, STOPPED)
    for name in (SOURCE, PAUSED, STOPPED):
        assert rest.get(name)["config"] == running.config(name)
    assert rest.get(running.sink)["config"] == running.sink_config()
    for config in (running.config(SOURCE), running.config(PAUSED), running.sink_config()):
        assert rest.task_configs(config["name"]) == [_task(config)]


def test_task_configs_are_taken_as_they_are(running: Written) -> None:
    """Kafka Connect would rewrite task configs that differ from those of its connector."""
    records = read_all(running.bootstrap, running.options.config_topic)
    keys = [record.key for record in records]
    for name in (SOURCE, running.sink, PAUSED):
        assert keys.count(f"task-{name}-0".encode()) == 1, keys
        assert keys.count(f"commit-{name}".encode()) == 1, keys


def test_lines_flow_on_from_the_committed_position(running: Written) -> None:
    wait_until(lambda: running.values(), describe=running.connect.log_end)
    assert running.values() == [b"three"], "the position behind the second line was committed"

    with Path(running.config(SOURCE)["file"]).open("a") as file:
        file.write("four\n")

    wait_until(lambda: len(running.values()) > 1, describe=running.connect.log_end)
    assert running.values() == [b"three", b"four"]
    position = [{"partition": {"filename": file.name}, "offset": {"position": 19}}]
    wait_until(lambda: running.connect.rest.offsets(SOURCE) == position)
    wait_until_same(running.connect.rest, running.drover, SOURCE)


def test_a_sink_goes_on_at_the_committed_offset(running: Written) -> None:
    out = Path(running.sink_config()["file"])
    wait_until(
        lambda: out.exists() and out.read_bytes().endswith(b"\n"),
        describe=running.connect.log_end,
    )
    assert out.read_bytes() == b"three\n"
    wait_until_same(running.connect.rest, running.drover, running.sink)


def test_what_was_paused_or_stopped_stays_so(running: Written) -> None:
    rest = running.connect.rest
    rest.wait_until_state(PAUSED, "PAUSED", tasks=1)
    rest.wait_until_state(STOPPED, "STOPPED", tasks=0)
    assert rest.offsets(PAUSED) == []
    assert rest.offsets(STOPPED) == []


def test_a_status_with_counts_is_shown(running: Written) -> None:
    rest, drover = running.connect.rest, running.drover
    task = TaskId(STOPPED, 7)
    failed = Status(task, RunState.FAILED, "drover:1", 1, "boom", counts=RecordCounts(5, 3, 1, 1))

    def write(status: Status) -> None:
        drover.call(lambda clients: clients.statuses.put_statuses([StatusWrite(status)]))

    write(failed)
    wait_until(lambda: len(rest.status(STOPPED)["tasks"]) == 1, describe=running.connect.log_end)
    (shown,) = rest.status(STOPPED)["tasks"]
    assert shown["id"] == 7
    assert (shown["state"], shown["worker_id"], shown["trace"]) == ("FAILED", "drover:1", "boom")
    write(replace(failed, state=RunState.DESTROYED))
    wait_until(lambda: rest.status(STOPPED)["tasks"] == [], describe=running.connect.log_end)


def test_topics_session_key_and_task_counts_are_taken_over(running: Written) -> None:
    assert running.connect.rest.topics(SOURCE) == [running.lines]
    kept = last_values(running.bootstrap, running.options.config_topic)
    key = running.drover.configs().session_key
    assert key is not None
    assert key.key == _KEY, "a key that has not expired is kept"
    assert kept[f"tasks-fencing-{SOURCE}"] == {"task-count": 1}


def test_target_states_that_drover_writes_are_obeyed_at_once(running: Written) -> None:
    rest, drover = running.connect.rest, running.drover

    async def stop(clients: Clients) -> None:
        """Stop as leaders do: first write an empty task set."""
        claim = await clients.configs.claim_writer(owner="stand-in", term=Term(2, 0))
        await clients.configs.put_task_configs(
            connector=SOURCE, task_configs=[], writer_epoch=claim.writer_epoch
        )
        await clients.configs.put_target_state(name=SOURCE, target_state=TargetState.STOPPED)

    def tell(state: TargetState) -> None:
        drover.call(
            lambda clients: clients.configs.put_target_state(name=SOURCE, target_state=state)
        )

    tell(TargetState.PAUSED)
    rest.wait_until_state(SOURCE, "PAUSED", tasks=1)
    drover.call(stop)
    rest.wait_until_state(SOURCE, "STOPPED", tasks=0)
    tell(TargetState.STARTED)
    rest.wait_until_running(SOURCE)
    wait_until_same(rest, drover, SOURCE)
