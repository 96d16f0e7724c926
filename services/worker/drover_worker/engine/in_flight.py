"""A table of the connectors and tasks at work in an engine, in memory that outlives the engine.

The engine marks each connector and task that has a batch or a plugin call in flight, in a table of
slots in a memory file that the herder creates. When the engine was killed, the herder reads which
ones were at work. Marking takes microseconds and no system call.
"""

import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from drover.model.ids import TaskId
from drover.model.names import CONNECTOR_NAME_MAX_CHARS
from drover.model.status import StatusKey

_SLOT_COUNT = 512
#: Values of a slot's flag: seasoned means that the task has completed a run.
_UNUSED, _NEW, _SEASONED = range(3)
_UTF8_BYTES_MAX = 4
#: A slot: flag, length, then the key "task number:connector name".
_FLAG_BYTES = 1
_LENGTH_BYTES = 2
_HEAD_BYTES = _FLAG_BYTES + _LENGTH_BYTES
_SLOT_BYTES = _HEAD_BYTES + len("1000000:") + CONNECTOR_NAME_MAX_CHARS * _UTF8_BYTES_MAX
_TABLE_BYTES = _SLOT_COUNT * _SLOT_BYTES


class InFlight:
    """The engine's side of the table; thread-safe."""

    def __init__(self, descriptor: int | None = None) -> None:
        """``descriptor`` is the herder's memory file; without one nothing is marked."""
        self._table = mmap.mmap(descriptor, _TABLE_BYTES) if descriptor is not None else None
        self._lock = threading.Lock()
        self._free = list(range(_SLOT_COUNT)) if self._table is not None else []
        #: Tasks that have completed a run.
        self._seasoned: set[StatusKey] = set()
        #: Keys that stay marked after their work ends.
        self._kept: set[StatusKey] = set()

    @contextmanager
    def at_work(self, key: StatusKey, *, is_run: bool = False) -> Iterator[None]:
        """Mark ``key`` while the block runs; ``is_run`` when the block is a run of the task."""
        table, start = self._table, self._take_slot()
        if table is None or start is None:
            yield
            return
        text = _encode(key)
        table[start + _FLAG_BYTES : start + _HEAD_BYTES] = len(text).to_bytes(_LENGTH_BYTES)
        table[start + _HEAD_BYTES : start + _HEAD_BYTES + len(text)] = text
        # the flag is written last: a set flag means that the slot is complete
        table[start] = _SEASONED if key in self._seasoned else _NEW
        try:
            yield
        finally:
            if key not in self._kept:
                table[start] = _UNUSED
                with self._lock:
                    if is_run:
                        self._seasoned.add(key)
                    self._free.append(start // _SLOT_BYTES)

    def keep(self, key: StatusKey) -> None:
        """Leave ``key`` marked, because the engine is about to end during its current work."""
        self._kept.add(key)

    def _take_slot(self) -> int | None:
        with self._lock:
            return self._free.pop() * _SLOT_BYTES if self._free else None


def new_table() -> int:
    """The descriptor of a new memory file for ``InFlight``."""
    descriptor = os.memfd_create("drover-in-flight", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, _TABLE_BYTES)
    return descriptor


def read_table(descriptor: int) -> tuple[StatusKey, ...] | None:
    """The connectors and tasks at work that had not completed a run; all of them if there is none.

    When memory runs out, healthy tasks block as well, so tasks that have completed a run are not
    suspects while there is another.

    Returns:
        None when the table was full, as keys may be missing.
    """
    with mmap.mmap(descriptor, _TABLE_BYTES, prot=mmap.PROT_READ) as table:
        marked = [start for start in range(0, _TABLE_BYTES, _SLOT_BYTES) if table[start]]
        if len(marked) == _SLOT_COUNT:
            return None
        new = [start for start in marked if table[start] == _NEW]
        return tuple({_decode(_text_at(table, start)): None for start in new or marked})


def _text_at(table: mmap.mmap, start: int) -> bytes:
    length = int.from_bytes(table[start + _FLAG_BYTES : start + _HEAD_BYTES])
    return table[start + _HEAD_BYTES : start + _HEAD_BYTES + length]


def _encode(key: StatusKey) -> bytes:
    return (f"{key.task}:{key.connector}" if isinstance(key, TaskId) else f":{key}").encode()


def _decode(text: bytes) -> StatusKey:
    task, _, connector = text.decode().partition(":")
    return TaskId(connector, int(task)) if task else connector
