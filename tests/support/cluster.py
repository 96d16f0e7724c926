"""A real embedded cluster for end-to-end tests: the five processes, supervised."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.connectors import run_state
from drover.client import ConnectClient, channel
from drover.errors import DroverError
from drover.local.cluster import ClusterOptions, cluster_stages
from drover.local.process import (
    ProcessRestartPolicy,
    ProcessSpec,
    SupervisedProcess,
    descendants,
    wait_until_gone,
)
from drover.local.supervisor import Supervisor
from tests.support.forked import Finished, run_forked
from tests.support.waiting import wait_until_async

#: A Spark session starts in minutes when many processes compete for the cores.
READY_TIMEOUT_S = 480.0
GONE_TIMEOUT_S = 30.0
#: Small settings: two engines and the tests share few cores.
TEST_ENVIRONMENT = {
    "DROVER_INITIAL_REBALANCE_DELAY_MS": "200",
    "DROVER_LOG_LEVEL": "INFO",
}


class EmbeddedCluster:
    """A running cluster; ``process`` returns a process to kill, pause, hold down or release."""

    def __init__(self, supervisor: Supervisor, directory: Path) -> None:
        self.supervisor = supervisor
        self.directory = directory
        self.workers = supervisor.addresses("worker")
        self._seen: dict[int, psutil.Process] = {}

    def process(self, name: str) -> SupervisedProcess:
        """A process by its name: "coordinator", "worker-1"…"""
        return self.supervisor.process(name)

    def worker_name(self, worker_id: str) -> str:
        """The name of the worker with that id (its address)."""
        return self.supervisor.process_at(worker_id).spec.name

    def log(self, name: str) -> str:
        """A process's output so far."""
        return self.process(name).log.read_text(errors="replace")

    @asynccontextmanager
    async def client(self, worker: str = "worker-1") -> AsyncIterator[ConnectClient]:
        """The admin API of a worker."""
        async with channel(self.process(worker).spec.address) as connection:
            yield ConnectClient(connection)

    async def wait_until_members(self, *names: str) -> None:
        """Wait until these workers (all by default) are members with a warm engine."""
        for name in names or [self.worker_name(address) for address in self.workers]:
            await wait_until_async(
                partial(self._is_member, name),
                timeout_s=READY_TIMEOUT_S,
                describe=f"{name} is a member",
            )
        self.note_processes()

    async def wait_for_task(
        self,
        connector: str,
        task: int = 0,
        *,
        state: str = "RUNNING",
        ask: str = "worker-1",
        at: str | None = None,
    ) -> pb.TaskState:
        """Wait until worker ``ask`` reports a task in a state, and return its status.

        With ``at``, wait until the task runs on the worker of that name.
        """

        async def found() -> pb.TaskState | None:
            async with self.client(ask) as client:
                with suppress(DroverError):
                    status = await client.get_connector_status(connector, timeout_s=5)
                    for each in status.tasks:
                        there = at is None or each.worker_id == self.process(at).spec.address
                        if each.task == task and run_state(each.state) == state and there:
                            return each
            return None

        status = await wait_until_async(
            found,
            timeout_s=READY_TIMEOUT_S,
            describe=f"{connector}-{task} is {state} at {at or 'some worker'}",
        )
        assert status is not None
        return status

    def note_processes(self) -> None:
        """Record every process of the cluster; ``left_over`` checks them after its end."""
        for process in self.supervisor.processes.values():
            if process.pid is not None:
                with suppress(psutil.NoSuchProcess):
                    own = psutil.Process(process.pid)
                    self._seen |= {p.pid: p for p in (own, *descendants(own.pid))}

    async def left_over(self) -> list[psutil.Process]:
        """Recorded processes that still run; empty after a clean end."""
        return await wait_until_gone(list(self._seen.values()), GONE_TIMEOUT_S)

    async def _is_member(self, name: str) -> bool:
        address = self.process(name).spec.address
        async with self.client(name) as client:
            with suppress(DroverError):
                info = await client.get_cluster_info(timeout_s=5)
                members = {worker.worker_id for worker in info.workers}
                return address in members and bool(info.spark_version)
        return False


@asynccontextmanager
async def embedded_cluster(
    directory: Path,
    *,
    workers: int = 2,
    coordinators: int = 1,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[EmbeddedCluster]:
    """Start a cluster in ``directory``; at its end none of its processes may run."""
    stages = cluster_stages(
        ClusterOptions(
            directory,
            worker_count=workers,
            coordinator_count=coordinators,
            env={**TEST_ENVIRONMENT, **(env or {})},
        )
    )
    async with running_cluster(directory, stages) as cluster:
        yield cluster


@asynccontextmanager
async def running_cluster(
    directory: Path, stages: Sequence[Sequence[ProcessSpec]]
) -> AsyncIterator[EmbeddedCluster]:
    """Start these processes; at the end none of them may run."""
    policy = ProcessRestartPolicy(serving_timeout_s=READY_TIMEOUT_S)
    supervisor = Supervisor(directory, stages, policy=policy)
    await supervisor.start()
    cluster = EmbeddedCluster(supervisor, directory)
    try:
        yield cluster
    finally:
        cluster.note_processes()
        await supervisor.stop()
    left = await cluster.left_over()
    assert not left, f"left over: {left}"


async def run_drover(
    *arguments: str, cwd: Path, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> Finished:
    """Run the ``drover`` command as a process of its own."""
    present = {**os.environ, "COLUMNS": "200", "DROVER_PORT_BASE": "0", **(env or {})}
    command = ("-m", "drover.cli.main", *arguments)
    return await asyncio.to_thread(run_forked, command, cwd=cwd, env=present, stdin=stdin)
