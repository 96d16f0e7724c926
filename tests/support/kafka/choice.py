"""Selects the Kafka for tests: a named one, one from jars, one in Docker; or the reason for
none.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.clients import answers
from tests.support.kafka.docker_broker import DockerImage, find_image, image_name
from tests.support.kafka.jars import KafkaJars, find_jars, kafka_version
from tests.support.kafka.missing import KafkaMissingError

VARIABLE = "DROVER_TEST_KAFKA"


@dataclass(frozen=True, slots=True)
class NamedKafka:
    """A broker outside this project's control; tests must not stop it."""

    bootstrap: str


Choice = NamedKafka | KafkaJars | DockerImage


@dataclass(frozen=True, slots=True)
class Kafka:
    """A running broker that all tests of a session share; topic prefixes separate the tests."""

    bootstrap: str


def choose(
    environ: Mapping[str, str] = os.environ,
    *,
    jars: Callable[[Mapping[str, str]], KafkaJars] = find_jars,
    image: Callable[[str], DockerImage] = find_image,
) -> Choice:
    """The first available of a named broker, the jars, and an image.

    Raises:
        KafkaMissingError: None is available; the message gives the reason and the remedy.
    """
    named = environ.get(VARIABLE, "").strip()
    if named:
        return NamedKafka(named)
    version = kafka_version()
    try:
        return jars(environ)
    except KafkaMissingError as no_jars:
        try:
            return image(version)
        except KafkaMissingError as no_image:
            raise KafkaMissingError(
                f"no Kafka to test with: {no_jars}; {no_image} "
                f"(docker pull {image_name(version)}); or name a broker with {VARIABLE}=HOST:PORT"
            ) from no_image


@contextmanager
def running_kafka(directory: Path, environ: Mapping[str, str] = os.environ) -> Iterator[Kafka]:
    """The chosen Kafka, started if necessary, and stopped at the end.

    Raises:
        KafkaMissingError: As ``choose``.
        AssertionError: It does not start, or a named one does not respond.
    """
    with ExitStack() as stack:
        yield start_chosen(choose(environ), directory, stack)


def start_chosen(choice: Choice, directory: Path, stack: ExitStack) -> Kafka:
    """Start it; ``stack`` stops it."""
    if isinstance(choice, NamedKafka):
        assert answers(choice.bootstrap), f"{VARIABLE} names {choice.bootstrap}: no broker answers"
        return Kafka(choice.bootstrap)
    if isinstance(choice, DockerImage):
        container = choice.start()
        stack.callback(container.stop)
        return Kafka(container.bootstrap)
    broker = KafkaBroker(choice, directory)
    broker.start()
    stack.callback(broker.stop)
    return Kafka(broker.bootstrap)


def give_up(reason: KafkaMissingError, environ: Mapping[str, str] = os.environ) -> NoReturn:
    """Skip the test; on CI, where everything must be available, fail it."""
    if environ.get("CI", "").lower() in {"1", "true", "yes"}:
        pytest.fail(f"CI is set, and {reason}", pytrace=False)
    pytest.skip(str(reason))
