"""A broker in a container: the requests to a fake Docker engine."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.kafka import docker_broker
from tests.support.kafka.docker_broker import DockerImage


@dataclass
class Engine:
    """The part of a Docker client that a broker needs, with its only container."""

    asked: dict[str, Any] = field(default_factory=dict)
    killed_count: int = 0

    @property
    def containers(self) -> "Engine":
        return self

    def run(self, image: str, **options: Any) -> "Engine":
        self.asked = {"image": image, **options}
        return self

    def logs(self, *, tail: int) -> bytes:
        return b"it does not start"[-tail:]

    def kill(self) -> None:
        self.killed_count += 1


def test_a_broker_listens_on_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_broker, "answers", lambda _bootstrap: True)
    engine = Engine()

    broker = DockerImage(engine, "9.8.7").start()

    host, _, port = broker.bootstrap.partition(":")
    assert engine.asked["image"] == "apache/kafka:9.8.7"
    assert engine.asked["ports"] == {"9092/tcp": (host, int(port))}
    assert host == "127.0.0.1"
    broker.stop()
    assert engine.killed_count == 1


def test_a_broker_that_does_not_start_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_broker, "answers", lambda _bootstrap: False)
    monkeypatch.setattr(docker_broker, "START_TIMEOUT_S", 0)
    engine = Engine()

    with pytest.raises(AssertionError, match="it does not start"):
        DockerImage(engine, "9.8.7").start()

    assert engine.killed_count == 1
