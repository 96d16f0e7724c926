"""Asks a server how it is: ``python -m drover.cli.health HOST:PORT`` exits 0 when it serves."""

import asyncio
import sys
from collections.abc import Callable

import grpc
from grpc_health.v1 import health_pb2

from drover.backoff import Backoff

_CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
)
_POLL_FIRST_S = 0.05
_POLL_MAX_S = 0.5


class HealthChannel:
    """A connection that asks ``grpc.health.v1`` of one address; use as an async context manager.

    ``service`` is the full name of the service that is asked for; empty for the server.
    """

    def __init__(self, address: str, *, service: str = "") -> None:
        self.address = address
        self._service = service
        self._channel = grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
        self._check = self._channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )

    async def __aenter__(self) -> "HealthChannel":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._channel.close()

    async def status(self, timeout_s: float = 1.0) -> str:
        """SERVING, NOT_SERVING, or UNREACHABLE when nobody answers in time."""
        request = health_pb2.HealthCheckRequest(service=self._service)
        try:
            answer = await self._check(request, timeout=timeout_s)
        except grpc.aio.AioRpcError:
            return "UNREACHABLE"
        name: str = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        return name


async def wait_until_serving(
    address: str, timeout_s: float, *, given_up: Callable[[], bool] = lambda: False
) -> bool:
    """Poll until the server at ``address`` serves; False at the timeout or once ``given_up()``."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + timeout_s
    polls = Backoff(_POLL_FIRST_S, _POLL_MAX_S, growth=1.5)
    async with HealthChannel(address) as channel:
        while not given_up() and loop.time() < end_s:
            if await channel.status() == "SERVING":
                return True
            await asyncio.sleep(polls.next_pause_s())
    return False


async def _ask(address: str) -> str:
    async with HealthChannel(address) as channel:
        return await channel.status(timeout_s=3.0)


def main(argv: list[str]) -> int:
    """Print the status of the server named in ``argv``; 0 when it serves, 1 else, 2 on misuse."""
    if len(argv) != 1 or ":" not in argv[0]:
        print("usage: python -m drover.cli.health HOST:PORT", file=sys.stderr)
        return 2
    status = asyncio.run(_ask(argv[0]))
    print(f"{argv[0]} {status}")
    return 0 if status == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
