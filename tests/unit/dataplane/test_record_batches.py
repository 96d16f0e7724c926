"""Record batches that are encoded by column, read by another client's reader."""

from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from drover.dataplane.kafka import record_batches
from drover.dataplane.kafka.batch_format import OVERHEAD_BYTES
from drover.dataplane.kafka.record_batches import (
    CODECS,
    EncodedBatch,
    Encoding,
    RecordTooLargeError,
    encoded,
    encoded_rows,
)
from drover.dataplane.payload import PAYLOAD_SCHEMA

Row = dict[str, Any]

#: How many more bytes the offset and timestamp deltas of a later record may need.
DELTA_BYTES_MAX = 12

# a record's largest blobs do not fit into a batch of 800 bytes
blobs = st.none() | st.binary(max_size=200) | st.integers(0, 500).map(bytes)
headers = st.lists(st.fixed_dictionaries({"key": st.text(max_size=9), "value": blobs}), max_size=3)
rows = st.fixed_dictionaries(
    {
        "key": blobs,
        "value": blobs,
        "headers": st.none() | headers,
        "timestamp_ms": st.integers(0, 1 << 45),
    }
)


def batches_of(found: list[Row], *, max_bytes: int = 1 << 20, compression: str = "none") -> Any:
    table = pa.RecordBatch.from_pylist(found, PAYLOAD_SCHEMA)
    return list(encoded(table, max_bytes=max_bytes, compression=compression))


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
        assert max(alone) + DELTA_BYTES_MAX > max_bytes
        return
    assert read(batches) == with_headers(found)
    if compression == "none":
        assert all(len(each.build(0, 0, 0)) <= max_bytes for each in batches)


@given(st.lists(rows, min_size=1, max_size=8))
def test_few_records_become_what_many_would(found: list[Row]) -> None:
    table = pa.RecordBatch.from_pylist(found, PAYLOAD_SCHEMA)
    alone = list(encoded(table, max_bytes=1 << 20, compression="none"))
    with mock.patch.object(record_batches, "_FEW_RECORDS", 0):
        assert list(encoded(table, max_bytes=1 << 20, compression="none")) == alone


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
    assert read(list(encoded(table, max_bytes=1 << 20, compression="none"))) == with_headers(
        found[3:7]
    )


def test_batches_are_as_full_as_they_may_be() -> None:
    row = {"key": None, "value": b"x" * 100, "headers": None, "timestamp_ms": 1}
    batches = batches_of([row] * 100, max_bytes=OVERHEAD_BYTES + 10 * 115)
    assert [each.record_count for each in batches] == [10] * 10


def test_a_record_that_fits_into_no_batch_is_refused() -> None:
    row = {"key": None, "value": b"x" * 5000, "headers": None, "timestamp_ms": 1}
    with pytest.raises(RecordTooLargeError, match="over 3939 bytes"):
        batches_of([row], max_bytes=4000)


def test_what_does_not_get_smaller_is_not_compressed() -> None:
    row = {"key": None, "value": bytes(range(256)), "headers": None, "timestamp_ms": 1}
    (batch,) = batches_of([row], compression="lz4")
    assert batch.codec == 0
    assert read([batch]) == with_headers([row])


@given(st.lists(rows, max_size=20))
def test_rows_become_what_columns_would(found: list[Row]) -> None:
    encoding = Encoding(1 << 20, "none")
    assert list(encoded_rows(found, encoding)) == batches_of(found)


def test_a_row_that_fits_into_no_batch_is_refused() -> None:
    row = {"key": None, "value": b"x" * 100_000, "headers": None, "timestamp_ms": 1}
    with pytest.raises(RecordTooLargeError):
        list(encoded_rows([row], Encoding(80_000, "none")))
