"""Records that nobody should have written, in the topics of a whole cluster that runs."""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drover.cli.process import ProcessPhase
from tests.support.cluster import EmbeddedCluster
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic, produce, read_all
from tests.support.kafka.connect import ConnectOptions
from tests.support.kafka.coordinators import health
from tests.support.kafka.copy import FileCopy
from tests.support.kafka.drover_cluster import drover_on_kafka
from tests.support.shared_cluster import errors_in
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(600)]

Pair = tuple[bytes | None, bytes | None]
#: Compressed it is small enough for the broker.
_OVER_1_MIB = b'{"properties":{"x":"%s"}}' % (b"y" * 1_100_000)
_DEEP = b"[" * 100_000


async def test_bad_records_are_told_once_and_stop_nothing(
    kafka: Kafka, topic_prefix: str, tmp_path: Path
) -> None:
    options = ConnectOptions.named(f"{topic_prefix}cluster")
    topic = f"{topic_prefix}lines"
    create_topic(kafka.bootstrap, topic)
    flow = FileCopy(tmp_path, "flow", topic)
    async with drover_on_kafka(kafka.bootstrap, options, tmp_path / "drover") as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            for name, config in flow.configs.items():
                await client.create_connector(name, config)
        async with flow.feeding():
            await flow.wait_until_passed("before anything bad comes")
            await _meet_bad_records(kafka, options, cluster, flow)
        await flow.assert_equal()
        async with cluster.client() as client:
            for name, config in flow.configs.items():
                assert dict((await client.get_connector(name)).config) == config
            assert {each.name for each in await client.list_connectors()} == set(flow.configs)


async def _meet_bad_records(
    kafka: Kafka, options: ConnectOptions, cluster: EmbeddedCluster, flow: FileCopy
) -> None:
    bad: dict[str, tuple[str, list[Pair]]] = {
        "config-store": (options.config_topic, _bad_configs(flow)),
        "status-store": (options.status_topic, _bad_statuses(flow)),
        "coordinator": (options.offset_topic, _bad_offsets(flow)),
    }
    for topic, pairs in bad.values():
        await asyncio.to_thread(_produce, kafka, topic, pairs)
    await flow.wait_until_passed("with bad records in the topics")
    for name, (topic, pairs) in bad.items():
        await _told(cluster, name, topic, await asyncio.to_thread(_places, kafka, topic, pairs))
    await _assert_unharmed(cluster)

    # read from the beginning they are told once more, and no more is lost than before
    for name, (topic, pairs) in bad.items():
        before = len(cluster.log(name))
        cluster.process(name).kill()
        await cluster.supervisor.wait_until_serving(name, start_count=2, timeout_s=120)
        await flow.wait_until_passed(f"after {name} has read them again")
        places = await asyncio.to_thread(_places, kafka, topic, pairs)
        await _told(cluster, name, topic, places, since=before)


def _bad_configs(flow: FileCopy) -> list[Pair]:
    source = flow.source.encode()
    return [
        (b"nobody-knows", b"{}"),
        (b"connector-x", b"not json"),
        (b"connector-deep", _DEEP),
        (b"connector-" + source, b'{"properties":[1]}'),
        (b"connector-" + source, b'{"properties":{"file":7}}'),
        (b"task-%s-0" % source, b'{"properties":"text"}'),
        (b"task-without-number", b'{"properties":{}}'),
        (b"commit-" + source, b'{"tasks":"1"}'),
        (b"commit-" + source, b'{"tasks":-1}'),
        (b"commit-" + source, None),
        (b"target-state-" + source, b'{"state":"nonsense"}'),
        (b"restart-connector-" + source, b"[]"),
        (b"tasks-fencing-" + source, b"{}"),
        (b"session-key", b'{"key":5}'),
        (b"logger-cluster-x", b'{"level":3}'),
        (b"connector-\xff", b'{"properties":{}}'),
        (b"connector-big", _OVER_1_MIB),
    ]


def _bad_statuses(flow: FileCopy) -> list[Pair]:
    source = flow.source.encode()
    return [
        (b"nobody-knows", b"{}"),
        (b"status-connector-" + source, b"not json"),
        (b"status-connector-" + source, b'{"state":"HAPPY","worker_id":"x","generation":1}'),
        (b"status-connector-" + source, b'{"state":"FAILED","worker_id":1,"generation":1}'),
        (b"status-task-%s-0" % source, b'{"state":"FAILED","worker_id":"x","generation":"1"}'),
        (b"status-task-%s-0" % source, _DEEP),
        (b"status-task-without-number", b'{"state":"RUNNING"}'),
        (b"status-topic-t:connector-" + source, b'{"topic":"t"}'),
        (b"status-connector-\xff", b"{}"),
    ]


def _bad_offsets(flow: FileCopy) -> list[Pair]:
    mine = b'["%s",{"filename":"%s"}]' % (flow.source.encode(), str(flow.input).encode())
    return [
        (b"no json", b"{}"),
        (b'["flow"]', b'{"position":0}'),
        (b'{"a":1}', b'{"position":0}'),
        (b'[1,{"filename":"x"}]', b'{"position":0}'),
        (mine, b"not json"),
        (mine, b"7"),
        (_DEEP, b"{}"),
    ]


def _produce(kafka: Kafka, topic: str, pairs: list[Pair]) -> None:
    settings: dict[str, str | int] = {
        "compression.type": "gzip",
        "message.max.bytes": 4_000_000,
    }
    produce(kafka.bootstrap, topic, pairs, settings=settings)


def _places(kafka: Kafka, topic: str, pairs: list[Pair]) -> list[tuple[int, int]]:
    """Where the bad records are: partitions and offsets."""
    found = [
        (each.partition, each.offset)
        for each in read_all(kafka.bootstrap, topic)
        if (each.key, each.value) in pairs
    ]
    assert len(found) >= len(pairs)
    return found


async def _told(
    cluster: EmbeddedCluster,
    name: str,
    topic: str,
    places: list[tuple[int, int]],
    *,
    since: int = 0,
) -> None:
    """Each record by its place, none twice."""

    def told() -> "Counter[tuple[int, int]]":
        return Counter(
            (event["partition"], event["offset"])
            for event in _events(cluster.log(name)[since:])
            if event.get("topic") == topic and "offset" in event
        )

    def unlike() -> object:
        return {"not told": set(places) - set(told()), "also told": set(told()) - set(places)}

    await wait_until_async(lambda: set(told()) >= set(places), describe=unlike)
    assert told() == Counter(places), unlike()


def _events(log: str) -> list[dict[str, Any]]:
    found = []
    for line in log.splitlines():
        with suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict):
                found.append(event)
    return found


async def _assert_unharmed(cluster: EmbeddedCluster) -> None:
    for name, process in cluster.supervisor.processes.items():
        assert process.phase is ProcessPhase.SERVING, name
        assert process.start_count == 1, f"{name} died: {cluster.log(name)[-3_000:]}"
        assert errors_in(cluster.log(name)) == [], name
    for name in ("config-store", "status-store", "coordinator"):
        for service in ("", "drover.storage"):
            address = cluster.process(name).spec.address
            await wait_until_async(partial(_is_serving, address, service), describe=name)


async def _is_serving(address: str, service: str) -> bool:
    return await health(address, service) == "SERVING"
