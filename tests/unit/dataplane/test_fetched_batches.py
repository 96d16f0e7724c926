"""Record batches of brokers as rows."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from drover.dataplane.kafka import fetched_batches
from drover.dataplane.kafka.fetched_batches import CorruptBatchError, Fetched
from drover.dataplane.payload import READ_SCHEMA
from drover.dataplane.plane import ALL_COLUMNS
from drover.dataplane.values import ReadRange

_AT_MS = 1_700_000_000_123
_AT = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
_CONTROL = 0x20
_ABORT, _COMMIT = b"\0\0\0\0", b"\0\0\0\1"
_ALL = ReadRange("t", 3, 0, 10_000, 0)

_bytes = st.none() | st.binary(max_size=20)
_headers = st.lists(st.tuples(st.text(max_size=5), _bytes), max_size=2)


def batch(
    base_offset: int,
    records: Sequence[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    *,
    codec: int = 0,
    producer_id: int = -1,
    transactional: bool = False,
    marker: bool = False,
    kept: Sequence[int] | None = None,
) -> bytes:
    """A batch as brokers store it; compaction has left the offsets in ``kept``."""
    builder = DefaultRecordBatchBuilder(2, codec, transactional, producer_id, 0, 0, 1 << 20)
    for number, (key, value, headers) in enumerate(records):
        if kept is None or base_offset + number in kept:
            assert builder.append(number, _AT_MS, key, value, headers)
    built = bytearray(builder.build())
    built[0:8] = base_offset.to_bytes(8, "big")
    built[23:27] = (len(records) - 1).to_bytes(
        4, "big"
    )  # last offset delta, which compaction keeps
    if marker:
        built[22] |= _CONTROL
    built[17:21] = calc_crc32c(bytes(built[21:])).to_bytes(4, "big")
    return bytes(built)


def rows(fetched: Fetched, wanted: ReadRange = _ALL, columns: Any = ALL_COLUMNS) -> list[Any]:
    found = list(fetched.rows(wanted, columns))
    assert all(each.schema == READ_SCHEMA for each in found)
    return [row for each in found for row in each.to_pylist()]


def values(fetched: Fetched, wanted: ReadRange = _ALL) -> list[tuple[int, bytes]]:
    found = rows(fetched, wanted, frozenset({"value"}))
    return [(row["offset"], row["value"]) for row in found]


def lines(*texts: str) -> list[tuple[None, bytes, list[Any]]]:
    return [(None, text.encode(), []) for text in texts]


@given(
    st.lists(st.lists(st.tuples(_bytes, _bytes, _headers), min_size=1, max_size=5), max_size=4),
    st.integers(0, 4),
)
def test_records_become_rows_with_all_that_they_have(records: Any, codec: int) -> None:
    data, expected, base = b"", [], 7
    for some in records:
        data += batch(base, some, codec=codec)
        expected += [
            {
                "topic": "t",
                "partition": 3,
                "offset": base + number,
                "key": key,
                "value": value,
                "headers": [{"key": k, "value": v} for k, v in headers] or None,
                "timestamp": _AT,
            }
            for number, (key, value, headers) in enumerate(some)
        ]
        base += len(some)
    fetched = Fetched(data)
    assert rows(fetched) == expected
    assert fetched.next_offset == (base if records else None)
    bare = {"key": None, "headers": None, "timestamp": None}
    assert rows(fetched, columns=frozenset({"value"})) == [{**row, **bare} for row in expected]
    none = rows(fetched, columns=frozenset())
    assert none == [{**row, **bare, "value": None} for row in expected]


def test_only_the_range_is_read_of_batches_that_reach_over_its_ends() -> None:
    fetched = Fetched(batch(4, lines("a", "b", "c")) + batch(7, lines("d", "e", "f")))
    assert values(fetched, ReadRange("t", 3, 5, 8, 0)) == [(5, b"b"), (6, b"c"), (7, b"d")]


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    first, second = batch(0, lines("a")), batch(1, lines("b"))
    for length in range(len(first), len(first + second)):
        fetched = Fetched((first + second)[:length])
        assert (values(fetched), fetched.next_offset) == ([(0, b"a")], 1)
    assert Fetched(first[:-1]).next_offset is None
    assert values(Fetched(first[:-1])) == []


def test_aborted_transactions_are_passed_over_and_only_they() -> None:
    """Producer 1 aborts and then commits; producer 2 commits, and 3 has no transaction."""
    parts = [
        batch(0, lines("lost"), producer_id=1, transactional=True),
        batch(1, lines("two"), producer_id=2, transactional=True),
        batch(2, lines("plain"), producer_id=3),
        batch(3, lines("lost too"), producer_id=1, transactional=True),
        batch(4, [(_ABORT, b"", [])], producer_id=1, transactional=True, marker=True),
        batch(5, lines("one"), producer_id=1, transactional=True),
        batch(6, [(_COMMIT, b"", [])], producer_id=1, transactional=True, marker=True),
        batch(7, [(_COMMIT, b"", [])], producer_id=2, transactional=True, marker=True),
    ]
    fetched = Fetched(b"".join(parts), aborted=[(1, 0)])
    assert values(fetched) == [(1, b"two"), (2, b"plain"), (5, b"one")]
    assert fetched.next_offset == 8
    # a fetch may start in the middle of the transaction
    assert values(Fetched(b"".join(parts[2:]), aborted=[(1, 0)])) == [(2, b"plain"), (5, b"one")]


def test_a_producer_that_aborts_twice_is_passed_over_twice() -> None:
    def aborted_at(offset: int) -> bytes:
        return batch(offset, lines("lost"), producer_id=1, transactional=True) + batch(
            offset + 1, [(_ABORT, b"", [])], producer_id=1, transactional=True, marker=True
        )

    between = batch(2, lines("kept"), producer_id=1, transactional=True)
    fetched = Fetched(aborted_at(0) + between + aborted_at(3), aborted=[(1, 3), (1, 0)])
    assert values(fetched) == [(2, b"kept")]


@pytest.mark.parametrize("columns", [frozenset({"value"}), ALL_COLUMNS])
def test_records_of_a_compacted_batch_keep_their_offsets(columns: frozenset[str]) -> None:
    data = batch(5, lines("a", "b", "c", "d"), kept=[6, 8]) + batch(9, lines("e", "f"), kept=[])
    fetched = Fetched(data + batch(11, lines("g")))
    found = [(row["offset"], row["value"]) for row in rows(fetched, columns=columns)]
    assert found == [(6, b"b"), (8, b"d"), (11, b"g")]
    assert Fetched(data).next_offset == 11


@pytest.mark.parametrize("codec", [0, 1])
def test_batches_of_old_formats_are_read(codec: int) -> None:
    builder = LegacyRecordBatchBuilder(1, codec, 1 << 20)
    for offset, value in ((0, b"a"), (1, b"b")):
        assert builder.append(offset, _AT_MS, b"k", value)
    built = bytearray(builder.build())
    if codec:  # brokers give such a batch the offset of its last record
        built[0:8] = (1).to_bytes(8, "big")
    fetched = Fetched(bytes(built))
    assert values(fetched) == [(0, b"a"), (1, b"b")]
    assert [row["timestamp"] for row in rows(fetched)] == [_AT, _AT]
    assert fetched.next_offset == 2


def test_a_batch_that_was_damaged_is_not_read() -> None:
    good, bad = batch(0, lines("a")), bytearray(batch(1, lines("b")))
    bad[-2] ^= 1
    with pytest.raises(CorruptBatchError, match="offset 1"):
        rows(Fetched(good + bytes(bad)))


def test_many_small_batches_become_few_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched_batches, "RECORDS_AT_ONCE", 10)
    fetched = Fetched(b"".join(batch(n, lines(str(n))) for n in range(25)))
    sizes = [each.num_rows for each in fetched.rows(_ALL)]
    assert sizes == [10, 10, 5]
    assert [offset for offset, _ in values(fetched)] == list(range(25))


@pytest.mark.parametrize("columns", [frozenset({"value"}), ALL_COLUMNS])
def test_large_batches_and_small_ones_become_rows_together(columns: frozenset[str]) -> None:
    """Large batches are read by column, small batches and batches with headers by record."""
    large = lines(*(f"line {n}" for n in range(300)))
    odd: Any = [(b"k", b"v", [("h", b"1")]), (b"k", None, [])]
    data = batch(0, lines("a")) + batch(1, lines("b")) + batch(2, large, codec=3)
    data += batch(302, odd) + batch(304, large) + batch(604, lines("c"))
    wanted = ReadRange("t", 3, 1, 500, 0)
    (found,) = Fetched(data).rows(wanted, columns)
    assert found.column("offset").to_pylist() == list(range(1, 500))
    records = [*lines("b"), *large, *odd, *large[:196]]
    assert found.column("value").to_pylist() == [value for _, value, _ in records]
    if columns == ALL_COLUMNS:
        assert found.column("key").to_pylist() == [key for key, _, _ in records]
        headers = [[{"key": k, "value": v} for k, v in each] or None for *_, each in records]
        assert found.column("headers").to_pylist() == headers
        assert set(found.column("timestamp").to_pylist()) == {_AT}
