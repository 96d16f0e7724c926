"""Builds the pipelines for a task's records, from its config."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from drover.api.common.v1.record_counts_pb2 import RecordCounts
from drover.config.configurable import Configurable
from drover.connector import (
    OffsetRange,
    SinkBatch,
    SinkConnector,
    SourceBatch,
    SourceConnector,
)
from drover.connector.connector import Connector
from drover.connector.error_settings import ErrorSettings
from drover.connector.record_settings import (
    CONVERTER_SETTINGS,
    HEADER_CONVERTER,
    KEY_CONVERTER,
    SCHEMA_CHANGE,
    VALUE_CONVERTER,
    converter_of,
    passes_bytes,
    with_defaults,
)
from drover.connector.replay_settings import Replay
from drover.connector.settings import JAVA_ISOLATION, OF_TASK, TOPIC_PARTITIONS, TOPICS
from drover.connector.task import preview_owner
from drover.connector.topic_settings import source_topic_creation, topic_creation_of
from drover.convert.converter import Converter
from drover.convert.json_converter import JsonConverter
from drover.convert.lenient import Guess, LenientDecoder
from drover.convert.plain_converters import ByteArrayConverter, StringConverter
from drover.convert.steps import DecodeRecords, EncodeRecords
from drover.convert.unchanged import PrintingConverter
from drover.dataplane.arrow_rows import (
    ArrowFunction,
    ArrowRows,
    current_spark_partition,
    rows_of_table,
)
from drover.dataplane.payload import READ_SCHEMA
from drover.dataplane.plane import ALL_COLUMNS, DataPlane, DeadLetterWriter, Destination
from drover.dataplane.topic_creation import TopicCreation, TopicRule
from drover.dataplane.values import ReadPlan
from drover.errors import InvalidArgumentError, Violation
from drover.model.ids import TaskId
from drover.pipeline import (
    FailTask,
    PassReport,
    Pipeline,
    Step,
    Tolerate,
    sink_pipeline,
    source_pipeline,
)
from drover.pipeline.layouts import (
    KeyRequired,
    RecordRows,
    SizeLimit,
    TopicRows,
    WithTopic,
    renamable_records,
    topic_records,
)
from drover.pipeline.replay import LetterRecords, Parts, SourceLetters, WithoutErrorHeaders
from drover.pipeline.report import total
from drover.pipeline.schema_change import SchemaChange
from drover.pipeline.tracked import TrackedPipeline, TrackedRead, written_letters
from drover.record.batch import ERROR_COLUMN, ORIGINAL_TOPIC, TOPIC
from drover.transform.chain import build_chain
from drover_worker.engine.tasks.known_schemas import KnownSchemas
from drover_worker.engine.tasks.pass_reports import PassReports, log_failures
from drover_worker.engine.tasks.rejections import Rejections

_REMEDY = (
    " (errors.tolerance=all skips such records, "
    "errors.deadletterqueue.topic.name writes them to a topic)"
)


#: Topics whose size limits are asked for; the records of more topics have the client's limit.
_LIMITED_TOPICS_MAX = 100
_RENAMED_SCHEMA = READ_SCHEMA.append(pa.field(ORIGINAL_TOPIC, pa.string()))

Prepare = Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Route:
    """The steps for a batch, for previews: ``shown`` are schema.change and the transforms,
    ``before`` and ``after`` the converters.
    """

    prepare: Prepare
    before: tuple[Step, ...]
    shown: tuple[Step, ...]
    after: tuple[Step, ...]
    default_topic: str | None = None


class RecordPath:
    """Builds the pipelines for a task's batches and collects the reports about their records."""

    def __init__(
        self,
        connector_class: type[Connector],
        config: Mapping[str, Any],
        task: TaskId,
        spark: SparkSession,
        *,
        record_bytes_max: int | None = None,
        record_bytes_max_of: Callable[[str], int | None] = lambda _topic: None,
        plane: DataPlane | None = None,
        is_preview: bool = False,
    ) -> None:
        """Larger records than ``record_bytes_max`` fail individually, if the source's records are
        decoded at all. Dead letters are cut to ``record_bytes_max_of`` their topic.
        ``plane`` has the topics that a source writes to, which may need keys. The Java steps of a
        preview run in JVMs that no running task uses.
        """
        self._plane = plane
        self._creation: TopicCreation | None = None
        self._record_bytes_max = record_bytes_max
        self._record_bytes_max_of = record_bytes_max_of
        self._dead_letters: DeadLetterWriter | None = None
        self._class = connector_class
        self._config = config
        self._task = task
        self._is_preview = is_preview
        self._spark = spark
        self.errors = ErrorSettings.of(config)
        self.replay = Replay.of(config)
        #: Dead letters that are not replayed, by partition and offset, with the reason.
        self.refused_letters: Mapping[tuple[int, int], str] = {}
        #: Keys and values for dead letters, by partition and offset, in dry runs.
        self.repairs: Mapping[tuple[int, int], Parts] = {}
        self._transforms = build_chain(config)
        self._isolate(self._steps)
        #: By whether the records are structured. Each may hold a JVM until ``close``.
        self._found_converters: dict[bool, tuple[Converter, Converter, Converter]] = {}
        self._reports = PassReports(spark)
        self._rejections: Rejections | None = None
        self._schemas = KnownSchemas(SchemaChange(config[SCHEMA_CHANGE]), task)

    def rows_of(self, batch: SourceBatch) -> DataFrame | ArrowRows:
        """The rows of a batch as executors read them."""
        if isinstance(batch.frame, pa.Table):
            return rows_of_table(self._spark, batch.frame)
        return batch.frame

    def source_route(self, batch: SourceBatch | None, *, framed: bool = False) -> Route:
        """The steps for a batch of a source; None is for an empty one. For ``framed`` see
        EncodeRecords.
        """
        layout = None if batch is None else batch.layout
        structured = self._class.structured or layout is not None
        topic = None if batch is None else batch.topic
        prepare = layout or RecordRows(text=self._class.text)
        return Route(
            prepare=prepare if topic is None else WithTopic(prepare, topic),
            before=self._exchanged(structured=structured),
            shown=(*self._schemas.steps(topic), *self._transforms),
            after=self._to_topic(structured=structured, batch=batch, framed=framed),
            default_topic=topic,
        )

    def sink_route(self, *, replayed: bool = False) -> Route:
        """The steps for a batch of a sink, which receives structured values or bytes; with
        ``replayed`` for a batch of dead letters.
        """
        structured = self._class.structured
        converters = self._converters(structured=structured)
        kind = self._class.exchanged or PrintingConverter
        if self._class.exchanged and self._is_identity(structured=structured):
            kind = ByteArrayConverter  # the JVM has the connector's converters
        keys, values = with_defaults(kind, is_key=True), with_defaults(kind)
        rows = TopicRows(_RENAMED_SCHEMA if self._keeps_topics(replayed) else READ_SCHEMA)
        to_bytes = (EncodeRecords(keys, values, converters[2]), rows)
        after: tuple[Step, ...] = () if structured else to_bytes
        prepare: Prepare = renamable_records if self._transforms else topic_records
        if replayed:
            prepare, after = self._letters(), (WithoutErrorHeaders(), *after)
        return Route(
            prepare=prepare,
            # headers stay raw bytes: no transform reads their values
            before=(DecodeRecords(converters[0], converters[1]),),
            shown=(*self._schemas.steps(None), *self._transforms),
            after=after,
        )

    def dead_letter_route(self) -> Route:
        """The steps for a source's dead letters."""
        structured = self._class.structured
        letters = SourceLetters(self._letters(), structured=structured, text=self._class.text)
        return Route(
            prepare=letters,
            before=(),
            shown=(*self._schemas.steps(None), *self._transforms),
            after=(WithoutErrorHeaders(), *self._to_topic(structured=structured)),
        )

    def replayed_source_batch(
        self, plane: DataPlane, plan: ReadPlan
    ) -> tuple[ArrowRows, ArrowFunction]:
        """A source's dead letters, and the executor function that makes records of them."""
        self.begin_pass()
        route = self.dead_letter_route()
        pipeline = source_pipeline(
            prepare=route.prepare,
            transforms=route.shown,
            converters=route.after,
            policy=self._policy(in_batch=True),
        )
        tracked = TrackedPipeline(pipeline, self._reports.sender, current_spark_partition)
        return plane.rows(self._spark, plan), tracked

    @property
    def only_topic(self) -> str | None:
        """The only topic of the config; None if there are several."""
        named: Sequence[str] = self._config.get(TOPICS) or ()
        if issubclass(self._class, SourceConnector):
            named = [topic for topic in (self._config.get(TOPIC),) if isinstance(topic, str)]
        return named[0] if len(named) == 1 else None

    @property
    def has_transforms(self) -> bool:
        """Whether records pass any transform."""
        return bool(self._transforms)

    def letter_converters(self) -> tuple[Converter, Converter]:
        """The converters for the keys and the values of dead letters, as their records had them."""
        if issubclass(self._class, SinkConnector):
            key, value, _ = self._converters(structured=self._class.structured)
            return key, value
        if self._class.structured:
            plain = JsonConverter.config_def().parse({"schemas.enable": "false"}).values
            return JsonConverter(plain, is_key=True), JsonConverter(plain, is_key=False)
        kind = StringConverter if self._class.text else ByteArrayConverter
        return with_defaults(kind, is_key=True), with_defaults(kind)

    @property
    def letter_decoder(self) -> LenientDecoder:
        """Decodes dead letters for conditions, as the viewer does."""
        return LenientDecoder(self._letter_side(KEY_CONVERTER), self._letter_side(VALUE_CONVERTER))

    def _letters(self) -> LetterRecords:
        """Reads dead letters; one without a topic header belongs to the config's only topic."""
        conditions = self.replay.conditions if self.replay else ()
        return LetterRecords(
            self.only_topic,
            conditions,
            self.letter_decoder,
            refused=self.refused_letters,
            repairs=self.repairs,
        )

    def _letter_side(self, setting: str) -> Converter:
        """Decodes keys or values of dead letters for conditions, as the viewer does."""
        if self._config.get(setting) and not issubclass(self._class, SourceConnector):
            return self._converters(structured=False)[CONVERTER_SETTINGS.index(setting)]
        return Guess({}, is_key=setting == KEY_CONVERTER)

    def source_batch(self, batch: SourceBatch) -> tuple[DataFrame | ArrowRows, ArrowFunction]:
        """The rows of a batch, and the executor function that makes records of them."""
        self.begin_pass()
        rows = self.rows_of(batch)
        is_identity = self._is_identity(
            structured=self._class.structured or batch.layout is not None
        )
        is_unlimited = self._record_bytes_max is None or not self.errors.tolerate
        has_errors = isinstance(rows, ArrowRows) and ERROR_COLUMN in (rows.ddl or "")
        if is_identity and is_unlimited and not has_errors and not self._key_check(batch):
            return rows, Pipeline()
        if self._schemas.wants(batch.topic):
            prepare = self.source_route(batch).prepare
            self._schemas.learn_from_source(rows, batch.topic, prepare)
        framed = self._plane is not None and self._plane.takes_frames
        route = self.source_route(batch, framed=framed)
        pipeline = source_pipeline(
            prepare=route.prepare,
            transforms=(*route.before, *route.shown),
            converters=route.after,
            policy=self._policy(in_batch=True),
        )
        return rows, TrackedPipeline(pipeline, self._reports.sender, current_spark_partition)

    def sink_batch(
        self,
        plane: DataPlane,
        plan: ReadPlan,
        dead_letters: DeadLetterWriter,
        *,
        replayed: bool = False,
    ) -> SinkBatch:
        """The sink's batch for a plan; with ``replayed`` the plan reads dead letters."""
        if not (replayed or self._is_identity(structured=self._class.structured)):
            self._learn(plane, plan)
        policy = self._policy(in_batch=False)
        rejections = Rejections(plane, plan, dead_letters, policy, step=self._class.__name__)
        self._rejections, self._dead_letters = rejections, dead_letters

        def made(plan: ReadPlan, first_number: int) -> SinkBatch:
            read = plane.rows(self._spark, plan, columns=self._columns(replayed=replayed))
            rows = self._sink_rows(read, dead_letters, first_number=first_number, replayed=replayed)

            def cut(by: str) -> Sequence[SinkBatch]:
                # group numbers must be unique across parts
                plans = parts_of(plan, by)
                step = max(len(each.ranges) for each in plans)
                return [made(each, number * step) for number, each in enumerate(plans)]

            return SinkBatch(rows, joined_ranges(plan), cut, rejections.reject)

        return made(plan, 0)

    def _columns(self, *, replayed: bool) -> frozenset[str]:
        """The columns that a sink's records need: all when any step reads them."""
        if replayed or not self._is_identity(structured=self._class.structured):
            return ALL_COLUMNS
        assert issubclass(self._class, SinkConnector)
        return self._class.columns

    def _learn(self, plane: DataPlane, plan: ReadPlan) -> None:
        ranges = tuple(each for each in plan.ranges if self._schemas.wants(each.topic))
        if ranges:
            topics = parts_of(ReadPlan(ranges), "topic")
            rows = [plane.rows(self._spark, each) for each in topics]
            route = self.sink_route()
            self._schemas.learn_from_topics(rows, route.prepare, route.before)

    def _sink_rows(
        self, rows: ArrowRows, writer: DeadLetterWriter, *, first_number: int, replayed: bool
    ) -> ArrowRows:
        structured = self._class.structured
        if not replayed and self._is_identity(structured=structured):
            return rows
        route = self.sink_route(replayed=replayed)
        pipeline = sink_pipeline(
            prepare=route.prepare,
            converters=route.before,
            transforms=route.shown,
            last=route.after,
            policy=self._policy(in_batch=False),
        )
        read = TrackedRead(rows.read, pipeline, self._reports.sender, writer.write, first_number)
        ddl = f"{rows.ddl}, {ORIGINAL_TOPIC} string" if self._keeps_topics(replayed) else rows.ddl
        return ArrowRows(rows.spark, read, rows.partition_count, None if structured else ddl)

    def _keeps_topics(self, replayed: bool) -> bool:
        """Whether a sink's records have the topic of their read beside their own."""
        return replayed or bool(self._transforms)

    def begin_pass(self) -> None:
        """Discard the reports of the pass before."""
        self._reports.begin()
        self._rejections = self._dead_letters = None

    def report(self, *, read_count: int) -> PassReport:
        """The report about the records since the last ``begin_pass``; logs failed records, and
        writes their dead letters.

        ``read_count`` is used when records passed unchanged and were not counted.

        Raises:
            RecordFailedError: The sink rejected a record, and errors.tolerance is none.
        """
        report = self._reports.total() or PassReport(read_count, read_count)
        rejections, self._rejections = self._rejections, None
        if rejections is not None:
            self._reports.begin()
            if rejections.settle(self._spark, self._reports.sender):
                report = total((report, self._reports.total() or PassReport()))
        if report.letters and self._dead_letters is not None:
            rows = written_letters(report.letters, self._dead_letters.write)
            report.dead_letter_rows = [*report.dead_letter_rows, *rows]
        self._schemas.log_changes(report)
        if self.errors.log:
            log_failures(report, self._task)
        return report

    def _to_topic(
        self, *, structured: bool, batch: SourceBatch | None = None, framed: bool = False
    ) -> tuple[Step, ...]:
        encode = EncodeRecords(*self._converters(structured=structured), framed=framed)
        steps: tuple[Step, ...] = (encode, *self._key_check(batch))
        limit = self._record_bytes_max
        if limit is None:
            return steps
        topics = self._targets(batch)
        by_topic = {each: self._record_bytes_max_of(each) or limit for each in topics}
        return *steps, SizeLimit(limit, by_topic)

    def _key_check(self, batch: SourceBatch | None) -> tuple[Step, ...]:
        """The step that rejects records without keys, if a topic may need them."""
        if self._plane is None:
            return ()
        if self._creation is None:
            self._creation = source_topic_creation(self._config, self.errors)
        creation = self._creation
        if batch is not None and batch.originals:
            creation = creation.for_copies(batch.originals, counts_set=False)
        is_compacted = self._plane.compacted_topics(self._targets(batch), creation)
        return () if is_compacted is None else (KeyRequired(is_compacted),)

    def _targets(self, batch: SourceBatch | None) -> list[str]:
        """The topics of a batch that are known before it is read, if their limits matter."""
        if batch is None or not self.errors.tolerate:
            return []
        found = {*batch.originals, *filter(None, (batch.topic, self._config.get(TOPIC)))}
        return sorted(found) if len(found) <= _LIMITED_TOPICS_MAX else []

    def _exchanged(self, *, structured: bool) -> tuple[Step, ...]:
        """The step that decodes the bytes that a source exchanges with Drover's steps."""
        kind = self._class.exchanged
        if kind is None or self._is_identity(structured=structured):
            return ()
        return (DecodeRecords(with_defaults(kind, is_key=True), with_defaults(kind)),)

    def _is_identity(self, *, structured: bool) -> bool:
        return not self._transforms and not structured and passes_bytes(self._config)

    def _converters(self, *, structured: bool) -> tuple[Converter, Converter, Converter]:
        """The converters of keys, values and headers."""
        if structured not in self._found_converters:
            found = (
                converter_of(self._config, KEY_CONVERTER, structured=structured),
                converter_of(self._config, VALUE_CONVERTER, structured=structured),
                converter_of(self._config, HEADER_CONVERTER, structured=structured),
            )
            self._isolate(found)
            self._found_converters[structured] = found
        return self._found_converters[structured]

    def _isolate(self, parts: Iterable[Configurable]) -> None:
        """Give transforms and converters processes of their own, if the config wants it, or for a
        preview.
        """
        if self._is_preview:
            owner = preview_owner(self._task.connector)
        elif self._config[JAVA_ISOLATION] == OF_TASK:
            owner = str(self._task)
        else:
            return
        for each in parts:
            each.belong_to(owner)

    @property
    def _steps(self) -> list[Configurable]:
        """The transforms and predicates."""
        return [part for each in self._transforms for part in each.parts]

    @property
    def holders(self) -> list[Configurable]:
        """The transforms and converters that hold something on the driver until ``close``."""
        found = (*self._steps, *chain(*self._found_converters.values()))
        return [each for each in found if type(each).close is not Configurable.close]

    def close(self) -> None:
        """Release what transforms and converters hold on the driver; may take some time."""
        for each in self.holders:
            each.close()

    def _policy(self, *, in_batch: bool) -> FailTask | Tolerate:
        if not self.errors.tolerate:
            return FailTask(_REMEDY)
        topic = self.errors.dead_letter_topic
        return Tolerate(
            connector=self._task.connector,
            task=self._task.task,
            topic=topic,
            context_headers=self.errors.context_headers,
            include_records=self.errors.log_records,
            in_batch=in_batch,
            letter_bytes_max=None if topic is None else self._record_bytes_max_of(topic),
        )


def encode_counts(report: PassReport) -> RecordCounts:
    """The counts for the herder."""
    return RecordCounts(
        read_count=report.read_count,
        written_count=report.written_count,
        filtered_count=report.filtered_count,
        dead_lettered_count=report.dead_lettered_count,
        skipped_count=report.skipped_count,
    )


def dead_letter_destination(errors: ErrorSettings) -> Destination:
    """The destination of a sink's dead letters."""
    return Destination(
        topic=errors.dead_letter_topic, creation=TopicCreation(errors.dead_letter_rule)
    )


def copies_creation(
    creation: TopicCreation, batch: SourceBatch, config: Mapping[str, Any], plane: DataPlane
) -> TopicCreation:
    """How the topics of a batch are created; copies like their originals, as far as the storage has
    their settings.
    """
    if not batch.originals:
        return creation
    counts_set = config[TOPIC_PARTITIONS] is not None or topic_creation_of(config) is not None
    return creation.for_copies(possible_rules(batch.originals, plane), counts_set=counts_set)


def possible_rules(rules: Mapping[str, TopicRule], plane: DataPlane) -> dict[str, TopicRule]:
    """Rules by topic, without settings that the storage does not have."""
    fault = plane.setting_fault
    return {
        topic: replace(rule, config={n: v for n, v in rule.config.items() if not fault(n, v)})
        for topic, rule in rules.items()
    }


def check_creation(creation: TopicCreation, plane: DataPlane) -> None:
    """Check that the storage has the settings with which a source's topics are created.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every fault.
    """
    faults = {
        Violation(name, fault): None
        for rule in creation.rules
        for name, value in rule.config.items()
        if (fault := plane.setting_fault(name, value))
    }
    if faults:
        raise InvalidArgumentError.listing(list(faults))


def parts_of(plan: ReadPlan, by: str) -> list[ReadPlan]:
    """The plan's ranges by topic or by topic partition, in order; for SinkBatch.parts."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for each in plan.ranges:
        key = (each.topic,) if by == "topic" else (each.topic, each.partition)
        groups.setdefault(key, []).append(each)
    return [ReadPlan(tuple(ranges)) for ranges in groups.values()]


def joined_ranges(plan: ReadPlan) -> list[OffsetRange]:
    """One range for each topic partition of the plan, in order."""
    joined: dict[tuple[str, int], tuple[int, int]] = {}
    for each in plan.ranges:
        key = (each.topic, each.partition)
        start, _ = joined.get(key, (each.start_offset, 0))
        joined[key] = (start, each.end_offset)
    return [OffsetRange(*key, start, end) for key, (start, end) in joined.items()]
