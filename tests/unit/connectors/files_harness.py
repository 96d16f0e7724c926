"""Runs tasks of FilesSource without Spark: the functions of executors run in this process."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from drover.connector import ArrowRows, SourceTaskContext
from drover.connector.offsets import source_offsets
from drover.connector.settings import task_config
from drover.connectors.files.files_source import TASK_SHARE, FilesSource, FilesSourceTask
from drover.model.ids import TaskId, Term
from drover.record.batch import ERROR_COLUMN, ORIGIN_COLUMN, RAW_COLUMN


@dataclass
class FilesRun:
    """A FilesSource with its committed offsets, and the ``rows`` and ``bad`` lines it has read."""

    config: dict[str, str]
    committed: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    bad: list[tuple[str, bytes, str]] = field(default_factory=list)
    task: FilesSourceTask | None = None

    def start(self, index: int = 0, count: int = 1) -> "FilesRun":
        """Start a new task at the committed offsets."""
        raw = {
            "name": "f",
            "connector.class": "FilesSource",
            "topic": "t",
            "files.settle.ms": "0",
            "rescan.interval.ms": "100",
            **self.config,
        }
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
        self.task = FilesSourceTask()
        self.task.start(
            SourceTaskContext(
                task=TaskId("f", index),
                claim=Term(1, 1),
                config=task_config(FilesSource, raw, {TASK_SHARE: f"{index}/{count}"}),
                spark=spark,
                committed=list(self.committed.values()),
            )
        )
        return self

    def step(self) -> bool:
        """Read and commit one batch; False if there is none."""
        if self.task is None:
            self.start()
        assert self.task is not None
        self.task._next_scan_s = 0.0  # the scan interval has passed
        batch = self.task.poll()
        if batch is None:
            return False
        rows: Any = batch.frame
        assert isinstance(rows, ArrowRows)
        read: Any = pickle.loads(pickle.dumps(rows.read))
        for number in range(rows.partition_count):
            for each in read(number):
                each.validate(full=True)
                self._take(each.to_pylist())
        for offset in source_offsets(batch.offsets):
            self.committed[offset.partition_json] = offset
        return True

    def drain(self) -> "FilesRun":
        """Read batches until there is none."""
        for _ in range(1000):
            if not self.step():
                return self
        raise AssertionError("still busy after 1000 batches")

    def _take(self, rows: list[Mapping[str, Any]]) -> None:
        for row in rows:
            if row.get(ERROR_COLUMN) is not None:
                self.bad.append((row[ORIGIN_COLUMN], row[RAW_COLUMN], row[ERROR_COLUMN]))
                continue
            self.rows.append(
                {name: value for name, value in row.items() if not name.startswith("__drover")}
            )
            self.origins.append(row[ORIGIN_COLUMN])
