"""Parses messages of PostgreSQL's logical replication, protocol 1 of the plugin pgoutput.

Pure: from bytes to values. A transaction arrives complete, after its commit: Begin, then a Relation
before the first change of each table that is new to the session, then Commit.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

BEGIN, COMMIT, RELATION = ord("B"), ord("C"), ord("R")
INSERT, UPDATE, DELETE, TRUNCATE = ord("I"), ord("U"), ord("D"), ord("T")
#: Messages about rows; positions within a transaction count them.
CHANGES = frozenset((INSERT, UPDATE, DELETE, TRUNCATE))

_BEGIN = struct.Struct(">xQqI")
_COMMIT = struct.Struct(">xxQQq")
_OID = struct.Struct(">I")
_COUNT = struct.Struct(">H")
_TYPE = struct.Struct(">Ii")
#: PostgreSQL's epoch, 2000-01-01.
EPOCH_US = 946_684_800_000_000


@dataclass(frozen=True, slots=True)
class Transaction:
    """``commit_lsn`` is the position of its commit record; ``committed_us`` is since 1970."""

    commit_lsn: int
    committed_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """``in_identity``: part of the replica identity, which old rows always have."""

    name: str
    type_oid: int
    type_modifier: int
    in_identity: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """A table in the version of the changes that follow."""

    oid: int
    schema: str
    table: str
    columns: tuple[RelationColumn, ...]
    #: Whether its replica identity is FULL.
    full_identity: bool = False

    @property
    def name(self) -> str:
        """Its name in settings and offsets."""
        return f"{self.schema}.{self.table}"


def parse_begin(payload: bytes) -> Transaction:
    """Parse a Begin message."""
    commit_lsn, committed, xid = _BEGIN.unpack_from(payload)
    return Transaction(commit_lsn, committed + EPOCH_US, xid)


def end_lsn_of(payload: bytes) -> int:
    """The position after the transaction, from a Commit message; no other message has it."""
    end_lsn: int = _COMMIT.unpack_from(payload)[1]
    return end_lsn


def relation_oid_of(payload: bytes) -> int:
    """The table of a Relation, Insert, Update or Delete message."""
    oid: int = _OID.unpack_from(payload, 1)[0]
    return oid


def parse_relation(payload: bytes) -> Relation:
    """Parse a Relation message."""
    schema, at = _name(payload, 5)
    table, at = _name(payload, at)
    identity = payload[at : at + 1]
    (count,) = _COUNT.unpack_from(payload, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = payload[at]
        name, at = _name(payload, at + 1)
        oid, modifier = _TYPE.unpack_from(payload, at)
        at += _TYPE.size
        columns.append(RelationColumn(name, oid, modifier, bool(flags & 1)))
    oid = relation_oid_of(payload)
    # an empty name means pg_catalog
    return Relation(oid, schema or "pg_catalog", table, tuple(columns), identity == b"f")


def renamed(payload: bytes, schema: str, table: str) -> bytes:
    """A Relation message with another name of the table."""
    _, at = _name(payload, 5)
    _, at = _name(payload, at)
    return payload[:5] + schema.encode() + b"\0" + table.encode() + b"\0" + payload[at:]


def truncated_oids(payload: bytes) -> Iterator[int]:
    """The tables of a Truncate message."""
    (count,) = _OID.unpack_from(payload, 1)
    for number in range(count):
        yield _OID.unpack_from(payload, 6 + 4 * number)[0]


def _name(payload: bytes, at: int) -> tuple[str, int]:
    end = payload.index(0, at)
    return payload[at:end].decode(), end + 1
