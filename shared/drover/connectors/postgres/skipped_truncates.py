"""Counts and logs TRUNCATEs that have no records: the rows stay in topics and targets."""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from drover.connectors.postgres.pgoutput import Transaction, parse_relation, truncated_oids
from drover.connectors.postgres.settings import ENVELOPE, FLAT, LAYOUT, SKIPPED
from drover.connectors.postgres.snapshot_point import SnapshotPoint

_log = logging.getLogger(__name__)

FIGURE = "truncates_skipped_count"


class SkippedTruncates:
    """The TRUNCATEs that a task has skipped since its start, one for each table.

    Args:
        config: The parsed config.
        report: See ``TaskContext.report``.
    """

    def __init__(self, config: Mapping[str, Any], report: Callable[[str, int], None]) -> None:
        self._skips = "t" in config[SKIPPED] or config[LAYOUT] == FLAT
        self._remedy = f"{SKIPPED}=none sends it to the topic"
        if config[LAYOUT] == FLAT:
            self._remedy = f"{LAYOUT}={ENVELOPE} and {self._remedy}"
        self._report = report
        self._count = 0
        self._found: list[tuple[str, int, Transaction]] = []
        report(FIGURE, 0)

    def see(
        self,
        payload: bytes,
        lsn: int,
        transaction: Transaction,
        relations: Mapping[int, bytes],
        captured: Collection[str],
        seen: "Mapping[str, SnapshotPoint | None]",
    ) -> None:
        """Note a Truncate message, unless a snapshot has seen it; ``add`` counts it.

        Args:
            payload: The message.
            lsn: Its position.
            transaction: Its transaction.
            relations: The Relation messages of the session.
            captured: The captured tables.
            seen: What snapshots have read.
        """
        if not self._skips:
            return
        for oid in truncated_oids(payload):
            name = parse_relation(relations[oid]).name if oid in relations else None
            if name is None or name not in captured:
                continue
            point = seen.get(name)
            if point is None or not point.has_seen(transaction.xid, transaction.commit_lsn):
                self._found.append((name, lsn, transaction))

    def forget(self) -> None:
        """Drop the notes of a poll that failed, because the server sends the messages again."""
        self._found.clear()

    def add(self) -> None:
        """Count and log what was noted."""
        for name, lsn, transaction in self._found:
            _log.warning(
                "TRUNCATE of table %s at position %d (transaction %d) is skipped: the rows stay in "
                "the topic and its targets; %s",
                *(name, lsn, transaction.xid, self._remedy),
            )
        if self._found:
            self._count += len(self._found)
            self._report(FIGURE, self._count)
            self._found.clear()
