"""Asks every worker, through the leader, which alone has the list of workers."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from google.protobuf.message import Message

from drover.errors import FailedPreconditionError, Reason
from drover_worker.admin.forwarding import ForwardedMethod, RequestForwarder
from drover_worker.core.events import HerderEvent
from drover_worker.core.requests.pending import HOP_COUNT_MAX
from drover_worker.shell.herder_loop import HerderLoop

#: How long a worker waits for the leader, and the leader for each other worker.
_LEADER_TIMEOUT_S = 5.0
_WORKER_TIMEOUT_S = 2.0
#: The end of a rebalance and the calls of the leader must fit into the time of a follower's call.
_SETTLED_WITHIN_S = 2.0

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


class EveryWorker:
    """Merges the responses of all workers to a call."""

    def __init__(self, worker_id: str, loop: HerderLoop, forwarder: RequestForwarder) -> None:
        self._worker_id = worker_id
        self._loop = loop
        self._forwarder = forwarder
        self._has_settled = asyncio.Event()
        loop.observe(self._observe)

    async def answer(
        self,
        method: ForwardedMethod[RequestT, ResponseT],
        request: RequestT,
        own: ResponseT,
        merge: Callable[[Mapping[str, ResponseT | None]], ResponseT],
        *,
        hop_count: int = 0,
        waits: bool = False,
    ) -> ResponseT:
        """The merged responses; ``own``, unmerged, for a call that the leader has forwarded.

        During a rebalance the other workers are unknown: without ``waits`` the response is only of
        this worker.

        Args:
            method: The call.
            request: Its request.
            own: The response of this worker alone.
            merge: Merges responses by worker id; None for a worker that did not respond.
            hop_count: How many workers forwarded the call to this one.
            waits: Whether to wait for the end of a rebalance, at most two seconds; after that the
                leader counts as a worker that did not respond.

        Raises:
            FailedPreconditionError: NOT_LEADER, for a call from a follower.
        """
        membership = self._loop.herder.membership
        if hop_count >= HOP_COUNT_MAX:
            return own
        if waits:
            await self._settled()
        if membership.leads:
            others = [url for url in membership.assignments if url != self._worker_id]
            ask = self._forwarder.ask
            responses = await asyncio.gather(
                *(ask(method, request, url, timeout_s=_WORKER_TIMEOUT_S) for url in others)
            )
            return merge({self._worker_id: own, **dict(zip(others, responses, strict=True))})
        if hop_count and waits:
            raise FailedPreconditionError(Reason.NOT_LEADER, "this worker does not lead now")
        if hop_count or not membership.settled:
            last = membership.assignment.leader_url if membership.assignment else ""
            is_incomplete = waits and last not in ("", self._worker_id)
            return merge({self._worker_id: own, **({last: None} if is_incomplete else {})})
        leader = membership.leader_url
        response = await self._forwarder.ask(
            method, request, leader, timeout_s=_LEADER_TIMEOUT_S, hop_count=1
        )
        return response or merge({self._worker_id: own, leader: None})

    async def _settled(self) -> None:
        """Wait for the end of a rebalance, but not long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLED_WITHIN_S):
                await self._has_settled.wait()

    def _observe(self, _event: HerderEvent) -> None:
        if self._loop.herder.membership.settled:
            self._has_settled.set()
        else:
            self._has_settled.clear()
