"""Histories of real clusters: what a test sees from outside while processes are killed."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.client.failover import FailoverChannel
from drover.errors import DroverError
from simulation.events import Event, Span, What, position, runs_of, write_history
from simulation.history import check
from tests.support.waiting import pause

LOOK_EVERY_S = 1.0
#: The partition of a history that counts the lines of the input.
LINES = "lines"


class FlowHistory:
    """The history of lines that flow through a source and a sink.

    Each line of the input starts with ``line NUMBER``. While it observes, it reads the committed
    offsets; at the end it takes the input and what readers found.

    Args:
        source: The source connector, which reads the file.
        sink: The sink connector.
        input_path: The file that the source reads.
        path: Where the history is written.
    """

    def __init__(self, source: str, sink: str, input_path: Path, path: Path) -> None:
        self._source = source
        self._sink = sink
        self._input = input_path
        self._path = path
        #: When which connector had which committed position in which partition.
        self._seen: list[tuple[int, str, str, int]] = []
        self._started_s = time.monotonic()

    @asynccontextmanager
    async def observing(self, workers: Sequence[str]) -> AsyncIterator[None]:
        """Read the committed offsets again and again while the block runs."""
        task = asyncio.create_task(self._observe(workers))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _observe(self, workers: Sequence[str]) -> None:
        async with FailoverChannel(workers) as channel:
            client = ConnectClient(channel.as_channel())
            while True:
                for connector in (self._source, self._sink):
                    with suppress(DroverError):  # no worker answers at present
                        offsets = await client.get_connector_offsets(connector, timeout_s=5)
                        self.fetched(connector, offsets)
                await pause(LOOK_EVERY_S)

    def fetched(self, connector: str, offsets: Sequence[pb.ConnectorOffset]) -> None:
        """Add committed offsets that a client has read."""
        for offset in offsets:
            found = json.loads(offset.offset_json or "{}")
            for number in [each for each in found.values() if isinstance(each, int)][:1]:
                self._seen.append((self._now_ms(), connector, offset.partition_json, number))

    def assert_kept(self, connector: str, lines: Sequence[bytes]) -> None:
        """Check the guarantees after a reader found these lines in the output of a connector."""
        wanted = self._input.read_bytes().splitlines()
        history = [self._event(each, wanted) for each in self._seen]
        now_ms = self._now_ms()
        history += [
            Event(What.INPUT, connector, (Span(LINES, 0, len(wanted)),), time_ms=now_ms),
            Event(What.READ_BACK, connector, runs_of(LINES, _numbers(lines)), time_ms=now_ms),
        ]
        write_history(self._path, history)
        violations = [violation.report(history) for violation in check(history)]
        assert not violations, f"{self._path}:\n" + "\n\n".join(violations)
        unknown = [line for line in lines if wanted[_number(line)] != line]
        assert not unknown, f"these lines were not in the input: {unknown[:5]}"

    def _event(self, seen: tuple[int, str, str, int], wanted: Sequence[bytes]) -> Event:
        now_ms, connector, partition, at = seen
        if connector == self._source:  # bytes of the file
            partition, at = LINES, _line_at(wanted, at)
        return Event(What.FETCHED, connector, (position(partition, at),), time_ms=now_ms)

    def _now_ms(self) -> int:
        return int((time.monotonic() - self._started_s) * 1000)


def _line_at(lines: Sequence[bytes], position_bytes: int) -> int:
    """The number of lines before a position of a file."""
    end = 0
    for number, line in enumerate(lines):
        end += len(line) + 1
        if end > position_bytes:
            return number
    return len(lines)


def _numbers(lines: Sequence[bytes]) -> list[int]:
    return [_number(line) for line in lines]


def _number(line: bytes) -> int:
    """The number of a line of a flow."""
    words = line.split()
    assert words[:1] == [b"line"], f"not a line of the input: {line!r}"
    assert len(words) == 3, f"not a line of the input: {line!r}"
    return int(words[1])
