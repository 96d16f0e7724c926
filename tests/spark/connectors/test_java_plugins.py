"""Kafka Connect's Java plugins as tasks of the real engine, in a JVM beside it."""

import json
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from drover.connector import ConnectorContext, TopicPartition
from drover.connector.connector import Connector
from drover.connector.settings import parse_config
from drover.connectors.java.connectors import connector_of
from drover.connectors.java.tasks import JavaTaskError
from drover.errors import Reason, UnavailableError
from drover.java_plugins.catalogue import JavaClass, Kind
from drover.java_plugins.host import CALL_LIMIT, HOSTS, Hosts, JavaHostError, Plugins
from drover.testing import SinkKit, SourceKit, TaskFailedError
from drover_worker.engine.preview import PreviewRefusedError
from tests.support import compiled_plugins
from tests.support.compiled_plugins import java_host
from tests.support.java_plugins import (
    FILE_SINK,
    FILE_SOURCE,
    STRING_CONVERTER,
    compiled_plugin,
    file_plugin,
    java_connector,
    noted_owners,
)
from tests.support.kafka.jars import find_jars
from tests.support.kafka.missing import KafkaMissingError
from tests.support.previews import previewed
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

MakeSink = Callable[..., SinkKit]
MakeSource = Callable[..., SourceKit]
LINES, NUMBERS = TopicPartition("lines", 0), TopicPartition("numbers", 0)


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    java_host()
    try:
        file_plugin()
    except KafkaMissingError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CALL_LIMIT[0], "600000")  # the first call of a JVM on a busy machine is slow
        yield
    HOSTS.stop()


@pytest.fixture
def file_source() -> type[Connector]:
    return java_connector(FILE_SOURCE, file_plugin(), Kind.SOURCE)


@pytest.fixture
def file_sink() -> type[Connector]:
    return java_connector(FILE_SINK, file_plugin(), Kind.SINK)


def text(**settings: Any) -> dict[str, Any]:
    return {"key.converter": STRING_CONVERTER, "value.converter": STRING_CONVERTER, **settings}


def test_a_java_source_copies_a_file_and_goes_on_after_a_restart(
    source_kit: MakeSource, file_source: type[Connector], tmp_path: Path
) -> None:
    file = tmp_path / "in"
    file.write_text("".join(f"line {n}\n" for n in range(30_000)))
    kit = source_kit(file_source, **text(file=file, topic="lines"))
    kit.run(until=lambda: len(kit.records("lines")) >= 30_000)
    kit.stop()
    with file.open("a") as stream:
        stream.write("last\n")
    kit.run(until=lambda: len(kit.records("lines")) >= 30_001)
    found = kit.records("lines")
    assert [each.value for each in found] == [
        *(f"line {n}".encode() for n in range(30_000)),
        b"last",
    ]
    assert kit.committed == [({"filename": str(file)}, {"position": file.stat().st_size})]


def test_records_of_a_java_source_are_json_with_schemas_by_default(
    source_kit: MakeSource, file_source: type[Connector], tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("one\n")
    kit = source_kit(file_source, file=tmp_path / "in", topic="lines")
    kit.run(until=lambda: len(kit.records("lines")) >= 1)
    (record,) = kit.records("lines")
    assert json.loads(record.value or b"")["payload"] == "one"


def test_a_java_source_is_previewed_in_a_jvm_of_the_preview_if_its_config_permits_it(
    source_kit: MakeSource,
    file_source: type[Connector],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "in").write_text("one\ntwo\nthree\n")
    config = text(file=tmp_path / "in", topic="lines")
    running = source_kit(file_source, **config)
    running.run(until=lambda: len(running.records("lines")) >= 3)
    refused = source_kit(file_source, **config)
    with pytest.raises(PreviewRefusedError, match=r"FileStreamSourceConnector .*java.preview=true"):
        previewed(refused)
    kit = source_kit(file_source, {"java.preview": "true"}, **config)
    owners = noted_owners(monkeypatch)
    found = previewed(kit, rows=2)
    assert [[each.value for each in row.records] for row in found.rows] == [
        ['"one"', '"one"'],
        ['"two"', '"two"'],
    ]
    assert not kit.committed
    assert set(owners) == {f"preview of {kit.config['name']}"}


def test_a_java_sink_gets_records_in_order_and_commits(
    sink_kit: MakeSink, file_sink: type[Connector], tmp_path: Path
) -> None:
    kit = sink_kit(file_sink, topics="lines", **text(file=tmp_path / "out"))
    kit.feed([f"line {n}" for n in range(2_000)], topic="lines")
    kit.run(batches=1)
    assert (tmp_path / "out").read_text() == "".join(f"line {n}\n" for n in range(2_000))
    assert kit.committed == {LINES: 2_000}
    kit.stop()
    kit.feed(["last"], topic="lines")
    kit.run(batches=1)
    assert (tmp_path / "out").read_text().endswith("line 1999\nlast\n")


def test_the_end_of_a_jvm_fails_its_tasks_with_its_reason_and_the_next_start_has_another(
    source_kit: MakeSource, file_source: type[Connector], tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("one\n")
    kit = source_kit(file_source, **text(file=tmp_path / "in", topic="lines"))
    kit.run(until=lambda: len(kit.records("lines")) >= 1)
    os.kill(kit.task._host.process_id, signal.SIGKILL)
    with pytest.raises(TaskFailedError, match="was killed by signal 9"):
        kit.run(until=lambda: False)
    with (tmp_path / "in").open("a") as stream:
        stream.write("two\n")
    kit.run(until=lambda: len(kit.records("lines")) >= 2)
    assert [each.value for each in kit.records("lines")] == [b"one", b"two"]


def test_a_jvm_ends_when_no_task_uses_it_any_more() -> None:
    hosts = Hosts(linger_s=0.1)
    plugins = Plugins((file_plugin(),), "connect-file")
    first, second = hosts.use(plugins), hosts.use(plugins)
    assert first.host is second.host
    own = hosts.use(plugins, "task-0")
    assert own.host is not first.host
    own.release()
    assert not own.host.is_running
    first.release()
    first.release()
    again = hosts.use(plugins)
    second.release()
    assert again.host is first.host
    assert again.host.is_running
    again.release()
    wait_until(lambda: not again.host.is_running)


def test_a_jvm_has_no_data_limit_of_the_engine() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    hosts = Hosts()
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (1 << 32, before[1]))
        lease = hosts.use(Plugins((file_plugin(),), "connect-file"))
        limits = resource.prlimit(lease.host.process_id, resource.RLIMIT_DATA)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
        hosts.stop()
    assert limits == (before[1], before[1])


def test_a_jvm_without_memory_for_its_heap_is_reported_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DROVER_JAVA_HEAP_MIB", "999999999")
    reason = r"plugin connect-file ended at its start, because .* lower DROVER_JAVA_HEAP_MIB"
    with pytest.raises(JavaHostError, match=reason):
        Hosts().use(Plugins((file_plugin(),), "connect-file"))


def test_a_plugin_that_fails_to_start_is_named_with_its_phase(
    sink_kit: MakeSink, file_sink: type[Connector], tmp_path: Path
) -> None:
    kit = sink_kit(file_sink, topics="lines", **text(file=tmp_path / "no" / "out"))
    kit.feed(["x"], topic="lines")
    with pytest.raises(
        Exception, match=r"start\(\) of .*FileStreamSinkConnector.*failed"
    ) as caught:
        kit.run(batches=1)
    assert isinstance(caught.value, JavaTaskError | TaskFailedError)


@pytest.fixture(scope="module")
def behaviours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    code = (Path(compiled_plugins.__file__).parent / "java_sources" / "Behaviours.java").read_text()
    return compiled_plugin(tmp_path_factory.mktemp("behaviours"), {"org.acme.Behaviours": code})


@pytest.fixture
def numbers(behaviours: Path) -> type[Connector]:
    return java_connector("org.acme.Behaviours$Source", behaviours, Kind.SOURCE)


@pytest.fixture
def keeper(behaviours: Path) -> type[Connector]:
    return java_connector("org.acme.Behaviours$Sink", behaviours, Kind.SINK)


def lines(trace: Path, start: str) -> list[str]:
    return [each for each in trace.read_text().splitlines() if each.startswith(start)]


def test_a_java_source_is_told_of_each_stored_record_and_keeps_keys_and_tombstones(
    source_kit: MakeSource, numbers: type[Connector], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    kit = source_kit(numbers, **text(mode="", trace=trace))
    kit.run(until=lambda: len(kit.records("numbers")) >= 100)
    kit.run(until=lambda: len(lines(trace, "ack")) >= 100)
    kit.stop()
    found = kit.records("numbers")
    assert [each.key for each in found] == [f"k{n}".encode() for n in range(100)]
    assert [each.value for each in found][8:10] == [b"v8", None]
    assert lines(trace, "ack") == [f"ack k{n} numbers-0@{n}" for n in range(100)]
    assert lines(trace, "commit")
    kit.run(until=lambda: len(lines(trace, "start")) == 2)
    assert lines(trace, "start") == ["start 0", "start 100"]


def test_a_java_connector_reads_the_committed_offsets_of_its_tasks(
    numbers: type[Connector], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    committed = [({"n": 1}, {"next": 10})]

    def offsets() -> list[Any]:
        if not committed:
            raise UnavailableError(Reason.STORAGE_UNAVAILABLE, "no coordinator")
        return committed

    texts = {"mode": "read offsets", "trace": str(trace), "connector.class": "x"}
    connector = numbers()
    connector.start(ConnectorContext("x", config_texts=texts, offsets=offsets), {})
    try:
        committed[:] = [({"n": 1}, {"next": 20})]
        connector.task_configs(1)
        committed.clear()
        with pytest.raises(JavaTaskError, match="cannot be read: no coordinator"):
            connector.task_configs(1)
    finally:
        connector.stop()
    assert trace.read_text().splitlines() == [
        "start {next=10}",
        "task configs {next=20}",
        "connector stop",
    ]


def test_bad_records_of_a_java_source_become_dead_letters(
    source_kit: MakeSource, file_source: type[Connector], tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("1\nx\n3\n")
    config = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "letters",
        "errors.deadletterqueue.context.headers.enable": "true",
        "transforms": "cast",
        "transforms.cast.type": "java:org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.cast.spec": "int32",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    kit = source_kit(file_source, config, file=tmp_path / "in", topic="lines")
    kit.run(until=lambda: len(kit.records("lines")) >= 2)
    with (tmp_path / "in").open("a") as stream:
        stream.write("y\n")  # a poll in which no record is good
    kit.run(until=lambda: len(kit.records("letters")) >= 2)
    assert [each.value for each in kit.records("lines")] == [b"1", b"3"]
    letters = kit.records("letters")
    assert [each.value for each in letters] == [b'"x"', b'"y"']
    headers = dict(letters[0].headers)
    assert (headers["__connect.errors.origin"] or b"").endswith(b' offset {"position":4}')
    reason = b"TRANSFORMATION in org.apache.kafka.connect.transforms.Cast$Value"
    assert reason in (headers["__connect.errors.exception.message"] or b"")
    kit.run(until=lambda: kit.committed[0][1] == {"position": 8})


def test_the_offsets_of_records_that_cannot_be_converted_are_committed_with_their_dead_letters(
    source_kit: MakeSource, file_source: type[Connector], tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("one\ntwo\n")
    config = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "letters",
        "value.converter": "java:org.apache.kafka.connect.converters.IntegerConverter",
    }
    kit = source_kit(file_source, config, file=tmp_path / "in", topic="lines")
    kit.run(until=lambda: bool(kit.committed))
    assert kit.committed == [({"filename": str(tmp_path / "in")}, {"position": 8})]
    assert [each.value for each in kit.records("letters")] == [b'"one"', b'"two"']
    assert kit.records("lines") == []


def test_dead_letters_of_a_java_source_are_not_replayed_without_its_steps(
    file_source: type[Connector],
) -> None:
    config = {
        "name": "x",
        "connector.class": "x",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "letters",
        "errors.deadletterqueue.replay": '{"id": "r", "ranges": {"0": "0:1"}}',
        "topic": "lines",
    }
    found = parse_config(file_source, config)
    assert any("run in the plugin's JVM" in each.description for each in found.violations)


@pytest.mark.parametrize(
    ("mode", "offset", "puts"),
    [
        ("", 10, range(10)),
        ("lower", 8, range(10)),
        ("foreign", 10, range(10)),
        ("request", 10, range(10)),
        ("retry", 10, range(10)),
        ("rewind", 10, [*range(5), *range(2, 10)]),
    ],
)
def test_the_offsets_that_a_java_sink_returns_are_committed(
    sink_kit: MakeSink,
    keeper: type[Connector],
    tmp_path: Path,
    mode: str,
    offset: int,
    puts: Sequence[int],
) -> None:
    trace = tmp_path / "trace"
    kit = sink_kit(keeper, topics="numbers", **text(mode=mode, trace=trace))
    kit.feed([f"v{n}" for n in range(10)], topic="numbers")
    kit.run(until=lambda: kit.committed == {NUMBERS: offset})
    assert [int(each.split()[1]) for each in lines(trace, "put")] == list(puts)
    assert lines(trace, "open") == ["open [numbers-0]"]
    assert len(lines(trace, "retry")) == (2 if mode == "retry" else 0)


@pytest.mark.parametrize("transform", ["Filter", "java:org.apache.kafka.connect.transforms.Filter"])
@pytest.mark.parametrize("predicate", ["", "RecordIsTombstone"])
def test_a_java_sink_goes_on_behind_records_that_a_transform_drops(
    sink_kit: MakeSink, keeper: type[Connector], tmp_path: Path, transform: str, predicate: str
) -> None:
    config = {"topics": "numbers", "transforms": "drop", "transforms.drop.type": transform}
    if predicate:
        config |= {
            "transforms.drop.predicate": "p",
            "predicates": "p",
            "predicates.p.type": f"org.apache.kafka.connect.transforms.predicates.{predicate}",
        }
    trace = tmp_path / "trace"
    kit = sink_kit(keeper, config, **text(mode="", trace=trace))
    kit.feed(["a", None, None], topic="numbers")
    kit.run(until=lambda: kit.committed == {NUMBERS: 3})
    assert len(lines(trace, "put")) == (1 if predicate else 0)


def test_a_java_sink_opens_all_its_partitions_before_its_first_records(
    sink_kit: MakeSink, keeper: type[Connector], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    kit = sink_kit(keeper, topics="numbers", **text(mode="note empty puts", trace=trace))
    kit.feed(["a"], topic="numbers", partition=1, partition_count=3)
    kit.run(until=lambda: kit.committed == {TopicPartition("numbers", 1): 1})
    assert trace.read_text().splitlines()[:2] == [
        "start",
        "open [numbers-0, numbers-1, numbers-2]",
    ]


@pytest.mark.parametrize("mode", ["never", "null"])
def test_a_java_sink_that_commits_nothing_gets_its_records_again(
    sink_kit: MakeSink, keeper: type[Connector], tmp_path: Path, mode: str
) -> None:
    trace = tmp_path / "trace"
    kit = sink_kit(keeper, topics="numbers", **text(mode=mode, trace=trace))
    kit.feed([f"v{n}" for n in range(10)], topic="numbers")
    kit.run(until=lambda: len(lines(trace, "put")) >= 10)
    kit.stop()
    assert not kit.committed
    kit.run(until=lambda: len(lines(trace, "put")) >= 20)


def test_errant_records_become_dead_letters_with_the_reason_of_the_plugin(
    sink_kit: MakeSink, keeper: type[Connector], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    config = {
        "topics": "numbers",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "letters",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    kit = sink_kit(keeper, config, **text(mode="errant", trace=trace))
    kit.feed([f"v{n}" for n in range(10)], topic="numbers")
    kit.run(until=lambda: kit.committed == {NUMBERS: 10})
    assert [each.value for each in kit.records("letters")] == [b"v0", b"v3", b"v6", b"v9"]
    assert b"bad number" in str(kit.records("letters")[0].headers).encode()
    assert len(lines(trace, "put")) == 6


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("fail in put", r"put\(\) of org.acme.Behaviours\$Sink .*no luck in put"),
        ("exit in put", "ended with exit code 7(?s:.*)the plugin ends in put"),
        ("fail in preCommit", "no luck in preCommit"),
    ],
)
def test_a_java_sink_that_fails_is_reported_with_its_phase(
    sink_kit: MakeSink, keeper: type[Connector], tmp_path: Path, mode: str, words: str
) -> None:
    kit = sink_kit(keeper, topics="numbers", **text(mode=mode, trace=tmp_path / "trace"))
    kit.feed(["v0"], topic="numbers")
    if mode == "fail in preCommit":  # as in Kafka Connect: nothing is committed, the task continues
        kit.run(until=lambda: bool(lines(tmp_path / "trace", "put")))
        assert not kit.committed
        return
    with pytest.raises(TaskFailedError, match=words):
        kit.run(until=lambda: False)
    kit.stop()


def test_a_java_source_whose_poll_hangs_fails_with_the_method_and_the_setting(
    source_kit: MakeSource, numbers: type[Connector], tmp_path: Path
) -> None:
    settings = {"java.poll.timeout.ms": "500"}
    kit = source_kit(numbers, settings, **text(mode="hang in poll", trace=tmp_path / "trace"))
    words = r"poll\(\) of org.acme.Behaviours\$Source .*has not returned.*java.poll.timeout.ms"
    with pytest.raises(TaskFailedError, match=words):
        kit.run(until=lambda: False)
    kit.stop()


def test_a_java_source_that_fills_its_heap_ends_only_its_own_jvm(
    source_kit: MakeSource,
    numbers: type[Connector],
    file_source: type[Connector],
    tmp_path: Path,
) -> None:
    (tmp_path / "in").write_text("one\n")
    other = source_kit(file_source, **text(file=tmp_path / "in", topic="lines"))
    other.run(until=lambda: len(other.records("lines")) >= 1)
    kit = source_kit(
        numbers,
        {"java.isolation": "task"},
        **text(mode="fill in poll", trace=tmp_path / "trace"),
    )
    with pytest.raises(TaskFailedError, match="used up its heap of 512 MiB"):
        kit.run(until=lambda: False)
    with (tmp_path / "in").open("a") as stream:
        stream.write("two\n")
    other.run(until=lambda: len(other.records("lines")) >= 2)


def test_the_settings_of_a_java_class_are_checked_by_drover_and_by_the_plugin(
    behaviours: Path,
) -> None:
    java_class = JavaClass("org.acme.Behaviours$Source", Kind.SOURCE, "2.5", "x", behaviours)
    kind = connector_of(java_class, in_engine=False)
    found = parse_config(kind, {"name": "x", "connector.class": java_class.name})
    assert [(each.field, each.description) for each in found.violations] == [
        ("trace", "is required")
    ]


def test_transforms_of_drover_follow_those_of_a_java_source(
    source_kit: MakeSource, file_source: type[Connector], tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("one\ntwo\n")
    config = {
        "transforms": "hoist,extract",
        "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.hoist.field": "line",
        "transforms.extract.type": "ExtractField$Value",
        "transforms.extract.field": "line",
    }
    kit = source_kit(file_source, config, **text(file=tmp_path / "in", topic="lines"))
    kit.run(until=lambda: len(kit.records("lines")) >= 2)
    assert [each.value for each in kit.records("lines")] == ["one", "two"]


def test_transforms_of_kafka_run_in_the_host(
    source_kit: MakeSource, sink_kit: MakeSink, file_source: type[Connector], tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("one\n")
    config = {
        "transforms": "hoist,rename",
        "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.hoist.field": "line",
        "transforms.rename.type": "java:org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.rename.regex": "(.*)",
        "transforms.rename.replacement": "all-$1",
        "value.converter.schemas.enable": "false",
        "value.converter": "JsonConverter",
    }
    kit = source_kit(file_source, config, file=tmp_path / "in", topic="lines")
    kit.run(until=lambda: len(kit.records("all-lines")) >= 1)
    assert kit.records("all-lines")[0].json == {"line": "one"}


@pytest.mark.parametrize("transform", ["Filter", "java:org.apache.kafka.connect.transforms.Filter"])
def test_a_java_source_goes_on_behind_polls_whose_records_are_all_dropped(
    source_kit: MakeSource, numbers: type[Connector], tmp_path: Path, transform: str
) -> None:
    trace = tmp_path / "trace"
    config = {"transforms": "drop", "transforms.drop.type": transform}
    kit = source_kit(numbers, config, **text(mode="", trace=trace))
    # commitRecord() fails for dropped records, which have no place in a topic
    kit.run(until=lambda: kit.committed == [({"n": 1}, {"next": 100})])
    assert len(lines(trace, "poll")) == 10
    assert kit.records("numbers") == []
    kit.stop()
    kit.run(until=lambda: len(lines(trace, "start")) == 2)
    assert lines(trace, "start") == ["start 0", "start 100"]


def test_a_plugin_with_its_own_copy_of_kafkas_classes_gets_those_of_the_host(
    sink_kit: MakeSink, behaviours: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "with-kafka"
    shutil.copytree(behaviours, folder)
    for wanted in ("kafka-clients-*.jar", "connect-api-*.jar", "slf4j-api-*.jar"):
        copies = [shutil.copy2(each, folder) for each in find_jars().directory.glob(wanted)]
        assert copies, wanted
    kind = java_connector("org.acme.Behaviours$Sink", folder, Kind.SINK)
    kit = sink_kit(kind, topics="numbers", **text(mode="", trace=tmp_path / "trace"))
    kit.feed(["v0", "v1"], topic="numbers")
    kit.run(until=lambda: kit.committed == {NUMBERS: 2})


def test_transforms_of_drover_precede_those_of_a_java_sink(
    sink_kit: MakeSink, keeper: type[Connector], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    config = {
        "topics": "numbers",
        "transforms": "hoist,extract",
        "transforms.hoist.type": "HoistField$Value",
        "transforms.hoist.field": "n",
        "transforms.extract.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
        "transforms.extract.field": "n",
    }
    kit = sink_kit(keeper, config, **text(mode="", trace=trace))
    kit.feed(["one", None], topic="numbers")
    kit.run(until=lambda: kit.committed == {NUMBERS: 2})
    assert [each.partition(" null ")[0] for each in lines(trace, "put")] == ["put 0", "put 1"]
    assert lines(trace, "put")[0] == "put 0 null one"
