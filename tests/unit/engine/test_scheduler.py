"""Jobs on few threads: runs, pauses, wakes, and runs that hang."""

import threading
import time
from collections.abc import Callable

import pytest

from drover_worker.engine.tasks.scheduler import Scheduler
from tests.support.waiting import wait_until


class FakeJob:
    """Each run takes the script's next entry: a pause, or a function that returns one."""

    def __init__(self, name: str, *script: float | Callable[[], float | None] | None) -> None:
        self.name = name
        self.script = list(script)
        self.run_count = 0
        self.overdue_count = 0
        self.run_deadline: float | None = None
        self.thread_names: list[str] = []
        self._in_run = threading.Lock()

    def run_once(self) -> float | None:
        assert self._in_run.acquire(blocking=False), "two runs of one job at once"
        try:
            self.thread_names.append(threading.current_thread().name)
            self.run_count += 1
            step = self.script.pop(0) if self.script else None
            return step() if callable(step) else step
        finally:
            self._in_run.release()

    def run_overdue(self) -> None:
        self.overdue_count += 1


def _wait_for_runs(job: FakeJob, count: int) -> None:
    wait_until(lambda: job.run_count >= count, describe=lambda: f"{count} runs of {job.name}")


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler(place_count=2)


def test_a_job_runs_until_it_wants_no_more(scheduler: Scheduler) -> None:
    job = FakeJob("a-0", 0, 0.01, 0.15, None)
    scheduler.add(job)
    _wait_for_runs(job, 4)
    assert set(job.thread_names) == {"task:a-0"}
    scheduler.close()


def test_a_wake_ends_a_pause_at_once(scheduler: Scheduler) -> None:
    job = FakeJob("a-0", 3600.0, None)
    scheduler.add(job)
    _wait_for_runs(job, 1)
    scheduler.wake(job)
    _wait_for_runs(job, 2)
    scheduler.close()


def test_a_wake_during_a_run_has_another_follow(scheduler: Scheduler) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        leave.wait()

    job = FakeJob("a-0", hold, None)
    scheduler.add(job)
    entered.wait()
    scheduler.wake(job)
    leave.set()
    _wait_for_runs(job, 2)
    scheduler.close()


def test_an_old_timer_does_not_add_a_run(scheduler: Scheduler) -> None:
    job = FakeJob("a-0", 0.05, None)
    scheduler.add(job)
    _wait_for_runs(job, 1)
    scheduler.wake(job)
    _wait_for_runs(job, 2)
    other = FakeJob("b-0", 0.2, None)
    scheduler.add(other)
    _wait_for_runs(other, 2)  # well after the first job's timer
    assert job.run_count == 2
    scheduler.close()


def test_jobs_share_few_threads_fairly(scheduler: Scheduler) -> None:
    jobs = [FakeJob(f"job-{number}", *([0] * 20)) for number in range(50)]
    for job in jobs:
        scheduler.add(job)
    for job in jobs:
        _wait_for_runs(job, 21)
    pool = [t for t in threading.enumerate() if t.name.startswith(("task-pool", "task:job-"))]
    assert len(pool) <= 2 * 8
    scheduler.close()


def test_a_removed_job_runs_no_more_and_its_last_run_is_waited_for(scheduler: Scheduler) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> float:
        entered.set()
        leave.wait()
        return 0

    job = FakeJob("a-0", hold, None)
    scheduler.add(job)
    entered.wait()
    ended = scheduler.remove(job)
    assert not ended.is_set()
    leave.set()
    assert ended.wait(10)
    scheduler.wake(job)
    other = FakeJob("b-0", None)
    scheduler.add(other)
    _wait_for_runs(other, 1)
    assert job.run_count == 1
    assert scheduler.remove(job).is_set()
    scheduler.close()


def test_long_runs_do_not_hold_up_the_others(scheduler: Scheduler) -> None:
    leave = threading.Event()
    for number in range(3):
        scheduler.add(FakeJob(f"long-{number}", lambda: leave.wait() and None))
    other = FakeJob("short", None)
    scheduler.add(other)
    _wait_for_runs(other, 1)
    leave.set()
    scheduler.close()


def test_a_run_past_its_deadline_is_given_up() -> None:
    hung: list[str] = []
    returned: list[threading.Thread] = []
    scheduler = Scheduler(
        place_count=1, on_hung=lambda _, name: hung.append(name), on_returned=returned.append
    )
    leave = threading.Event()
    job = FakeJob("a-0", lambda: leave.wait() and None)
    job.run_deadline = time.monotonic() + 0.05
    scheduler.add(job)
    wait_until(lambda: job.overdue_count == 1, describe="the run is given up")
    other = FakeJob("b-0", None)
    scheduler.add(other)
    _wait_for_runs(other, 1)
    assert hung == ["a-0"]
    leave.set()
    wait_until(lambda: returned, describe="the thread's return")
    scheduler.wake(job)
    assert job.run_count == 1
    scheduler.close()


def test_a_job_that_raises_is_paused_and_the_pool_lives_on(scheduler: Scheduler) -> None:
    def fail() -> None:
        raise RuntimeError("a defect")

    job = FakeJob("a-0", fail, None)
    other = FakeJob("b-0", None)
    scheduler.add(job)
    scheduler.add(other)
    _wait_for_runs(other, 1)
    _wait_for_runs(job, 1)
    scheduler.wake(job)
    _wait_for_runs(job, 2)
    scheduler.close()


def test_runs_that_wait_give_their_places_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drover_worker.engine.tasks.scheduler._LONG_RUN_S", 3_600.0)
    scheduler = Scheduler(place_count=2)
    leave = threading.Event()

    def wait_apart() -> None:
        scheduler.give_place()
        leave.wait()

    waiting = [FakeJob(f"job-{number}", wait_apart) for number in range(10)]
    for job in waiting:
        scheduler.add(job)
    for job in waiting:
        _wait_for_runs(job, 1)
    other = FakeJob("other", None)
    scheduler.add(other)
    _wait_for_runs(other, 1)
    leave.set()
    scheduler.close()
