"""A table of the connectors and tasks at work in an engine, in memory that outlives the engine.

The engine marks each connector and task that has a batch or a plugin call in flight, in a table of
slots in a memory file that the herder creates. When the engine ended, the herder reads which ones
were at work. Marking takes microseconds and no system call.
"""

import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from drover.model.ids import TaskId
from drover.model.names import CONNECTOR_NAME_MAX_CHARS
from drover.model.status import StatusKey

_SLOT_COUNT = 512
#: Values of a slot's flag.
_UNUSED, _USED = range(2)
_UTF8_BYTES_MAX = 4
#: A slot: flag, whether a plugin call runs, then _HEAD and the key "task number:connector name".
_FLAG_BYTES, _CALL_BYTES = 1, 1
#: Whether the task has completed a run; the start; the thread; the length of the key.
_HEAD = struct.Struct("<?qIH")
_HEAD_START = _FLAG_BYTES + _CALL_BYTES
_STARTED, _STARTED_START = struct.Struct("<q"), _HEAD_START + struct.calcsize("<?")
_TEXT_START = _HEAD_START + _HEAD.size
_SLOT_BYTES = _TEXT_START + len("1000000:") + CONNECTOR_NAME_MAX_CHARS * _UTF8_BYTES_MAX
_TABLE_BYTES = _SLOT_COUNT * _SLOT_BYTES


@dataclass(frozen=True, slots=True)
class Mark:
    """A connector or task at work.

    Attributes:
        key: The connector or task.
        is_seasoned: It has completed a run in this engine before.
        in_call: Code of its plugin is being called on the driver.
        started_ns: When the work or its last plugin call started, by a monotonic clock.
        thread_id: The kernel's id of the thread.
    """

    key: StatusKey
    is_seasoned: bool
    in_call: bool
    started_ns: int
    thread_id: int


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
        #: The slot of the work on this thread.
        self._local = threading.local()
        self._process_id = os.getpid()

    @contextmanager
    def at_work(self, key: StatusKey, *, is_run: bool = False) -> Iterator[None]:
        """Mark ``key`` while the block runs; ``is_run`` when the block is a run of the task."""
        table, start = self._table, self._take_slot()
        if table is None or start is None:
            yield
            return
        text = _encode(key)
        thread_id = threading.get_native_id()
        head = (key in self._seasoned, time.monotonic_ns(), thread_id, len(text))
        _HEAD.pack_into(table, start + _HEAD_START, *head)
        table[start + _FLAG_BYTES] = False
        table[start + _TEXT_START : start + _TEXT_START + len(text)] = text
        # the flag is written last: a set flag means that the slot is complete
        table[start] = _USED
        outer, self._local.start = getattr(self._local, "start", None), start
        try:
            yield
        finally:
            self._local.start = outer
            if key not in self._kept:
                table[start] = _UNUSED
                with self._lock:
                    if is_run:
                        self._seasoned.add(key)
                    self._free.append(start // _SLOT_BYTES)

    @contextmanager
    def plugin_call(self) -> Iterator[None]:
        """Mark that the work on this thread calls code of its plugin while the block runs.

        A process that the plugin forked, and that returns from the call, ends here: it shares the
        connections of the engine and would corrupt them.
        """
        table, start = self._table, getattr(self._local, "start", None)
        if table is not None and start is not None:
            _STARTED.pack_into(table, start + _STARTED_START, time.monotonic_ns())
            table[start + _FLAG_BYTES] = True
        try:
            yield
        finally:
            if os.getpid() != self._process_id:
                os._exit(0)
            if table is not None and start is not None:
                table[start + _FLAG_BYTES] = False

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


def read_table(descriptor: int) -> tuple[Mark, ...] | None:
    """The connectors and tasks at work; None when the table was full, as some may be missing."""
    with mmap.mmap(descriptor, _TABLE_BYTES, prot=mmap.PROT_READ) as table:
        marked = [start for start in range(0, _TABLE_BYTES, _SLOT_BYTES) if table[start]]
        return (
            tuple(_mark_at(table, start) for start in marked) if len(marked) < _SLOT_COUNT else None
        )


def _mark_at(table: mmap.mmap, start: int) -> Mark:
    is_seasoned, started_ns, thread_id, length = _HEAD.unpack_from(table, start + _HEAD_START)
    text = table[start + _TEXT_START : start + _TEXT_START + length]
    in_call = bool(table[start + _FLAG_BYTES])
    return Mark(_decode(text), is_seasoned, in_call, started_ns, thread_id)


def _encode(key: StatusKey) -> bytes:
    return (f"{key.task}:{key.connector}" if isinstance(key, TaskId) else f":{key}").encode()


def _decode(text: bytes) -> StatusKey:
    task, _, connector = text.decode().partition(":")
    return TaskId(connector, int(task)) if task else connector
