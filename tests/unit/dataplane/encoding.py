"""Record batches of one partition, for tests."""

from collections.abc import Iterable
from itertools import chain

import pyarrow as pa

from drover.dataplane.kafka.record_batches import BatchEncoder, EncodedBatch, Encoding


def encoded(tables: Iterable[pa.RecordBatch], encoding: Encoding) -> list[EncodedBatch]:
    """The records of the tables as record batches of one partition."""
    encoder = BatchEncoder(encoding)
    added = (encoder.add("t", each, pa.array([0] * each.num_rows, pa.int32())) for each in tables)
    return [batch for _, batch in chain(chain.from_iterable(added), encoder.finish())]
