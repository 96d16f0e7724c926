"""How clients find the coordinator that owns a group, as ``drover.client.owner_routing`` does."""

from collections.abc import Callable, Sequence
from functools import partial

from drover.errors import OWNER_KEY, DeadlineExceededError, DroverError, Reason, UnavailableError
from simulation.network import TOO_LATE, Call, Heard, Network, Stream
from simulation.process import Process
from simulation.shard_manager import FindCoordinator

FIND_TIMEOUT_MS = 500
PROBE_EVERY_MS = 700
FOLLOW_FIRST_MS = 20
FOLLOW_MAX_MS = 500
RETRY_FIRST_MS = 100
NOT_FOUND = UnavailableError(Reason.COORDINATOR_NOT_AVAILABLE, "no owner was found in time")
RETRY_MAX_MS = 1_000
_LEAVING = {Reason.SERVICE_UNREACHABLE, Reason.DRAINING, Reason.COORDINATOR_NOT_AVAILABLE}


class Following:
    """Routes the calls of one process to group owners; the cache is lost in a crash."""

    def __init__(self, network: Network, process: Process, addresses: Sequence[str]) -> None:
        self.network = network
        self.process = process
        self.addresses = addresses
        self._owners: dict[str, str] = {}

    def call(
        self,
        group_id: str,
        request: object,
        heard: Heard,
        *,
        timeout_ms: int,
        retry: bool = True,
        in_order: bool = False,
    ) -> "Call | _LedCall":
        """Call the owner of a group."""
        if len(self.addresses) == 1:
            return Call(
                self.network,
                self.process,
                self.addresses[0],
                request,
                heard,
                timeout_ms=timeout_ms,
                retry=retry,
                in_order=in_order,
            )
        return _LedCall(self, group_id, request, heard, timeout_ms, retry=retry, in_order=in_order)

    def stream(
        self,
        group_id: str,
        request: object,
        on_message: Heard,
        on_end: Callable[[DroverError], None],
    ) -> "LedStream":
        """Open a stream from the owner of a group; it breaks when the owner changes."""
        return LedStream(self, group_id, request, on_message, on_end)

    def owner(self, group_id: str) -> str | None:
        """The cached owner of a group; None when it must be looked up."""
        return self.addresses[0] if len(self.addresses) == 1 else self._owners.get(group_id)

    def find(self, group_id: str, addresses: Sequence[str], timeout_ms: int, heard: Heard) -> None:
        """Ask all coordinators in parallel; the first that knows the owner wins."""
        waiting = dict.fromkeys(addresses)

        def answered(address: str, result: object) -> None:
            if address not in waiting:
                return
            del waiting[address]
            if not isinstance(result, DroverError) or not waiting:
                waiting.clear()
                heard(result)

        for address in addresses:
            Call(
                self.network,
                self.process,
                address,
                FindCoordinator(group_id),
                partial(answered, address),
                timeout_ms=timeout_ms,
                retry=False,
            )

    def learn(self, group_id: str, owner: str) -> None:
        """Cache the owner of a group."""
        self._owners[group_id] = owner

    def failed_at(self, owner: str, group_id: str, error: DroverError) -> None:
        """Update the cache after an error from ``owner``."""
        moved = error.reason is Reason.NOT_COORDINATOR
        hint = error.metadata.get(OWNER_KEY, "") if moved else ""
        if hint and hint != owner:
            self.learn(group_id, hint)
            return
        is_gone = error.reason in _LEAVING or isinstance(error, DeadlineExceededError)
        if (moved or is_gone) and self._owners.get(group_id) == owner:
            del self._owners[group_id]


class _LedCall:
    """One call that is routed to the group's owner."""

    def __init__(
        self,
        following: Following,
        group_id: str,
        request: object,
        heard: Heard,
        timeout_ms: int,
        *,
        retry: bool,
        in_order: bool,
    ) -> None:
        self._following = following
        self._group_id = group_id
        self._request = request
        self._heard = heard
        self._retry = retry
        self._in_order = in_order
        self._deadline_ms = following.process.now_ms + timeout_ms
        self._follow_ms = FOLLOW_FIRST_MS
        self._retry_ms = RETRY_FIRST_MS
        self._owner = ""
        #: counts attempts: results of earlier attempts are dropped
        self._try = 0
        self._call: Call | None = None
        self._lead()

    def cancel(self) -> None:
        """Cancel the call; no result is delivered."""
        self._try += 1
        if self._call is not None:
            self._call.cancel()

    def _left_ms(self) -> int:
        return self._deadline_ms - self._following.process.now_ms

    def _lead(self) -> None:
        self._try += 1
        left_ms = self._left_ms()
        owner = self._following.owner(self._group_id)
        if left_ms <= 0:
            self._heard(TOO_LATE)
        elif owner is None:
            self._following.find(
                self._group_id,
                self._following.addresses,
                min(FIND_TIMEOUT_MS, left_ms),
                partial(self._found, self._try),
            )
        else:
            self._go(owner)

    def _found(self, this_try: int, result: object) -> None:
        if this_try != self._try:
            return
        if isinstance(result, DroverError):
            self._failed(result)
        else:
            assert isinstance(result, str)
            self._following.learn(self._group_id, result)
            self._go(result)

    def _go(self, owner: str) -> None:
        following = self._following
        self._owner = owner
        self._call = Call(
            following.network,
            following.process,
            owner,
            self._request,
            partial(self._answered, self._try),
            timeout_ms=max(self._left_ms(), 1),
            retry=False,
            in_order=self._in_order,
        )
        following.process.after(PROBE_EVERY_MS, partial(self._probe, self._try))

    def _probe(self, this_try: int) -> None:
        """Ask the other coordinators for the owner: the called one may be paused."""
        if this_try == self._try:
            others = [each for each in self._following.addresses if each != self._owner]
            heard = partial(self._probed, this_try)
            self._following.find(self._group_id, others, FIND_TIMEOUT_MS, heard)

    def _probed(self, this_try: int, result: object) -> None:
        if this_try != self._try:
            return
        if isinstance(result, str) and result != self._owner:
            assert self._call is not None
            self._call.cancel()
            self._following.learn(self._group_id, result)
            self._follow()
        else:
            self._following.process.after(PROBE_EVERY_MS, partial(self._probe, this_try))

    def _answered(self, this_try: int, result: object) -> None:
        if this_try != self._try:
            return
        if isinstance(result, DroverError):
            self._following.failed_at(self._owner, self._group_id, result)
            moved = result.reason is Reason.NOT_COORDINATOR
            if moved and self._left_ms() > self._follow_ms:
                self._follow()
            else:
                self._failed(NOT_FOUND if moved else result)
        else:
            self._try += 1
            self._heard(result)

    def _follow(self) -> None:
        self._try += 1
        self._following.process.after(self._follow_ms, self._lead)
        self._follow_ms = min(2 * self._follow_ms, FOLLOW_MAX_MS)

    def _failed(self, error: DroverError) -> None:
        self._try += 1
        may_retry = self._retry and isinstance(error, UnavailableError)
        if may_retry and self._left_ms() > self._retry_ms:
            self._following.process.after(self._retry_ms, self._lead)
            self._retry_ms = min(2 * self._retry_ms, RETRY_MAX_MS)
        else:
            self._heard(error)


class LedStream:
    """A stream from a group's owner."""

    def __init__(
        self,
        following: Following,
        group_id: str,
        request: object,
        on_message: Heard,
        on_end: Callable[[DroverError], None],
    ) -> None:
        self._following = following
        self._group_id = group_id
        self._request = request
        self._on_message = on_message
        self._on_end = on_end
        self._stream: Stream | None = None
        self._owner = ""
        self._open = True
        owner = following.owner(group_id)
        if owner is None:
            following.find(group_id, following.addresses, FIND_TIMEOUT_MS, self._found)
        else:
            self._begin(owner)

    def cancel(self) -> None:
        """Cancel the stream; no further callback runs."""
        self._open = False
        if self._stream is not None:
            self._stream.cancel()

    def _found(self, result: object) -> None:
        if not self._open:
            return
        if isinstance(result, DroverError):
            self._ended(result)
        else:
            assert isinstance(result, str)
            self._following.learn(self._group_id, result)
            self._begin(result)

    def _begin(self, owner: str) -> None:
        following = self._following
        self._owner = owner
        self._stream = Stream(
            following.network,
            following.process,
            owner,
            self._request,
            self._on_message,
            self._ended,
        )
        if len(following.addresses) > 1:
            following.process.after(PROBE_EVERY_MS, self._look)

    def _look(self) -> None:
        """Break the stream when the group has another owner."""
        if not self._open:
            return
        if self._following.owner(self._group_id) not in (self._owner, None):
            assert self._stream is not None
            self._stream.cancel()
            moved = UnavailableError(Reason.SERVICE_UNREACHABLE, "the group has moved")
            self._ended(moved)
        else:
            self._following.process.after(PROBE_EVERY_MS, self._look)

    def _ended(self, error: DroverError) -> None:
        if self._open:
            self._open = False
            self._following.failed_at(self._owner, self._group_id, error)
            self._on_end(error)
