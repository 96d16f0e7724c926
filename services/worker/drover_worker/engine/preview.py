"""Previews: what a connector would do to some records, without writing or committing.

The records are few, so they pass through the steps on the driver, one at a time.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import groupby, islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from drover.api.common.v1 import preview_pb2
from drover.api.common.v1.repairs_pb2 import DeadLetterRepair
from drover.config.patterns import Pattern
from drover.connector import (
    ConnectorContext,
    RetriableError,
    SinkConnector,
    SourceConnector,
    SourceTaskContext,
)
from drover.connector.catalogue import PluginRegistry
from drover.connector.connector import Connector
from drover.connector.replay_settings import Replay
from drover.connector.settings import TASKS_MAX, TOPICS, TOPICS_REGEX, task_config
from drover.dataplane.arrow_rows import ArrowRows
from drover.model.ids import TaskId, Term
from drover.pipeline.failures import place_of
from drover.pipeline.step import Step
from drover.record.batch import ERROR, KEY, OFFSET, ORIGIN, PARTITION, VALUE, original_topics
from drover.record.errors import described
from drover_worker.engine.letter_requests import letter_format
from drover_worker.engine.tasks.record_path import RecordPath, Route
from drover_worker.engine.tasks.replaying import Replaying
from drover_worker.engine.tasks.task_runner import TaskTools
from drover_worker.engine.topics.letter_repairs import encoded_repairs
from drover_worker.engine.topics.shown_records import shown_record, type_text

READ, WRITE = "read", "write"
#: Time limits of the reading and of the steps of a preview, at most half of the call's own, and how
#: often a source without records is polled again.
_TIME_S = 20.0
_POLLS_MAX = 50
_POLL_PAUSE_S = 0.1
#: The tasks of a source that are read: each has its own connections.
_TASKS_MAX = 8
_SINK_BYTES_MAX = 1024 * 1024
_SCHEMAS_MAX = 10
_LETTERS_AT_ONCE = 1_000


#: A row, and its record at the last step.
_Written = tuple[preview_pb2.PreviewedRow, pa.RecordBatch]


class PreviewRefusedError(Exception):
    """The connector cannot be previewed without side effects."""


def preview(
    plugins: PluginRegistry,
    tools: TaskTools,
    config: Mapping[str, str],
    row_count: int,
    *,
    dead_letters: bool,
    wait: Callable[[float], object],
    repairs: Sequence[DeadLetterRepair] = (),
) -> preview_pb2.Preview:
    """Read at most ``row_count`` records and pass them through the steps of ``config``.

    With ``dead_letters`` the records are the dead letters that the config replays, repaired.
    ``wait(seconds)`` pauses between two polls of a source. Runs plugin code.

    Raises:
        PluginNotFoundError: connector.class names a class that is not installed.
        PreviewRefusedError: poll() has side effects, or a topic is internal.
        InvalidArgumentError: INVALID_CONFIG; INVALID_REQUEST, a repair is not valid.
    """
    connector_class = plugins.find_of(config)
    parsed = task_config(connector_class, config, {})
    task = TaskId(config["name"], 0)
    answer = preview_pb2.Preview()
    time_s = min(_TIME_S, tools.limits.start_ms / 2000)
    showing = _Showing(answer, row_count, time_s)
    with closing(
        RecordPath(connector_class, parsed, task, tools.spark, plane=tools.plane, is_preview=True)
    ) as path:
        is_sink = issubclass(connector_class, SinkConnector)
        if dead_letters and path.replay is not None:
            path.repairs = encoded_repairs(tools.plane, letter_format(path), repairs)
            route = path.sink_route(replayed=True) if is_sink else path.dead_letter_route()
            batches = _dead_letters(tools, path.replay)
        elif is_sink:
            route = path.sink_route()
            batches = _topic_records(tools, parsed, row_count, answer.notes.append)
        else:
            assert issubclass(connector_class, SourceConnector)
            refusal = connector_class.preview_refusal(parsed)
            if refusal:
                raise PreviewRefusedError(refusal)
            _show_source(showing, connector_class, config, tools, wait)
            return answer
        shown = showing.add(route, batches)
    if not answer.rows and not answer.notes:
        answer.notes.append("there are no records to read now")
    if issubclass(connector_class, SinkConnector) and connector_class.structured:
        _predict(connector_class, parsed, shown, answer.notes.append)
    return answer


class _Showing:
    """Adds records and their way through the steps to a preview."""

    def __init__(self, answer: preview_pb2.Preview, row_count: int, time_s: float) -> None:
        self.answer = answer
        self.time_s = time_s
        self._row_count = row_count
        self._schemas = _SeenSchemas()
        self._deadline_s: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether it has all rows, or reached a limit."""
        return len(self.answer.rows) >= self._row_count or self.answer.truncated

    def add(self, route: Route, batches: Iterable[pa.RecordBatch]) -> Sequence[_Written]:
        """Add the first records, up to the number of rows; all calls have the same steps.

        Returns the rows that reached the last step, with their records there.
        """
        answer, written = self.answer, list[_Written]()
        if not answer.steps:
            answer.steps.extend((READ, *(step.name for step in route.shown), WRITE))
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + self.time_s
        left = self._row_count - len(answer.rows)
        for number, record in enumerate(islice(_single(route.prepare, batches), left)):
            if time.monotonic() > self._deadline_s:
                answer.truncated = True
                break
            row, found = _row(record, route, number, self._schemas)
            answer.rows.append(row)
            if found is not None:
                written.append((answer.rows[-1], found))
        del answer.schemas[:]
        answer.schemas.extend(self._schemas.in_order(answer.steps[:-1]))
        return written


def _show_source(
    showing: _Showing,
    connector_class: type[SourceConnector],
    config: Mapping[str, str],
    tools: TaskTools,
    wait: Callable[[float], object],
) -> None:
    """Show the first records of the source's tasks, in the order of the tasks."""
    answer = showing.answer
    configs = _task_configs(connector_class, config)
    polled = configs[:_TASKS_MAX]
    if len(configs) > len(polled):
        answer.notes.append(f"only the first {len(polled)} of {len(configs)} tasks are read")
    deadline_s = time.monotonic() + showing.time_s
    for number, own in enumerate(polled):
        if number and time.monotonic() > deadline_s:
            answer.truncated = True
            break
        reading = _polled(
            connector_class,
            (config, own),
            TaskId(config["name"], number),
            tools,
            lambda: wait(_POLL_PAUSE_S),
            polls_max=max(1, _POLLS_MAX // len(polled)),
        )
        with reading as (batch, route):
            if batch is not None:
                showing.add(route, _source_rows(batch))
        if showing.is_complete:
            return
    if not answer.rows:
        answer.notes.append("the source has no records now")
    if not answer.steps:
        answer.steps.extend((READ, WRITE))


def _predict(
    connector_class: type[SinkConnector],
    config: Mapping[str, Any],
    shown: Sequence[_Written],
    note: Callable[[str], None],
) -> None:
    """Add to each row what the sink would do with its record."""
    try:
        found = {
            (each.topic, each.partition, each.offset): each
            for each in connector_class.predicted_writes(
                config, _joined([record for _, record in shown])
            )
        }
    except RetriableError as error:
        note(f"what the sink would write is not known: {error}")
        return
    except Exception as error:  # noqa: BLE001 - any of a plugin's code
        for row, _ in shown:
            _fail_write(row, described(error))
        return
    for row, record in shown:
        columns = original_topics(record), record.column(PARTITION), record.column(OFFSET)
        topic, partition, offset = (each[0].as_py() for each in columns)
        predicted = found.get((topic, partition, offset))
        if predicted is None:
            continue
        row.target = predicted.target
        if predicted.refusal:
            _fail_write(row, predicted.refusal)


def _fail_write(row: preview_pb2.PreviewedRow, error: str) -> None:
    row.failed_step, row.error = WRITE, error
    del row.records[-1]


def _joined(records: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Records in fewer batches, as a sink receives consecutive ones of one schema."""
    groups = groupby(records, lambda each: each.schema)
    tables = (pa.Table.from_batches(list(own)).combine_chunks() for _, own in groups)
    return [batch for table in tables for batch in table.to_batches()]


@contextmanager
def _polled(
    connector_class: type[SourceConnector],
    configs: tuple[Mapping[str, str], Mapping[str, str]],
    task: TaskId,
    tools: TaskTools,
    wait: Callable[[], object],
    *,
    polls_max: int,
) -> "Iterator[tuple[DataFrame | ArrowRows | None, Route]]":
    """The rows of the first batch of a task, from the start of the source; the task is stopped
    after the block, because reading may need its session.

    ``configs`` are the connector's config and the task's own.
    """
    merged = task_config(connector_class, *configs)
    path = RecordPath(
        connector_class, merged, task, tools.spark, plane=tools.plane, is_preview=True
    )
    instance = (connector_class.preview_task_class or connector_class.task_class)()
    try:
        instance.start(
            SourceTaskContext(
                task=task, claim=Term(0, 0), config=merged, spark=tools.spark, is_preview=True
            )
        )
        for _ in range(polls_max):
            batch = instance.poll()
            if batch is not None:
                yield path.rows_of(batch), path.source_route(batch)
                return
            wait()
        yield None, path.source_route(None)
    finally:
        instance.stop()
        path.close()


def _task_configs(
    connector_class: type[Connector], config: Mapping[str, str]
) -> Sequence[Mapping[str, str]]:
    parsed = task_config(connector_class, config, {})
    connector = connector_class()
    try:
        context = ConnectorContext(config["name"], config_texts=config, is_preview=True)
        connector.start(context, parsed)
        return connector.task_configs(parsed[TASKS_MAX])
    finally:
        connector.stop()


def _source_rows(rows: "DataFrame | ArrowRows") -> Iterator[pa.RecordBatch]:
    if isinstance(rows, ArrowRows):
        for number in range(rows.partition_count):
            yield from rows.read(number)
        return
    yield from rows.limit(1_000).toArrow().to_batches()


def _topic_records(
    tools: TaskTools, config: Mapping[str, Any], row_count: int, note: Callable[[str], None]
) -> Iterator[pa.RecordBatch]:
    """The first records of the sink's topics, regardless of its committed offsets."""
    plane = tools.plane
    topics = config[TOPICS]
    if topics is None:
        pattern = Pattern(config[TOPICS_REGEX])
        topics = [topic for topic in sorted(plane.topics()) if pattern.matches(topic)]
    refused = sorted({*topics} & {*plane.reserved_topics()})
    if refused:
        raise PreviewRefusedError(
            f"the topic {refused[0]} cannot be previewed: it is internal to the cluster"
        )
    counts = plane.partition_counts(topics)
    missing = [topic for topic in topics if topic not in counts]
    if missing:
        note(f"missing topics: {', '.join(missing)}")
    starts = {(topic, n): 0 for topic, count in counts.items() for n in range(count)}
    plan = plane.plan_read(starts, max_records=row_count, max_bytes=_SINK_BYTES_MAX)
    rows = plane.rows(tools.spark, plan)
    for number in range(rows.partition_count):
        yield from rows.read(number)


def _dead_letters(tools: TaskTools, replay: Replay) -> Iterator[pa.RecordBatch]:
    """The dead letters that the config replays, lazily."""
    replaying = Replaying(replay, {}, task=0, task_count=1)
    while plan := replaying.plan(
        tools.plane, max_records=_LETTERS_AT_ONCE, max_bytes=_SINK_BYTES_MAX
    ):
        yield from tools.plane.read_here(plan)
        replaying.move(plan)


def _single(
    prepare: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for records in prepare(batch):
            for row in range(records.num_rows):
                yield records.slice(row, 1)


class _SeenSchemas:
    """The schemas of keys and values after each step."""

    def __init__(self) -> None:
        self._seen: dict[str, preview_pb2.StepSchemas] = {}

    def add(self, step: str, record: pa.RecordBatch, topic: str, read_topic: str) -> None:
        seen = self._seen.setdefault(step, preview_pb2.StepSchemas(step=step))
        found = preview_pb2.TopicSchema(topic=topic, read_topic=read_topic)
        for texts, name in ((seen.keys, KEY), (seen.values, VALUE)):
            index = record.schema.get_field_index(name)
            if index < 0 or record.column(index)[0].as_py() is None:
                continue
            text = type_text(record.schema.field(index))
            setattr(found, name, text)
            if text not in texts and len(texts) < _SCHEMAS_MAX:
                texts.append(text)
        if found not in seen.topics and len(seen.topics) < _SCHEMAS_MAX:
            seen.topics.append(found)

    def in_order(self, steps: Iterable[str]) -> list[preview_pb2.StepSchemas]:
        return [self._seen[step] for step in steps if step in self._seen]


def _row(
    record: pa.RecordBatch, route: Route, number: int, schemas: _SeenSchemas
) -> tuple[preview_pb2.PreviewedRow, pa.RecordBatch | None]:
    """The record's way through the steps, and the record at their end, if it arrives there."""
    named = ORIGIN in record.schema.names or record.column(OFFSET).null_count == 0
    row = preview_pb2.PreviewedRow(place=place_of(record) if named else f"row {number + 1}")
    fault = record.column(ERROR)[0].as_py() if ERROR in record.schema.names else None
    if fault is not None:
        row.failed_step, row.error = READ, fault
        return row, None
    found = _run(row, READ, route.before, record)
    if found is None:
        return row, None
    read = shown_record(found, route.default_topic)
    row.records.append(read)
    schemas.add(READ, found, read.topic, read.topic)
    for step in route.shown:
        found = _run(row, step.name, (step,), found)
        if found is None:
            return row, None
        shown = shown_record(found, route.default_topic)
        row.records.append(shown)
        schemas.add(step.name, found, shown.topic, read.topic)
    found = _run(row, WRITE, route.after, found)
    if found is not None:
        row.records.append(shown_record(found, route.default_topic))
    return row, found


def _run(
    row: preview_pb2.PreviewedRow, name: str, steps: Iterable[Step], record: pa.RecordBatch
) -> pa.RecordBatch | None:
    """The record after the steps; None when it failed or was dropped, which is noted in ``row``."""
    for step in steps:
        try:
            made = [each for each in step(record) if each.num_rows]
        except Exception as error:  # noqa: BLE001 - any of a plugin's code
            row.failed_step, row.error = name, described(error)
            return None
        if not made:
            row.dropped_by = name
            return None
        record = made[0].slice(0, 1)
    return record
