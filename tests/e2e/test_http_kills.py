"""One HTTP API is copied to another while workers are killed and both APIs fail at random."""

import asyncio
import json
import random
from collections import Counter
from functools import partial
from pathlib import Path
from threading import Lock

import pytest

from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.http_api import Api, Reply, Request, running_api
from tests.support.random_kills import kill_part_of_a_worker
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.faults("connectors"),
    pytest.mark.timeout(1800),
]

SEED = 14
ROUNDS = 8
ROWS = 20_000
PAGE = 100


class Target:
    """Counts the rows that it stored; fails at random, also after it stored part of a request."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.first_seen: list[int] = []
        self._lock = Lock()
        self._rng = random.Random(SEED)

    def answer(self, request: Request) -> Reply:
        with self._lock:
            chance = self._rng.random()
            if chance < 0.05:
                return Reply(status=503, headers={"retry-after": "0"})
            ids = [each["id"] for each in json.loads(request.body)]
            self.first_seen += [each for each in ids if each not in self.counts]
            self.counts.update(ids)
            return Reply(status=0 if chance < 0.1 else 200)


async def test_nothing_is_lost_whatever_is_killed(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    failing = random.Random(SEED)
    target = Target()

    def page(request: Request) -> Reply:
        if failing.random() < 0.1:
            return Reply(status=failing.choice([0, 429, 500]), headers={"retry-after": "0"})
        after = int(request.query.get("after", "-1"))
        items = [{"id": n, "name": f"name {n}"} for n in range(after + 1, after + 1 + PAGE)]
        more = after + 1 + PAGE < ROWS
        return Reply({"items": items, "next": items[-1]["id"] if more else None})

    with running_api(page) as source, running_api(target.answer) as sink:
        async with embedded_cluster(tmp_path) as cluster:
            await cluster.wait_until_members()
            await _create_connectors(cluster, source, sink)
            for turn in range(ROUNDS):
                wanted = turn * ROWS // ROUNDS + rng.randrange(ROWS // ROUNDS)
                await _wait_until(target, wanted)
                kill_part_of_a_worker(cluster, rng, whole=turn % 3 == 0)
            await cluster.wait_until_members()
            await _wait_until(target, ROWS)
    assert sorted(target.counts) == list(range(ROWS))
    assert target.first_seen == list(range(ROWS))


async def _create_connectors(cluster: EmbeddedCluster, source: Api, sink: Api) -> None:
    async with cluster.client() as client:
        await client.create_connector(
            "source",
            {
                "connector.class": "HttpSource",
                "http.url": f"{source.url}/items",
                "http.response.items": "/items",
                "topic": "items",
                "paging.mode": "cursor",
                "paging.cursor.pointer": "/next",
                "paging.parameter": "after",
                "run.interval.ms": "86400000",
                "retry.backoff.ms": "100",
            },
        )
        await client.create_connector(
            "sink",
            {
                "connector.class": "HttpSink",
                "topics": "items",
                "http.url": f"{sink.url}/items",
                "batching.enabled": "true",
                "batch.prefix": "[",
                "batch.suffix": "]",
                "batch.separator": ",",
                "retry.backoff.ms": "100",
                "errors.retry.timeout": "60000",
            },
        )


async def _wait_until(target: Target, count: int) -> None:
    await wait_until_async(
        partial(asyncio.to_thread, lambda: len(target.counts) >= count),
        timeout_s=300,
        describe=lambda: f"{len(target.counts)} of {count} rows",
    )
