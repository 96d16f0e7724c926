"""A file that is copied through a topic, by Kafka Connect and by Drover in turn."""

from collections import Counter
from pathlib import Path

from drover.client import ConnectClient
from tests.support.flow import Flow
from tests.support.kafka.connect import FILE_SINK, FILE_SOURCE, STRING_CONVERTER
from tests.support.kafka.connect_rest import ConnectRest


class FileCopy(Flow):
    """A source and a sink that both know by the same config."""

    def __init__(self, directory: Path, name: str, topic: str, *, lines_per_tick: int = 10) -> None:
        super().__init__(directory, name, lines_per_tick=lines_per_tick)
        self.topic = topic
        self.configs: dict[str, dict[str, str]] = {
            self.source: {
                "connector.class": FILE_SOURCE,
                "file": str(self.input),
                "topic": topic,
                "value.converter": STRING_CONVERTER,
                "name": self.source,
            },
            self.sink: {
                "connector.class": FILE_SINK,
                "file": str(self.output),
                "topics": topic,
                "value.converter": STRING_CONVERTER,
                "name": self.sink,
            },
        }

    async def create_connectors(self, client: ConnectClient) -> None:
        """Create both."""
        for name, config in self.configs.items():
            await client.create_connector(name, config)

    def create_in(self, rest: ConnectRest) -> None:
        """Both connectors; returns once they run."""
        for name, config in self.configs.items():
            rest.create(name, config)
        self.wait_until_run_by(rest)

    def wait_until_run_by(self, rest: ConnectRest) -> None:
        """Wait until Kafka Connect runs both."""
        for name in self.configs:
            rest.wait_until_running(name)

    def append(self, text: str) -> None:
        """More input, in one piece."""
        with self.input.open("ab", buffering=0) as file:
            file.write(text.encode())

    def line_count(self) -> int:
        """How many lines went in."""
        return self._lines(self.input).total()

    def lost(self) -> list[bytes]:
        """Lines that did not come out."""
        return sorted((self._lines(self.input) - self._lines(self.output)).elements())

    def doubled(self) -> list[bytes]:
        """Lines that came out more often than they went in."""
        return sorted((self._lines(self.output) - self._lines(self.input)).elements())

    def unknown(self) -> list[bytes]:
        """Lines that came out and never went in, such as torn ones."""
        return sorted(set(self._lines(self.output)) - set(self._lines(self.input)))

    @staticmethod
    def _lines(path: Path) -> "Counter[bytes]":
        return Counter(path.read_bytes().splitlines(keepends=True))
