"""KafkaSink: copies topics into another Kafka cluster unchanged."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from drover.connector import (
    ONCE,
    TOLERANCE,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    OffsetChange,
    OverwriteKey,
    RetriableError,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    SkippedCheck,
    TopicPartition,
    Violation,
    compiled_pattern,
)
from drover.connector import TOPIC_NAME as VALID_TOPIC
from drover.connectors.aliases import KAFKA_SINK
from drover.connectors.kafka.access import ClusterAccess, copies_faults, group_faults
from drover.connectors.kafka.cluster import (
    ClusterError,
    ReservedError,
    client_faults,
    client_settings,
    cluster_keys,
    known_own_cluster,
    noting,
    topics_of,
    translated_errors,
)
from drover.connectors.kafka.writer import (
    TOPIC_NAME,
    ClusterWriter,
    Target,
    set_back,
    traced_offsets,
)
from drover.connectors.output_ids import output_ids_of
from drover.connectors.refused_records import write_batch
from drover.policy.consumer_groups import group_violations

if TYPE_CHECKING:
    from confluent_kafka.admin import ClusterMetadata

PREFIX, PRODUCER_PREFIX = "target.cluster.", "target.producer."
SERVERS = f"{PREFIX}bootstrap.servers"
FORMAT, CREATE, REPLICATION = "topic.format", "topics.create", "topics.replication.factor"
GROUP = "offsets.group.id"


class KafkaSinkTask(SinkTask):
    """Writes each batch in transactions, at least one per partition."""

    writes_ahead: ClassVar[bool] = True

    def start(self, context: SinkTaskContext) -> None:
        """Read the settings; executors own the producers."""
        config = context.config
        self._context = context
        self._writer = ClusterWriter(
            target_of(config, context.task.connector), tolerates=config[TOLERANCE] == "all"
        )

    def write(self, batch: SinkBatch) -> str:
        """Write the batch and its offsets; reject the records that the cluster refuses."""
        writer = replace(self._writer, output_ids=output_ids_of(batch, self._context))
        write_batch(batch, writer)
        return ""


class KafkaSink(SinkConnector):
    """Copies topics into another Kafka cluster unchanged: keys, values, headers and timestamps,
    byte for byte and in the same partitions.

    Each record is written once: a transaction commits the offsets of its records, as offsets of the
    consumer group ``offsets.group.id`` for the copy. Consumers of the copy must use read_committed.
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
        """Records must stay bytes, and the client's settings must be allowed."""
        default = _default_group(config.get("name") or "")
        return [
            *_faults_of_bytes(config),
            *client_faults(config, PREFIX, PRODUCER_PREFIX),
            *group_violations(GROUP, config.get(GROUP), default),
        ]

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The cluster must be reachable."""
        from confluent_kafka import KafkaError, KafkaException, Producer

        told: list[KafkaError] = []
        try:
            target = target_of(config, config["name"])
            client = dict(target.client)
            producer = Producer({**client, "log_level": 0, "error_cb": noting(told)})
        except (ValueError, RetriableError) as error:
            return [Violation(SERVERS, str(error))]
        except KafkaException as error:
            return [Violation(SERVERS, error.args[0].str())]
        try:
            with translated_errors("cannot be used", told):
                found = topics_of(producer, told)
        except (ClusterError, RetriableError) as error:
            return [Violation(SERVERS, str(error))]
        topics = config.get("topics") or ()
        faults = [
            *_reserved_faults(target, found.cluster_id, topics or _matching(config, found)),
            *_name_faults(target, topics),
        ]
        return faults or _access_faults(target, topics)

    @classmethod
    def overwrite_keys(cls, config: Mapping[str, Any]) -> Sequence[OverwriteKey]:
        """In the copy the last record of a key counts, as with compaction."""
        is_by_topic = "${topic}" in config[FORMAT]
        return (OverwriteKey(per_topic=is_by_topic, keyless_appends=True),)

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """Change the group's offsets as well, so that records are written again."""
        wanted = {
            (str(place["kafka_topic"]), int(str(place["kafka_partition"]))): (
                int(str(offset["kafka_offset"])) if offset else 0
            )
            for place, offset in changes
        }
        # without changes: a reset without committed offsets
        set_back(target_of(config, config["name"]), wanted or None)
        return True

    @classmethod
    def traced_offsets(
        cls, connector: str, config: Mapping[str, Any], partitions: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, int]:
        """The offsets of the group in the target cluster."""
        return traced_offsets(target_of(config, connector), partitions)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """All tasks have the same config; they differ in their topic partitions."""
        return [{} for _ in range(max_tasks)]


def target_of(config: Mapping[str, Any], connector: str) -> Target:
    """The target of a parsed config.

    Raises:
        ValueError: A setting has no counterpart, or connectors must not set it.
        RetriableError: The id of Drover's own cluster is not known yet.
    """
    client = client_settings(config, PREFIX, PRODUCER_PREFIX)
    return Target(
        tuple(sorted(client.items())),
        group=config[GROUP] or _default_group(connector),
        topic_format=config[FORMAT],
        creates=config[CREATE],
        replication_factor=config[REPLICATION],
        connector=connector,
        own_cluster=known_own_cluster(),
        topics=frozenset(config.get("topics") or ()),
        pattern=config.get("topics.regex") or "",
    )


def _default_group(connector: str) -> str:
    return f"drover-{connector}"


def _reserved_faults(
    target: Target, cluster_id: str | None, topics: Sequence[str]
) -> list[Violation]:
    """The first topic and group of Drover's own cluster that the config names."""
    faults: dict[str, Violation] = {}
    for topic in topics or ("",):
        for setting, check in ((FORMAT, target.check_topic), (GROUP, target.check_group)):
            try:
                check(cluster_id, topic)
            except ReservedError as error:
                faults.setdefault(setting, Violation(setting, str(error)))
    return list(faults.values())


def _matching(config: Mapping[str, Any], found: "ClusterMetadata") -> list[str]:
    """The topics of the target cluster that the sink would read if it were Drover's own."""
    pattern = config.get("topics.regex")
    return [each for each in found.topics if pattern and compiled_pattern(pattern).matches(each)]


def _name_faults(target: Target, topics: Sequence[str]) -> list[Violation]:
    return [
        Violation(FORMAT, f"names the copy of {topic}, which {fault}")
        for topic in topics
        for fault in VALID_TOPIC.faults(target.topic_of(topic))
    ]


def _access_faults(target: Target, topics: Sequence[str]) -> list[Violation]:
    """What the cluster would reject of the copies and of the group."""
    from confluent_kafka import KafkaException

    faults: list[Violation] = []
    try:
        access = ClusterAccess(dict(target.client))
        faults += copies_faults(
            access,
            {target.topic_of(topic): "topics" for topic in topics},
            creates=target.creates,
            replication_factor=target.replication_factor,
            settings=(REPLICATION, CREATE, FORMAT),
        )
        faults += group_faults(access, target.group, GROUP)
    except (KafkaException, TimeoutError) as error:
        text = f"the rights in the target cluster were not checked: {error}"
        faults.append(SkippedCheck(SERVERS, text))
    return faults


def _faults_of_bytes(config: Mapping[str, Any]) -> list[Violation]:
    faults = []
    if config.get("transforms"):
        text = (
            "are not supported by a sink that copies bytes: transform the records at their source"
        )
        faults.append(Violation("transforms", text))
    for name in ("key.converter", "value.converter"):
        found = str(config.get(name) or "ByteArrayConverter")
        if not found.endswith("ByteArrayConverter"):
            text = "must be ByteArrayConverter: records are copied as bytes"
            faults.append(Violation(name, text))
    return faults


def _format_fault(text: str) -> str | None:
    return (
        None
        if TOPIC_NAME in text
        else f"must contain {TOPIC_NAME}, so that each topic has its own copy"
    )


_KEYS = (
    ConfigKey(
        FORMAT,
        ConfigType.STRING,
        default=TOPIC_NAME,
        importance=Importance.HIGH,
        group="Topics",
        documentation="The names of copies, such as west.${topic}.",
        validator=Check(_format_fault),
    ),
    ConfigKey(
        CREATE,
        ConfigType.BOOLEAN,
        default=True,
        importance=Importance.MEDIUM,
        group="Topics",
        documentation="Whether to create topics and partitions that the target cluster lacks.",
    ),
    ConfigKey(
        REPLICATION,
        ConfigType.INT,
        default=-1,
        importance=Importance.LOW,
        group="Topics",
        documentation="The replication factor of created topics; -1 for the cluster's default.",
        validator=Check(lambda n: None if n == -1 or n > 0 else "must be -1 or at least 1"),
    ),
    ConfigKey(
        GROUP,
        ConfigType.STRING,
        default=None,
        importance=Importance.LOW,
        group="Topics",
        documentation="The consumer group of the target cluster for the offsets of copies, and "
        "the prefix of transactional ids; by default drover- and the connector's name. It must be "
        "unique to the connector.",
    ),
)
