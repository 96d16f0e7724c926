"""Pieces of files that executors read as rows; rows that cannot be read become error rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from drover.connector import RetriableError
from drover.connector.records import ERROR_COLUMN, ORIGIN_COLUMN, RAW_COLUMN, json_texts
from drover.connectors.ddl import parse_ddl
from drover.connectors.files.formats.avro_types import AvroRecords
from drover.connectors.files.formats.text_rows import TextOptions, parse_text
from drover.connectors.files.formats.text_types import failing, to_type
from drover.connectors.files.storage.file_identity import FileError
from drover.connectors.files.storage.object_store import ObjectStoreError
from drover.connectors.files.storage.readable_files import FileReference

_ARROW_ROWS = 65_536
_AVRO_ROWS = 8192


class Unit(Protocol):
    """A piece of a file; picklable."""

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes to read."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, each batch with ORIGIN_COLUMN; batches with ERROR_COLUMN have bad rows."""


@dataclass(frozen=True)
class UnitReader:
    """Reads groups of units by number; for ArrowRows."""

    groups: tuple[tuple[Unit, ...], ...]

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of a group, in order."""
        for each in self.groups[number]:
            yield from each.read()


@dataclass(frozen=True, slots=True)
class FileFault:
    """A file that cannot be read, as an error row."""

    path: str
    error: str
    size_bytes: int = 0

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield one error row."""
        yield _bad_rows([(self.path, b"", self.error)])


@dataclass(frozen=True, slots=True)
class TextRange:
    """Bytes ``start`` to ``end`` - 1 of a file: whole lines, starting with line ``first_line``
    (from 1).
    """

    file: FileReference
    start: int
    end: int
    first_line: int
    options: TextOptions

    @property
    def size_bytes(self) -> int:
        """See Unit."""
        return self.end - self.start

    def read(self) -> Iterator[pa.RecordBatch]:
        """See Unit."""
        path = self.file.path
        try:
            with self.file.open() as file:
                data = file.pread(self.size_bytes, self.start)
            if len(data) < self.size_bytes:
                raise FileError(
                    f"was truncated to {self.start + len(data)} bytes during the read "
                    f"of bytes up to {self.end}"
                )
        except OSError as error:
            yield _bad_rows([(f"{path}:{self.first_line}", b"", f"cannot be read: {error}")])
            return
        yield from parsed_lines(data, path, self.first_line, self.options)


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Whole lines read by the driver, starting with line ``first_line`` (from 1)."""

    path: str
    data: bytes
    first_line: int
    options: TextOptions

    @property
    def size_bytes(self) -> int:
        """See Unit."""
        return len(self.data)

    def read(self) -> Iterator[pa.RecordBatch]:
        """See Unit."""
        yield from parsed_lines(self.data, self.path, self.first_line, self.options)


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Row groups ``start`` to ``end`` - 1 of a Parquet file."""

    file: FileReference
    start: int
    end: int
    first_row: int
    size_bytes: int
    ddl: str | None

    def read(self) -> Iterator[pa.RecordBatch]:
        """See Unit; the origin has the row number, from 1."""
        row, path = self.first_row, self.file.path
        try:
            with self.file.open() as file:
                groups = list(range(self.start, self.end))
                # the old type of Spark and Hive: nanoseconds, the default, end in the year 2262
                rows = pq.ParquetFile(file.stream(), coerce_int96_timestamp_unit="us")
                for batch in rows.iter_batches(_ARROW_ROWS, groups, use_threads=False):
                    yield from _shaped_rows(batch, self.ddl, path, row)
                    row += batch.num_rows
        except (OSError, pa.ArrowException) as error:
            yield _bad_rows([(f"{path}:{row}", b"", _cannot_be_read(error))])


@dataclass(frozen=True, slots=True)
class AvroBlocks:
    """Whole blocks of an Avro file: bytes ``start`` to ``end`` - 1."""

    file: FileReference
    start: int
    end: int
    first_row: int
    ddl: str | None

    @property
    def size_bytes(self) -> int:
        """See Unit."""
        return self.end - self.start

    def read(self) -> Iterator[pa.RecordBatch]:
        """See Unit; the origin has the record number, from 1."""
        path, row = self.file.path, self.first_row
        try:
            with self.file.open() as file:
                stream = file.stream()
                blocks = fastavro.block_reader(stream)
                records = AvroRecords(blocks.writer_schema)
                stream.seek(self.start)
                rows: list[Any] = []
                for block in blocks:
                    rows += records.of_block(block)
                    done = block.offset + block.size >= self.end
                    if rows and (done or len(rows) >= _AVRO_ROWS):
                        yield from self._batches(records, rows, row)
                        row += len(rows)
                        rows = []
                    if done:
                        break
        except (RetriableError, ObjectStoreError):
            raise
        except Exception as error:  # noqa: BLE001 - the decoder raises many types on damaged data
            yield _bad_rows([(f"{path}:{row}", b"", _cannot_be_read(error))])

    def _batches(
        self, records: AvroRecords, rows: list[Any], first_row: int
    ) -> Iterator[pa.RecordBatch]:
        try:
            batch = records.batch(rows)
        except ValueError as error:
            if len(rows) == 1:
                yield _bad_rows([(f"{self.file.path}:{first_row}", b"", _cannot_be_read(error))])
                return
            half = len(rows) // 2
            yield from self._batches(records, rows[:half], first_row)
            yield from self._batches(records, rows[half:], first_row + half)
            return
        yield from _shaped_rows(batch, self.ddl, self.file.path, first_row)


def parsed_lines(
    data: bytes, origin: str, first_line: int, options: TextOptions
) -> Iterator[pa.RecordBatch]:
    """The rows of whole lines with their origin; ``first_line`` is the number of the first one."""
    parsed = parse_text(data, options, at_start=first_line == 1)
    for batch, lines in parsed.rows:
        yield _with_origin(batch, origin, pa.array(lines + first_line))
    if parsed.bad:
        yield _bad_rows(
            [(f"{origin}:{each.line + first_line}", each.raw, each.error) for each in parsed.bad]
        )


def _shaped_rows(
    batch: pa.RecordBatch, ddl: str | None, path: str, first_row: int
) -> Iterator[pa.RecordBatch]:
    """The rows in the columns and types of the schema setting, with their numbers as origins.

    Columns missing in the file are null. A row with a value that does not fit its type is an error.
    """
    numbers = _numbers(first_row, batch.num_rows)
    if ddl is None:
        yield _with_origin(batch, path, numbers)
        return
    schema = parse_ddl(ddl)
    try:
        yield _with_origin(_shaped(batch, schema), path, numbers)
        return
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        faults = _row_faults(batch, schema)
    kept = pa.array([row not in faults for row in range(batch.num_rows)])
    if len(faults) < batch.num_rows:
        yield _with_origin(_shaped(batch.filter(kept), schema), path, numbers.filter(kept))
    bad = batch.take(pa.array(sorted(faults), pa.int64()))
    raws = json_texts(pa.field("row", pa.struct(list(bad.schema))), bad.to_struct_array())
    yield _bad_rows(
        [
            (f"{path}:{first_row + row}", raw.encode(), faults[row])
            for row, raw in zip(sorted(faults), raws.to_pylist(), strict=True)
        ]
    )


def _row_faults(batch: pa.RecordBatch, schema: pa.Schema) -> dict[int, str]:
    """The errors of rows with a value that does not fit its type."""
    faults: dict[int, str] = {}
    for field in schema:
        if field.name not in batch.schema.names:
            continue
        values = batch.column(field.name)
        for row in failing(values, partial(to_type, kind=field.type)):
            text = (
                json_texts(pa.field(field.name, values.type), values.slice(row, 1))[0].as_py()
                or "null"
            )
            faults.setdefault(
                row,
                f"has {text[:80]} in column {field.name!r}, which does not fit {field.type}: "
                "change schema",
            )
    return faults


def _shaped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        to_type(batch.column(each.name), each.type)
        if each.name in batch.schema.names
        else pa.nulls(batch.num_rows, each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _numbers(first: int, count: int) -> Any:
    return pa.array(range(first, first + count), pa.int64())


def _with_origin(batch: pa.RecordBatch, path: str, numbers: Any) -> pa.RecordBatch:
    origins = pc.binary_join_element_wise(path, numbers.cast(pa.string()), ":")
    if batch.num_columns == 0:
        return pa.RecordBatch.from_arrays([origins], names=[ORIGIN_COLUMN])
    return batch.append_column(ORIGIN_COLUMN, origins)


def _bad_rows(rows: list[tuple[str, bytes, str]]) -> pa.RecordBatch:
    origins, raws, errors = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(origins), pa.array(raws, pa.binary()), pa.array(errors)],
        names=[ORIGIN_COLUMN, RAW_COLUMN, ERROR_COLUMN],
    )


def _cannot_be_read(error: BaseException) -> str:
    text = " ".join(str(error).split())[:500]
    return f"cannot be read from here: {text or type(error).__name__}"
