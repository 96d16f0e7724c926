"""WorkerService: the calls between the workers of a cluster."""

from collections.abc import Mapping

import grpc.aio
from google.protobuf.message import Message

from drover.api.worker.v1 import worker_service_pb2 as pb
from drover.api.worker.v1 import worker_service_pb2_grpc as pb_grpc
from drover.clock import Clock
from drover.codec.common import invalid_field
from drover.errors import InvalidArgumentError, Reason
from drover.rpc.interceptors import remaining_s
from drover.rpc.multipart import PartsInProgress
from drover.security.principal import Principal
from drover_worker.admin import (
    audit_events,
    cluster,
    cluster_plugins,
    figures,
    logger_levels,
    plugin_reload,
    rebalances,
    task_activities,
    worker_drains,
)
from drover_worker.admin import connector_changes as changes
from drover_worker.admin.admin import Admin
from drover_worker.admin.call import AdminCall, Deadline
from drover_worker.admin.forwarding import ServeForwarded
from drover_worker.core import requests
from drover_worker.core.requests.pending import HOP_COUNT_MAX
from drover_worker.shell.herder_loop import HerderLoop

Context = grpc.aio.ServicerContext[Message, Message]


def forwarded_methods(admin: Admin) -> Mapping[str, ServeForwarded]:
    """The handler of each call that may be forwarded, by its name."""
    return {
        cluster.GET_INFO.name: cluster.GET_INFO.served_by(admin.cluster.get),
        worker_drains.DRAIN.name: worker_drains.DRAIN.served_by(admin.drains.drain),
        worker_drains.RESUME.name: worker_drains.RESUME.served_by(admin.drains.resume),
        rebalances.LIST.name: rebalances.LIST.served_by(admin.rebalances.list_page),
        logger_levels.LIST.name: logger_levels.LIST.served_by(admin.loggers.list_all),
        audit_events.LIST.name: audit_events.LIST.served_by(admin.audit_events.list_page),
        figures.GET.name: figures.GET.served_by(admin.figures.serve),
        task_activities.GET.name: task_activities.GET.served_by(admin.activities.serve),
        cluster_plugins.LIST.name: cluster_plugins.LIST.served_by(admin.plugins.list_all),
        plugin_reload.RELOAD.name: plugin_reload.RELOAD.served_by(admin.plugin_reload.reload),
        changes.CREATE.name: changes.CREATE.served_by(admin.changes.create),
        changes.PUT.name: changes.PUT.served_by(admin.changes.put),
        changes.ALTER_OFFSETS.name: changes.ALTER_OFFSETS.served_by(admin.changes.alter_offsets),
        changes.RESET_OFFSETS.name: changes.RESET_OFFSETS.served_by(admin.changes.reset_offsets),
        changes.ROLLBACK.name: changes.ROLLBACK.served_by(admin.changes.rollback),
        changes.DELETE.name: changes.DELETE.served_by(admin.changes.delete),
        changes.PAUSE.name: changes.PAUSE.served_by(admin.changes.pause),
        changes.RESUME.name: changes.RESUME.served_by(admin.changes.resume),
        changes.STOP.name: changes.STOP.served_by(admin.changes.stop),
        changes.RESTART.name: changes.RESTART.served_by(admin.changes.restart),
        changes.RESTART_TASK.name: changes.RESTART_TASK.served_by(admin.changes.restart_task),
    }


class WorkerServicer(pb_grpc.WorkerServiceServicer):
    """Accepts forwarded calls, and task configs for the leader to write."""

    def __init__(self, admin: Admin, loop: HerderLoop, clock: Clock) -> None:
        """``clock`` is used to drop incomplete sets of task configs after a timeout."""
        self._methods = forwarded_methods(admin)
        self._loop = loop
        self._parts = PartsInProgress[pb.SubmittedTaskConfig](clock)

    async def Forward(self, request: pb.ForwardRequest, context: Context) -> pb.ForwardResponse:
        """Handle a call that another worker forwarded."""
        if not 1 <= request.hop_count <= HOP_COUNT_MAX:
            raise invalid_field("hop_count", f"must be from 1 to {HOP_COUNT_MAX}")
        serve = self._methods.get(request.method)
        if serve is None:
            text = f"{request.method!r} is not a call that workers forward"
            raise InvalidArgumentError(Reason.INVALID_REQUEST, text)
        call = AdminCall(
            # the worker that the client called has authorized the call
            principal=Principal(request.author),
            deadline=Deadline.after(remaining_s(context)),
            hop_count=request.hop_count,
        )
        return pb.ForwardResponse(response=await serve(request.request, call))

    async def SubmitTaskConfigs(
        self, request: pb.SubmitTaskConfigsRequest, context: Context
    ) -> pb.SubmitTaskConfigsResponse:
        """Collect the parts of another worker's task configs; write them with the last part."""
        if not request.request_id:
            raise invalid_field("request_id", "must be set; a retry must send the same id")
        entries = self._parts.add(request)
        if entries is None:
            return pb.SubmitTaskConfigsResponse()
        await self._loop.request(
            requests.SubmitTaskConfigs(
                connector=request.connector,
                configs=[dict(entry.config) for entry in entries],
                request_id=request.request_id,
            ),
            timeout_s=remaining_s(context),
        )
        return pb.SubmitTaskConfigsResponse()
