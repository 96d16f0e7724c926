"""Workers among each other."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import grpc.aio
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from drover.api.worker.v1 import worker_service_pb2 as pb
from drover.client.calls import CALL_TIMEOUT_S, new_request_id, unary
from drover.client.multipart import put_parts
from drover.model.config import ConfigMap

_SERVICE = pb.DESCRIPTOR.services_by_name["WorkerService"].full_name

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
Metadata = tuple[tuple[str, str], ...]
#: Makes the metadata that signs a call, of gRPC's name of it and its request's bytes.
Sign = Callable[[str, bytes], Metadata]


def unsigned(method: str, body: bytes) -> Metadata:
    """For callers that are no worker of a group."""
    del method, body
    return ()


class WorkerClient:
    """Calls another worker over one channel; see ``drover.client`` for what all calls share."""

    def __init__(self, channel: grpc.aio.Channel, sign: Sign = unsigned) -> None:
        """``sign`` may raise UnavailableError, which is retried as if the worker had said so."""
        self._forward: grpc.aio.UnaryUnaryMultiCallable[pb.ForwardRequest, pb.ForwardResponse] = (
            _signed_call(channel, "Forward", pb.ForwardResponse, sign)
        )
        self._submit_task_configs: grpc.aio.UnaryUnaryMultiCallable[
            pb.SubmitTaskConfigsRequest, pb.SubmitTaskConfigsResponse
        ] = _signed_call(channel, "SubmitTaskConfigs", pb.SubmitTaskConfigsResponse, sign)
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
        response = await unary(self._forward, message, timeout_s=timeout_s, retry=retry)
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
            self._submit_task_configs,
            [pb.SubmittedTaskConfig(config=config) for config in task_configs],
            lambda part: pb.SubmitTaskConfigsRequest(
                connector=connector, task_configs=part, request_id=request_id
            ),
            timeout_s=timeout_s,
        )


def _signed_call(
    channel: grpc.aio.Channel, rpc: str, response_type: type[ResponseT], sign: Sign
) -> "grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]":
    """As a stub's method; what is signed are the very bytes that are sent."""
    method = f"/{_SERVICE}/{rpc}"
    call: Any = channel.unary_unary(
        method, request_serializer=bytes, response_deserializer=response_type.FromString
    )

    def make(request: RequestT, *, timeout: float, metadata: Metadata) -> Any:
        body = request.SerializeToString()
        return call(body, timeout=timeout, metadata=(*metadata, *sign(method, body)))

    return cast("grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]", make)
