"""Stores source batches as files until they are published: written on executors, read by the
driver.

A file has the output of one Spark partition, in order: whole record batches if the producer sends
them (encoding is parallel, and compressed files are small), otherwise Arrow, with the topic of each
batch and the partition of each record. Small outputs need no file: creating, reading and removing
one took a sixth of a small batch's time.
"""

import errno
import pickle
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from drover.dataplane.arrow_rows import current_spark_partition
from drover.dataplane.kafka.clients import shared_client
from drover.dataplane.kafka.producing import Router
from drover.dataplane.kafka.record_batches import (
    BatchEncoder,
    EncodedBatch,
    Encoding,
    RecordTooLargeError,
)
from drover.dataplane.partitioner import partitions_for_keys
from drover.dataplane.payload import PAYLOAD_SCHEMA
from drover.dataplane.plane import Destination
from drover.log.kafka.brokers import Place
from drover.log.storage import KafkaStorage
from drover.record.framed import Framed

_PLACE = "place"
_TOPIC = b"topic"
_FILE_SCHEMA = PAYLOAD_SCHEMA.append(pa.field(_PLACE, pa.int32()))
_STAGED_SCHEMA = pa.schema(
    [
        ("spark_partition", pa.int32()),
        ("path", pa.string()),
        ("little", pa.binary()),
        ("record_count", pa.int64()),
        ("size_bytes", pa.int64()),
        ("topics", pa.list_(pa.string())),
        ("partition_counts", pa.list_(pa.int32())),
    ]
)
_LITTLE_BYTES_MAX = 16 * 1024
#: The approximate size of keys with their frames in memory.
_JOINED_BYTES = 16 * 1024 * 1024
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})

#: A topic, its records, and the partition of each.
_Routed = tuple[str, Any, Any]
#: A file, or its content.
StagedPart = Path | bytes


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """A source's batch: its files, or small contents, in publishing order. ``partition_counts`` has
    the topics, and ``believes`` means that some counts came from a cache.
    """

    parts: Sequence[StagedPart]
    record_count: int
    size_bytes: int
    partition_counts: Mapping[str, int]
    believes: bool

    def remove(self) -> None:
        """Remove the files; idempotent."""
        for part in self.parts:
            if isinstance(part, Path):
                part.unlink(missing_ok=True)


@dataclass(frozen=True)
class FileStager:
    """Writes batches to files below ``directory``, as record batches if there is an ``encoding``; a
    function for executors.

    Raises FrameError for columns that are not records, DroverErrors of Kafka if a topic cannot be
    created or a record is too large, and an OSError with the remedy for a full disk.
    """

    storage: KafkaStorage
    directory: Path
    destination: Destination
    encoding: Encoding | None = None
    #: Partition counts of topics that need no query.
    known_counts: Mapping[str, int] = field(default_factory=dict)
    #: Up to this size a batch is sent to the driver without a file.
    little_bytes_max: int = _LITTLE_BYTES_MAX

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Write everything; yields one row, or none if there were no records."""
        number = current_spark_partition()
        path = self.directory / f"{number}-{uuid.uuid4().hex}.staged"
        framed = self.encoding is not None
        router = Router(self.storage, self.destination, self.known_counts, framed=framed)
        counts = _Counts()
        little: bytes | None = None
        try:
            parts = counts.counted(part for each in batches for part in router.routed(each))
            if self.encoding is None:
                _write_records(path, parts)
            else:
                encoded = self._encoded(parts, router, self.encoding)
                little = _write_batches(path, encoded, self.little_bytes_max)
        except BaseException as error:
            path.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise OSError(
                    error.errno,
                    f"no space to stage a batch in {self.directory} ({error.strerror}): "
                    "make room, give the worker another TMPDIR, or lower batch.max.bytes",
                ) from error
            raise
        if not counts.record_count:
            path.unlink(missing_ok=True)
        else:
            yield pa.RecordBatch.from_pylist(
                [
                    {
                        "spark_partition": number,
                        "path": str(path) if little is None else None,
                        "little": little,
                        "record_count": counts.record_count,
                        "size_bytes": counts.size_bytes,
                        "topics": router.topics,
                        "partition_counts": router.partition_counts,
                    }
                ],
                schema=_STAGED_SCHEMA,
            )

    def _encoded(
        self, parts: Iterable[_Routed], router: Router, encoding: Encoding
    ) -> Iterator[tuple[Place, EncodedBatch]]:
        encoder = BatchEncoder(encoding)
        for topic, records, places in parts:
            by_key = pc.less(places, 0)
            if pc.any(by_key).as_py():
                count = router.partition_count(topic)
                keyed = _keyed_places(Framed.of(records, "key"), count)
                places = pc.if_else(by_key, keyed, places)
            try:
                yield from encoder.add(topic, records, places)
            except RecordTooLargeError as error:
                raise shared_client(self.storage).translated(
                    KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, str(error)),
                    doing=f"records for the topic {topic} cannot be written",
                    topic=topic,
                ) from error
        yield from encoder.finish()


@dataclass(slots=True)
class _Counts:
    """Counts the records that pass."""

    record_count: int = 0
    size_bytes: int = 0

    def counted(self, parts: Iterable[_Routed]) -> Iterator[_Routed]:
        for topic, records, places in parts:
            self.record_count += records.num_rows
            frame_bytes = sum(Framed.of(records, name).frame_bytes for name in ("key", "value"))
            self.size_bytes += records.nbytes + records.num_rows * frame_bytes
            yield topic, records, places


def _keyed_places(keys: Framed, partition_count: int) -> Any:
    """The partition of each key."""
    if partition_count == 1:
        return pa.repeat(pa.scalar(0, pa.int32()), len(keys.values))
    # the frames are joined to some keys at a time: they may be large
    step = max(1, _JOINED_BYTES // (keys.frame_bytes + 1))
    found = [
        partitions_for_keys(
            replace(keys, values=keys.values.slice(start, step)).joined(), partition_count
        )
        for start in range(0, len(keys.values), step)
    ]
    return pa.concat_arrays(found)


def staged_files(rows: Iterable[Mapping[str, Any]], *, believes: bool = False) -> StagedFiles:
    """The StagedFiles from the rows of a FileStager."""
    ordered = sorted(rows, key=lambda row: int(row["spark_partition"]))
    return StagedFiles(
        tuple(row["little"] or Path(row["path"]) for row in ordered),
        sum(row["record_count"] for row in ordered),
        sum(row["size_bytes"] for row in ordered),
        {
            topic: count
            for row in ordered
            for topic, count in zip(row["topics"], row["partition_counts"], strict=True)
        },
        believes,
    )


def read_batches(part: StagedPart) -> Iterator[tuple[Place, EncodedBatch]]:
    """Topics, partitions and record batches that were staged with an encoding."""
    opened = part.open("rb") if isinstance(part, Path) else BufferedReader(BytesIO(part))
    with opened as file:
        while file.peek(1):
            yield pickle.load(file)


def read_staged(part: StagedPart) -> Iterator[_Routed]:
    """The content of a file staged without an encoding, as from ``Router.routed``."""
    assert isinstance(part, Path)
    with pa.memory_map(str(part)) as source, pa.ipc.open_stream(source) as reader:
        while True:
            try:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            yield metadata[_TOPIC].decode(), batch, batch.column(_PLACE)


def _write_records(path: Path, parts: Iterable[_Routed]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file, pa.ipc.new_stream(file, _FILE_SCHEMA) as writer:
        for topic, records, places in parts:
            batch = pa.RecordBatch.from_arrays([*records.columns, places], schema=_FILE_SCHEMA)
            writer.write_batch(batch, custom_metadata={_TOPIC: topic.encode()})


def _write_batches(
    path: Path, batches: Iterable[tuple[Place, EncodedBatch]], little_bytes_max: int
) -> bytes | None:
    """Write a file; returns the content instead if it is small, because a file takes longer."""
    pickled = (pickle.dumps(each, pickle.HIGHEST_PROTOCOL) for each in batches)
    begun = bytearray()
    for each in pickled:
        begun += each
        if len(begun) > little_bytes_max:
            break
    else:
        return bytes(begun)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(begun)
        file.writelines(pickled)
    return None
