"""A worker of Kafka Connect (distributed mode) with the FileStream connectors and a REST client."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.addresses import HOST, free_ports
from tests.support.child_process import ChildProcess
from tests.support.kafka.connect_rest import ConnectRest
from tests.support.kafka.jars import KafkaJars
from tests.support.kafka.properties import write_properties

HEAP_MIB = 256
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"

#: Detects changes quickly; one replica of everything.
_SETTINGS: Mapping[str, object] = {
    "config.storage.replication.factor": 1,
    "offset.storage.replication.factor": 1,
    "status.storage.replication.factor": 1,
    "offset.flush.interval.ms": 500,
    "heartbeat.interval.ms": 500,
    "session.timeout.ms": 10_000,
    "rebalance.timeout.ms": 10_000,
    "scheduled.rebalance.max.delay.ms": 0,
    "task.shutdown.graceful.timeout.ms": 5_000,
    "connector.client.config.override.policy": "All",
    # after a kill a sink waits this long for its former consumer's session
    "consumer.session.timeout.ms": 6_000,
    "consumer.heartbeat.interval.ms": 1_000,
    "plugin.discovery": "service_load",
}


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """A Kafka Connect cluster: its group, its three topics, and its record settings."""

    group_id: str
    config_topic: str
    offset_topic: str
    status_topic: str
    offset_partitions: int = 5
    status_partitions: int = 2
    key_converter: str = STRING_CONVERTER
    value_converter: str = STRING_CONVERTER
    exactly_once_source: str = "disabled"
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def named(cls, name: str, *, exactly_once_source: str = "disabled") -> "ConnectOptions":
        """Options whose group and topics are named after ``name``."""
        return cls(
            *(name, f"{name}-configs", f"{name}-offsets", f"{name}-status"),
            exactly_once_source=exactly_once_source,
        )


class KafkaConnect:
    """One worker; several with the same options and broker form a cluster."""

    def __init__(
        self, jars: KafkaJars, bootstrap: str, directory: Path, options: ConnectOptions
    ) -> None:
        self.options = options
        self.directory = directory
        (self._port,) = free_ports(1)
        self._bootstrap = bootstrap
        self._properties = directory / "connect.properties"
        self.rest = ConnectRest(f"http://{HOST}:{self._port}")
        self.process = ChildProcess(
            "Kafka Connect",
            jars.command(
                "org.apache.kafka.connect.cli.ConnectDistributed",
                str(self._properties),
                heap_mib=HEAP_MIB,
                classes=[jars.connector_classes()],
            ),
            log_path=directory / "connect.log",
        )

    @property
    def log_path(self) -> Path:
        """The worker's log: warnings and errors."""
        return self.process.log_path

    def log_end(self) -> str:
        """The path of its log, and the last lines."""
        return self.process.shown_log()

    def start(self) -> None:
        """Start it; returns once it has joined its group and responds."""
        self.directory.mkdir(parents=True, exist_ok=True)
        write_properties(self._properties, self._settings())
        self.process.start(ready=self.rest.is_healthy)

    def stop(self) -> None:
        """Stop it gracefully: tasks commit their offsets, the worker leaves its group.

        A worker that hangs in its own shutdown is killed; that is no fault of Drover.
        """
        with contextlib.suppress(AssertionError):
            self.process.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def _settings(self) -> dict[str, object]:
        options = self.options
        return {
            **_SETTINGS,
            "bootstrap.servers": self._bootstrap,
            "group.id": options.group_id,
            "listeners": f"http://{HOST}:{self._port}",
            "rest.advertised.host.name": HOST,
            "config.storage.topic": options.config_topic,
            "offset.storage.topic": options.offset_topic,
            "status.storage.topic": options.status_topic,
            "offset.storage.partitions": options.offset_partitions,
            "status.storage.partitions": options.status_partitions,
            "key.converter": options.key_converter,
            "value.converter": options.value_converter,
            "exactly.once.source.support": options.exactly_once_source,
            **options.settings,
        }
