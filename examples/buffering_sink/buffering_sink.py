"""A sink that buffers rows until a file is large enough, and commits only the written offsets."""

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
    """Buffered rows of a topic partition: offsets ``start`` (inclusive) to ``end`` (exclusive)."""

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
        # called after wait.ms without records
        return self._written(list(self._held))

    def _written(self, keys: list[TopicPartition]) -> Written:
        """Write the buffered rows of these partitions; a crash causes redelivery of the others."""
        up_to = {}
        for key in keys:
            held = self._held.pop(key)
            # after a crash before the commit, the file is written again under the same name
            path = self._directory / f"{key.topic}-{key.partition}-{held.start:020}.jsonl"
            unfinished = path.with_suffix(".unfinished")
            unfinished.write_text("".join(json.dumps(row) + "\n" for row in held.rows))
            unfinished.replace(path)
            up_to[key] = held.end
        if self._held:
            self._context.call_after(self._wait_ms)
        return Written(up_to=up_to)


class BufferingSink(SinkConnector):
    """Writes a file of JSON lines per partition after ``rows.min`` rows or ``wait.ms``."""

    version = "1.0"
    guarantees = ONCE
    structured = True
    task_class = BufferingSinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("directory", ConfigType.STRING, documentation="Folder to write to."),
            ConfigKey(
                "rows.min",
                ConfigType.INT,
                default=10_000,
                validator=InRange(1),
                documentation="Rows after which a file is written.",
            ),
            ConfigKey(
                "wait.ms",
                ConfigType.INT,
                default=60_000,
                validator=InRange(0),
                documentation="Longest time that a row is buffered, in milliseconds.",
            ),
        )

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{} for _ in range(max_tasks)]
