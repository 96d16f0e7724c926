"""Tests one connector without a cluster: feed it records, check its output, kill it, run it again.

The engine's own code runs the task with topics and offsets in a directory of the test, including
converters, transforms, error settings, retries and dead letters.

Example:
    A sink is killed between its write and its commit, and receives the records again in other
    batches::

        def test_each_row_is_written_once(sink_kit, tmp_path):
            kit = sink_kit(Lines, path=str(tmp_path / "out"))
            kit.feed([{"n": n} for n in range(10)])
            kit.kill(KillPoint.AFTER_WRITE)
            kit.run(batch_records=3)
            assert (tmp_path / "out").read_text().count("n") == 10

The package provides the fixtures ``sink_kit`` and ``source_kit`` (``drover.testing.plugin``).
"""

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from drover.connector import (
    Connector,
    ConnectorContext,
    SinkConnector,
    SourceConnector,
    TopicPartition,
)
from drover.connector.offsets import SinkOffset, parse_offsets, parse_sink_offsets
from drover.connector.settings import BATCH_MAX_RECORDS, parse_config, task_config
from drover.model.sink_outputs import SinkMetadata
from drover.testing.running import Hooks, RunningTask, claimed_spec
from drover.testing.topics import Record, Topics, open_store
from drover_worker.engine.plugins.connectors import checked_task_configs

#: The default topic of a sink's test.
TOPIC = "records"
_names = itertools.count(1)


class KillPoint(StrEnum):
    """The point at which a connector's process is killed."""

    #: A sink's write has returned; its offsets are not committed. A source's rows are staged;
    #: neither the rows nor its offsets are visible.
    AFTER_WRITE = "after write"
    #: Records and offsets are durable; the task has not received the response.
    AFTER_COMMIT = "after commit"


class ConnectorKit:
    """The common part of the kits for sources and sinks: one task, in its own directory."""

    def __init__(
        self,
        connector_class: type[Connector],
        config: Mapping[str, str],
        *,
        spark: SparkSession,
        directory: Path | None = None,
        task: int = 0,
    ) -> None:
        """Create the kit; nothing is started yet.

        Args:
            connector_class: The connector's class.
            config: Its settings, as texts; a name is added.
            spark: A Spark session of this process.
            directory: The directory for topics and offsets; a new one by default.
            task: The index of the task to run, below the ``tasks.max`` of the config.

        Raises:
            InvalidArgumentError: INVALID_CONFIG with every violation.
        """
        self.connector_class = connector_class
        self.spark = spark
        # the name of a kit's connector is used in figures and dead letters only
        self.config: dict[str, str] = {
            "name": "tested",
            "connector.class": connector_class.__name__,
            **config,
        }
        self.directory = directory or Path(tempfile.mkdtemp(prefix="drover-kit-"))
        self._store = open_store(self.directory)
        self._number = task
        self._task: RunningTask | None = None
        self._batch_records: int | None = None
        self.hooks = Hooks()
        parse_config(connector_class, self.config).require_valid(self.config["name"])
        parsed = task_config(connector_class, self.config, {})
        self._topics = Topics(self._store, parsed, structured=connector_class.structured)

    @property
    def task(self) -> Any:
        """The connector's task object; the task is started if it is not running."""
        return self._started().instance

    def run(
        self,
        *,
        batches: int | None = None,
        until: Callable[[], bool] | None = None,
        batch_records: int | None = None,
    ) -> None:
        """Run the task until no work is left, ``batches`` are done, or ``until`` is true.

        The task is started if it is not running. With ``batch_records`` a batch of a sink has at
        most this many records; a changed number restarts the task.

        Raises:
            TaskFailedError: The task failed; its cause is the exception that it raised.
            Exception: The exception of the task's start.
            AssertionError: It takes longer than two minutes.
        """
        if batch_records != self._batch_records:
            self.stop()
            self._batch_records = batch_records
        try:
            self._started().run(batches=batches, until=until)
        except AssertionError:
            self._task = None
            raise

    def run_uncommitted(self, *, batch_records: int | None = None) -> None:
        """Write one batch, lose its commit, and drop the task without its stop().

        This is cheaper than a kill. The next ``run`` starts from the previously committed offsets.
        A source's records are lost together with their offsets.
        """
        if batch_records != self._batch_records:
            self.stop()
            self._batch_records = batch_records
        task = self._started()
        task.loses_commits = True
        task.run(batches=1, until=None)
        task.drop()
        self._task = None

    def stop(self) -> None:
        """Stop the task in order; ``run`` restarts it from the committed offsets."""
        task, self._task = self._task, None
        if task is not None:
            task.stop()

    def kill(
        self,
        point: KillPoint | None = None,
        *,
        before_line: str | None = None,
        after_batches: int = 0,
        batch_records: int | None = None,
    ) -> None:
        """Run the task in a separate process that kills itself (SIGKILL), without any clean-up.

        Its commits up to then are durable; ``run`` starts a new task.

        Args:
            point: Where to kill it.
            before_line: Or: kill it before a line of the connector's module runs, on the driver,
                that contains this text.
            after_batches: The number of batches to complete before the kill is armed.
            batch_records: See ``run``.

        Raises:
            AssertionError: The task became idle, or failed, before it reached the point.
        """
        from drover.testing.killing import killed

        if (point is None) == (before_line is None):
            raise ValueError("set either point or before_line")
        self.stop()
        self._batch_records = batch_records
        killed(self, point=point, before_line=before_line, after_batches=after_batches)

    def records(self, topic: str) -> list[Record]:
        """All records of a topic, by partition and offset."""
        return self._topics.read(topic)

    def close(self) -> None:
        """Stop the task and close the store."""
        self.stop()
        self._store.close()

    def _started(self) -> RunningTask:
        if self._task is None:
            config = dict(self.config)
            if self._batch_records is not None:
                config[BATCH_MAX_RECORDS] = str(self._batch_records)
            own = self._own_config(config)
            spec = claimed_spec(self._store, self.connector_class, config, own, self._number)
            self._task = RunningTask(
                spec,
                self.spark,
                self._store,
                self.hooks,
                is_sink=issubclass(self.connector_class, SinkConnector),
            )
        return self._task

    def _own_config(self, config: Mapping[str, str]) -> Mapping[str, str]:
        values = parse_config(self.connector_class, config).require_valid(config["name"])
        connector = self.connector_class()
        connector.start(ConnectorContext(config["name"], config_texts=config), values)
        try:
            max_tasks = values["tasks.max"]
            configs = checked_task_configs(connector.task_configs(max_tasks), max_tasks)
        finally:
            connector.stop()
        if self._number >= len(configs):
            raise ValueError(
                f"task {self._number} does not exist: task_configs() returned only {len(configs)}"
            )
        return configs[self._number]


class SinkKit(ConnectorKit):
    """Runs a task of a sink; see the module."""

    def __init__(
        self, connector_class: type[SinkConnector], config: Mapping[str, str], **more: Any
    ) -> None:
        """As ``ConnectorKit``; ``topics`` is TOPIC if the config names no topics."""
        named = {"topics", "topics.regex"} & config.keys()
        super().__init__(connector_class, config if named else {"topics": TOPIC, **config}, **more)

    def feed(
        self,
        values: Sequence[Any] | pa.Table,
        *,
        keys: Sequence[Any] | str | None = None,
        topic: str = TOPIC,
        partition: int | None = None,
        partition_count: int = 1,
        headers: Sequence[tuple[str, bytes]] = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Publish records to a topic.

        Args:
            values: Dicts, an Arrow table or plain values are encoded with the config's converters
                (dicts as JSON if none is set); bytes are published unchanged. None is a tombstone.
            keys: One for each value, in the same forms; or the name of the field with the key.
            topic: The topic; created if it does not exist.
            partition: The partition; by default the key determines it.
            partition_count: The partition count of a topic that does not exist yet.
            headers: The headers of every record.
            timestamp_ms: The timestamp of every record, since the epoch; now by default.
        """
        self._topics.feed(
            values,
            topic=topic,
            keys=keys,
            partition=partition,
            partition_count=partition_count,
            headers=headers,
            timestamp_ms=timestamp_ms,
        )

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The next offset to write, by topic partition with written records."""
        return {key: each.offset for key, each in self._committed_offsets().items()}

    @property
    def metadata(self) -> dict[TopicPartition, str]:
        """The metadata committed with the offsets, by topic partition."""
        found = self._committed_offsets()
        return {key: SinkMetadata.parsed(each.metadata).own for key, each in found.items()}

    def _committed_offsets(self) -> dict[TopicPartition, SinkOffset]:
        found = parse_sink_offsets(self._store.fetch_offsets(self.config["name"]))
        return {
            key: each
            for key, each in found.items()
            if not SinkMetadata.parsed(each.metadata).is_start
        }

    def let_time_pass(self) -> None:
        """Make the call without records that the task requested (``context.call_after``), then
        ``run``.

        Raises:
            AssertionError: The task did not request a call.
        """
        runner = self._started().runner
        requested = runner.let_time_pass() if hasattr(runner, "let_time_pass") else False
        assert requested, "the task did not request a call without records (context.call_after)"
        self.run(batch_records=self._batch_records)


class SourceKit(ConnectorKit):
    """Runs a task of a source; see the module."""

    connector_class: type[SourceConnector]

    @property
    def committed(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """All committed (partition, offset) pairs."""
        return parse_offsets(self._store.fetch_offsets(self.config["name"]))
