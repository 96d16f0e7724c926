"""The embedded store of a Spark executor process."""

import os
import threading
from pathlib import Path

from drover.dataplane.store import EmbeddedStore
from drover.errors import Reason, UnavailableError

_STORES_MAX = 4
_stores: dict[tuple[str, int, int, int], EmbeddedStore] = {}
_lock = threading.Lock()


def open_store(path: Path) -> EmbeddedStore:
    """The store at ``path``, opened once per process.

    Raises:
        UnavailableError: STORAGE_UNAVAILABLE, the file does not exist here; an executor never
            creates it.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise UnavailableError(
            Reason.STORAGE_UNAVAILABLE,
            f"{path} cannot be reached from this executor: {error}; embedded storage needs a local "
            "Spark master",
        ) from error
    key = (str(path), stat.st_dev, stat.st_ino, os.getpid())
    with _lock:
        store = _stores.get(key)
        if store is None:
            if len(_stores) >= _STORES_MAX:
                _stores.pop(next(iter(_stores)))
            store = _stores[key] = EmbeddedStore(path)
        return store
