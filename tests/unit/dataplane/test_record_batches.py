"""Record batches that are encoded by column, read by another client's reader."""

import os
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from drover.dataplane.kafka import record_batches
from drover.dataplane.kafka.batch_format import OVERHEAD_BYTES
from drover.dataplane.kafka.producer_session import ProducerSession
from drover.dataplane.kafka.record_batches import (
    CODECS,
    BatchEncoder,
    EncodedBatch,
    Encoding,
    RecordTooLargeError,
    cut,
)
from drover.dataplane.payload import PAYLOAD_SCHEMA
from drover.record.framed import Framed
from tests.unit.dataplane.encoding import encoded

Row = dict[str, Any]
PLAIN = Encoding(1 << 20, "none")


# a record's largest blobs do not fit into a batch of 800 bytes
blobs = st.none() | st.binary(max_size=200) | st.integers(0, 500).map(bytes)
headers = st.lists(st.fixed_dictionaries({"key": st.text(max_size=9), "value": blobs}), max_size=3)
rows = st.fixed_dictionaries(
    {
        "key": blobs,
        "value": blobs,
        "headers": st.none() | headers,
        "timestamp_ms": st.integers(-1, 1 << 45),
    }
)


def batches_of(found: list[Row], *, max_bytes: int = 1 << 20, compression: str = "none") -> Any:
    table = pa.RecordBatch.from_pylist(found, PAYLOAD_SCHEMA)
    return encoded([table], Encoding(max_bytes, compression))


def read(batches: list[EncodedBatch]) -> list[Row]:
    found: list[Row] = []
    for each in batches:
        data = MemoryRecords(each.build(7, 3, 11))
        assert data.has_next()
        batch = data.next_batch()
        assert batch.validate_crc()
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 11)
        assert batch.is_transactional
        for number, record in enumerate(batch):
            assert record.offset == number
            found.append(
                {
                    "key": record.key,
                    "value": record.value,
                    "headers": [{"key": key, "value": value} for key, value in record.headers],
                    "timestamp_ms": record.timestamp,
                }
            )
        assert not data.has_next()
    return found


def with_headers(found: list[Row]) -> list[Row]:
    return [{**row, "headers": row["headers"] or []} for row in found]


@given(st.lists(rows, max_size=40), st.sampled_from(sorted(CODECS)), st.integers(800, 5000))
def test_what_is_encoded_is_read_back(found: list[Row], compression: str, max_bytes: int) -> None:
    try:
        batches = batches_of(found, max_bytes=max_bytes, compression=compression)
    except RecordTooLargeError:
        alone = [len(each.build(0, 0, 0)) for row in found for each in batches_of([row])]
        assert max(alone) > max_bytes
        return
    assert read(batches) == with_headers(found)
    assert all(len(each.build(0, 0, 0)) <= max_bytes for each in batches)


@given(st.lists(rows, min_size=1, max_size=8))
def test_few_records_become_what_many_would(found: list[Row]) -> None:
    table = pa.RecordBatch.from_pylist(found, PAYLOAD_SCHEMA)
    alone = encoded([table], PLAIN)
    with mock.patch.object(record_batches, "_FEW_RECORDS", 0):
        assert encoded([table], PLAIN) == alone


def test_lines_without_keys_and_headers_are_read_back() -> None:
    found = [
        {"key": None, "value": b"line %d" % n, "headers": None, "timestamp_ms": 5}
        for n in range(300)
    ]
    (batch,) = batches_of(found, compression="lz4")
    assert read([batch]) == with_headers(found)
    assert batch.codec == CODECS["lz4"][0]
    assert len(batch.records) < 3000


def test_a_slice_of_columns_is_encoded_alone() -> None:
    found = [
        {"key": b"%d" % n, "value": b"v%d" % n, "headers": None, "timestamp_ms": n}
        for n in range(10)
    ]
    table = pa.RecordBatch.from_pylist(found, PAYLOAD_SCHEMA).slice(3, 4)
    assert read(encoded([table], PLAIN)) == with_headers(found[3:7])


def test_batches_are_as_full_as_they_may_be() -> None:
    row = {"key": None, "value": b"x" * 100, "headers": None, "timestamp_ms": 1}
    batches = batches_of([row] * 100, max_bytes=OVERHEAD_BYTES + 10 * 115)
    assert [each.record_count for each in batches] == [10] * 10


def test_a_record_that_fits_into_no_batch_is_refused() -> None:
    row = {"key": None, "value": b"x" * 5000, "headers": None, "timestamp_ms": 1}
    with pytest.raises(RecordTooLargeError, match="over the 3939 bytes"):
        batches_of([row], max_bytes=4000)


def test_what_does_not_get_smaller_is_not_compressed() -> None:
    row = {"key": None, "value": bytes(range(256)), "headers": None, "timestamp_ms": 1}
    (batch,) = batches_of([row], compression="lz4")
    assert batch.codec == 0
    assert read([batch]) == with_headers([row])


@given(st.lists(rows, max_size=20))
def test_rows_become_what_columns_would(found: list[Row]) -> None:
    encoder = BatchEncoder(PLAIN)
    made = [*encoder.add_rows(("t", 0), found), *encoder.finish()]
    assert made == [(("t", 0), each) for each in batches_of(found)]


def test_a_row_that_fits_into_no_batch_is_refused() -> None:
    row = {"key": None, "value": b"x" * 100_000, "headers": None, "timestamp_ms": 1}
    with pytest.raises(RecordTooLargeError):
        list(BatchEncoder(Encoding(80_000, "none")).add_rows(("t", 0), [row]))


frames = st.sampled_from([b"", b"x", b'{"schema":' + b"s" * 300 + b',"payload":'])


@st.composite
def framed_tables(draw: st.DrawFn) -> tuple[list[pa.RecordBatch], list[Row]]:
    """Batches with frames around keys and values, and the rows with their whole bytes."""
    tables, whole = [], []
    for found in draw(st.lists(st.lists(rows, max_size=12), max_size=5)):
        table = pa.RecordBatch.from_pylist(found, PAYLOAD_SCHEMA)
        for index, name in enumerate(("key", "value")):
            framed = Framed(table.column(name), draw(frames), draw(frames))
            table = table.set_column(index, framed.field(name), framed.values)
            for row in found:
                blob: Any = row[name]
                row[name] = None if blob is None else framed.before + blob + framed.after
        tables.append(table)
        whole += found
    return tables, whole


@given(
    framed_tables(),
    st.integers(3000, 9000),
    st.integers(500, 20_000),
    st.sampled_from([0, 3, 8]),
    st.sampled_from(sorted(CODECS)),
)
def test_any_cut_into_batches_gives_the_same_topic(
    tables: tuple[list[pa.RecordBatch], list[Row]],
    max_bytes: int,
    full_bytes: int,
    few: int,
    compression: str,
) -> None:
    encoding = Encoding(max_bytes, compression)
    with (
        mock.patch.object(record_batches, "BATCH_BYTES_MAX", full_bytes),
        mock.patch.object(record_batches, "_FEW_RECORDS", few),
    ):
        batches = encoded(tables[0], encoding)
    assert read(batches) == with_headers(tables[1])
    assert all(len(each.build(0, 0, 0)) <= max_bytes for each in batches)


def test_batches_have_4_mib_before_compression() -> None:
    value = b"0123456789" * 100
    found = [{"key": None, "value": value, "headers": None, "timestamp_ms": 1}] * 10_000
    batches = batches_of(found, compression="lz4")
    assert [each.record_count for each in batches] == [4_132, 4_132, 1_736]
    assert read(batches) == with_headers(found)


def test_batches_that_compress_too_little_are_cut_by_their_ratio() -> None:
    numbers = np.random.default_rng(1).integers(0, 256, 20_000_000, np.uint8).tobytes()
    # half of each value is random
    found = [
        {
            "key": None,
            "value": numbers[n * 1000 : n * 1000 + 500] + b"x" * 500,
            "headers": None,
            "timestamp_ms": 1,
        }
        for n in range(20_000)
    ]
    with mock.patch.dict(CODECS, {"lz4": (3, mock.Mock(wraps=CODECS["lz4"][1]))}):
        batches = batches_of(found, compression="lz4")
        compressed_count = CODECS["lz4"][1].call_count  # type: ignore[attr-defined]
    sizes = [len(each.build(0, 0, 0)) for each in batches]
    assert max(sizes) <= 1 << 20
    assert min(sizes[5:-1]) > 0.9 * (1 << 20)
    # only the first one, of 4 MiB, was halved
    assert compressed_count - len(batches) <= 3
    assert read(batches) == with_headers(found)


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("frame", [b"", b"f" * 3000])
def test_a_record_at_the_size_limit_is_written_and_a_larger_one_is_refused(
    compression: str, frame: bytes
) -> None:
    def made(size_bytes: int) -> list[EncodedBatch]:
        values = Framed(pa.array([b"v" * (size_bytes - len(frame))], pa.binary()), before=frame)
        table = pa.RecordBatch.from_pylist(
            [{"key": None, "value": b"", "headers": None, "timestamp_ms": 1}], PAYLOAD_SCHEMA
        ).set_column(1, values.field("value"), values.values)
        return encoded([table], Encoding(100_000, compression))

    def size_bytes(value_bytes: int) -> int:
        return OVERHEAD_BYTES + len(record_batches._record(0, row(b"v" * value_bytes), 1))

    def row(value: bytes) -> Row:
        return {"key": None, "value": value, "headers": None, "timestamp_ms": 1}

    largest = next(n for n in range(100_000, 0, -1) if size_bytes(n) <= 100_000)
    assert [len(each["value"]) for each in read(made(largest))] == [largest]
    with pytest.raises(RecordTooLargeError):
        made(largest + 1)


def test_records_of_many_schemas_share_batches() -> None:
    def table(number: int) -> pa.RecordBatch:
        framed = Framed(pa.array([b"%d" % number], pa.binary()), b"schema %d " % number, b".")
        return pa.RecordBatch.from_pylist(
            [{"key": None, "value": b"", "headers": None, "timestamp_ms": number}], PAYLOAD_SCHEMA
        ).set_column(1, framed.field("value"), framed.values)

    (batch,) = encoded(map(table, range(5_000)), Encoding(1 << 20, "lz4"))
    assert [each["value"] for each in read([batch])] == [
        b"schema %d %d." % (n, n) for n in range(5_000)
    ]
    assert [each["timestamp_ms"] for each in read([batch])] == list(range(5_000))


@pytest.mark.parametrize("count", [5, 500])
def test_frames_are_in_the_records_of_each_partition(count: int) -> None:
    framed = Framed(pa.array([b"%d" % n for n in range(count)]), b"<", b">")
    nothing = [{"key": b"k", "value": b"", "headers": None, "timestamp_ms": 1}] * count
    table = pa.RecordBatch.from_pylist(nothing, PAYLOAD_SCHEMA)
    table = table.set_column(1, framed.field("value"), framed.values)
    encoder = BatchEncoder(PLAIN)
    places = pa.array([n % 2 for n in range(count)], pa.int32())
    made = dict([*encoder.add("t", table, places), *encoder.finish()])
    for partition in (0, 1):
        values = [each["value"] for each in read([made["t", partition]])]
        assert values == [b"<%d>" % n for n in range(partition, count, 2)]


def test_open_batches_of_many_partitions_are_bounded() -> None:
    value = bytes(1000)
    found = [{"key": None, "value": value, "headers": None, "timestamp_ms": 1}] * 1_000
    table = pa.RecordBatch.from_pylist(found, PAYLOAD_SCHEMA)
    places = pa.array([n % 100 for n in range(1_000)], pa.int32())
    encoder = BatchEncoder(Encoding(1 << 20, "lz4"))
    with mock.patch.object(record_batches, "_OPEN_BYTES_MAX", 2_500_000):
        made = [list(encoder.add("t", table, places)) for _ in range(5)]
    made.append(list(encoder.finish()))
    assert [len(each) for each in made] == [0, 0, 100, 0, 0, 100]
    counts = dict.fromkeys(range(100), 0)
    for (_, partition), batch in (each for some in made for each in some):
        counts[partition] += batch.record_count
    assert set(counts.values()) == {50}


@given(st.lists(rows, min_size=2, max_size=20), st.sampled_from(sorted(CODECS)), st.integers(2, 30))
def test_the_pieces_of_a_batch_have_its_records(
    found: list[Row], compression: str, piece_count: int
) -> None:
    (batch,) = batches_of(found, compression=compression)
    pieces = cut(batch, piece_count)
    assert len(pieces) == min(piece_count, len(found))
    counts = [each.record_count for each in pieces]
    assert max(counts) - min(counts) <= 1
    assert read(pieces) == with_headers(found)


@pytest.mark.parametrize("key", [None, b"k" * 200])
@pytest.mark.parametrize("headers", [None, [{"key": "h", "value": b"v"}]])
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_the_size_limit_does_not_depend_on_other_records(
    key: bytes | None, headers: list[Row] | None, compression: str
) -> None:
    def row(value: bytes) -> Row:
        return {"key": key, "value": value, "headers": headers, "timestamp_ms": 1}

    limit_bytes = 20_000

    def fits(value_bytes: int) -> bool:
        size_bytes = len(record_batches._record(0, row(os.urandom(value_bytes)), 1))
        return OVERHEAD_BYTES + size_bytes <= limit_bytes

    largest = os.urandom(next(n for n in range(limit_bytes, 0, -1) if fits(n)))
    others = [
        {"key": None, "value": b"", "headers": None, "timestamp_ms": at} for at in (1, 1 << 40)
    ] * 8
    for found in ([row(largest)], [row(largest), *others], [*others, row(largest)]):
        batches = batches_of(found, max_bytes=limit_bytes, compression=compression)
        assert read(batches) == with_headers(found)
        assert all(len(each.build(1, 0, 0)) <= limit_bytes for each in batches)
    too_large = row(largest + b"v")
    for found in ([too_large], [too_large, *others]):
        with pytest.raises(RecordTooLargeError, match=r"message\.max\.bytes of the client"):
            batches_of(found, max_bytes=limit_bytes, compression=compression)


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_batches_are_smaller_than_what_brokers_refused(compression: str) -> None:
    found = [
        {"key": None, "value": os.urandom(100), "headers": None, "timestamp_ms": 1}
        for _ in range(1_000)
    ]
    found[500]["value"] = os.urandom(5_000)  # the brokers decide about a single record
    encoding = Encoding(1 << 20, compression, {"t": 2_000})
    table = pa.RecordBatch.from_pylist(found, PAYLOAD_SCHEMA)
    batches = encoded([table], encoding)
    assert read(batches) == with_headers(found)
    sizes = [len(each.build(1, 0, 0)) for each in batches if each.record_count > 1]
    assert max(sizes) < 2_000
    assert len(encoded([table], Encoding(1 << 20, compression, {"other": 2_000}))) == 1


def test_the_smallest_size_that_a_topic_refused_is_kept() -> None:
    found: list[Row] = [
        {"key": None, "value": b"v", "headers": None, "timestamp_ms": 1} for _ in range(2)
    ]
    (batch,) = batches_of(found)
    refused_bytes: dict[str, int] = {}
    brokers: Any = None
    session = ProducerSession(brokers, "id", timeout_ms=1, refused_bytes=refused_bytes)
    for place, size_bytes in ((("t", 0), 500), (("t", 1), 900), (("other", 0), 700)):
        session._built(place, batch)
        session._refused(place, batch, size_bytes)
    assert refused_bytes == {"t": 500, "other": 700}
