"""The end of a thread that has worked with a client of librdkafka."""

import threading

import structlog

_logger = structlog.get_logger(__name__)

LET_GO_S = 5.0
"""Clients end at once, or may never: librdkafka waits for what brokers that moved do not answer."""


def wait_until_ended(thread: threading.Thread, finished: threading.Event) -> None:
    """Wait until the thread has ``finished`` its work and, within bounds, until its client ended.

    Nothing depends on the latter. The thread should be a daemon: it may be left to the end of the
    process.
    """
    finished.wait()
    thread.join(LET_GO_S)
    if thread.is_alive():
        _logger.warning("a client of Kafka does not end and is left behind", thread=thread.name)
