"""The stages of a worker's membership."""

from enum import StrEnum


class Stage(StrEnum):
    """The stage of a worker's membership; its value appears in messages to callers.

    STARTING → JOINING → SYNCING → (CATCHING_UP →) SETTLED → STOPPING_WORK → JOINING …, with
    BACKING_OFF before a join that follows a failure, and LEAVING → ENDED at the end.
    """

    #: Not ready to join.
    STARTING = "waiting for the engine and the config log"
    #: A rebalance started, or the membership was lost: work stops before the next join.
    STOPPING_WORK = "stopping its work for a rebalance"
    #: JoinGroup is in flight.
    JOINING = "joining the group"
    #: SyncGroup is in flight.
    SYNCING = "waiting for its assignment"
    #: The leader has read more of the config log than this worker, which reads to its end.
    CATCHING_UP = "reading the config log to its end"
    #: A call failed; the next join is due later.
    BACKING_OFF = "waiting to join the group again"
    #: The worker runs its assignment.
    SETTLED = "running its assignment"
    #: The worker shuts down: it stops its work, then leaves the group.
    LEAVING = "shutting down"
    #: The worker has left the group.
    ENDED = "shut down"
