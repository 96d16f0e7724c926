"""Whether this process hears its callers in time.

gRPC hands calls over one after the other. Behind a crowd, or on a busy machine, a heartbeat may
wait for seconds in this very process, and its member must not be taken for silent meanwhile. So the
coordinator calls itself now and then: while that call waits, so may others, and no timer fires. A
timer that fires late tells the machine that it did not listen; the member gets its time again.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drover.client import channel

INTERVAL_S = 1.0
#: A call that takes longer says that this process is behind; shorter than any session.
PATIENCE_S = 2.0
#: A process that hears nobody for so long judges by what it knows: the dead must not stay for ever.
HOLD_MAX_S = 60.0
_STEP_S = 1.0

_log = structlog.get_logger(__name__)


class ListeningCheck:
    """Holds the timers while this process is behind with its calls.

    Args:
        ask: Makes a call to this process through gRPC; returns when it is answered.
        hold: Keeps timers from firing for so many ms.
        interval_s: From one answer to the next call.
        patience_s: How long an answer may take.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[object]],
        hold: Callable[[int], None],
        *,
        interval_s: float = INTERVAL_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._ask = ask
        self._hold = hold
        self._interval_s = interval_s
        self._patience_s = patience_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin in the background."""
        self._task = asyncio.create_task(self._run(), name="listening check")

    async def close(self) -> None:
        """Stop; idempotent."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._listen()

    async def _listen(self) -> None:
        asking = asyncio.ensure_future(self._ask())
        try:
            heard = await self._heard(asking, self._patience_s)
            waited_s = self._patience_s
            while not heard and waited_s < HOLD_MAX_S:
                self._hold(int(2 * _STEP_S * 1_000))
                heard = await self._heard(asking, _STEP_S)
                waited_s += _STEP_S
            if waited_s > self._patience_s:
                _log.warning("calls had to wait for their turn", waited_s=round(waited_s))
        finally:
            asking.cancel()
            await asyncio.wait([asking])

    async def _heard(self, asking: "asyncio.Future[object]", limit_s: float) -> bool:
        done, _ = await asyncio.wait([asking], timeout=limit_s)
        return bool(done)


@contextlib.asynccontextmanager
async def checking(address: str, hold: Callable[[int], None]) -> AsyncIterator[None]:
    """Check while the block runs; ``address`` is where this process listens."""
    async with channel(address) as connection:
        stub: Any = health_pb2_grpc.HealthStub(connection)

        async def ask() -> None:
            with contextlib.suppress(grpc.aio.AioRpcError):  # no answer in time, or at the end
                await stub.Check(health_pb2.HealthCheckRequest(), timeout=HOLD_MAX_S)

        check = ListeningCheck(ask, hold)
        check.start()
        try:
            yield
        finally:
            await check.close()
