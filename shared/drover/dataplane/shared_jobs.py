"""Small passes of several tasks as one Spark job.

A job costs some 35 ms of CPU, most of it in the JVM, however few records it is for: many tasks with
a small batch a second each would be busy with nothing else. So what comes while one such job runs
rides in the next one, and brings its own answer back.

A pass that took long, failed, or was lost with its job has a job of its own the next time: what
hangs or crashes takes others with it once.
"""

import pickle
import threading
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

#: What a pass took on its executor at most, for the next one to ride with others.
SMALL_S = 0.1
#: Of a pass as it is sent, and of all that ride together: Spark broadcasts more than a MiB.
_PASS_BYTES_MAX = 256 * 1024
_JOB_BYTES_MAX = 768 * 1024
_PASSES_MAX = 64
#: A job that takes longer is cancelled, and so long it may take to end then.
_LIMIT_S = 15.0
_CANCELLED_S = 10.0
#: Both the job group and the pool.
_NAME = "passes of several tasks"

#: Whether this process of Spark works on a pass that rides; it does one thing at a time.
_rides = False
_rider: ContextVar["Rider | None"] = ContextVar("rider", default=None)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A pass, and its answer once it has one."""

    pickled: bytes
    abandoned: Callable[[], bool]
    ended: threading.Event = field(default_factory=threading.Event)
    answer: bytes | None = None
    error: BaseException | None = None

    def end(self, answer: bytes | None = None, *, error: BaseException | None = None) -> None:
        """Let its task go on."""
        self.answer, self.error = answer, error
        self.ended.set()


@dataclass(frozen=True)
class _Passes:
    """The answers of pickled passes, by their numbers; runs on executors."""

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
    """What cannot be unpickled is an answer as well."""

    pickled: bytes

    def __call__(self, number: int) -> Iterable[Any]:
        del number
        work: Callable[[], Iterable[Any]] = pickle.loads(self.pickled)
        return work()


class SharedJobs:
    """Runs passes of tasks that ride together, one job at a time; thread-safe."""

    def __init__(
        self,
        context: "SparkContext",
        dumps: Callable[[object], bytes],
        *,
        on_wait: Callable[[], None] = lambda: None,
        limit_s: float = _LIMIT_S,
    ) -> None:
        """``dumps`` pickles as Spark does; ``on_wait`` is called by each thread that is about to
        wait for its pass.
        """
        self._context = context
        self._dumps = dumps
        self._on_wait = on_wait
        self._limit_s = limit_s
        self._came = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._closed = False
        #: A job could not be ended: nothing rides any more.
        self._stuck = False
        threading.Thread(target=self._work, name="shared-jobs", daemon=True).start()

    def close(self) -> None:
        """Start no further job."""
        with self._came:
            self._closed = True
            self._came.notify()

    def answer(
        self, work: Callable[[], Iterable[Any]], *, abandoned: Callable[[], bool]
    ) -> bytes | None:
        """The answer of a pass that rides; None when it needs a job of its own.

        ``abandoned`` is asked before the job starts: a task that is another worker's by then should
        not begin to write.

        Raises:
            PassLostError: Its job was lost, or it was abandoned.
        """
        pickled = self._pickled(work)
        if pickled is None:
            return None
        waiting = _Waiting(pickled, abandoned)
        with self._came:
            if self._closed or self._stuck:
                return None
            self._waiting.append(waiting)
            self._came.notify()
        self._on_wait()
        # for the job before, and for its own
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
            broadcasts.clear()  # executors get them with the job that names them
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
            try:
                answers = self._run(passes) if passes else []
            except Exception as error:  # noqa: BLE001 - whatever py4j says of a job that was lost
                for each in passes:
                    each.end(error=error)
            else:
                for each, answer in zip(passes, answers, strict=True):
                    each.end(answer)

    def _next(self) -> list[_Waiting]:
        """What rides together; none at the end."""
        taken: list[_Waiting] = []
        with self._came:
            while not self._waiting and not self._closed:
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
        numbers = numbers_below(self._context, count, min(count, self._context.defaultParallelism))
        found = _Passes(tuple(each.pickled for each in passes))
        return numbers.mapPartitions(found).collect()


class Rider:
    """Says whether one task's next pass may ride with others."""

    def __init__(
        self, jobs: SharedJobs | None, *, abandoned: Callable[[], bool] = lambda: False
    ) -> None:
        self._jobs = jobs
        self._abandoned = abandoned
        self._is_small = False

    def answer(self, work: Callable[[], Iterable[Any]]) -> bytes | None:
        """As SharedJobs.answer."""
        if self._jobs is None or not self._is_small:
            return None
        self._is_small = False  # unless it says otherwise
        return self._jobs.answer(work, abandoned=self._abandoned)

    def took(self, seconds: float) -> None:
        """How long the task's last pass took on its executor."""
        self._is_small = seconds <= SMALL_S


@lru_cache(maxsize=100)
def numbers_below(context: "SparkContext", count: int, spark_partitions: int) -> "RDD[int]":
    """The numbers below ``count``; kept, as making it costs a fifth of a small job."""
    return context.parallelize(range(count), spark_partitions)


def rides() -> bool:
    """Whether what runs here, on an executor, is a pass that rides with others."""
    return _rides


def current_rider() -> Rider | None:
    """That of the task that this thread works for."""
    return _rider.get()


@contextmanager
def riding(rider: Rider) -> Iterator[None]:
    """Passes that this thread runs in here may ride with others."""
    token = _rider.set(rider)
    try:
        yield
    finally:
        _rider.reset(token)
