"""Reads a slot's stream on a separate thread, with a limit on buffered messages."""

import logging
import select
import struct
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from drover.connectors.postgres.pgoutput import EPOCH_US
from drover.connectors.postgres.server import (
    TRANSACTION_TIMEOUT_SINCE,
    ServerAddress,
    first_line,
    lsn_text,
    with_state_remedy,
)

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

_BUFFER_MAX_BYTES = 64 * 1024 * 1024
_WAIT_S = 0.2
#: How long a reader waits for a server that has not reported whether there is more, how long for a
#: full batch, and the pause after which a batch counts as complete.
_PATIENCE_S, _GATHER_S, _PAUSE_S = 1.0, 0.1, 0.005
#: The server drops a reader after wal_sender_timeout, a minute by default.
_FEEDBACK_EVERY_S = 5.0
_JOIN_S = 15.0
_AT_ONCE_BYTES = 1024 * 1024
_XLOG_DATA, _KEEPALIVE = ord("w"), ord("k")
#: The head of a stream message: kind, start position, end of the log, send time.
_XLOG_HEAD_BYTES = 25
_LSN = struct.Struct(">Q")
_FEEDBACK = struct.Struct(">cQQQqB")

_log = logging.getLogger(__name__)


class StreamLostError(Exception):
    """The stream ended; a new one continues at the last acknowledged position.

    ``sqlstate`` is the server's error code, if any.
    """

    def __init__(self, told: str, sqlstate: str = "") -> None:
        super().__init__(told)
        self.sqlstate = sqlstate


class ChangeStream:
    """The messages of a slot from a position on.

    Args:
        address: The server.
        slot: Its slot, without other readers.
        publication: The publication of the tables.
        lsn: The start position.
        name: The session's application name.
        acknowledged: Everything before this position is committed.
        end: A recent end of the log. The server reads the log again from before the position and
            may report meanwhile that it has caught up; reads wait until it has passed this end.
    """

    def __init__(
        self,
        address: ServerAddress,
        slot: str,
        publication: str,
        lsn: int,
        name: str,
        *,
        acknowledged: int,
        end: int,
    ) -> None:
        self._address, self._slot, self._publication = address, slot, publication
        self._name, self._lsn, self._end = name, lsn, end
        self._acknowledged = self._reported = acknowledged
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._messages: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        #: The server reported that it has sent everything.
        self._caught_up = False
        self._heard_s = time.monotonic()
        #: A position after everything received, at the last request for feedback.
        self._quiet_lsn = 0
        self._failure: StreamLostError | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slot-{slot}", daemon=True)
        self._thread.start()

    def take(
        self, messages_max: int, bytes_max: int, *, overhead_bytes: int = 0
    ) -> list[tuple[int, bytes]]:
        """The next (position, message) pairs; empty when the server has no more for now.

        Waits while more is expected, at most a second. A single message always fits;
        ``overhead_bytes`` is added for each message.

        Raises:
            StreamLostError: The stream ended, and all received messages were taken.
        """
        self._gather(messages_max, bytes_max, overhead_bytes)
        taken: list[tuple[int, bytes]] = []
        size = payload_bytes = 0
        with self._lock:
            while self._messages and len(taken) < messages_max and size < bytes_max:
                message = self._messages.popleft()
                taken.append(message)
                payload_bytes += len(message[1])
                size = payload_bytes + overhead_bytes * len(taken)
            self._bytes -= payload_bytes
            if not taken and self._failure is not None:
                raise self._failure
            return taken

    def _gather(self, messages_max: int, bytes_max: int, overhead_bytes: int) -> None:
        def something() -> bool:
            return bool(self._messages) or self._caught_up or self._failure is not None

        with self._lock:
            self._came.wait_for(something, self._heard_s + _PATIENCE_S - time.monotonic())
        seen, end_s = 0, time.monotonic() + _GATHER_S
        while seen < (count := len(self._messages)) < messages_max and time.monotonic() < end_s:
            size = self._bytes + overhead_bytes * count
            if self._caught_up or size >= min(bytes_max, _BUFFER_MAX_BYTES):
                break
            seen = count
            self._closing.wait(_PAUSE_S)

    def give_back(self, messages: list[tuple[int, bytes]]) -> None:
        """Return messages to the front of the buffer."""
        with self._lock:
            self._messages.extendleft(reversed(messages))
            self._bytes += sum(len(payload) for _, payload in messages)

    def acknowledge(self, lsn: int) -> None:
        """Allow the server to discard everything before this position, which is committed."""
        self._acknowledged = max(self._acknowledged, lsn)

    def quiet_lsn(self) -> int:
        """The position up to which the log has no further published changes, if all messages were
        taken; 0 while there are messages.
        """
        with self._lock:
            return 0 if self._messages else self._quiet_lsn

    def close(self) -> None:
        """Close the stream and release the slot."""
        self._closing.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        import psycopg

        try:
            self._read()
        except StreamLostError as error:
            self._failure = error
        except (psycopg.Error, OSError, ValueError) as error:
            self._failure = StreamLostError(first_line(error, self._address))
        with self._lock:
            self._came.notify_all()
        if self._failure is not None:
            _log.info("the stream of slot %s ended: %s", self._slot, self._failure)

    def _read(self) -> None:
        import psycopg

        parameters = self._address.parameters(self._name)
        connection = psycopg.connect(**parameters, replication="database", autocommit=True)
        try:
            pgconn = connection.pgconn
            self._begin(pgconn)
            told_s = time.monotonic()
            while not self._closing.is_set():
                if self._bytes < _BUFFER_MAX_BYTES:
                    self._read_some(pgconn)
                else:
                    self._closing.wait(0.01)
                due = time.monotonic() - told_s > _FEEDBACK_EVERY_S
                if due or self._reported != self._acknowledged:
                    told_s, self._reported = time.monotonic(), self._acknowledged
                    pgconn.put_copy_data(_feedback(self._quiet_lsn, self._reported, reply=due))
                    pgconn.flush()
        finally:
            connection.close()

    def _begin(self, pgconn: "PGconn") -> None:
        """Start the replication stream; replication sessions accept no prepared statements."""
        from psycopg.pq import ExecStatus

        for setting in _settings_of(pgconn):
            done = pgconn.exec_(setting)
            if done.status != ExecStatus.COMMAND_OK:
                raise _loss_of(done)
        lsn = lsn_text(self._lsn)
        # an identifier in double quotes within a string in single quotes
        publication = self._publication.replace('"', '""').replace("'", "''")
        started = pgconn.exec_(
            f'START_REPLICATION SLOT "{self._slot}" LOGICAL {lsn} '
            f"(proto_version '1', publication_names '\"{publication}\"')".encode()
        )
        if started.status != ExecStatus.COPY_BOTH:
            raise _loss_of(started)

    def _read_some(self, pgconn: "PGconn") -> None:
        """Receive available messages; waits briefly if there are none.

        Raises:
            StreamLostError: The server ended the stream.
        """
        found: list[tuple[int, bytes]] = []
        size = quiet_lsn = 0
        fresh = caught_up = False
        while size < _AT_ONCE_BYTES:
            count, data = pgconn.get_copy_data(1)
            if count == 0 and not fresh:
                pgconn.consume_input()  # also data buffered by TLS, unseen by poll
                fresh = True
                continue
            if count <= 0:
                break
            fresh = False
            if data[0] == _XLOG_DATA:
                found.append((_LSN.unpack_from(data, 1)[0], bytes(data[_XLOG_HEAD_BYTES:])))
                size += count - _XLOG_HEAD_BYTES
                caught_up = False
            elif data[0] == _KEEPALIVE:
                quiet_lsn = _LSN.unpack_from(data, 1)[0]
                caught_up = quiet_lsn >= self._end
        if found or quiet_lsn:
            with self._lock:
                self._messages.extend(found)
                self._bytes += size
                self._quiet_lsn = max(self._quiet_lsn, quiet_lsn)
                self._caught_up, self._heard_s = caught_up, time.monotonic()
                self._came.notify_all()
        if count < 0:
            raise _loss_of(pgconn.get_result())
        if not found:
            # not select, which supports only the first thousand descriptors of a process
            coming = select.poll()
            coming.register(pgconn.socket, select.POLLIN)
            coming.poll(_WAIT_S * 1_000)


def _settings_of(pgconn: "PGconn") -> list[bytes]:
    """The settings of a stream, by what the server is."""
    settings = []
    if pgconn.server_version >= TRANSACTION_TIMEOUT_SINCE:
        settings.append(b"SET transaction_timeout TO 0")
    if pgconn.parameter_status(b"server_encoding") == b"SQL_ASCII":
        # otherwise the server ends each stream at a text that is not UTF-8
        settings.append(b"SET client_encoding TO 'SQL_ASCII'")
    return settings


def _loss_of(result: "PGresult | None") -> StreamLostError:
    """The exception for the server's message at the end of a stream."""
    from psycopg.pq import DiagnosticField

    if result is None:
        return StreamLostError("the server ended it")
    told = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"the server ended it"
    code = result.error_field(DiagnosticField.SQLSTATE) or b""
    sqlstate = code.decode()
    return StreamLostError(
        with_state_remedy(told.decode(errors="replace")[:500], sqlstate), sqlstate
    )


def _feedback(written_lsn: int, flushed_lsn: int, *, reply: bool) -> bytes:
    """The status message that reports which positions the server may discard."""
    now_us = time.time_ns() // 1_000 - EPOCH_US
    written_lsn = max(written_lsn, flushed_lsn)
    return _FEEDBACK.pack(b"r", written_lsn, flushed_lsn, flushed_lsn, now_us, reply)
