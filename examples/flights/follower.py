"""Watches the statuses of a cluster through any worker that answers."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.connectors import run_state
from drover.client import ConnectClient, channel
from drover.errors import DroverError
from drover.model.failures import cause_in

_RECONNECT_S = 0.05


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A task's status, received at ``at_s`` (monotonic)."""

    at_s: float
    state: str
    worker_id: str
    cause: str = ""


class StatusFollower:
    """Keeps every task's present status and the sequence of its changes."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = list(addresses)
        self._changes: dict[tuple[str, int], list[TaskChange]] = {}

    def task(self, connector: str, task: int = 0) -> TaskChange | None:
        """A task's present status; None before it has one."""
        changes = self._changes.get((connector, task))
        return changes[-1] if changes else None

    def tasks_of(self, worker_id: str, since_s: float = 0.0) -> list[tuple[str, str]]:
        """(task, state) of every task whose last status, after ``since_s``, names the worker."""
        return [
            (f"{connector}-{task}", changes[-1].state)
            for (connector, task), changes in sorted(self._changes.items())
            if changes[-1].worker_id == worker_id and changes[-1].at_s > since_s
        ]

    def running_since(
        self, connector: str, since_s: float, *, lost_worker_id: str, task: int = 0
    ) -> TaskChange | None:
        """The first RUNNING status of a task after its worker was lost at ``since_s``.

        RUNNING from the lost worker counts only after another state, because it may be stale.
        """
        changes = [c for c in self._changes.get((connector, task), ()) if c.at_s > since_s]
        interrupted = False
        for change in changes:
            if change.state == "RUNNING" and (interrupted or change.worker_id != lost_worker_id):
                return change
            interrupted = interrupted or change.state != "RUNNING"
        return None

    async def run(self) -> None:
        """Watch until cancelled; reconnects to the next worker when a watch ends."""
        while True:
            for address in self._addresses:
                async with channel(address) as connection:
                    try:
                        async with aclosing(ConnectClient(connection).watch_statuses()) as events:
                            async for event in events:
                                self.note(event)
                    except DroverError:
                        pass
                await asyncio.sleep(_RECONNECT_S)

    def note(self, event: pb.WatchStatusesResponse) -> None:
        """Apply one event."""
        name = event.status.name
        if event.removed:
            for key in [key for key in self._changes if key[0] == name]:
                del self._changes[key]
            return
        for task in event.status.tasks:
            change = TaskChange(
                time.monotonic(), run_state(task.state), task.worker_id, cause_in(task.trace)
            )
            changes = self._changes.setdefault((name, task.task), [])
            last = changes[-1] if changes else None
            if last is None or (last.state, last.worker_id) != (change.state, change.worker_id):
                changes.append(change)
