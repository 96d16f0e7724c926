"""Parses csv, JSON lines and plain text into rows, and collects bad lines; on executors.

A whole range is parsed at once. Only when that fails are its bad lines located; all other lines
still become rows.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from drover.connectors.ddl import parse_ddl
from drover.connectors.files.formats.exact_json import exact_rows, loses_digits, needs_exact_rows
from drover.connectors.files.formats.text_types import (
    check_whole_numbers,
    converted,
    failing,
    field_of,
    has_time,
    read_schema,
    read_type,
    to_inferred,
    to_type,
)
from drover.connectors.files.lines.line_reader import split_lines

CSV, JSON, TEXT = "csv", "json", "text"
#: The column for plain text.
LINE_COLUMN = "line"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_INT32_MAX = 2**31 - 1

Lines = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How csv is written. ``delimiter`` and ``quote`` are one ASCII character; quote may be ""."""

    delimiter: str = ","
    quote: str = '"'
    null: str = ""
    header: bool = True
    multiline: bool = False


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How a file of lines becomes rows.

    ``names`` are the columns of a csv file, in order. ``ddl`` has the types of columns; with
    ``exact`` rows have only these columns.
    """

    format: str
    names: tuple[str, ...] = ()
    ddl: str | None = None
    exact: bool = False
    csv: CsvOptions = CsvOptions()


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot be parsed: its number in the data from 0, its bytes, and the error."""

    line: int
    raw: bytes
    error: str


@dataclass(frozen=True, slots=True)
class ParsedText:
    """Rows, each batch with its line numbers in the data, from 0; and bad lines."""

    rows: list[tuple[pa.RecordBatch, Lines]]
    bad: list[BadLine]


def parse_text(data: bytes, options: TextOptions, *, at_start: bool = True) -> ParsedText:
    """Parse whole lines into rows. A mark of the byte order is ignored ``at_start`` of a file only:
    the result must not depend on where a file is cut.
    """
    records = _Records.of(_unmarked(data, at_start), options)
    parse = {CSV: _parse_csv, JSON: _parse_json, TEXT: _parse_lines}[options.format]
    rows = parse(records, options)
    records.bad.sort(key=lambda each: each.line)
    return ParsedText([each for each in rows if each[0].num_rows], records.bad)


class _Records:
    """The records of some data without those found bad so far."""

    def __init__(self, texts: Any, lines: Lines, data: bytes | None, bad: list[BadLine]) -> None:
        self.texts = texts
        self.lines = lines
        self.bad = bad
        self._data = data

    @classmethod
    def of(cls, data: bytes, options: TextOptions) -> "_Records":
        texts = split_lines(data)
        lines: Lines = np.arange(len(texts))
        whole: bytes | None = data
        quote = options.csv.quote if options.format == CSV else ""
        if quote and quote.encode() in data and options.csv.multiline:
            texts, lines = _joined(texts, quote)
        # in csv of one column an empty line is a row with null
        if options.format == JSON or (options.format == CSV and len(options.names) > 1):
            lengths = pc.binary_length(texts)
            filled = pc.greater(lengths, 1)
            if pc.any(pc.invert(filled)).as_py():
                blank = pc.is_in(texts, pa.array([b"", b"\r"], pa.binary()))
                keep = pc.invert(blank)
                texts, lines = texts.filter(keep), lines[keep.to_numpy(zero_copy_only=False)]
        found = cls(texts, lines, whole, [])
        if not _is_utf8(data):
            found.drop(
                (index, "is not UTF-8")
                for index, text in enumerate(texts.to_pylist())
                if not _decodes(text)
            )
        if quote and not options.csv.multiline and quote.encode() in data:
            odd = pc.bit_wise_and(pc.count_substring(found.texts, quote), 1)
            found.drop(
                (
                    int(index),
                    "opens a quoted field that does not end in this line: set csv.multiline=true "
                    "for multi-line fields, or csv.quote=none if quotes have no meaning",
                )
                for index in np.flatnonzero(odd.to_numpy(zero_copy_only=False))
            )
        if quote and quote.encode() in data:
            regular = pc.match_substring_regex(found.texts, _regular_csv(options.csv))
            found.drop(
                (int(index), "has text after the end of a quoted field")
                for index in np.flatnonzero(~regular.to_numpy(zero_copy_only=False))
            )
        return found

    def __len__(self) -> int:
        return len(self.texts)

    def data(self) -> bytes:
        """The records in the form of a file."""
        if self._data is None:
            self._data = b"\n".join(self.texts.to_pylist()) + b"\n"
        return self._data

    def part(self, start: int, end: int) -> "_Records":
        return _Records(self.texts.slice(start, end - start), self.lines[start:end], None, self.bad)

    def drop(self, faults: Iterable[tuple[int, str]]) -> None:
        """Remove bad records and store their errors."""
        keep = np.ones(len(self), bool)
        for index, error in faults:
            keep[index] = False
            self.bad.append(BadLine(int(self.lines[index]), self.texts[index].as_py(), error))
        if not keep.all():
            self.texts, self.lines = self.texts.filter(pa.array(keep)), self.lines[keep]
            self._data = None


def _regular_csv(csv: CsvOptions) -> str:
    """A pattern of records in which a quoted field ends with its quote (RFC 4180): Arrow's reader
    drops the quotes of other ones.
    """
    quote, delimiter = (f"\\x{ord(each):02x}" for each in (csv.quote, csv.delimiter))
    quoted = f"{quote}(?:[^{quote}]|{quote}{quote})*{quote}"
    field = f"(?:{quoted}|[^{quote}{delimiter}][^{delimiter}]*|)"
    return f"^{field}(?:{delimiter}{field})*\\r?$"


def _joined(texts: Any, quote: str) -> tuple[Any, Lines]:
    """Lines joined into records, and the number of each record's first line."""
    quotes = pc.count_substring(texts, quote).to_numpy(zero_copy_only=False)
    if not (quotes % 2).any():
        return texts, np.arange(len(texts))
    before = np.cumsum(quotes) - quotes
    starts = np.flatnonzero(before % 2 == 0)
    parts = texts.to_pylist()
    ends = np.append(starts[1:], len(parts))
    joined = [b"\n".join(parts[a:b]) for a, b in zip(starts, ends, strict=True)]
    return pa.array(joined, pa.binary()), starts.astype(np.int64)


# -- plain text ----------------------------------------------------------------------------------


def _parse_lines(records: _Records, options: TextOptions) -> list[tuple[pa.RecordBatch, Lines]]:
    del options
    texts = pc.utf8_rtrim(records.texts.cast(pa.string()), "\r")
    return [(pa.RecordBatch.from_arrays([texts], names=[LINE_COLUMN]), records.lines)]


# -- csv -----------------------------------------------------------------------------------------


def _parse_csv(records: _Records, options: TextOptions) -> list[tuple[pa.RecordBatch, Lines]]:
    if not len(records):
        return []
    types = parse_ddl(options.ddl) if options.ddl else pa.schema([])
    wanted = types.names if options.exact else list(options.names)
    schema = pa.schema([field_of(types, name) for name in wanted])
    if options.exact:
        try:
            table = _read_csv(records, options, read_schema(schema))
            if table is not None:
                for column in table.columns:
                    check_whole_numbers(column)
                return [(converted(table, schema), records.lines)]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass  # a value does not fit its type: convert column by column to find the bad ones
    texts = pa.schema([(each.name, pa.string()) for each in schema])
    table = _read_csv(records, options, texts)
    if table is None:
        return _bisected(records, lambda part: _csv_or_fail(part, options, schema))
    rows = _converted_or_dropped(table, schema, records, exact=options.exact)
    return [(rows, records.lines)]


def csv_texts(data: bytes, options: TextOptions, *, at_start: bool = True) -> pa.RecordBatch | None:
    """The columns of whole lines of csv as texts, without bad lines; None if there are no rows."""
    records = _Records.of(_unmarked(data, at_start), options)
    if not len(records):
        return None
    schema = pa.schema([(name, pa.string()) for name in options.names])
    try:
        table = _read_csv(records, options, schema)
    except pa.ArrowInvalid:
        table = None
    if table is not None:
        return table if table.num_rows else None
    parts = _bisected(records, lambda part: _texts_or_fail(part, options, schema))
    return _one_batch(pa.Table.from_batches([each for each, _ in parts], schema)) if parts else None


def _read_csv(records: _Records, options: TextOptions, schema: pa.Schema) -> pa.RecordBatch | None:
    """The records as columns; ragged ones are dropped. None when rows and records do not match."""
    ragged: list[tuple[int, str]] = []

    def note(row: Any) -> str:
        ragged.append(
            (row.number - 1, f"has {row.actual_columns} columns, not {row.expected_columns}")
        )
        return "skip"

    data = records.data()
    if data.startswith(_BYTE_ORDER_MARK):
        data = _BYTE_ORDER_MARK + data  # Arrow drops one
    table = pa_csv.read_csv(
        pa.BufferReader(data),
        read_options=pa_csv.ReadOptions(
            use_threads=False,
            column_names=list(options.names),
            block_size=min(len(data) + 1, _INT32_MAX),
        ),
        parse_options=csv_parse_options(options.csv, note, keep_empty=len(options.names) == 1),
        convert_options=csv_convert_options(options.csv, schema),
    )
    if table.num_rows + len(ragged) != len(records):
        return None
    records.drop(ragged)
    return _one_batch(table)


def csv_parse_options(
    csv: CsvOptions, note: Callable[[Any], str] | None = None, *, keep_empty: bool = False
) -> Any:
    """Pyarrow's options for parsing csv; with ``keep_empty`` an empty line is a row."""
    return pa_csv.ParseOptions(
        delimiter=csv.delimiter,
        quote_char=csv.quote or False,
        double_quote=bool(csv.quote),
        newlines_in_values=csv.multiline,
        ignore_empty_lines=not keep_empty,
        invalid_row_handler=note,
    )


def csv_convert_options(csv: CsvOptions, schema: pa.Schema) -> Any:
    """Pyarrow's options for converting values; columns missing in a file are null."""
    return pa_csv.ConvertOptions(
        column_types=schema,
        include_columns=schema.names,
        include_missing_columns=True,
        null_values=[csv.null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _csv_or_fail(records: _Records, options: TextOptions, schema: pa.Schema) -> pa.RecordBatch:
    table = _texts_or_fail(records, options, pa.schema([(n, pa.string()) for n in schema.names]))
    columns = [
        to_type(table.column(each.name), each.type)
        if options.exact
        else to_inferred(table.column(each.name), each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _texts_or_fail(records: _Records, options: TextOptions, schema: pa.Schema) -> pa.RecordBatch:
    table = _read_csv(records, options, schema)
    if table is None:
        raise pa.ArrowInvalid("is not one row: does it have a lone carriage return or quote?")
    return table


def _converted_or_dropped(
    table: pa.RecordBatch, schema: pa.Schema, records: _Records, *, exact: bool
) -> pa.RecordBatch:
    """Convert texts to values; records with a text that does not fit its type are dropped.

    Without ``exact`` the types are inferred, and a value must keep its text.
    """
    convert = to_type if exact else to_inferred
    texts_of = [
        pc.utf8_trim_whitespace(table.column(each.name))
        if exact and not pa.types.is_string(each.type)
        else table.column(each.name)
        for each in schema
    ]
    try:
        return pa.RecordBatch.from_arrays(
            [convert(texts, each.type) for texts, each in zip(texts_of, schema, strict=True)],
            schema=schema,
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    faults: dict[int, str] = {}
    for texts, field in zip(texts_of, schema, strict=True):
        for index in failing(texts, partial(convert, kind=field.type)):
            text = texts[index].as_py()
            why = "" if exact else " by its first lines: set schema"
            faults.setdefault(
                index,
                f"has {text[:80]!r} in column {field.name!r}, which is of type {field.type}{why}",
            )
    keep = np.ones(table.num_rows, bool)
    keep[list(faults)] = False
    records.drop(faults.items())
    kept = pa.array(keep)
    return pa.RecordBatch.from_arrays(
        [
            convert(column.filter(kept), field.type)
            for column, field in zip(texts_of, schema, strict=True)
        ],
        schema=schema,
    )


# -- JSON lines ----------------------------------------------------------------------------------


def _parse_json(records: _Records, options: TextOptions) -> list[tuple[pa.RecordBatch, Lines]]:
    if not len(records):
        return []
    types = parse_ddl(options.ddl) if options.ddl else pa.schema([])

    def read(part: _Records) -> pa.RecordBatch:
        return _read_json(part, types, exact=options.exact)

    try:
        return [(read(records), records.lines)]
    except pa.ArrowInvalid:
        records.drop(
            (index, fault)
            for index, text in enumerate(records.texts.to_pylist())
            if (fault := _json_fault(text))
        )
    if not len(records):
        return []
    if not options.exact:
        try:  # the type may just be wider than the stored one
            return [(_read_json(records, pa.schema([]), exact=False), records.lines)]
        except pa.ArrowInvalid:
            pass
    return _bisected(records, read)


def _read_json(records: _Records, types: pa.Schema, *, exact: bool) -> pa.RecordBatch:
    if any(needs_exact_rows(each.type) for each in types):
        return exact_rows(records.texts.to_pylist(), types, exact=exact)
    data = records.data()
    known = read_schema(types)
    table = _pa_read_json(data, known, "ignore" if exact else "infer")
    if table.num_rows != len(records):
        raise pa.ArrowInvalid("is not one JSON object")
    if loses_digits(data, records.texts, table.schema.types):
        return exact_rows(records.texts.to_pylist(), types, exact=exact)
    if not exact:
        texts = [each for each in table.schema if has_time(each.type)]
        if texts:  # text that looks like a time stays text, as in other files
            fields = [*known, *(pa.field(each.name, read_type(each.type)) for each in texts)]
            table = _pa_read_json(data, pa.schema(fields), "infer")
    batch = _one_batch(table)
    columns, fields = [], []
    for field in batch.schema:
        index = types.get_field_index(field.name)
        wanted = types.field(index) if index >= 0 else field
        if index < 0 and pa.types.is_null(field.type):
            continue  # its type is not known yet
        columns.append(to_type(batch.column(field.name), wanted.type))
        fields.append(wanted.with_nullable(True))
    if not fields:
        return _without_columns(batch.num_rows)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _pa_read_json(data: bytes, schema: pa.Schema, unexpected: str) -> pa.Table:
    return pa_json.read_json(
        pa.BufferReader(data),
        read_options=pa_json.ReadOptions(
            use_threads=False, block_size=min(len(data) + 1, _INT32_MAX)
        ),
        parse_options=pa_json.ParseOptions(
            explicit_schema=schema if len(schema) else None,
            unexpected_field_behavior=unexpected,
        ),
    )


def _json_fault(text: bytes) -> str | None:
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"is no JSON: {error}"
    except RecursionError:
        return "is nested too deep"
    return None if isinstance(value, dict) else f"is not a JSON object, but {type(value).__name__}"


# -- schemas of files ----------------------------------------------------------------------------


def inferred_types(head: bytes, options: TextOptions) -> pa.Schema:
    """Infer the types of the fields of JSON lines; fields without values are omitted."""
    for text in (head, *head.split(b"\n")[:100]):
        records = _Records.of(text.removeprefix(_BYTE_ORDER_MARK), options)
        try:
            batch = _read_json(records, pa.schema([]), exact=False) if len(records) else None
        except pa.ArrowInvalid:
            continue
        if batch is not None:
            return pa.schema([each for each in batch.schema if not _is_open(each.type)])
    return pa.schema([])


def _is_open(kind: pa.DataType) -> bool:
    """Whether the type is still undecided because there were no values."""
    if pa.types.is_null(kind):
        return True
    if pa.types.is_struct(kind) and kind.num_fields == 0:
        return True
    return any(_is_open(kind.field(index).type) for index in range(kind.num_fields))


# -- common --------------------------------------------------------------------------------------


def _bisected(
    records: _Records, read: Callable[[_Records], pa.RecordBatch]
) -> list[tuple[pa.RecordBatch, Lines]]:
    """Parse records in the largest possible parts; records that fail alone are dropped."""
    found: list[tuple[pa.RecordBatch, Lines]] = []
    parts = [records]
    while parts:
        part = parts.pop()
        if not len(part):
            continue
        try:
            batch = read(part)
            found.append((batch, part.lines))
        except pa.ArrowInvalid as error:
            if len(part) == 1:
                part.drop([(0, " ".join(str(error).split())[:500])])
                continue
            half = len(part) // 2
            parts += [part.part(half, len(part)), part.part(0, half)]
    return found


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    if table.num_columns == 0:
        return _without_columns(table.num_rows)
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_pylist([], schema=table.schema)


def _without_columns(row_count: int) -> pa.RecordBatch:
    """Rows without any field."""
    empty = pa.array([{}] * row_count, pa.struct([]))
    return pa.RecordBatch.from_struct_array(empty)


def _unmarked(data: bytes, at_start: bool) -> bytes:
    return data.removeprefix(_BYTE_ORDER_MARK) if at_start else data


def _is_utf8(data: bytes) -> bool:
    try:
        pa.array([data], pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
