"""What a task does at present, for its status."""

from enum import StrEnum


class Step(StrEnum):
    """See TaskStep in the API."""

    STARTING = "STARTING"
    POLLING = "POLLING"
    CONVERTING = "CONVERTING"
    WRITING = "WRITING"
    COMMITTING = "COMMITTING"
    WAITING_FOR_RECORDS = "WAITING_FOR_RECORDS"
    GATHERING = "GATHERING"
    WAITING_TO_RETRY = "WAITING_TO_RETRY"
    RATE_LIMITED = "RATE_LIMITED"
    PAUSED = "PAUSED"
    QUEUED = "QUEUED"
    NOTIFYING = "NOTIFYING"
