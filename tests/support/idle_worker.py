"""A worker whose engine has no Spark, as a separate process: many fit on a small machine.

``python -m tests.support.idle_worker`` reads a worker's settings, and writes each start and stop of
a task to the file that STORY_VARIABLE names. The signal LOOP_STALLS blocks its event loop for
LOOP_STALLS_S.
"""

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from drover.api.engine.v1 import engine_pb2 as pb
from drover.local.cluster import ClusterOptions, cluster_stages
from drover.local.process import ProcessSpec
from drover.python_process import python_command
from drover.rpc.service import run_service
from drover_worker.settings import WorkerSettings
from drover_worker.shell.engine_supervisor import ExitHandler, ReportHandler
from drover_worker.worker import Worker
from tests.support.cluster import TEST_ENVIRONMENT
from tests.support.fake_engine import FakeEngine

STORY_VARIABLE = "IDLE_WORKER_STORY"
LOOP_STALLS = signal.SIGUSR1
LOOP_STALLS_S = 1.7
_ROOT = Path(__file__).parents[2]
_STORY = "story.txt"


@dataclass(frozen=True, slots=True)
class Line:
    """A start or graceful stop of a task.

    Attributes:
        at_s: The time, on a clock that all processes share.
        verb: "start" or "stop".
        task: The task, as connector-index.
        worker: The worker's address.
    """

    at_s: float
    verb: str
    task: str
    worker: str


class Story:
    """All starts and stops of tasks in a cluster of idle workers."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _STORY

    def lines(self) -> Iterator[Line]:
        """The lines in order; a partially written line is left for the next call."""
        text = self._path.read_text() if self._path.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                at_s, verb, task, worker = line.split()
                yield Line(float(at_s), verb, task, worker)

    def stops(self) -> Counter[str]:
        """The number of graceful stops of each task."""
        return Counter(line.task for line in self.lines() if line.verb == "stop")

    def gaps_s(self) -> list[float]:
        """The time between each stop of a task and its next start."""
        stopped_s: dict[str, float] = {}
        gaps = []
        for line in self.lines():
            if line.verb == "stop":
                stopped_s[line.task] = line.at_s
            elif line.task in stopped_s:
                gaps.append(line.at_s - stopped_s.pop(line.task))
        return gaps


def idle_stages(
    directory: Path,
    *,
    workers: int,
    coordinators: int = 1,
    certificates: Path | None = None,
    env: dict[str, str] | None = None,
) -> Sequence[Sequence[ProcessSpec]]:
    """The processes of a cluster with idle workers; see ``Story(directory)``."""
    options = ClusterOptions(
        directory,
        worker_count=workers,
        coordinator_count=coordinators,
        certificates=certificates,
        env={**TEST_ENVIRONMENT, **(env or {})},
    )
    services, real = cluster_stages(options)
    path = filter(None, (str(_ROOT), os.environ.get("PYTHONPATH")))
    extra = {STORY_VARIABLE: str(directory / _STORY), "PYTHONPATH": os.pathsep.join(path)}
    argv = python_command("tests.support.idle_worker")
    return services, [replace(spec, argv=argv, env={**spec.env, **extra}) for spec in real]


class _NotingEngine(FakeEngine):
    def __init__(
        self, settings: WorkerSettings, on_report: ReportHandler, on_exit: ExitHandler
    ) -> None:
        super().__init__(settings, on_report, on_exit)
        self._story = os.open(os.environ[STORY_VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def call(self, command: pb.EngineCommand, timeout_s: float) -> pb.EngineReport:
        answer = await super().call(command, timeout_s)
        match command.WhichOneof("command"):
            case "start_task":
                self._note("start", command.start_task.task)
            case "stop_task":
                self._note("stop", command.stop_task.task)
        return answer

    def _note(self, verb: str, task: object) -> None:
        name = f"{task.connector}-{task.task}"  # type: ignore[attr-defined]
        line = f"{time.monotonic():.6f} {verb} {name} {self.settings.worker_listen}\n"
        # one write call, so lines of several processes do not mix
        os.write(self._story, line.encode())


async def _serve(settings: WorkerSettings, stopping: asyncio.Event) -> None:
    asyncio.get_running_loop().add_signal_handler(
        LOOP_STALLS, threading.Event().wait, LOOP_STALLS_S
    )
    worker = Worker(settings, make_engine=lambda s, _, *handlers: _NotingEngine(s, *handlers))
    await worker.run(stopping)


if __name__ == "__main__":
    run_service("worker", WorkerSettings, _serve, stop_max_s=60.0)
