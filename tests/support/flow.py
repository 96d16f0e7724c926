"""Lines that are continuously appended to a file during faults, and a check of the output."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from drover.client import ConnectClient
from tests.support.histories import FlowHistory
from tests.support.waiting import pause, wait_until_async

FLOW_TIMEOUT_S = 300.0
_TICK_S = 0.05
_LINES_PER_TICK = 500


class Flow:
    """A growing source file, the sink file that must become equal, and their connectors."""

    def __init__(
        self, directory: Path, name: str = "flow", *, lines_per_tick: int = _LINES_PER_TICK
    ) -> None:
        self.name = name
        self.source = f"{name}-source"
        self.sink = f"{name}-sink"
        self.input = directory / f"{name}-in.txt"
        self.output = directory / f"{name}-out.txt"
        self._lines_per_tick = lines_per_tick
        self._line_count = 0

    async def create_connectors(self, client: ConnectClient) -> None:
        """Create the two FileStream connectors."""
        await client.create_connector(
            self.source,
            {
                "connector.class": "FileStreamSource",
                "file": str(self.input),
                "topic": self.name,
            },
        )
        await client.create_connector(
            self.sink,
            {
                "connector.class": "FileStreamSink",
                "file": str(self.output),
                "topics": self.name,
            },
        )

    @asynccontextmanager
    async def feeding(self) -> AsyncIterator[None]:
        """Append lines while the block runs."""
        task = asyncio.create_task(self._feed())
        try:
            await wait_until_async(lambda: self._line_count > 0, describe="the first lines are fed")
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _feed(self) -> None:
        with self.input.open("ab", buffering=0) as file:
            while True:
                lines = (
                    f"line {number} {number * 7919 % 104729:x}\n"
                    for number in range(self._line_count, self._line_count + self._lines_per_tick)
                )
                file.write("".join(lines).encode())
                self._line_count += self._lines_per_tick
                await pause(_TICK_S)

    async def wait_until_passed(self, what: str) -> None:
        """Wait until the current input has reached the output."""
        size = self.input.stat().st_size
        await wait_until_async(
            lambda: self.output.exists() and self.output.stat().st_size >= size,
            timeout_s=FLOW_TIMEOUT_S,
            describe=f"{size} bytes come out {what}",
        )

    def history(self) -> FlowHistory:
        """An empty history of the flow; it is written next to the output."""
        path = self.output.with_name(f"{self.name}-history.jsonl")
        return FlowHistory(self.source, self.sink, self.input, path)

    def output_lines(self) -> list[bytes]:
        """The lines of the output."""
        return self.output.read_bytes().splitlines()

    async def assert_equal(self) -> None:
        """After the end of the feed: all lines arrive; none is lost, duplicated or reordered."""
        await self.wait_until_passed("after the feed has ended")
        assert self._line_count > 0
        assert _sha256(self.output) == _sha256(self.input)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
