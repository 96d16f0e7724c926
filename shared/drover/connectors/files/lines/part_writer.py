"""Writes values as lines into part files, on executors."""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.connector import current_spark_partition
from drover.connector.records import is_binary, is_text

_SCHEMA = pa.schema(
    [("spark_partition", pa.int32()), ("path", pa.string()), ("size_bytes", pa.int64())]
)


@dataclass(frozen=True)
class PartWriter:
    """Writes the values of one Spark partition into a file of ``directory``.

    Each attempt writes its own file, so that repeated or late attempts do not interfere.
    """

    directory: str

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield one row with the name of the part; none for an empty Spark partition."""
        spark_partition = current_spark_partition()
        path = Path(self.directory) / f"{spark_partition}-{uuid.uuid4().hex}"
        size = 0
        file = None
        try:
            for batch in batches:
                if batch.num_rows == 0:
                    continue
                if file is None:
                    file = path.open("wb")
                size += file.write(join_lines(batch.column("value")))
        finally:
            if file is not None:
                file.close()
        if file is not None:
            yield pa.RecordBatch.from_pylist(
                [{"spark_partition": spark_partition, "path": str(path), "size_bytes": size}],
                schema=_SCHEMA,
            )


def join_lines(values: Any) -> Any:
    r"""Each value followed by ``\n``, as one buffer; null is an empty line.

    Raises:
        ValueError: The values are neither binary nor text.
    """
    kind = values.type
    if not is_binary(kind) and not is_text(kind):
        raise ValueError(f"column 'value' must be binary or string, not {kind}: convert it")
    if pa.types.is_large_string(kind):
        values = values.cast(pa.large_binary())
    elif not pa.types.is_large_binary(kind):
        values = values.cast(pa.binary())
    empty = pa.array([b""], values.type)
    lines = pa.concat_arrays([values.fill_null(empty[0]), empty])
    # join one list: joining element by element takes four times as long
    joined = pc.binary_join(
        pa.ListArray.from_arrays([0, len(lines)], lines), pa.scalar(b"\n", values.type)
    )
    return memoryview(joined[0].as_buffer())
