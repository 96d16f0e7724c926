"""A topic is written into an S3 bucket while workers and the S3 server are killed."""

import asyncio
import json
import random
from collections import Counter
from functools import partial
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import BaseError

from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.random_kills import kill_in_turn
from tests.support.s3 import S3, running_s3
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.faults("connectors"),
    pytest.mark.timeout(1800),
]

SEED = 14
ROUNDS = 10
ROWS = 60_000


async def test_each_record_is_in_one_object_whatever_is_killed(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with running_s3() as server:
        s3 = server.created("orders")
        async with embedded_cluster(tmp_path) as cluster:
            await cluster.wait_until_members()
            await _create_connectors(cluster, s3)
            for turn in range(ROUNDS):
                wanted = turn * ROWS // ROUNDS + rng.randrange(ROWS // ROUNDS)
                await _wait_until_written(s3, wanted)
                await kill_in_turn(cluster, rng, turn, s3.kill)
            await cluster.wait_until_members()
            await _wait_until_written(s3, ROWS)
        counts = _ids(s3)
        assert sorted(counts) == list(range(ROWS))
        assert set(counts.values()) == {1}


async def _create_connectors(cluster: EmbeddedCluster, s3: S3) -> None:
    async with cluster.client() as client:
        await client.create_connector(
            "source",
            {
                "connector.class": "DatagenSource",
                "quickstart": "orders",
                "max.records": str(ROWS),
                "batch.size": "500",
                "rate.max.records": "1000",
                "topic.partitions": "3",
                "key": "order_id",
            },
        )
        await client.create_connector(
            "sink",
            {
                "connector.class": "io.confluent.connect.s3.S3SinkConnector",
                "tasks.max": "2",
                "topics": "orders",
                "s3.bucket.name": s3.bucket,
                **s3.settings,
                "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
                "flush.size": "1000",
                "partitioner.class": "FieldPartitioner",
                "partition.field.name": "status",
                "batch.wait.ms": "500",
                "errors.retry.timeout": "60000",
            },
        )


async def _wait_until_written(s3: S3, count: int) -> None:
    """Wait until this many rows are written: the kill comes in the middle of the copy."""

    def there() -> bool:
        try:
            return _ids(s3).total() >= count
        except BaseError:
            return False

    await wait_until_async(
        partial(asyncio.to_thread, there),
        timeout_s=300,
        describe=lambda: f"{_ids(s3).total()} of {count} rows",
    )


def _ids(s3: S3) -> Counter[int]:
    """How often each row occurs in the objects that readers see."""
    found: Counter[int] = Counter()
    for name in s3.names("topics"):
        data = bytes(obstore.get(s3.store(), name).bytes())
        found.update(json.loads(line)["order_id"] for line in data.splitlines())
    return found
