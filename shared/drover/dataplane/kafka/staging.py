"""Stores source batches as files of the driver's machine until they are published.

A file has the output of one Spark partition, in order: whole record batches if the producer sends
them (encoding is parallel, and compressed files are small), otherwise Arrow, with the topic of each
batch and the partition of each record. Small outputs need no file: creating, reading and removing
one took a sixth of a small batch's time.

Executors on the driver's machine write the files. Others send their content as rows of the job, and
the driver writes each row as it arrives.
"""

import errno
import pickle
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
        ("content", pa.binary()),
        ("is_last", pa.bool_()),
        ("record_count", pa.int64()),
        ("size_bytes", pa.int64()),
        ("topics", pa.list_(pa.string())),
        ("partition_counts", pa.list_(pa.int32())),
    ]
)
_LITTLE_BYTES_MAX = 16 * 1024
#: The size of a row with content: a few of them are in memory at once.
SENT_BYTES_MAX = 8 * 1024 * 1024
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
    """Stages batches, as record batches if there is an ``encoding``; a function for executors.

    Raises FrameError for columns that are not records, DroverErrors of Kafka if a topic cannot be
    created or a record is too large, and an OSError with the remedy for a full disk.
    """

    storage: KafkaStorage
    #: Where to write files; None to send their content to the driver.
    directory: Path | None
    destination: Destination
    encoding: Encoding | None = None
    #: Partition counts of topics that need no query.
    known_counts: Mapping[str, int] = field(default_factory=dict)
    #: Up to this size a batch is sent to the driver without a file.
    little_bytes_max: int = _LITTLE_BYTES_MAX

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Stage everything; yields no rows if there were no records. Without a directory the rows
        before the last one have only content.
        """
        number = current_spark_partition()
        framed = self.encoding is not None
        router = Router(self.storage, self.destination, self.known_counts, framed=framed)
        counts = _Counts()
        routed = counts.counted(part for each in batches for part in router.routed(each))
        if self.encoding is None:
            pieces = _arrow_pieces(routed)
        else:
            encoded = self._encoded(routed, router, self.encoding)
            pieces = (pickle.dumps(each, pickle.HIGHEST_PROTOCOL) for each in encoded)
        path: Path | None = None
        content: bytes | None = None
        if self.directory is None:
            for next_content in _joined(pieces, SENT_BYTES_MAX):
                if content is not None:
                    yield _row(number, content=content)
                content = next_content
        else:
            path, content = self._written(self.directory, number, pieces)
        if counts.record_count:
            yield _row(
                number,
                path=str(path) if path is not None else None,
                content=content,
                is_last=True,
                record_count=counts.record_count,
                size_bytes=counts.size_bytes,
                topics=router.topics,
                partition_counts=router.partition_counts,
            )
        elif path is not None:
            path.unlink(missing_ok=True)

    def _written(
        self, directory: Path, number: int, pieces: Iterable[bytes]
    ) -> tuple[Path | None, bytes | None]:
        """The file with the pieces, or their content if it is small: a file takes longer."""
        begun = bytearray()
        rest = iter(pieces)
        for piece in rest:
            begun += piece
            if len(begun) > self.little_bytes_max:
                break
        else:
            return None, bytes(begun)
        path = _new_file(directory, number)
        with _removed_on_error(path), path.open("wb") as file:
            file.write(begun)
            file.writelines(rest)
        return path, None

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
    """The StagedFiles from the last rows of FileStagers."""
    ordered = sorted(rows, key=lambda row: int(row["spark_partition"]))
    return StagedFiles(
        tuple(Path(row["path"]) if row["path"] else row["content"] for row in ordered),
        sum(row["record_count"] for row in ordered),
        sum(row["size_bytes"] for row in ordered),
        {
            topic: count
            for row in ordered
            for topic, count in zip(row["topics"], row["partition_counts"], strict=True)
        },
        believes,
    )


class ArrivingFiles:
    """Writes the rows of FileStagers on other machines into files as they arrive; calls for
    different Spark partitions may be concurrent.
    """

    def __init__(self, directory: Path, *, little_bytes_max: int = _LITTLE_BYTES_MAX) -> None:
        self._directory = directory
        self._little_bytes_max = little_bytes_max
        self._paths: dict[int, Path] = {}
        self._last_rows: list[Mapping[str, Any]] = []

    def take(self, row: Mapping[str, Any]) -> None:
        """Take the next row of a Spark partition.

        Raises:
            OSError: With the remedy for a full disk.
        """
        number, content = row["spark_partition"], row["content"]
        path = self._paths.get(number)
        is_little = row["is_last"] and path is None and len(content) <= self._little_bytes_max
        if not is_little:
            if path is None:
                path = self._paths[number] = _new_file(self._directory, number)
            with _removed_on_error(path), path.open("ab") as file:
                file.write(content)
            row = {**row, "content": None, "path": str(path)}
        if row["is_last"]:
            self._last_rows.append(row)

    def staged(self, *, believes: bool) -> StagedFiles:
        """All that arrived."""
        return staged_files(self._last_rows, believes=believes)

    def discard(self) -> None:
        """Remove the files."""
        for path in self._paths.values():
            path.unlink(missing_ok=True)


def read_batches(part: StagedPart) -> Iterator[tuple[Place, EncodedBatch]]:
    """Topics, partitions and record batches that were staged with an encoding."""
    opened = part.open("rb") if isinstance(part, Path) else BufferedReader(BytesIO(part))
    with opened as file:
        while file.peek(1):
            yield pickle.load(file)


def read_staged(part: StagedPart) -> Iterator[_Routed]:
    """What was staged without an encoding, as from ``Router.routed``."""
    opened = pa.memory_map(str(part)) if isinstance(part, Path) else pa.BufferReader(part)
    with opened as source, pa.ipc.open_stream(source) as reader:
        while True:
            try:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            yield metadata[_TOPIC].decode(), batch, batch.column(_PLACE)


def _row(number: int, **columns: Any) -> Any:
    row = {
        "spark_partition": number,
        "is_last": False,
        "record_count": 0,
        "size_bytes": 0,
        "topics": [],
        "partition_counts": [],
        **columns,
    }
    return pa.RecordBatch.from_pylist([row], schema=_STAGED_SCHEMA)


def _arrow_pieces(parts: Iterable[_Routed]) -> Iterator[bytes]:
    """An Arrow stream, piece by piece."""
    held = BytesIO()
    with pa.ipc.new_stream(held, _FILE_SCHEMA) as writer:
        for topic, records, places in parts:
            batch = pa.RecordBatch.from_arrays([*records.columns, places], schema=_FILE_SCHEMA)
            writer.write_batch(batch, custom_metadata={_TOPIC: topic.encode()})
            yield held.getvalue()
            held.seek(0)
            held.truncate()
    yield held.getvalue()


def _joined(pieces: Iterable[bytes], size_bytes: int) -> Iterator[bytes]:
    """The pieces joined and cut to ``size_bytes`` each; the last one may be smaller."""
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) > size_bytes:
            yield bytes(memoryview(held)[:size_bytes])
            del held[:size_bytes]
    if held:
        yield bytes(held)


def _new_file(directory: Path, number: int) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"{number}-{uuid.uuid4().hex}.staged"


@contextmanager
def _removed_on_error(path: Path) -> Iterator[None]:
    """Remove the file after an error, and add the remedy to that of a full disk."""
    try:
        yield
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise OSError(
                error.errno,
                f"no space to stage a batch in {path.parent} ({error.strerror}): "
                "make room, give the worker another TMPDIR, or lower batch.max.bytes",
            ) from error
        raise
