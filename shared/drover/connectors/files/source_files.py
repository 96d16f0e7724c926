"""Files that are read as rows: tracks read positions and plans the next pieces, on the driver.

Executors read the pieces (``file_units``). A file is identified by its inode and a checksum of its
head (Parquet: its size and a checksum of its end; an object: its entity tag), so a replaced file is
read from its start.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from drover.connector import RetriableError
from drover.connectors.ddl import parse_ddl, to_ddl
from drover.connectors.files.file_units import (
    AvroBlocks,
    FileFault,
    RowGroups,
    TextPiece,
    TextRange,
    Unit,
)
from drover.connectors.files.formats.avro_types import arrow_schema
from drover.connectors.files.formats.compressed import CompressedFile
from drover.connectors.files.formats.text_ranges import Cut, cut_records, estimated_bytes, last_end
from drover.connectors.files.formats.text_rows import (
    CSV,
    TEXT,
    TextOptions,
    csv_parse_options,
    csv_texts,
    inferred_types,
)
from drover.connectors.files.formats.text_types import InferredTypes
from drover.connectors.files.lines.tailed_files import LINE_MAX_BYTES
from drover.connectors.files.storage.file_identity import HEAD_BYTES, FileError
from drover.connectors.files.storage.object_store import ObjectStoreError
from drover.connectors.files.storage.readable_files import Files, OpenFile

#: The range that an executor reads at once.
RANGE_BYTES = 4 * 1024 * 1024
#: The part of a file of JSON from which types are inferred.
_SAMPLE_BYTES = 1024 * 1024
_HEADER_MAX_BYTES = 16 * 1024 * 1024
#: Offset fields of an unreadable file: its size and modification time, and the error.
_FAILED, _ERROR = "failed", "error"
_COMPRESSED = "compressed_bytes"
#: The most text of a compressed file that passes the driver at once.
PIECES_MAX_BYTES = 8 * 1024 * 1024
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class SourceFile(ABC):
    """One file and its read position."""

    def __init__(self, files: Files, path: str, offset: Mapping[str, Any] | None) -> None:
        self.path = path
        self.offset: dict[str, Any] = dict(offset or {})
        self._files = files
        self._looked: tuple[int | str, ...] | None = None

    def plan(self, *, max_bytes: int, max_rows: int, settled_ns: int) -> list[Unit]:
        """The next pieces; advances ``offset`` past them. Empty when nothing is available.

        A file that was not modified since ``settled_ns`` counts as complete: its last line counts
        without a line end, and a truncated file is damaged.

        Raises:
            FileError: The file cannot be read.
        """
        look = self._files.look(self.path)
        if look is None:
            return []
        settled = look.modified_ns <= settled_ns
        known = self.offset.get(_FAILED) == list(look.changed)
        if known or (settled and self._looked == look.changed):
            return []
        for name in (_FAILED, _ERROR):
            self.offset.pop(name, None)
        if look.fault is not None:
            raise FileError(look.fault)
        with self._open() as file:
            planned = self._plan(file, max_bytes, max_rows, complete=settled)
        if not planned:
            self._looked = look.changed if settled else None
        return planned

    def fail(self, error: str) -> Unit:
        """Mark the file as failed until it changes."""
        try:
            look = self._files.look(self.path)
        except FileError:
            look = None
        self.offset[_FAILED] = list(look.changed) if look is not None else [0, 0]
        self.offset[_ERROR] = error[:500]
        return FileFault(self.path, error)

    def _open(self) -> AbstractContextManager[OpenFile]:
        """The open file, for planning pieces."""
        return self._files.open(self.path)

    @abstractmethod
    def _plan(self, file: OpenFile, max_bytes: int, max_rows: int, *, complete: bool) -> list[Unit]:
        """See ``plan``."""


class TextFile(SourceFile):
    """Lines; the offset has the byte ``position``, the number of ``lines`` before it and types."""

    def __init__(
        self,
        files: Files,
        path: str,
        options: TextOptions,
        offset: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(files, path, offset)
        self._given = options
        self._options: TextOptions | None = None

    def _plan(self, file: OpenFile, max_bytes: int, max_rows: int, *, complete: bool) -> list[Unit]:
        size = file.size_bytes
        if not file.matches(self.offset) or size < self.offset["position"]:
            self.offset = {}
            self._options = None
        elif size == self.offset["position"]:
            return []
        if self._options is None:
            self._options = self._opened(file, complete=complete)
            if self._options is None:
                return []
        start, lines = self.offset["position"], self.offset["lines"]
        if start >= size:
            return []
        csv = self._options.csv
        quote = csv.quote.encode() if self._options.format == CSV and csv.multiline else b""
        cuts = cut_records(
            file,
            self.path,
            start=start,
            first_line=lines + 1,
            max_bytes=min(max_bytes, estimated_bytes(file, start, max_rows)),
            range_bytes=RANGE_BYTES,
            quote=quote or None,
        )
        if not cuts and complete and self._is_whole(file):
            tail = file.pread(size - start, start)
            end = start + len(tail)
            cuts = [Cut(start, end, lines + 1, tail.count(b"\n") + 1)] if tail else []
        if not cuts:
            return []
        end = cuts[-1].end
        identity = file.identity(min(end, HEAD_BYTES))
        self.offset |= {
            "position": end,
            "lines": cuts[-1].first_line + cuts[-1].line_count - 1,
            **identity,
        }
        return self._units(file, cuts, identity, self._options)

    def _units(
        self, file: OpenFile, cuts: list[Cut], identity: Mapping[str, Any], options: TextOptions
    ) -> list[Unit]:
        """The pieces for executors."""
        del file
        reference = self._files.reference(self.path, identity)
        return [
            TextRange(reference, each.start, each.end, each.first_line, options) for each in cuts
        ]

    def _is_whole(self, file: OpenFile) -> bool:
        """Whether the file is complete when it was read to its current end."""
        del file
        return True

    def _opened(self, file: OpenFile, *, complete: bool) -> TextOptions | None:
        """The read options; sets the offset to the first data line. None: not yet known."""
        head = file.pread(_SAMPLE_BYTES, 0)
        complete = complete and self._is_whole(file)
        if head.startswith(_UTF16_MARKS):
            raise FileError("is UTF-16: convert it to UTF-8")
        options = self._given
        begin = 0
        if options.format == CSV:
            first = _first_line(file, head, complete=complete)
            if first is None:
                return None
            options = replace(options, names=_column_names(first, options))
            begin = len(first) if options.csv.header else 0
        if "position" not in self.offset:
            identity = file.identity(min(begin, HEAD_BYTES))
            self.offset = {"position": begin, "lines": 1 if begin else 0, **identity}
        if options.ddl is None and options.format != TEXT:
            ddl = self.offset.get("schema")
            if ddl is None:
                types = self._types(file, begin, options, complete=complete)
                if types is None:
                    return None
                ddl = self.offset["schema"] = to_ddl(types)
            options = replace(options, ddl=ddl or None)
        return options

    def _types(
        self, file: OpenFile, begin: int, options: TextOptions, *, complete: bool
    ) -> pa.Schema | None:
        """The types of the columns from ``begin`` on; None if there are no rows yet.

        The types of csv are inferred from all rows, since a later code such as 007 would lose
        digits in a number. JSON has types, so its first rows suffice.
        """
        if options.format != CSV:
            sample = _sample(file, begin, complete=complete)
            return inferred_types(sample, options) if sample else None
        types, is_empty = InferredTypes(options.names), True
        with self._scanned(file) as scanned:
            pieces = self._whole_lines(scanned, begin, options, complete=complete)
            for number, data in enumerate(pieces):
                rows = csv_texts(data, options, at_start=begin == number == 0)
                if rows is not None:
                    is_empty = False
                    if not types.add(rows):
                        break
        return None if is_empty else types.schema()

    def _scanned(self, file: OpenFile) -> AbstractContextManager[OpenFile]:
        """The file, for a pass over all its rows."""
        return nullcontext(file)

    def _whole_lines(
        self, file: OpenFile, start: int, options: TextOptions, *, complete: bool
    ) -> Iterator[bytes]:
        """Whole records in pieces of about RANGE_BYTES."""
        quote = options.csv.quote.encode() if options.csv.multiline else b""
        while cuts := cut_records(
            file,
            self.path,
            start=start,
            first_line=1,
            max_bytes=RANGE_BYTES,
            range_bytes=RANGE_BYTES,
            quote=quote or None,
        ):
            for cut in cuts:
                yield file.pread(cut.end - cut.start, cut.start)
            start = cuts[-1].end
            if isinstance(file, CompressedFile):
                file.release(start)
        if complete and self._is_whole(file):
            yield file.pread(file.size_bytes - start, start)


class CompressedTextFile(TextFile):
    """A text file that is compressed as a whole; ``position`` refers to the text, and
    ``compressed_bytes`` is the size of a file that was read to its end.

    The driver reads it, because lines are counted there, and keeps it open between plans, so that
    it is decompressed once; after a restart, or when the file has grown, it is decompressed again
    from its start to the position.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        options: TextOptions,
        codec: str,
        offset: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(files, path, options, offset)
        self._codec = codec
        self._stream: CompressedFile | None = None
        self._is_kept = False

    def _open(self) -> AbstractContextManager[OpenFile]:
        self._is_kept = self._stream is not None
        if self._stream is None:
            self._stream = CompressedFile(self._files.open(self.path), self._codec)
        return nullcontext(self._stream)

    def _plan(self, file: OpenFile, max_bytes: int, max_rows: int, *, complete: bool) -> list[Unit]:
        assert isinstance(file, CompressedFile)
        size = file.compressed_bytes
        if self.offset.get(_COMPRESSED) == size and file.matches(self.offset):
            self._close()
            return []
        self.offset.pop(_COMPRESSED, None)
        most = min(max_bytes, PIECES_MAX_BYTES)
        try:
            planned = super()._plan(file, most, max_rows, complete=complete)
            position = self.offset.get("position", 0)
            is_read = not file.pread(1, position) and position == file.size_bytes
            is_shorter = position > file.size_bytes
        except BaseException:
            self._close()
            raise
        if planned and not is_read:
            file.release(position)
            return planned
        self._close()
        if is_read and file.fault is None:
            self.offset[_COMPRESSED] = size
        if planned:
            return planned
        if is_shorter:
            self.offset = {}
            self._options = None
        if is_shorter or self._is_kept:  # read it again before reporting an error
            with self._open() as again:
                return self._plan(again, max_bytes, max_rows, complete=complete)
        if file.fault is not None and complete:
            lines = self.offset.get("lines", 0)
            raise FileError(
                f"is damaged or truncated after line {lines} (byte {position} of its text): "
                f"{file.fault}"
            )
        return []

    def _units(
        self, file: OpenFile, cuts: list[Cut], identity: Mapping[str, Any], options: TextOptions
    ) -> list[Unit]:
        del identity
        return [
            TextPiece(
                self.path, file.pread(cut.end - cut.start, cut.start), cut.first_line, options
            )
            for cut in cuts
        ]

    def _scanned(self, file: OpenFile) -> AbstractContextManager[OpenFile]:
        del file  # it holds only its current text
        return CompressedFile(self._files.open(self.path), self._codec)

    def _is_whole(self, file: OpenFile) -> bool:
        return isinstance(file, CompressedFile) and file.fault is None

    def _close(self) -> None:
        if self._stream is not None:
            with self._stream:
                self._stream = None


class ParquetFile(SourceFile):
    """Row groups; the offset has the number of the next one as ``position``, and ``rows``."""

    def __init__(
        self, files: Files, path: str, ddl: str | None, offset: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(files, path, offset)
        self._ddl = ddl

    def _plan(self, file: OpenFile, max_bytes: int, max_rows: int, *, complete: bool) -> list[Unit]:
        known = file.fingerprint()
        if known.items() <= self.offset.items() and self.offset["done"]:
            return []
        try:
            metadata = pq.ParquetFile(file.stream()).metadata
        except (OSError, pa.ArrowException) as error:
            if not complete:
                return []  # it is being written
            raise FileError(f"is not a complete Parquet file: {error}") from error
        if not known.items() <= self.offset.items():
            self.offset = {"position": 0, "rows": 0, "done": False, **known}
        units: list[Unit] = []
        reference = self._files.reference(self.path, known)
        group, row = self.offset["position"], self.offset["rows"]
        bytes_left, rows_left = max_bytes, max_rows
        while group < metadata.num_row_groups and bytes_left > 0 and rows_left > 0:
            each = metadata.row_group(group)
            units.append(
                RowGroups(reference, group, group + 1, row + 1, each.total_byte_size, self._ddl)
            )
            group, row = group + 1, row + each.num_rows
            bytes_left, rows_left = bytes_left - each.total_byte_size, rows_left - each.num_rows
        done = group == metadata.num_row_groups
        self.offset |= {"position": group, "rows": row, "done": done}
        return units


class AvroFile(SourceFile):
    """Blocks; the offset has the byte ``position`` of the next one, and ``rows``."""

    def __init__(
        self, files: Files, path: str, ddl: str | None, offset: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(files, path, offset)
        self._ddl = ddl

    def _plan(self, file: OpenFile, max_bytes: int, max_rows: int, *, complete: bool) -> list[Unit]:
        size = file.size_bytes
        if not file.matches(self.offset) or size < self.offset["position"]:
            stream = file.stream()
            try:
                arrow_schema(fastavro.block_reader(stream).writer_schema)
            except (RetriableError, ObjectStoreError):
                raise
            except Exception as error:
                if not complete:
                    return []
                raise FileError(f"cannot be read as Avro: {error}") from error
            begin = stream.tell()
            identity = file.identity(min(begin, HEAD_BYTES))
            self.offset = {"position": begin, "rows": 0, **identity}
        units: list[Unit] = []
        reference = self._files.reference(self.path, self.offset)
        start = position = self.offset["position"]
        row = first_row = self.offset["rows"]
        while (
            position - self.offset["position"] < max_bytes and row - self.offset["rows"] < max_rows
        ):
            block = _avro_block(file, position, size)
            if block is not None:
                row, position = row + block[0], block[1]
            if position > start and (block is None or position - start >= RANGE_BYTES):
                units.append(AvroBlocks(reference, start, position, first_row + 1, self._ddl))
                start, first_row = position, row
            if block is None:
                break
        if position > start:
            units.append(AvroBlocks(reference, start, position, first_row + 1, self._ddl))
        if not units and position < size and complete:
            raise FileError(f"is truncated after record {row} (byte {position} of {size})")
        self.offset |= {"position": position, "rows": row}
        return units


def _avro_block(file: OpenFile, position: int, size: int) -> tuple[int, int] | None:
    """The record count and the end of the block at ``position``; None if it is incomplete."""
    head = file.pread(20, position)
    count, at = _zigzag(head, 0)
    length, at = _zigzag(head, at)
    end = position + at + length + 16
    if at == 0 or count < 0 or length < 0 or end > size:
        return None
    return count, end


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length number and the position after it; (-1, 0) if it is truncated."""
    value = shift = 0
    for index in range(at, len(data)):
        value |= (data[index] & 0x7F) << shift
        shift += 7
        if data[index] < 0x80:
            return (value >> 1) ^ -(value & 1), index + 1
    return -1, 0


def _first_line(file: OpenFile, head: bytes, *, complete: bool) -> bytes | None:
    """The first line with its end; None if it is incomplete."""
    end = head.find(b"\n") + 1
    if end:
        return head[:end]
    size = file.size_bytes
    if size > len(head):
        head = file.pread(_HEADER_MAX_BYTES, 0)
        end = head.find(b"\n") + 1
        if end:
            return head[:end]
        if size >= _HEADER_MAX_BYTES:
            raise FileError(f"has no line end within its first {_HEADER_MAX_BYTES} bytes")
    return head if complete and head else None


def _sample(file: OpenFile, begin: int, *, complete: bool) -> bytes:
    """Whole lines from ``begin`` on; empty if there are none yet."""
    size = file.size_bytes
    for wanted in (_SAMPLE_BYTES, LINE_MAX_BYTES):
        data = file.pread(wanted, begin)
        end, _ = last_end(data, None, inside=False)
        if end:
            return data[:end]
        if begin + len(data) >= size:
            break
    return data if complete else b""


def _column_names(first_line: bytes, options: TextOptions) -> tuple[str, ...]:
    """The column names in a csv header; without one the schema's, or column_1 and so on."""
    line = first_line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
    if not line and options.csv.header:
        raise FileError("has an empty first line instead of column names")
    try:
        text = line.decode()
        row = pa_csv.read_csv(
            pa.BufferReader(line + b"\n"),
            read_options=pa_csv.ReadOptions(use_threads=False, autogenerate_column_names=True),
            parse_options=csv_parse_options(options.csv),
            convert_options=pa_csv.ConvertOptions(default_column_type=pa.string()),
        )
    except (UnicodeDecodeError, pa.ArrowException) as error:
        raise FileError(f"has a first line that is not csv: {error}") from error
    if not options.csv.header:
        count = row.num_columns
        given = _ddl_names(options)
        if given and len(given) != count:
            raise FileError(f"has {count} columns, and the schema {len(given)}")
        return given or tuple(f"column_{n + 1}" for n in range(count))
    values = [column[0].as_py() for column in row.columns] if row.num_rows else [text]
    names = tuple(name.strip() or f"column_{n + 1}" for n, name in enumerate(values))
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise FileError(f"names the column {doubled[0]!r} twice in its header")
    return names


def _ddl_names(options: TextOptions) -> tuple[str, ...]:
    return tuple(parse_ddl(options.ddl).names) if options.ddl else ()
