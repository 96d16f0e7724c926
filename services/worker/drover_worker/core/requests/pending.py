"""Requests without a response yet: the progress of each, and its response."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from drover.errors import DroverError, FailedPreconditionError, Reason
from drover.machine import Complete, Fail
from drover.model.status import StatusKey
from drover_worker.core.causes import Cause
from drover_worker.core.config.checks import connector_not_found
from drover_worker.core.config.lease import ConfigLogLease
from drover_worker.core.context import Context
from drover_worker.core.events import RequestExpired, RequestReceived
from drover_worker.core.rebalance.membership import Membership
from drover_worker.core.requests import messages as requests

#: How often workers may forward a request.
HOP_COUNT_MAX = 2


class RequestStage(StrEnum):
    """The progress of a request; its value is part of the error at the deadline."""

    #: It waits for a settled group, a leader, or the leader's claim of the config log.
    WAITING = "has not started"
    #: ReadHistory is in flight.
    READING_HISTORY = "waits for the connector's history"
    #: ValidateConfig is in flight.
    VALIDATING = "waits for the engine to validate the config"
    #: AlterOffsets is in flight: the plugin agrees, then the coordinator writes.
    ALTERING_OFFSETS = "waits for its offsets to be changed"
    #: A write to the config log is in flight.
    WRITING = "waits for the config store"
    #: A call failed and is retried later.
    BACKING_OFF = "waits for a retry"
    #: The write is durable; this worker's view has not reached it.
    READING_BACK = "is durable and waits to be read back"
    #: The connector or task is being restarted.
    RESTARTING = "waits for the restart"
    #: The worker started or cancelled a drain, and has to announce it by a rejoin.
    REJOINING = "waits for the worker to rejoin"


#: Steps with a call to another service or the engine in flight.
STEPS_WITH_A_CALL = frozenset(
    {
        RequestStage.READING_HISTORY,
        RequestStage.VALIDATING,
        RequestStage.ALTERING_OFFSETS,
        RequestStage.WRITING,
    }
)
#: Steps without work: the request waits for the group, its leader, or the config store.
STEPS_WITHOUT_WORK = frozenset(
    {
        RequestStage.WAITING,
        RequestStage.READING_HISTORY,
        RequestStage.WRITING,
        RequestStage.BACKING_OFF,
        RequestStage.READING_BACK,
    }
)


@dataclass(slots=True)
class Pending:
    """A request without a response yet.

    Attributes:
        call_id: The caller's call, which gets the response.
        request: The request; a rollback becomes a PutConnectorConfig once the version is read.
        hop_count: How often workers forwarded it.
        author: The user; empty if unknown.
        step: Its progress.
        cause_id: The cause id of its last call to another service.
        attempt: How many calls were retried.
        last_error: The error of the last call; empty if no call has failed.
        validated: The config needs no (further) validation.
        refusal: The error to return if the config store has another revision than expected.
        tasks_removed: Stop only: the task configs are removed, and the target state is next.
        epoch: The writer epoch of the last write.
        response: The response, once the view has reached ``end_offset``.
        end_offset: The config log's offset after the write.
        restarted: The connector or task whose restart it waits for.
        version: The version of ``restarted`` that ends the wait.
    """

    call_id: str
    request: requests.Request
    hop_count: int
    author: str = ""
    step: RequestStage = RequestStage.WAITING
    cause_id: str = ""
    attempt: int = 0
    last_error: str = ""
    validated: bool = False
    refusal: DroverError | None = None
    tasks_removed: bool = False
    epoch: int | None = None
    response: requests.Response | None = None
    end_offset: int = 0
    restarted: StatusKey | None = None
    version: int = 0


class PendingRequests:
    """The pending requests by the caller's call, by connector, and by their call in flight."""

    def __init__(self, context: Context, membership: Membership, lease: ConfigLogLease) -> None:
        self._context = context
        self._membership = membership
        self._lease = lease
        self._pending: dict[str, Pending] = {}
        self._by_connector: dict[str, dict[str, Pending]] = {}
        self._by_cause: dict[str, Pending] = {}
        self._reading_back: dict[str, Pending] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[Pending]:
        """The pending requests in order of arrival; a copy, so that they may be closed."""
        return iter(list(self._pending.values()))

    def get(self, call_id: str) -> Pending | None:
        """The request of a call; None if it has a response."""
        return self._pending.get(call_id)

    def of_connector(self, name: str) -> list[Pending]:
        """The requests for a connector or its tasks, in order of arrival."""
        return list(self._by_connector.get(name, {}).values())

    def open(self, event: RequestReceived) -> Pending:
        """Add a request and set the timer for its deadline."""
        pending = Pending(event.call_id, event.request, event.hop_count, event.author)
        self._pending[event.call_id] = pending
        name = requests.connector_of(event.request)
        self._by_connector.setdefault(name, {})[event.call_id] = pending
        delay_ms = max(event.deadline_ms - self._context.now_ms, 0)
        self._context.set_timer(f"request:{event.call_id}", delay_ms, RequestExpired(event.call_id))
        return pending

    # Calls of a request

    def start_call(self, pending: Pending, step: RequestStage) -> None:
        """Record that a call of the request starts, with a new ``pending.cause_id``."""
        pending.step = step
        pending.cause_id = self._context.next_cause(Cause.REQUEST)
        self._by_cause[pending.cause_id] = pending

    def end_call(self, cause_id: str) -> Pending | None:
        """Record that a call has ended; returns its request, or None if that was closed."""
        return self._by_cause.pop(cause_id, None)

    def wait_for_offset(self, pending: Pending, end_offset: int) -> None:
        """Complete the request once this worker has read its durable write at ``end_offset``."""
        pending.step = RequestStage.READING_BACK
        pending.end_offset = end_offset
        self._reading_back[pending.call_id] = pending
        self._read_back(pending)

    def read_back(self) -> None:
        """Complete the requests whose writes this worker has read."""
        for pending in list(self._reading_back.values()):
            self._read_back(pending)

    # Conditions

    def leads(self, pending: Pending) -> bool:
        """Whether this worker leads; if not, forward the request to the leader, if there is one."""
        if self._membership.leads:
            return True
        if self._membership.settled:
            self.forward(pending, self._membership.leader_url, Reason.NOT_LEADER)
        return False

    def may_write(self, pending: Pending) -> bool:
        """Whether this worker may write; if so, ``pending.epoch`` is set."""
        pending.epoch = self._lease.epoch if self._lease.ready else None
        return pending.epoch is not None

    def known(self, pending: Pending, name: str) -> bool:
        """Whether the connector exists; if not, the request fails."""
        if name in self._context.view.connectors:
            return True
        self.fail(pending, connector_not_found(name))
        return False

    # Responses

    def forward(self, pending: Pending, worker_url: str, reason: Reason) -> None:
        """Forward the request to another worker; fail it if it was forwarded too often."""
        if pending.hop_count < HOP_COUNT_MAX:
            self.complete(pending, requests.ForwardTo(self._membership.call_url(worker_url)))
        else:
            text = (
                f"the call was forwarded {pending.hop_count} times without reaching a worker that"
                " can handle it: retry"
            )
            self.fail(pending, FailedPreconditionError(reason, text))

    def complete(self, pending: Pending, response: requests.Response) -> None:
        """Send the response."""
        self.close(pending)
        self._context.emit(Complete(pending.call_id, response))

    def fail(self, pending: Pending, error: DroverError) -> None:
        """Respond with an error."""
        self.close(pending)
        self._context.emit(Fail(pending.call_id, error))

    def close(self, pending: Pending) -> None:
        """Remove the request."""
        del self._pending[pending.call_id]
        name = requests.connector_of(pending.request)
        del self._by_connector[name][pending.call_id]
        if not self._by_connector[name]:
            del self._by_connector[name]
        self._reading_back.pop(pending.call_id, None)
        self._by_cause.pop(pending.cause_id, None)
        self._context.cancel_timer(f"request:{pending.call_id}")
        self._context.cancel_timer(f"retry:{pending.call_id}")

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        indexed = {call_id for known in self._by_connector.values() for call_id in known}
        assert indexed == set(self._pending), "the index of requests by connector is wrong"
        for pending in self._pending.values():
            has_call = pending.step in STEPS_WITH_A_CALL
            assert has_call == (pending.cause_id in self._by_cause), f"{pending}: wrong call index"
            assert (pending.step is RequestStage.RESTARTING) == (pending.restarted is not None)

    def _read_back(self, pending: Pending) -> None:
        if self._context.view.offset >= pending.end_offset and pending.response is not None:
            self.complete(pending, pending.response)
