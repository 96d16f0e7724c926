"""What tasks do at present, as the workers that run them answer when a status is read.

The status store has no record of it: steps change many times a second.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from drover.api.common.v1.record_counts_pb2 import RecordCounts
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.worker.v1 import worker_service_pb2 as worker_pb
from drover.codec.common import decode_task_id
from drover.codec.connect import note_lags
from drover.model.ids import TaskId
from drover_worker.admin.call import AdminCall
from drover_worker.admin.forwarding import ForwardedMethod, RequestForwarder

#: A status is returned without the activities of workers that do not answer within this time.
_WORKER_TIMEOUT_S = 1.0
_IN_ENGINE = (pb.RUN_STATE_RUNNING, pb.RUN_STATE_PAUSED)

GET = ForwardedMethod(
    "GetTaskActivities", worker_pb.GetTaskActivitiesRequest, worker_pb.GetTaskActivitiesResponse
)
#: The tasks of some connectors on this worker; of all connectors if none is given.
OwnTasks = Callable[[Collection[str]], Iterable[worker_pb.PresentTask]]


class TaskActivities:
    """Adds activities, rates and present counts to statuses."""

    def __init__(self, *, worker_id: str, forwarder: RequestForwarder, own: OwnTasks) -> None:
        self._worker_id = worker_id
        self._forwarder = forwarder
        self._own = own

    async def serve(
        self, request: worker_pb.GetTaskActivitiesRequest, _call: AdminCall
    ) -> worker_pb.GetTaskActivitiesResponse:
        """Return what this worker's tasks do, to another worker."""
        return worker_pb.GetTaskActivitiesResponse(tasks=self._own(request.connectors))

    async def add_to(self, statuses: Sequence[pb.ConnectorStatus], call: AdminCall) -> None:
        """Complete the statuses in place."""
        names: dict[str, dict[str, None]] = {}
        for status in statuses:
            for task in status.tasks:
                if task.state in _IN_ENGINE:
                    names.setdefault(task.worker_id, {})[status.name] = None
        timeout_s = min(_WORKER_TIMEOUT_S, call.deadline.remaining_s() / 2)
        found = await asyncio.gather(
            *(self._tasks_of(worker, list(wanted), timeout_s) for worker, wanted in names.items())
        )
        present = dict(zip(names, found, strict=True))
        for status in statuses:
            _complete(status, present)

    async def _tasks_of(
        self, worker_id: str, connectors: Sequence[str], timeout_s: float
    ) -> Mapping[TaskId, worker_pb.PresentTask]:
        """The present tasks of a worker; none if it does not answer in time."""
        request = worker_pb.GetTaskActivitiesRequest(connectors=connectors)
        if worker_id == self._worker_id:
            tasks = list(self._own(connectors))
        else:
            response = await self._forwarder.ask(GET, request, worker_id, timeout_s=timeout_s)
            if response is None:
                return {}
            tasks = list(response.tasks)
        return {decode_task_id(each.task): each for each in tasks}


def _complete(
    status: pb.ConnectorStatus, present: Mapping[str, Mapping[TaskId, worker_pb.PresentTask]]
) -> None:
    rates = []
    for task in status.tasks:
        found = present.get(task.worker_id, {}).get(TaskId(status.name, task.task))
        if found is None or task.state not in _IN_ENGINE:
            continue
        task.activity.CopyFrom(found.activity)
        task.records_per_second = found.records_per_second
        rates.append(found.records_per_second)
        if found.HasField("counts"):
            _add_difference(status.counts, task.counts, found.counts)
            task.counts.CopyFrom(found.counts)
        if found.figures:
            del task.figures[:]
            task.figures.extend(found.figures)
    if rates:
        status.records_per_second = sum(rates)
    note_lags(status)


def _add_difference(total: RecordCounts, stored: RecordCounts, present: RecordCounts) -> None:
    """Change a connector's total as the counts of one of its tasks."""
    for field in RecordCounts.DESCRIPTOR.fields:
        name = field.name
        setattr(total, name, getattr(total, name) + getattr(present, name) - getattr(stored, name))
