"""WorkerService: what the workers of a cluster ask of each other."""

from typing import Any

import grpc.aio

from drover.api.worker.v1 import worker_service_pb2 as pb
from drover.api.worker.v1 import worker_service_pb2_grpc as pb_grpc
from drover.clock import Clock
from drover.codec.common import invalid_field
from drover.errors import InvalidArgumentError, Reason
from drover.rpc.interceptors import remaining_s
from drover.rpc.multipart import PartsInProgress
from drover_worker.carrier import Carrier
from drover_worker.core import requests
from drover_worker.core.pending_calls import HOP_COUNT_MAX
from drover_worker.herder_loop import HerderLoop

RpcContext = grpc.aio.ServicerContext[Any, Any]


class WorkerServicer(pb_grpc.WorkerServiceServicer):
    """Takes carried calls, and task configs for the leader to write."""

    def __init__(self, loop: HerderLoop, carrier: Carrier, clock: Clock) -> None:
        """``clock`` tells which sets of task configs are given up before they are whole."""
        self._loop = loop
        self._carrier = carrier
        self._parts = PartsInProgress[pb.SubmittedTaskConfig](clock)

    async def Forward(  # noqa: N802
        self, request: pb.ForwardRequest, context: RpcContext
    ) -> pb.ForwardResponse:
        """Answer a call that another worker carried here."""
        _need_deadline(context)
        if not 1 <= request.hop_count <= HOP_COUNT_MAX:
            raise invalid_field("hop_count", f"must be from 1 to {HOP_COUNT_MAX}")
        response = await self._carrier.forwarded(
            request.method,
            request.request,
            hop_count=request.hop_count,
            timeout_s=remaining_s(context),
            author=request.author,
        )
        return pb.ForwardResponse(response=response)

    async def SubmitTaskConfigs(  # noqa: N802
        self, request: pb.SubmitTaskConfigsRequest, context: RpcContext
    ) -> pb.SubmitTaskConfigsResponse:
        """Write the task configs that another worker's connector made, with their last part."""
        _need_deadline(context)
        if not request.request_id:
            raise invalid_field("request_id", "must be given: the call is repeated by it")
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


def _need_deadline(context: RpcContext) -> None:
    """The server also carries the admin API, whose callers may set none."""
    if context.time_remaining() is None:
        text = "calls between workers need a deadline: set a timeout on the call"
        raise InvalidArgumentError(Reason.MISSING_DEADLINE, text)
