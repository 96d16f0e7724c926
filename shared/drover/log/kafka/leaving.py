"""The end of a thread that has worked with a client of librdkafka."""

import threading

import structlog

_logger = structlog.get_logger(__name__)

LET_GO_S = 5.0
"""Clients end at once, or may never: librdkafka waits for what brokers that moved do not answer."""


def wait_until_let_go(thread: threading.Thread) -> None:
    """Wait, within bounds, for a thread whose work is done and that only ends its client.

    Nothing depends on that. The thread should be a daemon: it is left to the end of the process.
    """
    thread.join(LET_GO_S)
    if thread.is_alive():
        _logger.warning("a client of Kafka does not end and is left behind", thread=thread.name)
