"""An engine with executors of a remote Spark master, on Kafka, exactly once."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from drover.log.storage import KafkaStorage, KafkaTopics
from drover_worker.engine.settings import EngineLimits
from tests.spark.engine.harness import Harness
from tests.support.kafka.clients import create_topic
from tests.support.kafka.offsets_topic import committed_in_topic

_LIMITS = EngineLimits(start_ms=120_000, stop_ms=60_000, poll_ms=60_000, progress_ms=50)


def remote_harness(
    bootstrap: str, name: str, directory: Path, *, master: str, spark_conf: Mapping[str, str]
) -> Harness:
    """The engine, not started; ``name`` is that of its group and of its topic of offsets."""
    topics = KafkaTopics(offset=f"{name}-offsets")
    storage = KafkaStorage(bootstrap_servers=bootstrap, group_id=name, topics=topics)
    create_topic(bootstrap, topics.offset, config={"cleanup.policy": "compact"})
    return Harness(
        directory,
        storage=storage,
        limits=_LIMITS,
        spark_master=master,
        exactly_once=True,
        spark_conf={"spark.executor.memory": "512m", **spark_conf},
        offsets_of=partial(committed_in_topic, storage),
    )
