"""Requests that have a worker hand its work over, or take work again."""

from drover.errors import DroverError, FailedPreconditionError, NotFoundError, Reason
from drover_worker.core.context import Context
from drover_worker.core.rebalance.membership import Membership
from drover_worker.core.requests.messages import Accomplished, DrainWorker
from drover_worker.core.requests.pending import Pending, PendingRequests, Step


class DrainRequests:
    """The leader decides whether a worker may be drained; the worker itself is what drains.

    Drains of the last two workers at the same time may both pass the leader. Then nobody takes
    their work: both go on as before, and both requests fail.
    """

    def __init__(self, context: Context, membership: Membership, pending: PendingRequests) -> None:
        self._context = context
        self._membership = membership
        self._pending = pending

    def drain(self, pending: Pending, request: DrainWorker) -> None:
        """Have the worker drained, or take work again."""
        membership = self._membership
        if not membership.settled:
            return
        own = request.worker_id == self._context.settings.worker_id
        if membership.leads:
            refusal = self._refusal(request)
            if refusal is not None:
                self._pending.fail(pending, refusal)
                return
            if not own:
                self._pending.forward(pending, request.worker_id, Reason.NOT_OWNER)
                return
        elif not own or not pending.hop_count:
            self._pending.forward(pending, membership.leader_url, Reason.NOT_LEADER)
            return
        if request.draining:
            membership.drain.begin()
        else:
            membership.drain.undo()
        pending.step = Step.TELLING_GROUP

    def pump(self) -> None:
        """Answer those of which the group knows."""
        drain = self._membership.drain
        for pending in self._pending:
            request = pending.request
            if pending.step is not Step.TELLING_GROUP or not isinstance(request, DrainWorker):
                continue
            if request.draining and not drain.wanted:
                self._pending.fail(pending, _no_other_worker(request.worker_id))
            elif self._membership.settled and not drain.is_news:
                self._pending.complete(pending, Accomplished())

    def _refusal(self, request: DrainWorker) -> DroverError | None:
        """Leader: why the worker cannot be drained, or cannot take work."""
        membership = self._membership
        if request.worker_id not in membership.assignments:
            known = ", ".join(sorted(membership.assignments))
            text = f"there is no worker {request.worker_id!r}; the workers are {known}"
            return NotFoundError(Reason.WORKER_NOT_FOUND, text)
        if request.draining and not membership.takers_besides(request.worker_id):
            return _no_other_worker(request.worker_id)
        return None


def _no_other_worker(worker_id: str) -> FailedPreconditionError:
    text = (
        f"no other worker takes the work of {worker_id}: start another one, or resume one that is"
        " drained (`drover worker resume`)"
    )
    return FailedPreconditionError(Reason.NO_OTHER_WORKER, text)
