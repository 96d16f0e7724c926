"""A broker in a container, for machines with a Docker engine and Kafka's image but without jars."""

from collections.abc import Mapping
from typing import Any

from tests.support.addresses import HOST, free_ports
from tests.support.kafka.broker import QUICK_SETTINGS
from tests.support.kafka.clients import answers
from tests.support.kafka.missing import KafkaMissingError
from tests.support.waiting import wait_until

START_TIMEOUT_S = 120
_ENGINE_TIMEOUT_S = 10


def image_name(version: str) -> str:
    """The name of Kafka's own image of the release."""
    return f"apache/kafka:{version}"


def find_image(version: str) -> "DockerImage":
    """The image, if an engine runs and already has it; it is never pulled.

    Raises:
        KafkaMissingError: There is no engine, or it has no such image.
    """
    try:
        import docker  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise KafkaMissingError("the docker package is not installed") from error
    try:
        client = docker.from_env(timeout=_ENGINE_TIMEOUT_S)
    except docker.errors.DockerException as error:
        raise KafkaMissingError("no Docker engine runs") from error
    try:
        client.images.get(image_name(version))
    except docker.errors.DockerException as error:
        client.close()
        raise KafkaMissingError(f"Docker has no image {image_name(version)}") from error
    return DockerImage(client, version)


class DockerImage:
    """Kafka's image on this machine's engine."""

    def __init__(self, client: Any, version: str) -> None:
        self._client = client
        self.version = version

    def start(self) -> "DockerBroker":
        """Start a broker on a free loopback port; returns once it serves."""
        (port,) = free_ports(1)
        container = self._client.containers.run(
            image_name(self.version),
            detach=True,
            auto_remove=True,
            ports={"9092/tcp": (HOST, port)},
            environment=container_environment(port),
        )
        broker = DockerBroker(container, f"{HOST}:{port}")
        try:
            wait_until(
                lambda: answers(broker.bootstrap), timeout_s=START_TIMEOUT_S, describe=broker.log
            )
        except BaseException:
            broker.stop()
            raise
        return broker


class DockerBroker:
    """A container that is removed with its data when it is stopped."""

    def __init__(self, container: Any, bootstrap: str) -> None:
        self._container = container
        self.bootstrap = bootstrap

    def log(self) -> str:
        """The broker's output."""
        return str(self._container.logs(tail=50).decode(errors="replace"))

    def stop(self) -> None:
        """Kill it: its data is discarded, so no graceful stop is needed."""
        self._container.kill()


def container_environment(port: int) -> dict[str, str]:
    """A broker's settings in the image's notation."""
    settings: Mapping[str, object] = {
        **QUICK_SETTINGS,
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "auto.create.topics.enable": "false",
    }
    spelled = {f"KAFKA_{key.upper().replace('.', '_')}": str(at) for key, at in settings.items()}
    return {**spelled, "KAFKA_HEAP_OPTS": "-Xmx512m"}
