"""Reads or removes the rows of an Iceberg table that have certain keys.

The library's delete by predicate has a term for each key, and ends the process at some ten thousand
keys of several columns. Here the predicate only selects files, by the bounds of the key columns;
the rows of each file are joined with the keys.
"""

import itertools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.connectors.lakehouse.rows import comparable

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata

#: The most values for which the library compares a list with the bounds of a file.
_LISTED_MAX = 200
_ROW = "__drover_row"


def remove_keys(
    transaction: "Transaction", io: Any, keys: pa.Table, properties: Mapping[str, str]
) -> int:
    """Remove the rows whose key columns equal a row of ``keys``; returns their number.

    A file with such a row is replaced by one with its other rows. One file is in memory at a time.

    Args:
        transaction: The transaction, whose schema the files are read with.
        io: Reads and writes the table's files.
        keys: The keys, without nulls.
        properties: The properties of the snapshot.
    """
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    metadata = transaction.table_metadata
    commit, counter = uuid.uuid4(), itertools.count(0)
    removed, replaced = 0, []
    for file, rows in _files(metadata, io, keys):
        hit = _matches(rows, keys)
        if not hit.any():
            continue
        removed += int(hit.sum())
        kept = rows.filter(pa.array(~hit))
        new = _dataframe_to_data_files(
            table_metadata=metadata, df=kept, io=io, write_uuid=commit, counter=counter
        )
        replaced.append((file, list(new) if kept.num_rows else []))
    if replaced:
        with transaction.update_snapshot(dict(properties)).overwrite() as snapshot:
            snapshot.commit_uuid = commit
            for file, others in replaced:
                snapshot.delete_data_file(file)
                for each in others:
                    snapshot.append_data_file(each)
    return removed


def rows_of_keys(table: "Table | None", keys: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows with these keys, with these columns as far as the table has them."""
    if table is None:
        return keys.slice(0, 0)
    known = [name for name in names if name in table.schema().column_names]
    fields = (*keys.column_names, *known)
    scan = table.scan(row_filter=bounds_of(keys), selected_fields=fields)
    reader = scan.to_arrow_batch_reader()
    found = [reader.schema.empty_table()]
    for batch in reader:
        rows = pa.table(batch)
        found.append(rows.filter(pa.array(_matches(rows, keys))))
    return pa.concat_tables(found)


def bounds_of(keys: pa.Table) -> "BooleanExpression":
    """A predicate that all rows with these keys fulfil, of at most one term for each column."""
    from pyiceberg import expressions

    library: Any = expressions  # its constructors have wrong types
    found: BooleanExpression = library.AlwaysTrue()
    for name in keys.column_names:
        column = keys.column(name)
        values = pc.unique(column)
        if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
            continue  # the library compares no column with NaN
        if len(values) <= _LISTED_MAX:
            found = library.And(found, library.In(name, values.to_pylist()))
        else:
            ends = pc.min_max(column)
            low = library.GreaterThanOrEqual(name, ends["min"].as_py())
            high = library.LessThanOrEqual(name, ends["max"].as_py())
            found = library.And(found, low, high)
    return found


def _files(metadata: "TableMetadata", io: Any, keys: pa.Table) -> Iterator[tuple[Any, pa.Table]]:
    """The data files that may have a key, and their rows."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table import DataScan

    tasks = DataScan(table_metadata=metadata, io=io, row_filter=bounds_of(keys)).plan_files()
    for task in tasks:
        scan = ArrowScan(metadata, io, metadata.schema(), AlwaysTrue())
        yield task.file, scan.to_table(tasks=[task])


def _matches(rows: pa.Table, keys: pa.Table) -> Any:
    """Which rows have a key, as an array of numpy."""
    own = comparable(rows.select(keys.column_names))
    own = own.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    schema = pa.schema([own.schema.field(name) for name in keys.column_names])
    wanted = comparable(keys.cast(schema))
    found = own.join(wanted, keys=keys.column_names, join_type="left semi").column(_ROW)
    mask = np.zeros(rows.num_rows, bool)
    mask[found.to_numpy()] = True
    return mask
