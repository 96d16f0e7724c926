"""Removing what topics no longer have to keep."""

import threading

import structlog

from drover.dataplane.store import DEFAULT_RETENTION_MS, EmbeddedStore
from drover.errors import DroverError

_INTERVAL_S = 60.0
#: Transactions in a row, so that writers get their turns also when there is much to remove.
_ROUNDS_MAX = 100

log = structlog.get_logger(__name__)


def start_housekeeping(
    store: EmbeddedStore,
    closed: threading.Event,
    *,
    retention_ms: int | None = DEFAULT_RETENTION_MS,
    retention_bytes: int | None = None,
    interval_s: float = _INTERVAL_S,
) -> threading.Thread:
    """Apply retention now and every ``interval_s`` until ``closed``.

    Every engine of a machine may do so: what one has removed is no more work for the others.
    """

    def keep_house() -> None:
        while not closed.is_set():
            try:
                _remove(store, closed, retention_ms, retention_bytes)
            except DroverError as error:
                log.warning("retention waits for the store", error=error.message)
            closed.wait(interval_s)

    thread = threading.Thread(target=keep_house, name="housekeeping", daemon=True)
    thread.start()
    return thread


def _remove(
    store: EmbeddedStore,
    closed: threading.Event,
    retention_ms: int | None,
    retention_bytes: int | None,
) -> None:
    record_count = 0
    for _ in range(_ROUNDS_MAX):
        removed = store.apply_retention(retention_ms=retention_ms, retention_bytes=retention_bytes)
        record_count += removed.record_count
        if not removed.batch_count or closed.is_set():
            break
    if record_count:
        log.info("removed old records", record_count=record_count)
