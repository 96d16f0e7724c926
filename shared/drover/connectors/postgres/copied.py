"""Reads rows from PostgreSQL's COPY: columns of text, converted exactly to Arrow types."""

import io
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from drover.connector.records import decimals_of_texts

if TYPE_CHECKING:
    import psycopg
    from psycopg.pq.abc import PGresult
    from psycopg.sql import Composed

#: The approximate text size of a batch, which bounds memory.
_BATCH_BYTES = 4 * 1024 * 1024
#: How long canceling a query may take.
_CANCEL_S = 5.0
#: The encoding of a database whose texts are any bytes.
_ANY_BYTES = "SQL_ASCII"


def copied(
    connection: "psycopg.Connection[tuple[object, ...]]",
    query: "Composed | bytes",
    column_count: int,
    *,
    batch_bytes: int = _BATCH_BYTES,
) -> Iterator[list[pa.Array]]:
    """The columns of ``COPY … TO STDOUT (FORMAT csv)`` as text, some thousand rows per batch.

    A column is binary if its texts in the batch are not all UTF-8, as a database with the encoding
    SQL_ASCII allows.
    The session must format values as ``from_text`` expects them.

    Raises:
        psycopg.Error: The server refused the query.
    """
    connection.execute("SET client_encoding TO 'UTF8'")
    text = query if isinstance(query, bytes) else query.as_bytes(connection)
    if connection.info.parameter_status("server_encoding") == _ANY_BYTES:
        # otherwise the server refuses the whole query because of one text
        connection.execute("SET client_encoding TO 'SQL_ASCII'")
    for content in _contents(connection, text, batch_bytes):
        yield _columns_of(content, column_count)


def _contents(
    connection: "psycopg.Connection[tuple[object, ...]]", query: bytes, batch_bytes: int
) -> Iterator[io.BytesIO]:
    """Whole rows from libpq: psycopg's own reading prepares to wait for each row, which takes
    several times as long.
    """
    from psycopg.pq import ExecStatus

    pgconn = connection.pgconn
    _check(connection, [pgconn.exec_(query)], ExecStatus.COPY_OUT)
    coming = select.poll()
    coming.register(pgconn.socket, select.POLLIN)
    content = io.BytesIO()
    count = 0
    try:
        while count >= 0:
            count, row = pgconn.get_copy_data(1)
            if count > 0:
                content.write(row)
                if content.tell() >= batch_bytes:
                    yield content
                    content = io.BytesIO()
            elif count == 0:
                coming.poll()
                pgconn.consume_input()
    finally:
        if count >= 0:
            _leave(connection)
    _check(connection, [*iter(pgconn.get_result, None)], ExecStatus.COMMAND_OK)
    if content.tell():
        yield content


def _check(
    connection: "psycopg.Connection[tuple[object, ...]]",
    results: "Sequence[PGresult]",
    wanted: int,
) -> None:
    from psycopg.errors import error_from_result

    for each in results:
        if each.status != wanted:
            raise error_from_result(each, encoding=connection.info.encoding)


def _leave(connection: "psycopg.Connection[tuple[object, ...]]") -> None:
    """Cancel the query and discard the remaining rows."""
    import psycopg

    with suppress(psycopg.Error):
        connection.cancel_safe(timeout=_CANCEL_S)
        while connection.pgconn.get_copy_data(0)[0] > 0:
            pass
        while connection.pgconn.get_result() is not None:
            pass


def _columns_of(content: io.BytesIO, column_count: int) -> list[pa.Array]:
    data = content.getbuffer()
    try:
        return _read(data, column_count, pa.string())
    except pa.ArrowInvalid:  # a text is not UTF-8
        return [texts_of(each) for each in _read(data, column_count, pa.binary())]


def _read(data: memoryview, column_count: int, kind: pa.DataType) -> list[pa.Array]:
    names = [str(number) for number in range(column_count)]
    table = csv.read_csv(
        pa.BufferReader(data),
        # a single block, as rows may have any length
        read_options=csv.ReadOptions(
            column_names=names, block_size=data.nbytes + 1, use_threads=False
        ),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, kind),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() for column in table.columns]


def texts_of(found: pa.Array) -> pa.Array:
    """Bytes as text; binary if some are not UTF-8, for which ``from_text`` fails."""
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return found.cast(pa.binary())


def utf8(texts: pa.Array) -> pa.Array:
    """The text of ``texts_of``.

    Raises:
        pa.ArrowException: Some are not UTF-8.
    """
    return texts.cast(pa.string()) if pa.types.is_binary(texts.type) else texts


def from_text(texts: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Values from their text; the session must use ISO dates, UTC and hexadecimal bytea.

    Raises:
        pa.ArrowException, ValueError: A value does not fit the type: infinity, or a year before 1.
    """
    texts = utf8(texts)
    if texts.type == arrow_type:
        return texts
    if pa.types.is_boolean(arrow_type):
        return _booleans(texts)
    if pa.types.is_time64(arrow_type):  # Arrow parses fractions of seconds only in timestamps
        moments = pc.binary_join_element_wise("1970-01-01", texts, " ")
        return moments.cast(pa.timestamp("us")).cast(arrow_type)
    if pa.types.is_binary(arrow_type):
        return pa.array([_bytes(each) for each in texts.to_pylist()], pa.binary())
    if pa.types.is_list(arrow_type):
        return lists(texts, lambda each: from_text(each, arrow_type.value_type), arrow_type)
    if pa.types.is_decimal(arrow_type):
        return decimals_of_texts(texts, arrow_type)
    return texts.cast(arrow_type)


def lists(
    texts: pa.Array, elements: Callable[[pa.Array], pa.Array], arrow_type: pa.DataType
) -> pa.Array:
    """One-dimensional arrays from their text; ``elements`` converts the texts of all elements.

    Raises:
        ValueError: An array has more dimensions, or its own bounds.
    """
    rows = [None if each is None else parse_array(each) for each in utf8(texts).to_pylist()]
    flat = [each for row in rows if row is not None for each in row]
    offsets, at = [], 0
    for row in rows:
        offsets.append(None if row is None else at)
        at += len(row or ())
    values = elements(pa.array(flat, pa.string()))
    bounds = pa.array([*offsets, at], pa.int32())
    return pa.ListArray.from_arrays(bounds, values, type=arrow_type)


def parse_array(text: str) -> list[str | None]:
    """The elements of a one-dimensional array: ``{1,NULL,"a b"}``.

    Raises:
        ValueError: The array has more dimensions, or its own bounds.
    """
    if not text.startswith("{"):
        raise ValueError("an array whose first index is not 1")
    elements: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        if text[at] == "{":
            raise ValueError("an array of several dimensions")
        if text[at] == '"':
            characters = []
            at += 1
            while text[at] != '"':
                at += text[at] == "\\"
                characters.append(text[at])
                at += 1
            elements.append("".join(characters))
            at += 2
        else:
            stop = text.find(",", at, end)
            stop = end if stop < 0 else stop
            word = text[at:stop]
            elements.append(None if word == "NULL" else word)
            at = stop + 1
    return elements


def _booleans(texts: pa.Array) -> pa.Array:
    true = pc.equal(texts, "t")
    if not pc.all(pc.or_(true, pc.equal(texts, "f")), min_count=0).as_py():
        raise ValueError("neither true nor false")
    return true


def _bytes(text: str | None) -> bytes | None:
    if text is None:
        return None
    if not text.startswith("\\x"):
        raise ValueError("bytes that are not hexadecimal")
    return bytes.fromhex(text[2:])
