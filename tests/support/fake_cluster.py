"""A server for the drover command with scripted responses."""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
from grpc_status import rpc_status

from drover.api.connect.v1 import connect_service_pb2_grpc as pb_grpc
from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as group_grpc
from drover.errors import DroverError, NotFoundError, Reason
from drover.rpc.status import to_rpc_status

#: Runs the command; returns exit code, stdout and stderr.
Run = Callable[..., tuple[int, str, str]]


class FakeCluster(pb_grpc.ConnectServiceServicer, group_grpc.CoordinatorServiceServicer):
    """Responds from ``answers`` by RPC name (a message, a sequence, an error, a function that
    returns one), and stores requests.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.requests: list[Any] = []
        #: The metadata of each request, in the same order.
        self.metadata: list[dict[str, Any]] = []

    def __getattribute__(self, name: str) -> Any:
        if not name[:1].isupper():
            return super().__getattribute__(name)

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            self.requests.append(request)
            self.metadata.append(dict(context.invocation_metadata()))
            answer = self.answers[name]
            if isinstance(answer, list):
                answer = answer.pop(0)
            if callable(answer):
                answer = answer()
            if isinstance(answer, DroverError):
                context.abort_with_status(rpc_status.to_status(to_rpc_status(answer, "x.drover")))
            return answer

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            self.requests.append(request)
            yield from self.answers[name]
            context.abort_with_status(
                rpc_status.to_status(
                    to_rpc_status(NotFoundError(Reason.CONNECTOR_NOT_FOUND, "gone"), "x.drover")
                )
            )

        def client_stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            first, *_ = requests
            return unary(first, context)

        if name == "ProduceRecords":
            return client_stream
        return stream if name.startswith("Watch") else unary
