"""The peer of every RPC figure: a server with Drover's interceptors and a method that does nothing.

``python -m bench.echo_server`` prints its address and serves until SIGTERM.
"""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.rpc.logs import configure_logging
from drover.rpc.server import RpcServer

SERVICE = "drover.api.coordinator.v1.CoordinatorService"


async def heartbeat(
    request: pb.HeartbeatRequest,
    context: grpc.aio.ServicerContext[pb.HeartbeatRequest, pb.HeartbeatResponse],
) -> pb.HeartbeatResponse:
    """Answer at once."""
    return pb.HeartbeatResponse()


def _add_heartbeat(
    method: Callable[..., Awaitable[pb.HeartbeatResponse]], server: grpc.aio.Server
) -> None:
    handler = grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=pb.HeartbeatRequest.FromString,
        response_serializer=pb.HeartbeatResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Heartbeat": handler}),)
    )


async def main() -> None:
    """Serve until SIGTERM."""
    configure_logging("echo", "WARNING", "json")
    server = RpcServer(listen="127.0.0.1:0", internal=True)
    server.add(_add_heartbeat, heartbeat, SERVICE)
    address = await server.start()
    sys.stdout.write(address + "\n")
    sys.stdout.flush()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await stopping.wait()
    await server.drain(grace_s=1)


if __name__ == "__main__":
    asyncio.run(main())
