"""FilesSource: reads new and growing files of rows into a topic."""

import glob
import logging
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from drover.connector import (
    REPLAYED,
    TOPIC_NAME,
    All,
    ArrowRows,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConnectorContext,
    Importance,
    InRange,
    NonEmpty,
    OffsetChange,
    OffsetForm,
    OneOf,
    RetriableError,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    Violation,
    balanced_groups,
    core_count,
)
from drover.connectors.ddl import ddl_fault, parse_ddl
from drover.connectors.files.file_units import TextPiece, Unit, UnitReader
from drover.connectors.files.formats.compressed import (
    AUTO,
    BZ2,
    GZIP,
    NONE,
    ZSTD,
    codec_of,
    inner_name,
)
from drover.connectors.files.formats.text_rows import CSV, JSON, TEXT, CsvOptions, TextOptions
from drover.connectors.files.source_files import (
    PIECES_MAX_BYTES,
    AvroFile,
    CompressedTextFile,
    ParquetFile,
    SourceFile,
    TextFile,
)
from drover.connectors.files.storage.file_identity import FileError
from drover.connectors.files.storage.object_reading import ObjectFiles
from drover.connectors.files.storage.object_store import (
    STORE_SETTINGS,
    ObjectStoreError,
    is_object_url,
    place_fault,
    place_of,
)
from drover.connectors.files.storage.readable_files import Files, LocalFiles
from drover.connectors.files.storage.write_access import read_fault
from drover.connectors.key_columns import key_columns
from drover.connectors.offset_changes import refuse_misshapen

PATH = "path"
FORMAT = "format"
COMPRESSION = "compression"
TOPIC = "topic"
KEY = "key"
SCHEMA = "schema"
ORDER = "files.order"
SETTLE_MS = "files.settle.ms"
RESCAN_INTERVAL_MS = "rescan.interval.ms"
DELIMITER = "csv.delimiter"
HEADER = "csv.header"
QUOTE = "csv.quote"
NULL = "csv.null"
MULTILINE = "csv.multiline"
#: The task's files, as "index/count".
TASK_SHARE = "task.share"

PARQUET, AVRO = "parquet", "avro"
_FORMATS = {
    ".csv": CSV,
    ".tsv": CSV,
    ".json": JSON,
    ".jsonl": JSON,
    ".ndjson": JSON,
    ".parquet": PARQUET,
    ".avro": AVRO,
    ".txt": TEXT,
    ".text": TEXT,
    ".log": TEXT,
}

_log = logging.getLogger(__name__)


class FilesSourceTask(SourceTask):
    """Reads the files that are assigned to it, one after another.

    Unreadable files are reported when nothing else is left to read, so that they do not delay other
    files.
    """

    reads_ahead = True

    def start(self, context: SourceTaskContext) -> None:
        """Resume each file at its committed offset."""
        self._context = context
        index, count = context.config[TASK_SHARE].split("/")
        self._index, self._count = int(index), int(count)
        self._committed = {
            partition["path"]: offset
            for partition, offset in context.offsets()
            if "path" in partition
        }
        self._store = files_of(context.config)
        self._files: dict[str, SourceFile] = {}
        self._pending: list[SourceFile] = []
        self._faults: dict[str, str] = {}
        self._next_scan_s = 0.0
        self._ignored: set[str] = set()

    def poll(self) -> SourceBatch | None:
        """The next rows of the files, up to the limits of a batch."""
        if time.monotonic() >= self._next_scan_s:
            self._scan()
            self._next_scan_s = time.monotonic() + self._context.config[RESCAN_INTERVAL_MS] / 1000
        units, touched = self._plan()
        if not units:
            for path, error in self._faults.items():
                file = self._files[path]
                units.append(file.fail(error))
                touched.append(file)
            self._faults.clear()
        return self._batch(units, touched) if units else None

    def _plan(self) -> tuple[list[Unit], list[SourceFile]]:
        config = self._context.config
        settled_ns = time.time_ns() - config[SETTLE_MS] * 1_000_000
        bytes_left: int = config["batch.max.bytes"]
        units: list[Unit] = []
        touched: list[SourceFile] = []
        held_bytes = 0
        while self._pending and bytes_left > 0 and held_bytes < PIECES_MAX_BYTES:
            file = self._pending[0]
            try:
                planned = file.plan(
                    max_bytes=bytes_left,
                    max_rows=config["batch.max.records"],
                    settled_ns=settled_ns,
                )
            except FileError as error:
                planned = []
                self._faults[file.path] = str(error)
            if not planned:
                self._pending.pop(0)
                continue
            units += planned
            touched.append(file)
            bytes_left -= sum(each.size_bytes for each in planned)
            held_bytes += sum(each.size_bytes for each in planned if isinstance(each, TextPiece))
        return units, list(dict.fromkeys(touched))

    def _batch(self, units: list[Unit], touched: list[SourceFile]) -> SourceBatch:
        config = self._context.config
        spark = self._context.spark
        groups = balanced_groups(
            units,
            lambda each: each.size_bytes,
            group_count=core_count(spark.sparkContext),
        )
        return SourceBatch.table(
            ArrowRows(spark, UnitReader(groups), len(groups), None),
            [({"path": each.path}, dict(each.offset)) for each in touched],
            topic=config[TOPIC],
            key=key_columns(config[KEY]),
        )

    def _scan(self) -> None:
        """Find new files and queue all files for reading."""
        config = self._context.config
        found = [
            path
            for path in self._store.find(by_time=config[ORDER] == "time")
            if zlib.crc32(path.encode(errors="surrogateescape")) % self._count == self._index
        ]
        files = {}
        for path in found:
            file = self._files.get(path) or self._new_file(path)
            if file is not None:
                files[path] = file
        self._files = files
        self._pending = list(files.values())
        self._faults.clear()

    def _new_file(self, path: str) -> SourceFile | None:
        config = self._context.config
        offset = self._committed.get(path)
        codec = codec_of(path, config[COMPRESSION])
        name = inner_name(path) if codec is not None else path
        kind = config[FORMAT] or _FORMATS.get(Path(name).suffix.lower())
        if kind is None:
            self._ignore(path, "its extension is unknown: set format")
            return None
        if not path.isprintable():
            self._ignore(path, "its name has unprintable characters: rename it")
            return None
        if kind in (PARQUET, AVRO) and codec is not None:
            self._ignore(path, f"{kind} files are compressed internally, not as a whole: unpack it")
            return None
        if kind == PARQUET:
            return ParquetFile(self._store, path, config[SCHEMA], offset)
        if kind == AVRO:
            return AvroFile(self._store, path, config[SCHEMA], offset)
        options = text_options(config, kind, name)
        if codec is not None:
            return CompressedTextFile(self._store, path, options, codec, offset)
        return TextFile(self._store, path, options, offset)

    def _ignore(self, path: str, why: str) -> None:
        if path not in self._ignored:
            _log.warning("%r is skipped: %s", path, why)
            self._ignored.add(path)


class FilesSource(SourceConnector):
    """Reads files of csv, JSON lines, Parquet, Avro or plain text: each row becomes a record.

    ``path`` is a file, a directory or a glob, on a disk or in S3, Google Cloud Storage or Azure;
    new files are found automatically. Text files on a disk are read as they grow, up to the last
    complete line. A replaced file is read from its start; a renamed file counts as new. A malformed
    line, or an unreadable file, becomes one failed record, handled by the errors.* settings.

    Each file is a source partition ``{"path": path}``.
    """

    version = "0.1.0"
    aliases = ("FilesSource",)
    guarantees = REPLAYED
    offset_forms = (
        OffsetForm({"path": str}, {"position": int}),
        OffsetForm({"path": str}, {"failed": list, "error": str}),
    )
    structured: ClassVar[bool] = True
    task_class = FilesSourceTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        own = ConfigDef(
            ConfigKey(
                PATH,
                ConfigType.STRING,
                importance=Importance.HIGH,
                group="Files",
                documentation="The file, directory or glob to read, as an absolute path or as "
                "s3://bucket/directory, gs://bucket/directory, az://container/directory; in globs "
                "** matches any number of directories. In a directory, names that start with . or "
                "_ are skipped.",
                validator=All(NonEmpty(), Check(place_fault)),
            ),
            ConfigKey(
                FORMAT,
                ConfigType.STRING,
                default=None,
                importance=Importance.HIGH,
                group="Files",
                documentation="The file format: csv, json (an object per line), parquet, avro or "
                "text (each line becomes the field line). By default it is derived from the "
                "extension: .csv, .tsv, .json, .jsonl, .ndjson, .parquet, .avro, .txt, .log.",
                validator=OneOf(CSV, JSON, PARQUET, TEXT, AVRO),
            ),
            ConfigKey(
                COMPRESSION,
                ConfigType.STRING,
                default=AUTO,
                group="Files",
                documentation="The compression of csv, json and text files; auto derives it from "
                "the extension: .csv.gz, .jsonl.zst, .log.bz2 and so on. Parquet and Avro files "
                "are compressed internally.",
                validator=OneOf(AUTO, NONE, GZIP, ZSTD, BZ2),
            ),
            ConfigKey(
                TOPIC,
                ConfigType.STRING,
                importance=Importance.HIGH,
                group="Topic",
                documentation="The topic to write to.",
                validator=TOPIC_NAME,
            ),
            ConfigKey(
                KEY,
                ConfigType.LIST,
                default=None,
                group="Topic",
                documentation="The column for the record's key; several columns become a struct. "
                "Without it records have no key.",
                validator=NonEmpty(),
            ),
            ConfigKey(
                SCHEMA,
                ConfigType.STRING,
                default=None,
                group="Files",
                documentation="The columns and their types, such as: id bigint, price "
                "decimal(10,2). Columns missing in a file are null, other columns are dropped. "
                "Without a schema, types of csv are inferred from all lines of each file, and "
                "types of JSON from its values.",
                validator=Check(ddl_fault),
            ),
            ConfigKey(
                ORDER,
                ConfigType.STRING,
                default="name",
                group="Files",
                documentation="The order in which files are read: by name or by modification time.",
                validator=OneOf("name", "time"),
            ),
            ConfigKey(
                RESCAN_INTERVAL_MS,
                ConfigType.INT,
                default=2_000,
                importance=Importance.LOW,
                group="Files",
                documentation="How often to check for new and grown files.",
                validator=InRange(100, 3_600_000),
            ),
            ConfigKey(
                SETTLE_MS,
                ConfigType.INT,
                default=5_000,
                importance=Importance.LOW,
                group="Files",
                documentation="A file that was not modified for this long is complete: its last "
                "line counts without a line end, and a truncated compressed file is damaged.",
                validator=InRange(0, 86_400_000),
            ),
            *_CSV_KEYS,
        )
        return own | STORE_SETTINGS

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """No state exists outside the offsets."""
        del config
        refuse_misshapen(changes, partition={"path": str}, counts=("position",))
        for place, offset in changes:
            if offset is not None and not {"lines", "rows"} & offset.keys():
                text = f"{place}: give every field of its offset, or null to read it from the start"
                raise ValueError(text)
        return True

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """The connector object does no work: tasks list the files."""

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Files are assigned by checksums of their paths: a new file changes no task's config."""
        return [{TASK_SHARE: f"{index}/{max_tasks}"} for index in range(max_tasks)]

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """Delimiter and quote must differ, and a codec must fit the format."""
        faults = []
        delimiter, quote = config.get(DELIMITER), config.get(QUOTE)
        if delimiter is not None and delimiter == quote:
            faults.append(Violation(QUOTE, f"must not be the same as {DELIMITER}"))
        codec = config.get(COMPRESSION, AUTO)
        if config.get(FORMAT) in (PARQUET, AVRO) and codec not in (AUTO, NONE):
            text = f"must not be set with {FORMAT}={config[FORMAT]}, which is compressed internally"
            faults.append(Violation(COMPRESSION, text))
        if config.get(FORMAT) == CSV:
            types = parse_ddl(config[SCHEMA]) if config.get(SCHEMA) else ()
            faults += (
                Violation(
                    SCHEMA,
                    f"has the type {each.type} for {each.name!r}, and fields of csv are texts: "
                    "make it string",
                )
                for each in types
                if pa.types.is_nested(each.type)
            )
        return faults

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """An object store must be listable, and a file or directory readable."""
        if is_object_url(config[PATH]):
            try:
                files_of(config).find(by_time=False)
            except (ObjectStoreError, RetriableError) as error:
                return [Violation(PATH, f"cannot be read: {error}")]
        elif not glob.has_magic(config[PATH]):
            fault = read_fault(config[PATH])
            return [] if fault is None else [Violation(PATH, fault)]
        return ()


def _character_fault(text: str) -> str | None:
    if text in (r"\t", "none"):
        return None
    if len(text) != 1 or not text.isascii() or text in "\r\n\0":
        return f"must be one ASCII character, or \\t, not {text[:20]!r}"
    return None


_CSV_KEYS = (
    ConfigKey(
        DELIMITER,
        ConfigType.STRING,
        default=None,
        group="csv",
        documentation="The character between two fields, or \\t; by default a comma, or a tab in "
        "files that end in .tsv.",
        validator=Check(_character_fault),
        trimmed=False,
    ),
    ConfigKey(
        HEADER,
        ConfigType.BOOLEAN,
        default=True,
        group="csv",
        documentation="Whether the first line has the column names; otherwise they are column_1 "
        "and so on, or come from schema.",
    ),
    ConfigKey(
        QUOTE,
        ConfigType.STRING,
        default='"',
        group="csv",
        documentation="The character around fields that contain delimiters; it is doubled inside "
        "them. none for no quoting.",
        validator=Check(_character_fault),
        trimmed=False,
    ),
    ConfigKey(
        NULL,
        ConfigType.STRING,
        default="",
        group="csv",
        documentation="The text that, unquoted, means null; by default the empty text.",
        trimmed=False,
    ),
    ConfigKey(
        MULTILINE,
        ConfigType.BOOLEAN,
        default=False,
        group="csv",
        documentation="Whether quoted fields may contain line ends.",
    ),
)


def text_options(config: Mapping[str, Any], kind: str, path: str) -> TextOptions:
    """The options for reading a text file, from the settings."""
    default_delimiter = "\t" if path.lower().endswith(".tsv") else ","
    csv = CsvOptions(
        delimiter=(config[DELIMITER] or default_delimiter).replace(r"\t", "\t"),
        quote="" if config[QUOTE] == "none" else config[QUOTE],
        null=config[NULL],
        header=config[HEADER],
        multiline=config[MULTILINE],
    )
    ddl = config[SCHEMA] if kind != TEXT else None
    return TextOptions(kind, ddl=ddl, exact=ddl is not None, csv=csv)


def files_of(config: Mapping[str, Any]) -> Files:
    """The files of a parsed config."""
    path = config[PATH]
    if is_object_url(path):
        return ObjectFiles(path, place_of(path, config).options)
    return LocalFiles(path)
