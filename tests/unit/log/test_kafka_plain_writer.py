"""A plain writer whose producer reports deliveries late or never."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from confluent_kafka import KafkaError, Producer

from drover.errors import Reason
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.records import Produced
from drover.log.kafka.writer import PlainWriter
from drover.testing import raises_reason
from tests.support.kafka.delivered import Delivered
from tests.support.kafka.logs import storage_on


class Silent:
    """A producer that accepts records and reports only the first deliveries."""

    def __init__(self, told_count: int) -> None:
        self._told_count = told_count
        self._reports: list[Callable[[KafkaError | None, Any], None]] = []

    def cluster_id(self, timeout_s: float) -> str:
        return "cluster"

    def produce(self, topic: str, *, on_delivery: Callable[..., None], **record: object) -> None:
        self._reports.append(on_delivery)

    def flush(self, timeout_s: float) -> int:
        told, self._reports = self._reports[: self._told_count], self._reports[self._told_count :]
        for offset, report in enumerate(told):
            report(None, Delivered(offset))
        self._told_count -= len(told)
        return len(self._reports)

    def purge(self) -> None:
        pass

    def poll(self, timeout_s: float) -> int:
        return 0


class SilentClient(KafkaClient):
    def __init__(self, told_count: int) -> None:
        super().__init__(storage_on("127.0.0.1:1", "x-"))
        self._told_count = told_count

    def producer(self, settings: Mapping[str, object]) -> Producer:
        return cast("Producer", Silent(self._told_count))


def records(count: int) -> list[Produced]:
    return [Produced("topic", b"%d" % index, b"v") for index in range(count)]


async def test_records_that_nobody_tells_of_are_not_taken_for_written() -> None:
    client = SilentClient(told_count=2)
    writer = PlainWriter(client)
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "topic"):
        await writer.write(records(3))
    assert await writer.write(records(2)) == [(0, 0), (0, 1)], "a new producer writes them"
    await writer.close()
    await client.close()
