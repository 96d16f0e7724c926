"""A transactional writer whose producer fails a transaction."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from drover.errors import Reason
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.records import GroupPosition, Produced
from drover.log.kafka.writer import TransactionalWriter
from drover.testing import raises_reason
from tests.support.kafka.delivered import Delivered
from tests.support.kafka.logs import storage_on

Report = Callable[[KafkaError | None, Any], None]

PURGED = KafkaError(KafkaError._PURGE_QUEUE)
REFUSED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, txn_requires_abort=True)


class GivesUpOnce:
    """Refuses the last record of its first transaction and purges the others."""

    def __init__(self) -> None:
        self._reports: list[Report] = []
        self._gives_up = True
        self._failed = False

    def cluster_id(self, timeout_s: float) -> str:
        return "cluster"

    def init_transactions(self, timeout_s: float) -> None:
        pass

    def begin_transaction(self) -> None:
        assert not self._failed

    def produce(self, topic: str, *, on_delivery: Report, **record: object) -> None:
        self._reports.append(on_delivery)

    def flush(self, timeout_s: float) -> int:
        reports, self._reports = self._reports, []
        if reports and self._gives_up:
            self._gives_up, self._failed = False, True
            for report in reports[:-1]:
                report(PURGED, Delivered(-1))
            reports[-1](REFUSED, Delivered(-1))
        else:
            for offset, report in enumerate(reports):
                report(None, Delivered(offset))
        return 0

    def send_offsets_to_transaction(self, *arguments: object) -> None:
        threading.Event().wait()

    def commit_transaction(self, timeout_s: float) -> None:
        if self._failed:
            raise KafkaException(REFUSED)

    def abort_transaction(self, timeout_s: float) -> None:
        self._failed = False

    def purge(self, *, in_flight: bool = True) -> None:
        pass

    def poll(self, timeout_s: float) -> int:
        return 0


class GivesUpClient(KafkaClient):
    def producer(self, settings: Mapping[str, object]) -> Producer:
        return cast("Producer", GivesUpOnce())


def records(count: int) -> list[Produced]:
    return [Produced("topic", b"%d" % index, b"v") for index in range(count)]


async def test_who_may_have_sent_what_was_thrown_away_is_no_writer_any_more() -> None:
    client = GivesUpClient(storage_on("127.0.0.1:1", "x-"))
    writer = TransactionalWriter(client, "writer")
    await writer.begin()
    with raises_reason(Reason.STORAGE_MISCONFIGURED, "ACL"):
        await writer.write(records(2))
    with raises_reason(Reason.STALE_WRITER_EPOCH, "begin again"):
        await writer.write(records(1))
    await writer.close()
    await client.close()


async def test_a_record_that_was_refused_alone_leaves_the_writer_as_it_is() -> None:
    client = GivesUpClient(storage_on("127.0.0.1:1", "x-"))
    writer = TransactionalWriter(client, "writer")
    await writer.begin()
    with raises_reason(Reason.STORAGE_MISCONFIGURED, "ACL"):
        await writer.write(records(1))
    assert await writer.write(records(2)) == [(0, 0), (0, 1)]
    await writer.close()
    await client.close()


async def test_a_call_that_does_not_end_costs_the_writer_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drover.log.kafka.calls.LATE_S", 0.1)
    client = GivesUpClient(storage_on("127.0.0.1:1", "x-"), timeout_s=0.2)
    monkeypatch.setattr(TransactionalWriter, "_group_metadata", lambda _, group_id: group_id)
    writer = TransactionalWriter(client, "writer")
    await writer.begin()
    position = GroupPosition("connect-sink", "topic", 0, 5)
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "nothing was written"):
        await writer.write([], [position])
    with raises_reason(Reason.STALE_WRITER_EPOCH, "begin again"):
        await writer.write(records(1))
    await writer.close()
    await client.close()
