"""The health service, which says why a server does not serve, where its protocol has no field."""

from collections.abc import Callable
from typing import Any

from grpc_health.v1 import health, health_pb2

from drover.rpc import WHY_NOT_SERVING_KEY

_WHY_CHARS_MAX = 500


class ExplainedHealth(health.aio.HealthServicer):
    """Adds the reason to the trailing metadata of a Check that answers NOT_SERVING.

    It may name other services' addresses, so over TLS only callers with a certificate read it.
    """

    def __init__(self, *, secure: bool) -> None:
        super().__init__()
        self._secure = secure
        #: Why the server does not serve, for people; empty when it is not known.
        self.why_not: Callable[[], str] = lambda: ""

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """As the protocol has it."""
        answer = await super().Check(request, context)
        if answer.status != health_pb2.HealthCheckResponse.SERVING and self._may_hear(context):
            why = as_metadata(self.why_not())
            if why:
                context.set_trailing_metadata(((WHY_NOT_SERVING_KEY, why),))
        return answer

    def _may_hear(self, context: Any) -> bool:
        return not self._secure or bool(context.peer_identities())


def as_metadata(text: str) -> str:
    """The text on one line, as the value of a header may be: printable ASCII, and not long."""
    line = " ".join(text.split()).encode("ascii", "replace").decode()
    return "".join(each if each.isprintable() else "?" for each in line)[:_WHY_CHARS_MAX]
