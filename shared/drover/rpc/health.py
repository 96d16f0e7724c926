"""The health service, with the reason of NOT_SERVING in the trailing metadata."""

from collections.abc import Callable
from typing import Any

from grpc_health.v1 import health, health_pb2

from drover.rpc import WHY_NOT_SERVING_KEY

_WHY_CHARS_MAX = 500


class ExplainedHealth(health.aio.HealthServicer):
    """Adds the reason of NOT_SERVING to the trailing metadata of a Check.

    The reason may name other services' addresses, so over TLS only callers with a client
    certificate get it.
    """

    def __init__(self, *, secure: bool) -> None:
        super().__init__()
        self._secure = secure
        #: The reason of NOT_SERVING, as text; empty if unknown.
        self.why_not: Callable[[], str] = lambda: ""

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Return the status of the service; see gRPC's health checking protocol."""
        response = await super().Check(request, context)
        is_serving = response.status == health_pb2.HealthCheckResponse.SERVING
        if not is_serving and self._may_read_reason(context):
            why = as_metadata(self.why_not())
            if why:
                context.set_trailing_metadata(((WHY_NOT_SERVING_KEY, why),))
        return response

    def _may_read_reason(self, context: Any) -> bool:
        return not self._secure or bool(context.peer_identities())


def as_metadata(text: str) -> str:
    """The text as a header value: one line of printable ASCII, of at most 500 characters."""
    line = " ".join(text.split()).encode("ascii", "replace").decode()
    return "".join(each if each.isprintable() else "?" for each in line)[:_WHY_CHARS_MAX]
