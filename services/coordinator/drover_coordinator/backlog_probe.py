"""Holds session timers while calls queue up in this process.

gRPC delivers calls one by one. Under load a heartbeat can wait in this process for seconds, and its
member's session must not expire during that time. So the coordinator calls itself periodically.
While that call has no response, other calls may be queued too, and all timers are held. A timer
that fires late shows the machine that heartbeats may be late, and it restarts the session.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drover.client.secure import Connect, connect_by, plaintext
from drover.security.certificates import Certificate
from drover.security.renewed import Renewed

INTERVAL_S = 1.0
#: A slower response indicates a backlog; shorter than any session timeout.
PATIENCE_S = 2.0
#: The longest hold of timers, so that dead members expire eventually.
HOLD_MAX_S = 60.0
_STEP_S = 1.0

_log = structlog.get_logger(__name__)


class BacklogProbe:
    """Calls this process periodically and holds timers while the response is late.

    Args:
        send: Calls this process through gRPC; returns after the response.
        hold: Delays all timers by the given number of ms.
        interval_s: From one response to the next call.
        patience_s: How long a response may take before timers are held.
    """

    def __init__(
        self,
        send: Callable[[], Awaitable[object]],
        hold: Callable[[int], None],
        *,
        interval_s: float = INTERVAL_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._send = send
        self._hold = hold
        self._interval_s = interval_s
        self._patience_s = patience_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start in the background."""
        self._task = asyncio.create_task(self._run(), name="backlog probe")

    async def close(self) -> None:
        """Stop; idempotent."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._probe()

    async def _probe(self) -> None:
        request = asyncio.ensure_future(self._send())
        try:
            answered = await self._answered(request, self._patience_s)
            waited_s = self._patience_s
            while not answered and waited_s < HOLD_MAX_S:
                self._hold(int(2 * _STEP_S * 1_000))
                answered = await self._answered(request, _STEP_S)
                waited_s += _STEP_S
            if waited_s > self._patience_s:
                _log.warning(
                    "calls were queued; session timers were held", waited_s=round(waited_s)
                )
        finally:
            request.cancel()
            await asyncio.wait([request])

    async def _answered(self, request: "asyncio.Future[object]", limit_s: float) -> bool:
        done, _ = await asyncio.wait([request], timeout=limit_s)
        return bool(done)


def connect_to_itself(certificate: Renewed[Certificate] | None) -> Connect:
    """Connect to this process; its certificate is checked by name, not by its listen address."""
    name = "" if certificate is None else certificate.present().names[0]
    return connect_by(certificate, server_name=name)


@contextlib.asynccontextmanager
async def probing(
    address: str, hold: Callable[[int], None], connect: Connect = plaintext
) -> AsyncIterator[None]:
    """Probe while the block runs; ``address`` is where this process listens."""
    async with connect(address) as connection:
        stub: Any = health_pb2_grpc.HealthStub(connection)

        async def send() -> None:
            with contextlib.suppress(grpc.aio.AioRpcError):  # a timeout, or the server has stopped
                await stub.Check(health_pb2.HealthCheckRequest(), timeout=HOLD_MAX_S)

        check = BacklogProbe(send, hold)
        check.start()
        try:
            yield
        finally:
            await check.close()
