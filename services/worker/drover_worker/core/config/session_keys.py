"""Session keys, which sign calls between workers (KIP-507); the leader writes them to the log."""

from drover.errors import DroverError, Reason
from drover.model.config import SessionKey
from drover_worker.core.causes import Cause
from drover_worker.core.config.lease import ConfigLogLease
from drover_worker.core.context import Context
from drover_worker.core.events import ConfigWritten, SessionKeyDue
from drover_worker.core.instructions import WriteSessionKey
from drover_worker.core.rebalance.membership import Membership

#: How long calls signed with the previous key are accepted: their callers may lag in the log.
GRACE_MS = 60_000


class SessionKeys:
    """The current and the previous session key; a leader writes a new key before one expires.

    A key that this worker received by the watch expires by this worker's clock. So a leader with
    another clock than its predecessor does not write keys in a loop.
    """

    def __init__(self, context: Context, membership: Membership, lease: ConfigLogLease) -> None:
        self._context = context
        self._membership = membership
        self._lease = lease
        #: The key that signs calls; None before one is read.
        self.current: SessionKey | None = None
        self._previous: SessionKey | None = None
        self._previous_until_ms = 0
        self._expires_ms = 0
        self._cause_id = ""
        self._epoch = -1
        self._waiting = False
        self._attempt = 0

    def find(self, creation_ms: int, now_ms: int) -> SessionKey | None:
        """The key created at ``creation_ms``, if its signatures are accepted."""
        if self.current is not None and self.current.creation_ms == creation_ms:
            return self.current
        previous = self._previous
        if previous is None or previous.creation_ms != creation_ms:
            return None
        return previous if now_ms < self._previous_until_ms else None

    def loaded(self, key: SessionKey | None) -> None:
        """A snapshot of the config log was read."""
        if key is not None and key != self.current:
            self._set_current(key, min(key.creation_ms, self._context.now_ms))

    def changed(self, key: SessionKey) -> None:
        """A key was written to the config log."""
        if key != self.current:
            self._set_current(key, self._context.now_ms)

    def pump(self) -> None:
        """Write a key if one is needed and this worker may write."""
        writes = self._membership.signs_calls and self._lease.ready
        if not writes or self._cause_id or self._waiting or not self._needs_key():
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
        """The key is durable; it is used once it is read back."""
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

    def _needs_key(self) -> bool:
        settings, key = self._context.settings, self.current
        return (
            key is None
            or self._context.now_ms >= self._expires_ms
            or key.algorithm != settings.key_algorithm
            or len(key.key) != settings.key_size_bytes
        )

    def _set_current(self, key: SessionKey, created_ms: int) -> None:
        now_ms = self._context.now_ms
        self._previous, self._previous_until_ms = self.current, now_ms + GRACE_MS
        self.current = key
        self._expires_ms = created_ms + self._context.settings.key_ttl_ms
        self._waiting = False
        self._set_timer(max(self._expires_ms - now_ms, 0))

    def _wait(self, delay_ms: int) -> None:
        self._waiting = True
        self._set_timer(delay_ms)

    def _set_timer(self, delay_ms: int) -> None:
        self._context.set_timer("session-key", delay_ms, SessionKeyDue())
