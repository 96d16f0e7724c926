"""Fields of record batches by column: the result of a walk through the records, or None."""

import re
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from drover.dataplane.kafka import record_columns
from drover.dataplane.kafka.record_batches import CODECS, Encoding
from drover.dataplane.kafka.record_columns import columns_of
from drover.dataplane.payload import PAYLOAD_SCHEMA
from tests.unit.dataplane.encoding import encoded

Record = tuple[bytes | None, bytes | None, int]

_AT_MS = 1_700_000_000_123
_ATTRIBUTES_AT = 21
_LOG_APPEND_TIME = 0x08

# bytes that look like lengths, and zeros, which start a record
_tricky = st.lists(st.sampled_from([0, 0, 1, 2, 12, 14, 28, 127, 128, 255]), max_size=150).map(
    bytes
)
_bytes = st.none() | st.binary(max_size=150) | _tricky
_times_ms = st.integers(_AT_MS - 100_000, _AT_MS + 100_000)
_records = st.lists(st.tuples(_bytes, _bytes, _times_ms), min_size=1, max_size=150)
#: No byte below 0x80, because a record's length ends in such a byte; a zero follows it.
_high_bytes = st.none() | st.lists(st.integers(0x80, 0xFF), min_size=1, max_size=150).map(bytes)
_unmistakable = st.lists(st.tuples(_high_bytes, _high_bytes, _times_ms), min_size=1, max_size=150)


@pytest.fixture(autouse=True)
def small_batches_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_columns, "LEAST_RECORDS", 1)


def batch(records: Sequence[Record], codec: str = "none", base_offset: int = 7) -> bytes:
    rows = [
        {"key": key, "value": value, "headers": None, "timestamp_ms": at_ms}
        for key, value, at_ms in records
    ]
    table = pa.RecordBatch.from_pylist(rows, PAYLOAD_SCHEMA)
    (made,) = encoded([table], Encoding(1 << 24, codec))
    return struct.pack(">q", base_offset) + made.build(1, 0, 0)[8:]


def lines(*texts: str) -> list[Record]:
    return [(None, text.encode(), _AT_MS) for text in texts]


def walked(frame: bytes) -> list[tuple[Any, ...]]:
    return [
        (record.offset, record.key, record.value, record.timestamp)
        for record in MemoryRecords(frame).next_batch()
    ]


def by_column(frame: bytes) -> list[tuple[Any, ...]] | None:
    found = columns_of(frame)
    if found is None:
        return None
    columns = (
        found.offsets.tolist(),
        found.keys.array().to_pylist(),
        found.values.array().to_pylist(),
        found.timestamps_ms.tolist(),
    )
    return list(zip(*columns, strict=True))


@given(_records, st.sampled_from(sorted(CODECS)))
def test_whatever_records_hold_what_is_found_is_what_a_walk_finds(
    records: list[Record], codec: str
) -> None:
    frame = batch(records, codec)
    assert by_column(frame) in (walked(frame), None)


@given(_unmistakable, st.sampled_from(sorted(CODECS)))
def test_records_in_which_nothing_looks_like_a_beginning_are_found(
    records: list[Record], codec: str
) -> None:
    frame = batch(records, codec)
    assert by_column(frame) == walked(frame)


def test_lines_of_text_are_found() -> None:
    words = ["", "a", "Grüße", "жнец", "\u2192 \U0001f600", "y" * 70, "z" * 9000]
    frame = batch(lines(*(f"{n} {words[n % 7]}" for n in range(300))), "lz4")
    assert by_column(frame) == walked(frame)


@pytest.mark.parametrize("count", [64, 65, 8192, 8193, 20_000])
@pytest.mark.parametrize("codec", sorted(CODECS))
def test_large_batches_are_found(codec: str, count: int) -> None:
    records = [
        (None if n % 3 else b"k%d" % n, b"x" * (n % 200) if n % 7 else None, _AT_MS + n % 90)
        for n in range(count)
    ]
    frame = batch(records, codec)
    assert by_column(frame) == walked(frame)


def test_records_in_a_records_value_are_not_taken_for_its_neighbours() -> None:
    """A topic may hold the raw records of another topic's batches."""
    inner = batch(lines(*(f"inner {n}" for n in range(50))))[61:]
    records: list[Record] = [(b"k", inner, _AT_MS), *lines("a", "b"), (inner, inner, _AT_MS)]
    frame = batch(records)
    assert by_column(frame) in (walked(frame), None)
    # "X" as a varint is 44, the length of the next record
    chained = batch(lines(*(f"{n}{'X' * 36}" for n in range(10, 50))))
    assert by_column(chained) in (walked(chained), None)


def test_the_brokers_time_counts_where_the_topic_says_so() -> None:
    frame = bytearray(batch([(None, b"a", _AT_MS), (None, b"b", _AT_MS + 5)]))
    frame[_ATTRIBUTES_AT + 1] |= _LOG_APPEND_TIME
    assert by_column(bytes(frame)) == walked(bytes(frame))
    assert [row[3] for row in walked(bytes(frame))] == [_AT_MS + 5] * 2


def test_records_with_headers_or_of_a_compacted_batch_are_left_to_a_walk() -> None:
    def built(kept: Sequence[int], headers: list[tuple[str, bytes]]) -> bytes:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
        for number in kept:
            assert builder.append(number, _AT_MS, None, b"line", headers)
        return bytes(builder.build())

    assert by_column(built([0, 1, 2], [])) is not None
    assert by_column(built([0, 1, 2], [("h", b"1")])) is None
    assert by_column(built([0, 2, 3], [])) is None


def test_few_records_are_left_to_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_columns, "LEAST_RECORDS", 3)
    assert by_column(batch(lines("a", "b"))) is None
    assert by_column(batch(lines("a", "b", "c"))) is not None


def test_what_does_not_begin_where_the_record_before_it_ends_is_no_record() -> None:
    value = b"\x0c\0\0\2\1\1\0" + b"x" * 20  # a whole record and more bytes
    frame = batch([(None, b"a", _AT_MS), (None, value, _AT_MS), (None, b"b", _AT_MS)])
    attributes_at = frame.index(value) - 5
    assert frame[attributes_at] == 0
    hidden = frame[:attributes_at] + b"\1" + frame[attributes_at + 1 :]
    assert by_column(frame) == walked(frame)
    assert by_column(hidden) is None


def test_damaged_records_are_left_to_a_walk_unless_only_what_they_hold_is_another() -> None:
    frame = batch(lines(*(f"line {n}" for n in range(300))))
    in_a_text = {at for each in re.finditer(rb"line \d+", frame) for at in range(*each.span())}
    left_count = 0
    for at in range(61, len(frame), 13):
        damaged = frame[:at] + bytes([frame[at] ^ 0x55]) + frame[at + 1 :]
        found = by_column(damaged)
        if found is None:
            left_count += 1
            assert at not in in_a_text
        else:
            # offsets of records are counted, not read
            assert [row[1:3] for row in found] == [row[1:3] for row in walked(damaged)]
    assert left_count > 0
