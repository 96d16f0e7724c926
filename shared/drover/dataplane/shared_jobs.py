"""Small passes of several tasks as one Spark job.

A job costs some 35 ms of CPU, most of it in the JVM, however few records it is for: many tasks with
a small batch a second each would be busy with nothing else. So what comes while one such job runs
rides in the next one, and brings its own answer back. After a job of several passes the next one
waits a little, for more of them: else it would be as many jobs a second as the machine can do.

A few tasks would only wait for each other: while they are no more than may, each has its own jobs.

A pass that took long, failed, or was lost with its job has a job of its own the next time: what
hangs or crashes takes others with it once.
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

#: What a pass took on its executor at most, for the next one to ride with others.
SMALL_S = 0.1
#: Of a pass as it is sent, and of all that ride together: Spark broadcasts more than a MiB.
_PASS_BYTES_MAX = 256 * 1024
_JOB_BYTES_MAX = 768 * 1024
_PASSES_MAX = 64
#: What a core has to do at least: a further one costs as much as some passes.
_CORE_S = 0.05
#: What the next job waits for, for each pass but one of the last job: as long as that job took, so
#: often at most, and no longer than this.
_PAUSES_MAX = 3
_PAUSE_MAX_S = 0.1
#: Who had a small pass so lately is at work.
_AT_WORK_S = 1.0
#: A job that takes longer is cancelled, and so long it may take to end then.
_LIMIT_S = 15.0
_CANCELLED_S = 10.0
#: Executors may come and go.
_CORES_KNOWN_S = 10.0
#: Both the job group and the pool.
_NAME = "passes of several tasks"

#: Whether this process of Spark works on a pass that rides; it does one thing at a time.
_rides = False
_rider: ContextVar["Rider | None"] = ContextVar("rider", default=None)
_own_job: ContextVar[Callable[[], None]] = ContextVar("own_job", default=lambda: None)


@dataclass(frozen=True, slots=True)
class _Cores:
    """How many there are, and until when that is believed."""

    context: object = None
    count: int = 0
    until_s: float = 0.0


_cores = _Cores()


@dataclass(slots=True, eq=False)
class _Waiting:
    """A pass, and its answer once it has one."""

    pickled: bytes
    abandoned: Callable[[], bool]
    #: What it takes on its executor.
    expected_s: float
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
        alone_max: int = 0,
        limit_s: float = _LIMIT_S,
    ) -> None:
        """``dumps`` pickles as Spark does; ``on_wait`` is called by each thread that is about to
        wait for its pass; so many tasks as ``alone_max`` may be at work without riding together.
        """
        self._context = context
        self._dumps = dumps
        self._on_wait = on_wait
        self._alone_max = alone_max
        self._limit_s = limit_s
        #: When each task that is at work last had a small pass, oldest first.
        self._at_work: dict[object, float] = {}
        self._came = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._closed = threading.Event()
        #: A job could not be ended: nothing rides any more.
        self._stuck = False
        threading.Thread(target=self._work, name="shared-jobs", daemon=True).start()

    def close(self) -> None:
        """Start no further job."""
        with self._came:
            self._closed.set()
            self._came.notify()

    def are_due(self, task: object) -> bool:
        """Whether small passes should ride, now that ``task`` has one: too many tasks are at work
        for each to have jobs of its own.
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
        """The answer of a pass that rides; None when it needs a job of its own.

        ``expected_s`` is what it takes on its executor. ``abandoned`` is asked before the job
        starts: a task that is another worker's by then should not begin to write.

        Raises:
            PassLostError: Its job was lost, or it was abandoned.
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
            began_s = time.monotonic()
            try:
                answers = self._run(passes) if passes else []
            except Exception as error:  # noqa: BLE001 - whatever py4j says of a job that was lost
                for each in passes:
                    each.end(error=error)
            else:
                for each, answer in zip(passes, answers, strict=True):
                    each.end(answer)
            self._closed.wait(pause_s(len(passes), time.monotonic() - began_s))

    def _next(self) -> list[_Waiting]:
        """What rides together; none at the end."""
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
    """How long passes are gathered after a job that had so many and took so long."""
    return min(min(max(pass_count - 1, 0), _PAUSES_MAX) * took_s, _PAUSE_MAX_S)


class Rider:
    """Says whether one task's next pass may ride with others."""

    def __init__(
        self, jobs: SharedJobs | None, *, abandoned: Callable[[], bool] = lambda: False
    ) -> None:
        self._jobs = jobs
        self._abandoned = abandoned
        #: What the last pass took on its executor, if the next one may ride.
        self._took_s: float | None = None

    def answer(self, work: Callable[[], Iterable[Any]]) -> bytes | None:
        """As SharedJobs.answer."""
        took_s, self._took_s = self._took_s, None  # unless it says otherwise
        if self._jobs is None or took_s is None or not self._jobs.are_due(self):
            return None
        return self._jobs.answer(work, abandoned=self._abandoned, expected_s=took_s)

    def took(self, seconds: float) -> None:
        """How long the task's last pass took on its executor."""
        self._took_s = seconds if seconds <= SMALL_S else None


def core_count(context: "SparkContext") -> int:
    """How many tasks Spark runs at a time, as of the last seconds: asking the JVM each time takes
    as long as planning a small batch.
    """
    global _cores
    now_s = time.monotonic()
    if _cores.context is not context or _cores.until_s <= now_s:
        _cores = _Cores(context, context.defaultParallelism, now_s + _CORES_KNOWN_S)
    return _cores.count


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


def begin_own_job() -> None:
    """This thread is about to run a job that is its task's alone."""
    _own_job.get()()


@contextmanager
def riding(rider: Rider, *, on_own_job: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Passes that this thread runs in here may ride with others; ``on_own_job`` is called before
    each that does not.
    """
    tokens = _rider.set(rider), _own_job.set(on_own_job)
    try:
        yield
    finally:
        _rider.reset(tokens[0])
        _own_job.reset(tokens[1])
