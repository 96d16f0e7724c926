"""Executors of a remote Spark master that are missing."""

import threading
from types import SimpleNamespace

import pytest

from drover.dataplane.answers import PassLostError
from drover_worker.engine.core.steps import Step
from drover_worker.engine.executors import Executors, why_not_started
from drover_worker.engine.tasks.activity import STEPS, TaskActivity

MASTER = "spark://10.0.0.1:7077"


class Time:
    """A clock that tests set."""

    ms = 5_000

    def now_ms(self) -> int:
        return self.ms


class Status:
    """Spark's map of the driver and its executors; an executor comes at the second question."""

    def __init__(self, *sizes: int) -> None:
        self._sizes = list(sizes)

    def size(self) -> int:
        return self._sizes.pop(0) if len(self._sizes) > 1 else self._sizes[0]


def executors_of(*sizes: int, time: Time | None = None, remote: bool = True) -> Executors:
    status = Status(*sizes)
    scala = SimpleNamespace(getExecutorMemoryStatus=lambda: status)
    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala))
    spark = SimpleNamespace(sparkContext=context)
    return Executors(spark, MASTER, remote=remote, clock=time or Time())


def missing_since_ms(executors: Executors) -> int | None:
    return executors.missing_since_ms


def test_a_start_waits_for_the_first_executor_and_names_the_master_once() -> None:
    reasons: list[str] = []
    executors = executors_of(1, 1, 2)
    assert executors.wait_for_first(threading.Event(), reasons.append)
    (reason,) = reasons
    assert MASTER in reason
    assert "spark.cores.max" in reason
    assert executors.missing_since_ms is None


def test_a_start_ends_to_wait_when_the_engine_stops() -> None:
    stop = threading.Event()
    assert not executors_of(1).wait_for_first(stop, lambda _reason: stop.set())


def test_a_local_master_needs_no_question() -> None:
    reasons: list[str] = []
    executors = executors_of(1, remote=False)
    assert executors.wait_for_first(threading.Event(), reasons.append)
    assert reasons == []


@pytest.mark.parametrize(
    ("job_step", "step", "shown"),
    [
        (Step.CONVERTING, Step.CONVERTING, Step.WAITING_FOR_EXECUTORS),
        (Step.CONVERTING, Step.WRITING, Step.WRITING),
        (Step.WRITING, Step.WRITING, Step.WAITING_FOR_EXECUTORS),
        (Step.WRITING, Step.COMMITTING, Step.COMMITTING),
    ],
)
def test_a_step_with_spark_jobs_waits_while_there_is_no_executor(
    job_step: Step, step: Step, shown: Step
) -> None:
    time = Time()
    executors = executors_of(1, 1, 2, time=time)
    activity = TaskActivity(time, job_step)
    activity.enter(step)
    time.ms = 6_000
    executors.look()
    time.ms = 9_000
    executors.look()
    assert missing_since_ms(executors) == 6_000
    found = activity.encode(without_executors_ms=executors.missing_since_ms)
    assert (STEPS.decode(found.step, "step"), found.step_time.ToMilliseconds()) == (
        shown,
        6_000 if shown is Step.WAITING_FOR_EXECUTORS else 5_000,
    )
    executors.look()
    assert missing_since_ms(executors) is None
    assert STEPS.decode(activity.encode().step, "step") is step


@pytest.mark.parametrize(
    ("told", "advice"),
    [
        ("ModuleNotFoundError: No module named 'drover'", "drover spark-archive"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", "need Python 3."),
        ("executors need Python 3.11, as the engine has", "DROVER_EXECUTOR_PYTHON"),
        ("Java heap space\n\tat Some.method", "Java heap space at Some.method"),
    ],
)
def test_why_executors_do_not_run_the_first_job_is_one_line(told: str, advice: str) -> None:
    error = PassLostError("a call on an executor was lost: Job aborted")
    error.__cause__ = RuntimeError(f"An error occurred while calling o1.collect.\n{told}")
    reason = why_not_started(error, MASTER)
    assert reason.startswith(f"executors of Spark master {MASTER} cannot run Drover's code: ")
    assert advice in reason
    assert "\n" not in reason
