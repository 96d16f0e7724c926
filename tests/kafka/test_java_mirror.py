"""MirrorMaker's Java connectors on Drover, which need the offsets of acknowledged records."""

import struct
from functools import partial
from pathlib import Path

import pytest

from tests.support.compiled_plugins import java_host
from tests.support.java_plugins import mirror_plugin
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic, produce, read_all
from tests.support.kafka.connect import ConnectOptions
from tests.support.kafka.drover_cluster import drover_on_kafka
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.faults("kafka"),
    pytest.mark.timeout(1_200),
]

TIMEOUT_S = 300.0
PARTITIONS = 3
_PACKAGE = "java:org.apache.kafka.connect.mirror"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
#: Of an offset sync's value: upstream offset, downstream offset.
_SYNC = struct.Struct(">qq")


def _config(kind: str, bootstrap: str, alias: str, **settings: str) -> dict[str, str]:
    return {
        "connector.class": f"{_PACKAGE}.{kind}",
        "source.cluster.alias": alias,
        "target.cluster.alias": f"{alias}-target",
        "source.cluster.bootstrap.servers": bootstrap,
        "target.cluster.bootstrap.servers": bootstrap,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "consumer.auto.offset.reset": "earliest",
        "refresh.topics.interval.seconds": "1",
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        **settings,
    }


def _syncs(bootstrap: str, topic: str, of: str) -> list[tuple[int, int, int]]:
    """The partition, the upstream offset and the downstream offset of each sync of a topic."""
    found = []
    for each in read_all(bootstrap, topic):
        assert each.key is not None
        assert each.value is not None
        (length,) = struct.unpack_from(">h", each.key)
        if each.key[2 : 2 + length].decode() == of:
            (partition,) = struct.unpack_from(">i", each.key, 2 + length)
            found.append((partition, *_SYNC.unpack(each.value)))
    return found


async def test_mirrormaker_copies_topics_and_syncs_real_offsets(
    kafka: Kafka, topic_prefix: str, tmp_path: Path
) -> None:
    java_host()
    bootstrap, topic, alias = kafka.bootstrap, f"{topic_prefix}orders", f"{topic_prefix}src"
    create_topic(bootstrap, topic, partitions=PARTITIONS)
    wanted = [(f"k{n}".encode(), f"v{n}".encode()) for n in range(300)]
    produce(bootstrap, topic, wanted)
    options = ConnectOptions.named(f"{topic_prefix}cluster", exactly_once_source="enabled")
    env = {"DROVER_PLUGIN_PATH": str(mirror_plugin().parent)}
    async with (
        drover_on_kafka(bootstrap, options, tmp_path, env=env) as cluster,
        cluster.client() as client,
    ):
        await cluster.wait_until_members()
        # source and target are one cluster: each copy of the heartbeats would be copied
        own = {"topics": topic, "heartbeats.replication.enabled": "false"}
        source = _config("MirrorSourceConnector", bootstrap, alias, **own)
        beats = _config("MirrorHeartbeatConnector", bootstrap, alias)
        await client.create_connector("mirror", source)
        await client.create_connector("beats", beats)
        copy, beat = f"{alias}.{topic}", "heartbeats"
        await wait_until_async(
            partial(_has, bootstrap, copy, len(wanted)),
            timeout_s=TIMEOUT_S,
            describe=lambda: cluster.log("worker-1")[-5_000:],
        )
        syncs = f"mm2-offset-syncs.{alias}-target.internal"
        await wait_until_async(
            lambda: len({each[0] for each in _syncs(bootstrap, syncs, topic)}) == PARTITIONS,
            timeout_s=TIMEOUT_S,
            describe=lambda: cluster.log("worker-1")[-5_000:],
        )
        await wait_until_async(partial(_has, bootstrap, beat, 1), timeout_s=TIMEOUT_S)
        for name in ("mirror", "beats"):
            task = await cluster.wait_for_task(name)
            assert not task.HasField("failures"), task
    originals = {(each.partition, each.offset): each for each in read_all(bootstrap, topic)}
    copies = {(each.partition, each.offset): each for each in read_all(bootstrap, copy)}
    assert sorted((each.key, each.value) for each in copies.values()) == sorted(wanted)
    for partition, upstream, downstream in _syncs(bootstrap, syncs, topic):
        assert copies[partition, downstream].key == originals[partition, upstream].key


def _has(bootstrap: str, topic: str, count: int) -> bool:
    try:
        return len(read_all(bootstrap, topic)) >= count
    except Exception:  # noqa: BLE001 - the topic does not exist yet
        return False
