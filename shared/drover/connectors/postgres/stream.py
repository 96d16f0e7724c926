"""A slot's log as it comes, on a thread of its own, with a bound on what waits to be taken."""

import logging
import select
import threading
import time
from collections import deque
from typing import Any

from drover.connectors.postgres.server import ServerAddress, first_line

_BUFFER_MAX_BYTES = 64 * 1024 * 1024
_WAIT_S = 0.2
#: The server takes a reader for dead after wal_sender_timeout, a minute by default.
_FEEDBACK_EVERY_S = 5.0
_JOIN_S = 15.0

_log = logging.getLogger(__name__)


class StreamLostError(Exception):
    """The stream ended; a new one goes on at the last position that was acknowledged."""


class ChangeStream:
    """Messages of a slot from a position on.

    Args:
        address: The server.
        slot: Its slot, which nobody else reads.
        publication: Whose tables.
        lsn: Where to begin.
        name: How the server lists the session.
    """

    def __init__(
        self, address: ServerAddress, slot: str, publication: str, lsn: int, name: str
    ) -> None:
        self._address, self._slot, self._publication = address, slot, publication
        self._name = name
        self._acknowledged = self._reported = lsn
        self._lock = threading.Lock()
        self._messages: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._failure: str | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slot-{slot}", daemon=True)
        self._thread.start()

    def take(self, messages_max: int) -> list[tuple[int, bytes]]:
        """The next (position, message) pairs.

        Raises:
            StreamLostError: the stream ended, and all that came before was taken.
        """
        with self._lock:
            count = min(messages_max, len(self._messages))
            taken = [self._messages.popleft() for _ in range(count)]
            self._bytes -= sum(len(payload) for _, payload in taken)
            if not taken and self._failure is not None:
                raise StreamLostError(self._failure)
            return taken

    def give_back(self, messages: list[tuple[int, bytes]]) -> None:
        """Have messages taken again, before all others."""
        with self._lock:
            self._messages.extendleft(reversed(messages))
            self._bytes += sum(len(payload) for _, payload in messages)

    def acknowledge(self, lsn: int) -> None:
        """Everything before this position is committed: the server may forget it.

        While nothing else was read, the driver moves it on by itself as the log grows by what is
        not published.
        """
        self._acknowledged = max(self._acknowledged, lsn)

    def close(self) -> None:
        """Leave the slot."""
        self._closing.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        import psycopg2

        try:
            self._read()
        except (psycopg2.Error, OSError, ValueError) as error:
            self._failure = first_line(error)
            _log.info("the stream of slot %s ended: %s", self._slot, self._failure)

    def _read(self) -> None:
        import psycopg2
        from psycopg2.extras import REPLICATION_LOGICAL, LogicalReplicationConnection

        connection = psycopg2.connect(
            connection_factory=LogicalReplicationConnection, **self._address.parameters(self._name)
        )
        try:
            cursor = connection.cursor()
            quoted = self._publication.replace('"', '""')
            cursor.start_replication(
                slot_name=self._slot,
                slot_type=REPLICATION_LOGICAL,
                start_lsn=self._acknowledged,
                options={"proto_version": "1", "publication_names": f'"{quoted}"'},
                decode=False,
            )
            told_s = time.monotonic()
            while not self._closing.is_set():
                if self._bytes < _BUFFER_MAX_BYTES:
                    self._read_some(cursor)
                else:
                    self._closing.wait(0.01)
                due = time.monotonic() - told_s > _FEEDBACK_EVERY_S
                if due or self._reported != self._acknowledged:
                    told_s, self._reported = time.monotonic(), self._acknowledged
                    cursor.send_feedback(flush_lsn=self._reported, reply=due, force=True)
        finally:
            connection.close()

    def _read_some(self, cursor: Any) -> None:
        """What is there; waits a moment when there is nothing."""
        found: list[tuple[int, bytes]] = []
        size = 0
        while size < 1024 * 1024:
            message = cursor.read_message()
            if message is None:
                break
            found.append((message.data_start, message.payload))
            size += len(message.payload)
        with self._lock:
            self._messages.extend(found)
            self._bytes += size
        if not found:
            select.select([cursor], [], [], _WAIT_S)
