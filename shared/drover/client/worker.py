"""The client for calls between workers."""

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
#: Creates a call's signature metadata from gRPC's method name and the request's bytes.
Sign = Callable[[str, bytes], Metadata]


def unsigned(method: str, body: bytes) -> Metadata:
    """No signature, for callers outside of the group."""
    del method, body
    return ()


class WorkerClient:
    """Calls another worker over one channel; see ``drover.client`` for timeouts and retries.

    Args:
        channel: The channel to the worker.
        sign: Signs calls. If it raises UnavailableError, the call is retried like a call to an
            unavailable worker.
    """

    def __init__(self, channel: grpc.aio.Channel, sign: Sign = unsigned) -> None:
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
            hop_count: The number of times the call was forwarded, including this one.
            author: The author of the original call; empty if unknown.
            retry: Whether the forwarded call is idempotent.
            timeout_s: The time limit for the call with its retries.
        """
        message = pb.ForwardRequest(
            method=method, request=request, hop_count=hop_count, author=author
        )
        response = await unary(self._forward, message, timeout_s=timeout_s, retry=retry)
        return response.response

    async def serves(self, *, timeout_s: float) -> bool:
        """Whether the worker's health is SERVING.

        Raises:
            DroverError: The worker does not respond in time.
        """
        request = health_pb2.HealthCheckRequest(service="")
        response = await unary(self._check_health, request, timeout_s=timeout_s, retry=False)
        return bool(response.status == health_pb2.HealthCheckResponse.SERVING)

    async def submit_task_configs(
        self,
        *,
        connector: str,
        task_configs: Sequence[ConfigMap],
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """Send a connector's task configs to the leader; returns when they are durable.

        A large set is sent in several messages.

        Raises:
            AbortedError: PART_MISSING, the leader lost parts of the set at every attempt.
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
    """A method like a stub's; it signs exactly the bytes that it sends."""
    method = f"/{_SERVICE}/{rpc}"
    call: Any = channel.unary_unary(
        method, request_serializer=bytes, response_deserializer=response_type.FromString
    )

    def make(request: RequestT, *, timeout: float, metadata: Metadata) -> Any:
        body = request.SerializeToString()
        return call(body, timeout=timeout, metadata=(*metadata, *sign(method, body)))

    return cast("grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]", make)
