"""Compacts embedded topics in the background of an engine; one engine at a time does."""

import os
import threading
from uuid import uuid4

import structlog

from drover.dataplane.compaction import Compactor
from drover.dataplane.store import EmbeddedStore
from drover.errors import DroverError

INTERVAL_S = 15.0

log = structlog.get_logger(__name__)


def start_compaction(store: EmbeddedStore, stop: threading.Event) -> None:
    """Compact in a thread until ``stop``."""
    compactor = Compactor(store, f"{os.getpid()}-{uuid4().hex}", stop.wait)

    def run() -> None:
        while not stop.wait(INTERVAL_S):
            compact_once(compactor)

    threading.Thread(target=run, name="compaction", daemon=True).start()


def compact_once(compactor: Compactor) -> None:
    """Run the passes that are due; errors are logged."""
    try:
        result = compactor.run()
    except DroverError as error:
        log.warning("compaction is delayed: the store cannot be used", why=error.message)
    except Exception:
        log.exception("compaction failed")
    else:
        if result.record_count:
            log.info(
                "compaction removed records",
                record_count=result.record_count,
                size_bytes=result.size_bytes,
            )
