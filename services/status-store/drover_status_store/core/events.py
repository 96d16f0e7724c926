"""Requests and timer events of the status machine, and the outcomes it returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from drover.model.status import StatusWrite


class WriteOutcome(StrEnum):
    """The result of one write."""

    #: The status is durable, including when it equals the current one.
    WRITTEN = "WRITTEN"
    #: The write was stale and was ignored.
    SUPERSEDED = "SUPERSEDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class PutStatuses:
    """Write statuses in order, skipping stale ones; the response has one outcome per write.

    ``writer`` identifies one run of one process, and ``number`` counts its requests from 1. A
    request with a number below the writer's highest is a late duplicate. Without a writer the
    number is 0.
    """

    call_id: str
    writes: Sequence[StatusWrite]
    writer: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PutTopicStatuses:
    """Record topics that a task uses; the response is None.

    With ``discovered_ms`` 0 the present time is used, and topics already recorded are unchanged.
    """

    call_id: str
    connector: str
    topics: Sequence[str]
    task: int
    discovered_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicStatuses:
    """Remove the active topics of a connector; the response is None."""

    call_id: str
    connector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """Respond with None when all earlier requests are durable and applied."""

    call_id: str


@dataclass(frozen=True, slots=True)
class PutAppendFailed:
    """The append of a writer's request failed, or its outcome is unknown."""

    writer: str
    number: int


@dataclass(frozen=True, slots=True)
class ShadowedSeen:
    """The log has a stale record behind a current one, which compaction would remove."""


@dataclass(frozen=True, slots=True)
class RewriteDue:
    """Time to write shadowed records again, unless another replica has done so."""


#: Requests; each gets a response.
StatusCall = PutStatuses | PutTopicStatuses | DeleteTopicStatuses | Flush
