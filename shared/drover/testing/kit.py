"""Runs one connector alone in a test: feed it, look at what it did, kill it, feed it again.

The task is run by the engine's own code over topics and offsets in a directory of the test, without
a cluster: with converters, transforms, error settings, retries and dead letters as anywhere.

Example:
    A sink is killed between its write and its commit, and gets the records again, cut otherwise::

        def test_each_row_is_written_once(sink_kit, tmp_path):
            kit = sink_kit(Lines, path=str(tmp_path / "out"))
            kit.feed([{"n": n} for n in range(10)])
            kit.kill(KillPoint.AFTER_WRITE)
            kit.run(batch_records=3)
            assert (tmp_path / "out").read_text().count("n") == 10

The fixtures ``sink_kit`` and ``source_kit`` come with the package (``drover.testing.plugin``).
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
from drover.connector.offsets import parse_offsets, parse_sink_offsets
from drover.connector.settings import BATCH_MAX_RECORDS, parse_config, task_config
from drover.testing.running import Hooks, RunningTask, claimed_spec
from drover.testing.topics import Record, Topics, open_store
from drover_worker.engine.plugins.connectors import checked_task_configs

#: Where the records of a sink's test are, unless it says otherwise.
TOPIC = "records"
_names = itertools.count(1)


class KillPoint(StrEnum):
    """Where a process of a connector is killed."""

    #: A sink's write has returned, its offsets are not committed. A source's rows are staged, and
    #: neither they nor its offsets are visible.
    AFTER_WRITE = "after write"
    #: Records and offsets are durable, and the task has not heard of it.
    AFTER_COMMIT = "after commit"


class ConnectorKit:
    """What kits of sources and sinks have in common: one task, in a directory of its own."""

    def __init__(
        self,
        connector_class: type[Connector],
        config: Mapping[str, str],
        *,
        spark: SparkSession,
        directory: Path | None = None,
        task: int = 0,
    ) -> None:
        """Nothing is started yet.

        Args:
            connector_class: Whose task is run.
            config: Its settings, as texts; a name is added.
            spark: A session of this process.
            directory: Where topics and offsets are kept; a new one by default.
            task: Which of its tasks, of the ``tasks.max`` of the config.

        Raises:
            InvalidArgumentError: INVALID_CONFIG with every fault.
        """
        self.connector_class = connector_class
        self.spark = spark
        # the name of a kit's connector goes into figures and dead letters only
        self.config: dict[str, str] = {
            "name": "tested",
            "connector.class": connector_class.__name__,
            **config,
        }
        made = directory or Path(tempfile.mkdtemp(prefix="drover-kit-"))
        self.directory = made
        self._store = open_store(made)
        self._number = task
        self._task: RunningTask | None = None
        self._batch_records: int | None = None
        self.hooks = Hooks()
        parse_config(connector_class, self.config).require_valid(self.config["name"])
        parsed = task_config(connector_class, self.config, {})
        self._topics = Topics(self._store, parsed, structured=connector_class.structured)

    @property
    def task(self) -> Any:
        """The connector's task object, once it runs."""
        return self._started().instance

    def run(
        self,
        *,
        batches: int | None = None,
        until: Callable[[], bool] | None = None,
        batch_records: int | None = None,
    ) -> None:
        """Run the task, started if it is not: until nothing is left to do, ``batches`` are done, or
        ``until`` is true.

        With ``batch_records`` a batch of a sink has at most so many records; another number than
        before starts the task again.

        Raises:
            TaskFailedError: The task failed; its cause is what it raised.
            Exception: What the start of the task raised.
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
        """Write one batch, lose its commit, and drop the task without its stop(): cheaper than a
        kill, and the next ``run`` starts from what was committed before. Of a source the records
        are lost with their offsets.
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
        """Stop the task in order; ``run`` starts it again from what is committed."""
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
        """Run the task in a process of its own, which kills itself (SIGKILL) on its way: nothing of
        it is cleaned up. What it has committed until then counts; ``run`` starts a new one.

        Args:
            point: Where.
            before_line: Or right before a line of the connector's module is run, on the driver,
                that contains this text.
            after_batches: Let it do so many batches before.
            batch_records: See ``run``.

        Raises:
            AssertionError: It came to rest, or failed, before it got there.
        """
        from drover.testing.killing import killed

        if (point is None) == (before_line is None):
            raise ValueError("say where: either a point or before_line")
        self.stop()
        self._batch_records = batch_records
        killed(self, point=point, before_line=before_line, after_batches=after_batches)

    def records(self, topic: str) -> list[Record]:
        """Every record of a topic, by partition and offset."""
        return self._topics.read(topic)

    def close(self) -> None:
        """End everything."""
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
            most = values["tasks.max"]
            found = checked_task_configs(connector.task_configs(most), most)
        finally:
            connector.stop()
        if self._number >= len(found):
            raise ValueError(
                f"there is no task {self._number}: task_configs() returned {len(found)} configs"
            )
        return found[self._number]


class SinkKit(ConnectorKit):
    """Runs a task of a sink; see the module."""

    def __init__(
        self, connector_class: type[SinkConnector], config: Mapping[str, str], **more: Any
    ) -> None:
        """As ``ConnectorKit``; ``topics`` is TOPIC unless the config says which topics to read."""
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
        """Put records into a topic.

        Args:
            values: Dicts, an Arrow table or plain values go through the config's converters (dicts
                become JSON where none is set); bytes go as they are. None is a deletion.
            keys: One for each value, in the same forms; or the name of the field that is the key.
            topic: Where; made when it does not exist.
            partition: Where in the topic; by default the key decides.
            partition_count: Of a topic that does not exist yet.
            headers: Of every record.
            timestamp_ms: Of every record, since 1970; now by default.
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
        """The next offset to write, by topic partition."""
        found = parse_sink_offsets(self._store.fetch_offsets(self.config["name"]))
        return {key: each.offset for key, each in found.items()}

    @property
    def metadata(self) -> dict[TopicPartition, str]:
        """What is committed with the offsets."""
        found = parse_sink_offsets(self._store.fetch_offsets(self.config["name"]))
        return {key: each.metadata for key, each in found.items()}

    def let_time_pass(self) -> None:
        """Make the call without records that the task asked for (``context.call_after``), and go on
        as ``run``.

        Raises:
            AssertionError: It did not ask for one.
        """
        runner = self._started().runner
        asked = runner.let_time_pass() if hasattr(runner, "let_time_pass") else False
        assert asked, "the task did not ask to be called without records (context.call_after)"
        self.run(batch_records=self._batch_records)


class SourceKit(ConnectorKit):
    """Runs a task of a source; see the module."""

    connector_class: type[SourceConnector]

    @property
    def committed(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Every committed (partition, offset)."""
        return parse_offsets(self._store.fetch_offsets(self.config["name"]))
