"""The stages of a worker's membership."""

from enum import StrEnum


class Stage(StrEnum):
    """Where the worker is on its way to settled work; the value is what callers are told.

    STARTING → JOINING → SYNCING → (CATCHING_UP →) SETTLED → STOPPING_WORK → JOINING …, with
    BACKING_OFF before a join that follows a failure, and LEAVING → ENDED at the end.
    """

    #: Not ready to take work.
    STARTING = "waiting for the engine and the config log"
    #: A rebalance began, or the membership was lost: nothing may run when the next join is sent.
    STOPPING_WORK = "stopping its work for a rebalance"
    #: JoinGroup is under way.
    JOINING = "joining the group"
    #: SyncGroup is under way.
    SYNCING = "waiting for its assignment"
    #: The assignment was made by someone who has read more of the config log.
    CATCHING_UP = "reading the config log to its end"
    #: Something failed; the next join is due later.
    BACKING_OFF = "waiting to join the group again"
    #: It has its assignment and works on it.
    SETTLED = "running its assignment"
    #: The worker ends: work is being stopped, then the group is left.
    LEAVING = "shutting down"
    #: The group is left.
    ENDED = "shut down"
