"""Drover's services serve what a real Kafka Connect writes: compared field by field with its REST.

Drover starts before Kafka Connect and creates the topics, follows every record, and is restarted at
the end, after all records are written.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from drover.client import WriterGrant
from drover.errors import Reason
from drover.model.config import ConnectorEntry, RestartRequested, TargetState
from drover.model.ids import TaskId, Term
from drover.model.status import RunState, StatusSnapshot
from drover.testing import raises_reason
from tests.support.kafka.both_sides import (
    Shown,
    last_values,
    shown_by_drover,
    wait_until_same,
)
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic
from tests.support.kafka.connect import FILE_SINK, FILE_SOURCE, ConnectOptions, KafkaConnect
from tests.support.kafka.connect_rest import ConnectRestError
from tests.support.kafka.drover_services import (
    CONFIG_STORE,
    COORDINATOR,
    STATUS_STORE,
    DroverServices,
)
from tests.support.kafka.jars import KafkaJars, kafka_version
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e]

#: For features that are independent of transactions.
without_transactions = pytest.mark.parametrize(
    "sides", ["disabled"], ids=["plain"], indirect=True, scope="module"
)
#: For features that need transactions.
with_transactions = pytest.mark.parametrize(
    "sides", ["enabled"], ids=["exactly-once"], indirect=True, scope="module"
)


@dataclass
class SideBySide:
    """A Kafka Connect and Drover's services on the same topics."""

    bootstrap: str
    connect: KafkaConnect
    drover: DroverServices
    directory: Path
    #: Starts another worker of the same Kafka Connect cluster.
    start_worker: Callable[[], KafkaConnect]
    counts: Iterator[int] = field(default_factory=lambda: iter(range(1_000)))

    @property
    def exactly_once(self) -> bool:
        return self.connect.options.exactly_once_source == "enabled"

    def own(self, name: str) -> str:
        """A unique name: a sink's consumer group is derived from it, and the broker is shared."""
        return f"{name}.{'eos' if self.exactly_once else 'plain'}"

    def new_topic(self, *, partitions: int = 1) -> str:
        topic = f"{self.connect.options.group_id}-lines-{next(self.counts)}"
        create_topic(self.bootstrap, topic, partitions=partitions)
        return topic

    def source(self, name: str, topic: str, lines: str = "one\ntwo\n") -> dict[str, str]:
        file = self.directory / f"{next(self.counts)}-in.txt"
        file.write_text(lines)
        return {"connector.class": FILE_SOURCE, "file": str(file), "topic": topic, "name": name}

    def sink(self, name: str, topic: str) -> dict[str, str]:
        file = self.directory / f"{next(self.counts)}-out.txt"
        return {"connector.class": FILE_SINK, "file": str(file), "topics": topic, "name": name}

    def same(self, *names: str) -> Shown:
        return wait_until_same(self.connect.rest, self.drover, *names)

    def entry(self, name: str) -> ConnectorEntry:
        return self.drover.configs().connectors[name]

    def record(self, key: str) -> Any:
        """The last value of a key in the config topic."""
        return last_values(self.bootstrap, self.connect.options.config_topic)[key]


@pytest.fixture(scope="module", params=["disabled", "enabled"], ids=["plain", "exactly-once"])
def sides(
    request: pytest.FixtureRequest,
    kafka: Kafka,
    kafka_jars: KafkaJars,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SideBySide]:
    directory = tmp_path_factory.mktemp(f"exactly-once-{request.param}")
    named = ConnectOptions.named(f"read-{request.param}-{directory.parent.name}")
    options = replace(named, exactly_once_source=request.param)
    drover = DroverServices(kafka.bootstrap, options, directory / "drover")
    with ExitStack() as stack:
        stack.callback(drover.stop)
        drover.start()
        workers: list[KafkaConnect] = []

        def start_worker() -> KafkaConnect:
            folder = directory / f"connect-{len(workers)}"
            workers.append(KafkaConnect(kafka_jars, kafka.bootstrap, folder, options))
            stack.callback(workers[-1].stop)
            workers[-1].start()
            return workers[-1]

        yield SideBySide(kafka.bootstrap, start_worker(), drover, directory, start_worker)
        drover.assert_unharmed()


def test_a_source_and_a_sink_are_shown_as_they_run(sides: SideBySide) -> None:
    rest, topic = sides.connect.rest, sides.new_topic()
    names = "copy.source-1", sides.own("copy.sink-0")
    rest.create(names[0], sides.source(names[0], topic))
    rest.create(names[1], {**sides.sink(names[1], topic), "tasks.max": "2"})
    rest.wait_until_running(names[0])
    rest.wait_until_running(names[1], tasks=2)
    wait_until(lambda: rest.offsets(names[0]) and rest.offsets(names[1]))

    shown = sides.same(*names)

    assert shown[names[0]]["topics"] == shown[names[1]]["topics"] == [topic]
    file = rest.get(names[0])["config"]["file"]
    assert shown[names[0]]["offsets"] == [
        {"partition": {"filename": file}, "offset": {"position": 8}}
    ]
    sunk = sides.drover.offsets(names[1])
    assert [each.metadata for each in sunk] == [""]
    assert "kafka_offset" in str(sunk[0].offset_json)


def test_changed_configs_are_shown_with_the_tasks_that_they_make(sides: SideBySide) -> None:
    rest, name = sides.connect.rest, sides.own("changed")
    config = {**sides.sink(name, sides.new_topic()), "tasks.max": "3"}
    rest.create(name, config)
    rest.wait_until_running(name, tasks=3)
    sides.same(name)
    before = sides.entry(name)

    rest.put_config(name, {**config, "tasks.max": "1", "x.a-b": 'é"\\ü😀\n', "empty": ""})
    rest.wait_until_running(name, tasks=1)

    shown = sides.same(name)
    assert sides.entry(name).task_count == 1
    assert sides.entry(name).config_revision > before.config_revision
    assert shown[name]["config"]["x.a-b"] == 'é"\\ü😀\n'  # type: ignore[index]
    tasks = [key for key in sides.drover.statuses().statuses if isinstance(key, TaskId)]
    assert [key for key in tasks if key.connector == name] == [TaskId(name, 0)]


@without_transactions
def test_a_config_that_is_written_again_leaves_the_tasks_as_they_are(sides: SideBySide) -> None:
    rest, name = sides.connect.rest, sides.own("again")
    config = sides.sink(name, sides.new_topic())
    rest.create(name, config)
    rest.wait_until_running(name)
    sides.same(name)
    before = sides.entry(name)

    rest.put_config(name, config)
    wait_until(lambda: sides.entry(name).config_revision > before.config_revision)
    rest.wait_until_running(name)

    sides.same(name)
    after = sides.entry(name)
    assert after.task_config_generation == before.task_config_generation
    assert not after.inconsistent
    assert after.applied_config == after.config


def test_paused_stopped_and_resumed_connectors_are_shown_so(sides: SideBySide) -> None:
    rest, name = sides.connect.rest, "told-what-to-do"
    rest.create(name, sides.source(name, sides.new_topic()))
    rest.wait_until_running(name)
    sides.same(name)
    assert sides.entry(name).target_state is TargetState.STARTED

    rest.pause(name)
    rest.wait_until_state(name, "PAUSED", tasks=1)
    sides.same(name)
    assert sides.entry(name).target_state is TargetState.PAUSED

    rest.stop(name)
    rest.wait_until_state(name, "STOPPED", tasks=0)
    shown = sides.same(name)
    assert sides.entry(name).target_state is TargetState.STOPPED
    assert (shown[name]["task configs"], shown[name]["tasks"]) == ([], {})
    assert not sides.entry(name).inconsistent

    rest.resume(name)
    rest.wait_until_running(name)
    shown = sides.same(name)
    assert sides.entry(name).target_state is TargetState.STARTED
    assert len(shown[name]["task configs"]) == 1  # type: ignore[arg-type]


@without_transactions
@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_a_state_that_a_connector_is_created_with_is_shown(sides: SideBySide, state: str) -> None:
    rest, name = sides.connect.rest, f"created-{state}"
    rest.create(name, sides.source(name, sides.new_topic()), initial_state=state)
    rest.wait_until_state(name, state, tasks=0)

    sides.same(name)

    assert sides.entry(name).target_state is TargetState(state)
    assert sides.entry(name).task_count == -1, "no task configs were ever made"


@without_transactions
def test_restarts_are_told_to_watchers(sides: SideBySide) -> None:
    rest, name = sides.connect.rest, "restarted"
    rest.create(name, sides.source(name, sides.new_topic()))
    rest.wait_until_running(name)

    rest.restart(name)
    rest.wait_until_running(name)
    rest.restart(name, only_failed=True)

    def asked() -> list[RestartRequested]:
        entries = sides.drover.call(lambda clients: clients.configs.connector_history(name))
        return [each.change for each in entries if isinstance(each.change, RestartRequested)]

    wait_until(lambda: len(asked()) >= 2, describe=asked)
    assert asked() == [
        RestartRequested(name, only_failed=False, include_tasks=True),
        RestartRequested(name, only_failed=True, include_tasks=True),
    ]
    sides.same(name)


def test_a_failed_task_is_shown_with_its_trace(sides: SideBySide) -> None:
    rest, name = sides.connect.rest, sides.own("bad-1.x")
    config = {**sides.sink(name, sides.new_topic()), "file": "/nonexistent/folder/file"}
    rest.create(name, config)
    wait_until(lambda: _states(sides, name) == ["FAILED"], describe=sides.connect.log_end)

    shown = sides.same(name)

    state, worker_id, version, trace = shown[name]["tasks"][0]  # type: ignore[index]
    assert state == "FAILED"
    assert worker_id == sides.connect.rest.url.removeprefix("http://")
    assert version == kafka_version()
    assert "NoSuchFileException: /nonexistent/folder/file" in trace


def test_offsets_that_were_altered_and_reset_are_shown(sides: SideBySide) -> None:
    rest, name = sides.connect.rest, "altered"
    config = sides.source(name, sides.new_topic())
    partition = {"filename": config["file"]}
    rest.create(name, config)
    rest.wait_until_running(name)
    wait_until(lambda: rest.offsets(name))
    rest.stop(name)
    rest.wait_until_state(name, "STOPPED", tasks=0)

    rest.alter_offsets(name, [{"partition": partition, "offset": {"position": 4}}])

    shown = sides.same(name)
    assert shown[name]["offsets"] == [{"partition": partition, "offset": {"position": 4}}]

    rest.reset_offsets(name)
    assert sides.same(name)[name]["offsets"] == []


def test_a_deleted_connector_is_gone_and_its_offsets_stay(sides: SideBySide) -> None:
    rest, name = sides.connect.rest, "deleted-1"
    config = sides.source(name, sides.new_topic())
    rest.create(name, config)
    rest.wait_until_running(name)
    wait_until(lambda: rest.offsets(name))
    sides.same(name)

    rest.delete(name)

    wait_until(lambda: name not in _names(sides), describe=lambda: _names(sides))
    wait_until(lambda: not _known(sides.drover.statuses(), name))
    assert [each.offset_json for each in sides.drover.offsets(name)] == ['{"position":8}']

    rest.create(name, {**config, "tasks.max": "1"})
    rest.wait_until_running(name)
    shown = sides.same(name)
    assert shown[name]["config"]["tasks.max"] == "1"  # type: ignore[index]


@without_transactions
@pytest.mark.parametrize("name", ["a.b-0", "c-1-0", "ä é", "x:connector-y", "task-z-7"])
def test_every_name_that_connect_takes_is_shown(sides: SideBySide, name: str) -> None:
    rest = sides.connect.rest
    rest.create(name, sides.source(name, sides.new_topic()))
    rest.wait_until_running(name)
    wait_until(lambda: rest.offsets(name) and rest.topics(name))

    sides.same(name)


def test_the_session_key_and_the_levels_of_loggers_are_shown(sides: SideBySide) -> None:
    sides.connect.rest.set_logger("org.apache.kafka.connect.file", "DEBUG")

    levels = wait_until(lambda: sides.drover.configs().logger_levels)

    assert levels == {"org.apache.kafka.connect.file": "DEBUG"}
    held, written = sides.drover.configs().session_key, sides.record("session-key")
    assert held is not None
    assert held.algorithm == written["algorithm"]
    assert held.creation_ms == written["creation-timestamp"]
    assert len(held.key) == 32


def test_task_counts_are_shown_where_producers_were_fenced(sides: SideBySide) -> None:
    rest, name = sides.connect.rest, "counted"
    rest.create(name, sides.source(name, sides.new_topic()))
    rest.wait_until_running(name)
    sides.same(name)

    if sides.exactly_once:
        assert sides.record(f"tasks-fencing-{name}") == {"task-count": 1}
        assert sides.entry(name).fenced_task_count == 1
        assert not sides.entry(name).fencing_pending
    else:
        assert sides.entry(name).fenced_task_count is None


@without_transactions
def test_generations_are_those_of_the_records(sides: SideBySide) -> None:
    rest, name = sides.connect.rest, "counted-generations"
    rest.create(name, sides.source(name, sides.new_topic()))
    rest.wait_until_running(name)
    sides.same(name)

    written = last_values(sides.bootstrap, sides.connect.options.status_topic)
    statuses = sides.drover.statuses().statuses
    for key, record in ((name, f"connector-{name}"), (TaskId(name, 0), f"task-{name}-0")):
        assert statuses[key].generation == written[f"status-{record}"]["generation"]
        assert statuses[key].state is RunState.RUNNING


@without_transactions
def test_work_that_moves_to_another_worker_is_shown_there(sides: SideBySide) -> None:
    rest, name = sides.connect.rest, sides.own("spread")
    topic = sides.new_topic(partitions=2)
    rest.create(name, {**sides.sink(name, topic), "tasks.max": "2"})
    rest.wait_until_running(name, tasks=2)

    second = sides.start_worker()
    workers = {each.rest.url.removeprefix("http://") for each in (sides.connect, second)}
    wait_until(lambda: _workers(sides) == workers, timeout_s=60, describe=lambda: _workers(sides))
    sides.same(name)

    second.stop()
    wait_until(lambda: len(_workers(sides)) == 1, timeout_s=60, describe=lambda: _workers(sides))
    rest.wait_until_running(name, tasks=2)
    sides.same(name)


def test_services_that_are_started_later_show_the_same(sides: SideBySide) -> None:
    rest, name = sides.connect.rest, "shown-later"
    rest.create(name, sides.source(name, sides.new_topic()))
    rest.wait_until_running(name)
    wait_until(lambda: rest.offsets(name) and rest.topics(name))
    names = rest.names()
    shown = sides.same(*names)
    offsets = {each: sides.drover.offsets(each) for each in names}

    later = DroverServices(
        sides.bootstrap,
        sides.connect.options,
        sides.directory / "later",
        services=(CONFIG_STORE, STATUS_STORE),
    )
    try:
        later.start()
        configs, statuses = later.configs(), later.statuses()
        assert {
            each: shown_by_drover(configs, statuses, offsets[each], each) for each in names
        } == shown
        earlier = sides.drover.configs()
        assert configs == earlier
        assert statuses.statuses == sides.drover.statuses().statuses
        assert statuses.topics == sides.drover.statuses().topics
        later.assert_unharmed()
    finally:
        later.stop()

    sides.drover.restart(COORDINATOR)
    assert {each: sides.drover.offsets(each) for each in names} == offsets


@with_transactions
def test_leaders_of_both_kinds_fence_each_other(sides: SideBySide) -> None:
    """The last test: it leaves Kafka Connect's leader fenced."""
    connect, drover, name = sides.connect, sides.drover, "fenced"
    config = sides.source(name, sides.new_topic())
    connect.rest.create(name, config)
    connect.rest.wait_until_running(name)

    claim = _claim(drover, 1)
    _write(drover, claim, {**config, "by": "drover"})
    sides.same(name)

    # Kafka Connect's producer was fenced: it claims again, which fences Drover
    wait_until(lambda: _put(connect, {**config, "by": "connect"}), describe=connect.log_end)
    wait_until(lambda: "PrivilegedWriteException" in connect.process.log())
    with raises_reason(Reason.STALE_WRITER_EPOCH):
        _write(drover, claim, {**config, "by": "a former leader"})
    connect.rest.wait_until_running(name)
    assert sides.same(name)[name]["config"] == {**config, "by": "connect"}

    # Kafka Connect's leader also writes the task configs, which would fence an earlier claim of
    # Drover
    wait_until(lambda: _is_applied(drover, name, "connect"), describe=connect.log_end)
    _write(drover, _claim(drover, 2), {**config, "by": "drover again"})
    assert sides.same(name)[name]["config"] == {**config, "by": "drover again"}
    assert sides.record(f"connector-{name}") == {"properties": {**config, "by": "drover again"}}


def _names(sides: SideBySide) -> set[str]:
    entries = sides.drover.configs().connectors
    return {name for name, entry in entries.items() if entry.config is not None}


def _known(statuses: StatusSnapshot, name: str) -> list[object]:
    keys: list[Any] = [*statuses.statuses, *statuses.topics]
    return [key for key in keys if name in (key, getattr(key, "connector", None))]


def _states(sides: SideBySide, name: str) -> list[str]:
    try:
        return [task["state"] for task in sides.connect.rest.status(name)["tasks"]]
    except ConnectRestError:
        return []


def _workers(sides: SideBySide) -> set[str]:
    statuses = sides.drover.statuses().statuses.values()
    return {each.worker_id for each in statuses if each.state is RunState.RUNNING}


def _is_applied(drover: DroverServices, name: str, by: str) -> bool:
    """Whether the task configs come from that config, and the producers of the former tasks are
    fenced.
    """
    entry = drover.configs().connectors[name]
    return (entry.applied_config or {}).get("by") == by and not entry.fencing_pending


def _claim(drover: DroverServices, generation: int) -> WriterGrant:
    term = Term(generation, 0)
    return drover.call(lambda clients: clients.configs.claim_writer(owner="stand-in", term=term))


def _write(drover: DroverServices, claim: WriterGrant, config: dict[str, str]) -> None:
    drover.call(
        lambda clients: clients.configs.put_connector_config(
            name=config["name"], config=config, writer_epoch=claim.writer_epoch
        )
    )


def _put(connect: KafkaConnect, config: dict[str, str]) -> bool:
    """Update a config; False where the worker was just fenced and must claim the topic first."""
    try:
        connect.rest.put_config(config["name"], config)
    except ConnectRestError:
        return False
    return True
