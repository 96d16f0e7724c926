"""Waits for the end of a thread that uses a client of librdkafka."""

import threading

import structlog

_logger = structlog.get_logger(__name__)

LET_GO_S = 5.0
"""Clients end at once or never: librdkafka may wait for responses of brokers that have moved."""


def wait_until_ended(thread: threading.Thread, finished: threading.Event) -> None:
    """Wait until the thread has ``finished`` its work and then, for some time, until it ends.

    Nothing depends on the end of its client. The thread should be a daemon, because it may run
    until the end of the process.
    """
    finished.wait()
    thread.join(LET_GO_S)
    if thread.is_alive():
        _logger.warning("a Kafka client does not shut down and is abandoned", thread=thread.name)
