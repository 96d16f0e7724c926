"""Runs tasks on a small thread pool: each task is a job that does one micro-batch per run.

A job returns after each run and may request the next one. Ready jobs run first in, first out; a job
never runs on two threads. A waiting job costs one heap entry. A long run does not delay other jobs:
after a second its thread no longer counts against the pool.
"""

import heapq
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import structlog

#: A run longer than this no longer occupies a place in the pool.
_LONG_RUN_S = 1.0
#: The limit of all threads per place, including long runs.
_THREADS_PER_PLACE = 8
#: Longer pauses end on a common grid, so that one timer wakes many idle jobs.
_GRID_S = 0.025
_GRID_FROM_S = 0.1

log = structlog.get_logger(__name__)


class Job(Protocol):
    """A unit of work that the scheduler runs repeatedly."""

    @property
    def name(self) -> str:
        """Names the thread and log events."""

    @property
    def run_deadline(self) -> float | None:
        """When (time.monotonic) the current run is overdue; None for no limit."""

    def run_once(self) -> float | None:
        """Do one piece of work.


        Returns:
            Seconds until the next run; 0 for immediately, None to wait for ``wake``.
        """

    def run_overdue(self) -> None:
        """The current run passed its deadline and was abandoned; called once."""


class _State(Enum):
    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"


@dataclass(slots=True, eq=False)
class _Entry:
    job: Job
    state: _State = _State.WAITING
    #: Woken during its run: run again immediately.
    woken: bool = False
    removed: bool = False
    started_s: float = 0.0
    thread: threading.Thread | None = None
    #: Only the heap item with this number is valid.
    timer: int = -1
    #: Set when a removed job's last run has ended.
    ended: threading.Event = field(default_factory=threading.Event)


class Scheduler:
    """Runs jobs on a pool of daemon threads; thread-safe."""

    def __init__(
        self,
        *,
        place_count: int,
        on_hung: Callable[[threading.Thread, str], None] = lambda _thread, _name: None,
        on_returned: Callable[[threading.Thread], None] = lambda _thread: None,
    ) -> None:
        """Start the timer; pool threads are started on demand.

        Args:
            place_count: The number of concurrent runs, not counting long ones.
            on_hung: Called with the thread of an abandoned run.
            on_returned: Called when such a run has ended.
        """
        self._place_count = place_count
        self._on_hung = on_hung
        self._on_returned = on_returned
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._timer_changed = threading.Condition(self._lock)
        self._entries: dict[Job, _Entry] = {}
        self._ready: deque[_Entry] = deque()
        self._running: set[_Entry] = set()
        self._timers: list[tuple[float, int, _Entry]] = []
        self._numbers = itertools.count()
        self._idle_threads = 0
        self._thread_count = 0
        self._closed = False
        threading.Thread(target=self._keep_time, name="scheduler-timer", daemon=True).start()

    def add(self, job: Job) -> None:
        """Run ``job`` as soon as there is a place."""
        with self._lock:
            entry = _Entry(job)
            self._entries[job] = entry
            self._make_ready(entry)
            self._timer_changed.notify()

    def wake(self, job: Job) -> None:
        """End the pause of ``job``; if it is running, run it again immediately afterwards."""
        with self._lock:
            entry = self._entries.get(job)
            if entry is None:
                return
            if entry.state is _State.WAITING:
                self._make_ready(entry)
            elif entry.state is _State.RUNNING:
                entry.woken = True

    def remove(self, job: Job) -> threading.Event:
        """Stop running ``job``.

        Returns:
            An event that is set when the current run, if any, has ended.
        """
        with self._lock:
            entry = self._entries.pop(job, None)
            if entry is None:
                ended = threading.Event()
                ended.set()
                return ended
            entry.removed = True
            if entry.state is not _State.RUNNING:
                entry.ended.set()
            return entry.ended

    def give_up(self, job: Job) -> None:
        """Abandon the run of a removed job; its thread is replaced."""
        with self._lock:
            entry = next((each for each in self._running if each.job is job), None)
            thread = self._write_off(entry) if entry is not None else None
        if thread is not None:
            self._on_hung(thread, job.name)

    def give_place(self) -> None:
        """The run on this thread will wait: release its place until the run ends."""
        thread = threading.current_thread()
        with self._lock:
            for entry in self._running:
                if entry.thread is thread:
                    entry.started_s = -math.inf
            if self._ready and not self._idle_threads:
                self._grow()

    def close(self) -> None:
        """Start no further runs; current runs continue."""
        with self._lock:
            self._closed = True
            self._entries.clear()
            self._ready.clear()
            self._work.notify_all()
            self._timer_changed.notify_all()

    def _make_ready(self, entry: _Entry) -> None:
        entry.timer = -1
        entry.state = _State.READY
        self._ready.append(entry)
        if self._idle_threads:
            self._idle_threads -= (
                1  # now rather than at wake-up, as the next ready job needs another
            )
            self._work.notify()
        else:
            self._grow()

    def _grow(self) -> None:
        """Start a thread if the pool has a place for it; requires the lock."""
        long_since = time.monotonic() - _LONG_RUN_S
        placed = sum(1 for entry in self._running if entry.started_s > long_since)
        # threads that are neither idle nor running are starting
        starting = self._thread_count - self._idle_threads - len(self._running)
        if placed + starting >= self._place_count:
            return
        if self._thread_count >= self._place_count * _THREADS_PER_PLACE:
            return
        self._thread_count += 1
        threading.Thread(target=self._work_on, name="task-pool", daemon=True).start()

    def _work_on(self) -> None:
        thread = threading.current_thread()
        while True:
            with self._lock:
                entry = self._next_entry()
                if entry is None:
                    self._thread_count -= 1
                    return
                entry.state = _State.RUNNING
                entry.woken = False
                entry.started_s = time.monotonic()
                entry.thread = thread
                self._running.add(entry)
            thread.name = f"task:{entry.job.name}"
            pause_s = _run_once(entry.job)
            thread.name = "task-pool"
            with self._lock:
                if entry.thread is not thread:  # abandoned during the run, and replaced
                    entry.ended.set()
                    break
                self._end_run(entry, pause_s)
        self._on_returned(thread)

    def _next_entry(self) -> _Entry | None:
        """Wait for work; None when this thread should end. Requires the lock."""
        while True:
            while self._ready:
                entry = self._ready.popleft()
                if not entry.removed:
                    return entry
            if self._closed or self._idle_threads >= self._place_count:
                return None
            self._idle_threads += 1
            self._work.wait()

    def _end_run(self, entry: _Entry, pause_s: float | None) -> None:
        self._running.discard(entry)
        entry.thread = None
        entry.state = _State.WAITING
        if entry.removed or self._closed:
            entry.ended.set()
            return
        if entry.woken or pause_s == 0:
            self._make_ready(entry)
        elif pause_s is not None:
            due = time.monotonic() + pause_s
            if pause_s >= _GRID_FROM_S:
                due = math.ceil(due / _GRID_S) * _GRID_S
            entry.timer = next(self._numbers)
            heapq.heappush(self._timers, (due, entry.timer, entry))
            if self._timers[0][2] is entry:
                self._timer_changed.notify()

    def _write_off(self, entry: _Entry) -> threading.Thread | None:
        """Remove a running entry's thread from the pool; requires the lock."""
        thread = entry.thread
        if thread is None:
            return None
        entry.thread = None
        entry.removed = True
        self._running.discard(entry)
        self._thread_count -= 1
        self._entries.pop(entry.job, None)
        if self._ready and not self._idle_threads:
            self._grow()
        return thread

    def _keep_time(self) -> None:
        """Make entries ready when they are due, and abandon overdue runs."""
        while True:
            overdue: list[tuple[_Entry, threading.Thread]] = []
            with self._lock:
                if self._closed:
                    return
                now = time.monotonic()
                while self._timers and self._timers[0][0] <= now:
                    _, number, entry = heapq.heappop(self._timers)
                    if entry.timer == number and not entry.removed:
                        self._make_ready(entry)
                for entry in list(self._running):
                    deadline = entry.job.run_deadline
                    if deadline is not None and deadline <= now:
                        thread = self._write_off(entry)
                        if thread is not None:
                            overdue.append((entry, thread))
                if self._ready and not self._idle_threads:
                    self._grow()
                if not overdue:
                    self._timer_changed.wait(self._patience_s(now))
            for entry, thread in overdue:
                self._on_hung(thread, entry.job.name)
                entry.job.run_overdue()

    def _patience_s(self, now: float) -> float | None:
        """Time until the next timer or the next check of running jobs; requires the lock."""
        if not self._entries and not self._running:
            return None
        return min(self._timers[0][0] - now, _LONG_RUN_S) if self._timers else _LONG_RUN_S


def _run_once(job: Job) -> float | None:
    try:
        return job.run_once()
    except Exception:
        # jobs report their own failures; this is a defect, and must not end the pool's thread
        log.exception("a job's run failed", job=job.name)
        return None
