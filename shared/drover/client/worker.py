"""Workers among each other."""

from collections.abc import Sequence

import grpc.aio
from grpc_health.v1 import health_pb2

from drover.api.worker.v1 import worker_service_pb2 as pb
from drover.api.worker.v1 import worker_service_pb2_grpc as pb_grpc
from drover.client.calls import CALL_TIMEOUT_S, new_request_id, unary
from drover.client.multipart import put_parts
from drover.model.config import ConfigMap


class WorkerClient:
    """Calls another worker over one channel; see ``drover.client`` for what all calls share."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = pb_grpc.WorkerServiceStub(channel)
        # grpc_health's own stub has no types
        self._check_health = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )

    async def forward(
        self,
        *,
        method: str,
        request: bytes,
        hop_count: int,
        author: str = "",
        retry: bool,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> bytes:
        """Forward a ConnectService call; returns the serialized response.

        Args:
            method: The RPC's name, such as "CreateConnector".
            request: The serialized request.
            hop_count: How often it was forwarded, this time included.
            author: Who asked for the call; empty if unknown.
            retry: Whether the forwarded call is safe to repeat.
            timeout_s: For the call with its retries.
        """
        message = pb.ForwardRequest(
            method=method, request=request, hop_count=hop_count, author=author
        )
        response = await unary(self._stub.Forward, message, timeout_s=timeout_s, retry=retry)
        return response.response

    async def serves(self, *, timeout_s: float) -> bool:
        """Whether the worker says that it can answer calls.

        Raises:
            DroverError: It does not answer in time.
        """
        request = health_pb2.HealthCheckRequest(service="")
        answer = await unary(self._check_health, request, timeout_s=timeout_s, retry=False)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def submit_task_configs(
        self,
        *,
        connector: str,
        task_configs: Sequence[ConfigMap],
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """Hand the leader a connector's task configs; returns when they are durable.

        A large set goes in several messages.

        Raises:
            AbortedError: PART_MISSING, the leader lost what was sent again and again.
        """
        request_id = request_id or new_request_id()
        await put_parts(
            self._stub.SubmitTaskConfigs,
            [pb.SubmittedTaskConfig(config=config) for config in task_configs],
            lambda part: pb.SubmitTaskConfigsRequest(
                connector=connector, task_configs=part, request_id=request_id
            ),
            timeout_s=timeout_s,
        )
