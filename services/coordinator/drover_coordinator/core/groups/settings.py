"""Settings and fixed limits of groups."""

from dataclasses import dataclass

#: A new member whose first join does not complete within this time is removed (rule J7).
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
#: The longest rebalance timeout that a member may request.
REBALANCE_TIMEOUT_MAX_MS = 3_600_000
#: Retry interval of the append that records that a group is empty.
APPEND_RETRY_MS = 1_000

#: The most groups in one log; each takes memory and a record.
GROUPS_MAX = 50_000
#: The most offsets in one log; they are kept in memory, some 500 bytes each.
OFFSETS_MAX = 250_000
#: A process needs one watch; after reconnects its earlier ones may still be open here.
WATCHES_PER_MEMBER_MAX = 8

#: A timer that is at least this late shows that the coordinator was stopped or starved.
STALLED_MS = 1_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Bounds and delays that apply to every group.

    A member's session timeout has to be within ``session_timeout_min_ms`` and
    ``session_timeout_max_ms``. ``initial_rebalance_delay_ms`` gives the first members of an empty
    group time to arrive together. A member whose watch broke has to send a request within
    ``disconnect_grace_ms``. ``group_max_size`` bounds the members of a group, and its pending
    member ids.

    A group's offsets expire ``offsets_retention_ms`` after their last use, and an empty group
    is removed once it has none left; a sweep runs every ``offsets_retention_check_ms``.
    """

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    disconnect_grace_ms: int = 1_000
    group_max_size: int = 10_000
    offsets_retention_ms: int = 604_800_000
    offsets_retention_check_ms: int = 600_000
