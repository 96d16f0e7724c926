"""A source that acknowledges: a spool folder works like a queue, and gives a message out until it
is told that it was dealt with.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drover.connector import (
    REPLAYED,
    ConfigDef,
    ConfigKey,
    ConfigType,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
)

MESSAGES_MAX = 1_000


class Spool:
    """Messages as files in ``new``; those given out wait in ``taken`` to be acknowledged."""

    def __init__(self, root: Path) -> None:
        self._new, self._taken = root / "new", root / "taken"
        for each in (self._new, self._taken):
            each.mkdir(parents=True, exist_ok=True)

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        """Some messages with their names, which are in order."""
        found = []
        for path in sorted(self._new.glob("*.json"))[:MESSAGES_MAX]:
            found.append((path.name, json.loads(path.read_text())))
            path.replace(self._taken / path.name)
        return found

    def acknowledge(self, last: str) -> None:
        """Forget what was given out up to this name."""
        for path in self._taken.glob("*.json"):
            if path.name <= last:
                path.unlink()

    def give_back(self) -> None:
        """Give out again what nobody acknowledged."""
        for path in self._taken.glob("*.json"):
            path.replace(self._new / path.name)


class SpoolSourceTask(SourceTask):
    def start(self, context: SourceTaskContext) -> None:
        self._topic = context.config["topic"]
        self._partition = {"spool": context.config["directory"]}
        self._spool = Spool(Path(context.config["directory"]))
        last = (context.offset(self._partition) or {"last": ""})["last"]
        # what is committed and was not acknowledged, as a kill came between, must not come again
        self._spool.acknowledge(last)
        self._spool.give_back()

    def poll(self) -> SourceBatch | None:
        messages = self._spool.take()
        if not messages:
            return None
        offset = {"last": messages[-1][0]}
        rows = [message for _, message in messages]
        return SourceBatch.table(rows, [(self._partition, offset)], topic=self._topic)

    def committed(
        self, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        for _, offset in offsets:
            if offset is not None:
                self._spool.acknowledge(offset["last"])


class SpoolSource(SourceConnector):
    """The messages of a spool folder, each once."""

    version = "1.0"
    guarantees = REPLAYED
    #: A preview would take messages out of the spool.
    poll_has_effects = True
    task_class = SpoolSourceTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("directory", ConfigType.STRING, documentation="Where the spool is."),
            ConfigKey("topic", ConfigType.STRING, documentation="Where the records go."),
        )

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{}]
