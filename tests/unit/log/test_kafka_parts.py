"""Parts of a log on Kafka that need no broker."""

import asyncio
import logging

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from drover.errors import DroverError, Reason
from drover.log.claims import WriterClaim
from drover.log.connect_json import UnreadableRecordError
from drover.log.kafka import codec, errors
from drover.log.kafka.progress import Progress
from drover.log.kafka.records import EARLIEST, KafkaRecord, ReadBatch
from drover.log.kafka.repeated_line_filter import MAX_REMEMBERED_LINES, repeated_line_filter
from drover.log.log import LogRecord, closed_error
from drover.model.ids import Term
from drover.testing import raises_reason

# records and claims


def test_a_record_has_headers_for_what_it_has() -> None:
    bare = codec.to_produced(LogRecord(b"k", None), topic="t", partition=3, now_ms=7)
    assert (bare.headers, bare.timestamp_ms, bare.partition) == ((), 7, 3)
    full = codec.to_produced(
        LogRecord(b"k", b"v", "r", "ü", 5), topic="t", partition=None, now_ms=7
    )
    assert full.headers == (("drover-request-id", b"r"), ("drover-author", "ü".encode()))
    assert full.timestamp_ms == 5


def test_offsets_are_kafkas_or_counted() -> None:
    records = [KafkaRecord(1, 40, 5, None, b"v"), KafkaRecord(0, 7, 6, b"k", None)]
    assert [one.offset for one in codec.to_stored(records)] == [40, 7]
    counted = codec.to_stored(records, 100)
    assert [one.offset for one in counted] == [100, 101]
    assert counted[0].record == LogRecord(b"", b"v")


def test_a_claim_is_read_as_it_was_written() -> None:
    claim = WriterClaim("w", Term(3, 1), 9)
    assert codec.dump_claim(claim) == b'{"owner":"w","generation":3,"sequence":1,"epoch":9}'
    assert codec.parse_claim(codec.dump_claim(claim)) == claim


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"{}",
        b'{"owner":1,"generation":3,"sequence":1,"epoch":9}',
        b'{"owner":"w","generation":"3","sequence":1,"epoch":9}',
    ],
)
def test_what_is_no_claim_is_told(value: bytes) -> None:
    with pytest.raises(UnreadableRecordError):
        codec.parse_claim(value)


# errors


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (KafkaError._TRANSPORT, Reason.STORAGE_UNAVAILABLE),
        (KafkaError.NOT_ENOUGH_REPLICAS, Reason.STORAGE_UNAVAILABLE),
        (KafkaError.MSG_SIZE_TOO_LARGE, Reason.TOO_LARGE),
        (KafkaError.INVALID_TIMESTAMP, Reason.INVALID_REQUEST),
        (KafkaError._FENCED, Reason.STALE_WRITER_EPOCH),
        (KafkaError.PRODUCER_FENCED, Reason.STALE_WRITER_EPOCH),
        (KafkaError.UNKNOWN_MEMBER_ID, Reason.NON_EMPTY_GROUP),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Reason.STORAGE_MISCONFIGURED),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Reason.STORAGE_MISCONFIGURED),
        (KafkaError._AUTHENTICATION, Reason.STORAGE_MISCONFIGURED),
        (KafkaError.INVALID_REPLICATION_FACTOR, Reason.STORAGE_MISCONFIGURED),
        (KafkaError._AUTO_OFFSET_RESET, Reason.LOG_CORRUPT),
        (KafkaError._BAD_MSG, Reason.LOG_CORRUPT),
    ],
)
def test_kafkas_errors_have_a_meaning(code: int, reason: Reason) -> None:
    error = errors.as_error(KafkaError(code), doing="the try failed", topic="t", brokers="b:1")
    assert error.reason is reason
    assert error.message.startswith("the try failed")
    assert error.metadata["topic"] == "t"


@pytest.mark.parametrize(
    ("code", "silent"), [(KafkaError._TIMED_OUT, True), (KafkaError.LEADER_NOT_AVAILABLE, False)]
)
def test_silence_is_told_from_an_answer(code: int, silent: bool) -> None:
    error: DroverError = closed_error()
    error.__cause__ = KafkaException(KafkaError(code))
    assert errors.is_silence(error) is silent
    assert not errors.is_silence(closed_error())


# what librdkafka logs


def test_a_line_is_told_once_however_its_numbers_change() -> None:
    logger = repeated_line_filter()
    with capture_logs() as told:
        for port in range(1_000, 1_005):
            logger.log(logging.ERROR, "FAIL [%s] connection to 127.0.0.1:%d refused", "x", port)
        logger.info("something else")
    assert [(each["log_level"], each["line"][:5]) for each in told] == [
        ("warning", "FAIL "),
        ("info", "somet"),
    ]


def test_to_be_fenced_is_no_warning() -> None:
    with capture_logs() as told:
        repeated_line_filter().error("TXNERR fenced by a newer instance")
    assert [each["log_level"] for each in told] == ["info"]


def test_what_was_told_is_remembered_within_bounds() -> None:
    logger = repeated_line_filter()
    with capture_logs() as told:
        for kind in range(MAX_REMEMBERED_LINES + 1):
            logger.info("x" * (kind + 1))
        logger.info("x")
    assert len(told) == MAX_REMEMBERED_LINES + 2


# progress


def batch(partition: int, *offsets: int, position: int) -> ReadBatch:
    records = [KafkaRecord(partition, offset, 0, b"k", b"v") for offset in offsets]
    return ReadBatch(records, {partition: position})


async def test_progress_wakes_who_has_waited_for_it() -> None:
    progress = Progress({0: EARLIEST, 1: 5})
    near = asyncio.create_task(progress.reach({0: 2}, 30))
    far = asyncio.create_task(progress.reach({0: 4, 1: 6}, 30))
    await asyncio.sleep(0)
    progress.advance(batch(0, 0, 1, position=2))
    await near
    progress.advance(batch(0, position=4))
    assert not far.done()
    progress.advance(batch(1, 5, position=6))
    await far
    await progress.reach({0: 4}, 0)
    assert progress.ends == {0: 2, 1: 6}
    assert progress.record_count == 3


async def test_progress_that_ends_tells_why() -> None:
    progress = Progress({0: 0})
    waiting = asyncio.create_task(progress.reach({0: 1}, 30))
    await asyncio.sleep(0)
    progress.fail(DroverError(Reason.LOG_CORRUPT, "gone"))
    progress.fail(closed_error())
    for wait in (waiting, progress.reach({0: 1}, 30)):
        with raises_reason(Reason.LOG_CORRUPT):
            await wait
    await progress.reach({0: 0}, 30)


async def test_progress_that_does_not_come_is_given_up() -> None:
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "{0: 1}"):
        await Progress({0: 0}).reach({0: 1}, 0)
