"""The tests' broker is a real one, and its processes leave nothing behind."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from drover.cli.doctor.finding import Level
from drover.cli.doctor.kafka import look_at_brokers
from tests.support.child_process import ChildProcess
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic, produce, read_all
from tests.support.repository import REPOSITORY
from tests.support.waiting import wait_until


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    return [record.value for record in read_all(bootstrap, topic)]


def test_a_record_is_read_back(kafka: Kafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}lines"
    create_topic(kafka.bootstrap, topic, partitions=2)

    produce(kafka.bootstrap, topic, [(b"a", b"one"), (b"b", None), (None, b"")])

    read = {(record.key, record.value) for record in read_all(kafka.bootstrap, topic)}
    assert read == {(b"a", b"one"), (b"b", None), (None, b"")}


def test_topics_are_not_made_by_themselves(kafka: Kafka, topic_prefix: str) -> None:
    with pytest.raises(AssertionError, match="UNKNOWN_TOPIC"):
        produce(
            kafka.bootstrap,
            f"{topic_prefix}nobody-made-it",
            [(None, b"lost")],
            settings={"topic.metadata.propagation.max.ms": 500, "message.timeout.ms": 20_000},
        )


def test_a_process_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    process = ChildProcess("the process", ["/bin/sh", "-c", "echo no such setting"], log_path=log)

    with pytest.raises(AssertionError, match="no such setting") as caught:
        process.start(ready=lambda: False)

    assert str(log) in str(caught.value)
    assert not process.is_alive


def test_a_process_dies_with_the_one_that_started_it(tmp_path: Path) -> None:
    starts_another = f"""
import pathlib, sys
from tests.support.child_process import ChildProcess
log = pathlib.Path({str(tmp_path / "log")!r})
child = ChildProcess("child", ["/bin/sleep", "300"], log_path=log)
child.start(ready=lambda: True)
print(child.pid, flush=True)
sys.stdin.read()
"""
    starter = subprocess.Popen(
        [sys.executable, "-c", starts_another],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with starter:
        assert starter.stdout is not None
        child = psutil.Process(int(starter.stdout.readline()))
        wait_until(lambda: child.name() == "sleep", describe="the child has become its program")
        starter.kill()

    try:
        wait_until(lambda: not child.is_running(), describe="the child is gone")
    finally:
        with suppress(psutil.NoSuchProcess):
            child.kill()


def test_the_doctor_finds_the_broker_sound(kafka: Kafka) -> None:
    found = look_at_brokers(f"kafka://{kafka.bootstrap}", "")
    assert [(each.check, each.level) for each in found] == [("brokers", Level.OK)]
