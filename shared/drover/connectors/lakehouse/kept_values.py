"""Values that a source could not send: a row keeps its former values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from drover.connector.records import OFFSET, PARTITION, original_topics
from drover.connectors.lakehouse.fitted_rows import DELETED, LACKS, LACKS_TYPE, TableError
from drover.connectors.refused_records import RefusedRecord
from drover.connectors.unavailable import Names

#: Returns a table's rows for keys, with the key columns and further columns.
ReadRows = Callable[[pa.Table, Sequence[str]], pa.Table]


@dataclass(frozen=True, slots=True)
class Lack:
    """The columns that a row lacks, and the records that could not send them, each as topic,
    partition and offset.
    """

    names: Names
    records: tuple[tuple[str, int, int], ...]


def without_unavailable(
    batch: pa.RecordBatch,
    columns: Mapping[str, pa.ChunkedArray],
    names: Sequence[Names],
    keys: Sequence[str],
) -> dict[str, pa.ChunkedArray]:
    """The columns of a batch with nulls for what its source could not send, and a column that
    names it.

    Raises:
        TableError: A key column was not sent.
    """
    found = dict(columns)
    for name in frozenset[str]().union(*names):
        if name in keys:
            raise TableError(
                f"the source could not send its {name!r}, which is a key column: set REPLICA "
                "IDENTITY FULL at the source"
            )
        if name in found:
            kept = [row if name not in each else None for row, each in enumerate(names)]
            if any(row is not None for row in kept):
                found[name] = found[name].take(pa.array(kept, pa.int64()))
            else:  # the type of a placeholder may not be the column's
                found[name] = pa.chunked_array([pa.nulls(len(kept))])
    topics, partitions, offsets = (
        column.to_pylist()
        for column in (original_topics(batch), batch.column(PARTITION), batch.column(OFFSET))
    )
    rows = [
        {"names": sorted(each), "topic": topic, "partition": partition, "offset": offset}
        if each
        else None
        for each, topic, partition, offset in zip(names, topics, partitions, offsets, strict=True)
    ]
    return {**found, LACKS: pa.chunked_array([pa.array(rows, LACKS_TYPE)])}


def filled(rows: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, dict[int, Lack]]:
    """Give rows the missing values of the earlier row with the same key.

    Returns:
        The rows without the column of ``without_unavailable``, and what rows still lack.
    """
    if LACKS not in rows.column_names:
        return rows, {}
    marks = rows.column(LACKS).to_pylist()
    deleted = rows.column(DELETED).to_pylist()
    rows = rows.drop_columns([LACKS])
    sources: dict[str, Any] = {}
    lacking: dict[int, Lack] = {}
    before: dict[tuple[Any, ...], int] = {}
    for row, key in enumerate(_key_tuples(rows, keys)):
        if marks[row] is not None:
            own = _lack(marks[row])
            former = before.get(key)
            if former is None or deleted[former]:
                lacking[row] = own
            else:
                for name in own.names & {*rows.column_names}:
                    numbers = sources.setdefault(name, np.arange(rows.num_rows))
                    numbers[row] = numbers[former]
                earlier = lacking.get(former)
                if earlier is not None and own.names & earlier.names:
                    records = (*earlier.records, *own.records)
                    lacking[row] = Lack(own.names & earlier.names, records)
        before[key] = row
    for name, numbers in sources.items():
        column = rows.column(name).combine_chunks().take(pa.array(numbers))
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows, lacking


def completed(
    rows: pa.Table, keys: Sequence[str], lacking: Mapping[int, Lack], read: ReadRows
) -> tuple[pa.Table, list[RefusedRecord]]:
    """Give rows their missing values from the table.

    Returns:
        The complete rows, and the records of rows that the table does not have.
    """
    numbers = sorted(lacking)
    wanted = rows.select(list(keys)).take(pa.array(numbers, pa.int64()))
    names = sorted(frozenset[str]().union(*(each.names for each in lacking.values())))
    found = read(wanted, names)
    places = {key: row for row, key in enumerate(_key_tuples(found, keys))}
    sources = {name: np.arange(rows.num_rows) for name in names}
    refused: list[RefusedRecord] = []
    kept = np.ones(rows.num_rows, bool)
    for row, key in zip(numbers, _key_tuples(wanted, keys), strict=True):
        lack = lacking[row]
        reason = _missing(lack.names, found, is_there=key in places)
        if reason is not None:
            refused += (RefusedRecord(*record, reason) for record in lack.records)
            kept[row] = False
            continue
        for name in lack.names:
            sources[name][row] = rows.num_rows + places[key]
    for name in names:
        if name in found.column_names:
            own = rows.column(name).combine_chunks()
            other = found.column(name).combine_chunks().cast(own.type)
            column = pa.concat_arrays([own, other]).take(pa.array(sources[name]))
            rows = rows.set_column(rows.column_names.index(name), name, column)
    return (rows.filter(pa.array(kept)) if refused else rows), refused


def _missing(names: Names, found: pa.Table, *, is_there: bool) -> str | None:
    """Why the table does not have the values that a row lacks; None if it has them."""
    if not is_there:
        return (
            "the table has no row of its key, and the source could not send the large values of "
            f"{', '.join(sorted(names))}: ALTER TABLE … REPLICA IDENTITY FULL at the source sends "
            "them; or read its table again"
        )
    absent = sorted(names - {*found.column_names})
    return f"the table has no column {absent[0]!r}, and its value was not sent" if absent else None


def _lack(mark: Mapping[str, Any]) -> Lack:
    record = mark["topic"], mark["partition"], mark["offset"]
    return Lack(frozenset(mark["names"]), (record,))


def _key_tuples(rows: pa.Table, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(rows.column(key).to_pylist() for key in keys), strict=True))
