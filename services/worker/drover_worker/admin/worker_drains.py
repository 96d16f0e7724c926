"""Drains workers, and lets them accept work again."""

from typing import TypeVar

from google.protobuf.message import Message

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import invalid_field
from drover_worker.admin.call import AdminCall
from drover_worker.admin.forwarding import ForwardedMethod, RequestForwarder
from drover_worker.core import requests

RequestT = TypeVar("RequestT", pb.DrainWorkerRequest, pb.ResumeWorkerRequest)
ResponseT = TypeVar("ResponseT", bound=Message)

DRAIN = ForwardedMethod("DrainWorker", pb.DrainWorkerRequest, pb.DrainWorkerResponse)
RESUME = ForwardedMethod("ResumeWorker", pb.ResumeWorkerRequest, pb.ResumeWorkerResponse)


class WorkerDrains:
    """Drains and resumes workers; a call to any worker is forwarded to the named one."""

    def __init__(self, forwarder: RequestForwarder) -> None:
        self._forwarder = forwarder

    async def drain(
        self, request: pb.DrainWorkerRequest, call: AdminCall
    ) -> pb.DrainWorkerResponse:
        """Drain a worker; returns once it has rejoined the group as draining."""
        return await self._set(DRAIN, request, call, draining=True)

    async def resume(
        self, request: pb.ResumeWorkerRequest, call: AdminCall
    ) -> pb.ResumeWorkerResponse:
        """Let a drained worker accept work again."""
        return await self._set(RESUME, request, call, draining=False)

    async def _set(
        self,
        method: ForwardedMethod[RequestT, ResponseT],
        request: RequestT,
        call: AdminCall,
        *,
        draining: bool,
    ) -> ResponseT:
        if not _is_address(request.worker_id):
            raise invalid_field("worker_id", "must be the host:port of a worker")
        ask = requests.DrainWorker(request.worker_id, draining)
        return await self._forwarder.answer(
            method, request, ask, lambda _: method.response_type(), call
        )


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdecimal()
