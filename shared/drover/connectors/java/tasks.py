"""Tasks of Java plugins: they run in the host, in Kafka Connect's own loops."""

import json
import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from drover.connector import (
    ArrowRows,
    SinkBatch,
    SinkTask,
    SinkTaskContext,
    SourceBatch,
    SourceTask,
    SourceTaskContext,
    TopicPartition,
    Written,
)
from drover.connector.error_settings import RETRY_TIMEOUT
from drover.connector.settings import (
    BATCH_MAX_BYTES,
    BATCH_MAX_RECORDS,
    JAVA_ISOLATION,
    OF_TASK,
    PARTITIONER_KEYLESS,
    SPREAD,
)
from drover.connector.task import TaskContext, preview_owner
from drover.connectors.java.chain import has_steps_of_drover, hosted_config
from drover.connectors.java.places import hosting
from drover.connectors.java.settings import (
    CALL_TIMEOUT_MS,
    CONFIG_TEXTS,
    POLL_TIMEOUT_MS,
    task_texts,
)
from drover.dataplane.values import Placement
from drover.java_plugins.catalogue import JavaClass
from drover.java_plugins.host import (
    CALL_LIMIT,
    HOSTS,
    POLL_LIMIT,
    Host,
    Lease,
    hanging_message,
    limit_s,
)
from drover.java_plugins.wire import (
    FETCH_DDL,
    FETCH_REJECTED_DDL,
    PUT_SCHEMA,
    Address,
    JavaCallError,
    JavaCallHangsError,
)
from drover.model.status import FIGURE_UNITS
from drover.record.batch import TOPIC, original_topics

_NOT_IN_FIGURES = re.compile("[^a-z0-9]+")
#: How long a call waits in the host before it checks whether the task should stop.
_WAIT_MS = 500
#: How often a sink without new records asks what its plugin committed.
_IDLE_MS = 2_000
#: The pause after a poll of a preview without records: the first records of a plugin take seconds.
_PREVIEW_PAUSE_S = 0.3
#: Never set: for short waits.
_PAUSE = threading.Event()
#: The size from which a batch is fetched in two parts, by two cores.
_PART_ROWS = 20_000
#: A host holds up to three batches in its heap.
_BATCH_BYTES_MAX = 32 * 1024 * 1024
#: What a response of the host calls the converters, transforms and predicates of a task.
_STEPS = "steps"


class JavaTaskError(Exception):
    """A Java plugin failed; the message names the plugin and the call, then Java's trace."""


def hanging(
    host: Host, of: JavaClass, method: str, *, seconds: float, limit: str, stack: str = ""
) -> JavaTaskError:
    """The error for a plugin's method that does not return; its JVM gets no further work.

    Args:
        host: The JVM.
        of: The plugin's class.
        method: What does not return.
        seconds: For how long.
        limit: The setting that limits it.
        stack: Where its thread is; empty if that is not known.
    """
    host.retire()
    return JavaTaskError(
        hanging_message(method, of.name, of.plugin, seconds=seconds, limit=limit, stack=stack)
    )


def figure_name(metric: str) -> str:
    """The figure for a plugin's metric: ``records-made`` is ``records_made_count``."""
    name = _NOT_IN_FIGURES.sub("_", metric.lower()).strip("_")
    return name if name.endswith(FIGURE_UNITS) else f"{name}_count"


class _Hosted:
    """What tasks of both kinds do: start and stop in a host."""

    #: Set by the connector's class.
    java_class: ClassVar[JavaClass]

    def __init__(self) -> None:
        self._lease: Lease | None = None
        self._run: int | None = None

    def _start(self, context: TaskContext, call: str, **arguments: Any) -> dict[str, Any]:
        """Start the plugin's task; returns what the host says of it."""
        texts: Mapping[str, str] = context.config[CONFIG_TEXTS]
        task = context.task
        owner = str(task) if context.config[JAVA_ISOLATION] == OF_TASK else ""
        if context.is_preview:
            owner = preview_owner(task.connector)
        config = hosted_config(texts)
        config["connector.class"] = self.java_class.name
        self._config = context.config
        found = hosting(self.java_class, config)
        self._lease = HOSTS.use(found.plugins, owner)
        started = self._called_within(
            CALL_LIMIT,
            "the constructor",
            call,
            connector=task.connector,
            task=task.task,
            connector_config=found.config,
            task_config=task_texts(found.config),
            **arguments,
        )
        self._run = started["run"]
        start_s = limit_s(CALL_LIMIT)
        until = time.monotonic() + start_s
        while not context.stopping():
            if self._called("await_start", run=self._run, wait_ms=_WAIT_MS)["started"]:
                break
            if time.monotonic() > until:
                raise self._hanging("start()", start_s, CALL_LIMIT[0], self._stack())
        return started

    @property
    def _host(self) -> Host:
        assert self._lease is not None
        return self._lease.host

    @property
    def _address(self) -> Address:
        return self._host.address

    def _called(self, name: str, within_s: float | None = None, **arguments: Any) -> dict[str, Any]:
        """Call the host.

        Raises:
            JavaTaskError: The plugin failed.
            JavaCallHangsError: It did not return within ``within_s`` seconds.
        """
        try:
            return self._address.call_within(within_s, name, **arguments)
        except JavaCallError as error:
            where = f"{error.phase}() of " if error.phase else ""
            raise JavaTaskError(
                f"{where}{self.java_class.name} ({self.java_class.plugin}) failed: {error}\n"
                f"{error.trace}"
            ) from error

    def _called_within(
        self, limit: tuple[str, int], method: str, name: str, **arguments: Any
    ) -> dict[str, Any]:
        """As ``_called``, for a call that executes a method of the plugin."""
        seconds = limit_s(limit)
        try:
            return self._called(name, seconds, **arguments)
        except JavaCallHangsError:
            raise self._hanging(method, seconds, limit[0]) from None

    def _check_duration(self, found: Mapping[str, Any]) -> None:
        """Check how long the plugin's method takes that a response of the host names.

        Raises:
            JavaTaskError: Longer than it may.
        """
        setting = POLL_TIMEOUT_MS if found["phase"] == "poll" else CALL_TIMEOUT_MS
        limit_ms: int = self._config[setting]
        if found["phase"] == _STEPS:
            retry_ms = self._config[RETRY_TIMEOUT]
            limit_ms = 0 if retry_ms < 0 else limit_ms and limit_ms + retry_ms
        if limit_ms and found["since_ms"] > limit_ms:
            steps = "a converter, transform or predicate"
            method = steps if found["phase"] == _STEPS else f"{found['phase']}()"
            seconds = found["since_ms"] / 1_000
            raise self._hanging(method, seconds, setting, self._stack())

    def _report(self, context: TaskContext, found: Mapping[str, Any]) -> None:
        """Report the plugin's metrics (KIP-877), if the response has them."""
        for name, value in found.get("metrics", {}).items():
            with suppress(ValueError):  # more than a task may have, or no number that is kept
                context.report(figure_name(name), round(value))

    def _stack(self) -> str:
        """Where the thread of the task is."""
        stack: str = self._called("stack", run=self._run)["stack"]
        return stack

    def _hanging(self, method: str, seconds: float, limit: str, stack: str = "") -> JavaTaskError:
        return hanging(
            self._host, self.java_class, method, seconds=seconds, limit=limit, stack=stack
        )

    def stop(self) -> None:
        """Stop the plugin's task."""
        if self._lease is None:
            return
        try:
            if (
                self._run is not None
                and self._host.is_running
                and not self._called("stop_task", run=self._run)["ended"]
            ):
                self._host.retire()
        finally:
            self._lease.release()


@dataclass(frozen=True, slots=True)
class _Fetch:
    """Reads a part of a batch on an executor."""

    address: Address
    run: int
    batch: int
    parts: int

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of part ``number``."""
        return self.address.fetch(self.run, self.batch, number, self.parts)


class JavaSourceTask(_Hosted, SourceTask):
    """A Java source's task."""

    #: A batch is polled and converted while the one before is stored.
    reads_ahead = True

    def __init__(self) -> None:
        super().__init__()
        #: The batches that are not durable yet, oldest first.
        self._batches: deque[int] = deque()

    def start(self, context: SourceTaskContext) -> None:
        """See SourceTask."""
        self._context = context
        offsets = [list(each) for each in context.offsets()]
        started = self._start(context, "start_source", offsets=offsets)
        #: Whether the plugin wants to know where its records are stored, and the host can find the
        #: partitions that Drover chooses for them.
        self._wants_places = (
            started["acknowledges"]
            and not has_steps_of_drover(context.config[CONFIG_TEXTS])
            and context.config[PARTITIONER_KEYLESS] != SPREAD
        )

    def poll(self) -> SourceBatch | None:
        """See SourceTask."""
        config = self._context.config
        found = self._called(
            "poll",
            run=self._run,
            records_max=config[BATCH_MAX_RECORDS],
            bytes_max=min(config[BATCH_MAX_BYTES], _BATCH_BYTES_MAX),
        )
        self._report(self._context, found)
        if "batch" not in found:
            self._check_duration(found)
            if found["commit_overdue"]:
                self._called_within(POLL_LIMIT, "commit()", "commit_overdue", run=self._run)
            if self._context.is_preview:
                _PAUSE.wait(_PREVIEW_PAUSE_S)
            return None
        assert self._run is not None
        self._batches.append(found["batch"])
        parts = 2 if found["rows"] >= _PART_ROWS else 1
        fetch = _Fetch(self._address, self._run, found["batch"], parts)
        offsets = [
            (json.loads(partition), None if offset is None else json.loads(offset))
            for partition, offset in found["offsets"]
        ]
        ddl = FETCH_REJECTED_DDL if found["rejected"] else FETCH_DDL
        return SourceBatch(ArrowRows(self._context.spark, fetch, parts, ddl), offsets)

    def placed(self, placement: Placement, batch_count: int) -> None:
        """See SourceTask."""
        if not self._wants_places:
            return
        self._called(
            "placed",
            run=self._run,
            batches=batch_count,
            ranges=[
                [each.topic, each.partition, each.start_offset, each.end_offset]
                for each in placement.ranges
            ],
            partition_counts=dict(placement.partition_counts),
        )

    def committed(
        self, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        """See SourceTask."""
        del offsets
        self._called_within(
            POLL_LIMIT, "commitRecord()", "durable", run=self._run, batch=self._batches[0]
        )
        self._batches.popleft()


@dataclass(frozen=True, slots=True)
class _Put:
    """Passes a batch to the host on an executor."""

    address: Address
    run: int
    batch: int
    ranges: tuple[tuple[str, int, int, int], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """No rows."""
        self.address.put(self.run, self.batch, self.ranges, map(_put_columns, batches))
        yield from ()


def _put_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    topics, targets = (
        original_topics(batch).cast(pa.string()),
        batch.column(TOPIC).cast(pa.string()),
    )
    times = batch.column("timestamp").cast(pa.timestamp("ms", tz="UTC"), safe=False)
    columns = {
        "topic": topics,
        "timestamp": times.cast(pa.int64()),
        "target": pc.if_else(pc.equal(topics, targets), pa.scalar(None, pa.string()), targets),
    }
    arrays = []
    for each in PUT_SCHEMA:
        array = columns.get(each.name)
        array = batch.column(each.name) if array is None else array
        arrays.append(array if array.type.equals(each.type) else pc.cast(array, each.type))
    return pa.RecordBatch.from_arrays(arrays, schema=PUT_SCHEMA)


class JavaSinkTask(_Hosted, SinkTask):
    """A Java sink's task."""

    def start(self, context: SinkTaskContext) -> None:
        """See SinkTask."""
        self._context = context
        self._paused: set[TopicPartition] = set()
        #: The partitions that the plugin knows; None before the first time.
        self._assigned: set[TopicPartition] | None = None
        self._batch = 0
        self._start(context, "start_sink")
        context.call_after(_IDLE_MS)

    def write(self, batch: SinkBatch) -> Written:
        """See SinkTask."""
        assert self._run is not None
        ranges = tuple(
            (each.topic, each.partition, each.start_offset, each.end_offset)
            for each in batch.ranges
        )
        self._assign({TopicPartition(topic, number): at for topic, number, at, _ in ranges})
        self._batch += 1
        put = _Put(self._address, self._run, self._batch, ranges)
        batch.run_in_arrow(put, at_once=True)
        done = self._progress(batch, _WAIT_MS)
        while done is None:
            if self._context.stopping():
                return Written(up_to={})
            done = self._progress(batch, _WAIT_MS)
        return done

    def idle(self) -> Written | None:
        """See SinkTask."""
        self._assign({})
        return self._progress(None, 0)

    def _assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Pass new partitions of the task to the plugin, which may have no records yet.

        Args:
            starts: The first offsets of the present batch.
        """
        assigned = {**self._context.assigned(), **starts}
        new = assigned.keys() - (self._assigned or set())
        if new or self._assigned is None:
            partitions = [[key.topic, key.partition, assigned[key]] for key in sorted(new)]
            self._called("assign", run=self._run, partitions=partitions)
            self._assigned = {*(self._assigned or ()), *new}

    def _progress(self, batch: SinkBatch | None, wait_ms: int) -> Written | None:
        """What the plugin did since the last call; None while it processes records."""
        found = self._called("progress", run=self._run, wait_ms=wait_ms, idle=batch is None)
        self._context.call_after(_IDLE_MS)
        self._report(self._context, found)
        if not found["done"]:
            self._check_duration(found)
            return None
        rewinds = _offsets(found["rewinds"])
        late = []
        for each in found["rejected"]:
            topic, partition, offset, _, reason = each
            if batch is not None and any(
                (one.topic, one.partition) == (topic, partition)
                and one.start_offset <= offset < one.end_offset
                for one in batch.ranges
            ):
                batch.reject(topic, partition, offset, reason)
            else:
                late.append(each)
                key = TopicPartition(topic, partition)
                rewinds[key] = min(offset, rewinds.get(key, offset))
        if late:  # read them again, to reject them in their own batch
            self._called("defer", run=self._run, rejected=late)
        paused = {TopicPartition(topic, partition) for topic, partition, _ in found["paused"]}
        self._context.pause(*(paused - self._paused))
        self._context.resume(*(self._paused - paused))
        self._paused = paused
        if rewinds:
            self._context.rewind(rewinds)
        return Written(up_to=_offsets(found["commits"]))


def _offsets(found: Sequence[Sequence[Any]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for topic, partition, offset in found}
