"""Files of a glob that move between tasks while their former tasks live on as zombies."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from drover.connector import ArrowRows, ConnectorContext, SourceTaskContext
from drover.connector.offsets import source_offsets
from drover.connector.settings import parse_config, task_config
from drover.connectors.files.lines.file_stream_source import (
    TASK_FILES,
    FileStreamSource,
    FileStreamSourceTask,
)
from drover.dataplane.staging import Stager
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import StagedBlob
from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import TaskId
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets
from tests.unit.dataplane.writer import claim, staged, values

FIRST_SET, SECOND_SET = 3, 7


class RunningTask:
    """A task of the connector that claims and then reads its offsets, as in an engine."""

    def __init__(
        self,
        store: EmbeddedStore,
        task: int,
        raw: Mapping[str, str],
        own: Mapping[str, str],
        *,
        generation: int,
        configs: int,
    ) -> None:
        self.store = store
        self.task = TaskId("files", task)
        self.files = [Path(path).name for path in json.loads(own[TASK_FILES])]
        self.claim = claim(store, self.task, generation, configs)
        self._reader = FileStreamSourceTask()
        self._reader.start(
            SourceTaskContext(
                task=self.task,
                claim=self.claim,
                config=task_config(FileStreamSource, raw, own),
                spark=cast(
                    "Any", SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
                ),
                stopping=lambda: False,
                committed=tuple(store.fetch_offsets("files")),
            )
        )

    def read(self) -> tuple[list[StagedBlob], list[CommittedOffset]]:
        """Poll one batch and stage it."""
        batch = self._reader.poll()
        assert batch is not None
        assert isinstance(batch.frame, ArrowRows)
        rows: list[pa.RecordBatch] = [
            each
            for number in range(batch.frame.partition_count)
            for each in batch.frame.read(number)
        ]
        stager = Stager(self.store.path, self.task, self.claim, topic=batch.topic)
        return staged(stager, rows), source_offsets(batch.offsets)

    def publish(self, blobs: list[StagedBlob], offsets: list[CommittedOffset]) -> None:
        self.store.publish(self.task, self.claim, blobs, offsets)


@pytest.mark.parametrize("generation", [1, 2], ids=["same generation", "later generation"])
def test_files_that_swap_their_tasks_are_read_once(tmp_path: Path, generation: int) -> None:
    store = EmbeddedStore(tmp_path / "data.db")
    raw = {
        "name": "files",
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "*.txt"),
        "topic": "topic",
    }
    connector = FileStreamSource()
    connector.start(ConnectorContext("files"), parse_config(FileStreamSource, raw).require_valid())

    def add(name: str, line: str) -> None:
        with (tmp_path / name).open("a") as file:
            file.write(line + "\n")

    def run(task: int, configs: int, generation: int) -> RunningTask:
        own = connector.task_configs(2)[task]
        return RunningTask(store, task, raw, own, generation=generation, configs=configs)

    for name in ("b.txt", "c.txt"):
        add(name, f"{name} 1")
    zombies = [run(task, FIRST_SET, 1) for task in (0, 1)]
    assert [each.files for each in zombies] == [["b.txt"], ["c.txt"]]
    for zombie in zombies:
        zombie.publish(*zombie.read())
        add(zombie.files[0], f"{zombie.files[0]} 2")
    unpublished = [zombie.read() for zombie in zombies]  # then both hang

    add("a.txt", "a.txt 1")  # a third file makes the two swap tasks
    heir_of_b = run(1, SECOND_SET, generation)
    assert heir_of_b.files == ["b.txt"]
    heir_of_b.publish(*heir_of_b.read())
    # task 0, the former task of b.txt, has no new claim yet
    for zombie, (blobs, offsets) in zip(zombies, unpublished, strict=True):
        with pytest.raises(FailedPreconditionError) as caught:
            zombie.publish(blobs, offsets)
        assert caught.value.reason is Reason.STALE_CLAIM
        (result,) = store.commit_offsets([TaskOffsets(zombie.task, zombie.claim, offsets)])
        assert result.outcome is CommitOutcome.STALE_CLAIM
    heir_of_c = run(0, SECOND_SET, generation)
    assert heir_of_c.files == ["a.txt", "c.txt"]
    heir_of_c.publish(*heir_of_c.read())

    assert sorted(values(store)) == [
        line.encode() for line in ("a.txt 1", "b.txt 1", "b.txt 2", "c.txt 1", "c.txt 2")
    ]
    connector.stop()
    store.close()
