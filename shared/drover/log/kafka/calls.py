"""Calls of a transactional producer, with what librdkafka makes of their errors set right."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from drover.errors import InternalError

ABORT_S = 1.0
LATE_S = 2.0


@contextlib.contextmanager
def as_raised() -> Iterator[None]:
    """What the binding raises out of librdkafka's callbacks, as it was meant.

    It raises a fatal error, such as that another writer has begun, while delivery reports are being
    called, and the next report makes a SystemError of it, or forgets it: then it is _FATAL.
    """
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise KafkaException(KafkaError(KafkaError._FATAL, fatal=True)) from error


def poll(producer: Producer | None) -> None:
    """Have callbacks called; what is fatal is met again by the next write."""
    if producer is not None:
        with contextlib.suppress(KafkaException), as_raised():
            producer.poll(0)


def connect(producer: Producer, timeout_s: float) -> None:
    """Wait for a connection: an idempotent producer without one begins half a second later.

    Raises:
        KafkaException: There is none.
    """
    try:
        producer.cluster_id(timeout_s)
    except KafkaException as error:
        raise KafkaException(KafkaError(error.args[0].code())) from error


def left_s(deadline_s: float) -> float:
    """How long it is until a moment of the monotonic clock; 0 behind it."""
    return max(0.0, deadline_s - time.monotonic())


def why_given_up(producer: Producer) -> KafkaError:
    """Why a transaction cannot be committed that lacks records; raises InternalError if it can."""
    try:
        with as_raised():
            producer.commit_transaction(ABORT_S)
    except KafkaException as error:
        what = error.args[0]
        assert isinstance(what, KafkaError)
        return what
    raise InternalError("a transaction was committed that lacks records")


def bounded(call: Callable[[], object], timeout_s: float) -> None:
    """Call it on a thread of its own, for it may never end, though it was told until when it may
    last: librdkafka forgets its requests to a coordinator that it lets go.

    Raises:
        KafkaException: Its own, or a fatal _TIMED_OUT; then the producer cannot be used any more.
    """
    ended: Future[None] = Future()

    def run() -> None:
        try:
            call()
        except (KafkaException, SystemError) as error:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    threading.Thread(target=run, name="kafka call", daemon=True).start()
    try:
        with as_raised():
            ended.result(timeout_s + LATE_S)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, fatal=True)) from None


def insist(call: Any, timeout_s: float) -> None:
    """Repeat a transactional call as long as Kafka says that it may be; raises KafkaException."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        left_s = deadline_s - time.monotonic()
        try:
            with as_raised():
                call(max(left_s, 0.001))
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() >= deadline_s:
                raise
