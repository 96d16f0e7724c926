"""Clients that a process keeps, as connecting anew for each batch would cost more than the batch.

A Python worker of Spark is such a process, and so is the driver.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from drover.log.kafka.client import KafkaClient
from drover.log.storage import KafkaStorage

#: Kept while nobody uses them; more than one is used at a time on the driver only.
_IDLE_MAX = 8
_CLIENTS_MAX = 4

T = TypeVar("T")
_Key = tuple[int, str, tuple[tuple[str, str], ...]]

_clients: dict[_Key, KafkaClient] = {}
_lock = threading.Lock()


def shared_client(storage: KafkaStorage) -> KafkaClient:
    """The process's way to a cluster."""
    key = storage_key(storage)
    with _lock:
        client = _clients.get(key)
        if client is None:
            if len(_clients) >= _CLIENTS_MAX:
                _clients.pop(next(iter(_clients)))
            client = _clients[key] = KafkaClient(storage)
        return client


def storage_key(storage: KafkaStorage) -> _Key:
    """Equal for storages whose clients are interchangeable, within one process."""
    return os.getpid(), storage.bootstrap_servers, tuple(sorted(storage.client_config.items()))


class Pool(Generic[T]):
    """Things that one user at a time has, made when none is idle."""

    def __init__(self, make: Callable[[KafkaStorage], T], close: Callable[[T], object]) -> None:
        self._make = make
        self._close = close
        self._idle: dict[_Key, list[T]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, storage: KafkaStorage) -> Iterator[T]:
        """One that is idle, or a new one; it is closed instead of kept after an error."""
        key = storage_key(storage)
        with self._lock:
            idle = self._idle.setdefault(key, [])
            item = idle.pop() if idle else None
        if item is None:
            item = self._make(storage)
        try:
            yield item
        except BaseException:
            self._close(item)
            raise
        with self._lock:
            keep = len(idle) < _IDLE_MAX
            if keep:
                idle.append(item)
        if not keep:
            self._close(item)
