"""The keys that sign calls between workers (KIP-507): the leader writes them, all read them."""

from drover.errors import DroverError, Reason
from drover.model.config import SessionKey
from drover_worker.core.causes import Cause
from drover_worker.core.config.lease import ConfigLogLease
from drover_worker.core.context import Context
from drover_worker.core.events import ConfigWritten, SessionKeyDue
from drover_worker.core.instructions import WriteSessionKey
from drover_worker.core.rebalance.membership import Membership

#: How long calls signed with the key before are let in: their callers read the log a little later.
GRACE_MS = 60_000


class SessionKeys:
    """What this worker signs with and checks by; a leader sees to it that there is a fresh key.

    A key that was written while this worker looked on expires by this worker's own clock, so that
    clocks that differ do not let a leader write keys without end.
    """

    def __init__(self, context: Context, membership: Membership, lease: ConfigLogLease) -> None:
        self._context = context
        self._membership = membership
        self._lease = lease
        #: The key that calls are signed with; None before any was read.
        self.current: SessionKey | None = None
        self._previous: SessionKey | None = None
        self._previous_until_ms = 0
        self._expires_ms = 0
        self._cause_id = ""
        self._epoch = -1
        self._waiting = False
        self._attempt = 0

    def find(self, creation_ms: int, now_ms: int) -> SessionKey | None:
        """The key of that time, if calls signed with it are let in."""
        if self.current is not None and self.current.creation_ms == creation_ms:
            return self.current
        previous = self._previous
        if previous is None or previous.creation_ms != creation_ms:
            return None
        return previous if now_ms < self._previous_until_ms else None

    def loaded(self, key: SessionKey | None) -> None:
        """A snapshot of the config log was read."""
        if key is not None and key != self.current:
            self._take(key, min(key.creation_ms, self._context.now_ms))

    def changed(self, key: SessionKey) -> None:
        """A key was written to the config log."""
        if key != self.current:
            self._take(key, self._context.now_ms)

    def pump(self) -> None:
        """Write a key if this worker may and has to."""
        writes = self._membership.signs_calls and self._lease.ready
        if not writes or self._cause_id or self._waiting or not self._wanted():
            return
        settings = self._context.settings
        self._cause_id = self._context.next_cause(Cause.SESSION_KEY)
        self._epoch = self._lease.epoch or 0
        self._context.emit(
            WriteSessionKey(
                cause_id=self._cause_id,
                algorithm=settings.key_algorithm,
                size_bytes=settings.key_size_bytes,
                writer_epoch=self._epoch,
                request_id=f"{self._context.member_id}/{self._context.next_id()}",
            )
        )

    def config_written(self, event: ConfigWritten) -> None:
        """The key is durable; it is used once it is read."""
        if event.cause_id == self._cause_id:
            self._cause_id = ""
            self._attempt = 0
            self._wait(self._context.settings.call_backoff_max_ms)

    def call_failed(self, cause_id: str, error: DroverError) -> None:
        """The key was not written: retry after a back-off."""
        if cause_id != self._cause_id:
            return
        self._cause_id = ""
        if error.reason is Reason.STALE_WRITER_EPOCH:
            self._lease.lost(self._epoch)
        self._wait(self._context.call_backoff_ms(self._attempt))
        self._attempt += 1

    def due(self) -> None:
        """A key expired, or a back-off is over."""
        self._waiting = False

    def _wanted(self) -> bool:
        settings, key = self._context.settings, self.current
        return (
            key is None
            or self._context.now_ms >= self._expires_ms
            or key.algorithm != settings.key_algorithm
            or len(key.key) != settings.key_size_bytes
        )

    def _take(self, key: SessionKey, made_ms: int) -> None:
        now_ms = self._context.now_ms
        self._previous, self._previous_until_ms = self.current, now_ms + GRACE_MS
        self.current = key
        self._expires_ms = made_ms + self._context.settings.key_ttl_ms
        self._waiting = False
        self._set_timer(max(self._expires_ms - now_ms, 0))

    def _wait(self, delay_ms: int) -> None:
        self._waiting = True
        self._set_timer(delay_ms)

    def _set_timer(self, delay_ms: int) -> None:
        self._context.set_timer("session-key", delay_ms, SessionKeyDue())
