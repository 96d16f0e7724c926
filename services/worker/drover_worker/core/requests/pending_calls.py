"""The requests that wait for an answer, the calls made for them, and their one answer each."""

from collections.abc import Iterator

from drover.errors import DroverError, FailedPreconditionError, Reason
from drover.machine import Complete, Fail
from drover_worker.core.causes import Cause
from drover_worker.core.config.checks import connector_not_found
from drover_worker.core.config.lease import Writer
from drover_worker.core.context import Context
from drover_worker.core.events import RequestExpired, RequestReceived
from drover_worker.core.rebalance.membership import Membership
from drover_worker.core.requests import messages as requests
from drover_worker.core.requests.pending_request import Pending, Step

#: How often a call may be carried from worker to worker.
HOP_COUNT_MAX = 2


class PendingCalls:
    """Knows each request by its caller's call, and by the cause of what is asked for it."""

    def __init__(self, context: Context, membership: Membership, writer: Writer) -> None:
        self._context = context
        self._membership = membership
        self._writer = writer
        self._pending: dict[str, Pending] = {}
        self._by_cause: dict[str, Pending] = {}
        self._reading_back: dict[str, Pending] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[Pending]:
        """Those that wait at this moment, in the order in which they came."""
        return iter(list(self._pending.values()))

    def get(self, call_id: str) -> Pending | None:
        """The request of a call; None when it was answered."""
        return self._pending.get(call_id)

    def open(self, event: RequestReceived) -> Pending:
        """A caller waits for an answer from now on."""
        pending = Pending(event.call_id, event.request, event.hop_count, event.author)
        self._pending[event.call_id] = pending
        delay_ms = max(event.deadline_ms - self._context.now_ms, 0)
        self._context.set_timer(f"request:{event.call_id}", delay_ms, RequestExpired(event.call_id))
        return pending

    # What is asked for a request

    def begin(self, pending: Pending, step: Step) -> None:
        """Something is asked for it, under ``pending.cause_id``."""
        pending.step = step
        pending.cause_id = self._context.next_cause(Cause.REQUEST)
        self._by_cause[pending.cause_id] = pending

    def end(self, cause_id: str) -> Pending | None:
        """What was asked has come to an end; None when it was asked for nobody here."""
        return self._by_cause.pop(cause_id, None)

    def wait_for_offset(self, pending: Pending, end_offset: int) -> None:
        """It is durable: its caller is answered once this worker has read as far."""
        pending.step = Step.READING_BACK
        pending.end_offset = end_offset
        self._reading_back[pending.call_id] = pending
        self._read_back(pending)

    def read_back(self) -> None:
        """Answer those whose writes this worker has read."""
        for pending in list(self._reading_back.values()):
            self._read_back(pending)

    # Conditions

    def leads(self, pending: Pending) -> bool:
        """Whether this worker leads; else the call is carried to the leader, if there is one."""
        if self._membership.leads:
            return True
        if self._membership.settled:
            self.carry(pending, self._membership.leader_url, Reason.NOT_LEADER)
        return False

    def may_write(self, pending: Pending) -> bool:
        """Whether this worker may write, with ``pending.epoch``."""
        pending.epoch = self._writer.epoch if self._writer.ready else None
        return pending.epoch is not None

    def known(self, pending: Pending, name: str) -> bool:
        """Whether there is such a connector; else the caller is told."""
        if name in self._context.view.connectors:
            return True
        self.fail(pending, connector_not_found(name))
        return False

    # Ends

    def carry(self, pending: Pending, worker_url: str, reason: Reason) -> None:
        """Have another worker answer it, if it was not carried too often."""
        if pending.hop_count < HOP_COUNT_MAX:
            self.complete(pending, requests.CarryTo(worker_url))
        else:
            text = (
                f"the call was carried {pending.hop_count} times and found no worker to answer it"
            )
            self.fail(pending, FailedPreconditionError(reason, text))

    def complete(self, pending: Pending, response: requests.Response) -> None:
        """Answer it."""
        self.close(pending)
        self._context.emit(Complete(pending.call_id, response))

    def fail(self, pending: Pending, error: DroverError) -> None:
        """Answer it with an error."""
        self.close(pending)
        self._context.emit(Fail(pending.call_id, error))

    def close(self, pending: Pending) -> None:
        """Nobody waits for it any more."""
        del self._pending[pending.call_id]
        self._reading_back.pop(pending.call_id, None)
        self._by_cause.pop(pending.cause_id, None)
        self._context.cancel_timer(f"request:{pending.call_id}")
        self._context.cancel_timer(f"retry:{pending.call_id}")

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        for pending in self._pending.values():
            has_call = pending.step in (Step.READING_HISTORY, Step.VALIDATING, Step.WRITING)
            assert has_call == (pending.cause_id in self._by_cause), f"{pending} lost its call"
            assert (pending.step is Step.RESTARTING) == (pending.restarted is not None)

    def _read_back(self, pending: Pending) -> None:
        if self._context.view.offset >= pending.end_offset and pending.response is not None:
            self.complete(pending, pending.response)
