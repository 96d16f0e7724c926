"""The last events of the audit log, in memory, for ``ListAuditEvents``."""

import json
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import Message

from drover.rpc.audit import summarize
from drover.rpc.roles import connector_of

EVENTS_MAX = 1_000
#: Rejected calls of callers without a grant are kept apart, so that they never replace the others.
UNKNOWN_EVENTS_MAX = 200
REQUEST_MAX_CHARS = 1_000
_NAME_MAX_CHARS = 300


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """A call that belongs in the audit log.

    Attributes:
        sequence: Counts the events of this process.
        time_ms: When it was written, in ms since the epoch.
        principal: The caller's name; empty if unknown.
        call: The RPC.
        connector: The connector that the request names; empty if there is none.
        request: The request as JSON with secrets masked, cut to ``REQUEST_MAX_CHARS``.
        outcome: The gRPC status code; STARTED before the call, OPENED for a stream.
        reason: The error's reason; empty for OK.
        peer: The caller's address.
        request_id: The request id, as in the other logs.
    """

    sequence: int
    time_ms: int
    principal: str
    call: str
    connector: str
    request: str
    outcome: str
    reason: str
    peer: str
    request_id: str


class AuditTrail:
    """Keeps the last events of this process."""

    def __init__(self) -> None:
        self._count = 0
        self._events: deque[AuditEvent] = deque(maxlen=EVENTS_MAX)
        self._of_unknown: deque[AuditEvent] = deque(maxlen=UNKNOWN_EVENTS_MAX)

    def add(
        self,
        *,
        method: str,
        principal: str,
        peer: str,
        request_id: str,
        request: Message | None,
        outcome: str,
        reason: str,
        known: bool = True,
    ) -> None:
        """Keep an event; the arguments are the ones of ``AuditLog.write``."""
        self._count += 1
        fields = {} if request is None else summarize(request)
        event = AuditEvent(
            sequence=self._count,
            time_ms=time.time_ns() // 1_000_000,
            principal=principal,
            call=method.rpartition("/")[2],
            connector="" if request is None else connector_of(request)[:_NAME_MAX_CHARS],
            request=_cut(json.dumps(fields, ensure_ascii=False)) if fields else "",
            outcome=outcome,
            reason=reason,
            peer=peer,
            request_id=request_id[:_NAME_MAX_CHARS],
        )
        (self._events if known else self._of_unknown).append(event)

    def all(self) -> Sequence[AuditEvent]:
        """The events, oldest first."""
        return sorted((*self._events, *self._of_unknown), key=lambda each: each.sequence)


def _cut(text: str) -> str:
    return text if len(text) <= REQUEST_MAX_CHARS else f"{text[: REQUEST_MAX_CHARS - 1]}…"
