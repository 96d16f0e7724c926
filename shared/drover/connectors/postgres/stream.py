"""A slot's log as it comes, on a thread of its own, with a bound on what waits to be taken."""

import logging
import select
import struct
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from drover.connectors.postgres.pgoutput import EPOCH_US
from drover.connectors.postgres.server import ServerAddress, first_line, with_remedy

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

_BUFFER_MAX_BYTES = 64 * 1024 * 1024
_WAIT_S = 0.2
#: How long a reader waits for a server that has not said whether there is more, and how long for a
#: full batch, of which parts keep coming within the pause.
_PATIENCE_S, _GATHER_S, _PAUSE_S = 1.0, 0.1, 0.005
#: The server takes a reader for dead after wal_sender_timeout, a minute by default.
_FEEDBACK_EVERY_S = 5.0
_JOIN_S = 15.0
_AT_ONCE_BYTES = 1024 * 1024
_XLOG_DATA, _KEEPALIVE = ord("w"), ord("k")
#: Of a message of the log: its kind, where it begins, where the log ends, and when it was sent.
_XLOG_HEAD_BYTES = 25
_LSN = struct.Struct(">Q")
_FEEDBACK = struct.Struct(">cQQQqB")

_log = logging.getLogger(__name__)


class StreamLostError(Exception):
    """The stream ended; a new one goes on at the last position that was acknowledged.

    ``sqlstate`` is the server's code for why, where it gave one.
    """

    def __init__(self, told: str, sqlstate: str = "") -> None:
        super().__init__(told)
        self.sqlstate = sqlstate


class ChangeStream:
    """Messages of a slot from a position on.

    Args:
        address: The server.
        slot: Its slot, which nobody else reads.
        publication: Whose tables.
        lsn: Where to begin.
        name: How the server lists the session.
        acknowledged: Everything before this position is committed.
        end: Where the log ended a moment ago. The server reads the log again from before the
            position, and may say meanwhile that it is there: until it has come so far, more is
            waited for.
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
        #: The server said that it has no more for now, behind all that it sent.
        self._caught_up = False
        self._heard_s = time.monotonic()
        #: Behind everything that was received, when that was asked last.
        self._quiet_lsn = 0
        self._failure: StreamLostError | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slot-{slot}", daemon=True)
        self._thread.start()

    def take(
        self, messages_max: int, bytes_max: int, *, overhead_bytes: int = 0
    ) -> list[tuple[int, bytes]]:
        """The next (position, message) pairs; none when the server has no more for now.

        It waits as long as more is about to come, a second at most. One message always fits;
        ``overhead_bytes`` count with each.

        Raises:
            StreamLostError: the stream ended, and all that came before was taken.
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
        """Have messages taken again, before all others."""
        with self._lock:
            self._messages.extendleft(reversed(messages))
            self._bytes += sum(len(payload) for _, payload in messages)

    def acknowledge(self, lsn: int) -> None:
        """Everything before this position is committed: the server may forget it."""
        self._acknowledged = max(self._acknowledged, lsn)

    def quiet_lsn(self) -> int:
        """How far the log was read, when all messages were taken: nothing that is published was
        committed before it. 0 while there are messages.
        """
        with self._lock:
            return 0 if self._messages else self._quiet_lsn

    def close(self) -> None:
        """Leave the slot."""
        self._closing.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        import psycopg

        try:
            self._read()
        except StreamLostError as error:
            self._failure = error
        except (psycopg.Error, OSError, ValueError) as error:
            self._failure = StreamLostError(first_line(error))
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
        """Have the server send the log; a replication session takes no prepared statements."""
        from psycopg.pq import ExecStatus

        lsn = f"{self._lsn >> 32:X}/{self._lsn & 0xFFFFFFFF:X}"
        # a name in double quotes, in a text in single ones
        publication = self._publication.replace('"', '""').replace("'", "''")
        started = pgconn.exec_(
            f'START_REPLICATION SLOT "{self._slot}" LOGICAL {lsn} '
            f"(proto_version '1', publication_names '\"{publication}\"')".encode()
        )
        if started.status != ExecStatus.COPY_BOTH:
            raise _loss_of(started)

    def _read_some(self, pgconn: "PGconn") -> None:
        """What is there; waits a moment when there is nothing.

        Raises:
            StreamLostError: the server ended the stream.
        """
        found: list[tuple[int, bytes]] = []
        size = quiet_lsn = 0
        fresh = caught_up = False
        while size < _AT_ONCE_BYTES:
            count, data = pgconn.get_copy_data(1)
            if count == 0 and not fresh:
                pgconn.consume_input()  # also what TLS has read, which the socket does not tell
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
            # not select, which knows the first thousand files of a process only
            coming = select.poll()
            coming.register(pgconn.socket, select.POLLIN)
            coming.poll(_WAIT_S * 1_000)


def _loss_of(result: "PGresult | None") -> StreamLostError:
    """What the server says of the end of a stream."""
    from psycopg.pq import DiagnosticField

    if result is None:
        return StreamLostError("the server ended it")
    told = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"the server ended it"
    code = result.error_field(DiagnosticField.SQLSTATE) or b""
    sqlstate = code.decode()
    return StreamLostError(with_remedy(told.decode(errors="replace")[:500], sqlstate), sqlstate)


def _feedback(written_lsn: int, flushed_lsn: int, *, reply: bool) -> bytes:
    """The message by which the server learns what it may forget."""
    now_us = time.time_ns() // 1_000 - EPOCH_US
    written_lsn = max(written_lsn, flushed_lsn)
    return _FEEDBACK.pack(b"r", written_lsn, flushed_lsn, flushed_lsn, now_us, reply)
