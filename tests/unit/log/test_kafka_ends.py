"""Writers and readers end although their Kafka clients hang on close."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest
from confluent_kafka import Consumer
from structlog.testing import capture_logs

from drover.log.kafka import client_shutdown
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.jobs import JobThread
from drover.log.kafka.reader import TopicReader
from tests.support.kafka.logs import storage_on

LEFT_BEHIND = "a Kafka client does not shut down and is abandoned"


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The event that a client's close waits for; the end of the test sets it."""
    monkeypatch.setattr(client_shutdown, "LET_GO_S", 0.1)
    event = threading.Event()
    yield event
    event.set()


class Hanging:
    """A consumer without records whose close hangs."""

    def __init__(self, hang: threading.Event) -> None:
        self._hang = hang

    def assign(self, partitions: object) -> None:
        pass

    def poll(self, timeout_s: float) -> None:
        pass

    def close(self) -> None:
        self._hang.wait()


class HangingClient(KafkaClient):
    def __init__(self, hang: threading.Event) -> None:
        super().__init__(storage_on("127.0.0.1:1", "x-"))
        self._hang = hang

    def consumer(self, settings: Mapping[str, object]) -> Consumer:
        return cast("Consumer", Hanging(self._hang))

    def describe_topic_now(self, topic: str) -> Any:
        raise TimeoutError


async def test_a_writer_does_what_is_queued_and_ends(hang: threading.Event) -> None:
    def never_end() -> None:
        hang.wait()

    thread = JobThread(
        "writer", do=lambda jobs: [None] * len(jobs), idle=lambda: None, end=never_end
    )
    job = thread.submit()
    with capture_logs() as logs:
        await asyncio.to_thread(thread.stop)
    assert [each["event"] for each in logs] == [LEFT_BEHIND]
    assert await job == []


async def test_a_reader_tells_its_end_and_ends(hang: threading.Event) -> None:
    client = HangingClient(hang)
    reader = TopicReader(client, "topic", {0: 0})
    batches = asyncio.ensure_future(anext(reader.batches(), None))
    with capture_logs() as logs:
        await reader.close()
    assert [each["event"] for each in logs] == [LEFT_BEHIND]
    assert await batches is None
    await client.close()
