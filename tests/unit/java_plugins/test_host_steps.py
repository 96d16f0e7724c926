"""Transforms of Java plugins in a real JVM, without Spark: a record on which one works too long."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drover.connectors.java.steps import JavaStepError, JavaTransform, step_of
from drover.java_plugins import wire
from drover.java_plugins.catalogue import JavaClass, Kind
from drover.java_plugins.host import HOSTS, POLL_LIMIT
from drover.record.batch import HEADERS_TYPE
from tests.support import compiled_plugins
from tests.support.compiled_plugins import java_host
from tests.support.java_plugins import compiled_plugin

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[JavaTransform]]:
    java_host()
    code = (Path(compiled_plugins.__file__).parent / "java_sources" / "Steps.java").read_text()
    plugin = compiled_plugin(tmp_path_factory.mktemp("steps"), {"org.acme.Steps": code})
    java_class = JavaClass("org.acme.Steps$Named", Kind.TRANSFORM, "1.0", plugin.name, plugin)
    made = step_of(java_class, in_engine=True)
    assert issubclass(made, JavaTransform)
    yield made
    HOSTS.stop()


def records(*texts: str) -> pa.RecordBatch:
    count = len(texts)
    columns: Mapping[str, Any] = {
        "topic": pa.array(["lines"] * count),
        "partition": pa.nulls(count, pa.int32()),
        "offset": pa.nulls(count, pa.int64()),
        "timestamp": pa.nulls(count, pa.timestamp("ms", tz="UTC")),
        "key": pa.nulls(count, pa.string()),
        "value": pa.array(texts),
        "headers": pa.nulls(count, HEADERS_TYPE),
    }
    return pa.RecordBatch.from_pydict(columns)


def topics(step: JavaTransform, *texts: str) -> list[str]:
    """The topics of the records that a transform makes of records with these values."""
    return [each for batch in step(records(*texts)) for each in batch.column("topic").to_pylist()]


def test_a_transform_that_hangs_is_named_and_a_restart_has_a_new_jvm(
    named: type[JavaTransform], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = named({"suffix": "-x"})
    assert topics(step, "one", "two") == ["lines-x", "lines-x"]
    process_id = process_id_of(step)
    step.close()
    monkeypatch.setenv(POLL_LIMIT[0], "1000")
    monkeypatch.setattr(wire, "_SILENCE_MS", 200)
    step = named({"suffix": "-x"})
    words = (
        r"^apply\(\) of org.acme.Steps\$Named \(test-plugin\) has not returned for 1 s: .*"
        r"raise DROVER_PLUGIN_POLL_TIMEOUT_MS.*new JVM; its thread is at\n(?s:.*)Steps\$Named.apply"
    )
    with pytest.raises(JavaStepError, match=words):
        topics(step, "one", "hang")
    assert process_id_of(step) == process_id
    step.close()
    monkeypatch.delenv(POLL_LIMIT[0])
    step = named({"suffix": "-y"})
    assert topics(step, "one") == ["lines-y"]
    assert process_id_of(step) != process_id
    step.close()


def test_a_batch_without_records_is_none_and_a_text_of_30_mb_is_transformed(
    named: type[JavaTransform],
) -> None:
    """Jackson's own limit is 20 MB, as in
    https://github.com/confluentinc/kafka-connect-elasticsearch/issues/729.
    """
    step = named({"suffix": "-x"})
    assert topics(step) == []
    (batch,) = step(records("x" * 30_000_000))
    assert len(batch.column("value")[0].as_py()["text"]) == 30_000_000
    step.close()


def process_id_of(step: JavaTransform) -> int:
    """The JVM in which a step runs."""
    found: int = step.running().address.call("hello")["pid"]
    return found
