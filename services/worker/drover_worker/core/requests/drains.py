"""Requests that drain a worker, or let it accept work again."""

from drover.errors import DroverError, FailedPreconditionError, NotFoundError, Reason
from drover_worker.core.context import Context
from drover_worker.core.rebalance.membership import Membership
from drover_worker.core.requests.messages import Accomplished, DrainWorker
from drover_worker.core.requests.pending import Pending, PendingRequests, RequestStage


class DrainRequests:
    """The leader decides whether a worker may drain; the worker itself drains.

    Concurrent drains of the last two workers may both pass the leader's check. Then no worker
    accepts their work: both keep it, and both requests fail.
    """

    def __init__(self, context: Context, membership: Membership, pending: PendingRequests) -> None:
        self._context = context
        self._membership = membership
        self._pending = pending

    def drain(self, pending: Pending, request: DrainWorker) -> None:
        """Drain the worker or cancel its drain, or forward the request."""
        membership = self._membership
        if not membership.settled:
            return
        own = request.worker_id == self._context.settings.worker_id
        if membership.leads:
            error = self._drain_error(request)
            if error is not None:
                self._pending.fail(pending, error)
                return
            if not own:
                self._pending.forward(pending, request.worker_id, Reason.NOT_OWNER)
                return
        elif not own or not pending.hop_count:
            self._pending.forward(pending, membership.leader_url, Reason.NOT_LEADER)
            return
        if request.draining:
            membership.drain.start()
        else:
            membership.drain.cancel()
        pending.step = RequestStage.REJOINING

    def pump(self) -> None:
        """Complete the requests whose change the worker has announced by a rejoin."""
        drain = self._membership.drain
        for pending in self._pending:
            request = pending.request
            if pending.step is not RequestStage.REJOINING or not isinstance(request, DrainWorker):
                continue
            if request.draining and not drain.requested:
                self._pending.fail(pending, _no_other_worker(request.worker_id))
            elif self._membership.settled and not drain.needs_rejoin:
                self._pending.complete(pending, Accomplished())

    def _drain_error(self, request: DrainWorker) -> DroverError | None:
        """Leader: the error of a request that cannot be carried out."""
        membership = self._membership
        if request.worker_id not in membership.assignments:
            workers = ", ".join(sorted(membership.assignments))
            text = f"worker {request.worker_id!r} is not in the group; the workers are {workers}"
            return NotFoundError(Reason.WORKER_NOT_FOUND, text)
        if request.draining and not membership.has_other_takers(request.worker_id):
            return _no_other_worker(request.worker_id)
        return None


def _no_other_worker(worker_id: str) -> FailedPreconditionError:
    text = (
        f"no other worker can take the work of {worker_id}: start another worker, or resume a"
        " drained one (`drover worker resume`)"
    )
    return FailedPreconditionError(Reason.NO_OTHER_WORKER, text)
