"""Records that other hosts of Kafka Connect's plugins lose or refuse, through the real engine."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drover.connector import TopicPartition
from drover.connector.connector import Connector
from drover.java_plugins.catalogue import Kind
from drover.java_plugins.host import CALL_LIMIT, HOSTS
from drover.testing import SinkKit, SourceKit
from tests.support import compiled_plugins
from tests.support.compiled_plugins import java_host
from tests.support.java_plugins import STRING_CONVERTER, compiled_plugin, java_connector

pytestmark = pytest.mark.spark

MakeSink = Callable[..., SinkKit]
MakeSource = Callable[..., SourceKit]
NUMBERS = TopicPartition("numbers", 0)
_MEGABYTES_100 = 100_000_000


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    java_host()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CALL_LIMIT[0], "600000")  # the first call of a JVM on a busy machine is slow
        yield
    HOSTS.stop()


@pytest.fixture(scope="module")
def behaviours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    code = (Path(compiled_plugins.__file__).parent / "java_sources" / "Behaviours.java").read_text()
    return compiled_plugin(tmp_path_factory.mktemp("behaviours"), {"org.acme.Behaviours": code})


@pytest.fixture
def source(behaviours: Path) -> type[Connector]:
    return java_connector("org.acme.Behaviours$Source", behaviours, Kind.SOURCE)


@pytest.fixture
def sink(behaviours: Path) -> type[Connector]:
    return java_connector("org.acme.Behaviours$Sink", behaviours, Kind.SINK)


def text(**settings: Any) -> dict[str, Any]:
    return {"key.converter": STRING_CONVERTER, "value.converter": STRING_CONVERTER, **settings}


def lines(trace: Path, start: str) -> list[str]:
    if not trace.exists():
        return []
    return [each for each in trace.read_text().splitlines() if each.startswith(start)]


def test_records_without_a_source_partition_are_stored(
    source_kit: MakeSource, source: type[Connector], tmp_path: Path
) -> None:
    kit = source_kit(source, **text(mode="no positions", trace=tmp_path / "trace"))
    kit.run(until=lambda: len(kit.records("numbers")) >= 3)
    assert [each.key for each in kit.records("numbers")] == [b"a", b"b", b"c"]


def test_a_java_sink_gets_the_topic_that_a_transform_of_drover_gave_a_record(
    sink_kit: MakeSink, sink: type[Connector], tmp_path: Path
) -> None:
    config = {
        "topics": "numbers",
        "transforms": "rename",
        "transforms.rename.type": "RegexRouter",
        "transforms.rename.regex": "(.*)",
        "transforms.rename.replacement": "all-$1",
    }
    kit = sink_kit(sink, config, **text(mode="topics", trace=tmp_path / "trace"))
    kit.feed(["one"], topic="numbers")
    kit.run(until=lambda: kit.committed == {NUMBERS: 1})
    assert lines(tmp_path / "trace", "topic") == ["topic all-numbers of numbers"]


def test_a_java_sink_continues_at_an_offset_beyond_its_first_batch(
    sink_kit: MakeSink, sink: type[Connector], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    kit = sink_kit(
        sink,
        {"topics": "numbers", "batch.max.records": "10"},
        **text(mode="seek", target="15", trace=trace),
    )
    kit.feed([f"v{n}" for n in range(20)], topic="numbers")
    kit.run(until=lambda: kit.committed == {NUMBERS: 20})
    assert [int(each.split()[1]) for each in lines(trace, "put")] == list(range(15, 20))


def test_a_record_of_100_mb_of_a_java_source_arrives(
    source_kit: MakeSource, source: type[Connector], tmp_path: Path
) -> None:
    settings = {"java.isolation": "task", "size": str(_MEGABYTES_100)}
    kit = source_kit(source, settings, **text(mode="large", trace=tmp_path / "trace"))
    kit.run(until=lambda: len(kit.records("numbers")) >= 1)
    (record,) = kit.records("numbers")
    assert record.value == b"x" * _MEGABYTES_100


def test_a_record_of_100_mb_reaches_a_java_sink(
    sink_kit: MakeSink, sink: type[Connector], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    settings = {"java.isolation": "task", "topics": "numbers"}
    kit = sink_kit(sink, settings, **text(mode="large", trace=trace))
    kit.feed(["x" * _MEGABYTES_100], topic="numbers")
    kit.run(until=lambda: kit.committed == {NUMBERS: 1})
    assert lines(trace, "large") == [f"large {_MEGABYTES_100}"]
