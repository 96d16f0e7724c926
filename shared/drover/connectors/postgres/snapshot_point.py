"""Records what a snapshot has seen, so that no change is read twice and none is missed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

_XID_RANGE = 1 << 32
#: In an offset: false until the table has been read completely.
_COMPLETE = "complete"
_OID = "oid"


@dataclass(frozen=True, slots=True)
class SnapshotPoint:
    """The value of ``pg_current_snapshot()``, and a log position after everything it has seen.

    Transactions below ``xmin`` are seen, transactions from ``xmax`` on are not; in between, those
    in ``running`` are not. ``oid`` is the number of the table that was read; None in offsets of
    earlier versions.
    """

    xmin: int
    xmax: int
    running: frozenset[int]
    lsn: int
    oid: int | None = None

    @classmethod
    def parse(cls, text: str, lsn: int) -> "SnapshotPoint":
        """Parse the server's format: ``xmin:xmax:xid,xid``.

        Raises:
            ValueError: The text has another form.
        """
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, filter(None, running.split(",")))), lsn)

    @classmethod
    def of_offset(cls, offset: Mapping[str, Any]) -> "SnapshotPoint":
        """Parse the result of ``offset``.

        Raises:
            ValueError: It has another form.
        """
        snapshot, lsn, oid = offset.get("snapshot"), offset.get("lsn"), offset.get(_OID)
        if not isinstance(snapshot, str) or not isinstance(lsn, int):
            raise ValueError("snapshot and lsn are required")
        return replace(cls.parse(snapshot, lsn), oid=oid if isinstance(oid, int) else None)

    def offset(self, *, complete: bool = True) -> dict[str, Any]:
        """The offset of a table: committed before its first rows, and again when all were read."""
        running = ",".join(map(str, sorted(self.running)))
        offset: dict[str, Any] = {"snapshot": f"{self.xmin}:{self.xmax}:{running}", "lsn": self.lsn}
        if self.oid is not None:
            offset[_OID] = self.oid
        return offset if complete else {**offset, _COMPLETE: False}

    def has_seen(self, xid: int, commit_lsn: int) -> bool:
        """Whether a transaction's changes are part of the snapshot.

        Args:
            xid: The 32-bit id in messages, which wraps around after four billion; transactions from
                ``lsn`` on are therefore never compared.
            commit_lsn: The position of its commit record.
        """
        return commit_lsn < self.lsn and self.has_seen_id(xid)

    def has_seen_id(self, xid: int) -> bool:
        """Whether a transaction of the last two billion was visible to the snapshot."""
        near = self.xmax - (self.xmax - xid) % _XID_RANGE
        if near + _XID_RANGE // 2 < self.xmax:
            near += _XID_RANGE
        if near >= self.xmax:
            return False
        return near < self.xmin or near not in self.running


def committed_points(
    offsets: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]], server: str
) -> "tuple[dict[str, SnapshotPoint | None], dict[str, SnapshotPoint]]":
    """The tables of a server by state: read completely, and read in part.

    Raises:
        ValueError: See ``SnapshotPoint.of_offset``.
    """
    points: dict[str, SnapshotPoint | None] = {}
    begun: dict[str, SnapshotPoint] = {}
    for partition, offset in offsets:
        if "table" in partition and partition.get("server") == server:
            point = SnapshotPoint.of_offset(offset)
            if offset.get(_COMPLETE, True):
                points[partition["table"]] = point
            else:
                begun[partition["table"]] = point
    return points, begun
