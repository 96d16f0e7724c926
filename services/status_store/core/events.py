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
    """Write statuses, in order, as far as the rules allow; answered with an outcome for each."""

    call_id: str
    writes: Sequence[StatusWrite]
