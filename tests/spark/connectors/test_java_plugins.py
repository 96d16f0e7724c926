"""Kafka Connect's Java plugins as tasks of the real engine, in a JVM beside it."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drover.connector import TopicPartition
from drover.connector.connector import Connector
from drover.connectors.java.tasks import JavaTaskError
from drover.java_plugins.catalogue import Kind
from drover.java_plugins.host import HOSTS
from drover.testing import SinkKit, SourceKit, TaskFailedError
from tests.support.compiled_plugins import java_host
from tests.support.java_plugins import (
    FILE_SINK,
    FILE_SOURCE,
    STRING_CONVERTER,
    file_plugin,
    java_connector,
)
from tests.support.kafka.missing import KafkaMissingError

pytestmark = pytest.mark.spark

MakeSink = Callable[..., SinkKit]
MakeSource = Callable[..., SourceKit]
LINES = TopicPartition("lines", 0)


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    java_host()
    try:
        file_plugin()
    except KafkaMissingError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
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
