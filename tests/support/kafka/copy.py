"""A file copied through a topic, alternately by Kafka Connect and Drover."""

from collections import Counter
from pathlib import Path

from drover.client import ConnectClient
from tests.support.flow import Flow
from tests.support.kafka.connect import FILE_SINK, FILE_SOURCE, STRING_CONVERTER
from tests.support.kafka.connect_rest import ConnectRest


class FileCopy(Flow):
    """A source and a sink with a config that is valid for both."""

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
        """Create both connectors."""
        for name, config in self.configs.items():
            await client.create_connector(name, config)

    def create_in(self, rest: ConnectRest) -> None:
        """Create both connectors in Kafka Connect; returns once they run."""
        for name, config in self.configs.items():
            rest.create(name, config)
        self.wait_until_run_by(rest)

    def wait_until_run_by(self, rest: ConnectRest) -> None:
        """Wait until Kafka Connect runs both."""
        for name in self.configs:
            rest.wait_until_running(name)

    def append(self, text: str) -> None:
        """Append input in one write."""
        with self.input.open("ab", buffering=0) as file:
            file.write(text.encode())

    def line_count(self) -> int:
        """The number of input lines."""
        return self._lines(self.input).total()

    def lost(self) -> list[bytes]:
        """Input lines that are missing in the output."""
        return sorted((self._lines(self.input) - self._lines(self.output)).elements())

    def doubled(self) -> list[bytes]:
        """Lines that occur more often in the output than in the input."""
        return sorted((self._lines(self.output) - self._lines(self.input)).elements())

    def unknown(self) -> list[bytes]:
        """Output lines that were never in the input, such as torn ones."""
        return sorted(set(self._lines(self.output)) - set(self._lines(self.input)))

    @staticmethod
    def _lines(path: Path) -> "Counter[bytes]":
        return Counter(path.read_bytes().splitlines(keepends=True))
