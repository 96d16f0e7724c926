"""Which tables Iceberg's library can name and write."""

from typing import TYPE_CHECKING

from drover.connectors.files.storage.write_access import NAME_MAX_BYTES
from drover.connectors.lakehouse.fitted_rows import TableError

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: The latest version of the format that the library writes.
_VERSION_MAX = 2
_FILE_FORMAT, _PARQUET = "write.format.default", "parquet"
_CODEC = "write.parquet.compression-codec"
_CODECS = ("uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4")
_RENAME = (
    "name the table instead of ${topic}, or rename the topics with RegexRouter, such as "
    "transforms.table.regex=.*\\.([^.]+) and transforms.table.replacement=$1"
)


def name_fault(identifier: str, *, is_hierarchical: bool) -> str | None:
    """Why a catalogue cannot have a table of a name, and the remedy; None if it can."""
    parts = identifier.split(".")
    if not all(each.strip() for each in parts):
        return "its name has an empty part: name it NAMESPACE.TABLE"
    bad = next((each for each in parts if "/" in each or not each.isprintable()), None)
    if bad is not None:
        return f"its name has {bad[:40]!r}, which cannot be the name of a directory: {_RENAME}"
    long = next((each for each in parts if len(each.encode()) > NAME_MAX_BYTES), None)
    if long is not None:
        return f"its name has a part of more than {NAME_MAX_BYTES} bytes: {long[:40]!r}…: {_RENAME}"
    if len(parts) > 2 and not is_hierarchical:
        return (
            "a catalogue in a database has one level of namespaces (hierarchical namespaces are "
            f"not supported), and the name has {len(parts) - 1} dots: {_RENAME}"
        )
    return None


def check_writable(table: "Table") -> None:
    """Check that the library can write a table.

    Raises:
        TableError: It has a later version of the format, or files of another format.
    """
    if table.format_version > _VERSION_MAX:
        raise TableError(
            f"the table has version {table.format_version} of Iceberg's format, and the library "
            f"writes up to {_VERSION_MAX}: create the table with format-version={_VERSION_MAX}"
        )
    kind = table.properties.get(_FILE_FORMAT, _PARQUET)
    if kind.lower() != _PARQUET:
        raise TableError(
            f"the table has {_FILE_FORMAT}={kind}, and the library writes {_PARQUET} only: set "
            f"{_FILE_FORMAT}={_PARQUET} at the table; a table may have files of several formats"
        )
    codec = table.properties.get(_CODEC, "zstd").lower()
    if codec not in _CODECS:
        raise TableError(
            f"the table has {_CODEC}={codec}, which the library cannot write: set {_CODEC}=zstd at "
            "the table"
        )
