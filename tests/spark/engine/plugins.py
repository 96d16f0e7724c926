"""Connectors that the engine's tests run: one that counts, one that collects, and faulty ones."""

import json
import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from drover.connector import (
    ArrowRows,
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConnectorContext,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    Violation,
)


def _hang() -> None:
    threading.Event().wait()


class CounterTask(SourceTask):
    """Numbers up to ``limit``, ``step`` in a batch; misbehaves at number ``fail.at`` if set."""

    def start(self, context: SourceTaskContext) -> None:
        self._context = context
        config = context.config
        if config["misbehave"] == "hang in start":
            _hang()
        if config["misbehave"] == "raise in start":
            raise RuntimeError("no start today")
        self._partition = {"counter": context.task.task}
        self._next = int((context.offset(self._partition) or {"next": 0})["next"])

    def poll(self) -> SourceBatch | None:
        config = self._context.config
        if self._next >= config["fail.at"] >= 0:
            if config["misbehave"] == "hang in poll":
                _hang()
            if config["misbehave"] == "stop Spark":
                self._context.spark.stop()
            if config["misbehave"] == "raise on executors":
                return self._batch(self._next + 1, "raise_error('bad row')")
            raise RuntimeError("poll is tired")
        if self._next >= config["limit"]:
            return None
        return self._batch(min(self._next + config["step"], config["limit"]), "cast(id AS string)")

    def _batch(self, end: int, value: str) -> SourceBatch:
        frame = self._context.spark.range(self._next, end, 1, 2).selectExpr(f"{value} AS value")
        self._next = end
        return SourceBatch(
            frame, [(self._partition, {"next": end})], topic=self._context.config["topic"]
        )


class Counter(SourceConnector):
    """Counts.

    For tests.
    """

    version = "1.2.3"
    aliases = ("count",)
    task_class = CounterTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("topic", ConfigType.STRING),
            ConfigKey("limit", ConfigType.LONG, default=100),
            ConfigKey("step", ConfigType.LONG, default=50),
            ConfigKey("fail.at", ConfigType.LONG, default=-1),
            ConfigKey("misbehave", ConfigType.STRING, default=""),
            ConfigKey("secret", ConfigType.PASSWORD, default=None),
        )

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        if config.get("limit", 0) < config.get("step", 0):
            return [Violation("step", "must not be over limit")]
        return []

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        self._context = context
        if config["misbehave"] == "hang in connector":
            _hang()
        if config["misbehave"] == "ask for reconfiguration":
            context.request_reconfiguration()
        if config["misbehave"] == "fail later":
            thread = threading.Thread(target=lambda: context.fail(OSError("the world ended")))
            thread.start()
        self._misbehave = config["misbehave"]

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        if self._misbehave == "raise in task_configs":
            raise RuntimeError("no tasks today")
        if self._misbehave == "too many tasks":
            return [{}] * (max_tasks + 1)
        return [{"share": str(index)} for index in range(max_tasks)]


class CollectTask(SinkTask):
    """Writes its values into files named by offsets; the file ``gate`` holds writes up."""

    def start(self, context: SinkTaskContext) -> None:
        self._directory = Path(context.config["directory"])
        self._context = context
        note = {
            f"{key.topic}-{key.partition}": [each.offset, each.metadata]
            for key, each in context.committed.items()
        }
        self._put(f"started-{context.task.task}", json.dumps(note).encode())

    def write(self, batch: SinkBatch) -> str:
        (self._directory / "writing").touch()
        while (self._directory / "gate").exists() and not self._context.stopping():
            threading.Event().wait(0.02)
        for row in batch.frame.collect():
            name = f"{row['topic']}-{row['partition']}-{row['offset']:08d}"
            self._put(name, row["value"])
        return f"up to {batch.ranges[-1].end_offset}"

    def stop(self) -> None:
        (self._directory / f"stopped-{self._context.task.task}").touch()

    def _put(self, name: str, content: bytes) -> None:
        unfinished = self._directory / f".{name}"
        unfinished.write_bytes(content)
        unfinished.replace(self._directory / name)


class Collect(SinkConnector):
    """Collects."""

    task_class = CollectTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(ConfigKey("directory", ConfigType.STRING))

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{} for _ in range(max_tasks)]


class CollectRowsTask(CollectTask):
    """As CollectTask, with rows as JSON."""

    def write(self, batch: SinkBatch) -> str:
        for row in batch.frame.collect():
            name = f"{row['topic']}-{row['partition']}-{row['offset']:08d}"
            self._put(name, json.dumps(row["value"].asDict(recursive=True)).encode())
        return ""


class CollectRows(Collect):
    """Collects rows."""

    structured = True
    task_class = CollectRowsTask


class RaisingConstructor(Counter):
    """Cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("the constructor is out of order")


class RaisingDefinition(Counter):
    """Cannot say its settings."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        raise LookupError("lost the list")


class RaisingValidation(Counter):
    """Cannot judge its settings."""

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        raise ZeroDivisionError("judging is hard")


class NoTaskClass(SourceConnector):
    """Forgot to name its tasks' class."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return []


class BusyTask(SourceTask):
    """One batch that runs user code on the executors for ever."""

    def start(self, context: SourceTaskContext) -> None:
        self._context = context

    def poll(self) -> SourceBatch | None:
        marker = self._context.config["marker"]

        def spin(batches: Any) -> Any:
            os.setsid()  # user code may well leave the process group
            while list(batches) is not None:
                (Path(marker) / f"{os.getpid()}.alive").touch()
            yield

        frame = self._context.spark.range(0, 2, 1, 2).mapInArrow(spin, "value string")
        return SourceBatch(frame, [({"busy": 0}, {"next": 1})], topic="busy")


class Busy(SourceConnector):
    """Keeps Python workers busy."""

    task_class = BusyTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(ConfigKey("marker", ConfigType.STRING))

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{}]


@dataclass(frozen=True)
class DeadlyRead:
    """One row, after which the Python worker dies, for so many times."""

    directory: str
    deaths: int

    def __call__(self, number: int) -> Any:
        yield pa.RecordBatch.from_pydict({"value": [f"row {number}"]})
        marks = sorted(Path(self.directory).glob("*.death"))
        if len(marks) < self.deaths:
            (Path(self.directory) / f"{len(marks)}.death").touch()
            os.kill(os.getpid(), signal.SIGKILL)


class DeadlyTask(SourceTask):
    """One batch that kills the Python worker it is read in."""

    def start(self, context: SourceTaskContext) -> None:
        self._context = context
        self._next = (context.offset({}) or {"next": 0})["next"]

    def poll(self) -> SourceBatch | None:
        if self._next:
            return None
        self._next = 1
        config = self._context.config
        read = DeadlyRead(config["directory"], config["deaths"])
        rows = ArrowRows(self._context.spark, read, 1, "value string")
        return SourceBatch(rows, [({}, {"next": 1})], topic=config["topic"])


class Deadly(SourceConnector):
    """Kills the Python workers that it runs in."""

    task_class = DeadlyTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("directory", ConfigType.STRING),
            ConfigKey("deaths", ConfigType.INT),
            ConfigKey("topic", ConfigType.STRING),
        )

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{}]


class ManySettings(Counter):
    """Knows two hundred numbers."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(*(ConfigKey(f"n{index}", ConfigType.INT) for index in range(200)))

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        return []


CHATTER_COUNT = 20
LONG = "at length " * 150


class ChattyTask(SourceTask):
    """Prints and logs wherever code of a plugin runs; one record."""

    def start(self, context: SourceTaskContext) -> None:
        self._context = context
        self._done = False

    def poll(self) -> SourceBatch | None:
        if self._done:
            return None
        self._done = True
        print("the task prints")  # noqa: T201 (that is the point)
        logging.getLogger("chatty").warning("the task logs")
        logging.getLogger(f"{__name__}.chatty").debug("the task logs in detail")
        rows = ArrowRows(self._context.spark, chatter, 1, "value string")
        return SourceBatch(rows, [({"a": 1}, {"b": 2})], topic=self._context.config["topic"])


def chatter(number: int) -> Iterator[Any]:
    for times in range(CHATTER_COUNT):
        # alternating, and longer than one copy: cut or interleaved lines would be visible
        print(f"the executor prints {LONG} {times}")  # noqa: T201 (that is the point)
        logging.getLogger("chatty").warning(f"the executor logs {LONG} {times}")
    yield pa.RecordBatch.from_pydict({"value": [str(number)]})


class Chatty(Counter):
    task_class = ChattyTask  # type: ignore[assignment]
