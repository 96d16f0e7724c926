"""Transforms and functions that tests reference by name."""

import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.record import RecordError
from drover.record.batch import make_batch
from drover.transform.transform import Transform


class SaysNoSettings(Transform):
    @classmethod
    def config_def(cls) -> ConfigDef:
        raise OSError("no disk")

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        return [batch]


class SaysTooMuch(SaysNoSettings):
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(ConfigKey("negate", ConfigType.STRING, default=None))


def drop_odd_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    odd = pa.array([offset % 2 == 1 for offset in batch.column("offset").to_pylist()])
    return batch.filter(pa.compute.invert(odd))


def split_rows(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for row in range(batch.num_rows):
        yield batch.slice(row, 1)


def forget_other_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Keeps only the record columns, which a transform should not do."""
    return make_batch(
        batch.num_rows,
        **{
            name: (batch.schema.field(name), batch.column(name))
            for name in ("topic", "offset", "value")
        },
    )


def lose_the_value(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns("value")


def return_text(batch: pa.RecordBatch) -> Any:
    return ["text"]


def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise KeyError("city")


def leave(batch: pa.RecordBatch) -> pa.RecordBatch:
    sys.exit("that is all")


def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise RecordError("the city is unknown")


def hang_at_one(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Loops for ever when a value is 1; otherwise records its thread."""
    while batch.column("value")[0].as_py()["a"] == 1:
        pass
    threads.add(threading.get_ident())
    return batch


threads: set[int] = set()
of_lambda = lambda batch: [batch]  # noqa: E731 - has no name that pickle finds
NOT_A_FUNCTION = 7
