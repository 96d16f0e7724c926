"""Connectors that each misbehave in one way; ``connector.class`` takes their full names.

Example: ``tests.support.plugins_for_tests.HangsInStart``; the engine needs the repository's root in
its PYTHONPATH.
"""

import contextlib
import json
import os
import re
import signal
import socket
import stat
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from drover.api.engine.v1 import engine_pb2
from drover.connector import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConnectorContext,
    RetriableError,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    SkippedCheck,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    Violation,
)
from drover_worker.engine import framing

SETTING_COUNT = 200
LOUD_BYTES = 300_000


def plugin(connector: type[SourceConnector] | type[SinkConnector]) -> str:
    """The name that ``connector.class`` takes."""
    return f"{connector.__module__}.{connector.__qualname__}"


def hang() -> None:
    """Never return."""
    threading.Event().wait()


class IdleTask(SourceTask):
    """Has nothing to read."""

    def poll(self) -> SourceBatch | None:
        return None


class Idle(SourceConnector):
    """A connector without faults, the base of the others."""

    version = "1.0"
    task_class: ClassVar[type[SourceTask]] = IdleTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{} for _ in range(max_tasks)]


class _TellingTask(IdleTask):
    def start(self, context: SourceTaskContext) -> None:
        context.report("backlog_count", 7)


class Telling(Idle):
    """Reports a figure of the connector."""

    task_class = _TellingTask


class RaisesInConstructor(Idle):
    """Its constructor raises."""

    def __init__(self) -> None:
        raise RuntimeError("this one cannot be made")


class ExitsInStart(Idle):
    """Its start() calls exit."""

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        raise SystemExit(3)


class HangsInStart(Idle):
    """Its start() never returns."""

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        hang()


class HangsInStop(Idle):
    """Its stop() never returns."""

    def stop(self) -> None:
        hang()


class RaisesInTaskConfigs(Idle):
    """Its task_configs() raises."""

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        raise RuntimeError("the work cannot be split")


class MakesTooManyTasks(Idle):
    """Ignores tasks.max."""

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{} for _ in range(max_tasks + 1)]


class RaisesInValidate(Idle):
    """Its validate() raises."""

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        raise RuntimeError("this cannot be judged")


class HangsInValidate(Idle):
    """Its validate() never returns."""

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        hang()
        return ()


class CrashesInValidate(Idle):
    """Its validate() ends the process."""

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        os.kill(os.getpid(), signal.SIGSEGV)
        return ()


class KeepsTheInterpreter(Idle):
    """Its validate() uses a pattern without end, which no other thread can interrupt."""

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        re.match("(a+)+x", "a" * 64)
        return ()


class ShowsItsProcess(Idle):
    """Its validate() reports the environment of its process and of the parent."""

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        processes = ("self", str(os.getppid()))
        started = [Path(f"/proc/{each}/environ").read_text() for each in processes]
        return (Violation("name", json.dumps([dict(os.environ), *started])),)


class ShowsItsLibraries(Idle):
    """Its validate() converts a value with pyarrow, and reports what its process has imported."""

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        pa.array(["a"])
        return (
            Violation("name", json.dumps(sorted({each.partition(".")[0] for each in sys.modules}))),
        )


def _is_socket(descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    return False


class AsksForTopics(Idle):
    """Its validate() asks the engine for the topics, over the connection of its process."""

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        (descriptor,) = (each for each in range(3, 256) if _is_socket(each))
        question = engine_pb2.StorageQuestion(list=engine_pb2.ListTopics())
        with socket.socket(fileno=os.dup(descriptor)) as engine:
            framing.send(engine, engine_pb2.ValidationMessage(question=question))
            answer = framing.receive(engine, engine_pb2.StorageAnswer)
        return (Violation("name", f"answered {answer}"),)


class UsesSystems(Idle):
    """Its check_systems() shows the password."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("url", ConfigType.STRING), ConfigKey("port", ConfigType.INT, default=1)
        )

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        return (Violation("url", f"called {config['url']} at {config['port']}"),)


class UsesBusySystems(UsesSystems):
    """Its check_systems() is not possible at the moment, and shows the password."""

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        return (SkippedCheck("url", f"{config['url']} is busy"),)


class ManySettings(Idle):
    """Requires 200 numbers, each with a long error message."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            *(
                ConfigKey(f"setting.{number:03}", ConfigType.INT, documentation="A number.")
                for number in range(SETTING_COUNT)
            )
        )


class _RaisingTask(IdleTask):
    def poll(self) -> SourceBatch | None:
        raise RuntimeError("nothing can be read")


class RaisesInPoll(Idle):
    """Its task's poll() raises."""

    task_class = _RaisingTask


class _LoudTask(IdleTask):
    def poll(self) -> SourceBatch | None:
        raise RuntimeError("\N{PILE OF POO}\x00\udcff" + "x" * LOUD_BYTES)


class RaisesLoudlyInPoll(Idle):
    """Its task fails with more text than a status holds, and with text that UTF-8 cannot encode."""

    task_class = _LoudTask


class _HangingPollTask(IdleTask):
    def poll(self) -> SourceBatch | None:
        hang()
        return None


class HangsInPoll(Idle):
    """Its task's poll() never returns."""

    task_class = _HangingPollTask


class _HangingStartTask(IdleTask):
    def start(self, context: SourceTaskContext) -> None:
        hang()


class TaskHangsInStart(Idle):
    """Its task's start() never returns."""

    task_class = _HangingStartTask


class _WrongBatchTask(IdleTask):
    def poll(self) -> SourceBatch | None:
        return "no batch"  # type: ignore[return-value]


class ReturnsNoBatch(Idle):
    """Its task's poll() returns an object that is not a batch."""

    task_class = _WrongBatchTask


class _NoColumnTask(SourceTask):
    def start(self, context: SourceTaskContext) -> None:
        self._context = context

    def poll(self) -> SourceBatch | None:
        return SourceBatch(self._context.spark.range(3), [({"a": 1}, {"b": 2})], topic="no-column")


class LacksTheValueColumn(Idle):
    """Its task's rows have no value column."""

    task_class = _NoColumnTask


class _HeapTask(SourceTask):
    def start(self, context: SourceTaskContext) -> None:
        self._spark = context.spark

    def poll(self) -> SourceBatch | None:
        # an array of 16 GB on an executor, which no heap of a test has room for
        self._spark.range(1).selectExpr("size(sequence(id, id + 2000000000))").collect()
        return None


class UsesUpTheHeap(Idle):
    """Exhausts the heap of Spark's JVM."""

    task_class = _HeapTask


class _HoldingTask(IdleTask):
    def start(self, context: SourceTaskContext) -> None:
        spark_context: Any = context.spark.sparkContext
        gateway = spark_context._gateway
        runtime = gateway.jvm.java.lang.Runtime.getRuntime()
        gateway.jvm.java.lang.System.gc()
        used = runtime.totalMemory() - runtime.freeMemory()
        count = int(runtime.maxMemory() * 0.88 - used) >> 20
        # one MiB each; arrays of bytes would come to Python
        self._held = [gateway.new_array(gateway.jvm.long, 1 << 17) for _ in range(count)]


class HoldsTheHeap(Idle):
    """Holds most of the heap of Spark's JVM."""

    task_class = _HoldingTask


class _GreedyTask(IdleTask):
    def poll(self) -> SourceBatch | None:
        taken = []
        while True:
            taken.append(b"x" * (64 << 20))


class UsesUpTheMemory(Idle):
    """Allocates memory in the engine's process until it is killed."""

    task_class = _GreedyTask


class _MarkedSinkTask(SinkTask):
    def start(self, context: SinkTaskContext) -> None:
        self._mark = Path(context.config["away.file"])

    def write(self, batch: SinkBatch) -> str:
        if self._mark.exists():
            raise RetriableError(f"what it writes to is away while {self._mark.name} is there")
        return ""


class WritesWhileNothingIsMarked(SinkConnector):
    """Its target is unavailable while a file exists."""

    version = "1.0"
    task_class = _MarkedSinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(ConfigKey("away.file", ConfigType.STRING))

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{} for _ in range(max_tasks)]
