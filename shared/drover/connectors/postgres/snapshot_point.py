"""What a snapshot of tables has seen, so that no change is read twice and none is missed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_XID_RANGE = 1 << 32
#: Of an offset: false while the table is not read whole.
_COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class SnapshotPoint:
    """What ``pg_current_snapshot()`` says, and a position that is behind everything it has seen.

    A transaction below ``xmin`` is seen, one from ``xmax`` on is not; between them those in
    ``running`` are not.
    """

    xmin: int
    xmax: int
    running: frozenset[int]
    lsn: int

    @classmethod
    def parse(cls, text: str, lsn: int) -> "SnapshotPoint":
        """As the server writes it: ``xmin:xmax:xid,xid``.

        Raises:
            ValueError: it is something else.
        """
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, filter(None, running.split(",")))), lsn)

    @classmethod
    def of_offset(cls, offset: Mapping[str, Any]) -> "SnapshotPoint":
        """See ``offset``.

        Raises:
            ValueError: it is no such offset.
        """
        snapshot, lsn = offset.get("snapshot"), offset.get("lsn")
        if not isinstance(snapshot, str) or not isinstance(lsn, int):
            raise ValueError("snapshot and lsn have to be there")
        return cls.parse(snapshot, lsn)

    def offset(self, *, complete: bool = True) -> dict[str, Any]:
        """As it is committed for a table: before its first rows, and once all of them were read."""
        running = ",".join(map(str, sorted(self.running)))
        offset = {"snapshot": f"{self.xmin}:{self.xmax}:{running}", "lsn": self.lsn}
        return offset if complete else {**offset, _COMPLETE: False}

    def has_seen(self, xid: int, commit_lsn: int) -> bool:
        """Whether a transaction's changes were in the tables already.

        Args:
            xid: As messages have it, of 32 bits: the ids begin again after four billion, which is
                why nothing from ``lsn`` on is looked at.
            commit_lsn: Where its commit is in the log.
        """
        if commit_lsn >= self.lsn:
            return False
        near = self.xmax - (self.xmax - xid) % _XID_RANGE
        if near + _XID_RANGE // 2 < self.xmax:
            near += _XID_RANGE
        if near >= self.xmax:
            return False
        return near < self.xmin or near not in self.running


def committed_points(
    offsets: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]], server: str
) -> "tuple[dict[str, SnapshotPoint | None], dict[str, SnapshotPoint]]":
    """The tables of a server that were read whole, and those whose rows had begun to come.

    Raises:
        ValueError: see ``SnapshotPoint.of_offset``.
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
