"""Which Kafka the tests choose, and their message if there is none."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.addresses import free_ports
from tests.support.kafka.choice import NamedKafka, choose, give_up, start_chosen
from tests.support.kafka.docker_broker import DockerImage
from tests.support.kafka.jars import KafkaJars, kafka_version
from tests.support.kafka.missing import KafkaMissingError

JARS = KafkaJars("1.2.3", Path("jars"), Path("java"))
IMAGE = DockerImage(None, "1.2.3")


def has_jars(_environ: Mapping[str, str]) -> KafkaJars:
    return JARS


def no_jars(_environ: Mapping[str, str]) -> KafkaJars:
    raise KafkaMissingError("no mvn found in PATH; install Maven")


def has_image(_version: str) -> DockerImage:
    return IMAGE


def no_image(_version: str) -> DockerImage:
    raise KafkaMissingError("no Docker engine runs")


def test_a_named_broker_wins() -> None:
    choice = choose({"DROVER_TEST_KAFKA": " one:9092,two:9092 "}, jars=has_jars, image=has_image)

    assert choice == NamedKafka("one:9092,two:9092")


@pytest.mark.parametrize("environ", [{}, {"DROVER_TEST_KAFKA": "  "}])
def test_jars_come_before_an_image(environ: Mapping[str, str]) -> None:
    assert choose(environ, jars=has_jars, image=has_image) is JARS


def test_an_image_is_the_last_resort() -> None:
    assert choose({}, jars=no_jars, image=has_image) is IMAGE


def test_without_any_one_line_says_how_to_get_one() -> None:
    with pytest.raises(KafkaMissingError) as caught:
        choose({}, jars=no_jars, image=no_image)

    line = str(caught.value)
    assert "\n" not in line
    assert "install Maven" in line
    assert f"docker pull apache/kafka:{kafka_version()}" in line
    assert "DROVER_TEST_KAFKA=HOST:PORT" in line


@pytest.mark.parametrize("environ", [{}, {"CI": ""}, {"CI": "false"}])
def test_a_machine_without_kafka_skips(environ: Mapping[str, str]) -> None:
    with pytest.raises(pytest.skip.Exception, match="no engine"):
        give_up(KafkaMissingError("no engine"), environ)


@pytest.mark.parametrize("ci", ["true", "1", "True"])
def test_on_ci_that_is_a_failure(ci: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="CI is set, and no engine"):
        give_up(KafkaMissingError("no engine"), {"CI": ci})


def test_a_named_broker_that_does_not_answer_is_a_failure(tmp_path: Path) -> None:
    (port,) = free_ports(1)

    with ExitStack() as stack, pytest.raises(AssertionError, match=f"127.0.0.1:{port}: no broker"):
        start_chosen(NamedKafka(f"127.0.0.1:{port}"), tmp_path, stack)
