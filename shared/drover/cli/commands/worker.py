"""``drover worker``: lists, drains and resumes workers."""

import asyncio
import time
from typing import Annotated, Any

import typer

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.caller import call_worker
from drover.cli.cluster_choice import cluster_of_command
from drover.cli.console import (
    AddressOption,
    CliError,
    Output,
    OutputOption,
    print_document,
    print_event,
    print_table,
    say,
)
from drover.cli.names import trimmed
from drover.cli.output.connectors import worker_health
from drover.cli.output.workers import memory_cell, memory_document, usage_document
from drover.client import ConnectClient

commands = typer.Typer(no_args_is_help=True, help="Workers: list, drain, resume.")

_POLL_S = 0.2
_STATE_PREFIX = "WORKER_STATE_"

WorkerArgument = Annotated[
    str,
    typer.Argument(
        metavar="WORKER",
        help="The worker's id (host:port) from `drover worker list`, or its name in the cluster of "
        "`drover up` in this folder, such as worker-2.",
        callback=trimmed,
    ),
]


def state_of(worker: pb.WorkerInfo) -> str:
    """ACTIVE, DRAINING or DRAINED; ACTIVE for a worker of an earlier version."""
    if worker.state == pb.WORKER_STATE_UNSPECIFIED:
        return "ACTIVE"
    return pb.WorkerState.Name(worker.state).removeprefix(_STATE_PREFIX)


def worker_document(worker: pb.WorkerInfo) -> dict[str, Any]:
    """A worker as a document."""
    return {
        "worker_id": worker.worker_id,
        "state": state_of(worker),
        "health": worker_health(worker.health),
        "leader": worker.leader,
        "connectors": list(worker.connectors),
        "tasks": list(worker.tasks),
        **(
            {"engine_memory": memory_document(worker.engine_memory)}
            if worker.HasField("engine_memory")
            else {}
        ),
        **({"usage": usage_document(worker.usage)} if worker.HasField("usage") else {}),
    }


@commands.command("list")
def list_(address: AddressOption = "", output: OutputOption = Output.TABLE) -> None:
    """Show the workers with their states and their numbers of connectors and tasks."""

    async def workers(client: ConnectClient) -> list[pb.WorkerInfo]:
        return list((await client.get_cluster_info()).workers)

    found = call_worker(address, workers)
    if output is not Output.TABLE:
        print_document({"workers": [worker_document(worker) for worker in found]}, output)
        return
    rows = [
        (
            worker.worker_id,
            state_of(worker),
            "yes" if worker.leader else "",
            memory_cell(worker),
            str(len(worker.connectors)),
            str(len(worker.tasks)),
        )
        for worker in found
    ]
    columns = ("WORKER", "STATE", "LEADER", "MEMORY", "CONNECTORS", "TASKS")
    print_table(columns, rows, empty="no workers yet")


@commands.command("drain")
def drain(
    worker: WorkerArgument,
    address: AddressOption = "",
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long to wait for it to be drained.")
    ] = 120.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move a worker's connectors and tasks to other workers, and wait until it has none.

    It stays in the group without an assignment until `drover worker resume` or its next start.
    """
    worker_id = _worker_id(worker)

    async def drained(client: ConnectClient) -> None:
        await client.drain_worker(worker_id, timeout_s=timeout)
        await _wait_until_empty(client, worker_id, time.monotonic() + timeout, output)

    call_worker(address, drained)


@commands.command("resume")
def resume(
    worker: WorkerArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Let a drained worker receive connectors and tasks again."""
    worker_id = _worker_id(worker)
    call_worker(address, lambda client: client.resume_worker(worker_id))
    if output is not Output.TABLE:
        print_document({"worker_id": worker_id, "state": "ACTIVE"}, output)
    else:
        say(f"{worker_id} is ACTIVE: it can receive connectors and tasks")


async def _wait_until_empty(
    client: ConnectClient, worker_id: str, end_s: float, output: Output
) -> None:
    """Print the drain's progress until the worker is drained or has left the group."""
    printed: object = None
    while True:
        workers = (await client.get_cluster_info()).workers
        worker = next((each for each in workers if each.worker_id == worker_id), None)
        # an empty list means that the group is electing a leader
        if worker is not None or workers:
            printed = _print_progress(worker_id, worker, printed, output)
        if (worker is None and workers) or (worker and worker.state == pb.WORKER_STATE_DRAINED):
            return
        if worker is not None and worker.state == pb.WORKER_STATE_ACTIVE:
            raise CliError(f"{worker_id} is ACTIVE: it was resumed or restarted during the drain")
        if time.monotonic() > end_s:
            raise CliError(
                f"{worker_id} still has {_held(worker)}; the drain continues:"
                " `drover worker list` shows its progress"
            )
        await asyncio.sleep(_POLL_S)


def _print_progress(
    worker_id: str, worker: pb.WorkerInfo | None, printed: object, output: Output
) -> object:
    """Print the drain's progress if it differs from ``printed``; returns the printed progress."""
    state = state_of(worker) if worker else "GONE"
    connectors, tasks = (len(worker.connectors), len(worker.tasks)) if worker else (0, 0)
    progress = state, connectors, tasks
    if progress == printed:
        return printed
    if output is not Output.TABLE:
        document = {
            "worker_id": worker_id,
            "state": state,
            "connectors": connectors,
            "tasks": tasks,
        }
        print_event(document, output)
    elif state == "DRAINING":
        say(f"{worker_id} is draining: {_held(worker)} left")
    elif state == "DRAINED":
        say(f"{worker_id} is drained: it receives no connectors and tasks until it is resumed")
    elif state == "GONE":
        say(f"{worker_id} has left the cluster")
    return progress


def _held(worker: pb.WorkerInfo | None) -> str:
    if worker is None:
        return "connectors or tasks"
    return f"{len(worker.connectors)} connectors and {len(worker.tasks)} tasks"


def _worker_id(given: str) -> str:
    """The worker's id, given as such or as the worker's name in the cluster of this folder."""
    if ":" in given:
        return given
    cluster = cluster_of_command()
    workers = {
        name: process.address
        for name, process in (cluster.state.processes.items() if cluster else ())
        if name.startswith("worker")
    }
    if given not in workers:
        known = f"; workers of the cluster here: {', '.join(sorted(workers))}" if workers else ""
        raise CliError(f"{given!r} is neither a worker's name nor host:port{known}")
    return workers[given]
