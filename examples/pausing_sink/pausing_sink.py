"""A sink that pauses partitions: each has a mailbox, a folder with room for so many files, and gets
no records while it is full. Another program takes the files away.
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

#: The file of a mailbox that says up to which offset it was filled, for files are taken away.
FILLED = "filled"


class PausingSinkTask(SinkTask):
    def start(self, context: SinkTaskContext) -> None:
        self._context = context
        self._root = Path(context.config["directory"])
        self._room: int = context.config["files.max"]
        self._look_ms: int = context.config["look.ms"]
        self._paused: set[TopicPartition] = set()

    def positions(self) -> dict[TopicPartition, int]:
        # what was filled and not committed: a file that was taken away must not come again
        found = {}
        for box in self._root.glob("*-*"):
            topic, _, partition = box.name.rpartition("-")
            filled = int((box / FILLED).read_text()) if (box / FILLED).exists() else 0
            found[TopicPartition(topic, int(partition))] = filled
            for path in box.glob("*.jsonl"):
                if int(path.stem) >= filled:  # of a task that was killed right then
                    path.unlink()
        return found

    def write(self, batch: SinkBatch) -> Written:
        up_to = {}
        for part in batch.parts("partition"):
            (each,) = part.ranges
            key = TopicPartition(each.topic, each.partition)
            if self._is_full(key):
                # what came although there is no room is to come again
                self._context.rewind({key: each.start_offset})
            else:
                self._fill(key, each, part.arrow().run(iter))
                up_to[key] = each.end_offset
            if self._is_full(key):
                self._context.pause(key)
                self._paused.add(key)
        if self._paused:
            self._context.call_after(self._look_ms)
        return Written(up_to=up_to)

    def idle(self) -> None:
        room = {key for key in self._paused if not self._is_full(key)}
        self._context.resume(*room)
        self._paused -= room
        if self._paused:
            self._context.call_after(self._look_ms)

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
        # killed here, it writes the file again: twice only for who has taken it by then
        filled.replace(box / FILLED)


class PausingSink(SinkConnector):
    """Files of JSON lines in a mailbox for each topic partition, which is not overfilled."""

    version = "1.0"
    guarantees = REPEATED
    structured = True
    task_class = PausingSinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("directory", ConfigType.STRING, documentation="Where the mailboxes are."),
            ConfigKey(
                "files.max",
                ConfigType.INT,
                default=10,
                validator=InRange(1),
                documentation="How many files a mailbox has room for.",
            ),
            ConfigKey(
                "look.ms",
                ConfigType.INT,
                default=1_000,
                validator=InRange(1),
                documentation="How often a full mailbox is looked at again, in milliseconds.",
            ),
        )

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{} for _ in range(max_tasks)]
