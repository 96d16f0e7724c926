"""Cuts growing text files into ranges of whole records, and counts their lines."""

from dataclasses import dataclass

import numpy as np

from drover.connectors.files.lines.tailed_files import LINE_MAX_BYTES
from drover.connectors.files.storage.file_identity import FileError
from drover.connectors.files.storage.readable_files import OpenFile

_BLOCK_BYTES = 256 * 1024
_SAMPLE_BYTES = 64 * 1024
_NEWLINE = 10


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes ``start`` to ``end`` - 1; the first one is in line ``first_line`` (from 1)."""

    start: int
    end: int
    first_line: int
    line_count: int


def cut_records(
    file: OpenFile,
    path: str,
    *,
    start: int,
    first_line: int,
    max_bytes: int,
    range_bytes: int,
    quote: bytes | None,
) -> list[Cut]:
    r"""The whole records from ``start`` on, about ``max_bytes`` of them, at least one if there is.

    A record ends with ``\n``; with ``quote`` only outside of quotes, which have to be paired.

    Raises:
        FileError: a record is too long.
    """
    size = file.size_bytes
    limit = min(size, start + max_bytes)
    cuts: list[Cut] = []
    position = cut_start = start
    line = cut_line = first_line
    inside = False
    while position < size and (position < limit or not cuts):
        if position - cut_start > max(LINE_MAX_BYTES, max_bytes):
            raise FileError(
                f"{path} line {cut_line}: a record of more than {LINE_MAX_BYTES} bytes cannot be "
                "read"
            )
        wanted = min(_BLOCK_BYTES, limit - position) if position < limit else _BLOCK_BYTES
        block = file.pread(wanted, position)
        if not block:
            break
        end, inside = last_end(block, quote, inside)
        if end:
            lines = block.count(b"\n", 0, end)
            cut_end = position + end
            line_count = line + lines - cut_line
            if cuts and cut_end - cuts[-1].start <= range_bytes:
                before = cuts.pop()
                cuts.append(
                    Cut(before.start, cut_end, before.first_line, before.line_count + line_count)
                )
            else:
                cuts.append(Cut(cut_start, cut_end, cut_line, line_count))
            cut_start, cut_line = cut_end, line + lines
            line += block.count(b"\n")
        else:
            line += block.count(b"\n")
        position += len(block)
    return cuts


def estimated_bytes(file: OpenFile, start: int, max_lines: int) -> int:
    """The approximate size of ``max_lines`` lines."""
    sample = file.pread(_SAMPLE_BYTES, start)
    lines = sample.count(b"\n")
    return max(1, len(sample) * max_lines // lines) if lines else _SAMPLE_BYTES


def last_end(block: bytes, quote: bytes | None, inside: bool) -> tuple[int, bool]:
    """The position after the last record's end, or 0; whether the block ends inside quotes.

    ``inside`` is whether it starts inside quotes.
    """
    if quote is None or (not inside and quote not in block):
        return block.rfind(b"\n") + 1, False
    data = np.frombuffer(block, np.uint8)
    quotes = np.cumsum(data == quote[0], dtype=np.int64) + inside
    ends = np.flatnonzero((data == _NEWLINE) & (quotes % 2 == 0))
    return (int(ends[-1]) + 1 if len(ends) else 0), bool(quotes[-1] % 2)
