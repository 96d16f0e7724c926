"""A sink that holds rows back until a file is worth writing: it commits less than it was given."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drover.connector import (
    ONCE,
    ConfigDef,
    ConfigKey,
    ConfigType,
    InRange,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    TopicPartition,
    Written,
)


@dataclass
class Held:
    """Rows of a topic partition that are not written yet, from offset ``start`` to ``end`` - 1."""

    start: int
    end: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    since_s: float = field(default_factory=time.monotonic)


class BufferingSinkTask(SinkTask):
    def start(self, context: SinkTaskContext) -> None:
        self._context = context
        self._directory = Path(context.config["directory"])
        self._directory.mkdir(parents=True, exist_ok=True)
        self._rows_min: int = context.config["rows.min"]
        self._wait_ms: int = context.config["wait.ms"]
        self._held: dict[TopicPartition, Held] = {}

    def write(self, batch: SinkBatch) -> Written:
        for part in batch.parts("partition"):
            (each,) = part.ranges
            key = TopicPartition(each.topic, each.partition)
            held = self._held.setdefault(key, Held(each.start_offset, each.start_offset))
            held.rows += part.arrow().run(iter)
            held.end = each.end_offset
        long_ago_s = time.monotonic() - self._wait_ms / 1000
        return self._written(
            [
                key
                for key, held in self._held.items()
                if len(held.rows) >= self._rows_min or held.since_s <= long_ago_s
            ]
        )

    def idle(self) -> Written:
        # no records came for so long
        return self._written(list(self._held))

    def _written(self, keys: list[TopicPartition]) -> Written:
        """Write what is held of these; the rest comes again if this task ends."""
        up_to = {}
        for key in keys:
            held = self._held.pop(key)
            # a crash before the commit: the same start, so the next file replaces this one
            path = self._directory / f"{key.topic}-{key.partition}-{held.start:020}.jsonl"
            unfinished = path.with_suffix(".unfinished")
            unfinished.write_text("".join(json.dumps(row) + "\n" for row in held.rows))
            unfinished.replace(path)
            up_to[key] = held.end
        if self._held:
            self._context.call_after(self._wait_ms)
        return Written(up_to=up_to)


class BufferingSink(SinkConnector):
    """Files of JSON lines with so many rows at least, or after so much time."""

    version = "1.0"
    guarantees = ONCE
    structured = True
    task_class = BufferingSinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("directory", ConfigType.STRING, documentation="Where the files go."),
            ConfigKey(
                "rows.min",
                ConfigType.INT,
                default=10_000,
                validator=InRange(1),
                documentation="How many rows a file has at least.",
            ),
            ConfigKey(
                "wait.ms",
                ConfigType.INT,
                default=60_000,
                validator=InRange(0),
                documentation="How long a row waits for more, in milliseconds.",
            ),
        )

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{} for _ in range(max_tasks)]
