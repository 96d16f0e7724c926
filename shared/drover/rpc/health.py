"""The health service, with the reason of NOT_SERVING in the trailing metadata."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drover.rpc import WHY_NOT_SERVING_KEY
from drover.rpc.guard import current_principal

_WHY_CHARS_MAX = 500
_STATUS = health_pb2.HealthCheckResponse


class ExplainedHealth(health_pb2_grpc.HealthServicer):
    """Adds the reason of NOT_SERVING to the trailing metadata of a Check.

    The reason may name other services' addresses, so only callers with a grant get it; without an
    access file all callers do.

    gRPC's own servicer holds a lock while it writes to a watcher, so a watcher that does not read
    would block the change of the status.
    """

    def __init__(self) -> None:
        self._statuses: dict[str, Any] = {}
        self._changed = asyncio.Event()
        self._is_final = False
        #: The reason of NOT_SERVING, as text; empty if unknown.
        self.why_not: Callable[[], str] = lambda: ""

    def set(self, services: Iterable[str], status: Any) -> None:
        """Set the status of services, unless ``shut_down`` was called."""
        if self._is_final:
            return
        self._statuses.update(dict.fromkeys(services, status))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def shut_down(self) -> None:
        """Set all statuses to NOT_SERVING for good."""
        self.set(list(self._statuses), _STATUS.NOT_SERVING)
        self._is_final = True

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Return the status of the service; see gRPC's health checking protocol."""
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        if status != _STATUS.SERVING and current_principal().grants:
            why = as_metadata(self.why_not())
            if why:
                context.set_trailing_metadata(((WHY_NOT_SERVING_KEY, why),))
        return _STATUS(status=status)

    async def Watch(  # noqa: N802 - gRPC's name
        self, request: Any, context: Any
    ) -> AsyncIterator[Any]:
        """Return the status of the service now and after each change."""
        del context
        last = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, _STATUS.SERVICE_UNKNOWN)
            if status != last:
                last = status
                yield _STATUS(status=status)
            await changed.wait()


def as_metadata(text: str) -> str:
    """The text as a header value: one line of printable ASCII, of at most 500 characters."""
    line = " ".join(text.split()).encode("ascii", "replace").decode()
    return "".join(each if each.isprintable() else "?" for each in line)[:_WHY_CHARS_MAX]
