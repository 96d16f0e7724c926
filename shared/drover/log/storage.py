"""Where a cluster keeps its logs, topics and offsets: a directory, or Kafka."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from drover.errors import InvalidArgumentError, Reason, Violation
from drover.log.directory import storage_directory
from drover.model.secrets import MASK

SETTING = "DROVER_STORAGE_URL"
CLEANUP_POLICY = "cleanup.policy"
COMPACT = "compact"
"""What such a topic has to have: a topic's last record of each key is kept."""


@dataclass(frozen=True, slots=True)
class EmbeddedStorage:
    """A directory of SQLite files, for the processes of one machine."""

    directory: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTopics:
    """The topics that a cluster keeps itself in.

    The first three are those of Kafka Connect and mean the same to it; ``control`` holds what is
    Drover's own. Partition counts and the replication factor are for topics that are made here; -1
    leaves the latter to the brokers.
    """

    config: str = "drover-configs"
    offset: str = "drover-offsets"
    status: str = "drover-status"
    control: str = "drover-control"
    offset_partitions: int = 25
    status_partitions: int = 5
    replication_factor: int = -1

    @property
    def names(self) -> frozenset[str]:
        """The topics; they hold secrets and what the cluster relies on, so connectors may neither
        read nor write them.
        """
        return frozenset((self.config, self.offset, self.status, self.control))


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaStorage:
    """Topics of a Kafka cluster.

    ``group_id`` names the cluster of workers, as Kafka Connect's group.id. ``client_config`` are
    further settings of Kafka's clients, such as security.protocol.
    """

    bootstrap_servers: str
    group_id: str
    topics: KafkaTopics = field(default_factory=KafkaTopics)
    #: Not shown where the value is printed: passwords are among them.
    client_config: Mapping[str, str] = field(default_factory=dict, repr=False)


Storage = EmbeddedStorage | KafkaStorage


def parse_storage(
    storage_url: str,
    *,
    group_id: str,
    topics: KafkaTopics | None = None,
    client_config: Mapping[str, str] | None = None,
) -> Storage:
    """What ``sqlite:///absolute/path`` or ``kafka://host:9092,host:9092`` names.

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
            "it names brokers only; everything else is in DROVER_KAFKA_CONFIG and the names of"
            " topics in DROVER_CONFIG_STORAGE_TOPIC and the like",
        )
    for broker in brokers:
        host, colon, port = broker.rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
            raise _bad_url(
                storage_url, f"{broker!r} is no broker; it has to be kafka://host:port,host:port"
            )
    return ",".join(brokers)


def _bad_url(storage_url: str, what: str) -> InvalidArgumentError:
    shown = re.sub(r"//.*@", f"//{MASK}@", storage_url)
    return InvalidArgumentError(
        Reason.INVALID_CONFIG,
        f"{SETTING} {shown!r}: {what}",
        violations=[Violation(SETTING, what)],
    )
