"""A real server on a free port with a scripted servicer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from drover.api.status_store.v1 import status_store_service_pb2 as pb
from drover.api.status_store.v1 import status_store_service_pb2_grpc as pb_grpc
from drover.client import channel
from drover.rpc.interceptors import Context, ended_by_server
from drover.rpc.security import Security
from drover.rpc.server import RpcServer

_READY_S = 120.0
SERVICE = "drover.api.status_store.v1.StatusStoreService"


@dataclass
class ScriptedStore(pb_grpc.StatusStoreServiceServicer):
    """A status store with scripted behaviour: ``behaviors`` by method name."""

    behaviors: dict[str, Callable[[Any, Context], Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    watch_ends: list[bool] = field(default_factory=list)
    watching: int = 0

    async def PutStatuses(self, request: Any, context: Any) -> Any:
        self.calls.append("PutStatuses")
        behavior = self.behaviors.get("PutStatuses")
        return await behavior(request, context) if behavior else pb.PutStatusesResponse()

    async def Flush(self, request: Any, context: Any) -> Any:
        self.calls.append("Flush")
        behavior = self.behaviors.get("Flush")
        return await behavior(request, context) if behavior else pb.FlushResponse()

    async def GetSnapshot(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.calls.append("GetSnapshot")
        async for chunk in self.behaviors["GetSnapshot"](request, context):
            yield chunk

    async def WatchStatuses(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.calls.append("WatchStatuses")
        behavior = self.behaviors.get("WatchStatuses")
        if behavior:
            async for message in behavior(request, context):
                yield message
            return
        self.watching += 1
        try:
            yield pb.WatchStatusesResponse(created=True, end_offset=request.start_offset)
            await asyncio.Event().wait()
        finally:
            self.watching -= 1
            self.watch_ends.append(ended_by_server())


@dataclass
class Running:
    server: RpcServer
    store: ScriptedStore
    address: str
    channel: grpc.aio.Channel

    @property
    def stub(self) -> "pb_grpc.StatusStoreServiceAsyncStub":
        return pb_grpc.StatusStoreServiceStub(self.channel)


async def start(**options: Any) -> Running:
    server = RpcServer(**{"listen": "127.0.0.1:0", "internal": True, **options})
    store = ScriptedStore()  # type: ignore[abstract]  # omitted methods are not needed
    server.add(pb_grpc.add_StatusStoreServiceServicer_to_server, store, SERVICE)
    address = await server.start()
    await server.set_serving(True)
    running = Running(server, store, address, channel(address))
    if _is_plaintext(**options):
        # gRPC remembers a refused connection to an earlier server of the port
        try:
            await asyncio.wait_for(running.channel.channel_ready(), _READY_S)
        except TimeoutError:
            # the finalizer of a server that runs breaks ast.parse() of Python 3.11, and with it
            # pytest's report of this failure
            await stop(running)
            raise
    return running


def _is_plaintext(*, security: Security | None = None, **_: object) -> bool:
    return security is None or security.certificate is None


async def stop(running: Running) -> None:
    await running.channel.close()
    await running.server.drain(0)
