"""Cause ids: they match the outcome of a call with the part of the herder that made the call."""

from enum import StrEnum


class Cause(StrEnum):
    """The purpose of a call to another service; it is the prefix of the call's cause id."""

    JOIN = "join"
    SYNC = "sync"
    READ_CONFIGS = "read"
    HEARTBEAT = "heartbeat"
    LEAVE = "leave"
    CLAIM_WRITER = "claim-writer"
    REQUEST = "request"
    EMPTY_STOPPED = "empty-stopped"
    SESSION_KEY = "session-key"
    TASK_CONFIGS = "task-configs"
    PUT_TOPICS = "put-topics"
    DELETE_TOPICS = "delete-topics"

    def new_id(self, number: int) -> str:
        """The cause id of one call; ``number`` must be unique."""
        return f"{self}-{number}"


def cause_of(cause_id: str) -> Cause | None:
    """The cause in a cause id; None if ``Cause.new_id`` did not create it."""
    prefix, _, _ = cause_id.rpartition("-")
    return _CAUSES.get(prefix)


_CAUSES = {str(cause): cause for cause in Cause}
