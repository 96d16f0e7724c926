"""KafkaSink: topics into another Kafka cluster, as they are."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from drover.connector import (
    ONCE,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    OffsetChange,
    RetriableError,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    Violation,
)
from drover.connectors.aliases import KAFKA_SINK
from drover.connectors.kafka.cluster import (
    ClusterError,
    client_settings,
    cluster_keys,
    noting,
    telling,
    topics_of,
)
from drover.connectors.kafka.writer import TOPIC_NAME, ClusterWriter, Target, set_back

PREFIX, PRODUCER_PREFIX = "target.cluster.", "target.producer."
SERVERS = f"{PREFIX}bootstrap.servers"
FORMAT, CREATE, REPLICATION = "topic.format", "topics.create", "topics.replication.factor"
GROUP = "offsets.group.id"
#: What the connector needs to be as it is.
_RESERVED = ("transactional.id", "enable.idempotence", "group.id")


class KafkaSinkTask(SinkTask):
    """Writes each batch in transactions of its partitions."""

    writes_ahead: ClassVar[bool] = True

    def start(self, context: SinkTaskContext) -> None:
        """Nothing to open: producers are where the records are."""
        self._writer = ClusterWriter(target_of(context.config, context.task.connector))

    def write(self, batch: SinkBatch) -> str:
        """Write the batch, with how far it comes."""
        batch.run_in_arrow(self._writer, at_once=True)
        return ""


class KafkaSink(SinkConnector):
    """Copies topics into another Kafka cluster as they are: keys, values, headers and timestamps,
    byte for byte and in the same partitions.

    Each record is written once: a transaction has the offsets of its records, as those of the
    consumer group ``offsets.group.id`` on the copy. Readers of the copy read committed.
    """

    version = "0.1.0"
    aliases = ("KafkaSink",)
    other_settings = KAFKA_SINK
    guarantees = ONCE
    task_class = KafkaSinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return ConfigDef(*cluster_keys(PREFIX, "the target"), *_KEYS)

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """Whether records stay bytes, and the cluster can be reached."""
        faults = _faults_of_bytes(config)
        if faults or not all(key.name in config for key in cls.config_def()):
            return faults
        from confluent_kafka import KafkaError, KafkaException, Producer

        told: list[KafkaError] = []
        try:
            client = dict(target_of(config, "").client)
            producer = Producer({**client, "log_level": 0, "error_cb": noting(told)})
        except ValueError as error:
            return [Violation(SERVERS, str(error))]
        except KafkaException as error:
            return [Violation(SERVERS, error.args[0].str())]
        try:
            with telling("cannot be used", told):
                topics_of(producer, told)
        except (ClusterError, RetriableError) as error:
            return [Violation(SERVERS, str(error))]
        return ()

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """Set the group's offsets back as well, so that records are written again."""
        wanted = {
            (str(place["kafka_topic"]), int(str(place["kafka_partition"]))): (
                int(str(offset["kafka_offset"])) if offset else 0
            )
            for place, offset in changes
        }
        # without changes: a reset that finds nothing committed
        set_back(target_of(config, config["name"]), wanted or None)
        return True

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Tasks differ in the partitions that they are given."""
        return [{} for _ in range(max_tasks)]


def target_of(config: Mapping[str, Any], connector: str) -> Target:
    """What a parsed config says.

    Raises:
        ValueError: a setting cannot be taken over.
    """
    client = client_settings(config, PREFIX, PRODUCER_PREFIX)
    reserved = [each for each in _RESERVED if each in client]
    if reserved:
        raise ValueError(f"{reserved[0]} is set by the connector: remove it")
    return Target(
        tuple(sorted(client.items())),
        group=config[GROUP] or f"drover-{connector}",
        topic_format=config[FORMAT],
        creates=config[CREATE],
        replication_factor=config[REPLICATION],
    )


def _faults_of_bytes(config: Mapping[str, Any]) -> list[Violation]:
    faults = []
    if config.get("transforms"):
        text = "are not for a sink that copies bytes: transform where records come from"
        faults.append(Violation("transforms", text))
    for name in ("key.converter", "value.converter"):
        found = str(config.get(name) or "ByteArrayConverter")
        if not found.endswith("ByteArrayConverter"):
            text = "must be ByteArrayConverter: records are copied as bytes"
            faults.append(Violation(name, text))
    return faults


def _format_fault(text: str) -> str | None:
    return None if TOPIC_NAME in text else f"must have {TOPIC_NAME}, so that topics stay apart"


_KEYS = (
    ConfigKey(
        FORMAT,
        ConfigType.STRING,
        default=TOPIC_NAME,
        importance=Importance.HIGH,
        group="Topics",
        documentation="What copies are called, such as west.${topic}.",
        validator=Check(_format_fault),
    ),
    ConfigKey(
        CREATE,
        ConfigType.BOOLEAN,
        default=True,
        importance=Importance.MEDIUM,
        group="Topics",
        documentation="Whether topics and partitions are made that the target cluster lacks.",
    ),
    ConfigKey(
        REPLICATION,
        ConfigType.INT,
        default=-1,
        importance=Importance.LOW,
        group="Topics",
        documentation="How many brokers a topic is on that is made; -1 for the cluster's default.",
        validator=Check(lambda n: None if n == -1 or n > 0 else "must be -1 or at least 1"),
    ),
    ConfigKey(
        GROUP,
        ConfigType.STRING,
        default=None,
        importance=Importance.LOW,
        group="Topics",
        documentation="The consumer group of the target cluster whose offsets say how far copies "
        "have come, and what its transactional ids begin with; by default drover- and the "
        "connector's name. No other connector may have it.",
    ),
)
