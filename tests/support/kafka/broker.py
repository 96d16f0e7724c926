"""A Kafka broker (KRaft) that tests kill and restart with its data.

It forms its own cluster, or joins another one; see ``KafkaCluster``.
"""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from drover.local.ports import is_free
from tests.support.addresses import HOST, free_ports
from tests.support.child_process import ChildProcess
from tests.support.kafka.clients import answers
from tests.support.kafka.jars import KafkaJars
from tests.support.kafka.properties import write_properties
from tests.support.kafka.tls import Tls
from tests.support.kafka.tokens import TokenKeys

HEAP_MIB = 512
_CLUSTER_ID = "RHJvdmVyLXRlc3RzLTEyMw"
_FORMAT_TIMEOUT_S = 120

#: Small and prompt: one node with one replica of each partition, without waiting for others.
QUICK_SETTINGS: Mapping[str, object] = {
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "num.partitions": 1,
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "controller.quorum.election.timeout.ms": 100,
    "controller.quorum.election.backoff.max.ms": 100,
    "broker.heartbeat.interval.ms": 300,
    # a restarted broker waits this long for its old session; a shorter stall keeps its leadership
    "broker.session.timeout.ms": 9_000,
    "num.network.threads": 2,
    "num.io.threads": 2,
    "background.threads": 2,
    "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
    "log.cleaner.io.buffer.size": 128 * 1024,
    "log.cleaner.backoff.ms": 500,
    "log.index.size.max.bytes": 1024 * 1024,
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 1_000,
}


@dataclass(frozen=True, slots=True)
class SaslUsers:
    """SASL/PLAIN users: passwords by user name, and the super user, who needs no ACL.

    A broker with users has a second listener for them and allows only what an ACL allows. The
    listener without authentication remains and permits everything: it is for the test.
    """

    passwords: Mapping[str, str]
    super_user: str = ""

    def client_settings(self, user: str) -> dict[str, str]:
        """A user's login settings for librdkafka."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": self.passwords[user],
        }

    def java_client_settings(self, user: str) -> dict[str, str]:
        """A user's login settings for a Java client."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": _jaas(username=user, password=self.passwords[user]),
        }


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """The options of one broker; ``settings`` override all others.

    ``tokens`` are for the listener of ``users``.

    ``controller`` is the address of the controller to join; without it a broker is its own.
    """

    auto_create_topics: bool = False
    users: SaslUsers | None = None
    tls: Tls | None = None
    tokens: TokenKeys | None = None
    port: int | None = None
    node_id: int = 1
    controller: str = ""
    heap_mib: int = HEAP_MIB
    settings: Mapping[str, str] = field(default_factory=dict)


class KafkaBroker:
    """A broker with its own folder and ports, which it keeps over any number of restarts."""

    def __init__(
        self, jars: KafkaJars, directory: Path, options: BrokerOptions | None = None
    ) -> None:
        self.options = options or BrokerOptions()
        self.directory = directory
        client, self._controller_port, self._sasl_port, self._tls_port = free_ports(4)
        self._port = self.options.port or client
        #: The controller quorum, unless it is broker 1 alone: ``node@address,…``.
        self.voters = ""
        self._jars = jars
        self._properties = directory / "server.properties"
        self.process = ChildProcess(
            f"the Kafka broker {self.options.node_id}",
            jars.command(
                *("kafka.Kafka", str(self._properties)),
                heap_mib=self.options.heap_mib,
                properties=() if self.options.tokens is None else [self.options.tokens.allowed],
            ),
            log_path=directory / "broker.log",
        )

    @property
    def bootstrap(self) -> str:
        """The listener without authentication."""
        return f"{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """The port of the listener without authentication."""
        return self._port

    @property
    def controller(self) -> str:
        """The controller's address, which other brokers join."""
        return self.options.controller or f"{HOST}:{self._controller_port}"

    @property
    def sasl_bootstrap(self) -> str:
        """The listener for ``SaslUsers``."""
        assert self.options.users is not None, "this broker was started without users"
        return f"{HOST}:{self._sasl_port}"

    @property
    def tls_bootstrap(self) -> str:
        """The listener for the client of ``Tls``."""
        assert self.options.tls is not None, "this broker was started without certificates"
        return f"{HOST}:{self._tls_port}"

    @property
    def log_path(self) -> Path:
        """The broker's log: warnings and errors."""
        return self.process.log_path

    def start(self) -> None:
        """Start it; returns once it serves. The first start formats its storage."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if not is_free(HOST, self._port):
            raise OSError(f"port {self._port} is in use: stop what listens there, or name another")
        write_properties(self._properties, self._settings())
        if not (self._data / "meta.properties").exists():
            self._format()
        self.process.start(ready=self._serves)

    def stop(self) -> None:
        """Stop it gracefully; does nothing if it does not run."""
        self.process.stop()

    def kill(self) -> None:
        """SIGKILL: the process is lost, its disk is not."""
        self.process.kill()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, no request is answered."""
        self.process.freeze()

    def thaw(self) -> None:
        """SIGCONT: it resumes late."""
        self.process.thaw()

    def revive(self) -> None:
        """Run again from any state: stopped, killed or frozen."""
        if self.process.is_alive:
            self.thaw()
        else:
            self.start()

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _serves(self) -> bool:
        return answers(self.bootstrap)

    def _format(self) -> None:
        done = subprocess.run(
            self._jars.command(
                *("kafka.tools.StorageTool", "format", "--ignore-formatted"),
                *("--cluster-id", _CLUSTER_ID, "--config", str(self._properties)),
                heap_mib=self.options.heap_mib,
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_FORMAT_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"the broker's storage was not formatted: {done.stdout}"

    def _settings(self) -> dict[str, object]:
        joins = bool(self.options.controller)
        listeners = {"PLAINTEXT": f"PLAINTEXT://{HOST}:{self._port}"}
        if not joins:
            listeners["CONTROLLER"] = f"CONTROLLER://{self.controller}"
        users, tls = self.options.users, self.options.tls
        if tls is not None:
            listeners["TLS"] = f"TLS://{self.tls_bootstrap}"
        if users is not None:
            listeners["SASL"] = f"SASL://{HOST}:{self._sasl_port}"
        return {
            **QUICK_SETTINGS,
            "process.roles": "broker" if joins else "broker,controller",
            "node.id": self.options.node_id,
            "log.dirs": self._data,
            "controller.quorum.voters": self.voters or f"1@{self.controller}",
            "listeners": ",".join(listeners.values()),
            "advertised.listeners": ",".join(
                address for name, address in listeners.items() if name != "CONTROLLER"
            ),
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL"
            ),
            "auto.create.topics.enable": str(self.options.auto_create_topics).lower(),
            **({} if users is None else _security(users)),
            **({} if tls is None else tls.broker_settings()),
            **({} if self.options.tokens is None else self.options.tokens.broker_settings()),
            **self.options.settings,
        }


def _security(users: SaslUsers) -> dict[str, object]:
    everyone = {f"user_{name}": password for name, password in users.passwords.items()}
    above_acls = ["User:ANONYMOUS", *([f"User:{users.super_user}"] if users.super_user else [])]
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(above_acls),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": _jaas(**everyone),
    }


def _jaas(**options: str) -> str:
    told = " ".join(f'{name}="{value}"' for name, value in options.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {told};"
