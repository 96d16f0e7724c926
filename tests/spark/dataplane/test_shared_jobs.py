"""Small passes of several tasks in one Spark job."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession

from drover.connector import current_spark_partition
from drover.dataplane.answers import PassLostError
from drover.dataplane.arrow_rows import ArrowRows
from drover.dataplane.shared_jobs import SMALL_S, Rider, SharedJobs, riding
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

Work = Callable[[], dict[str, Any]]
Rows = list[dict[str, Any]]


class Tasks:
    """Tasks whose last pass was small, and a job that delays theirs."""

    def __init__(
        self, spark: SparkSession, folder: Path, *, alone_max: int = 0, limit_s: float = 60.0
    ) -> None:
        self.spark = spark
        self.waiting = 0
        self.jobs = SharedJobs(
            spark.sparkContext,
            cloudpickle.dumps,
            on_wait=self._note,
            alone_max=alone_max,
            limit_s=limit_s,
        )
        self._begun, self._free = folder / "begun", folder / "free"
        self._threads = ThreadPoolExecutor(20)

    def run(self, work: Work, rider: Rider | None = None) -> Rows:
        """One pass of a task."""
        if rider is None:
            rider = self.small()
        with riding(rider):
            return ArrowRows(self.spark, _Rows(work), 1, None).run(iter)

    def small(self) -> Rider:
        rider = Rider(self.jobs)
        rider.took(0.0)
        return rider

    def together(self, *works: Work, riders: tuple[Rider, ...] = ()) -> list[Future[Rows]]:
        """Run passes that arrive during another job; that job ends when all of them wait."""
        self._begun.unlink(missing_ok=True)
        self._free.unlink(missing_ok=True)
        held = self._threads.submit(self.run, partial(_hold, str(self._begun), str(self._free)))
        wait_until(self._begun.exists, describe="the job before is under way")
        before = self.waiting
        chosen = riders or tuple(self.small() for _ in works)
        futures = [
            self._threads.submit(self.run, work, rider)
            for work, rider in zip(works, chosen, strict=True)
        ]
        wait_until(lambda: self.waiting == before + len(works), describe="all of them wait")
        self._free.touch()
        held.result(60)
        return futures

    def close(self) -> None:
        self._free.touch()
        self.jobs.close()
        self._threads.shutdown()

    def _note(self) -> None:
        self.waiting += 1


class _Rows:
    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{**self.work(), "number": number}])


def _hold(begun: str, free: str) -> dict[str, Any]:
    Path(begun).touch()
    wait_until(Path(free).exists, timeout_s=600)
    return {}


def _stage() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.stageId()


def _where(name: str) -> dict[str, Any]:
    return {"name": name, "stage": _stage(), "spark_partition": current_spark_partition()}


def _fail() -> dict[str, Any]:
    raise LookupError("this one failed")


def _die() -> dict[str, Any]:
    os._exit(9)


@pytest.fixture
def tasks(spark: SparkSession, tmp_path: Path) -> Iterator[Tasks]:
    tasks = Tasks(spark, tmp_path)
    yield tasks
    tasks.close()


def test_what_waits_rides_in_one_job_and_each_gets_its_own_rows(tasks: Tasks) -> None:
    names = [f"task-{number}" for number in range(10)]
    futures = tasks.together(*(partial(_where, name) for name in names))
    rows = [row for future in futures for row in future.result(60)]
    assert [row["name"] for row in rows] == names
    assert len({row["stage"] for row in rows}) == 1
    # each is the only partition of its batch, whichever job ran it
    assert {(row["number"], row["spark_partition"]) for row in rows} == {(0, 0)}


def test_the_error_of_one_is_its_own_and_its_next_pass_is_alone(tasks: Tasks) -> None:
    riders = (tasks.small(), tasks.small())
    failing, good = tasks.together(_fail, partial(_where, "good"), riders=riders)
    assert good.result(60)[0]["name"] == "good"
    with pytest.raises(LookupError, match="this one failed"):
        failing.result(60)
    before = tasks.waiting
    tasks.run(partial(_where, "again"), riders[0])
    assert tasks.waiting == before


def test_one_that_ends_its_process_loses_the_others_once(tasks: Tasks) -> None:
    riders = (tasks.small(), tasks.small())
    for future in tasks.together(_die, partial(_where, "good"), riders=riders):
        with pytest.raises(PassLostError):
            future.result(60)
    before = tasks.waiting
    with pytest.raises(PassLostError):
        tasks.run(_die, riders[0])
    assert tasks.run(partial(_where, "good"), riders[1])[0]["name"] == "good"
    assert tasks.waiting == before  # neither shared a job


def test_one_that_hangs_is_ended_and_the_others_go_on(spark: SparkSession, tmp_path: Path) -> None:
    tasks = Tasks(spark, tmp_path, limit_s=3.0)
    try:
        with pytest.raises(PassLostError):
            tasks.run(partial(_hold, str(tmp_path / "hangs"), str(tmp_path / "never")))
        # on a slow machine the shared job may also take too long
        wait_until(lambda: _came_back(tasks), timeout_s=180, describe="another pass")
    finally:
        tasks.close()


def _came_back(tasks: Tasks) -> bool:
    with suppress(PassLostError):
        return bool(tasks.run(partial(_where, "good")))
    return False


def test_one_that_takes_long_has_a_job_of_its_own_the_next_time(tasks: Tasks) -> None:
    rider = tasks.small()
    tasks.run(partial(_take, 2 * SMALL_S), rider)
    before = tasks.waiting
    tasks.run(partial(_where, "alone"), rider)
    assert tasks.waiting == before
    rider.took(0.0)
    tasks.run(partial(_where, "small again"), rider)
    assert tasks.waiting == before + 1


def _take(seconds: float) -> dict[str, Any]:
    threading.Event().wait(seconds)
    return {}


def test_a_few_tasks_do_not_wait_for_each_other(spark: SparkSession, tmp_path: Path) -> None:
    tasks = Tasks(spark, tmp_path, alone_max=2)
    try:
        riders = [tasks.small() for _ in range(3)]
        for rider in riders[:2]:
            tasks.run(partial(_where, "alone"), rider)
        assert tasks.waiting == 0
        # one after another within a second: an older pass no longer counts as active
        wait_until(lambda: _rode(tasks, riders), timeout_s=180, describe="three ride")
    finally:
        tasks.close()


def _rode(tasks: Tasks, riders: list[Rider]) -> bool:
    before = tasks.waiting
    for rider in riders:
        tasks.run(partial(_where, "one of three"), rider)
    return tasks.waiting > before


def test_one_that_is_abandoned_before_its_job_starts_never_runs(
    tasks: Tasks, tmp_path: Path
) -> None:
    abandoned = Rider(tasks.jobs, abandoned=lambda: True)
    abandoned.took(0.0)
    touch = partial(_touch, str(tmp_path / "written"))
    riders = (abandoned, tasks.small())
    first, second = tasks.together(touch, partial(_where, "good"), riders=riders)
    with pytest.raises(PassLostError, match="abandoned"):
        first.result(60)
    assert second.result(60)[0]["name"] == "good"
    assert not (tmp_path / "written").exists()


def _touch(path: str) -> dict[str, Any]:
    Path(path).touch()
    return {}


def test_what_needs_a_broadcast_or_is_large_has_a_job_of_its_own(tasks: Tasks) -> None:
    broadcast = tasks.spark.sparkContext.broadcast({"word": "sent before"})
    assert tasks.run(lambda: dict(broadcast.value))[0]["word"] == "sent before"
    large = os.urandom(1024 * 1024)
    assert tasks.run(lambda: {"size": len(large)})[0]["size"] == 1024 * 1024
    assert tasks.waiting == 0


class _Union(AccumulatorParam[set[str]]):
    def zero(self, value: set[str]) -> set[str]:
        return set()

    def addInPlace(self, value1: set[str], value2: set[str]) -> set[str]:
        return value1 | value2


def test_what_is_reported_beside_the_rows_arrives_with_them(tasks: Tasks) -> None:
    reports = [tasks.spark.sparkContext.accumulator(set(), _Union()) for _ in range(4)]

    def reporting(number: int) -> dict[str, Any]:
        reports[number].add({f"of {number}"})
        return {}

    for number, future in enumerate(tasks.together(*(partial(reporting, n) for n in range(4)))):
        future.result(60)
        assert reports[number].value == {f"of {number}"}
