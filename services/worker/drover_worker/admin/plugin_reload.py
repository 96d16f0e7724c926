"""Makes a worker load plugins that were installed after its engine started."""

import asyncio
from collections.abc import Awaitable, Callable

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import invalid_field
from drover.errors import DeadlineExceededError, FailedPreconditionError, Reason
from drover_worker.admin.call import AdminCall
from drover_worker.admin.forwarding import ForwardedMethod, RequestForwarder
from drover_worker.core.requests.pending import HOP_COUNT_MAX
from drover_worker.shell.herder_loop import HerderLoop

RELOAD = ForwardedMethod("ReloadPlugins", pb.ReloadPluginsRequest, pb.ReloadPluginsResponse)

#: Replaces this worker's engine; returns how many connectors and tasks moved to the new one.
ReplaceEngine = Callable[[], Awaitable[int]]


class PluginReload:
    """Replaces the engine of this worker, or forwards the call to the named worker."""

    def __init__(
        self,
        *,
        worker_id: str,
        loop: HerderLoop,
        forwarder: RequestForwarder,
        replace_engine: ReplaceEngine,
    ) -> None:
        self._worker_id = worker_id
        self._loop = loop
        self._forwarder = forwarder
        self._replace_engine = replace_engine

    async def reload(
        self, request: pb.ReloadPluginsRequest, call: AdminCall
    ) -> pb.ReloadPluginsResponse:
        """Replace a worker's engine; concurrent calls wait for the same replacement.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE, the new engine did not start.
            InvalidArgumentError: INVALID_REQUEST, the worker is not in the group.
            FailedPreconditionError: NOT_LEADER, this worker cannot forward the call.
            DeadlineExceededError: The replacement continues.
        """
        if request.worker_id in ("", self._worker_id):
            try:
                async with asyncio.timeout(call.deadline.remaining_s()):
                    moved_count = await self._replace_engine()
            except TimeoutError:
                text = "the engine is still being replaced: call again to wait for it"
                raise DeadlineExceededError(Reason.DEADLINE_EXCEEDED, text) from None
            return pb.ReloadPluginsResponse(worker_id=self._worker_id, moved_count=moved_count)
        return await self._forwarder.forward(
            RELOAD,
            request,
            self._address_of(request.worker_id, call.hop_count),
            author=call.principal.name,
            hop_count=call.hop_count + 1,
            timeout_s=call.deadline.forwarded_s(),
        )

    def _address_of(self, worker_id: str, hop_count: int) -> str:
        """Where to forward the call: to the worker itself from the leader, else to the leader."""
        membership = self._loop.herder.membership
        if membership.leads:
            if worker_id not in membership.assignments:
                workers = ", ".join(sorted(membership.assignments))
                text = f"is not a worker of the group; the workers are {workers}"
                raise invalid_field("worker_id", text)
            return membership.call_url(worker_id)
        if hop_count >= HOP_COUNT_MAX or not membership.settled:
            text = "this worker is not the leader: retry"
            raise FailedPreconditionError(Reason.NOT_LEADER, text)
        return membership.call_url(membership.leader_url)
