"""S3Sink: FilesSink with the settings and the layout of Confluent's S3 sink."""

import zoneinfo
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from drover.connector import (
    ONCE,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConnectorContext,
    Importance,
    InRange,
    Matches,
    NonEmpty,
    OffsetChange,
    OneOf,
    OverwriteKey,
    PredictedWrite,
    SinkConnector,
    SinkTaskContext,
    Term,
    TopicPartition,
    Violation,
)
from drover.connectors.aliases import S3_SINK
from drover.connectors.files.files_sink import (
    Directory,
    FilesSinkTask,
    form_faults,
    long_topics,
    set_back,
    store_faults,
    text_cautions,
)
from drover.connectors.files.levels import (
    FieldLevel,
    Level,
    PartitionLevel,
    TimeLevels,
    TopicLevel,
    strftime_of,
)
from drover.connectors.files.row_files import GZIP, JSON, PARQUET, FileLayout, predicted_files
from drover.connectors.files.storage.object_directory import CONFLUENT_NAMES, ObjectDirectory
from drover.connectors.files.storage.object_store import STORE_SETTINGS, place_of

BUCKET = "s3.bucket.name"
TOPICS_DIR = "topics.dir"
FORMAT = "format.class"
FLUSH_SIZE = "flush.size"
ROTATE_MS, ROTATE_SCHEDULE_MS = "rotate.interval.ms", "rotate.schedule.interval.ms"
BATCH_WAIT_MS = "batch.wait.ms"
PARTITIONER = "partitioner.class"
PARTITION_FIELDS = "partition.field.name"
PARTITION_MS = "partition.duration.ms"
PATH_FORMAT = "path.format"
TIMEZONE = "timezone"
EXTRACTOR = "timestamp.extractor"
TIMESTAMP_FIELD = "timestamp.field"
COMPRESSION, PARQUET_CODEC = "s3.compression.type", "parquet.codec"
NULLS = "behavior.on.null.values"

_PARTITIONERS = "io.confluent.connect.storage.partitioner."
_DAILY = "'year'=YYYY/'month'=MM/'day'=dd"
_HOURLY = f"{_DAILY}/'hour'=HH"
_RECORD, _FIELD, _WALLCLOCK = "Record", "RecordField", "Wallclock"
#: Inserted before the extension, as in Confluent's sink.
_EXTENSIONS = {
    "gzip": "gz.",
    "snappy": "snappy.",
    "lz4": "lz4.",
    "zstd": "zstd.",
    "brotli": "br.",
}
#: How long a file waits for flush.size records when no interval is set.
_WAIT_MS = 60_000


class S3SinkTask(FilesSinkTask):
    """Writes as ``FilesSinkTask``, in the layout of Confluent's S3 sink."""

    def directory(self, context: SinkTaskContext) -> Directory:
        """The directory ``topics.dir`` of the bucket."""
        return _directory(context.config, context.task.connector, context.claim)

    def layout(self, config: Mapping[str, Any]) -> FileLayout:
        """A directory per topic, then the directories of its partitioner."""
        json = _kind(config) == JSON
        codec = config[COMPRESSION] if json else config[PARQUET_CODEC]
        return FileLayout(
            _kind(config),
            (TopicLevel(), *_levels(config)),
            rows_max=config[FLUSH_SIZE],
            codec=None if codec == "none" else codec,
            null_fails=config[NULLS] == "fail",
        )


class S3Sink(SinkConnector):
    """Writes topics into an S3 bucket with the settings of Confluent's S3 sink: as JSON lines or
    Parquet, in ``topics/TOPIC/partition=0/TOPIC+0+0000000000.json``.

    A batch becomes files of at most ``flush.size`` records, ``rotate.interval.ms`` after its first
    record was seen. Each record is written once, with every partitioner.
    """

    version = "0.1.0"
    aliases = ("S3Sink", "io.confluent.connect.s3.S3SinkConnector")
    other_settings = S3_SINK
    guarantees = ONCE
    structured: ClassVar[bool] = True
    task_class = S3SinkTask

    def __init__(self) -> None:
        self._config: Mapping[str, Any] = {}

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return _SETTINGS | STORE_SETTINGS

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The settings must not contradict each other."""
        return [*long_topics(config), *_contradictions(config), *_form_faults(config)]

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The store must be writable."""
        return store_faults(config, BUCKET, _url(config))

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """Discard the files after the new offsets; a reset leaves all files."""
        set_back(_directory(config, config["name"], Term(0, 0)), changes)
        return True

    @classmethod
    def traced_offsets(
        cls, connector: str, config: Mapping[str, Any], partitions: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, int]:
        """The ends of the files, from the log, or from names in Confluent's form."""
        return _directory(config, connector, Term(0, 0)).written_offsets(partitions)

    @classmethod
    def predicted_writes(
        cls, config: Mapping[str, Any], batches: Sequence[Any]
    ) -> Iterable[PredictedWrite]:
        """The directories, and the records that cannot be written."""
        return predicted_files(S3SinkTask().layout(config), _url(config), batches)

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """The connector object does no work."""
        self._config = config

    @classmethod
    def overwrite_keys(cls, config: Mapping[str, Any]) -> Sequence[OverwriteKey]:
        """Objects are only added."""
        del config
        return ()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """All tasks have the same config, with the wait of files as the wait of batches."""
        config = self._config
        waits = [config[each] for each in (ROTATE_MS, ROTATE_SCHEDULE_MS) if config[each] > 0]
        wait_ms = config[BATCH_WAIT_MS]
        if wait_ms is None:
            wait_ms = min(waits, default=_WAIT_MS)
        return [{BATCH_WAIT_MS: str(wait_ms)} for _ in range(max_tasks)]


def _url(config: Mapping[str, Any]) -> str:
    return f"s3://{config[BUCKET]}/{config[TOPICS_DIR].strip('/')}"


def _directory(config: Mapping[str, Any], connector: str, claim: Term) -> ObjectDirectory:
    return ObjectDirectory(
        place_of(_url(config), config),
        connector=connector,
        claim=claim,
        extension=_extension(config),
        naming=CONFLUENT_NAMES,
    )


def _extension(config: Mapping[str, Any]) -> str:
    if _kind(config) == JSON:
        return "json.gz" if config[COMPRESSION] == GZIP else JSON
    return f"{_EXTENSIONS.get(config[PARQUET_CODEC], '')}{PARQUET}"


def _kind(config: Mapping[str, Any]) -> str:
    return JSON if _short(config[FORMAT]) == "JsonFormat" else PARQUET


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _levels(config: Mapping[str, Any]) -> tuple[Level, ...]:
    """The directory levels below a topic's directory."""
    kind = _short(config[PARTITIONER])
    if kind == "DefaultPartitioner":
        return (PartitionLevel(),)
    if kind == "FieldPartitioner":
        return tuple(FieldLevel(each) for each in config[PARTITION_FIELDS])
    fixed = {"DailyPartitioner": _DAILY, "HourlyPartitioner": _HOURLY}
    extractor = _short(config[EXTRACTOR]).removesuffix("TimestampExtractor")
    return (
        TimeLevels(
            strftime_of(fixed.get(kind) or config[PATH_FORMAT]),
            config[TIMEZONE] or "UTC",
            field=config[TIMESTAMP_FIELD] if extractor == _FIELD else None,
            duration_ms=config[PARTITION_MS] if kind == "TimeBasedPartitioner" else 0,
            wallclock=extractor == _WALLCLOCK,
        ),
    )


def _contradictions(config: Mapping[str, Any]) -> list[Violation]:
    kind = _short(config.get(PARTITIONER) or "")
    faults = []
    if kind == "FieldPartitioner" and not config.get(PARTITION_FIELDS):
        faults.append(Violation(PARTITION_FIELDS, "is required with FieldPartitioner"))
    if kind == "TimeBasedPartitioner" and PATH_FORMAT in config and not config[PATH_FORMAT]:
        faults.append(Violation(PATH_FORMAT, "is required with TimeBasedPartitioner"))
    return faults


def _form_faults(config: Mapping[str, Any]) -> Iterable[Violation]:
    kind = _short(config.get(PARTITIONER) or "")
    if kind == "FieldPartitioner":
        yield from form_faults(config, PARTITION_FIELDS, config.get(PARTITION_FIELDS) or ())
    extractor = _short(config.get(EXTRACTOR) or "").removesuffix("TimestampExtractor")
    if extractor == _FIELD and kind not in ("DefaultPartitioner", "FieldPartitioner"):
        yield from form_faults(config, TIMESTAMP_FIELD, [config.get(TIMESTAMP_FIELD) or "?"])
    is_text = FORMAT in config and _kind(config) == PARQUET
    yield from text_cautions(config, FORMAT, is_text=is_text)


def _path_format_fault(text: str) -> str | None:
    try:
        strftime_of(text)
    except ValueError as error:
        return str(error)
    return None


def _timezone_fault(name: str) -> str | None:
    return None if name in zoneinfo.available_timezones() else f"is not a time zone: {name[:40]!r}"


def _class_fault(*names: str, suffix: str = "") -> Check:
    def fault(text: str) -> str | None:
        if _short(text).removesuffix(suffix) in names:
            return None
        return f"must be one of {', '.join(names)}, not {text[:100]!r}"

    return Check(fault)


def _key(
    name: str,
    documentation: str,
    kind: ConfigType = ConfigType.STRING,
    group: str = "Files",
    **more: Any,
) -> ConfigKey:
    return ConfigKey(name, kind, group=group, documentation=documentation, **more)


_SETTINGS = ConfigDef(
    _key(
        BUCKET,
        "The bucket.",
        importance=Importance.HIGH,
        validator=Matches(r"[a-zA-Z0-9._-]{3,63}", "the name of a bucket"),
    ),
    _key(TOPICS_DIR, "The directory in the bucket.", default="topics", validator=NonEmpty()),
    _key(
        FORMAT,
        "The file format: JsonFormat (an object per line) or ParquetFormat.",
        importance=Importance.HIGH,
        validator=_class_fault("JsonFormat", "ParquetFormat"),
    ),
    _key(
        FLUSH_SIZE,
        "The most records per file.",
        ConfigType.INT,
        importance=Importance.HIGH,
        validator=InRange(1),
    ),
    _key(
        ROTATE_MS,
        "How long a file waits for more records, in milliseconds after the first was seen. The "
        "shorter of both intervals is used; 60 s when neither is set (-1).",
        ConfigType.LONG,
        default=-1,
    ),
    _key(
        ROTATE_SCHEDULE_MS,
        "The second interval, with the same meaning.",
        ConfigType.LONG,
        default=-1,
    ),
    _key(
        BATCH_WAIT_MS,
        "Replaces both intervals.",
        ConfigType.INT,
        default=None,
        importance=Importance.LOW,
        validator=InRange(0, 86_400_000),
    ),
    _key(
        COMPRESSION,
        "The compression of JSON files.",
        default="none",
        validator=OneOf("none", GZIP),
    ),
    _key(
        PARQUET_CODEC,
        "The compression of Parquet files.",
        default="snappy",
        validator=OneOf("none", "gzip", "snappy", "lz4", "zstd", "brotli"),
    ),
    _key(
        NULLS,
        "Whether a record without a value is an error of the record or is skipped.",
        default="fail",
        validator=OneOf("fail", "ignore"),
    ),
    _key(
        PARTITIONER,
        "The directories of a topic's files: DefaultPartitioner (partition=0), FieldPartitioner, "
        "TimeBasedPartitioner, DailyPartitioner or HourlyPartitioner.",
        group="Directories",
        default=f"{_PARTITIONERS}DefaultPartitioner",
        validator=_class_fault(
            "DefaultPartitioner",
            "FieldPartitioner",
            "TimeBasedPartitioner",
            "DailyPartitioner",
            "HourlyPartitioner",
        ),
    ),
    _key(
        PARTITION_FIELDS,
        "The fields of FieldPartitioner, one directory level each; dots for nested fields.",
        ConfigType.LIST,
        group="Directories",
        default=None,
    ),
    _key(
        PATH_FORMAT,
        "The directories of TimeBasedPartitioner, such as 'year'=YYYY/'month'=MM/'day'=dd: yyyy, "
        "MM, dd, HH, mm, ss, DDD, and quoted texts.",
        group="Directories",
        default=None,
        validator=Check(_path_format_fault),
    ),
    _key(
        PARTITION_MS,
        "Times are rounded down to a multiple of this duration in milliseconds, in local time.",
        ConfigType.LONG,
        group="Directories",
        default=0,
        validator=InRange(0),
    ),
    _key(
        TIMEZONE,
        "The time zone for the days and hours in directory names; UTC by default.",
        group="Directories",
        default=None,
        validator=Check(_timezone_fault),
    ),
    _key(
        EXTRACTOR,
        "The time that selects a record's directory: the record's timestamp (Record), a field "
        "(RecordField), or the time of writing (Wallclock).",
        group="Directories",
        default=_WALLCLOCK,
        validator=_class_fault(_RECORD, _FIELD, _WALLCLOCK, suffix="TimestampExtractor"),
    ),
    _key(
        TIMESTAMP_FIELD,
        "The field for RecordField: a time, milliseconds, or ISO 8601 text; dots for nested ones.",
        group="Directories",
        default="timestamp",
    ),
)
