"""Takes over a slot, and checks that it continues at the connector's position."""

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from drover.connector import RetriableError, SourceTaskContext
from drover.connectors.postgres.remedies import (
    LIMIT_REACHED,
    NO_PRIVILEGE,
    WRONG_STATE,
    identifier,
)
from drover.connectors.postgres.server import (
    ServerAddress,
    ServerError,
    Slot,
    slot_of,
    translated_errors,
)
from drover.connectors.postgres.settings import SLOT

if TYPE_CHECKING:
    import psycopg

    from drover.connectors.postgres.snapshot_point import SnapshotPoint
    from drover.connectors.postgres.stream import StreamLostError

_SLOT_WAIT_S = 10.0
#: SQLSTATE of a missing object.
_UNDEFINED_OBJECT = "42704"


#: What to do if the server has no room for another slot.
SLOTS_USED_UP = (
    "drop a slot that nothing reads (SELECT slot_name FROM pg_replication_slots WHERE NOT active), "
    "or raise max_replication_slots and restart the server"
)


def session_name(context: SourceTaskContext) -> str:
    """The task's application name: the same for each run, except for the claim."""
    return f"{session_prefix(context.task.connector)}/{context.claim}"


def session_prefix(connector: str) -> str:
    """The start of the application names of a connector's sessions."""
    return f"drover {hashlib.sha256(connector.encode()).hexdigest()[:16]}"


def _claim_of(text: str) -> tuple[int, ...]:
    return tuple(int(each) if each.isdigit() else -1 for each in text.split("."))


def create_slot(
    connection: "psycopg.Connection[tuple[Any, ...]]", address: ServerAddress, name: str
) -> None:
    """Create a slot.

    Raises:
        RetriableError: The server has no room for another one, or another wal_level.
        ServerError: The user has no right to replicate.
    """
    remedies = {
        NO_PRIVILEGE: f"ALTER ROLE {identifier(address.user)} REPLICATION",
        LIMIT_REACHED: SLOTS_USED_UP,
        WRONG_STATE: "set wal_level=logical, and restart the server",
    }
    with translated_errors(address, f"creating the replication slot {name}", remedies):
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))


def slot_fault(slot: Slot, name: str, database: str) -> str | None:
    """Why a slot cannot be read by this connector; None if it can."""
    if (slot.plugin, slot.database) == ("pgoutput", database):
        return None
    return (
        f"{name!r} is a slot of plugin {slot.plugin} in database {slot.database}, not of pgoutput "
        f"in {database}: set another {SLOT}"
    )


def take_over(
    connection: "psycopg.Connection[tuple[Any, ...]]",
    slot: str,
    name: str,
    stopping: Callable[[], bool],
) -> None:
    """Wait until a slot is free; ends a session of the same task with an older claim.

    Raises:
        RetriableError: Another session reads the slot.
    """
    own, _, claim = name.rpartition("/")
    deadline_s = time.monotonic() + _SLOT_WAIT_S
    while time.monotonic() < deadline_s and not stopping():
        row = connection.execute(
            "SELECT a.pid, a.application_name FROM pg_replication_slots s JOIN"
            " pg_stat_activity a ON a.pid = s.active_pid WHERE s.slot_name = %s",
            (slot,),
        ).fetchone()
        if row is None:
            return
        other, _, their_claim = str(row[1]).rpartition("/")
        if other == own and _claim_of(their_claim) < _claim_of(claim):
            connection.execute("SELECT pg_terminate_backend(%s)", (row[0],))
        connection.execute("SELECT pg_sleep(0.2)")
    raise RetriableError(
        f"slot {slot!r} is read by another session: give this connector a {SLOT} of its own"
    )


def what_is_lost(
    name: str,
    slot: "Slot | None",
    position: Mapping[str, Any],
    points: "Mapping[str, SnapshotPoint | None]",
    end: int,
) -> str | None:
    """Why the slot does not continue at the connector's position; None if it does."""
    if not position and not points:
        return None
    if slot is None or slot.lost:
        return f"slot {name!r} does not exist: the changes since the last commit are lost"
    lsns = [position["lsn"]] if "lsn" in position else [p.lsn for p in points.values() if p]
    if lsns and max(lsns) > end:
        return (
            f"the log ends at {end}, below the offset's {max(lsns)}: it belongs to another server"
        )
    if lsns and min(lsns) < (slot.confirmed_lsn or 0):
        return (
            f"slot {name!r} starts at {slot.confirmed_lsn}, after the offset's {min(lsns)}: "
            "it was created again or read by another session, and the changes in between are lost"
        )
    return None


def check_what_is_left(
    address: ServerAddress, name: str, lsn: int, error: "StreamLostError", remedy: str
) -> None:
    """Raise an error that a new stream of a slot cannot fix.

    Args:
        address: The server.
        name: The slot.
        lsn: The position of the connector.
        error: Why the stream ended.
        remedy: How to read all tables again.

    Raises:
        RetriableError: The server is unavailable.
        ServerError: The slot does not exist, or changes were made without a publication.
    """
    with translated_errors(address, "reading the log"), address.connected() as connection:
        slot = slot_of(connection, name)
    lost = what_is_lost(name, slot, {"lsn": lsn}, {}, lsn)
    if lost is not None:
        raise ServerError(f"{lost}. {remedy}")
    if error.sqlstate == _UNDEFINED_OBJECT:
        raise ServerError(
            f"{error}, or was missing when tables changed, and the server cannot decode "
            f"those changes: SELECT pg_drop_replication_slot('{name}'). {remedy}"
        )
