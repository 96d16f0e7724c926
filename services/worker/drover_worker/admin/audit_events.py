"""ListAuditEvents: the last events of the audit logs of all workers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import encode_timestamp, invalid_field
from drover.rpc.audit_trail import AuditEvent, AuditTrail
from drover_worker.admin.call import AdminCall
from drover_worker.admin.every_worker import EveryWorker
from drover_worker.admin.forwarding import ForwardedMethod

LIST = ForwardedMethod("ListAuditEvents", pb.ListAuditEventsRequest, pb.ListAuditEventsResponse)
#: A page of the longest events is far below the limit of a message.
PAGE_SIZE_MAX = 200
_PAGE_SIZE_DEFAULT = 100


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    """The place of an event in the list, which stays the same when events are added."""

    time_ms: int
    worker_id: str
    sequence: int

    @classmethod
    def of(cls, event: pb.AuditEvent) -> Self:
        """The place of an event."""
        return cls(event.event_time.ToMilliseconds(), event.worker_id, event.sequence)

    @classmethod
    def read(cls, token: str) -> Self | None:
        """The place in a page token; None for the first page.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, an invalid token.
        """
        if not token:
            return None
        time_text, _, rest = token.partition(",")
        sequence_text, _, worker_id = rest.partition(",")
        for text in (time_text, sequence_text):
            if not (text.isascii() and text.isdecimal() and len(text) <= 18):
                raise invalid_field("page_token", "must be empty or a next_page_token")
        return cls(int(time_text), worker_id, int(sequence_text))

    def token(self) -> str:
        """As the token of the page after it."""
        return f"{self.time_ms},{self.sequence},{self.worker_id}"


class AuditEvents:
    """Lists audit events of all workers."""

    def __init__(self, worker_id: str, trail: AuditTrail, every_worker: EveryWorker) -> None:
        self._worker_id = worker_id
        self._trail = trail
        self._every_worker = every_worker

    async def list_page(
        self, request: pb.ListAuditEventsRequest, call: AdminCall
    ) -> pb.ListAuditEventsResponse:
        """Return a page of events; only of this worker to the leader."""
        if not 0 <= request.page_size <= PAGE_SIZE_MAX:
            raise invalid_field("page_size", f"must be from 0 to {PAGE_SIZE_MAX}")
        size = request.page_size or _PAGE_SIZE_DEFAULT

        def merge(
            responses: Mapping[str, pb.ListAuditEventsResponse | None],
        ) -> pb.ListAuditEventsResponse:
            return merged(responses, size)

        own = self._own(request, size)
        return await self._every_worker.answer(
            LIST, request, own, merge, hop_count=call.hop_count, waits=True
        )

    def _own(self, request: pb.ListAuditEventsRequest, size: int) -> pb.ListAuditEventsResponse:
        after = _Place.read(request.page_token)
        since_ms = request.since_time.ToMilliseconds() if request.HasField("since_time") else None
        found = []
        for event in reversed(self._trail.all()):
            place = _Place(event.time_ms, self._worker_id, event.sequence)
            if (
                (after is None or place < after)
                and (since_ms is None or event.time_ms >= since_ms)
                and request.principal in ("", event.principal)
                and request.call in ("", event.call)
                and request.outcome in ("", event.outcome)
            ):
                found.append(_encode(event, self._worker_id))
        return _page(found, size, is_last=True)


def merged(
    responses: Mapping[str, pb.ListAuditEventsResponse | None], size: int
) -> pb.ListAuditEventsResponse:
    """The newest events of all workers' pages; None for a worker that did not respond."""
    listed = [each for each in responses.values() if each is not None]
    found = [event for each in listed for event in each.events]
    page = _page(found, size, is_last=not any(each.next_page_token for each in listed))
    page.silent_worker_ids.extend(
        sorted(worker_id for worker_id, each in responses.items() if each is None)
    )
    return page


def _page(events: list[pb.AuditEvent], size: int, *, is_last: bool) -> pb.ListAuditEventsResponse:
    """The newest events; ``is_last`` if there are no further ones."""
    events.sort(key=_Place.of, reverse=True)
    shown = events[:size]
    has_more = bool(shown) and (len(events) > size or not is_last)
    token = _Place.of(shown[-1]).token() if has_more else ""
    return pb.ListAuditEventsResponse(events=shown, next_page_token=token)


def _encode(event: AuditEvent, worker_id: str) -> pb.AuditEvent:
    return pb.AuditEvent(
        event_time=encode_timestamp(event.time_ms),
        worker_id=worker_id,
        principal=event.principal,
        call=event.call,
        connector=event.connector,
        request=event.request,
        outcome=event.outcome,
        reason=event.reason,
        peer=event.peer,
        request_id=event.request_id,
        sequence=event.sequence,
    )
