"""Tasks of the plugin Behaviours in a real JVM, without Spark."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from drover.connector import SinkTaskContext, SourceBatch, SourceTaskContext
from drover.connector.connector import Connector
from drover.connector.settings import CONFIG_TEXTS
from drover.connectors.java.tasks import JavaSourceTask
from drover.dataplane.arrow_rows import ArrowRows
from drover.java_plugins.catalogue import Kind
from drover.java_plugins.wire import PUT_SCHEMA
from drover.model.ids import TaskId, Term
from tests.support.java_plugins import STRING_CONVERTER, java_connector
from tests.support.waiting import wait_until

#: Covers the start of a JVM on a busy machine.
TIMEOUT_S = 240.0
Make = Callable[..., Any]


def class_of(plugin: Path, name: str) -> type[Connector]:
    kind = Kind.SINK if name == "Sink" else Kind.SOURCE
    return java_connector(f"org.acme.Behaviours${name}", plugin, kind)


def new_task(
    plugin: Path,
    name: str,
    mode: str,
    folder: Path,
    number: int = 0,
    *,
    more_texts: Mapping[str, str] | None = None,
    **settings: Any,
) -> tuple[Any, Any]:
    """A task that is not started, and its context; ``more_texts`` are for the JVM."""
    texts = {
        **(more_texts or {}),
        "name": f"{folder.name}-{number}",
        "connector.class": "x",
        "topics": "numbers",
        "mode": mode,
        "trace": str(folder / f"trace-{number}"),
        "java.host.key.converter": STRING_CONVERTER,
        "java.host.value.converter": STRING_CONVERTER,
    }
    config = {
        CONFIG_TEXTS: texts,
        "java.isolation": "plugin",
        "java.call.timeout.ms": 600_000,
        "java.poll.timeout.ms": 600_000,
        "errors.retry.timeout": 0,
        "batch.max.records": 10_000,
        "partitioner.keyless": "first",
        "batch.max.bytes": 1 << 23,
        **settings,
    }
    context = (SinkTaskContext if name == "Sink" else SourceTaskContext)(
        task=TaskId(texts["name"], 0),
        claim=Term(1, 1),
        config=config,
        spark=None,  # type: ignore[arg-type]
    )
    return class_of(plugin, name).task_class(), context  # type: ignore[attr-defined]


def polled(task: JavaSourceTask) -> SourceBatch:
    """The next batch."""
    found = wait_until(task.poll, timeout_s=TIMEOUT_S, describe="a batch is polled")
    assert found is not None
    return found


def rows(batch: SourceBatch) -> list[Mapping[str, Any]]:
    assert isinstance(batch.frame, ArrowRows)
    parts = range(batch.frame.partition_count)
    return [row for n in parts for each in batch.frame.read(n) for row in each.to_pylist()]


def lines(trace: Path, start: str) -> list[str]:
    if not trace.exists():
        return []
    return [each for each in trace.read_text().splitlines() if each.startswith(start)]


def feed(
    task: Any, count: int, start: int = 0, value: bytes = b"v", *, end: int | None = None
) -> None:
    """Pass records to a sink's task, as an executor does; those up to ``end`` were dropped."""
    offsets = list(range(start, start + count))
    columns = {
        "topic": ["numbers"] * count,
        "partition": [0] * count,
        "offset": offsets,
        "key": [b"k"] * count,
        "value": [value] * count,
        "headers": [None] * count,
        "timestamp": [0] * count,
        "target": [None] * count,
    }
    batch = pa.RecordBatch.from_pydict(columns, PUT_SCHEMA)
    task._batch += 1
    ends = start + count if end is None else end
    task._address.put(task._run, task._batch, [("numbers", 0, start, ends)], [batch])
