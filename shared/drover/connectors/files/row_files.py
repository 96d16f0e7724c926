"""Writes records as files of rows, on executors.

Files are written under hidden names; the task renames them.
"""

import io
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from drover.connector import PredictedWrite, current_spark_partition
from drover.connector.records import (
    OFFSET,
    PARTITION,
    TOPIC,
    VALUE,
    RecordError,
    base64_texts,
    dumps,
    is_binary,
    is_schemaless,
    iso_texts,
    json_texts,
    loads,
    original_topics,
)
from drover.connectors.files.partition_levels import Level, shown
from drover.connectors.refused_records import REFUSED_COLUMNS, RefusedRecord, RefusedRecordError

PARQUET, JSON, CSV = "parquet", "json", "csv"
GZIP, ZSTD, BZ2 = "gzip", "zstd", "bz2"
#: Extensions of files that are compressed as a whole.
_SUFFIXES = {GZIP: ".gz", ZSTD: ".zst", BZ2: ".bz2"}

_SCHEMA = pa.schema(
    [
        ("spark_partition", pa.int32()),
        ("staged", pa.string()),
        ("directory", pa.string()),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("row_count", pa.int64()),
        *REFUSED_COLUMNS,
    ]
)
#: S3 allows 1,024 bytes for a whole key, with the file's name and the sink's path.
_DIRECTORIES_MAX_BYTES = 600
#: More open files than this indicate a wrong setting, and exceed a process's limit.
FILES_MAX = 500
_ROW_GROUP_ROWS = 131_072
#: Marks the schema of a column that contains JSON.
_JSON_TEXTS = {b"drover.texts": b"json"}
_ROW_GROUP_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How rows become files: ``rows_max`` and ``bytes_max`` limit a file, 0 is no limit.

    ``left_out`` are fields that name directories and are not in the files; ``codec`` compresses
    Parquet internally, and other formats as a whole (gzip, zstd, bz2); None compresses neither.
    With ``null_fails`` a record without a value is an error.
    """

    format: str
    levels: tuple[Level, ...] = ()
    left_out: frozenset[str] = frozenset()
    rows_max: int = 0
    bytes_max: int = 0
    codec: str | None = "zstd"
    null_fails: bool = False


def extension_of(format_name: str, codec: str | None) -> str:
    """The extension of files."""
    return format_name + (_SUFFIXES.get(codec or "", "") if format_name != PARQUET else "")


class Staging(Protocol):
    """The staging area for files before they are published; picklable."""

    def create(self, topic: str, partition: int, name: str) -> IO[bytes]:
        """A new file to write."""

    def keep(self, file: IO[bytes], topic: str, partition: int, name: str) -> None:
        """Make a completely written file durable."""

    def discard(self, topic: str, partition: int, name: str) -> None:
        """Remove a file."""


@dataclass(frozen=True)
class RowFileWriter:
    """Writes the records of one Spark partition.

    For topic partitions in ``written``, records before the offset are skipped.
    """

    staging: Staging
    layout: FileLayout
    written: tuple[tuple[str, int, int], ...] = ()
    tolerates: bool = False

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield a row for each file, when its bytes are durable, and one for each refused record.

        Raises:
            RefusedRecordError: A record cannot be written, and ``tolerates`` is false.
        """
        files = _Files(self)
        try:
            for batch in batches:
                files.add(batch)
            rows = files.close()
        except BaseException:
            files.discard()
            raise
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)

    def is_new(self, batch: pa.RecordBatch) -> Any:
        """Which records are not written yet."""
        new = pa.array(np.ones(batch.num_rows, bool))
        for topic, partition, offset in self.written:
            own = pc.and_(
                pc.equal(original_topics(batch), topic),
                pc.equal(batch.column(PARTITION), partition),
            )
            old = pc.and_(own, pc.less(batch.column(OFFSET), offset))
            new = pc.and_(new, pc.invert(old))
        return new


class _Discarding:
    """A staging area that keeps nothing."""

    def create(self, topic: str, partition: int, name: str) -> IO[bytes]:
        """A buffer in memory."""
        del topic, partition, name
        return io.BytesIO()

    def keep(self, file: IO[bytes], topic: str, partition: int, name: str) -> None: ...

    def discard(self, topic: str, partition: int, name: str) -> None: ...


def predicted_files(
    layout: FileLayout, root: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[PredictedWrite]:
    """The directory below ``root`` of each record, or why it cannot be written; records without a
    value that are skipped are left out.
    """
    writer = RowFileWriter(_Discarding(), layout, tolerates=True)
    for batch in batches:
        for row in range(batch.num_rows):
            for answered in writer([batch.slice(row, 1)]):
                (each,) = answered.to_pylist()
                offset = batch.column(OFFSET)[row].as_py()
                place = (each["topic"], each["partition"], offset)
                if each["reason"] is None:
                    target = "/".join(filter(None, (root.rstrip("/"), each["directory"])))
                    yield PredictedWrite(*place, target)
                else:
                    yield PredictedWrite(*place, refusal=each["reason"])


class TooManyFilesError(ValueError):
    """A batch needs too many files."""


class _Files:
    """The open files, by directory, topic partition and schema, and the refused records."""

    def __init__(self, writer: RowFileWriter) -> None:
        self._writer = writer
        self._open: dict[Any, _RowFile] = {}
        self._closed: list[_RowFile] = []
        self._refused: list[RefusedRecord] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Write records; a batch that cannot be written is halved until the records are found."""
        # with tolerance, also records before the offsets are checked: a killed task may not have
        # reported them
        if self._writer.written and not self._writer.tolerates:
            batch = batch.filter(self._writer.is_new(batch))
        if not batch.num_rows:
            return
        try:
            batch, rows, directories = self._split(batch)
        except (ValueError, RecordError, RecursionError) as error:
            if batch.num_rows == 1:
                self._refuse(batch, 0, error)
                return
            middle = batch.num_rows // 2
            self.add(batch.slice(0, middle))
            self.add(batch.slice(middle))
            return
        if not batch.num_rows:
            return
        for start, end, order, directory in _runs(batch, directories):
            part = rows.slice(start, end - start) if order is None else rows.take(order)
            own = batch.slice(start, end - start) if order is None else batch.take(order)
            self._write(directory, part, own)

    def _refuse(self, batch: pa.RecordBatch, row: int, error: Exception) -> None:
        topic, partition, offset = (
            each[row].as_py()
            for each in (original_topics(batch), batch.column(PARTITION), batch.column(OFFSET))
        )
        refused = RefusedRecord(topic, partition, offset, str(error) or type(error).__name__)
        if not self._writer.tolerates:
            raise RefusedRecordError(refused) from error
        self._refused.append(refused)

    def _split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch, Any]:
        """The records to write, the columns to write of each, and its directory."""
        layout = self._writer.layout
        present = pc.is_valid(batch.column(VALUE))
        if layout.null_fails and present.false_count:
            raise ValueError(
                "it has no value: to skip such records, set behavior.on.null.values=ignore"
            )
        batch = batch.filter(present)
        value = batch.schema.field(VALUE)
        wanted = [each for each in layout.levels if each.field]
        if is_schemaless(value) and wanted:
            texts, fields = _documents(batch, wanted, layout.left_out)
            rows, found = _single_column(texts, value), fields
        elif not pa.types.is_struct(value.type) or value.type.num_fields == 0:
            if wanted and batch.num_rows:
                raise ValueError(
                    f"{wanted[0].setting} needs values with fields, and the value "
                    f"{shown(batch.column(VALUE)[0])} of topic {batch.column(TOPIC)[0]} is of type "
                    f"{value.type}: set a converter with schemas, or JSON objects without"
                )
            rows, found = _single_column(batch.column(VALUE), value), None
        else:
            columns = batch.column(VALUE).flatten()
            struct = [value.type.field(index) for index in range(value.type.num_fields)]
            # metadata of fields is for converters; files have types only
            schema = pa.schema([pa.field(each.name, each.type) for each in struct])
            found = pa.RecordBatch.from_arrays(columns, schema=schema)
            kept = [each.name for each in schema if each.name not in layout.left_out]
            if not kept:
                raise ValueError(
                    f"partition.by names every field of topic {batch.column(TOPIC)[0]}: no field "
                    "is left to write"
                )
            rows = found.select(kept)
        if layout.format == PARQUET:
            _check_parquet(rows.schema)
        directories = self._directories(batch, found)
        if self._writer.written and self._writer.tolerates:
            new = self._writer.is_new(batch)
            batch, rows = batch.filter(new), rows.filter(new)
            directories = None if directories is None else directories.filter(new)
        return batch, rows, directories

    def _directories(self, batch: pa.RecordBatch, rows: pa.RecordBatch | None) -> Any:
        """The directory of each record below the sink's path; None if all are in that path."""
        levels = [each.names(batch, rows) for each in self._writer.layout.levels]
        if not levels:
            return None
        found = pc.binary_join_element_wise(*levels, "/")
        sizes = pc.binary_length(found.cast(pa.binary()))
        if batch.num_rows and pc.max(sizes).as_py() > _DIRECTORIES_MAX_BYTES:
            raise ValueError(
                f"its directory {shown(found[0])} is longer than {_DIRECTORIES_MAX_BYTES} bytes: "
                "choose fields with shorter values"
            )
        return found

    def _write(self, directory: str, rows: pa.RecordBatch, batch: pa.RecordBatch) -> None:
        """Write records of one topic partition to one directory."""
        layout = self._writer.layout
        topic, partition = original_topics(batch)[0].as_py(), batch.column(PARTITION)[0].as_py()
        key = (directory, topic, partition)
        at = 0
        while at < rows.num_rows:
            file = self._open.get((*key, rows.schema))
            if file is None:
                if len(self._open) >= FILES_MAX:
                    raise TooManyFilesError(
                        f"a batch needs more than {FILES_MAX} files: partition.by has too many "
                        "values; choose fields with few, or larger units of time"
                    )
                file = _RowFile(self._writer, rows.schema, key)
                self._open[*key, rows.schema] = file
            count = rows.num_rows - at
            if layout.rows_max:
                count = min(count, layout.rows_max - file.row_count)
            self._add(file, rows.slice(at, count), batch.slice(at, count))
            at += count
            full = layout.rows_max and file.row_count >= layout.rows_max
            if full or (layout.bytes_max and file.size_bytes() >= layout.bytes_max):
                self._closed.append(self._open.pop((*key, rows.schema)))
                file.close()

    def _add(self, file: "_RowFile", rows: pa.RecordBatch, batch: pa.RecordBatch) -> None:
        """Add records to a file; refuse each record that its format cannot express."""
        try:
            file.add(rows, batch.column(OFFSET))
        except (RecordError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if self._writer.layout.format == PARQUET:
                raise
            if rows.num_rows == 1:
                self._refuse(batch, 0, error)
                return
            middle = rows.num_rows // 2
            self._add(file, rows.slice(0, middle), batch.slice(0, middle))
            self._add(file, rows.slice(middle), batch.slice(middle))

    def close(self) -> list[dict[str, Any]]:
        for file in self._open.values():
            if file.row_count:
                self._closed.append(file)
                file.close()
            else:  # all its records were refused
                file.discard()
        self._open.clear()
        return [*(each.described() for each in self._closed), *map(asdict, self._refused)]

    def discard(self) -> None:
        for file in (*self._open.values(), *self._closed):
            file.discard()


def _runs(batch: pa.RecordBatch, directories: Any) -> Iterator[tuple[int, int, Any, str]]:
    """The records per topic partition and directory, as slices or row numbers."""
    topics, partitions = original_topics(batch), batch.column(PARTITION)
    keys = pc.binary_join_element_wise(topics, partitions.cast(pa.string()), "/")
    if directories is not None:
        keys = pc.binary_join_element_wise(keys, directories, "/")
    encoded = keys.dictionary_encode()

    def directory_at(row: int) -> str:
        return str(directories[row].as_py()) if directories is not None else ""

    if len(encoded.dictionary) == 1:
        yield (0, batch.num_rows, None, directory_at(0))
        return
    indices = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(indices, kind="stable")
    bounds = np.flatnonzero(np.diff(indices[order])) + 1
    for rows in np.split(order, bounds):
        yield (0, 0, pa.array(rows), directory_at(int(rows[0])))


def _documents(
    batch: pa.RecordBatch, levels: Sequence[Level], left_out: frozenset[str]
) -> tuple[Any, pa.RecordBatch]:
    """JSON values without the fields of ``left_out``, and the fields for the levels.

    Raises:
        ValueError: A value is not an object or lacks a field, or a field has no common type.
    """
    texts = batch.column(VALUE)
    documents = [loads(each) for each in texts.to_pylist()]
    names = list(dict.fromkeys(each.field or "" for each in levels))
    columns = []
    for name in names:
        values = [_field_of(each, name) for each in documents]
        try:
            columns.append(pa.array(values))
        except OverflowError:
            columns.append(pa.array([None if each is None else str(each) for each in values]))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise ValueError(f"field {name!r} has the value {shown(values[0])}: {error}") from error
    if left_out:
        kept = [
            dumps({name: value for name, value in each.items() if name not in left_out})
            for each in documents
        ]
        texts = pa.array(kept, pa.string())
    return texts, pa.RecordBatch.from_arrays(columns, names=names)


def _field_of(document: Any, name: str) -> Any:
    """The value of a field of a JSON object, or of a nested field."""
    if not isinstance(document, dict):
        raise ValueError(f"its value {shown(document)} is not a JSON object, so it has no {name!r}")
    if name in document:
        return document[name]
    found = document
    for each in name.split("."):
        if not isinstance(found, dict) or each not in found:
            listed = ", ".join(document)[:200] or "none"
            raise ValueError(f"it has no field {name!r} for its directory; it has {listed}")
        found = found[each]
    return found


def _check_parquet(schema: pa.Schema) -> None:
    for each in schema:
        if _has_empty_struct(each.type):
            raise ValueError(f"field {each.name!r} has an object without fields: not in Parquet")
        if pa.types.is_interval(each.type) or pa.types.is_union(each.type):
            raise ValueError(f"field {each.name!r} is of type {each.type}: not in Parquet")


def _has_empty_struct(kind: pa.DataType) -> bool:
    fields = [kind.field(index).type for index in range(kind.num_fields)]
    return (pa.types.is_struct(kind) and not fields) or any(map(_has_empty_struct, fields))


class _Kept:
    """A file that stays open when its wrapper is closed."""

    closed = False

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw

    def write(self, data: Any) -> int:
        return self._raw.write(data)

    def tell(self) -> int:
        return self._raw.tell()

    def flush(self) -> None:
        self._raw.flush()

    def close(self) -> None: ...


class _RowFile:
    """A file that is being written."""

    def __init__(self, writer: RowFileWriter, schema: pa.Schema, key: tuple[str, str, int]) -> None:
        layout = writer.layout
        self.row_count = 0
        self._staging = writer.staging
        self._format = layout.format
        self._key = key
        self._name = uuid.uuid4().hex
        self._start: int | None = None
        self._end = 0
        self._raw = writer.staging.create(*key[1:], self._name)
        self._file: Any = self._raw
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._parquet = (
            pq.ParquetWriter(self._raw, schema, compression=layout.codec or "none")
            if layout.format == PARQUET
            else None
        )
        if self._parquet is None and layout.codec in _SUFFIXES:
            kept = pa.PythonFile(_Kept(self._raw), "w")
            self._file = pa.CompressedOutputStream(kept, layout.codec)

    def add(self, rows: pa.RecordBatch, offsets: Any) -> None:
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        self._start = first if self._start is None else min(self._start, first)
        self._end = max(self._end, last + 1)
        if self._parquet is not None:
            self._waiting.append(rows)
            self._waiting_rows += rows.num_rows
            self._waiting_bytes += rows.nbytes
            if self._waiting_rows >= _ROW_GROUP_ROWS or self._waiting_bytes >= _ROW_GROUP_BYTES:
                self._flush()
        elif self._format == JSON:
            self._file.write(_json_lines(rows))
        else:
            options = pa_csv.WriteOptions(include_header=self.row_count == 0)
            pa_csv.write_csv(_csv_columns(rows), self._file, options)
        self.row_count += rows.num_rows

    def size_bytes(self) -> int:
        """The approximate size in bytes."""
        return self._raw.tell() + self._waiting_bytes

    def close(self) -> None:
        """Make the file durable."""
        self._flush()
        if self._parquet is not None:
            self._parquet.close()
        if self._file is not self._raw:
            self._file.close()
        with self._raw:
            self._raw.flush()
            self._staging.keep(self._raw, *self._key[1:], self._name)

    def described(self) -> dict[str, Any]:
        directory, topic, partition = self._key
        return {
            "spark_partition": current_spark_partition(),
            "staged": self._name,
            "directory": directory,
            "topic": topic,
            "partition": partition,
            "start_offset": self._start,
            "end_offset": self._end,
            "row_count": self.row_count,
        }

    def discard(self) -> None:
        if self._parquet is not None and not self._raw.closed:
            self._parquet.close()  # otherwise it would write when it is garbage-collected
        self._file.close()
        self._raw.close()
        self._staging.discard(*self._key[1:], self._name)

    def _flush(self) -> None:
        if self._parquet is not None and self._waiting:
            self._parquet.write_table(
                pa.Table.from_batches(self._waiting), row_group_size=_ROW_GROUP_ROWS
            )
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0


def _single_column(values: Any, value: pa.Field) -> pa.RecordBatch:
    """Values without fields as a column; for JSON, schemaless values are whole lines."""
    metadata = None
    if is_schemaless(value) or pa.types.is_struct(values.type):
        values, metadata = json_texts(value, values), _JSON_TEXTS
    return pa.RecordBatch.from_arrays(
        [values], schema=pa.schema([(VALUE, values.type)], metadata=metadata)
    )


def _json_lines(rows: pa.RecordBatch) -> bytes:
    if rows.schema.metadata == _JSON_TEXTS:
        texts = rows.column(0)
    else:
        texts = json_texts(pa.field(VALUE, pa.struct(rows.schema)), rows.to_struct_array())
    return "\n".join([*texts.to_pylist(), ""]).encode()


def _csv_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with types that csv can represent."""
    columns = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        kind = column.type
        if pa.types.is_nested(kind):
            columns.append(json_texts(field, column))
        elif pa.types.is_temporal(kind):
            columns.append(iso_texts(column))
        elif is_binary(kind):
            columns.append(base64_texts(column))
        elif pa.types.is_decimal(kind):
            columns.append(column.cast(pa.string()))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
