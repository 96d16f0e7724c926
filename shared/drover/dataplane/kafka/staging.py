"""Record batches as files that wait to be published, written on executors and read by the driver.

A file holds what one Spark partition made, in order: batches of records with the partition of each,
and with each batch the topic that it goes to.
"""

import errno
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from drover.dataplane.arrow_rows import current_spark_partition
from drover.dataplane.kafka.producing import Router
from drover.dataplane.payload import PAYLOAD_SCHEMA
from drover.dataplane.plane import Destination
from drover.log.storage import KafkaStorage

_PLACE = "place"
_TOPIC = b"topic"
_FILE_SCHEMA = PAYLOAD_SCHEMA.append(pa.field(_PLACE, pa.int32()))
_STAGED_SCHEMA = pa.schema(
    [
        ("spark_partition", pa.int32()),
        ("path", pa.string()),
        ("record_count", pa.int64()),
        ("size_bytes", pa.int64()),
        ("topics", pa.list_(pa.string())),
    ]
)
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """A batch of a source: its files in the order in which they are published."""

    paths: Sequence[Path]
    record_count: int
    topics: Sequence[str]
    size_bytes: int

    def remove(self) -> None:
        """Remove the files; done twice it does no harm."""
        for path in self.paths:
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class FileStager:
    """Writes record batches to files below ``directory``; a function for executors.

    The call raises FrameError for columns that are not records, DroverErrors of Kafka where a topic
    is made, and OSError that says what to do about a full disk.
    """

    storage: KafkaStorage
    directory: Path
    destination: Destination

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Write everything; yields one row, or none where there were no records."""
        number = current_spark_partition()
        path = self.directory / f"{number}-{uuid.uuid4().hex}.arrow"
        router = Router(self.storage, self.destination)
        try:
            record_count = _write(path, (part for each in batches for part in router.routed(each)))
        except BaseException as error:
            path.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise OSError(
                    error.errno,
                    f"there is no room to stage a batch in {self.directory} ({error.strerror}): "
                    "make room, give the worker another TMPDIR, or lower batch.max.bytes",
                ) from error
            raise
        if record_count:
            yield pa.RecordBatch.from_pylist(
                [
                    {
                        "spark_partition": number,
                        "path": str(path),
                        "record_count": record_count,
                        "size_bytes": path.stat().st_size,
                        "topics": router.topics,
                    }
                ],
                schema=_STAGED_SCHEMA,
            )


def staged_files(rows: Iterable[Mapping[str, Any]]) -> StagedFiles:
    """The rows that a FileStager returned."""
    ordered = sorted(rows, key=lambda row: int(row["spark_partition"]))
    return StagedFiles(
        tuple(Path(row["path"]) for row in ordered),
        sum(row["record_count"] for row in ordered),
        tuple(dict.fromkeys(topic for row in ordered for topic in row["topics"])),
        sum(row["size_bytes"] for row in ordered),
    )


def read_staged(path: Path) -> Iterator[tuple[str, Any, Any]]:
    """Topics, their records, and the partition of each, as ``Router.routed`` gave them."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
        while True:
            try:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            yield metadata[_TOPIC].decode(), batch, batch.column(_PLACE)


def _write(path: Path, parts: Iterable[tuple[str, Any, Any]]) -> int:
    """How many records there were; without any there is no file."""
    record_count = 0
    with path.open("wb") as file, pa.ipc.new_stream(file, _FILE_SCHEMA) as writer:
        for topic, records, places in parts:
            batch = pa.RecordBatch.from_arrays([*records.columns, places], schema=_FILE_SCHEMA)
            writer.write_batch(batch, custom_metadata={_TOPIC: topic.encode()})
            record_count += records.num_rows
    if not record_count:
        path.unlink()
    return record_count
