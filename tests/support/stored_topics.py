"""Records in topics of an embedded store, written without a task."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from drover.dataplane.payload import PAYLOAD_SCHEMA, encode
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import StagedBlob
from drover.model.ids import TaskId

_TASK = TaskId("tests-of-topics", 0)


def store_records(
    store: EmbeddedStore,
    topic: str,
    records: Sequence[Mapping[str, Any]],
    *,
    partition: int = 0,
    partition_count: int = 1,
) -> None:
    """Each record has any of ``key``, ``value``, ``headers`` (pairs) and ``timestamp_ms``."""
    store.ensure_topic(topic, partition_count)
    rows = [
        {
            "key": each.get("key"),
            "value": each.get("value"),
            "headers": [{"key": key, "value": value} for key, value in each["headers"]]
            if "headers" in each
            else None,
            "timestamp_ms": each.get("timestamp_ms", 0),
        }
        for each in records
    ]
    claim = store.claim_task(_TASK, generation=1, owner="tests", request_id="")
    payload = encode([pa.RecordBatch.from_pylist(rows, schema=PAYLOAD_SCHEMA)])
    blob = store.stage(_TASK, claim, payload)
    staged = StagedBlob(0, 0, topic, partition, len(rows), len(payload), blob)
    store.publish(_TASK, claim, [staged])


def delete_topic(store: EmbeddedStore, name: str) -> None:
    """Remove a topic with its records."""
    with store._database.write() as connection:
        for table in ("batches", "partitions"):
            connection.execute(f"DELETE FROM {table} WHERE topic = ?", (name,))
        connection.execute("DELETE FROM topics WHERE name = ?", (name,))
