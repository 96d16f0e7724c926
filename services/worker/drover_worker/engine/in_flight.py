"""A table of the connectors and tasks at work in an engine, in memory that outlives the engine.

The engine marks each connector and task that has a batch or a plugin call in flight, in a table of
slots in a memory file that the herder creates. When the engine ended, the herder reads which ones
were at work, and which ones were at work last. Marking takes microseconds and no system call.
"""

import mmap
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from drover.model.ids import TaskId
from drover.model.names import CONNECTOR_NAME_MAX_CHARS
from drover.model.status import StatusKey
from drover_worker.engine.process_constants import ExitCode
from drover_worker.engine.process_watch import ProcessWatch

_SLOT_COUNT = 512
#: Values of a slot's flag.
_UNUSED, _USED, _ENDED = range(3)
#: Values of the byte about its plugin.
_NO_CALL, _CALLED, _DAMAGED = range(3)
_UTF8_BYTES_MAX = 4
#: A slot: flag, the byte about its plugin, then _HEAD and the key "task number:connector name".
_FLAG_BYTES, _CALL_BYTES = 1, 1
#: When the work started or ended; whether the task has completed a run; since when it is known;
#: the thread; the length of the key.
_HEAD = struct.Struct("<q?qIH")
_HEAD_START = _FLAG_BYTES + _CALL_BYTES
_TIME = struct.Struct("<q")
_TEXT_START = _HEAD_START + _HEAD.size
_SLOT_BYTES = _TEXT_START + len("1000000:") + CONNECTOR_NAME_MAX_CHARS * _UTF8_BYTES_MAX
_TABLE_BYTES = _SLOT_COUNT * _SLOT_BYTES


@dataclass(frozen=True, slots=True)
class Mark:
    """A connector or task that is at work, or was.

    Attributes:
        key: The connector or task.
        is_seasoned: It has completed a run in this engine before.
        in_call: Code of its plugin is being called on the driver.
        started_ns: When the work or its last plugin call started, by a monotonic clock.
        thread_id: The kernel's id of the thread.
        since_ns: When it was started in this engine, or last called outside of its runs.
        ended_ns: When the work ended; None while it is at work.
        has_damaged: Its plugin has damaged the process, which therefore ends.
    """

    key: StatusKey
    is_seasoned: bool
    in_call: bool
    started_ns: int
    thread_id: int
    since_ns: int = 0
    ended_ns: int | None = None
    has_damaged: bool = False


class InFlight:
    """The engine's side of the table; thread-safe."""

    def __init__(self, descriptor: int | None = None, watch: ProcessWatch | None = None) -> None:
        """Mark nothing yet.

        Args:
            descriptor: The herder's memory file; without one nothing is marked.
            watch: Checks the process after each plugin call.
        """
        self._watch = watch or ProcessWatch()
        #: The slots of the plugin calls in progress.
        self._called: set[int] = set()
        self._table = mmap.mmap(descriptor, _TABLE_BYTES) if descriptor is not None else None
        self._lock = threading.Lock()
        #: The slot that was released first is used first, so that ended work is readable longest.
        self._free = deque(range(_SLOT_COUNT) if self._table is not None else ())
        #: Tasks that have completed a run.
        self._seasoned: set[StatusKey] = set()
        #: See ``Mark.since_ns``.
        self._since_ns: dict[StatusKey, int] = {}
        #: Keys that stay marked after their work ends.
        self._kept: set[StatusKey] = set()
        #: The slot and the key of the work on this thread.
        self._local = threading.local()
        self._process_id = os.getpid()

    @contextmanager
    def at_work(self, key: StatusKey, *, is_run: bool = False) -> Iterator[None]:
        """Mark ``key`` while the block runs; ``is_run`` when the block is a run of the task."""
        if not is_run:
            self._watch.started(key)
        table, start = self._table, self._take_slot()
        if table is None or start is None:
            yield
            return
        text = _encode(key)
        now_ns = time.monotonic_ns()
        since_ns = self._since_ns.setdefault(key, now_ns) if is_run else now_ns
        self._since_ns[key] = since_ns
        thread_id = threading.get_native_id()
        table[start] = _UNUSED
        head = (now_ns, key in self._seasoned, since_ns, thread_id, len(text))
        _HEAD.pack_into(table, start + _HEAD_START, *head)
        table[start + _FLAG_BYTES] = _NO_CALL
        table[start + _TEXT_START : start + _TEXT_START + len(text)] = text
        # the flag is written last: a set flag means that the slot is complete
        table[start] = _USED
        outer, self._local.work = getattr(self._local, "work", None), (start, key)
        try:
            yield
        finally:
            self._local.work = outer
            if key not in self._kept:
                _TIME.pack_into(table, start + _HEAD_START, time.monotonic_ns())
                table[start] = _ENDED
                with self._lock:
                    if is_run:
                        self._seasoned.add(key)
                    self._free.append(start // _SLOT_BYTES)

    @contextmanager
    def plugin_call(self) -> Iterator[None]:
        """Mark that the work on this thread calls code of its plugin while the block runs.

        A process that the plugin forked, and that returns from the call, ends here: it shares the
        connections of the engine and would corrupt them. The engine ends here as well if the code
        damaged its process.
        """
        table, work = self._table, getattr(self._local, "work", None)
        if table is None or work is None:
            yield
            return
        start, key = work
        _TIME.pack_into(table, start + _HEAD_START, time.monotonic_ns())
        table[start + _FLAG_BYTES] = _CALLED
        self._called.add(start)
        self._watch.call_began(key)
        try:
            yield
        finally:
            if os.getpid() != self._process_id:
                os._exit(0)
            if not self._watch.call_ended(key):
                for each in tuple(self._called):
                    table[each + _FLAG_BYTES] = _DAMAGED
                os._exit(ExitCode.DAMAGED)
            self._called.discard(start)
            table[start + _FLAG_BYTES] = _NO_CALL

    def keep(self, key: StatusKey) -> None:
        """Leave ``key`` marked, because the engine is about to end during its current work."""
        self._kept.add(key)

    def _take_slot(self) -> int | None:
        with self._lock:
            return self._free.popleft() * _SLOT_BYTES if self._free else None


def new_table() -> int:
    """The descriptor of a new memory file for ``InFlight``."""
    descriptor = os.memfd_create("drover-in-flight", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, _TABLE_BYTES)
    return descriptor


def read_table(descriptor: int) -> tuple[Mark, ...] | None:
    """The connectors and tasks at work, and the last ones that were; None when all slots of the
    table were in use, as some may be missing.
    """
    with mmap.mmap(descriptor, _TABLE_BYTES, prot=mmap.PROT_READ) as table:
        flags = {start: table[start] for start in range(0, _TABLE_BYTES, _SLOT_BYTES)}
        if all(flag == _USED for flag in flags.values()):
            return None
        return tuple(_mark_at(table, start, flag) for start, flag in flags.items() if flag)


def _mark_at(table: mmap.mmap, start: int, flag: int) -> Mark:
    time_ns, is_seasoned, since_ns, thread_id, length = _HEAD.unpack_from(
        table, start + _HEAD_START
    )
    text = table[start + _TEXT_START : start + _TEXT_START + length]
    call = table[start + _FLAG_BYTES]
    return Mark(
        key=_decode(text),
        is_seasoned=is_seasoned,
        in_call=call == _CALLED,
        started_ns=time_ns,
        thread_id=thread_id,
        since_ns=since_ns,
        ended_ns=time_ns if flag == _ENDED else None,
        has_damaged=call == _DAMAGED,
    )


def _encode(key: StatusKey) -> bytes:
    return (f"{key.task}:{key.connector}" if isinstance(key, TaskId) else f":{key}").encode()


def _decode(text: bytes) -> StatusKey:
    task, _, connector = text.decode().partition(":")
    return TaskId(connector, int(task)) if task else connector
