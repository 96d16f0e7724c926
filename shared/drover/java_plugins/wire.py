"""Calls to the host of Java plugins: a line of JSON each way on a Unix socket, and Arrow streams.

Executors use it too, so it needs nothing of the engine.
"""

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from drover.record.batch import ERROR_COLUMN, ORIGIN_COLUMN, RAW_COLUMN

#: Written beside the socket when the host has ended: why, with its last lines.
END_FILE = "ended"
#: How long a caller waits for that file after its connection broke.
_END_S = 2.0
#: How long a call waits for its answer before it asks for the progress.
_SILENCE_MS = 5_000
#: A longer answer of a host is taken for its end.
_ANSWER_BYTES_MAX = 64 << 20
#: Never set: for short waits.
_PAUSE = threading.Event()

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
#: The columns of rows that the host reads.
PUT_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("timestamp", pa.int64()),
        #: The topic that a transform gave the record; null if it is that of the read.
        ("target", pa.string()),
    ]
)
_STEP_HEADERS = pa.list_(
    pa.struct([("key", pa.string()), ("value", pa.binary()), ("typed", pa.bool_())])
)
#: The columns of records for a step: keys, values and typed headers are JSON with schemas.
STEP_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("header_key", pa.string()),
        ("headers", _STEP_HEADERS),
    ]
)
#: The columns of what a step made: of the record in the row ``row``, or its error.
MADE_SCHEMA = pa.schema(
    [
        ("row", pa.int32()),
        ("error", pa.string()),
        ("matches", pa.bool_()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _STEP_HEADERS),
    ]
)
#: The columns of rows that the host gives, for Spark.
FETCH_DDL = (
    "topic string, partition int, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>, timestamp bigint"
)
#: The same, where the batch has records that failed in the host.
FETCH_REJECTED_DDL = (
    f"{FETCH_DDL}, {ERROR_COLUMN} string, {RAW_COLUMN} binary, {ORIGIN_COLUMN} string"
)


class JavaCallError(Exception):
    """A Java plugin's code raised an exception.

    Attributes:
        phase: The plugin's method that failed; empty if it was Kafka Connect's own code.
        trace: Java's stack trace.
        java_class: The exception's class.
        is_retriable: Whether it is a RetriableException: the same call may succeed later.
    """

    def __init__(
        self,
        message: str,
        phase: str = "",
        trace: str = "",
        java_class: str = "",
        is_retriable: bool = False,
    ) -> None:
        super().__init__(message)
        self.phase = phase
        self.trace = trace
        self.java_class = java_class
        self.is_retriable = is_retriable

    def __reduce__(self) -> tuple[Any, ...]:
        own = (self.phase, self.trace, self.java_class, self.is_retriable)
        return type(self), (str(self), *own)


class JavaCallHangsError(Exception):
    """A plugin did not return in time; its call continues in the host.

    The message is where its thread is, if that is known.
    """


class JavaHostEndedError(Exception):
    """The JVM of a Java plugin has ended; the message has the reason and its last lines.

    It counts as the plugin's failure: one that ends its JVM at each start is not restarted forever.
    """


@dataclass(frozen=True, slots=True)
class Address:
    """Where a host answers; picklable.

    Attributes:
        socket: The path of its socket.
        plugin: The plugin that it runs, for messages.
    """

    socket: str
    plugin: str

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call the host on a connection of the call's own.

        Raises:
            JavaCallError: The plugin raised an exception.
            JavaHostEndedError: The host has ended.
        """
        return self.call_within(None, name, **arguments)

    def call_within(self, limit_s: float | None, name: str, **arguments: Any) -> dict[str, Any]:
        """As ``call``, for a call that executes a method of the plugin.

        Raises:
            JavaCallHangsError: It did not return within ``limit_s`` seconds.
        """
        with closing(Conversation(self, limit_s)) as conversation:
            return conversation.call(name, **arguments)

    def fetch(self, run: int, batch: int, part: int, parts: int) -> Iterator[pa.RecordBatch]:
        """A part of the rows of a source's batch."""
        with closing(Conversation(self)) as conversation:
            conversation.call("fetch", run=run, batch=batch, part=part, parts=parts)
            yield from conversation.batches()

    def put(
        self,
        run: int,
        batch: int,
        ranges: Sequence[tuple[str, int, int, int]],
        rows: Iterable[pa.RecordBatch],
    ) -> None:
        """Pass a batch of rows to a sink's task, after the rows before; does not wait for it.

        Args:
            run: The task.
            batch: The number of the batch, from 1; a repeated call has no effect.
            ranges: The topic partitions of the batch, with the offsets at which it starts and ends.
            rows: The records, in their order.
        """
        with closing(Conversation(self)) as conversation:
            conversation.put(rows, run=run, batch=batch, ranges=[list(each) for each in ranges])

    def apply(self, run: int, what: str, rows: pa.RecordBatch, limit_s: float) -> pa.Table:
        """Apply a step to records of STEP_SCHEMA; returns rows of MADE_SCHEMA.

        Args:
            run: The step.
            what: ``transform``, ``matches``, ``encode`` or ``decode``.
            rows: The records.
            limit_s: How many seconds the plugin may work on one record.

        Raises:
            JavaCallHangsError: Longer than that; it continues in the host.
        """

        def check_progress() -> None:
            found = self.call("step_progress", run=run)
            if found["since_ms"] > limit_s * 1_000:
                raise JavaCallHangsError(found["stack"])

        with closing(Conversation(self, on_silence=check_progress)) as conversation:
            conversation.send_rows("apply", [rows], STEP_SCHEMA, run=run, what=what)
            return pa.Table.from_batches(conversation.batches(), MADE_SCHEMA)

    def ended(self) -> JavaHostEndedError:
        """The error of a host whose connection broke; waits briefly for the reason."""
        path = Path(self.socket).with_name(END_FILE)
        until = time.monotonic() + _END_S
        while time.monotonic() < until:
            with suppress(OSError):
                return JavaHostEndedError(path.read_text(errors="replace"))
            if not path.parent.is_dir():
                break
            _PAUSE.wait(0.02)
        return JavaHostEndedError(f"the JVM of the Java plugin {self.plugin} has ended")


class Conversation:
    """A connection to a host; for one thread."""

    def __init__(
        self,
        address: Address,
        limit_s: float | None = None,
        on_silence: Callable[[], None] | None = None,
    ) -> None:
        """Connect.

        Args:
            address: The host.
            limit_s: An answer is received within so many seconds.
            on_silence: Called every few seconds without an answer; its error ends the call.

        Raises:
            JavaHostEndedError: The host has ended.
        """
        self._address = address
        self._on_silence = on_silence
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(address.socket)
        except OSError:
            self._socket.close()
            raise address.ended() from None
        self._socket.settimeout(limit_s)
        self._stream = self._socket.makefile("rb", buffering=1 << 16)

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """See Address."""
        return self._answered(lambda: self._send(name, arguments))

    def put(self, rows: Iterable[pa.RecordBatch], **arguments: Any) -> None:
        """See Address."""
        self.send_rows("put", rows, PUT_SCHEMA, **arguments)

    def send_rows(
        self, name: str, rows: Iterable[pa.RecordBatch], schema: pa.Schema, **arguments: Any
    ) -> None:
        """A call with rows; for its errors see Address."""

        def send() -> None:
            self._send(name, arguments)
            with (
                self._socket.makefile("wb", buffering=1 << 20) as out,
                pa.ipc.new_stream(pa.PythonFile(out), schema) as writer,
            ):
                for each in rows:
                    writer.write_batch(each)

        self._answered(send)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The Arrow stream after an answer."""
        try:
            with pa.ipc.open_stream(pa.PythonFile(self._stream)) as reader:
                yield from reader
        except (OSError, pa.ArrowInvalid):
            raise self._address.ended() from None

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()

    def _send(self, name: str, arguments: Mapping[str, Any]) -> None:
        self._socket.sendall(json.dumps({"call": name, **arguments}).encode() + b"\n")

    def _answered(self, send: Any) -> dict[str, Any]:
        try:
            send()
            if self._on_silence is not None:
                poller = select.poll()
                poller.register(self._socket, select.POLLIN)
                while not poller.poll(_SILENCE_MS):
                    self._on_silence()
            line = self._stream.readline(_ANSWER_BYTES_MAX)
        except TimeoutError:
            raise JavaCallHangsError from None
        except OSError:
            raise self._address.ended() from None
        if not line.endswith(b"\n"):
            raise self._address.ended()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            found = answer["error"]
            raise JavaCallError(
                found["message"],
                found.get("phase", ""),
                found["trace"],
                found["class"],
                found.get("retriable", False),
            )
        result: dict[str, Any] = answer["ok"]
        return result
