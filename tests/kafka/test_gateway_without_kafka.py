"""The REST API while the cluster's Kafka is gone."""

import asyncio
from pathlib import Path

import pytest

from drover_gateway.rest import call
from tests.support.fake_engine import SOURCE
from tests.support.gateways import running_gateway
from tests.support.kafka.broker import KafkaBroker
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

pytestmark = [pytest.mark.faults("gateway"), pytest.mark.timeout(600)]

CONFIG = {"connector.class": SOURCE, "tasks.max": "1"}


async def test_changes_are_503_with_the_cause_and_reads_continue(
    mortal_broker: KafkaBroker, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "UNAVAILABLE_TIMEOUT_S", 5.0)
    names = ("config", "offset", "status", "control")
    topics = {f"{each}_storage_topic": f"{topic_prefix}{each}" for each in names}
    storage = {"storage_url": f"kafka://{mortal_broker.bootstrap}", **topics}
    async with WorkerCluster(tmp_path, storage=storage) as cluster:
        (worker,) = await cluster.settled_workers(1)
        async with running_gateway([worker.address]) as gateway:
            made = await gateway.ask("PUT", "/connectors/a/config", json=CONFIG)
            assert made.status_code == 201
            await asyncio.to_thread(mortal_broker.kill)
            for method, path, body in (
                ("PUT", "/connectors/a/config", {**CONFIG, "topic": "u"}),
                ("PUT", "/connectors/a/pause", None),
                ("DELETE", "/connectors/a", None),
                ("POST", "/connectors", {"name": "b", "config": CONFIG}),
            ):
                refused = await gateway.ask(method, path, json=body)
                assert refused.status_code == 503, (method, path, refused.text)
                assert refused.headers["Retry-After"] == "1"
                assert refused.json()["message"], (method, path)
            assert (await gateway.ask("GET", "/connectors/a")).json()["name"] == "a"
            assert (await gateway.ask("GET", "/connectors")).status_code == 200
            await asyncio.to_thread(mortal_broker.revive)

            async def is_written() -> bool:
                body = {**CONFIG, "topic": "v"}
                found = await gateway.ask("PUT", "/connectors/a/config", json=body)
                return bool(found.status_code in (200, 201))

            await wait_until_async(is_written, timeout_s=120)
