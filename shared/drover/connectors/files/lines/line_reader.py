"""Reads ranges of lines as Arrow batches, on executors."""

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.connectors.files.lines.tailed_files import ByteRange
from drover.connectors.files.storage.file_identity import FileError, open_file

LINES_DDL = "value binary"
_SCHEMA = pa.schema([("value", pa.binary())])


@dataclass(frozen=True)
class LineReader:
    """Reads groups of ranges by number; for ArrowRows."""

    groups: tuple[tuple[ByteRange, ...], ...]

    def __call__(self, number: int) -> Iterator[Any]:
        """The lines of a group, a batch per range."""
        for each in self.groups[number]:
            yield pa.RecordBatch.from_arrays([read_lines(each)], schema=_SCHEMA)


def read_lines(wanted: ByteRange) -> Any:
    r"""The lines of a range as a binary array, split on ``\n`` only and without it.

    Raises:
        FileError: The file was removed, replaced or truncated.
    """
    return split_lines(read_bytes(wanted))


def split_lines(data: bytes) -> Any:
    r"""Split ``data`` into lines; text after the last ``\n`` is a line unless it is empty."""
    length = len(data) - 1 if data.endswith(b"\n") else len(data)
    if not data:
        return pa.array([], pa.binary())
    bounds = pa.py_buffer(array("i", [0, length]).tobytes())
    whole = pa.Array.from_buffers(pa.binary(), 1, [None, bounds, pa.py_buffer(data)])
    return pc.split_pattern(whole, "\n").flatten()


def read_bytes(wanted: ByteRange) -> bytes:
    """The bytes of a range.

    Raises:
        FileError: The file was removed, replaced or truncated.
    """
    descriptor = open_file(wanted.path, wanted.identity)
    try:
        parts = []
        position = wanted.start
        while position < wanted.end:
            part = os.pread(descriptor, wanted.end - position, position)
            if not part:
                raise FileError(
                    f"{wanted.path} was truncated to {position} bytes during the read "
                    f"of bytes up to {wanted.end}"
                )
            parts.append(part)
            position += len(part)
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{wanted.path} cannot be read: {error}") from error
    finally:
        os.close(descriptor)
    return parts[0] if len(parts) == 1 else b"".join(parts)
