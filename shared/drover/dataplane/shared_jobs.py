"""Runs small passes of several tasks as one Spark job.

A job costs some 35 ms of CPU, most of it in the JVM, for any number of records: many tasks with a
small batch per second would be busy with that alone. Passes that arrive while a shared job runs are
combined in the next one, and each returns its own answer. After a job with several passes the next
one waits briefly for more of them, otherwise there would be as many jobs per second as the machine
can do.

A few tasks would only wait for each other: below a limit each task has its own jobs. A pass that
took long, failed, or was lost with its job gets its own job the next time, so that a hanging or
crashing pass affects others only once.
"""

import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from drover.dataplane.answers import Answering, PassLostError

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

#: The longest duration of a pass on its executor after which the next one may share a job.
SMALL_S = 0.1
#: Limits for a pickled pass, and for all passes of a job: Spark broadcasts more than a MiB.
_PASS_BYTES_MAX = 256 * 1024
_JOB_BYTES_MAX = 768 * 1024
_PASSES_MAX = 64
#: The least work per core: an additional one costs as much as some passes.
_CORE_S = 0.05
#: How the pause before the next job grows with each pass of the last job: by the duration of that
#: job, at most so many times, and limited in total.
_PAUSES_MAX = 3
_PAUSE_MAX_S = 0.1
#: A task with a small pass within this time counts as active.
_AT_WORK_S = 1.0
#: A longer job is cancelled, and may take as long again to end.
_LIMIT_S = 15.0
_CANCELLED_S = 10.0
#: Executors may be added or removed.
_CORES_KNOWN_S = 10.0
#: The name of both the job group and the pool.
_NAME = "passes of several tasks"

#: Whether this Python worker runs a pass of a shared job; it does one thing at a time.
_rides = False
_rider: ContextVar["Rider | None"] = ContextVar("rider", default=None)
_own_job: ContextVar[Callable[[], None]] = ContextVar("own_job", default=lambda: None)


@dataclass(frozen=True, slots=True)
class _Cores:
    """The number of cores, and the end of its validity."""

    context: object = None
    count: int = 0
    until_s: float = 0.0


_cores = _Cores()


@dataclass(slots=True, eq=False)
class _Waiting:
    """A pass, and its answer once available."""

    pickled: bytes
    abandoned: Callable[[], bool]
    #: The expected duration on its executor.
    expected_s: float
    ended: threading.Event = field(default_factory=threading.Event)
    answer: bytes | None = None
    error: BaseException | None = None

    def end(self, answer: bytes | None = None, *, error: BaseException | None = None) -> None:
        """Wake up the task."""
        self.answer, self.error = answer, error
        self.ended.set()


@dataclass(frozen=True)
class _Passes:
    """The answers of pickled passes, by number; runs on executors."""

    pickled: tuple[bytes, ...]

    def __call__(self, numbers: Iterable[int]) -> Iterator[bytes]:
        global _rides
        for number in numbers:
            _rides = True
            try:
                yield from Answering(_Unpickled(self.pickled[number]))(number)
            finally:
                _rides = False


@dataclass(frozen=True)
class _Unpickled:
    """Runs a pickled pass; a failure to unpickle is an answer as well."""

    pickled: bytes

    def __call__(self, number: int) -> Iterable[Any]:
        del number
        work: Callable[[], Iterable[Any]] = pickle.loads(self.pickled)
        return work()


class SharedJobs:
    """Runs passes of several tasks together, one job at a time; thread-safe."""

    def __init__(
        self,
        context: "SparkContext",
        dumps: Callable[[object], bytes],
        *,
        on_wait: Callable[[], None] = lambda: None,
        alone_max: int = 0,
        limit_s: float = _LIMIT_S,
    ) -> None:
        """``dumps`` pickles as Spark does; ``on_wait`` is called by each thread before it waits for
        its pass; up to ``alone_max`` active tasks do not share jobs.
        """
        self._context = context
        self._dumps = dumps
        self._on_wait = on_wait
        self._alone_max = alone_max
        self._limit_s = limit_s
        #: When each active task last had a small pass, oldest first.
        self._at_work: dict[object, float] = {}
        self._came = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._closed = threading.Event()
        #: A job could not be ended: no passes are shared any longer.
        self._stuck = False
        threading.Thread(target=self._work, name="shared-jobs", daemon=True).start()

    def close(self) -> None:
        """Start no further job."""
        with self._came:
            self._closed.set()
            self._came.notify()

    def are_due(self, task: object) -> bool:
        """Whether small passes should share jobs, now that ``task`` has one: too many tasks are
        active for separate jobs.
        """
        now_s = time.monotonic()
        with self._came:
            self._at_work.pop(task, None)
            self._at_work[task] = now_s
            while now_s - self._at_work[oldest := next(iter(self._at_work))] > _AT_WORK_S:
                del self._at_work[oldest]
            return len(self._at_work) > self._alone_max

    def answer(
        self,
        work: Callable[[], Iterable[Any]],
        *,
        abandoned: Callable[[], bool],
        expected_s: float = 0.0,
    ) -> bytes | None:
        """The answer of a pass in a shared job; None if it needs its own job.

        ``expected_s`` is its expected duration on the executor. ``abandoned`` is called before the
        job starts: a task that another worker has taken over should not start to write.

        Raises:
            PassLostError: Its job was lost, or its task was abandoned.
        """
        pickled = self._pickled(work)
        if pickled is None:
            return None
        waiting = _Waiting(pickled, abandoned, expected_s)
        with self._came:
            if self._closed.is_set() or self._stuck:
                return None
            self._waiting.append(waiting)
            self._came.notify()
        self._on_wait()
        # for the previous job and its own
        if not waiting.ended.wait(2 * self._limit_s):
            self._context.cancelJobGroup(_NAME)
            if not waiting.ended.wait(_CANCELLED_S):
                self._stuck = True
                raise PassLostError(f"a job of several tasks took over {self._limit_s:.0f} s")
        if waiting.error is not None:
            raise PassLostError(
                f"a job of several tasks was lost: {waiting.error}"
            ) from waiting.error
        return waiting.answer

    def _pickled(self, work: Callable[[], Iterable[Any]]) -> bytes | None:
        pickled = self._dumps(work)
        broadcasts = self._context._pickled_broadcast_vars
        if next(iter(broadcasts), None) is not None:
            broadcasts.clear()  # executors get them with the job that uses them
            return None
        return pickled if len(pickled) <= _PASS_BYTES_MAX else None

    def _work(self) -> None:
        self._context.setJobGroup(_NAME, _NAME)
        self._context.setLocalProperty("spark.scheduler.pool", _NAME)
        while taken := self._next():
            passes = []
            for each in taken:
                if each.abandoned():
                    each.end(error=PassLostError("its task was abandoned"))
                else:
                    passes.append(each)
            began_s = time.monotonic()
            try:
                answers = self._run(passes) if passes else []
            except Exception as error:  # noqa: BLE001 - noqa: BLE001 - py4j raises various errors for a lost job
                for each in passes:
                    each.end(error=error)
            else:
                for each, answer in zip(passes, answers, strict=True):
                    each.end(answer)
            self._closed.wait(pause_s(len(passes), time.monotonic() - began_s))

    def _next(self) -> list[_Waiting]:
        """The passes of the next job; empty after ``close``."""
        taken: list[_Waiting] = []
        with self._came:
            while not self._waiting and not self._closed.is_set():
                self._came.wait()
            size_bytes = 0
            while self._waiting and len(taken) < _PASSES_MAX:
                size_bytes += len(self._waiting[0].pickled)
                if taken and size_bytes > _JOB_BYTES_MAX:
                    break
                taken.append(self._waiting.popleft())
        return taken

    def _run(self, passes: Sequence[_Waiting]) -> list[bytes]:
        count = len(passes)
        wanted = 1 + int(sum(each.expected_s for each in passes) / _CORE_S)
        cores = min(core_count(self._context), count, wanted)
        numbers = numbers_below(self._context, count, cores)
        found = _Passes(tuple(each.pickled for each in passes))
        return numbers.mapPartitions(found).collect()


def pause_s(pass_count: int, took_s: float) -> float:
    """How long to gather passes after a job with ``pass_count`` passes that took ``took_s``."""
    return min(min(max(pass_count - 1, 0), _PAUSES_MAX) * took_s, _PAUSE_MAX_S)


class Rider:
    """Decides whether one task's next pass may share a job."""

    def __init__(
        self, jobs: SharedJobs | None, *, abandoned: Callable[[], bool] = lambda: False
    ) -> None:
        self._jobs = jobs
        self._abandoned = abandoned
        #: The duration of the last pass on its executor, if the next one may share a job.
        self._took_s: float | None = None

    def answer(self, work: Callable[[], Iterable[Any]]) -> bytes | None:
        """As SharedJobs.answer."""
        took_s, self._took_s = self._took_s, None  # until ``took`` sets it
        if self._jobs is None or took_s is None or not self._jobs.are_due(self):
            return None
        return self._jobs.answer(work, abandoned=self._abandoned, expected_s=took_s)

    def took(self, seconds: float) -> None:
        """Record the duration of the task's last pass on its executor."""
        self._took_s = seconds if seconds <= SMALL_S else None


def core_count(context: "SparkContext") -> int:
    """How many tasks Spark runs concurrently, cached for some seconds: asking the JVM takes as long
    as planning a small batch.
    """
    global _cores
    now_s = time.monotonic()
    if _cores.context is not context or _cores.until_s <= now_s:
        _cores = _Cores(context, context.defaultParallelism, now_s + _CORES_KNOWN_S)
    return _cores.count


@lru_cache(maxsize=100)
def numbers_below(context: "SparkContext", count: int, spark_partitions: int) -> "RDD[int]":
    """The numbers below ``count``; cached, because creating it costs a fifth of a small job."""
    return context.parallelize(range(count), spark_partitions)


@lru_cache(maxsize=100)
def one_number(context: "SparkContext", number: int) -> "RDD[int]":
    """``number`` alone; cached, likewise."""
    return context.parallelize([number], 1)


def rides() -> bool:
    """Whether this code runs in a pass of a shared job, on an executor."""
    return _rides


def current_rider() -> Rider | None:
    """The Rider of the task that this thread works for."""
    return _rider.get()


def begin_own_job() -> None:
    """Notify that this thread will run a job of its task alone."""
    _own_job.get()()


@contextmanager
def riding(rider: Rider, *, on_own_job: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Passes of this thread in the block may share jobs; ``on_own_job`` is called before each one
    that does not.
    """
    tokens = _rider.set(rider), _own_job.set(on_own_job)
    try:
        yield
    finally:
        _rider.reset(tokens[0])
        _own_job.reset(tokens[1])
