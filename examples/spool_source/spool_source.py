"""A source that acknowledges messages after their offsets are committed.

A spool folder works like a message queue: it redelivers a message until it is acknowledged.
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
    """Messages as files in ``new``; delivered ones stay in ``taken`` until acknowledged."""

    def __init__(self, root: Path) -> None:
        self._new, self._taken = root / "new", root / "taken"
        for each in (self._new, self._taken):
            each.mkdir(parents=True, exist_ok=True)

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        """Deliver the next messages, as (name, message) in the order of names."""
        messages = []
        for path in sorted(self._new.glob("*.json"))[:MESSAGES_MAX]:
            messages.append((path.name, json.loads(path.read_text())))
            path.replace(self._taken / path.name)
        return messages

    def acknowledge(self, last: str) -> None:
        """Delete the delivered messages up to this name."""
        for path in self._taken.glob("*.json"):
            if path.name <= last:
                path.unlink()

    def requeue(self) -> None:
        """Return unacknowledged messages to the queue."""
        for path in self._taken.glob("*.json"):
            path.replace(self._new / path.name)


class SpoolSourceTask(SourceTask):
    def start(self, context: SourceTaskContext) -> None:
        self._topic = context.config["topic"]
        self._partition = {"spool": context.config["directory"]}
        self._spool = Spool(Path(context.config["directory"]))
        last = (context.offset(self._partition) or {"last": ""})["last"]
        # messages committed before a kill may not be acknowledged yet; do not redeliver them
        self._spool.acknowledge(last)
        self._spool.requeue()

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
    """Reads each message of a spool folder once."""

    version = "1.0"
    guarantees = REPLAYED
    #: A preview would remove messages from the spool.
    poll_has_effects = True
    task_class = SpoolSourceTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("directory", ConfigType.STRING, documentation="The spool folder."),
            ConfigKey("topic", ConfigType.STRING, documentation="The topic to write to."),
        )

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{}]
