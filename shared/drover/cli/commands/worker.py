"""``drover worker``: the workers of a cluster, and handing over what one of them holds."""

import asyncio
import time
from typing import Annotated, Any

import typer

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.caller import call_worker
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
from drover.cli.output.connectors import worker_health
from drover.client import ConnectClient
from drover.local.state import DEFAULT_DIRECTORY, read_state

commands = typer.Typer(no_args_is_help=True, help="Workers, and draining them.")

_LOOK_EVERY_S = 0.2
_STATE_PREFIX = "WORKER_STATE_"

WorkerArgument = Annotated[
    str,
    typer.Argument(
        metavar="WORKER",
        help="Its id, host:port as `drover worker list` shows it; or its name in the cluster of "
        "`drover up` here, such as worker-2.",
    ),
]


def state_of(worker: pb.WorkerInfo) -> str:
    """ACTIVE, DRAINING or DRAINED; ACTIVE for a worker of an earlier version."""
    if worker.state == pb.WORKER_STATE_UNSPECIFIED:
        return "ACTIVE"
    return pb.WorkerState.Name(worker.state).removeprefix(_STATE_PREFIX)


def worker_document(worker: pb.WorkerInfo) -> dict[str, Any]:
    """A worker, for machines."""
    return {
        "worker_id": worker.worker_id,
        "state": state_of(worker),
        "health": worker_health(worker.health),
        "leader": worker.leader,
        "connectors": list(worker.connectors),
        "tasks": list(worker.tasks),
    }


@commands.command("list")
def list_(address: AddressOption = "", output: OutputOption = Output.TABLE) -> None:
    """Show the workers, whether they take work, and how much they have."""

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
            str(len(worker.connectors)),
            str(len(worker.tasks)),
        )
        for worker in found
    ]
    print_table(("WORKER", "STATE", "LEADER", "CONNECTORS", "TASKS"), rows, empty="no workers yet")


@commands.command("drain")
def drain(
    worker: WorkerArgument,
    address: AddressOption = "",
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long to wait for it to be empty.")
    ] = 120.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Have a worker hand its connectors and tasks over, and wait until it holds nothing.

    It stays in the cluster and is given no work until `drover worker resume` or its next start.
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
    """Have a worker that was drained take work again."""
    worker_id = _worker_id(worker)
    call_worker(address, lambda client: client.resume_worker(worker_id))
    if output is not Output.TABLE:
        print_document({"worker_id": worker_id, "state": "ACTIVE"}, output)
    else:
        say(f"{worker_id} takes work again")


async def _wait_until_empty(
    client: ConnectClient, worker_id: str, end_s: float, output: Output
) -> None:
    """Tell of every change until the worker holds nothing, or is gone."""
    told: object = None
    while True:
        workers = (await client.get_cluster_info()).workers
        found = next((each for each in workers if each.worker_id == worker_id), None)
        # none at all: the cluster is choosing its next leader
        if found is not None or workers:
            told = _tell(worker_id, found, told, output)
        if (found is None and workers) or (found and found.state == pb.WORKER_STATE_DRAINED):
            return
        if found is not None and found.state == pb.WORKER_STATE_ACTIVE:
            raise CliError(f"{worker_id} takes work again: somebody resumed or restarted it")
        if time.monotonic() > end_s:
            raise CliError(
                f"{worker_id} still holds {_held(found)}; it goes on handing over:"
                " `drover worker list` shows how far it is"
            )
        await asyncio.sleep(_LOOK_EVERY_S)


def _tell(worker_id: str, found: pb.WorkerInfo | None, told: object, output: Output) -> object:
    """Tell how far the drain is if that is news; returns what was told last."""
    state = state_of(found) if found else "GONE"
    connectors, tasks = (len(found.connectors), len(found.tasks)) if found else (0, 0)
    news = state, connectors, tasks
    if news == told:
        return told
    if output is not Output.TABLE:
        document = {
            "worker_id": worker_id,
            "state": state,
            "connectors": connectors,
            "tasks": tasks,
        }
        print_event(document, output)
    elif state == "DRAINING":
        say(f"{worker_id} hands over {_held(found)}")
    elif state == "DRAINED":
        say(f"{worker_id} is drained: it holds nothing, and takes no work until it is resumed")
    elif state == "GONE":
        say(f"{worker_id} has left the cluster")
    return news


def _held(worker: pb.WorkerInfo | None) -> str:
    if worker is None:
        return "something"
    return f"{len(worker.connectors)} connectors and {len(worker.tasks)} tasks"


def _worker_id(given: str) -> str:
    """The id of a worker that is given by it, or by its name in the cluster that runs here."""
    if ":" in given:
        return given
    state = read_state(DEFAULT_DIRECTORY)
    workers = {
        name: process.address
        for name, process in (state.processes.items() if state else ())
        if name.startswith("worker")
    }
    if given not in workers:
        known = f"; those of the cluster here are {', '.join(sorted(workers))}" if workers else ""
        raise CliError(f"{given!r} is not the name of a worker, nor host:port{known}")
    return workers[given]
