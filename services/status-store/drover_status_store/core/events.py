"""What the status machine is asked to do, and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from drover.model.status import StatusWrite


class WriteOutcome(StrEnum):
    """What became of one write."""

    #: Durable; also when the same status was there already.
    WRITTEN = "WRITTEN"
    #: Ignored: it came too late.
    SUPERSEDED = "SUPERSEDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class PutStatuses:
    """Write statuses, in order, as far as the rules allow; answered with an outcome for each.

    ``writer`` names one life of one process, ``number`` counts its requests from 1. A request whose
    number is below the highest one that came is a late copy. Without a writer the number is 0.
    """

    call_id: str
    writes: Sequence[StatusWrite]
    writer: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PutTopicStatuses:
    """A task was seen to use topics; answered with None.

    ``discovered_ms`` of 0 is now, and leaves topics that are known as they are.
    """

    call_id: str
    connector: str
    topics: Sequence[str]
    task: int
    discovered_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicStatuses:
    """Forget the topics of a connector; answered with None."""

    call_id: str
    connector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """Answered with None when everything before is durable and applied."""

    call_id: str


@dataclass(frozen=True, slots=True)
class AnswerLost:
    """What was decided for a writer's request could not be appended, or nobody knows whether."""

    writer: str
    number: int


@dataclass(frozen=True, slots=True)
class HiddenSeen:
    """A word that counts is hidden in the log by a later record that does not."""


@dataclass(frozen=True, slots=True)
class RepeatDue:
    """Other replicas have had time to say again what is hidden."""


#: What somebody waits for an answer to.
StatusCall = PutStatuses | PutTopicStatuses | DeleteTopicStatuses | Flush
