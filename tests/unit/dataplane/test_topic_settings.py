"""Settings of embedded topics: which are valid, where they are stored, and what retention does."""

from pathlib import Path

import pyarrow as pa
import pytest

from drover.dataplane.payload import FrameError
from drover.dataplane.staging import Stager
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.topic_settings import NAMES, TopicSettings, setting_fault
from drover.errors import InvalidArgumentError
from drover.model.ids import TaskId
from drover.model.times import DAY_MS
from tests.unit.dataplane.writer import Clock, Writer, staged, values


@pytest.fixture
def writer(store: EmbeddedStore) -> Writer:
    return Writer(store, TaskId("source", 0))


def publish_with_key(writer: Writer, topic: str) -> None:
    stager = Stager(writer.store.path, writer.task, writer.claim, topic=topic)
    batch = pa.RecordBatch.from_pydict({"key": [b"key"], "value": [b"old"]})
    writer.store.publish(writer.task, writer.claim, staged(stager, [batch]))


def sweep(store: EmbeddedStore, **limits: int | None) -> int:
    count = 0
    while step := store.apply_retention(**limits).batch_count:
        count += step
    return count


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", "0"),
        ("retention.ms", "9223372036854775807"),
        ("retention.bytes", "-1"),
        ("retention.bytes", "1048576"),
        ("cleanup.policy", "delete"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", "delete, compact"),
        ("delete.retention.ms", "0"),
        ("min.compaction.lag.ms", "60000"),
    ],
)
def test_a_setting_with_kafkas_syntax_is_valid(name: str, value: str) -> None:
    assert setting_fault(name, value) == ""


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("retention.ms", "7d", "whole number of milliseconds"),
        ("retention.ms", "-2", "or -1 for no limit, not '-2'"),
        ("retention.ms", "", "not ''"),
        ("retention.ms", "1_000", "not '1_000'"),
        ("retention.ms", "9223372036854775808", "whole number"),
        ("retention.ms", "1.5", "whole number"),
        ("retention.bytes", "1GB", "whole number of bytes"),
        ("cleanup.policy", "", "must be delete, compact or compact,delete"),
        ("cleanup.policy", "Compact", "must be delete"),
        ("cleanup.policy", "compact,remove", "must be delete"),
        ("delete.retention.ms", "-1", "whole number"),
        ("segment.bytes", "1", "is not possible in embedded storage"),
        ("compression.type", "lz4", "retention.bytes and retention.ms: remove it"),
        ("retention.minutes", "1", "is not possible in embedded storage"),
    ],
)
def test_another_setting_or_value_is_a_fault(name: str, value: str, part: str) -> None:
    assert part in setting_fault(name, value)


def test_a_topic_with_an_unknown_setting_is_not_created(store: EmbeddedStore) -> None:
    with pytest.raises(InvalidArgumentError) as rejected:
        store.ensure_topic("t", settings={"segment.ms": "1", "retention.ms": "x"})
    assert [each.field for each in rejected.value.violations] == ["retention.ms", "segment.ms"]
    assert store.topic("t") is None


def test_settings_survive_a_restart_and_stay_when_the_topic_grows(
    store: EmbeddedStore, tmp_path: Path
) -> None:
    store.ensure_topic("t", settings={"retention.ms": " -1 ", "cleanup.policy": "compact"})
    store.ensure_topic("t", 3, at_least=3, settings={"retention.ms": "5"})
    again = EmbeddedStore(tmp_path / "data.db")
    assert again.topic_settings("t") == {"retention.ms": "-1", "cleanup.policy": "compact"}
    assert again.topic_settings("other") == {}
    again.close()


def test_a_topic_that_is_created_again_has_only_its_new_settings(store: EmbeddedStore) -> None:
    store.ensure_topic("t", settings={"retention.ms": "-1", "cleanup.policy": "compact"})
    with store._database.write() as connection:
        connection.execute("DELETE FROM topics")
        connection.execute("DELETE FROM partitions")
    assert store.topic_settings("t") == {}
    store.ensure_topic("t", settings={"retention.bytes": "9"})
    assert store.topic_settings("t") == {"retention.bytes": "9"}


def test_defaults_are_those_of_kafka() -> None:
    found = TopicSettings.of({})
    assert (found.deletes, found.compacts) == (True, False)
    assert (found.retention_ms, found.retention_bytes) == (None, None)
    assert (found.delete_retention_ms, found.min_compaction_lag_ms) == (DAY_MS, 0)
    assert "cleanup.policy" in NAMES


def test_each_topic_keeps_its_records_as_long_as_its_own_setting_says(
    writer: Writer, clock: Clock
) -> None:
    store = writer.store
    store.ensure_topic("forever", settings={"retention.ms": "-1"})
    store.ensure_topic("hour", settings={"retention.ms": "3600000"})
    store.ensure_topic("month", settings={"retention.ms": str(30 * DAY_MS)})
    store.ensure_topic("compacted", settings={"cleanup.policy": "compact", "retention.ms": "1"})
    publish_with_key(writer, "compacted")
    for topic in ("default", "forever", "hour", "month"):
        writer.publish([b"old"], topic)
    clock.time_ms += 3_600_001
    assert sweep(store) == 1
    assert store.start_offsets("hour") == {0: 1}
    clock.time_ms += 8 * DAY_MS
    assert sweep(store) == 1
    assert store.start_offsets("default") == {0: 1}
    clock.time_ms += 30 * DAY_MS
    assert sweep(store) == 1
    assert store.start_offsets("month") == {0: 1}
    clock.time_ms += 3_650 * DAY_MS
    assert sweep(store) == 0
    assert values(store, "forever") == values(store, "compacted") == [b"old"]


def test_a_topic_may_have_a_limit_where_the_coordinator_has_none(
    writer: Writer, clock: Clock
) -> None:
    writer.store.ensure_topic("short", settings={"retention.ms": "10"})
    writer.publish([b"a"], "short")
    writer.publish([b"a"], "default")
    clock.time_ms += 11
    assert sweep(writer.store, retention_ms=None) == 1
    assert values(writer.store, "default") == [b"a"]


def test_the_size_of_each_partition_has_the_limit_of_its_topic(writer: Writer) -> None:
    store = writer.store
    store.ensure_topic("large", settings={"retention.bytes": "-1"})
    store.ensure_topic("small", settings={"retention.bytes": "2500"})
    for topic in ("default", "large", "small"):
        for number in range(5):
            writer.publish([b"%d" % number + b"x" * 1_000], topic)
    assert sweep(store, retention_bytes=4_500) == 4
    assert store.start_offsets("default") == {0: 1}
    assert store.start_offsets("large") == {0: 0}
    assert store.start_offsets("small") == {0: 3}


def test_the_newest_records_are_not_removed_for_their_size(writer: Writer, clock: Clock) -> None:
    writer.store.ensure_topic("tiny", settings={"retention.bytes": "1"})
    for value in (b"a", b"b"):
        writer.publish([value], "tiny")
    assert sweep(writer.store) == 1
    assert values(writer.store, "tiny") == [b"b"]
    clock.time_ms += 8 * DAY_MS
    assert sweep(writer.store) == 1, "by its age it is"


def test_the_coordinators_limits_are_shown_as_such(store: EmbeddedStore) -> None:
    assert store.default_settings() == {}
    store.set_default_settings({"retention.ms": "1", "retention.bytes": "-1"})
    store.set_default_settings({"retention.ms": "2"})
    assert store.default_settings() == {"retention.ms": "2"}


def test_a_record_without_a_key_is_not_staged_for_a_compacted_topic(writer: Writer) -> None:
    writer.store.ensure_topic("compacted", settings={"cleanup.policy": "compact,delete"})
    with pytest.raises(FrameError, match="the record has no key, but the topic compacted"):
        writer.publish([b"a"], "compacted")
    assert writer.store.end_offsets("compacted") == {0: 0}


def test_the_names_of_the_brokers_topics_are_reserved(writer: Writer) -> None:
    with pytest.raises(FrameError, match="the topic __consumer_offsets is internal to Kafka"):
        writer.publish([b"a"], "__consumer_offsets")
    assert writer.store.topic("__consumer_offsets") is None
