"""Calls of a transactional producer, with corrected errors and bounded duration."""

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
    """Restore a fatal error that the binding raised from one of librdkafka's callbacks.

    The binding raises a fatal error, such as fencing by another writer, during delivery reports.
    The next report turns it into a SystemError with the error as its cause, or without: then the
    error is unknown, and _FATAL is raised.
    """
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise KafkaException(KafkaError(KafkaError._FATAL, fatal=True)) from error


def poll(producer: Producer | None) -> None:
    """Let pending callbacks run; the next write raises a fatal error again."""
    if producer is not None:
        with contextlib.suppress(KafkaException), as_raised():
            producer.poll(0)


def connect(producer: Producer, timeout_s: float) -> None:
    """Wait for a connection: without one an idempotent producer starts half a second later.

    Raises:
        KafkaException: No broker can be reached.
    """
    try:
        producer.cluster_id(timeout_s)
    except KafkaException as error:
        raise KafkaException(KafkaError(error.args[0].code())) from error


def left_s(deadline_s: float) -> float:
    """The time until a deadline on the monotonic clock; never negative."""
    return max(0.0, deadline_s - time.monotonic())


def why_given_up(producer: Producer) -> KafkaError:
    """The error of a transaction that lacks records, found by trying to commit it.

    Raises:
        InternalError: It was committed, which is a defect.
    """
    try:
        with as_raised():
            producer.commit_transaction(ABORT_S)
    except KafkaException as error:
        what = error.args[0]
        assert isinstance(what, KafkaError)
        return what
    raise InternalError("an incomplete transaction was committed")


def bounded(call: Callable[[], object], timeout_s: float) -> None:
    """Run a call on a new thread, to bound its duration.

    Its own timeout is not reliable: librdkafka loses requests to a group coordinator from which it
    disconnects.

    Raises:
        KafkaException: The call's error, or a fatal _TIMED_OUT; then the producer is unusable.
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
    """Retry a transactional call while its error is retriable; raises KafkaException."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        remaining_s = deadline_s - time.monotonic()
        try:
            with as_raised():
                call(max(remaining_s, 0.001))
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() >= deadline_s:
                raise
