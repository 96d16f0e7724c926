"""A sink that pauses partitions.

Each topic partition has a mailbox, a folder for at most ``files.max`` files. While it is full, its
partition is paused. Another program reads and deletes the files.
"""

import json
from pathlib import Path
from typing import Any

from drover.connector import (
    REPEATED,
    ConfigDef,
    ConfigKey,
    ConfigType,
    InRange,
    OffsetRange,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    TopicPartition,
    Written,
)

#: The file of a mailbox with its end offset, which remains known after files are deleted.
FILLED = "filled"


class PausingSinkTask(SinkTask):
    def start(self, context: SinkTaskContext) -> None:
        self._context = context
        self._root = Path(context.config["directory"])
        self._room: int = context.config["files.max"]
        self._check_ms: int = context.config["look.ms"]
        self._paused: set[TopicPartition] = set()

    def positions(self) -> dict[TopicPartition, int]:
        # end offsets of files that may not be committed: a deleted file must not be written again
        ends = {}
        for box in self._root.glob("*-*"):
            topic, _, partition = box.name.rpartition("-")
            filled = int((box / FILLED).read_text()) if (box / FILLED).exists() else 0
            ends[TopicPartition(topic, int(partition))] = filled
            for path in box.glob("*.jsonl"):
                if int(path.stem) >= filled:  # a task was killed before it wrote FILLED
                    path.unlink()
        return ends

    def write(self, batch: SinkBatch) -> Written:
        up_to = {}
        for part in batch.parts("partition"):
            (each,) = part.ranges
            key = TopicPartition(each.topic, each.partition)
            if self._is_full(key):
                # the mailbox is full: have these records redelivered after the resume
                self._context.rewind({key: each.start_offset})
            else:
                self._fill(key, each, part.arrow().run(iter))
                up_to[key] = each.end_offset
            if self._is_full(key):
                self._context.pause(key)
                self._paused.add(key)
        if self._paused:
            self._context.call_after(self._check_ms)
        return Written(up_to=up_to)

    def idle(self) -> None:
        room = {key for key in self._paused if not self._is_full(key)}
        self._context.resume(*room)
        self._paused -= room
        if self._paused:
            self._context.call_after(self._check_ms)

    def _box(self, key: TopicPartition) -> Path:
        return self._root / f"{key.topic}-{key.partition}"

    def _is_full(self, key: TopicPartition) -> bool:
        return len(list(self._box(key).glob("*.jsonl"))) >= self._room

    def _fill(self, key: TopicPartition, what: OffsetRange, rows: list[dict[str, Any]]) -> None:
        box = self._box(key)
        box.mkdir(parents=True, exist_ok=True)
        unfinished, filled = box / "unfinished", box / "filled.unfinished"
        unfinished.write_text("".join(json.dumps(row) + "\n" for row in rows))
        filled.write_text(str(what.end_offset))
        unfinished.replace(box / f"{what.start_offset:020}.jsonl")
        # after a kill here the file is written again; a duplicate if it was read before
        filled.replace(box / FILLED)


class PausingSink(SinkConnector):
    """Writes files of JSON lines to a mailbox per topic partition; pauses while it is full."""

    version = "1.0"
    guarantees = REPEATED
    structured = True
    task_class = PausingSinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("directory", ConfigType.STRING, documentation="The folder of the mailboxes."),
            ConfigKey(
                "files.max",
                ConfigType.INT,
                default=10,
                validator=InRange(1),
                documentation="The maximum number of files in a mailbox.",
            ),
            ConfigKey(
                "look.ms",
                ConfigType.INT,
                default=1_000,
                validator=InRange(1),
                documentation="How often a full mailbox is checked, in milliseconds.",
            ),
        )

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{} for _ in range(max_tasks)]
