"""Which tables Delta Lake's library can name and write."""

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from drover.connector.records import is_binary, is_text
from drover.connectors.files.storage.write_access import component_fault
from drover.connectors.lakehouse.fitted_rows import TableError

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: The features of tables that deltalake 1.6 writes; it rejects commits to tables with others.
_FEATURES = {
    *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"),
    *("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"),
    *("variantType", "variantType-preview"),
}
#: The version of the protocol without a list of features that requires identity columns.
_IDENTITY_COLUMNS_VERSION = 6
_APPEND_ONLY = "delta.appendOnly"
#: In the library's error for a commit, which has the type of a conflict.
_UNSUPPORTED = re.compile(r"Unsupported table features required: \[([^\]]*)\]")


def topic_fault(topic: str) -> str | None:
    """Why ``${topic}`` of a table's URI cannot be a topic, and the remedy; None if it can."""
    fault = component_fault(topic)
    if fault is None and "%" in topic:  # the library decodes such names
        fault = "has '%', which the library takes for an encoded character"
    if fault is None:
        return None
    return (
        f"the topic {topic[:40]!r}, as the transforms name it, cannot name a table: it {fault}: "
        "rename it with RegexRouter, or name the table instead of ${topic}"
    )


def partition_fault(partitions: Collection[str], name: str, column: pa.ChunkedArray) -> str | None:
    """Why a column of ``partitions`` cannot have these values, which the table's log has as texts;
    None if it can.
    """
    if name not in partitions:
        return None
    if is_binary(column.type) and column.null_count < len(column):
        return (
            f"column {name!r} is a partition column of bytes, of which readers return other bytes: "
            "partition by another column"
        )
    if is_text(column.type) and pc.any(pc.equal(column, "")).as_py():
        return (
            f"column {name!r} is a partition column, in which Delta Lake has the empty text as "
            "null: partition by another column, or replace the text"
        )
    return None


def check_writable(table: "DeltaTable", *, keyed: bool) -> None:
    """Check that the library can write a table; ``keyed`` writes also replace rows.

    Raises:
        TableError: It requires features that the library lacks, or only rows may be added.
    """
    protocol = table.protocol()
    missing = sorted({*(protocol.writer_features or ())} - _FEATURES)
    if protocol.min_writer_version == _IDENTITY_COLUMNS_VERSION:
        missing.append("identityColumns")
    if missing:
        raise _unsupported(", ".join(missing))
    if keyed and table.metadata().configuration.get(_APPEND_ONLY) == "true":
        raise TableError(
            f"the table has {_APPEND_ONLY}=true, so no rows may be replaced or deleted: set "
            "insert.mode=append, or change the property at the table"
        )


def check_supported(error: Exception) -> None:
    """Check that a failed commit was a conflict with another writer.

    Raises:
        TableError: The library lacks a feature of the table.
    """
    found = _UNSUPPORTED.search(str(error))
    if found is not None:
        raise _unsupported(found[1]) from None


def _unsupported(features: str) -> TableError:
    return TableError(
        f"the table requires {features[:200]}, which the library cannot write: drop these features "
        "from the table (ALTER TABLE … DROP FEATURE), or write another table"
    )
