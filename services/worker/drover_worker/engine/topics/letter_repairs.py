"""Repairs of dead letters: new keys and values, encoded as their records were, and written."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from drover.api.common.v1.repairs_pb2 import DeadLetterRepair
from drover.api.engine.v1 import engine_pb2
from drover.convert.converter import Converter
from drover.convert.plain_converters import ByteArrayConverter
from drover.dataplane.payload import PAYLOAD_SCHEMA
from drover.dataplane.plane import DataPlane
from drover.errors import InvalidArgumentError, Violation
from drover.model.dead_letters import HEADER_PREFIX, REPAIR_HEADER, REPAIRED_BY_HEADER
from drover.model.letter_states import OffsetSet
from drover.pipeline.overwrites import stored_digest
from drover.record.batch import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from drover.record.json.decode import parse_payloads
from drover.record.json.schemaless import value_text
from drover.record.schema import Schema, arrow_field, schema_of
from drover_worker.engine.topics.produced_records import InputRecords, encode, parsed_json
from drover_worker.engine.topics.shown_values import connect_value

_ORIGIN = f"{HEADER_PREFIX}topic"
_FAULTS_MAX = 100
_READ_RECORDS, _READ_BYTES = 5_000, 4 * 1024 * 1024

Place = tuple[int, int]
#: The bytes of a key and a value.
Parts = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Letter:
    """A stored dead letter."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Mapping[str, Any]]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class LetterFormat:
    """How the keys and the values of a connector's dead letters are encoded.

    ``default_topic`` is for dead letters without a header with their topic.
    """

    queue: str
    key: Converter
    value: Converter
    default_topic: str | None = None


def encoded_repairs(
    plane: DataPlane, form: LetterFormat, repairs: Sequence[DeadLetterRepair]
) -> dict[Place, Parts]:
    """The new keys and values as bytes, by partition and offset.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every fault.
    """
    found: dict[Place, Parts] = {}
    faults: list[Violation] = []
    for number, repair in enumerate(repairs):
        place = (repair.partition, repair.offset)
        letter = _letter(plane, form.queue, place)
        if letter is None:
            text = f"{form.queue} has no dead letter {place[0]}:{place[1]} any more"
            faults.append(Violation(f"repairs[{number}]", text))
            continue
        topic = _topic_of(letter) or form.default_topic or form.queue
        parts: dict[str, bytes | None] = {KEY: letter.key, VALUE: letter.value}
        for name, repaired, converter in (
            (KEY, repair.key if repair.HasField("key") else None, form.key),
            (VALUE, repair.value if repair.HasField("value") else None, form.value),
        ):
            if repaired is None:
                continue
            parts[name], wrong = _Side(converter, name, topic).encoded(repaired, parts[name])
            faults += [Violation(f"repairs[{number}].{name}", text) for text in wrong]
        found[place] = parts[KEY], parts[VALUE]
    if faults:
        raise InvalidArgumentError.listing(faults[:_FAULTS_MAX])
    return found


def repair_letters(
    plane: DataPlane,
    form: LetterFormat,
    command: engine_pb2.RepairDeadLetters,
    open_letters: Mapping[int, OffsetSet],
) -> engine_pb2.RepairedDeadLetters:
    """Write repaired dead letters; a dead letter that the same request wrote before is found.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every fault.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    bounds = plane.topic_bounds(form.queue)
    wanted = {(each.partition, each.offset): each for each in command.repairs}
    places = _repaired(plane, form.queue, wanted.keys(), command.request_id)
    none = OffsetSet()
    missing = [
        repair
        for (partition, offset), repair in wanted.items()
        if (partition, offset) not in places and offset in open_letters.get(partition, none)
    ]
    parts: dict[int, list[dict[str, Any]]] = {}
    for (partition, offset), (key, value) in encoded_repairs(plane, form, missing).items():
        letter = _letter(plane, form.queue, (partition, offset))
        assert letter is not None
        row = {
            "key": key,
            "value": value,
            "headers": _headers(letter, command, f"{partition}:{offset}"),
            "timestamp_ms": letter.timestamp_ms,
        }
        parts.setdefault(partition, []).append(row)
    if parts:
        batches = {
            partition: pa.RecordBatch.from_pylist(rows, schema=PAYLOAD_SCHEMA)
            for partition, rows in parts.items()
        }
        plane.append(form.queue, batches, command.request_id)
        ends = [(partition, bounds[partition][1]) for partition in parts]
        places |= _repaired(plane, form.queue, ends, command.request_id)
    answer = engine_pb2.RepairedDeadLetters()
    for (partition, offset), repaired in sorted(places.items()):
        answer.places.add(partition=partition, offset=offset, repaired_offset=repaired)
    return answer


def _repaired(
    plane: DataPlane, queue: str, wanted: Collection[Place], request_id: str
) -> dict[Place, int]:
    """The offsets of the dead letters that a request has written, by the place of the original."""
    starts: dict[int, int] = {}
    for partition, offset in wanted:
        starts[partition] = min(starts.get(partition, offset), offset)
    found: dict[Place, int] = {}
    bounds = plane.topic_bounds(queue)
    positions = {
        (queue, partition): max(start, bounds[partition][0])
        for partition, start in starts.items()
        if partition in bounds
    }
    ends = {(queue, partition): bounds[partition][1] for _, partition in positions}
    while positions:
        plan = plane.plan_read(positions, max_records=_READ_RECORDS, max_bytes=_READ_BYTES)
        for batch in plane.read_here(plan):
            found |= dict(_repairs_in(batch, request_id))
        moved = {key: plan.next_offsets.get(key, ends[key]) for key in positions}
        positions = {key: at for key, at in moved.items() if at < ends[key] and at > positions[key]}
    return found


def _repairs_in(batch: pa.RecordBatch, request_id: str) -> Iterator[tuple[Place, int]]:
    offsets = batch.column(OFFSET).to_pylist()
    partitions = batch.column(PARTITION).to_pylist()
    for row, headers in enumerate(batch.column(HEADERS).to_pylist()):
        for each in headers or ():
            if each["key"] != REPAIR_HEADER:
                continue
            own_id, _, rest = _text(each).partition(f"{request_id} ")
            place = rest.partition(" ")[0].rpartition(":")[2]
            if not own_id and place.isdecimal():
                yield (partitions[row], int(place)), offsets[row]


def _headers(
    letter: Letter, command: engine_pb2.RepairDeadLetters, place: str
) -> list[dict[str, Any]]:
    """The headers of the dead letter, and the ones about the repair."""
    digest = stored_digest(letter.key, letter.value)
    kept = []
    for each in letter.headers:
        if each["key"] == REPAIR_HEADER:  # it was repaired before
            digest = _text(each).rpartition(" ")[2]
        elif each["key"] != REPAIRED_BY_HEADER:
            kept.append({"key": each["key"], "value": each["value"]})
    about = {
        REPAIRED_BY_HEADER: command.author,
        REPAIR_HEADER: f"{command.request_id} {place} {digest}",
    }
    return [*kept, *({"key": key, "value": text.encode()} for key, text in about.items())]


def _text(header: Mapping[str, Any]) -> str:
    value: bytes | None = header["value"]
    return "" if value is None else value.decode(errors="replace")


def _letter(plane: DataPlane, queue: str, place: Place) -> Letter | None:
    partition, offset = place
    plan = plane.plan_read({(queue, partition): offset}, max_records=1, max_bytes=_READ_BYTES)
    for batch in plane.read_here(plan):
        offsets = batch.column(OFFSET).to_pylist()
        if offset in offsets:
            (row,) = batch.slice(offsets.index(offset), 1).to_pylist()
            moment = row[TIMESTAMP]
            time_s = time.time() if moment is None else moment.timestamp()
            return Letter(row[KEY], row[VALUE], row[HEADERS] or [], round(time_s * 1000))
    return None


def _topic_of(letter: Letter) -> str | None:
    found = [each["value"] for each in letter.headers if each["key"] == _ORIGIN]
    return found[-1].decode(errors="replace") if found and found[-1] else None


class _Side:
    """Encodes a key or a value."""

    def __init__(self, converter: Converter, name: str, topic: str) -> None:
        self._converter = converter
        self._name = name
        self._topic = topic
        self._topics = pa.array([topic], pa.string())

    def encoded(self, text: str, present: bytes | None) -> tuple[bytes | None, list[str]]:
        """The bytes of a JSON text, and what is wrong with it; ``present`` is the part that it
        replaces.
        """
        try:
            parsed = parsed_json(text.encode())
        except ValueError as error:
            return None, [str(error)]
        if parsed is None:
            return None, []
        schema = None if isinstance(self._converter, ByteArrayConverter) else self._schema(present)
        try:
            if schema is not None:
                return self._by_schema(text, schema)
            return self._without_schema(parsed)
        except Exception as error:  # noqa: BLE001 - a converter may be a plugin's
            return None, [str(error) or type(error).__name__]

    def _schema(self, present: bytes | None) -> Schema | None:
        """The schema of the present part; None if it has none, or cannot be decoded."""
        if present is None:
            return None
        try:
            (found,) = self._converter.decode(pa.array([present], pa.binary()), self._topics)
            return schema_of(found.field)
        except Exception:  # noqa: BLE001 - that it cannot be decoded may be why it is repaired
            return None

    def _by_schema(self, text: str, schema: Schema) -> tuple[bytes | None, list[str]]:
        value, faults = connect_value(text, schema)
        if faults:
            return None, faults
        column = parse_payloads(pa.array([value_text(value)], pa.string()), schema)
        field = arrow_field(self._name, schema)
        return self._converter.encode(field, column, self._topics)[0].as_py(), []

    def _without_schema(self, parsed: Any) -> tuple[bytes | None, list[str]]:
        records = InputRecords()
        is_key = self._name == KEY
        records.add(0, parsed if is_key else None, None if is_key else parsed)
        batch = encode(
            records,
            self._converter,
            self._converter,
            topic=self._topic,
            now_ms=0,
            record_bytes_max=None,
        )
        if records.faults:
            return None, [records.faults[0].removeprefix(f"{self._name}: ")]
        found: bytes | None = batch.column(self._name)[0].as_py()
        # what the converter cannot read would become a dead letter again
        self._converter.decode(pa.array([found], pa.binary()), self._topics)
        return found, []
