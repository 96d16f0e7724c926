"""The storage of a cluster's logs, topics and offsets: a directory, or Kafka."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from drover.errors import InvalidArgumentError, Reason, Violation
from drover.log.directory import storage_directory
from drover.model.names import BROKER_TOPICS
from drover.model.secrets import MASK

SETTING = "DROVER_STORAGE_URL"
PARTITIONS, REPLICATION_FACTOR = "partitions", "replication.factor"
CLEANUP_POLICY = "cleanup.policy"
COMPACT = "compact"
"""The required cleanup policy of these topics: the last record of each key is kept."""


@dataclass(frozen=True, slots=True)
class EmbeddedStorage:
    """A directory of SQLite files, for the processes of one machine."""

    directory: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTopics:
    """The internal topics of a cluster.

    The first three have Kafka Connect's formats; ``control`` has Drover's own records. Partition
    counts and the replication factor apply to topics that Drover creates; a factor of -1 uses the
    brokers' default. Without ``create`` an operator creates the topics, as with Kafka Connect's
    ``internal.topics.automatic.creation.enable=false``.
    """

    config: str = "drover-configs"
    offset: str = "drover-offsets"
    status: str = "drover-status"
    control: str = "drover-control"
    offset_partitions: int = 25
    status_partitions: int = 5
    replication_factor: int = -1
    create: bool = True

    @property
    def names(self) -> frozenset[str]:
        """The names of the topics; connectors may not read or write them, as they have secrets."""
        return frozenset((self.config, self.offset, self.status, self.control))

    @property
    def contents(self) -> Mapping[str, str]:
        """What the topics contain, by their names, including the brokers' topics."""
        return {
            **dict.fromkeys(BROKER_TOPICS, "the brokers' own records"),
            self.control: "task claims and group states",
            self.status: "statuses",
            self.offset: "source offsets",
            self.config: "connector configs, with their secrets",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaStorage:
    """Topics of a Kafka cluster.

    ``group_id`` names the cluster of workers, like Kafka Connect's group.id. ``client_config`` has
    additional settings of Kafka clients, such as security.protocol.
    """

    bootstrap_servers: str
    group_id: str
    topics: KafkaTopics = field(default_factory=KafkaTopics)
    #: Left out of the repr, because it may have passwords.
    client_config: Mapping[str, str] = field(default_factory=dict, repr=False)


Storage = EmbeddedStorage | KafkaStorage


def parse_storage(
    storage_url: str,
    *,
    group_id: str,
    topics: KafkaTopics | None = None,
    client_config: Mapping[str, str] | None = None,
) -> Storage:
    """Parse ``sqlite:///absolute/path`` or ``kafka://host:9092,host:9092``.

    Raises:
        InvalidArgumentError: INVALID_CONFIG, another scheme, no absolute path, no brokers.
    """
    if not storage_url.startswith("kafka:"):
        return EmbeddedStorage(storage_directory(storage_url))
    return KafkaStorage(
        bootstrap_servers=_bootstrap_servers(storage_url),
        group_id=group_id,
        topics=topics or KafkaTopics(),
        client_config=dict(client_config or {}),
    )


def _bootstrap_servers(storage_url: str) -> str:
    url = urlsplit(storage_url)
    brokers = [each.strip() for each in url.netloc.split(",")]
    if url.path.strip("/") or url.query or url.fragment or "@" in url.netloc:
        raise _bad_url(
            storage_url,
            "must name brokers only: set client settings in DROVER_KAFKA_CONFIG, and topics in"
            " DROVER_CONFIG_STORAGE_TOPIC and similar settings",
        )
    for broker in brokers:
        host, colon, port = broker.rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
            raise _bad_url(
                storage_url, f"must be kafka://host:port,host:port: {broker!r} is not host:port"
            )
    return ",".join(brokers)


def _bad_url(storage_url: str, what: str) -> InvalidArgumentError:
    shown = re.sub(r"//.*@", f"//{MASK}@", storage_url)
    return InvalidArgumentError(
        Reason.INVALID_CONFIG,
        f"{SETTING} {shown!r}: {what}",
        violations=[Violation(SETTING, what)],
    )
